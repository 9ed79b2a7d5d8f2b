/* step/passes/model.c: a Llama's tensors, and forward of its layer, embedding and head, as rows. A model
 * with a bias or another norm has other rows; all later passes follow from them.
 *
 * Rows of optional parts name the function that tells whether the model has the part. If an operation's
 * operand depends on the parts, it has several names, "q_product|q_flat": the first that the model has is
 * used.
 *
 * Layers of each kind have rows of their own: those of a model all of whose layers are of the kind. A value
 * is there in the layers whose rows have it. */
#include "step/step.h"

#include <stdio.h>
#include <string.h>

/* Whether a model has the part of a row; rows without one are every model's. */
typedef bool Part(const Model *m);

static bool has_part(const Model *m, Part *part) { return !part || part(m); }

static bool qkv_bias(const Model *m) { return m->qkv_bias; }
static bool qk_norm(const Model *m) { return m->qk_norm; }
static bool qk_norm_heads(const Model *m) { return m->qk_norm && !m->layer.qk_norm_all; }
static bool qk_norm_all(const Model *m) { return m->layer.qk_norm_all; }
static bool mixer(const Model *m) { return !m->no_mixer; }
static bool network(const Model *m) { return !m->no_network; }
static bool both_parts(const Model *m) { return mixer(m) && network(m); }
static bool norms_rotated(const Model *m) { return m->layer.qk_norm_rotated; }
static bool norms_before(const Model *m) { return m->layer.norms != BURST_NORMS_AFTER; }
static bool first_norm(const Model *m) { return norms_before(m) && mixer(m); }
static bool second_norm(const Model *m)
{
    return norms_before(m) && network(m) && m->layer.parallel != BURST_PARALLEL_ONE_NORM;
}
static bool norm_of_input(const Model *m) { return m->layer.parallel == BURST_PARALLEL_TWO_NORMS; }
static bool norm_of_middle(const Model *m) { return second_norm(m) && !norm_of_input(m); }
static bool norm_bias(const Model *m) { return m->layer.norm_bias; }
static bool first_norm_bias(const Model *m) { return norm_bias(m) && first_norm(m); }
static bool second_norm_bias(const Model *m) { return norm_bias(m) && second_norm(m); }
static bool experts(const Model *m) { return m->experts.experts > 0; }
static bool dense(const Model *m) { return !experts(m) && network(m); }
static bool gated(const Model *m) { return dense(m) && m->layer.activation <= BURST_ACTIVATION_GEGLU_TANH; }
static bool ungated(const Model *m) { return dense(m) && !gated(m); }
static bool gates_experts(const Model *m) { return burst_activation_gates(m->experts.activation); }
static bool gated_experts(const Model *m) { return experts(m) && gates_experts(m); }
static bool bare_experts(const Model *m) { return experts(m) && !gates_experts(m); }
static bool shared(const Model *m) { return m->experts.shared > 0; }
static bool gated_shared(const Model *m) { return shared(m) && gates_experts(m); }
static bool bare_shared(const Model *m) { return shared(m) && !gates_experts(m); }
static bool mlp_bias(const Model *m) { return dense(m) && m->layer.mlp_bias; }
static bool gate_bias(const Model *m) { return mlp_bias(m) && gated(m); }
static bool ungated_bias(const Model *m) { return mlp_bias(m) && ungated(m); }
static bool o_bias(const Model *m) { return m->layer.o_bias; }
static bool sinks(const Model *m) { return m->sinks; }
static bool attention_gate(const Model *m) { return m->layer.attention_gate; }
static bool scans(const Model *m) { return m->scan.heads > 0; }
static bool reads_key(const Model *m) { return scans(m) && m->scan.read == BURST_SCAN_READ_KEY; }
static bool reads_none(const Model *m) { return scans(m) && !reads_key(m); }
static bool recurs(const Model *m) { return m->scan.columns > 0; }
static bool convolves(const Model *m) { return recurs(m) && !scans(m); } /* without states */
static bool conv_bias(const Model *m) { return recurs(m) && m->scan_bias; }
static bool no_conv_bias(const Model *m) { return recurs(m) && !m->scan_bias; }
static bool skips(const Model *m) { return scans(m) && m->scan_skip; }
static bool no_skip(const Model *m) { return scans(m) && !m->scan_skip; }
static bool attends(const Model *m) { return (!recurs(m) || m->layer.scan_attends) && mixer(m); }
static bool both_mixers(const Model *m) { return recurs(m) && attends(m); }
static bool norms_scan(const Model *m) { return scans(m) && !m->layer.scan_plain; }
static bool gates_scan(const Model *m) { return scans(m) && m->layer.scan_plain; }
static bool scan_norm_of_head(const Model *m) { return norms_scan(m) && reads_key(m); }
static bool scan_norm_of_row(const Model *m) { return norms_scan(m) && reads_none(m); }
static bool rotates_last(const Model *m) { return attends(m) && !norms_rotated(m); }
static bool selects(const Model *m) { return attends(m) && m->selects; }
static bool indexes(const Model *m) { return m->indexer.heads > 0; }
static bool norms_index(const Model *m) { return indexes(m) && m->indexer.norm; }
static bool latent(const Model *m) { return m->latent > 0; }
static bool no_latent(const Model *m) { return attends(m) && !m->latent; }
static bool query_latent(const Model *m) { return m->query_latent > 0; }
static bool no_query_latent(const Model *m) { return attends(m) && !m->query_latent; }
/* Whether a layer's output is computed first and then added to its input. */
static bool norms_after(const Model *m) { return m->layer.norms != BURST_NORMS_BEFORE; }
static bool adds_later(const Model *m) { return m->scale[BURST_SCALE_RESIDUAL] > 0 || norms_after(m); }
static bool norms_mixer_after(const Model *m) { return norms_after(m) && mixer(m); }
static bool norms_network_after(const Model *m) { return norms_after(m) && network(m); }
/* A scale of one output: what it is multiplied by before it is added. */
static bool scales(const Model *m, int scale) { return m->scale[scale] > 0; }
static bool attends_later(const Model *m)
{
    return attends(m) && (adds_later(m) || scales(m, BURST_SCALE_ATTENTION_OUT));
}
static bool attends_at_once(const Model *m) { return attends(m) && !attends_later(m); }
static bool scans_later(const Model *m)
{
    return scans(m) && (adds_later(m) || scales(m, BURST_SCALE_SCAN_OUT));
}
static bool scans_at_once(const Model *m) { return scans(m) && !scans_later(m); }
static bool adds_at_once(const Model *m) { return !adds_later(m); }
static bool convolves_at_once(const Model *m) { return convolves(m) && adds_at_once(m); }
static bool convolves_later(const Model *m) { return convolves(m) && adds_later(m); }
static bool dense_later(const Model *m)
{
    return dense(m) && (adds_later(m) || scales(m, BURST_SCALE_FFN_OUT));
}
static bool dense_at_once(const Model *m) { return dense(m) && !dense_later(m); }
static bool adds_network_later(const Model *m) { return network(m) && (adds_later(m) || dense_later(m)); }
static bool adds_mixer_later(const Model *m) { return adds_later(m) && mixer(m); }
static bool adds_network_unnormed(const Model *m) { return adds_network_later(m) && !norms_after(m); }
static bool mixer_unnormed(const Model *m)
{
    const bool recurrent = (scans_later(m) || convolves_later(m)) && !both_mixers(m);
    return (attends_later(m) || recurrent) && !norms_after(m);
}
static bool second_mixer_later(const Model *m) { return both_mixers(m) && scans_later(m); }
/* The scale by which the output of each is multiplied where it is not RESIDUAL. */
static bool attention_scaled(const Model *m) { return attends_later(m) && !adds_later(m); }
static bool scan_scaled(const Model *m) { return scans_later(m) && !adds_later(m); }
static bool network_scaled(const Model *m) { return dense_later(m) && !adds_later(m); }
static bool network_added(const Model *m) { return adds_later(m) && network(m); }
static bool experts_at_once(const Model *m) { return experts(m) && adds_at_once(m); }
static bool correction(const Model *m) { return m->experts.correction; }
static bool balance(const Model *m) { return m->experts.balance > 0; }
static bool no_correction(const Model *m) { return experts(m) && !correction(m); }
static bool experts_bias(const Model *m) { return m->experts.bias; }
static bool router_bias(const Model *m) { return m->experts.router_bias; }
static bool shared_gate(const Model *m) { return m->experts.shared_gate; }
static bool shared_at_once(const Model *m) { return shared(m) && adds_at_once(m); }
static bool shared_later(const Model *m) { return shared(m) && adds_later(m); }
static bool experts_sum_later(const Model *m) { return (shared(m) || experts_bias(m)) && adds_later(m); }
static bool experts_alone_later(const Model *m)
{
    return experts(m) && !experts_sum_later(m) && adds_later(m);
}
static bool experts_bias_at_once(const Model *m) { return experts_bias(m) && adds_at_once(m); }
static bool experts_bias_alone_later(const Model *m)
{
    return experts_bias(m) && !shared(m) && adds_later(m);
}
static bool experts_bias_shared_later(const Model *m)
{
    return experts_bias(m) && shared(m) && adds_later(m);
}
static bool o_bias_at_once(const Model *m) { return o_bias(m) && attends_at_once(m); }
static bool o_bias_later(const Model *m) { return o_bias(m) && attends_later(m); }
static bool mlp_bias_at_once(const Model *m) { return mlp_bias(m) && dense_at_once(m); }
static bool mlp_bias_later(const Model *m) { return mlp_bias(m) && dense_later(m); }
static bool scales_embedding(const Model *m) { return m->scale[BURST_SCALE_EMBEDDING] > 0; }
static bool head_bias(const Model *m) { return m->layer.head_bias; }
static bool no_head_bias(const Model *m) { return !m->layer.head_bias; }
static bool head_of_its_own(const Model *m) { return !m->tied; }
static bool scales_logits(const Model *m) { return m->scale[BURST_SCALE_LOGIT] > 0; }

