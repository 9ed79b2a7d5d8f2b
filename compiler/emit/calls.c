/* emit/calls.c: the step's operations as calls of the runtime, with the functions and words of their rows
 * (step/operations.def). */
#include "emit/emit_step.h"

#include <stdlib.h>
#include <string.h>

/* ---- tokens and rows ---- */

static bool has_all_tokens(const Printer *p, Operand x)
{
    return x.value >= 0 && (p->step->values.at[x.value].dim[0] == DIM_ALL_TOKENS ||
                            p->step->values.at[x.value].dim[1] == DIM_ALL_TOKENS);
}

/* The number of tokens: a chunk's, this rank's, or that of all tensor ranks. */
static const char *count_text(const Printer *p, const Op *o, int none)
{
    (void)none;
    const LoopDim loop = op_dim(p->step, o);
    if (loop == LOOP_HEADS)
        return all_text(p);
    if (loop == LOOP_TOKENS)
        return "rows";
    return has_all_tokens(p, o->read[0]) ? "all" : "n";
}

/* On a device, fp32 gradients are by heads and everything else by tokens. */
static bool lies_by_heads(const Printer *p, const Value *v)
{
    return v->by_heads && (v->element == EL_FLOAT || !p->step->program->target->one_layout);
}

/* Whether the value is stored chunk by chunk, each in its own layout. */
static bool lies_by_chunks(const Printer *p, const Value *v)
{
    const bool queries = dim_of_queries(v->dim[1]) || v->dim[1] == DIM_INDEX_QUERY;
    return (p->step->by_queries && queries) || (p->step->by_keys && dim_of_keys(v->dim[1]));
}

/* A value by heads has so many tokens per head. */
static const char *rows_text(const Printer *p, const Op *o, int none)
{
    (void)none;
    for (int i = 0; i < OP_READS && o->read[i].value >= 0; i++)
        if (lies_by_chunks(p, &p->step->values.at[o->read[i].value]))
            return "rows";
    return all_text(p);
}

/* The variable, or a chunk's part of the array that it points to. */
static const char *operand_text(const Printer *p, const Op *o, Operand x)
{
    const Value *v = &p->step->values.at[x.value];
    if (!op_takes_rows(p->step, o, x.value) || v->dim[1] == DIM_LISTS) /* lists of all heads lie by tiles */
        return variable(p, o, x);
    if (op_in_loop(p->step, o, LOOP_HEADS))
        return arena_printf(p->emit->arena, "%s + %s", variable(p, o, x), heads_begin_text(p, v));
    if (lies_by_heads(p, v) && !lies_by_chunks(p, v))
        return arena_printf(p->emit->arena, "%s + first%s", variable(p, o, x), head_width_text(v->dim[1]));
    return arena_printf(p->emit->arena, "%s + first * %s%s", variable(p, o, x),
                        dim_of_pairs(v->dim[1]) ? "2 * " : "", width_text(p, o, v, false));
}

/* ---- operands ---- */

static bool is_weight(const Printer *p, Operand x)
{
    const ValueKind k = x.value < 0 ? VALUE_SCRATCH : p->step->values.at[x.value].kind;
    return k == VALUE_WEIGHT || k == VALUE_ROUNDED || k == VALUE_STATE;
}

static const Operand *find_write(const Printer *p, const Op *o, bool scratch)
{
    for (int i = 0; i < OP_WRITES && o->write[i].value >= 0; i++) {
        const ValueKind k = p->step->values.at[o->write[i].value].kind;
        if (scratch ? k == VALUE_SCRATCH : k == VALUE_SUM || k == VALUE_SHARD)
            return &o->write[i];
    }
    return NULL;
}

const Operand *find_weight(const Printer *p, const Op *o)
{
    for (int i = 0; i < OP_READS && o->read[i].value >= 0; i++)
        if (is_weight(p, o->read[i]))
            return &o->read[i];
    return NULL;
}

