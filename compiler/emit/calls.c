/* emit/calls.c: the operations of the step as calls of the runtime: the function of each kind of operation,
 * in each form, and its arguments.
 */
#include "emit/emit_step.h"

#include <stdlib.h>
#include <string.h>

/* ---- tokens and rows ---- */

static bool has_all_tokens(const Printer *p, Operand x)
{
    return x.value >= 0 && (p->step->values.at[x.value].dim[0] == DIM_ALL_TOKENS ||
                            p->step->values.at[x.value].dim[1] == DIM_ALL_TOKENS);
}

/* How many tokens: a chunk's, this rank's, or all of the ranks that split the weights. */
static const char *count_text(const Printer *p, const Op *o, int none)
{
    (void)none;
    if (op_by_heads(o))
        return all_text(p);
    if (o->chunked)
        return "rows";
    return has_all_tokens(p, o->read[0]) ? "all" : "n";
}

/* A device has fp32 gradients so, and all else by tokens. */
static bool lies_by_heads(const Printer *p, const Value *v)
{
    return v->by_heads && (v->element == EL_FLOAT || !p->step->program->target->one_layout);
}

/* Chunk after chunk, each as if there were no others. */
static bool lies_by_chunks(const Printer *p, const Value *v)
{
    return (p->step->by_queries && dim_of_queries(v->dim[1])) || (p->step->by_keys && dim_of_keys(v->dim[1]));
}

/* What lies by heads has so many tokens a head. */
static const char *rows_text(const Printer *p, const Op *o, int none)
{
    (void)none;
    for (int i = 0; i < OP_READS && o->read[i].value >= 0; i++)
        if (lies_by_chunks(p, &p->step->values.at[o->read[i].value]))
            return "rows";
    return all_text(p);
}