/* ---- tensors ---- */

/* Named as Hugging Face does within the unit. */
/* Whether units in slices have slices of it, which begin at multiples of rows or of experts: of matrices by
 * which a token is multiplied, of adjacent ones that one operation reads at once. */
typedef enum Slicing {
    NO_SLICES,
    SLICE_ROWS,
    SLICE_TOKENS, /* rows of the vocabulary */
    SLICE_WITH, /* the tensor before it, if the unit has that */
    SLICE_EXPERTS
} Slicing;
/* Heads, ffn and experts' widths are split over tensor ranks along their dimension. */
typedef struct Tensor {
    const char *name;
    Dim rows, cols;
    First first;
    Part *part;
    int each; /* this row and those after it, so many, are repeated for each expert */
    Slicing slicing;
} Tensor;

static const Tensor embed_tensors[] = {
    {"model.embed_tokens.weight", DIM_VOCAB, DIM_HIDDEN, FIRST_NORMAL, NULL, 0, SLICE_TOKENS}};
static const Tensor layer_tensors[] = {
    {"input_layernorm.weight", DIM_ONE, DIM_HIDDEN, FIRST_ONES, first_norm},
    {"input_layernorm.bias", DIM_ONE, DIM_HIDDEN, FIRST_ZEROS, first_norm_bias},
    {"self_attn.q_a_proj.weight", DIM_QUERY_LATENT, DIM_HIDDEN, FIRST_NORMAL, query_latent, 0, SLICE_ROWS},
    {"self_attn.q_a_layernorm.weight", DIM_ONE, DIM_QUERY_LATENT, FIRST_ONES, query_latent},
    {"self_attn.q_b_proj.weight", DIM_QUERY, DIM_QUERY_LATENT, FIRST_NORMAL, query_latent, 0, SLICE_ROWS},
    {"self_attn.kv_a_proj.weight", DIM_LATENT, DIM_HIDDEN, FIRST_NORMAL, latent, 0, SLICE_ROWS},
    {"self_attn.k_shared_proj.weight", DIM_SHARED, DIM_HIDDEN, FIRST_NORMAL, latent, 0, SLICE_ROWS},
    {"self_attn.kv_a_layernorm.weight", DIM_ONE, DIM_LATENT, FIRST_ONES, latent},
    {"self_attn.k_b_proj.weight", DIM_OWN, DIM_LATENT, FIRST_NORMAL, latent},
    {"self_attn.v_b_proj.weight", DIM_VALUE, DIM_LATENT, FIRST_NORMAL, latent},
    {"self_attn.q_proj.weight", DIM_QUERY, DIM_HIDDEN, FIRST_NORMAL, no_query_latent, 0, SLICE_ROWS},
    {"self_attn.q_proj.bias", DIM_ONE, DIM_QUERY, FIRST_ZEROS, qkv_bias},
    {"self_attn.q_norm.weight", DIM_ONE, DIM_HEAD, FIRST_ONES, qk_norm_heads},
    {"self_attn.q_norm.weight", DIM_ONE, DIM_QUERY, FIRST_ONES, qk_norm_all},
    {"self_attn.gate_proj.weight", DIM_OUTPUT, DIM_HIDDEN, FIRST_NORMAL, attention_gate, 0, SLICE_ROWS},
    {"self_attn.k_proj.weight", DIM_KEY, DIM_HIDDEN, FIRST_NORMAL, no_latent, 0, SLICE_ROWS},
    {"self_attn.k_proj.bias", DIM_ONE, DIM_KEY, FIRST_ZEROS, qkv_bias},
    {"self_attn.k_norm.weight", DIM_ONE, DIM_HEAD, FIRST_ONES, qk_norm_heads},
    {"self_attn.k_norm.weight", DIM_ONE, DIM_KEY, FIRST_ONES, qk_norm_all},
    {"self_attn.v_proj.weight", DIM_VALUE, DIM_HIDDEN, FIRST_NORMAL, no_latent, 0, SLICE_ROWS},
    {"self_attn.v_proj.bias", DIM_ONE, DIM_KEY, FIRST_ZEROS, qkv_bias},
    {"self_attn.o_proj.weight", DIM_HIDDEN, DIM_OUTPUT, FIRST_NORMAL, attends, 0, SLICE_ROWS},
    {"self_attn.o_proj.bias", DIM_ONE, DIM_HIDDEN, FIRST_ZEROS, o_bias},
    {BURST_INDEXER_TENSORS "q_proj.weight", DIM_INDEX_QUERY, DIM_HIDDEN, FIRST_NORMAL, indexes},
    {BURST_INDEXER_TENSORS "k_proj.weight", DIM_INDEX_KEY, DIM_HIDDEN, FIRST_NORMAL, indexes},
    {BURST_INDEXER_TENSORS "q_norm.weight", DIM_ONE, DIM_INDEX, FIRST_ONES, norms_index},
    {BURST_INDEXER_TENSORS "k_norm.weight", DIM_ONE, DIM_INDEX, FIRST_ONES, norms_index},
    /* in the order in which folders have them in one tensor */
    {"linear_attn.in_proj_z.weight", DIM_SCAN_VALUES, DIM_HIDDEN, FIRST_NORMAL, reads_none, 0, SLICE_ROWS},
    {"linear_attn.in_proj_qkv.weight", DIM_SCAN_COLUMNS, DIM_HIDDEN, FIRST_NORMAL, scans, 0, SLICE_ROWS},
    {"linear_attn.in_proj_z.weight", DIM_SCAN_VALUES, DIM_HIDDEN, FIRST_NORMAL, reads_key, 0, SLICE_ROWS},
    {"linear_attn.in_proj_b.weight", DIM_SCAN_HEADS, DIM_HIDDEN, FIRST_NORMAL, reads_key}, /* a follows b */
    {"linear_attn.in_proj_a.weight", DIM_SCAN_HEADS, DIM_HIDDEN, FIRST_NORMAL, scans},
    {"linear_attn.b_proj.weight", DIM_SCAN_COLUMNS, DIM_HIDDEN, FIRST_NORMAL, convolves, 0, SLICE_ROWS},
    {"linear_attn.c_proj.weight", DIM_SCAN_COLUMNS, DIM_HIDDEN, FIRST_NORMAL, convolves, 0, SLICE_ROWS},
    {"linear_attn.x_proj.weight", DIM_SCAN_COLUMNS, DIM_HIDDEN, FIRST_NORMAL, convolves, 0, SLICE_ROWS},
    {"linear_attn.conv1d.weight", DIM_SCAN_COLUMNS, DIM_KERNEL, FIRST_NORMAL, recurs}, /* its bias follows */
    {"linear_attn.conv1d.bias", DIM_ONE, DIM_SCAN_COLUMNS, FIRST_ZEROS, conv_bias},
    {"linear_attn.norm.weight", DIM_ONE, DIM_SCAN_VALUE, FIRST_ONES, scan_norm_of_head},
    {"linear_attn.norm.weight", DIM_ONE, DIM_SCAN_VALUES, FIRST_ONES, scan_norm_of_row},
    {"linear_attn.out_proj.weight", DIM_HIDDEN, DIM_SCAN_VALUES, FIRST_NORMAL, scans, 0, SLICE_ROWS},
    {"linear_attn.out_proj.weight", DIM_HIDDEN, DIM_SCAN_COLUMNS, FIRST_NORMAL, convolves, 0, SLICE_ROWS},
    {"self_attn.output_norm.weight", DIM_ONE, DIM_HIDDEN, FIRST_ONES, norms_mixer_after},
    {"post_attention_layernorm.weight", DIM_ONE, DIM_HIDDEN, FIRST_ONES, second_norm},
    {"post_attention_layernorm.bias", DIM_ONE, DIM_HIDDEN, FIRST_ZEROS, second_norm_bias},
    {"mlp.gate_proj.weight", DIM_FFN, DIM_HIDDEN, FIRST_NORMAL, gated, 0, SLICE_ROWS},
    {"mlp.up_proj.weight", DIM_FFN, DIM_HIDDEN, FIRST_NORMAL, dense, 0, SLICE_WITH},
    {"mlp.gate_proj.bias", DIM_ONE, DIM_FFN, FIRST_ZEROS, gate_bias},
    {"mlp.up_proj.bias", DIM_ONE, DIM_FFN, FIRST_ZEROS, mlp_bias},
    {"mlp.down_proj.weight", DIM_HIDDEN, DIM_FFN, FIRST_NORMAL, dense, 0, SLICE_ROWS},
    {"mlp.shared_expert.gate_proj.weight", DIM_SHARED_FFN, DIM_HIDDEN, FIRST_NORMAL, gated_shared, 0,
     SLICE_ROWS},
    {"mlp.shared_expert.up_proj.weight", DIM_SHARED_FFN, DIM_HIDDEN, FIRST_NORMAL, shared, 0, SLICE_WITH},
    {"mlp.shared_expert.down_proj.weight", DIM_HIDDEN, DIM_SHARED_FFN, FIRST_NORMAL, shared, 0, SLICE_ROWS},
    {"mlp.shared_expert_gate.weight", DIM_ONE, DIM_HIDDEN, FIRST_NORMAL, shared_gate},
    {"mlp.router.weight", DIM_EXPERTS, DIM_HIDDEN, FIRST_NORMAL, experts},
    {"mlp.experts.%d.gate_proj.weight", DIM_EXPERT_WIDTH, DIM_HIDDEN, FIRST_NORMAL, gated_experts, 2,
     SLICE_EXPERTS},
    {"mlp.experts.%d.up_proj.weight", DIM_EXPERT_WIDTH, DIM_HIDDEN, FIRST_NORMAL, gated_experts, 0,
     SLICE_EXPERTS},
    {"mlp.experts.%d.up_proj.weight", DIM_EXPERT_WIDTH, DIM_HIDDEN, FIRST_NORMAL, bare_experts, 1,
     SLICE_EXPERTS},
    {"mlp.experts.%d.down_proj.weight", DIM_HIDDEN, DIM_EXPERT_WIDTH, FIRST_NORMAL, experts, 1,
     SLICE_EXPERTS},
    {"mlp.experts.%d.gate_proj.bias", DIM_ONE, DIM_EXPERT_WIDTH, FIRST_ZEROS, experts_bias, .each = 2},
    {"mlp.experts.%d.up_proj.bias", DIM_ONE, DIM_EXPERT_WIDTH, FIRST_ZEROS, experts_bias},
    {"mlp.experts.%d.down_proj.bias", DIM_ONE, DIM_HIDDEN, FIRST_ZEROS, experts_bias, .each = 1},
    {"mlp.down_proj.bias", DIM_ONE, DIM_HIDDEN, FIRST_ZEROS, mlp_bias},
    {"mlp.output_norm.weight", DIM_ONE, DIM_HIDDEN, FIRST_ONES, norms_network_after},
    /* last, so that others stay aligned */
    {"mlp.router.bias", DIM_ONE, DIM_EXPERTS, FIRST_ZEROS, router_bias},
    {"mlp.router.correction", DIM_ONE, DIM_EXPERTS, FIRST_ZEROS, correction}, /* without a gradient */
    {"linear_attn.A_log", DIM_ONE, DIM_SCAN_HEADS, FIRST_ZEROS, scans}, /* dt_bias follows it */
    {"linear_attn.dt_bias", DIM_ONE, DIM_SCAN_HEADS, FIRST_ONES, scans},
    {"linear_attn.D", DIM_ONE, DIM_SCAN_HEADS, FIRST_ONES, skips},
    {"self_attn.sinks", DIM_ONE, DIM_HEADS, FIRST_ZEROS, sinks},
};
static const Tensor head_tensors[] = {
    {"model.norm.weight", DIM_ONE, DIM_HIDDEN, FIRST_ONES},
    {"model.norm.bias", DIM_ONE, DIM_HIDDEN, FIRST_ZEROS, norm_bias},
    {"lm_head.weight", DIM_VOCAB, DIM_HIDDEN, FIRST_NORMAL, head_of_its_own, 0, SLICE_TOKENS},
    {"lm_head.bias", DIM_ONE, DIM_VOCAB, FIRST_ZEROS, head_bias}, /* directly after it */
};