static const char *tensor_at(const Printer *p, const Op *o, const Operand *x, int after)
{
    const UnitTensor *t = op_tensor(p->step, o, p->block) + after;
    const char *tensor = variable(p, o, *x);
    if (t->offset)
        tensor = arena_printf(p->emit->arena, "%s + %s", tensor,
                              tensor_at_constant(p->emit, step_unit_row(p->step, o, p->block), t));
    return op_in_loop(p->step, o, LOOP_HEADS) && t->heads != SPLIT_NONE
               ? arena_printf(p->emit->arena, "%s + %s", tensor, heads_weight_text(p, t))
               : tensor;
}

static const char *const scale_constant[] = {
#define X(id, name, constant) constant,
    BURST_SCALE_ROWS(X)
#undef X
};

/* ---- arguments ---- */

/* operand: its index; outputs begin at OP_READS */
typedef const char *ArgumentText(const Printer *p, const Op *o, int operand);

static Operand operand_of(const Op *o, int operand)
{
    return operand < OP_READS ? o->read[operand] : o->write[operand - OP_READS];
}

static const Value *value_of(const Printer *p, const Op *o, int operand)
{
    return &p->step->values.at[operand_of(o, operand).value];
}

/* ---- of an operand ---- */

/* The address of an operand. NULL if it is the addend of a sum that has none: weights follow the operands. */
static const char *at_text(const Printer *p, const Op *o, int operand)
{
    const Operand x = operand_of(o, operand);
    return x.value < 0 || is_weight(p, x) ? "NULL" : operand_text(p, o, x);
}

/* Elements of a row. */
static const char *width_argument(const Printer *p, const Op *o, int operand)
{
    return width_text(p, o, value_of(p, o, operand), false);
}

static const char *heads_text(const Printer *p, const Op *o, int operand)
{
    return width_text(p, o, value_of(p, o, operand), true);
}

/* Elements of one head. */
static const char *head_width_argument(const Printer *p, const Op *o, int operand)
{
    return head_width_text(value_of(p, o, operand)->dim[1]) + strlen(" * ");
}

/* Rows of a norm, each with a number of the operand: tokens, or heads of tokens. */
static const char *norm_rows_text(const Printer *p, const Op *o, int operand)
{
    const Value *v = value_of(p, o, operand);
    return v->dim[1] == DIM_ONE
               ? count_text(p, o, 0)
               : arena_printf(p->emit->arena, "%s * %s", count_text(p, o, 0), width_text(p, o, v, true));
}

/* Elements of a head of attention, or of an indexer. */
static const char *turned_text(const Printer *p, const Op *o, int operand)
{
    return dim_of_indexer(value_of(p, o, operand)->dim[1]) ? "PLAN_INDEX_DIM" : "PLAN_HEAD_DIM";
}

static const char *norm_width_text(const Printer *p, const Op *o, int operand)
{
    return value_of(p, o, operand)->dim[1] == DIM_ONE ? width_argument(p, o, 0) : turned_text(p, o, operand);
}

/* Whether the output is accumulated. */
static const char *adds_text(const Printer *p, const Op *o, int operand)
{
    const int i = operand - OP_READS;
    const char *later = op_takes_whole(p->step, o, o->write[i].value) ? "chunk > 0" : "false";
    return o->adds[i] ? "true" : later;
}

/* ---- arguments for the whole operation ---- */

/* The value that a product is added to; after the first chunk of heads, the sum over chunks. */
static const char *residual_text(const Printer *p, const Op *o, int none)
{
    (void)none;
    const char *text = o->read[1].value < 0 || is_weight(p, o->read[1]) ? "NULL"
                                                                        : operand_text(p, o, o->read[1]);
    return op_takes_whole(p->step, o, o->write[0].value)
               ? arena_printf(p->emit->arena, "chunk ? %s : %s", variable(p, o, o->write[0]), text)
               : text;
}

static const char *scale_text(const Printer *p, const Op *o, int none)
{
    (void)none;
    if (p->step->program->model.scale[o->scale] > 0)
        return scale_constant[o->scale];
    return op_work_kind(o->kind) == WORK_LOSS || o->kind == OP_NEXT ? "0" : "1";
}

/* The scale of the head's bias: scaled logits get it through the head's input, but the bias does not. */
static const char *bias_scale_text(const Printer *p, const Op *o, int none)
{
    (void)o, (void)none;
    return p->step->program->model.scale[BURST_SCALE_LOGIT] > 0 ? scale_constant[BURST_SCALE_LOGIT] : "1";
}