/* The variable, or a chunk's part of what it points to. */
static const char *operand_text(const Printer *p, const Op *o, Operand x)
{
    const Value *v = &p->step->values.at[x.value];
    if (!op_takes_rows(p->step, o, x.value))
        return variable(p, o, x);
    if (op_by_heads(o))
        return arena_printf(p->emit->arena, "%s + %s", variable(p, o, x), heads_begin_text(p, v));
    if (lies_by_heads(p, v) && !lies_by_chunks(p, v))
        return arena_printf(p->emit->arena, "%s + first%s", variable(p, o, x), head_width_text(v->dim[1]));
    return arena_printf(p->emit->arena, "%s + first * %s%s", variable(p, o, x),
                        v->dim[1] == DIM_PAIR ? "2 * " : "", width_text(p, o, v, false));
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

static const char *tensor_at(const Printer *p, const Op *o, const Operand *x)
{
    const UnitTensor *t = op_tensor(p->step, o, p->block);
    const char *tensor = variable(p, o, *x);
    if (t->offset)
        tensor = arena_printf(p->emit->arena, "%s + %s", tensor, weight_constant(p->emit->arena, t->name));
    return op_by_heads(o) && t->heads != SPLIT_NONE
               ? arena_printf(p->emit->arena, "%s + %s", tensor, heads_weight_text(p, t))
               : tensor;
}

static const char *const scale_constant[] = {
#define X(id, name, constant) constant,
    BURST_SCALE_ROWS(X)
#undef X
};

/* ---- arguments ---- */

/* X: read, Y: written */
enum { X0, X1, X2, X3, X4, X5, X6, Y0 = OP_READS, Y1, Y2, Y3 };

typedef const char *ArgumentText(const Printer *p, const Op *o, int operand);
typedef struct Argument {
    ArgumentText *text;
    int operand;
    const char *as_it_is; /* instead of both */
} Argument;

static Operand operand_of(const Op *o, int operand)
{
    return operand < OP_READS ? o->read[operand] : o->write[operand - OP_READS];
}

static const Value *value_of(const Printer *p, const Op *o, int operand)
{
    return &p->step->values.at[operand_of(o, operand).value];
}

/* ---- of an operand ---- */

/* NULL: what a sum over tensor ranks is added to, where that is nothing. */
static const char *at_text(const Printer *p, const Op *o, int operand)
{
    return operand_of(o, operand).value < 0 ? "NULL" : operand_text(p, o, operand_of(o, operand));
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

/* Rows of a norm, of which the operand has a number each: tokens, or heads of tokens. */
static const char *norm_rows_text(const Printer *p, const Op *o, int operand)
{
    const Value *v = value_of(p, o, operand);
    return v->dim[1] == DIM_ONE
               ? count_text(p, o, 0)
               : arena_printf(p->emit->arena, "%s * %s", count_text(p, o, 0), width_text(p, o, v, true));
}

static const char *norm_width_text(const Printer *p, const Op *o, int operand)
{
    return value_of(p, o, operand)->dim[1] == DIM_ONE ? width_argument(p, o, X0) : "PLAN_HEAD_DIM";
}

/* Whether the output is added to. */
static const char *adds_text(const Printer *p, const Op *o, int operand)
{
    const int i = operand - OP_READS;
    const char *later = op_takes_whole(p->step, o, o->write[i].value) ? "chunk > 0" : "false";
    return o->adds[i] ? "true" : later;
}

/* ---- of the operation ---- */

/* What a product is added to; of a sum over chunks of heads, after the first, the sum. */
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
    return o->kind == OP_LOSS ? "0" : "1";
}

static bool is_norm_of_latent(const Printer *p, const Op *o)
{
    const Dim d = p->step->values.at[o->read[0].value].dim[1];
    return d == DIM_LATENT || d == DIM_QUERY_LATENT;
}

/* Of the whole tensor of the output projection, of which the operation has a chunk's. */
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

static const char *weight_text(const Printer *p, const Op *o, int none)
{
    (void)none;
    return tensor_at(p, o, find_weight(p, o));
}

static const char *gradient_text(const Printer *p, const Op *o, int none)
{
    (void)none;
    return tensor_at(p, o, find_write(p, o, false));
}

static const char *scratch_text(const Printer *p, const Op *o, int none)
{
    (void)none;
    return find_write(p, o, true) ? variable(p, o, *find_write(p, o, true)) : "NULL";
}

/* What a sum over tensor ranks is added to. */
static const char *added_to_text(const Printer *p, const Op *o, int none)
{
    (void)none;
    return o->adds[0] ? variable(p, o, o->write[0]) : "NULL";
}

static const char *tensors_text(const Printer *p, const Op *o, int none)
{
    (void)none;
    return arena_printf(p->emit->arena, "%d", o->tensors);
}

static const char *rope_text(const Printer *p, const Op *o, int none)
{
    (void)o, (void)none;
    return p->step->program->model.ropes > 1 ? "&plan_ropes[plan_layer_rope[layer]]" : "&plan_rope";
}

/* Positions by which RoPE turns. */
static const char *turns_text(const Printer *p, const Op *o, int none)
{
    (void)o, (void)none;
    return p->step->program->model.rope_table ? "s->turns" : "s->position";
}

static const char *chunk_turns_text(const Printer *p, const Op *o, int none)
{
    return arena_printf(p->emit->arena, "%s + first", turns_text(p, o, none));
}

/* ---- calls ---- */

#define TEXT(words) {.as_it_is = words}
#define AT(x) {at_text, x, NULL}
#define WIDTH(x) {width_argument, x, NULL}
#define HEADS(x) {heads_text, x, NULL}
#define HEAD_WIDTH(x) {head_width_argument, x, NULL}
#define NORM_ROWS(x) {norm_rows_text, x, NULL}
#define NORM_WIDTH(x) {norm_width_text, x, NULL}
#define ADDS(x) {adds_text, x, NULL}
#define TOKENS {count_text, 0, NULL}
#define ALL_ROWS {rows_text, 0, NULL}
#define TENSOR_TOKENS TEXT("s->each")
#define TENSOR_RANKS TEXT("PLAN_TENSOR")
#define TURNS {turns_text, 0, NULL}
#define CHUNK_TURNS {chunk_turns_text, 0, NULL}
#define NORM_EPS {norm_eps_text, 0, NULL}
#define WEIGHT {weight_text, 0, NULL}
#define GRADIENT {gradient_text, 0, NULL}
#define SCRATCH {scratch_text, 0, NULL}
#define RESIDUAL {residual_text, 0, NULL}
#define SCALE {scale_text, 0, NULL}
#define ROPE {rope_text, 0, NULL}
#define STACKED {tensors_text, 0, NULL}
#define ALL_COLUMNS {columns_text, 0, NULL}
#define ADDED_TO {added_to_text, 0, NULL}

/* Of an operation that has several functions. OTHER: LayerNorm, an ungated activation, a head with bias or
 * softcap. COLUMNS: a chunk's columns of a tensor. TO_TOKENS: from heads. LSE: with lse's gradient. ROWS: of
 * a chunk of tokens; KEYS: and of keys. LATENTS: travel as keys and values. PARTS: of rows, whose mean of
 * squares is an operand. */
enum { OTHER = 1, COLUMNS = 2, TO_TOKENS = 4, LSE = 8, ROWS = 16, KEYS = 32, LATENTS = 64, PARTS = 128 };
typedef struct Call {
    OpKind kind;
    int form;
    const char *function; /* with its first arguments */
    Argument argument[CALL_WORDS];
} Call;
/* clang-format off */
static const Call calls[] = {
    {OP_EMBED, 0, "burst_op_embed(e", {TOKENS, WIDTH(Y0), AT(X0), WEIGHT, AT(Y0)}},
    {OP_EMBED_BACK, 0, "burst_op_embed_back(e", {TOKENS, WIDTH(X1), AT(X0), AT(X1), GRADIENT, SCRATCH}},
    {OP_NORM, 0, "burst_op_rmsnorm(e",
     {NORM_ROWS(Y1), NORM_WIDTH(Y1), NORM_EPS, AT(X0), WEIGHT, AT(Y0), AT(Y1)}},
    {OP_NORM, OTHER, "burst_op_layernorm(e",
     {NORM_ROWS(Y1), NORM_WIDTH(Y1), NORM_EPS, AT(X0), WEIGHT, AT(Y0), AT(Y1)}},
    {OP_NORM, PARTS, "burst_op_rmsnorm_part(e",
     {NORM_ROWS(Y1), NORM_WIDTH(Y1), NORM_EPS, AT(X0), AT(X1), WEIGHT, AT(Y0), AT(Y1)}},
    {OP_NORM_BACK, 0, "burst_op_rmsnorm_back(e",
     {NORM_ROWS(X1), NORM_WIDTH(X1), AT(X0), AT(X1), AT(X2), WEIGHT, AT(Y0), ADDS(Y0), GRADIENT, SCRATCH}},
    {OP_NORM_BACK, OTHER, "burst_op_layernorm_back(e",
     {NORM_ROWS(X1), NORM_WIDTH(X1), AT(X0), AT(X1), AT(X2), WEIGHT, AT(Y0), ADDS(Y0), GRADIENT, SCRATCH}},
    {OP_NORM_BACK, PARTS, "burst_op_rmsnorm_part_back(e",
     {NORM_ROWS(X1), NORM_WIDTH(X1), AT(X0), AT(X1), AT(X2), WEIGHT, AT(Y0), ADDS(Y0), AT(Y1), GRADIENT,
      SCRATCH}},
    {OP_SQUARES, 0, "burst_op_squares(e", {TOKENS, WIDTH(X0), TENSOR_RANKS, AT(X0), AT(Y0)}},
    {OP_SQUARES_BACK, 0, "burst_op_squares_back(e",
     {TOKENS, WIDTH(X0), TENSOR_RANKS, AT(X0), AT(X1), AT(Y0), ADDS(Y0)}},
    {OP_LINEAR, 0, "burst_op_linear(e",
     {TOKENS, WIDTH(X0), WIDTH(Y0), STACKED, AT(X0), WEIGHT, RESIDUAL, AT(Y0)}},
    {OP_LINEAR, COLUMNS, "burst_op_linear_columns(e",
     {TOKENS, WIDTH(X0), WIDTH(Y0), ALL_COLUMNS, AT(X0), WEIGHT, RESIDUAL, AT(Y0)}},
    {OP_LINEAR_DW, 0, "burst_op_linear_dw(e",
     {TOKENS, WIDTH(X1), WIDTH(X0), STACKED, AT(X0), AT(X1), GRADIENT}},
    {OP_LINEAR_DW, COLUMNS, "burst_op_linear_dw_columns(e",
     {TOKENS, WIDTH(X1), WIDTH(X0), ALL_COLUMNS, AT(X0), AT(X1), GRADIENT}},
    {OP_LINEAR_DX, 0, "burst_op_linear_dx(e",
     {TOKENS, WIDTH(Y0), WIDTH(X0), STACKED, AT(X0), WEIGHT, AT(Y0), ADDS(Y0)}},
    {OP_LINEAR_DX, COLUMNS, "burst_op_linear_dx_columns(e",
     {TOKENS, WIDTH(Y0), WIDTH(X0), ALL_COLUMNS, AT(X0), WEIGHT, AT(Y0), ADDS(Y0)}},
    {OP_BIAS, 0, "burst_op_bias(e", {TOKENS, WIDTH(X0), AT(X0), WEIGHT, AT(Y0)}},
    {OP_BIAS_BACK, 0, "burst_op_bias_back(e", {TOKENS, WIDTH(X0), AT(X0), GRADIENT}},
    {OP_ROPE, 0, "burst_op_rope(e",
     {TOKENS, HEADS(X0), TEXT("PLAN_HEAD_DIM"), ROPE, TURNS, AT(X0), AT(Y0)}},
    {OP_ROPE, ROWS, "burst_op_rope_rows(e",
     {TOKENS, ALL_ROWS, HEADS(X0), TEXT("PLAN_HEAD_DIM"), ROPE, CHUNK_TURNS, AT(X0), AT(Y0)}},
    {OP_ROPE_BACK, 0, "burst_op_rope_back(e",
     {TOKENS, HEADS(X0), TEXT("PLAN_HEAD_DIM"), ROPE, TURNS, AT(X0), AT(Y0)}},
    {OP_ROPE_BACK, ROWS, "burst_op_rope_back_rows(e",
     {TOKENS, ALL_ROWS, HEADS(X0), TEXT("PLAN_HEAD_DIM"), ROPE, CHUNK_TURNS, AT(X0), AT(Y0)}},
    {OP_JOIN, 0, "burst_op_join(e", {TOKENS, HEADS(X0), HEAD_WIDTH(X0), WIDTH(X1), AT(X0), AT(X1), AT(Y0)}},
    {OP_JOIN_BACK, 0, "burst_op_join_back(e",
     {TOKENS, HEADS(Y0), HEAD_WIDTH(Y0), WIDTH(Y1), AT(X0), AT(Y0), AT(Y1), ADDS(Y1)}},
    {OP_LAYOUT, 0, "burst_op_to_heads(e", {TOKENS, HEADS(X0), HEAD_WIDTH(X0), AT(X0), AT(Y0)}},
    {OP_LAYOUT, TO_TOKENS, "burst_op_to_tokens(e", {TOKENS, HEADS(X0), HEAD_WIDTH(X0), AT(X0), AT(Y0)}},
    {OP_LAYOUT, ROWS, "burst_op_to_heads_rows(e",
     {TOKENS, ALL_ROWS, HEADS(X0), HEAD_WIDTH(X0), AT(X0), AT(Y0)}},
    {OP_LAYOUT, TO_TOKENS | ROWS, "burst_op_to_tokens_rows(e",
     {TOKENS, ALL_ROWS, HEADS(X0), HEAD_WIDTH(X0), AT(X0), AT(Y0)}},
    {OP_LAYOUT_BACK, 0, "burst_op_to_heads(e", {TOKENS, HEADS(X0), HEAD_WIDTH(X0), AT(X0), AT(Y0)}},
    {OP_LAYOUT_BACK, TO_TOKENS, "burst_op_to_tokens(e",
     {TOKENS, HEADS(X0), HEAD_WIDTH(X0), AT(X0), AT(Y0)}},
    {OP_LAYOUT_BACK, ROWS, "burst_op_to_heads_rows(e",
     {TOKENS, ALL_ROWS, HEADS(X0), HEAD_WIDTH(X0), AT(X0), AT(Y0)}},
    {OP_LAYOUT_BACK, TO_TOKENS | ROWS, "burst_op_to_tokens_rows(e",
     {TOKENS, ALL_ROWS, HEADS(X0), HEAD_WIDTH(X0), AT(X0), AT(Y0)}},
    {OP_ATTENTION, 0, "plan_attention(c, s, plan_layer_mask[layer]",
     {AT(X0), AT(X1), AT(X2), AT(Y0), AT(Y1)}},
    {OP_ATTENTION, LATENTS, "plan_attention_latents(c, s, plan_layer_mask[layer]",
     {AT(X0), AT(X1), AT(X2), AT(X3), WEIGHT, AT(Y0), AT(Y1)}},
    {OP_ATTENTION, ROWS, "plan_attention_rows(c, s, plan_layer_mask[layer]",
     {TEXT("chunk"), AT(X0), AT(X1), AT(X2), AT(Y0), AT(Y1)}},
    {OP_ATTENTION, KEYS, "plan_attention_keys(c, s, plan_layer_mask[layer]",
     {TEXT("chunk"), TEXT("key"), AT(X0), AT(X1), AT(X2), AT(Y0), AT(Y1)}},
    {OP_ATTENTION_REST, 0, "plan_attention_rest(c, s, plan_layer_mask[layer]",
     {AT(X0), AT(X1), AT(X2), AT(X3), AT(X4), AT(Y0), AT(Y1)}},
    {OP_KEEP, 0, "plan_keep(c, s", {AT(X0), AT(X1), AT(Y0), AT(Y1)}},
    {OP_SINK, 0, "burst_op_sink(e", {TOKENS, HEADS(X0), HEAD_WIDTH(X0), AT(X0), AT(X1), WEIGHT, AT(Y0)}},
    {OP_SINK_BACK, 0, "burst_op_sink_back(e",
     {TOKENS, HEADS(X0), HEAD_WIDTH(X0), AT(X0), AT(X1), AT(X2), WEIGHT, AT(Y0), AT(Y1), GRADIENT}},
    {OP_DELTA, 0, "burst_op_delta(e", {TOKENS, HEADS(X0), HEAD_WIDTH(X0), AT(X0), AT(X1), AT(Y0)}},
    {OP_DELTA, LSE, "burst_op_delta_lse(e",
     {TOKENS, HEADS(X0), HEAD_WIDTH(X0), AT(X0), AT(X1), AT(X2), AT(Y0)}},
    {OP_ATTENTION_BACK, 0, "plan_attention_back(c, s, plan_layer_mask[layer]",
     {AT(X0), AT(X1), AT(X2), AT(X3), AT(X4), AT(X5), AT(Y0), AT(Y1), AT(Y2)}},
    {OP_ATTENTION_BACK, LATENTS, "plan_attention_back_latents(c, s, plan_layer_mask[layer]",
     {AT(X0), AT(X1), AT(X2), AT(X3), AT(X4), AT(X5), AT(X6), WEIGHT, AT(Y0), AT(Y1), AT(Y2), AT(Y3),
      GRADIENT}},
    {OP_ATTENTION_BACK, ROWS, "plan_attention_back_rows(c, s, plan_layer_mask[layer]",
     {TEXT("chunk"), AT(X0), AT(X1), AT(X2), AT(X3), AT(X4), AT(X5), AT(Y0), AT(Y1), AT(Y2)}},
    {OP_ATTENTION_BACK, KEYS, "plan_attention_back_keys(c, s, plan_layer_mask[layer]",
     {TEXT("chunk"), TEXT("key"), AT(X0), AT(X1), AT(X2), AT(X3), AT(X4), AT(X5), AT(Y0), AT(Y1), AT(Y2)}},
    {OP_WAIT, 0, "burst_op_reduced(e", {TEXT("&s->reduction")}},
    {OP_SWIGLU, 0, "burst_op_swiglu(e", {TOKENS, WIDTH(Y0), AT(X0), AT(Y0)}},
    {OP_SWIGLU, OTHER, "burst_op_activate(e", {TEXT("PLAN_ACTIVATION"), TOKENS, WIDTH(Y0), AT(X0), AT(Y0)}},
    {OP_SWIGLU_BACK, 0, "burst_op_swiglu_back(e", {TOKENS, WIDTH(X1), AT(X0), AT(X1), AT(Y0)}},
    {OP_SWIGLU_BACK, OTHER, "burst_op_activate_back(e",
     {TEXT("PLAN_ACTIVATION"), TOKENS, WIDTH(X1), AT(X0), AT(X1), AT(Y0)}},
    {OP_SCALE, 0, "burst_op_scale(e", {TOKENS, WIDTH(X0), SCALE, AT(X0), RESIDUAL, AT(Y0)}},
    {OP_SCALE_BACK, 0, "burst_op_scale_back(e", {TOKENS, WIDTH(X0), SCALE, AT(X0), AT(Y0), ADDS(Y0)}},
    {OP_TENSOR_GATHER, 0, "burst_op_tensor_gather(e",
     {TENSOR_TOKENS, WIDTH(X0), AT(X0), AT(Y0), TEXT("&s->tensor")}},
    {OP_TENSOR_SCATTER, 0, "burst_op_tensor_scatter(e",
     {TENSOR_TOKENS, WIDTH(X0), AT(X0), AT(X1), AT(Y0), TEXT("&s->tensor")}},
    {OP_TENSOR_GATHER_BACK, 0, "burst_op_tensor_scatter(e",
     {TENSOR_TOKENS, WIDTH(X0), AT(X0), ADDED_TO, AT(Y0), TEXT("&s->tensor")}},
    {OP_TENSOR_SCATTER_BACK, 0, "burst_op_tensor_gather(e",
     {TENSOR_TOKENS, WIDTH(X0), AT(X0), AT(Y0), TEXT("&s->tensor")}},
    {OP_TENSOR_ALL_REDUCE, 0, "burst_op_tensor_all_reduce(e",
     {TENSOR_TOKENS, TENSOR_RANKS, AT(X0), AT(Y0), TEXT("&s->tensor")}},
    {OP_TENSOR_ALL_REDUCE_BACK, 0, "burst_op_tensor_all_reduce(e",
     {TENSOR_TOKENS, TENSOR_RANKS, AT(X0), AT(Y0), TEXT("&s->tensor")}},
    {OP_LOSS, 0, "burst_op_loss(e",
     {TOKENS, WIDTH(X0), TEXT("PLAN_VOCAB"), TEXT("PLAN_LOSS_TILE"), AT(X0), WEIGHT, AT(X1), AT(X2),
      TEXT("s->scale"), TEXT("s->loss"), AT(Y0), GRADIENT, SCRATCH}},
    {OP_LOSS, OTHER, "burst_op_loss_head(e",
     {TOKENS, WIDTH(X0), TEXT("PLAN_VOCAB"), TEXT("PLAN_LOSS_TILE"), STACKED, SCALE, AT(X0), WEIGHT,
      AT(X1), AT(X2), TEXT("s->scale"), TEXT("s->loss"), AT(Y0), GRADIENT, SCRATCH}},
};
/* clang-format on */

/* Of a norm whose rows tensor ranks share: the mean of their squares, or its gradient. */
static bool has_square(const Printer *p, const Op *o)
{
    const bool back = o->kind == OP_NORM_BACK;
    const int value = back ? o->write[1].value : o->read[1].value;
    return (back || o->kind == OP_NORM) && value >= 0 &&
           p->step->values.at[value].kind == (back ? VALUE_GRADIENT : VALUE_ACTIVATION);
}

static int form_of(const Printer *p, const Op *o)
{
    const Model *m = &p->step->program->model;
    const BurstLayer *l = &m->layer;
    const bool norm = o->kind == OP_NORM || o->kind == OP_NORM_BACK,
               activation = o->kind == OP_SWIGLU || o->kind == OP_SWIGLU_BACK,
               layout = o->kind == OP_LAYOUT || o->kind == OP_LAYOUT_BACK,
               rope = o->kind == OP_ROPE || o->kind == OP_ROPE_BACK;
    const UnitTensor *t = op_by_heads(o) ? op_tensor(p->step, o, p->block) : NULL;
    int form = 0;
    if ((norm && l->norm) || (activation && l->activation) ||
        (o->kind == OP_LOSS && (l->head_bias || m->scale[BURST_SCALE_LOGIT_SOFTCAP] > 0)))
        form |= OTHER;
    if (has_square(p, o))
        form |= PARTS;
    if (t && t->heads == SPLIT_COLS && op_work_kind(o->kind) == WORK_PRODUCT)
        form |= COLUMNS;
    if (layout && !value_of(p, o, Y0)->by_heads)
        form |= TO_TOKENS;
    if (o->kind == OP_DELTA && o->read[2].value >= 0)
        form |= LSE;
    if (op_work_kind(o->kind) == WORK_ATTENTION && o->weight)
        form |= LATENTS;
    if (o->keys)
        form |= KEYS;
    else if (o->chunked && !o->by_heads && (layout || rope || op_work_kind(o->kind) == WORK_ATTENTION))
        form |= ROWS;
    return form;
}

static const Call *call_of(const Printer *p, const Op *o)
{
    const int form = form_of(p, o);
    for (int i = 0; i < countof(calls); i++)
        if (calls[i].kind == o->kind && calls[i].form == form)
            return &calls[i];
    abort(); /* the pass that made the operation has a form that no function has */
}

int call_words(const Printer *p, const Op *o, const char **function, const char *item[CALL_WORDS])
{
    const Call *call = call_of(p, o);
    int n = 0;
    *function = call->function;
    for (const Argument *x = call->argument; n < CALL_WORDS && (x->text || x->as_it_is); x++)
        item[n++] = x->as_it_is ? x->as_it_is : x->text(p, o, x->operand);
    return n;
}