static bool is_split(const Shape *s, Dim d)
{
    return s->tensor > 1 && (dim_of_heads(d) || dim_of_scan(d) || d == DIM_FFN || d == DIM_SHARED_FFN ||
                             d == DIM_EXPERT_WIDTH);
}

/* Parts of a split dimension: if ranks outnumber key heads, neighbours have the same. */
static int parts_of(const Shape *s, Dim d)
{
    if (!is_split(s, d))
        return 1;
    return dim_of_keys(d) ? s->tensor / s->key_copies : s->tensor;
}

static Split split_by(bool rows, bool cols)
{
    if (rows)
        return SPLIT_ROWS;
    return cols ? SPLIT_COLS : SPLIT_NONE;
}

static Split heads_of(Dim rows, Dim cols) { return split_by(dim_of_heads(rows), dim_of_heads(cols)); }

/* A unit in the making. */
typedef struct UnitMaker {
    Arena *arena;
    const Model *model;
    const Shape *shape;
    Vec(UnitTensor) tensors; /* slice: the row's Slicing, until slices are made */
    int64_t elements;
    int first, end; /* experts that the unit has: first <= expert < end */
    bool experts; /* and nothing else */
    int slices; /* ranks that have slices of its matrices; 0: they have equal parts of the unit */
    bool device;
    const char *first_expert; /* the name of the row's tensor of the unit's first expert */
} UnitMaker;

/* Whether the tensor belongs to the matrix of the tensor before it: of the row before, or of the same expert
 * and the experts before it. */
static bool goes_on(const UnitMaker *u, const Tensor *row, const char *name)
{
    if (row->slicing == SLICE_EXPERTS)
        return name != u->first_expert;
    return row->slicing == SLICE_WITH && u->tensors.n &&
           strcmp(u->tensors.at[u->tensors.n - 1].name, row[-1].name) == 0;
}

static void add_tensor(UnitMaker *u, const Tensor *row, const char *name)
{
    const Shape *s = u->shape;
    const Dim of_rows = dim_of(u->model, row->rows), of_cols = dim_of(u->model, row->cols);
    const int64_t rows = model_dim(u->model, s, s->rank, of_rows),
                  cols = model_dim(u->model, s, s->rank, of_cols),
                  slice = goes_on(u, row, name) ? SLICE_GOES_ON : (int)row->slicing;
    *vec_push(u->arena,
              &u->tensors) = (UnitTensor){name,
                                          rows,
                                          cols,
                                          u->elements,
                                          row->first,
                                          split_by(is_split(s, of_rows), is_split(s, of_cols)),
                                          heads_of(of_rows, of_cols),
                                          parts_of(s, of_rows) * parts_of(s, of_cols),
                                          s->tensor > 1 && u->model->scan.heads &&
                                              (of_rows == DIM_SCAN_COLUMNS || of_cols == DIM_SCAN_COLUMNS),
                                          slice};
    u->elements += rows * cols;
}

static void add_experts(UnitMaker *u, const Tensor *row)
{
    for (int e = u->first; e < u->end; e++)
        for (int i = 0; i < row->each; i++) {
            const char *number = strstr(row[i].name, "%d"),
                       *name = arena_printf(u->arena, "%.*s%d%s", (int)(number - row[i].name), row[i].name, e,
                                            number + 2);
            u->first_expert = e == u->first && i == 0 ? name : u->first_expert;
            add_tensor(u, &row[i], name);
        }
}

/* ---- slices ---- */

/* Tensors from `first` on that are one matrix. */
static int matrix_end(const UnitMaker *u, int first)
{
    int end = first + 1;
    while (end < u->tensors.n && u->tensors.at[end].slice == SLICE_GOES_ON)
        end++;
    return end;
}

/* Elements of a rank's slice of the matrix; 0: each rank has the matrix whole. A device's ranks have equally
 * many rows, a multiple of 8, since results are gathered in place by vectors of 16 bytes; logits are gathered
 * elsewhere. */
static int64_t slice_elements(const UnitMaker *u, int first, int end)
{
    const UnitTensor *t = &u->tensors.at[first];
    const int ranks = u->slices;
    int64_t rows = 0, each;
    if (t->slice == NO_SLICES || ranks == 1)
        return 0;
    for (int i = first; i < end; i++)
        rows += u->tensors.at[i].rows;
    if (t->slice == SLICE_EXPERTS) {
        const int experts = u->end - u->first;
        return (experts + ranks - 1) / ranks * (rows / experts) * t->cols;
    }
    each = (rows + ranks - 1) / ranks;
    if (!u->device)
        return each * t->cols;
    if (t->slice == SLICE_TOKENS)
        return (each + 7) / 8 * 8 * t->cols;
    return rows % (8 * ranks) == 0 ? each * t->cols : 0;
}

enum { WHOLE_ALIGN = 64 }; /* elements; slices begin aligned */

/* Tensors that each rank has whole come first, each matrix in slices after them. */
static Unit slice_unit(UnitMaker *u, Unit unit)
{
    UnitTensor *to = NEW_ARRAY(u->arena, UnitTensor, u->tensors.n);
    int64_t *slice = NEW_ARRAY(u->arena, int64_t, u->tensors.n), slices = 0;
    int n = 0;
    for (int i = 0, end; i < u->tensors.n; i = end) {
        end = matrix_end(u, i);
        slice[i] = slice_elements(u, i, end);
        for (int j = i; j < end && !slice[i]; j++) {
            to[n] = u->tensors.at[j];
            to[n].offset = unit.whole, to[n].slice = 0;
            unit.whole += to[n].rows * to[n].cols;
            n++;
        }
    }
    unit.whole = (unit.whole + WHOLE_ALIGN - 1) / WHOLE_ALIGN * WHOLE_ALIGN;
    for (int i = 0, end; i < u->tensors.n; i = end) {
        int64_t at = unit.whole + u->slices * slices;
        end = matrix_end(u, i);
        for (int j = i; j < end && slice[i]; j++) {
            to[n] = u->tensors.at[j];
            to[n].offset = at, to[n].slice_at = unit.whole + slices;
            to[n].slice = j == i ? slice[i] : SLICE_GOES_ON;
            at += to[n].rows * to[n].cols;
            n++;
        }
        slices += slice[i];
    }
    unit.shard = unit.whole + slices;
    unit.tensor = to;
    return unit;
}