static bool is_norm_of_latent(const Printer *p, const Op *o)
{
    const Dim d = p->step->values.at[o->read[0].value].dim[1];
    return d == DIM_LATENT || d == DIM_QUERY_LATENT;
}

/* Columns of the whole output projection, of which the operation has a chunk. */
static const char *columns_text(const Printer *p, const Op *o, int none)
{
    (void)o, (void)none;
    return dim_of(&p->step->program->model, DIM_OUTPUT) == DIM_OUTPUT ? "PLAN_ALL_HEADS * PLAN_VALUE_DIM"
                                                                      : "PLAN_ALL_HEADS * PLAN_HEAD_DIM";
}

static const char *norm_eps_text(const Printer *p, const Op *o, int none)
{
    (void)none;
    return is_norm_of_latent(p, o) ? "BURST_LATENT_EPS" : "PLAN_NORM_EPS";
}

/* Where a rank's shard has its slice of the matrix: the weights of a later token are the shard. */
static const char *slice_text(const Printer *p, const Op *o, int none)
{
    const UnitTensor *t = op_tensor(p->step, o, p->block);
    (void)none;
    return arena_printf(p->emit->arena, "%s + %s", variable(p, o, *find_weight(p, o)),
                        slice_at_constant(p->emit, step_unit_row(p->step, o, p->block), t));
}

/* With experts in slices a later token is multiplied by this rank's; biases of all experts are whole. */
static const char *weight_text(const Printer *p, const Op *o, int none)
{
    const char *all = tensor_at(p, o, find_weight(p, o), 0);
    if (units_slice_experts(&p->step->units) && op_work_kind(o->kind) == WORK_EXPERTS)
        return arena_printf(p->emit->arena, "plan_slice(s, %s, %s)", all, slice_text(p, o, none));
    if (units_slice_experts(&p->step->units) && o->kind == OP_EXPERTS_BIAS)
        return arena_printf(p->emit->arena, "plan_expert_biases(s, %s)", all);
    return all;
}

/* The head's. */
static const char *bias_text(const Printer *p, const Op *o, int none)
{
    const Unit *u = &p->step->units.at[p->step->units.head];
    const UnitTensor *bias = o->tensors > 1 ? unit_tensor(u, "lm_head.bias") : NULL;
    (void)none;
    if (!bias)
        return "NULL";
    return arena_printf(p->emit->arena, "%s + %s", variable(p, o, *find_weight(p, o)),
                        tensor_at_constant(p->emit, p->step->units.head, bias));
}

static const char *gradient_text(const Printer *p, const Op *o, int none)
{
    (void)none;
    return tensor_at(p, o, find_write(p, o, false), 0);
}

/* Of a router, in fp32 on both targets: a device's weights are bf16. */
static const char *correction_text(const Printer *p, const Op *o, int none)
{
    return p->step->program->target->device_memory ? "s->buffer.corrections + layer * PLAN_EXPERTS"
                                                   : weight_text(p, o, none);
}

/* A layer's experts, or a group of them. */
static const char *experts_text(const Printer *p, const Op *o, int none)
{
    (void)none;
    if (units_slice_experts(&p->step->units) && o->kind != OP_EXPERTS_OUT_BIAS) /* biases are whole */
        return "plan_running_experts(s)";
    return o->group ? arena_printf(p->emit->arena, "&plan_experts_of[%d]", o->group - 1) : "&plan_experts";
}

/* The tensor that follows it. */
static const char *second_weight_text(const Printer *p, const Op *o, int none)
{
    (void)none;
    return tensor_at(p, o, find_weight(p, o), 1);
}

static const char *second_gradient_text(const Printer *p, const Op *o, int none)
{
    (void)none;
    return tensor_at(p, o, find_write(p, o, false), 1);
}

static const char *scratch_text(const Printer *p, const Op *o, int none)
{
    (void)none;
    return find_write(p, o, true) ? variable(p, o, *find_write(p, o, true)) : "NULL";
}

/* What a sum is added to. */
static const char *added_to_text(const Printer *p, const Op *o, int none)
{
    (void)none;
    return o->adds[0] ? operand_text(p, o, o->write[0]) : "NULL";
}