int64_t unit_gathered(const Unit *u) { return u->whole + u->ranks * (u->shard - u->whole); }

static Unit flat_unit(const UnitMaker *u, Unit unit)
{
    UnitTensor *t = u->tensors.at;
    for (int i = 0; i < u->tensors.n; i++)
        t[i].slice = 0;
    unit.shard = (u->elements + unit.ranks - 1) / unit.ranks;
    unit.tensor = t;
    return unit;
}

static Unit unit_of(UnitMaker u, int ranks, const char *name, const char *full_name, const Tensor *row, int n,
                    int repeat)
{
    for (int i = 0; i < n; i += row[i].each ? row[i].each : 1)
        if (has_part(u.model, row[i].part) && row[i].each)
            add_experts(&u, &row[i]);
        else if (has_part(u.model, row[i].part) && !u.experts)
            add_tensor(&u, &row[i], row[i].name);
    const Unit unit = {.name = name,
                       .full_name = full_name,
                       .repeat = repeat,
                       .ranks = ranks,
                       .elements = u.elements,
                       .tensors = u.tensors.n};
    u.slices = u.slices ? ranks : 0;
    return u.slices ? slice_unit(&u, unit) : flat_unit(&u, unit);
}

/* Of a layer's experts, group by group; last the unit of layers without. */
static void add_groups(UnitMaker of, int ranks, Unit *to)
{
    Arena *a = of.arena;
    const Model *m = of.model;
    const Shape *s = of.shape;
    const int groups = s->expert_groups, each = groups ? m->experts.experts / groups : 0;
    int layers = m->layers;
    for (int k = 0; k < model_kinds(m); k++)
        layers -= m->kinds > 1 && !model_with_kind(m, k).experts.experts ? model_layers_of(m, k) : 0;
    of.experts = true;
    for (int g = 0; g < groups; g++) {
        of.first = g * each, of.end = (g + 1) * each;
        to[g] = unit_of(of, ranks, arena_printf(a, "experts_%d", g + 1), "model.layers.%d", layer_tensors,
                        countof(layer_tensors), layers);
    }
    if (groups)
        to[groups] = (Unit){.name = "no_experts",
                            .full_name = "model.layers.%d",
                            .repeat = groups * (m->layers - layers),
                            .ranks = ranks};
}

Units units_make(Arena *a, const Program *p, const Shape *shape, int within, bool slices)
{
    const int ranks = within ? within : p->cluster.world;
    const Model *m = &p->model;
    const int kinds = model_kinds(m);
    const int groups = shape->expert_groups, rows = 2 + kinds + groups + (groups && kinds > 1);
    const UnitMaker of_model = {.arena = a,
                                .model = m,
                                .shape = shape,
                                .slices = slices,
                                .device = p->target && p->target->device_memory};
    Unit *u = NEW_ARRAY(a, Unit, 3 + kinds + groups);
    u[0] = unit_of(of_model, ranks, "embedding", "model.embed_tokens", embed_tensors, countof(embed_tensors),
                   1);
    for (int k = 0; k < kinds; k++) {
        const Model of_kind = model_with_kind(m, k);
        UnitMaker of = of_model;
        of.model = &of_kind, of.end = groups ? 0 : of_kind.experts.experts;
        u[units_layer(k)] = unit_of(of, ranks / shape->tensor, kinds > 1 ? model_kind_name(m, k) : "layer",
                                    "model.layers.%d", layer_tensors, countof(layer_tensors),
                                    model_layers_of(m, k));
    }
    u[1 + kinds] = unit_of(of_model, ranks, "head", "head", head_tensors, countof(head_tensors), 1);
    add_groups(of_model, ranks / shape->tensor, u + 2 + kinds);
    return (Units){rows, u, ranks, 1 + kinds, groups, slices};
}

bool units_slice_experts(const Units *u) { return u->slices && u->at[units_layer(0)].ranks > 1; }

int64_t units_token_rows(const Units *u)
{
    const UnitTensor *t = u->at[0].tensor;
    return t->slice / t->cols;
}

int units_layer(int kind) { return 1 + kind; }

const Unit *units_of(const Units *u, const Model *m, int unit)
{
    const int of_group = unit - m->layers - 2, kind = of_group < 0 ? 0 : model_kind(m, of_group % m->layers);
    if (unit == 0)
        return &u->at[0];
    if (of_group >= 0)
        return &u->at[u->head + 1 +
                      (model_with_kind(m, kind).experts.experts ? of_group / m->layers : u->groups)];
    return unit > m->layers ? &u->at[u->head] : &u->at[units_layer(model_kind(m, unit - 1))];
}

/* ---- values and operations ---- */

/* Values of optional parts. */
typedef struct PartValue {
    Part *part;
    Value value;
} PartValue;
/* "x+1" is the next layer's x. */
typedef struct Row {
    OpKind kind;
    const char *read[4], *write[3], *weight;
    int tensors;
    Part *part;
    int scale;
} Row;

static const PartValue first_values[] = {
    {NULL, {.name = "x", .dim = {DIM_TOKENS, DIM_HIDDEN}, .index = INDEX_BOUNDARY}},
    {first_norm, {.name = "h1", .dim = {DIM_TOKENS, DIM_HIDDEN}}},
    {first_norm, {.name = "rstd1", .dim = {DIM_TOKENS}, .element = EL_FLOAT}},
};
static const PartValue part_values[] = {
    {attends, {.name = "q_flat", .dim = {DIM_TOKENS, DIM_QUERY}}},
    {attends, {.name = "q", .dim = {DIM_TOKENS, DIM_QUERY}, .by_heads = true}},
    {attends, {.name = "k_flat", .dim = {DIM_TOKENS, DIM_KEY}}},
    {attends, {.name = "k", .dim = {DIM_TOKENS, DIM_KEY}, .by_heads = true}},
    {attends, {.name = "v_flat", .dim = {DIM_TOKENS, DIM_VALUE}}},
    {attends, {.name = "v", .dim = {DIM_TOKENS, DIM_VALUE}, .by_heads = true}},
    {norms_index, {.name = "index_q_raw", .dim = {DIM_TOKENS, DIM_INDEX_QUERY}, .frozen = true}},
    {norms_index,
     {.name = "rstd_index_q", .dim = {DIM_TOKENS, DIM_INDEX_HEADS}, .element = EL_FLOAT, .frozen = true}},
    {indexes, {.name = "index_q_flat", .dim = {DIM_TOKENS, DIM_INDEX_QUERY}, .frozen = true}},
    {indexes, {.name = "index_q", .dim = {DIM_TOKENS, DIM_INDEX_QUERY}, .by_heads = true, .frozen = true}},
    {norms_index, {.name = "index_k_raw", .dim = {DIM_TOKENS, DIM_INDEX_KEY}, .frozen = true}},
    {norms_index,
     {.name = "rstd_index_k", .dim = {DIM_TOKENS, DIM_INDEX_KEY_HEADS}, .element = EL_FLOAT, .frozen = true}},
    {indexes, {.name = "index_k_flat", .dim = {DIM_TOKENS, DIM_INDEX_KEY}, .frozen = true}},
    {indexes, {.name = "index_k", .dim = {DIM_TOKENS, DIM_INDEX_KEY}, .by_heads = true, .frozen = true}},
    {selects, {.name = "selected", .dim = {DIM_TILES, DIM_LISTS}, .element = EL_INT, .kept = true}},
    {attends, {.name = "o", .dim = {DIM_TOKENS, DIM_OUTPUT}, .by_heads = true}},
    {attends, {.name = "lse", .dim = {DIM_HEADS, DIM_TOKENS}, .element = EL_FLOAT}},
    {attends, {.name = "o_flat", .dim = {DIM_TOKENS, DIM_OUTPUT}}},
    {both_mixers, {.name = "x_attn", .dim = {DIM_TOKENS, DIM_HIDDEN}}},
    {both_parts, {.name = "x_mid", .dim = {DIM_TOKENS, DIM_HIDDEN}}},
    /* before and after the convolution; what gates the norm; what beta and decay are made of */
    {convolves, {.name = "conv_b", .dim = {DIM_TOKENS, DIM_SCAN_COLUMNS}}},
    {convolves, {.name = "conv_c", .dim = {DIM_TOKENS, DIM_SCAN_COLUMNS}}},
    {convolves, {.name = "conv_x", .dim = {DIM_TOKENS, DIM_SCAN_COLUMNS}}},
    {recurs, {.name = "scan_in", .dim = {DIM_TOKENS, DIM_SCAN_COLUMNS}}},
    {recurs, {.name = "scan_qkv", .dim = {DIM_TOKENS, DIM_SCAN_COLUMNS}}},
    {scans, {.name = "scan_z", .dim = {DIM_TOKENS, DIM_SCAN_VALUES}}},
    {scans, {.name = "scan_gates", .dim = {DIM_TOKENS, DIM_SCAN_GATES}}},
    {scans, {.name = "scan_beta", .dim = {DIM_TOKENS, DIM_SCAN_HEADS}, .element = EL_FLOAT}},
    {scans, {.name = "scan_decay", .dim = {DIM_TOKENS, DIM_SCAN_HEADS}, .element = EL_FLOAT}},
    {scans, {.name = "scan_o", .dim = {DIM_TOKENS, DIM_SCAN_VALUES}}},
    {convolves, {.name = "scan_o", .dim = {DIM_TOKENS, DIM_SCAN_COLUMNS}}},
    {scans, {.name = "scan_norm", .dim = {DIM_TOKENS, DIM_SCAN_VALUES}}},
    {norms_scan, {.name = "rstd_scan", .dim = {DIM_TOKENS, DIM_SCAN_GROUPS}, .element = EL_FLOAT}},
    {second_norm, {.name = "h2", .dim = {DIM_TOKENS, DIM_HIDDEN}}},
    {second_norm, {.name = "rstd2", .dim = {DIM_TOKENS}, .element = EL_FLOAT}},
    /* on the host, gate and then up; on a device, side by side in a token's row */
    {gated, {.name = "gate_up", .dim = {DIM_TOKENS, DIM_PAIR}}},
    {ungated, {.name = "up", .dim = {DIM_TOKENS, DIM_FFN}}},
    {dense, {.name = "ffn", .dim = {DIM_TOKENS, DIM_FFN}}},
    {shared, {.name = "shared_gate_up", .dim = {DIM_TOKENS, DIM_SHARED_PAIR}}},
    {shared, {.name = "shared_ffn", .dim = {DIM_TOKENS, DIM_SHARED_FFN}}},
    {shared_gate, {.name = "shared_logit", .dim = {DIM_TOKENS, DIM_SHARED_GATE}}},
    {shared_gate, {.name = "shared_gated", .dim = {DIM_TOKENS, DIM_SHARED_FFN}}},
    {shared_at_once, {.name = "x_shared", .dim = {DIM_TOKENS, DIM_HIDDEN}}},
    {shared_later, {.name = "shared_out", .dim = {DIM_TOKENS, DIM_HIDDEN}}},
    {experts, {.name = "logits", .dim = {DIM_TOKENS, DIM_EXPERTS}, .element = EL_FLOAT}},
    {router_bias, {.name = "logits_product", .dim = {DIM_TOKENS, DIM_EXPERTS}, .element = EL_FLOAT}},
    {experts, {.name = "choice", .dim = {DIM_TOKENS, DIM_TOP}, .element = EL_INT, .kept = true}},
    {experts, {.name = "route", .dim = {DIM_TOKENS, DIM_TOP}, .element = EL_FLOAT, .kept = true}},
};
/* Values of the experts, of each group of them if they are in groups. */
static const PartValue expert_values[] = {
    {experts, {.name = "expert_slot", .dim = {DIM_TOKENS, DIM_SLOTS}, .element = EL_INT}},
    {experts, {.name = "expert_row", .dim = {DIM_TOKENS, DIM_TOP_ROWS}, .element = EL_INT}},
    {experts, {.name = "expert_first", .dim = {DIM_BOUNDS}, .element = EL_INT}},
    {experts, {.name = "expert_gate_up", .dim = {DIM_TOKENS, DIM_TOP_PAIR}}},
    {experts_bias, {.name = "expert_gate_up_product", .dim = {DIM_TOKENS, DIM_TOP_PAIR}}},
    {experts, {.name = "expert_ffn", .dim = {DIM_TOKENS, DIM_TOP_WIDTH}}},
    {experts, {.name = "expert_out", .dim = {DIM_TOKENS, DIM_TOP_HIDDEN}}},
    {experts_bias, {.name = "expert_biases", .dim = {DIM_TOKENS, DIM_HIDDEN}}},
};
static const PartValue more_values[] = {
    {first_norm_bias, {.name = "h1_plain", .dim = {DIM_TOKENS, DIM_HIDDEN}}},
    {second_norm_bias, {.name = "h2_plain", .dim = {DIM_TOKENS, DIM_HIDDEN}}},
    {gate_bias, {.name = "gate_up_product", .dim = {DIM_TOKENS, DIM_PAIR}}},
    {ungated_bias, {.name = "up_product", .dim = {DIM_TOKENS, DIM_FFN}}},
    {o_bias_at_once, {.name = "x_mid_product", .dim = {DIM_TOKENS, DIM_HIDDEN}}},
    {o_bias_later, {.name = "attn_product", .dim = {DIM_TOKENS, DIM_HIDDEN}}},
    {mlp_bias_at_once, {.name = "x_product", .dim = {DIM_TOKENS, DIM_HIDDEN}}},
    {mlp_bias_later, {.name = "mlp_product", .dim = {DIM_TOKENS, DIM_HIDDEN}}},
    {norms_mixer_after, {.name = "attn", .dim = {DIM_TOKENS, DIM_HIDDEN}}},
    {norms_mixer_after, {.name = "rstd_attn", .dim = {DIM_TOKENS}, .element = EL_FLOAT}},
    {norms_mixer_after, {.name = "attn_norm", .dim = {DIM_TOKENS, DIM_HIDDEN}}},
    {norms_network_after, {.name = "mlp", .dim = {DIM_TOKENS, DIM_HIDDEN}}},
    {norms_network_after, {.name = "rstd_mlp", .dim = {DIM_TOKENS}, .element = EL_FLOAT}},
    {norms_network_after, {.name = "mlp_norm", .dim = {DIM_TOKENS, DIM_HIDDEN}}},
    {mixer_unnormed, {.name = "attn_out", .dim = {DIM_TOKENS, DIM_HIDDEN}}},
    {second_mixer_later, {.name = "scan_out", .dim = {DIM_TOKENS, DIM_HIDDEN}}},
    {adds_network_unnormed, {.name = "mlp_out", .dim = {DIM_TOKENS, DIM_HIDDEN}}},
    {qkv_bias, {.name = "q_product", .dim = {DIM_TOKENS, DIM_QUERY}}},
    {qkv_bias, {.name = "k_product", .dim = {DIM_TOKENS, DIM_KEY}}},
    {qkv_bias, {.name = "v_product", .dim = {DIM_TOKENS, DIM_KEY}}},
    {norms_rotated, {.name = "q_straight", .dim = {DIM_TOKENS, DIM_QUERY}}},
    {norms_rotated, {.name = "k_straight", .dim = {DIM_TOKENS, DIM_KEY}}},
    {qk_norm, {.name = "q_raw", .dim = {DIM_TOKENS, DIM_QUERY}}},
    {qk_norm_heads, {.name = "rstd_q", .dim = {DIM_TOKENS, DIM_HEADS}, .element = EL_FLOAT}},
    {qk_norm_all, {.name = "rstd_q", .dim = {DIM_TOKENS}, .element = EL_FLOAT}},
    {qk_norm, {.name = "k_raw", .dim = {DIM_TOKENS, DIM_KEY}}},
    {qk_norm_heads, {.name = "rstd_k", .dim = {DIM_TOKENS, DIM_KEY_HEADS}, .element = EL_FLOAT}},
    {qk_norm_all, {.name = "rstd_k", .dim = {DIM_TOKENS}, .element = EL_FLOAT}},
    {attention_gate, {.name = "attn_gate", .dim = {DIM_TOKENS, DIM_OUTPUT}}},
    {attention_gate, {.name = "o_gated", .dim = {DIM_TOKENS, DIM_OUTPUT}}},
    {sinks, {.name = "o_sink", .dim = {DIM_TOKENS, DIM_OUTPUT}, .by_heads = true}},
    {query_latent, {.name = "q_low", .dim = {DIM_TOKENS, DIM_QUERY_LATENT}}},
    {query_latent, {.name = "q_latent", .dim = {DIM_TOKENS, DIM_QUERY_LATENT}}},
    {query_latent, {.name = "rstd_q_low", .dim = {DIM_TOKENS}, .element = EL_FLOAT}},
    {latent, {.name = "kv_low", .dim = {DIM_TOKENS, DIM_LATENT}}},
    {latent, {.name = "kv_latent", .dim = {DIM_TOKENS, DIM_LATENT}}},
    {latent, {.name = "rstd_kv_low", .dim = {DIM_TOKENS}, .element = EL_FLOAT}},
    {latent, {.name = "k_own", .dim = {DIM_TOKENS, DIM_OWN}}},
    {latent, {.name = "k_shared", .dim = {DIM_TOKENS, DIM_SHARED}}},
};
static const Row layer_rows[] = {
    {OP_NORM, {"x"}, {"h1_plain|h1", "rstd1"}, "input_layernorm.weight", .part = first_norm},
    {OP_BIAS, {"h1_plain"}, {"h1"}, "input_layernorm.bias", .part = first_norm_bias},
    {OP_LINEAR, {"h1|x"}, {"q_low"}, "self_attn.q_a_proj.weight", .part = query_latent},
    {OP_NORM, {"q_low"}, {"q_latent", "rstd_q_low"}, "self_attn.q_a_layernorm.weight", .part = query_latent},
    {OP_LINEAR, {"q_latent"}, {"q_flat"}, "self_attn.q_b_proj.weight", .part = query_latent},
    {OP_LINEAR,
     {"h1|x"},
     {"q_product|q_straight|q_raw|q_flat"},
     "self_attn.q_proj.weight",
     .part = no_query_latent},
    {OP_BIAS, {"q_product"}, {"q_straight|q_raw|q_flat"}, "self_attn.q_proj.bias", .part = qkv_bias},
    {OP_ROTATE, {"q_straight"}, {"q_raw"}, NULL, .part = norms_rotated},
    {OP_NORM, {"q_raw"}, {"q_flat", "rstd_q"}, "self_attn.q_norm.weight", .part = qk_norm},
    {OP_LINEAR, {"h1|x"}, {"attn_gate"}, "self_attn.gate_proj.weight", .part = attention_gate},
    {OP_ROPE, {"q_flat"}, {"q"}, NULL, .part = rotates_last},
    {OP_LAYOUT, {"q_flat"}, {"q"}, NULL, .part = norms_rotated},
    {OP_LINEAR, {"h1|x"}, {"kv_low"}, "self_attn.kv_a_proj.weight", .part = latent},
    {OP_NORM, {"kv_low"}, {"kv_latent", "rstd_kv_low"}, "self_attn.kv_a_layernorm.weight", .part = latent},
    {OP_LINEAR, {"h1|x"}, {"k_shared"}, "self_attn.k_shared_proj.weight", .part = latent},
    {OP_LINEAR, {"kv_latent"}, {"k_own"}, "self_attn.k_b_proj.weight", .part = latent},
    {OP_JOIN, {"k_own", "k_shared"}, {"k_flat"}, NULL, .part = latent},
    {OP_LINEAR,
     {"h1|x"},
     {"k_product|k_straight|k_raw|k_flat"},
     "self_attn.k_proj.weight",
     .part = no_latent},
    {OP_BIAS, {"k_product"}, {"k_straight|k_raw|k_flat"}, "self_attn.k_proj.bias", .part = qkv_bias},
    {OP_ROTATE, {"k_straight"}, {"k_raw"}, NULL, .part = norms_rotated},
    {OP_NORM, {"k_raw"}, {"k_flat", "rstd_k"}, "self_attn.k_norm.weight", .part = qk_norm},
    {OP_ROPE, {"k_flat"}, {"k"}, NULL, .part = rotates_last},
    {OP_LAYOUT, {"k_flat"}, {"k"}, NULL, .part = norms_rotated},
    {OP_LINEAR, {"kv_latent"}, {"v_flat"}, "self_attn.v_b_proj.weight", .part = latent},
    {OP_LINEAR, {"h1|x"}, {"v_product|v_flat"}, "self_attn.v_proj.weight", .part = no_latent},
    {OP_BIAS, {"v_product"}, {"v_flat"}, "self_attn.v_proj.bias", .part = qkv_bias},
    {OP_LAYOUT, {"v_flat"}, {"v"}, NULL, .part = attends},
    {OP_LINEAR,
     {"h1|x"},
     {"index_q_raw|index_q_flat"},
     BURST_INDEXER_TENSORS "q_proj.weight",
     .part = indexes},
    {OP_NORM,
     {"index_q_raw"},
     {"index_q_flat", "rstd_index_q"},
     BURST_INDEXER_TENSORS "q_norm.weight",
     .part = norms_index},
    {OP_ROPE, {"index_q_flat"}, {"index_q"}, NULL, .part = indexes},
    {OP_LINEAR,
     {"h1|x"},
     {"index_k_raw|index_k_flat"},
     BURST_INDEXER_TENSORS "k_proj.weight",
     .part = indexes},
    {OP_NORM,
     {"index_k_raw"},
     {"index_k_flat", "rstd_index_k"},
     BURST_INDEXER_TENSORS "k_norm.weight",
     .part = norms_index},
    {OP_ROPE, {"index_k_flat"}, {"index_k"}, NULL, .part = indexes},
    {OP_SELECT, {"index_q|q", "index_k|k"}, {"selected"}, NULL, .part = selects},
    {OP_ATTENTION, {"q", "k", "v", "selected"}, {"o", "lse"}, NULL, .part = attends},
    {OP_SINK, {"o", "lse"}, {"o_sink"}, "self_attn.sinks", .part = sinks},
    {OP_LAYOUT, {"o_sink|o"}, {"o_flat"}, NULL, .part = attends},
    {OP_GATE_ELEMENTS, {"o_flat", "attn_gate"}, {"o_gated"}, NULL, .part = attention_gate},
    /* the second operand is added */
    {OP_LINEAR,
     {"o_gated|o_flat", "x"},
     {"x_mid_product|x_attn|x_mid|x+1"},
     "self_attn.o_proj.weight",
     .part = attends_at_once},
    {OP_LINEAR,
     {"o_gated|o_flat"},
     {"attn_product|attn|attn_out"},
     "self_attn.o_proj.weight",
     .part = attends_later},
    {OP_BIAS,
     {"x_mid_product|attn_product"},
     {"attn|attn_out|x_attn|x_mid|x+1"},
     "self_attn.o_proj.bias",
     .part = o_bias},
    {OP_SCALE,
     {"attn_out", "x"},
     {"x_attn|x_mid|x+1"},
     NULL,
     .part = attention_scaled,
     .scale = BURST_SCALE_ATTENTION_OUT},
    {OP_LINEAR, {"h1|x"}, {"scan_in"}, "linear_attn.in_proj_qkv.weight", .part = scans},
    /* B * x, its convolution, C times that */
    {OP_LINEAR, {"h1|x"}, {"conv_b"}, "linear_attn.b_proj.weight", .part = convolves},
    {OP_LINEAR, {"h1|x"}, {"conv_c"}, "linear_attn.c_proj.weight", .part = convolves},
    {OP_LINEAR, {"h1|x"}, {"conv_x"}, "linear_attn.x_proj.weight", .part = convolves},
    {OP_GATE_ELEMENTS, {"conv_x", "conv_b"}, {"scan_in"}, NULL, .part = convolves},
    {OP_CONV, {"scan_in"}, {"scan_qkv"}, "linear_attn.conv1d.weight", .part = no_conv_bias},
    {OP_CONV, {"scan_in"}, {"scan_qkv"}, "linear_attn.conv1d.weight", 2, .part = conv_bias},
    {OP_GATE_ELEMENTS, {"scan_qkv", "conv_c"}, {"scan_o"}, NULL, .part = convolves},
    {OP_LINEAR, {"scan_o", "x"}, {"x_mid|x+1"}, "linear_attn.out_proj.weight", .part = convolves_at_once},
    {OP_LINEAR, {"scan_o"}, {"attn|attn_out"}, "linear_attn.out_proj.weight", .part = convolves_later},
    {OP_LINEAR, {"h1|x"}, {"scan_z"}, "linear_attn.in_proj_z.weight", .part = scans},
    {OP_LINEAR, {"h1|x"}, {"scan_gates"}, "linear_attn.in_proj_b.weight", 2, .part = reads_key},
    {OP_LINEAR, {"h1|x"}, {"scan_gates"}, "linear_attn.in_proj_a.weight", .part = reads_none},
    {OP_SCAN_GATES, {"scan_gates"}, {"scan_beta", "scan_decay"}, "linear_attn.A_log", 2, .part = scans},
    {OP_SCAN, {"scan_qkv", "scan_beta", "scan_decay"}, {"scan_o"}, NULL, .part = no_skip},
    {OP_SCAN, {"scan_qkv", "scan_beta", "scan_decay"}, {"scan_o"}, "linear_attn.D", .part = skips},
    {OP_GATED_NORM,
     {"scan_o", "scan_z"},
     {"scan_norm", "rstd_scan"},
     "linear_attn.norm.weight",
     .part = norms_scan},
    {OP_GATE_ELEMENTS, {"scan_o", "scan_z"}, {"scan_norm"}, NULL, .part = gates_scan},
    {OP_LINEAR,
     {"scan_norm", "x_attn|x"},
     {"x_mid|x+1"},
     "linear_attn.out_proj.weight",
     .part = scans_at_once},
    {OP_LINEAR,
     {"scan_norm"},
     {"attn|scan_out|attn_out"},
     "linear_attn.out_proj.weight",
     .part = scans_later},
    {OP_SCALE,
     {"scan_out|attn_out", "x_attn|x"},
     {"x_mid|x+1"},
     NULL,
     .part = scan_scaled,
     .scale = BURST_SCALE_SCAN_OUT},
    {OP_NORM,
     {"attn"},
     {"attn_norm", "rstd_attn"},
     "self_attn.output_norm.weight",
     .part = norms_mixer_after},
    {OP_SCALE,
     {"attn_norm|attn_out", "x"},
     {"x_mid|x+1"},
     NULL,
     .part = adds_mixer_later,
     .scale = BURST_SCALE_RESIDUAL},
    {OP_NORM,
     {"x_mid|x"},
     {"h2_plain|h2", "rstd2"},
     "post_attention_layernorm.weight",
     .part = norm_of_middle},
    {OP_NORM, {"x"}, {"h2_plain|h2", "rstd2"}, "post_attention_layernorm.weight", .part = norm_of_input},
    {OP_BIAS, {"h2_plain"}, {"h2"}, "post_attention_layernorm.bias", .part = second_norm_bias},
    /* gate and up: one product on a device */
    {OP_LINEAR, {"h2|h1|x_mid|x"}, {"gate_up_product|gate_up"}, "mlp.gate_proj.weight", 2, .part = gated},
    {OP_BIAS, {"gate_up_product"}, {"gate_up"}, "mlp.gate_proj.bias", 2, .part = gate_bias},
    {OP_LINEAR, {"h2|h1|x_mid|x"}, {"up_product|up"}, "mlp.up_proj.weight", .part = ungated},
    {OP_BIAS, {"up_product"}, {"up"}, "mlp.up_proj.bias", .part = ungated_bias},
    {OP_SWIGLU, {"gate_up|up"}, {"ffn"}, NULL, .part = dense},
    {OP_LINEAR, {"ffn", "x_mid|x"}, {"x_product|x+1"}, "mlp.down_proj.weight", .part = dense_at_once},
    {OP_LINEAR, {"ffn"}, {"mlp_product|mlp|mlp_out"}, "mlp.down_proj.weight", .part = dense_later},
    {OP_LINEAR,
     {"h2|h1|x_mid|x"},
     {"shared_gate_up"},
     "mlp.shared_expert.gate_proj.weight",
     .tensors = 2,
     .part = gated_shared},
    {OP_LINEAR,
     {"h2|h1|x_mid|x"},
     {"shared_gate_up"},
     "mlp.shared_expert.up_proj.weight",
     .part = bare_shared},
    {OP_SWIGLU, {"shared_gate_up"}, {"shared_ffn"}, NULL, .part = shared},
    /* in place of the output's gate: the same product, and backward needs no output */
    {OP_LINEAR, {"h2|h1|x_mid|x"}, {"shared_logit"}, "mlp.shared_expert_gate.weight", .part = shared_gate},
    {OP_GATE, {"shared_ffn", "shared_logit"}, {"shared_gated"}, NULL, .part = shared_gate},
    {OP_LINEAR,
     {"shared_gated|shared_ffn", "x_mid|x"},
     {"x_shared"},
     "mlp.shared_expert.down_proj.weight",
     .part = shared_at_once},
    {OP_LINEAR,
     {"shared_gated|shared_ffn"},
     {"shared_out"},
     "mlp.shared_expert.down_proj.weight",
     .part = shared_later},
    {OP_LOGITS, {"h2|h1|x_mid|x"}, {"logits_product|logits"}, "mlp.router.weight", .part = experts},
    {OP_BIAS, {"logits_product"}, {"logits"}, "mlp.router.bias", .part = router_bias},
    {OP_CHOOSE, {"logits"}, {"choice", "route"}, NULL, .part = no_correction},
    {OP_CHOOSE, {"logits"}, {"choice", "route"}, "mlp.router.correction", .part = correction},
    {OP_COUNT, {"choice", "logits", "label", "label_weight"}, {NULL}, NULL, .part = experts},
    {OP_BALANCE, {"logits", "label", "label_weight"}, {NULL}, NULL, .part = balance},
    {OP_ARRANGE, {"choice"}, {"expert_slot", "expert_row", "expert_first"}, NULL, .part = experts},
    {OP_EXPERTS_UP,
     {"h2|h1|x_mid|x", "expert_row", "expert_first", "expert_slot"},
     {"expert_gate_up_product|expert_gate_up"},
     "mlp.experts.0.gate_proj.weight",
     .part = gated_experts},
    {OP_EXPERTS_UP,
     {"h2|h1|x_mid|x", "expert_row", "expert_first", "expert_slot"},
     {"expert_gate_up"},
     "mlp.experts.0.up_proj.weight",
     .part = bare_experts},
    {OP_EXPERTS_BIAS,
     {"expert_gate_up_product", "expert_first"},
     {"expert_gate_up"},
     "mlp.experts.0.gate_proj.bias",
     .part = experts_bias},
    {OP_EXPERTS_ACT, {"expert_gate_up", "route", "expert_row"}, {"expert_ffn"}, NULL, .part = experts},
    {OP_EXPERTS_DOWN,
     {"expert_ffn", "expert_row", "expert_first"},
     {"expert_out"},
     "mlp.experts.0.down_proj.weight",
     .part = experts},
    {OP_EXPERTS_OUT_BIAS,
     {"choice", "route", "x_shared|x_mid|x"},
     {"expert_biases"},
     "mlp.experts.0.down_proj.bias",
     .part = experts_bias_at_once},
    {OP_EXPERTS_OUT_BIAS,
     {"choice", "route"},
     {"expert_biases"},
     "mlp.experts.0.down_proj.bias",
     .part = experts_bias_alone_later},
    {OP_EXPERTS_OUT_BIAS,
     {"choice", "route", "shared_out"},
     {"expert_biases"},
     "mlp.experts.0.down_proj.bias",
     .part = experts_bias_shared_later},
    {OP_COMBINE,
     {"expert_out", "expert_slot", "expert_biases|x_shared|x_mid|x"},
     {"x+1"},
     NULL,
     .part = experts_at_once},
    {OP_COMBINE, {"expert_out", "expert_slot"}, {"mlp|mlp_out"}, NULL, .part = experts_alone_later},
    {OP_COMBINE,
     {"expert_out", "expert_slot", "expert_biases|shared_out"},
     {"mlp|mlp_out"},
     NULL,
     .part = experts_sum_later},
    {OP_BIAS, {"x_product|mlp_product"}, {"mlp|mlp_out|x+1"}, "mlp.down_proj.bias", .part = mlp_bias},
    {OP_NORM, {"mlp"}, {"mlp_norm", "rstd_mlp"}, "mlp.output_norm.weight", .part = norms_network_after},
    {OP_SCALE,
     {"mlp_norm|mlp_out", "x_mid|x"},
     {"x+1"},
     NULL,
     .part = network_added,
     .scale = BURST_SCALE_RESIDUAL},
    {OP_SCALE, {"mlp_out", "x_mid|x"}, {"x+1"}, NULL, .part = network_scaled, .scale = BURST_SCALE_FFN_OUT},
};