/* The lists of chosen blocks, the only numbers that attention reads. */
static bool is_selected(const Value *v) { return v->element == EL_INT; }

static bool is_of_gates(const Value *v) { return v->dim[1] == DIM_SCAN_GATES; }

/* The two tensors of a scan's gates are one matrix: a token's row has both. */
static const char *tensors_text(const Printer *p, const Op *o, int none)
{
    (void)none;
    if (op_touches(p->step, o, is_of_gates))
        return "1";
    return arena_printf(p->emit->arena, "%d", o->tensors);
}

static const char *rope_text(const Printer *p, const Op *o, int none)
{
    (void)none;
    if (dim_of_indexer(value_of(p, o, 0)->dim[1]))
        return "&plan_index_rope";
    if (p->step->program->model.rope.query_beta > 0 && dim_of_keys(value_of(p, o, 0)->dim[1]))
        return "&plan_key_rope";
    return p->step->program->model.ropes > 1 ? "&plan_ropes[plan_layer_rope[layer]]" : "&plan_rope";
}

/* Positions by which RoPE rotates. */
static const char *turns_text(const Printer *p, const Op *o, int none)
{
    (void)o, (void)none;
    return p->step->program->model.rope_table ? "s->turns" : "s->position";
}

static const char *chunk_turns_text(const Printer *p, const Op *o, int none)
{
    return arena_printf(p->emit->arena, "%s + first", turns_text(p, o, none));
}

/* Which queries and keys of the loops around it attention has. */
static const char *tile_text(const Printer *p, const Op *o, int none)
{
    (void)none;
    return op_in_loop(p->step, o, LOOP_KEYS) ? "plan_pair_tile(plan_layer_mask[layer], chunk, key)"
                                             : "plan_queries_tile(chunk)";
}

static const char *constant_or_one(const Printer *p, int scale)
{
    return p->step->program->model.scale[scale] > 0 ? scale_constant[scale] : "1";
}

static const char *ffn_gate_text(const Printer *p, const Op *o, int none)
{
    (void)o, (void)none;
    return constant_or_one(p, BURST_SCALE_FFN_GATE);
}

static const char *scan_gate_text(const Printer *p, const Op *o, int none)
{
    (void)o, (void)none;
    return constant_or_one(p, BURST_SCALE_SCAN_GATE);
}

/* Whether the operation is the shared expert's; otherwise it is the dense network's. */
static bool is_shared(const Printer *p, const Op *o)
{
    const Dim d = value_of(p, o, 0)->dim[1];
    return d == DIM_SHARED_PAIR || d == DIM_SHARED_FFN;
}

static int activation_of(const Printer *p, const Op *o)
{
    const Model *m = &p->step->program->model;
    return is_shared(p, o) ? m->experts.activation : m->layer.activation;
}

/* SwiGLU has a name of its own where its gate is scaled. */
static const char *activation_text(const Printer *p, const Op *o, int none)
{
    (void)none;
    if (is_shared(p, o))
        return "plan_experts.activation";
    return p->step->program->model.layer.activation ? "PLAN_ACTIVATION" : "BURST_ACTIVATION_SWIGLU";
}

/* ---- what recurrent layers begin with: in a program that infers, a later token with what is kept ---- */

static const char *kept_or(const Printer *p, const char *kept, const char *other)
{
    return p->step->program->infer.lengths ? arena_printf(p->emit->arena, "%s(s, %s)", kept, other) : other;
}

static const char *rows_before_text(const Printer *p, const Op *o, int operand)
{
    return kept_or(p, "plan_rows_before", at_text(p, o, operand));
}

static const char *no_rows_text(const Printer *p, const Op *o, int none)
{
    (void)o, (void)none;
    return kept_or(p, "plan_rows_before", "NULL");
}

static const char *state_before_text(const Printer *p, const Op *o, int operand)
{
    return kept_or(p, "plan_state_before", at_text(p, o, operand));
}

static const char *no_state_text(const Printer *p, const Op *o, int none)
{
    (void)o, (void)none;
    return kept_or(p, "plan_state_before", "NULL");
}

static const char *state_after_text(const Printer *p, const Op *o, int none)
{
    (void)o, (void)none;
    return p->step->program->infer.lengths ? "plan_state_after(s)" : "NULL";
}