/* The head's x is the last layer's. Its loss computes the gradient of its input directly. */
static const Value end_values[] = {
    {.name = "token", .kind = VALUE_INPUT, .dim = {DIM_TOKENS}, .element = EL_INT},
    {.name = "label", .kind = VALUE_INPUT, .dim = {DIM_TOKENS}, .element = EL_INT},
    {.name = "label_weight", .kind = VALUE_INPUT, .dim = {DIM_TOKENS}, .element = EL_FLOAT},
    {.name = "h_final", .kind = VALUE_ACTIVATION, .dim = {DIM_TOKENS, DIM_HIDDEN}},
    {.name = "rstd", .kind = VALUE_ACTIVATION, .dim = {DIM_TOKENS}, .element = EL_FLOAT},
};
static const PartValue part_end_values[] = {
    {norm_bias, {.name = "h_plain", .kind = VALUE_ACTIVATION, .dim = {DIM_TOKENS, DIM_HIDDEN}}},
    {scales_embedding, {.name = "x_embed", .kind = VALUE_ACTIVATION, .dim = {DIM_TOKENS, DIM_HIDDEN}}},
    {scales_logits, {.name = "h_norm", .kind = VALUE_ACTIVATION, .dim = {DIM_TOKENS, DIM_HIDDEN}}},
};
static const Row embed_rows[] = {
    {OP_EMBED, {"token"}, {"x_embed|x"}, "model.embed_tokens.weight"},
    {OP_SCALE, {"x_embed"}, {"x"}, NULL, .part = scales_embedding, .scale = BURST_SCALE_EMBEDDING},
};
static const Row head_rows[] = {
    {OP_NORM, {"x"}, {"h_plain|h_norm|h_final", "rstd"}, "model.norm.weight"},
    {OP_BIAS, {"h_plain"}, {"h_norm|h_final"}, "model.norm.bias", .part = norm_bias},
    {OP_SCALE, {"h_norm"}, {"h_final"}, NULL, .part = scales_logits, .scale = BURST_SCALE_LOGIT},
    {OP_LOSS,
     {"h_final", "label", "label_weight"},
     {NULL},
     "lm_head.weight",
     .part = no_head_bias,
     .scale = BURST_SCALE_LOGIT_SOFTCAP},
    {OP_LOSS,
     {"h_final", "label", "label_weight"},
     {NULL},
     "lm_head.weight",
     .tensors = 2,
     .part = head_bias,
     .scale = BURST_SCALE_LOGIT_SOFTCAP},
};

/* Whether the table has a row of the value, and no row that the model has. */
static bool lacks(const Model *m, const PartValue *row, int n, const char *name)
{
    bool there = false, has = false;
    for (int i = 0; i < n; i++)
        if (strcmp(row[i].value.name, name) == 0)
            there = true, has |= has_part(m, row[i].part);
    return there && !has;
}

int step_expert_value(const Step *s, const char *name, int group)
{
    char of_group[48];
    snprintf(of_group, sizeof of_group, "%s_%d", name, group);
    return step_value(s, s->units.groups ? of_group : name);
}

static bool is_of_experts(const char *name)
{
    bool is = false;
    for (int i = 0; i < countof(expert_values); i++)
        is |= strcmp(expert_values[i].value.name, name) == 0;
    return is;
}

/* -1: a model of these parts has no such value. */
static int value_of(const Step *s, const Model *m, const char *name, int group)
{
    const bool none = lacks(m, first_values, countof(first_values), name) ||
                      lacks(m, part_values, countof(part_values), name) ||
                      lacks(m, expert_values, countof(expert_values), name) ||
                      lacks(m, more_values, countof(more_values), name);
    if (none)
        return -1;
    return is_of_experts(name) ? step_expert_value(s, name, group) : step_value(s, name);
}

static Operand operand(const Step *s, const Model *m, const char *text, int group)
{
    char name[32];
    const size_t n = strcspn(text, "+|");
    memcpy(name, text, n);
    name[n] = 0;
    const int value = value_of(s, m, name, group);
    return value < 0 && text[n] == '|' ? operand(s, m, text + n + 1, group)
                                       : (Operand){value, text[n] == '+'};
}