/* ---- calls ---- */

/* Words of a call (step/operations.def); with an operand: NAME(x0). */
static const struct {
    const char *word;
    ArgumentText *text;
} words[] = {
    {"tokens", count_text},
    {"all_rows", rows_text},
    {"width", width_argument},
    {"heads", heads_text},
    {"head_width", head_width_argument},
    {"norm_rows", norm_rows_text},
    {"norm_width", norm_width_text},
    {"turned", turned_text},
    {"eps", norm_eps_text},
    {"w", weight_text},
    {"slice", slice_text},
    {"bias", bias_text},
    {"dw", gradient_text},
    {"w1", second_weight_text},
    {"correction", correction_text},
    {"experts", experts_text},
    {"dw1", second_gradient_text},
    {"scratch", scratch_text},
    {"residual", residual_text},
    {"added_to", added_to_text},
    {"adds", adds_text},
    {"scale", scale_text},
    {"bias_scale", bias_scale_text},
    {"activation", activation_text},
    {"ffn_gate_scale", ffn_gate_text},
    {"scan_gate_scale", scan_gate_text},
    {"tensors", tensors_text},
    {"all_columns", columns_text},
    {"rope", rope_text},
    {"positions", turns_text},
    {"chunk_positions", chunk_turns_text},
    {"tile", tile_text},
    {"rows", rows_before_text},
    {"no_rows", no_rows_text},
    {"state", state_before_text},
    {"no_state", no_state_text},
    {"after", state_after_text},
};

/* Whether it is x or y followed by a digit. */
static bool is_operand(const char *word, size_t n)
{
    return n == 2 && (word[0] == 'x' || word[0] == 'y') && word[1] >= '0' && word[1] <= '9';
}

static int operand_number(const char *word) { return (word[0] == 'y' ? OP_READS : 0) + word[1] - '0'; }

static const char *word_text(const Printer *p, const Op *o, const char *word, size_t n)
{
    const char *open = memchr(word, '(', n);
    const size_t name = open ? (size_t)(open - word) : n;
    if (is_operand(word, n))
        return at_text(p, o, operand_number(word));
    for (int i = 0; i < countof(words); i++)
        if (strlen(words[i].word) == name && memcmp(words[i].word, word, name) == 0)
            return words[i].text(p, o, open ? operand_number(open + 1) : 0);
    return arena_copy(p->emit->arena, word, n);
}

/* Whether a norm's rows are shared by tensor ranks, so that it has the mean of their squares, or its
 * gradient. */
static bool has_square(const Printer *p, const Op *o)
{
    const bool back = o->kind == OP_NORM_BACK;
    const int value = back ? o->write[1].value : o->read[1].value;
    return (back || o->kind == OP_NORM) && value >= 0 &&
           p->step->values.at[value].kind == (back ? VALUE_GRADIENT : VALUE_ACTIVATION);
}

/* Whether tensor ranks gather numbers of 32 bits, or add up their gradients. */
static bool gathers_words(const Printer *p, const Op *o)
{
    return (o->kind == OP_TENSOR_GATHER || o->kind == OP_TENSOR_GATHER_BACK) &&
           value_of(p, o, 0)->element != EL_ACTIVATION;
}

/* A convolution with a bias, or a scan that adds its values times a number of the head. */
static bool has_more_of_scan(const Op *o)
{
    const bool conv = o->kind == OP_CONV || o->kind == OP_CONV_BACK || o->kind == OP_CONV_PIECES ||
                      o->kind == OP_CONV_PIECES_BACK,
               scan = o->kind == OP_SCAN || o->kind == OP_SCAN_BACK || o->kind == OP_SCAN_PIECES ||
                      o->kind == OP_SCAN_PIECES_BACK;
    return (conv && o->tensors > 1) || (scan && o->weight);
}

/* A gate of columns of the dimension: of a convolution without states, or of a scan's outputs, in place of
 * attention's gate. */
static bool is_gate_of(const Printer *p, const Op *o, Dim columns)
{
    const bool gate = o->kind == OP_GATE_ELEMENTS || o->kind == OP_GATE_ELEMENTS_BACK;
    return gate && value_of(p, o, 0)->dim[1] == columns;
}