bool step_counts(const Program *p)
{
    return p->model.experts.experts && !p->infer.lengths && p->target;
}

/* Tokens that choose experts are counted where the target has the operation, and there are labels. */
static bool has_row(const Step *s, const Model *m, const Row *row)
{
    const bool counts = row->kind == OP_COUNT || row->kind == OP_BALANCE;
    return has_part(m, row->part) && (!counts || step_counts(s->program));
}

static Op op_of_row(const Step *s, const Model *m, const Row *row, int group)
{
    Op o = op_make(row->kind);
    o.weight = row->weight;
    o.tensors = row->tensors ? row->tensors : 1;
    o.scale = row->scale;
    for (int j = 0; j < countof(row->read) && row->read[j]; j++)
        o.read[j] = operand(s, m, row->read[j], group);
    for (int j = 0; j < countof(row->write) && row->write[j]; j++)
        o.write[j] = operand(s, m, row->write[j], group);
    return o;
}

/* ---- experts in groups ---- */

static const char *name_in_group(Arena *a, const char *name, int group)
{
    return group ? arena_printf(a, "%s_%d", name, group) : name;
}

/* Sums of the groups so far: each adds its own to that of the group before, the last one to the output. */
static void add_up_groups(const Step *s, const Model *m, Op *o, int group)
{
    if (group < s->units.groups && o->kind == OP_COMBINE)
        o->write[0] = (Operand){step_expert_value(s, "expert_sum", group), 0};
    if (group > 1 && (o->kind == OP_EXPERTS_OUT_BIAS || (o->kind == OP_COMBINE && !experts_bias(m))))
        o->read[2] = (Operand){step_expert_value(s, "expert_sum", group - 1), 0};
}

/* "mlp.experts.32.gate_proj.weight" of the group's first expert, for that of the first of all. */
static const char *weight_in_group(const Step *s, const char *weight, int group)
{
    static const char all[] = "mlp.experts.0.";
    const int first = s->program->model.experts.experts / s->units.groups * (group - 1);
    return weight ? arena_printf(s->arena, "mlp.experts.%d.%s", first, weight + sizeof all - 1) : NULL;
}

static Op op_in_group(const Step *s, const Model *m, const Row *row, int group)
{
    Op o = op_of_row(s, m, row, group);
    o.group = group;
    o.weight = weight_in_group(s, o.weight, group);
    add_up_groups(s, m, &o, group);
    return o;
}

/* From the order of rows to the sum of a token's. */
static bool is_of_group(const Step *s, const Row *row)
{
    return s->units.groups && row->kind >= OP_ARRANGE && row->kind <= OP_COMBINE;
}

static void add_rows(Step *s, const Model *m, int block, const Row *row, int rows)
{
    for (int i = 0, end; i < rows; i = end) {
        const int groups = is_of_group(s, &row[i]) ? s->units.groups : 1;
        end = i + 1;
        while (groups > 1 && end < rows && is_of_group(s, &row[end]))
            end++;
        for (int g = 1; g <= groups; g++)
            for (int j = i; j < end; j++)
                if (has_row(s, m, &row[j]))
                    *vec_push(s->arena, &s->block[block].ops) = groups > 1 ? op_in_group(s, m, &row[j], g)
                                                                           : op_of_row(s, m, &row[j], 0);
    }
}

static void add_values(Step *s, const Value *v, int n, bool layer)
{
    for (int i = 0; i < n; i++) {
        Value x = v[i];
        x.gradient = -1;
        x.dim[1] = dim_of(&s->program->model, x.dim[1]);
        if (layer) {
            x.kind = VALUE_ACTIVATION;
            x.index = x.index == INDEX_NONE ? INDEX_LAYER : x.index;
        }
        step_add_value(s, x);
    }
}

static bool layers_have(const Model *m, Part *part)
{
    bool has = false;
    for (int k = 0; k < model_kinds(m); k++) {
        const Model of_kind = model_with_kind(m, k);
        has |= has_part(&of_kind, part);
    }
    return has;
}

/* Lists of all tiles of the sequence, as long as the longest of any mask. */
static int64_t selected_bytes(const Step *s)
{
    const Program *p = s->program;
    int64_t most = 0;
    for (int i = 0; i < p->selection_count; i++) {
        const int64_t bytes = select_tiles(p, &p->selections[i]) *
                              select_words(s->shape.rank, &p->selections[i]) * 4;
        most = bytes > most ? bytes : most;
    }
    return most;
}

static void add_part_values(Step *s, const PartValue *v, int n)
{
    for (int i = 0; i < n; i++)
        add_values(s, &v[i].value, layers_have(&s->program->model, v[i].part), true);
}

static void add_expert_values(Step *s)
{
    static const Value sum = {.name = "expert_sum", .dim = {DIM_TOKENS, DIM_HIDDEN}};
    for (int g = s->units.groups ? 1 : 0; g <= s->units.groups; g++)
        for (int i = 0; i <= countof(expert_values); i++) {
            const bool last = i == countof(expert_values);
            Value v = last ? sum : expert_values[i].value;
            v.name = name_in_group(s->arena, v.name, g);
            add_values(s, &v,
                       last ? g < s->units.groups : layers_have(&s->program->model, expert_values[i].part),
                       true);
        }
}

/* Blocks for the layers of a kind. */
static void add_layer_blocks(Step *s, int kind)
{
    static const Block blocks[] = {{.name = "forward", .repeat = REPEAT_UP},
                                   {.name = "forward again", .repeat = REPEAT_UP},
                                   {.name = "backward", .repeat = REPEAT_DOWN},
                                   {.name = "backward_lower", .repeat = REPEAT_DOWN}};
    static const int phase[] = {BLOCK_FORWARD, BLOCK_FORWARD_AGAIN, BLOCK_BACKWARD, BLOCK_BACKWARD_LOWER};
    const char *name = model_kind_name(&s->program->model, kind);
    for (int i = 0; i < countof(phase); i++) {
        Block *b = &s->block[phase[i] + kind];
        *b = blocks[i];
        b->unit = units_layer(kind);
        b->name = *name ? arena_printf(s->arena, "%s %s", b->name, name) : b->name;
    }
    s->block[BLOCK_FORWARD + kind].end = s->block[BLOCK_BACKWARD + kind].end = s->program->model.layers;
}

Step *step_model(Arena *a, const Program *p, const Shape *shape, const Partition *part, Units units)
{
    static const Block blocks[STEP_BLOCKS] = {
        [BLOCK_EMBED] = {.name = "embed"},
        [BLOCK_HEAD] = {.name = "head"},
        [BLOCK_EMBED_BACK] = {.name = "embed backward"},
        [BLOCK_MOMENTUM] = {.name = "momentum", .repeat = REPEAT_UP, .unit = 1},
        [BLOCK_ORTHOGONALIZE] = {.name = "orthogonalize", .unit = 1},
        [BLOCK_MATRICES] = {.name = "matrices", .repeat = REPEAT_UP, .unit = 1},
        [BLOCK_OPTIMIZER] = {.name = "optimizer", .repeat = REPEAT_UNITS},
        [BLOCK_DONE] = {.name = "done"}};
    Step *s = NEW(a, Step);
    const int64_t tokens = (part->max_tokens + shape->tensor - 1) / shape->tensor;
    *s = (Step){.arena = a,
                .program = p,
                .shape = *shape,
                .tokens = tokens,
                .all_tokens = tokens * shape->tensor,
                .chunks = 1,
                .group = 1,
                .offload_layers = p->model.layers - 1,
                .units = units};
    *vec_push(a, &s->scopes) = (Scope){0}; /* the block's */
    memcpy(s->block, blocks, sizeof blocks);
    s->block[BLOCK_HEAD].unit = s->block[BLOCK_DONE].unit = units.head;
    for (int k = 0; k < model_kinds(&p->model); k++)
        add_layer_blocks(s, k);
    s->block[BLOCK_MOMENTUM].end = s->block[BLOCK_MATRICES].end = p->model.layers;
    add_values(s, end_values, countof(end_values), false);
    for (int i = 0; i < countof(part_end_values); i++)
        add_values(s, &part_end_values[i].value, has_part(&p->model, part_end_values[i].part), false);
    add_part_values(s, first_values, countof(first_values));
    add_part_values(s, part_values, countof(part_values));
    add_expert_values(s);
    add_part_values(s, more_values, countof(more_values));
    if (step_value(s, "selected") >= 0)
        s->values.at[step_value(s, "selected")].bytes = selected_bytes(s);
    add_rows(s, &p->model, BLOCK_EMBED, embed_rows, countof(embed_rows));
    for (int k = 0; k < model_kinds(&p->model); k++) {
        const Model of_kind = model_with_kind(&p->model, k);
        add_rows(s, &of_kind, BLOCK_FORWARD + k, layer_rows, countof(layer_rows));
    }
    add_rows(s, &p->model, BLOCK_HEAD, head_rows, countof(head_rows));
    return s;
}