/* Whether gradients of the weights of choices begin with biases of groups' outputs, each group those of its
 * own choices, before rows or other ranks add theirs. */
static bool begins_route(const Printer *p, const Op *o)
{
    for (const Op *x = p->block->ops.at; o->kind == OP_EXPERTS_OUT_BIAS_BACK && x->kind != o->kind; x++)
        for (int i = 0; i < OP_WRITES; i++)
            if (x->write[i].value == o->write[0].value)
                return false;
    return o->kind == OP_EXPERTS_OUT_BIAS_BACK;
}

static int form_of(const Printer *p, const Op *o)
{
    const Model *m = &p->step->program->model;
    const BurstLayer *l = &m->layer;
    const bool norm = o->kind == OP_NORM || o->kind == OP_NORM_BACK,
               bias = o->kind == OP_BIAS || o->kind == OP_BIAS_BACK,
               activation = o->kind == OP_SWIGLU || o->kind == OP_SWIGLU_BACK,
               layout = o->kind == OP_LAYOUT || o->kind == OP_LAYOUT_BACK,
               rope = o->kind == OP_ROPE || o->kind == OP_ROPE_BACK || o->kind == OP_ROTATE ||
                      o->kind == OP_ROTATE_BACK;
    const UnitTensor *t = op_in_loop(p->step, o, LOOP_HEADS) ? op_tensor(p->step, o, p->block) : NULL;
    int form = 0;
    if ((norm && l->norm) || (activation && (activation_of(p, o) || m->scale[BURST_SCALE_FFN_GATE] > 0)) ||
        (bias && o->tensors > 1) || (o->kind == OP_CHOOSE && o->weight) || has_more_of_scan(o) ||
        is_gate_of(p, o, DIM_SCAN_COLUMNS) || gathers_words(p, o) || begins_route(p, o) ||
        (o->kind == OP_LOSS && (l->head_bias || m->scale[BURST_SCALE_LOGIT_SOFTCAP] > 0)))
        form |= FORM_OTHER;
    if (activation && m->experts.everywhere)
        form |= FORM_CLAMPED;
    if (is_gate_of(p, o, DIM_SCAN_VALUES))
        form |= FORM_SILU;
    if (has_square(p, o))
        form |= FORM_PARTS;
    if (t && t->heads == SPLIT_COLS && op_work_kind(o->kind) == WORK_PRODUCT)
        form |= FORM_COLUMNS;
    if (layout && !value_of(p, o, OP_READS)->by_heads)
        form |= FORM_TO_TOKENS;
    if (o->kind == OP_DELTA && o->read[2].value >= 0)
        form |= FORM_LSE;
    if ((op_work_kind(o->kind) == WORK_ATTENTION || o->kind == OP_CACHE) && o->weight)
        form |= FORM_LATENTS;
    if (p->emit->splits && cost_splits_product(p->emit->draft, p->block, o))
        form |= FORM_SPLIT;
    if (step_has_slices(p->step, p->block, o))
        form |= FORM_SLICE;
    if (op_work_kind(o->kind) == WORK_ATTENTION && op_touches(p->step, o, is_selected))
        form |= FORM_SELECTED;
    if (op_dim(p->step, o) == LOOP_TOKENS &&
        (layout || rope || op_work_kind(o->kind) == WORK_ATTENTION || o->kind == OP_SELECT))
        form |= FORM_ROWS;
    return form;
}

static const OpCall *call_of(const Printer *p, const Op *o)
{
    const int form = form_of(p, o);
    const OpCall *call = op_row_of(o->kind)->call;
    for (int i = 0; i < OP_CALLS && call[i].function; i++)
        if (call[i].form == form)
            return &call[i];
    abort(); /* the pass made an operation for which no function exists */
}

int call_words(const Printer *p, const Op *o, const char **function, const char *item[CALL_WORDS])
{
    const OpCall *call = call_of(p, o);
    int n = 0;
    *function = call->function;
    for (const char *at = call->words; *at; at += *at == ' ') {
        const size_t length = strcspn(at, " ");
        if (n == CALL_WORDS)
            abort(); /* CALL_WORDS is too small for a row */
        item[n++] = word_text(p, o, at, length);
        at += length;
    }
    return n;
}
