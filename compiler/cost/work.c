/* cost/work.c: the time of the step's operations, by the `work` of their rows (step/operations.def), and the
 * rates of ranks.
 *
 * - MEMORY: bytes of the activations that it reads and writes, twice if it accumulates; embedding: rows.
 * - CLEAR: bytes that it writes.
 * - PRODUCT: 2 operations a weight and token; accumulation counts as memory.
 * - EXPERTS: 2 operations a weight of an expert and token that chose it, however tokens choose, at a rate of
 *   their own; on a device half a tile of rows more for each expert.
 * - SCAN: 4 operations a state's element and token, 8 for its gradients; of convolutions the memory. With
 *   pieces, 4 an element of the piece's map and token, each map's product, and the maps of all ranks.
 * - SELECT: keys are read once, and queries' products with what represents half of the blocks, or its bytes;
 * what ranks send each other, over the links of a ring of them.
 * - LOSS: three products, and the passes over a tile of logits.
 * - UPDATE: bytes of a unit's shard: parameter and both moments are read and written, the gradient is read
 *   twice and cleared. On the host all ranks of a node share its memory, and nothing is cleared.
 * - ORTHOGONAL: Muon's products of the rank with most of them, whatever the tokens.
 * - TENSOR: bytes of all its tokens over the links of the tensor ranks.
 * - ATTENTION, COLLECTIVE, COPY, EXCHANGE: none here; their transfers are simulated.
 *
 * Work of a loop over heads is one chunk's; of a loop over tokens, all tokens'. Small operations take as long
 * as their kernels' launches: `launches` of their rows, or what op_launches counts here.
 */
#include "cost/cost.h"

#include "burst_attend.h"
#include "burst_muon.h"
#include "burst_sizes.h"

#include <math.h>

static bool of_unit(const Value *v)
{
    return v->dim[0] == DIM_UNIT || v->dim[0] == DIM_SHARD;
}

/* The share of a value in one chunk of heads: of a value of all heads, or of one of the largest chunk. */
static double chunk_share(const Step *s, bool all, bool is_short)
{
    return (double)shape_chunk(&s->shape, is_short).kv_heads /
           (all ? s->shape.rank.kv_heads : s->shape.chunk.kv_heads);
}

/* The share of a group's rows that tokens fill if they choose experts evenly. */
static double filled_share(const Step *s, const Value *v)
{
    const bool rows = v->dim[1] == DIM_TOP_ROWS || v->dim[1] == DIM_TOP_PAIR || v->dim[1] == DIM_TOP_WIDTH ||
                      v->dim[1] == DIM_TOP_HIDDEN;
    const Model *m = &s->program->model;
    return rows && s->units.groups ? (double)m->experts.top / s->units.groups / expert_rows(m, &s->shape) : 1;
}

/* Per token; in a loop over heads, of one chunk. */
static double operand_bytes(const Step *s, const Op *o, Operand x, bool is_short)
{
    const Value *v = x.value >= 0 ? &s->values.at[x.value] : NULL;
    if (!v || of_unit(v) || v->kind == VALUE_SCRATCH)
        return 0;
    return (double)step_bytes(s, v, 0) * filled_share(s, v) *
           (op_in_loop(s, o, LOOP_HEADS) && is_of_heads(v) ? chunk_share(s, v->all_heads, is_short) : 1) /
           fmax(1, (double)(v->dim[v->dim[0] == DIM_HEADS] == DIM_CHUNK ? s->chunk : s->all_tokens));
}

/* How often the i-th output is accumulated: for a sum over chunks of heads the first chunk writes it. */
static double added(const Step *s, const Op *o, int i)
{
    const bool sum = o->write[i].value >= 0 && op_takes_whole(s, o, o->write[i].value);
    if (o->adds[i])
        return 1;
    return sum ? 1 - 1.0 / s->shape.head_chunks : 0;
}

/* With a single layout, a change of layout moves nothing. */
static bool moves_nothing(const Step *s, const Op *o)
{
    return (o->kind == OP_LAYOUT || o->kind == OP_LAYOUT_BACK) && s->program->target->one_layout &&
           s->values.at[o->read[0].value].element == s->values.at[o->write[0].value].element;
}

/* Per token: its row of the embedding, read or added to. */
static double row_bytes(const Step *s, const Op *o)
{
    const double d = s->program->model.hidden;
    if (o->kind == OP_EMBED)
        return s->program->target->activation_bytes * d;
    return o->kind == OP_EMBED_BACK ? 2 * 4 * d : 0;
}

static double memory_bytes(const Step *s, const Op *o, bool is_short)
{
    double bytes = row_bytes(s, o);
    for (int i = 0; i < OP_READS && !moves_nothing(s, o); i++)
        bytes += operand_bytes(s, o, o->read[i], is_short);
    for (int i = 0; i < OP_WRITES && !moves_nothing(s, o); i++)
        bytes += (1 + added(s, o, i)) * operand_bytes(s, o, o->write[i], is_short);
    return bytes;
}

static double added_bytes(const Step *s, const Op *o, bool is_short)
{
    double bytes = o->kind == OP_LINEAR ? operand_bytes(s, o, o->read[1], is_short) : 0;
    for (int i = 0; i < OP_WRITES; i++)
        bytes += o->kind == OP_LINEAR ? 0 : added(s, o, i) * operand_bytes(s, o, o->write[i], is_short);
    return bytes;
}

/* The share of all tensor ranks' tokens that a product has: those of a rank alone, or all. */
static double token_share(const Step *s, const Op *o)
{
    const bool own = s->values.at[o->read[0].value].dim[0] == DIM_TOKENS;
    return own ? (double)s->tokens / (double)s->all_tokens : 1;
}

static double product_flops(const Step *s, const Op *o, const Block *b, bool is_short)
{
    const UnitTensor *t = op_tensor(s, o, b);
    double weights = 0;
    for (int i = 0; i < o->tensors; i++)
        weights += (double)(t[i].rows * t[i].cols);
    return 2 * weights * (op_in_loop(s, o, LOOP_HEADS) ? chunk_share(s, true, is_short) : 1);
}

/* Rows by the matrices of their experts; on a device the last tile of an expert is half full. */
static Work experts_work(const Step *s, const Op *o)
{
    const bool up = o->kind == OP_EXPERTS_UP || o->kind == OP_EXPERTS_UP_DW || o->kind == OP_EXPERTS_UP_DX,
               device = s->program->target->device_memory;
    const BurstExperts *m = &s->program->model.experts;
    const double width = (double)(up ? burst_experts_columns(m) : m->width) / s->shape.tensor,
                 row = 2.0 * width * s->program->model.hidden;
    const double groups = s->units.groups ? s->units.groups : 1;
    return (Work){.experts = m->top * row / groups,
                  .tiles = device ? m->experts * row * BURST_GPU_EXPERTS_TILE / 2 / groups : 0};
}

/* On a device, scans run at these shares of the rate of one large product, since each chunk of a state's
 * chain waits for the one before it (on an H200: 36, 20, 75 and 57 TFLOP/s). */
static double scan_rate(const Step *s, OpKind k)
{
    if (!s->program->target->device_memory)
        return 1;
    switch (k) {
    case OP_SCAN_BACK:
    case OP_SCAN_PIECES_BACK: return 0.028;
    case OP_STATES: return 0.1;
    case OP_STATES_BACK: return 0.08;
    default: return 0.05;
    }
}

/* Per token. */
static double scan_flops(const BurstScan *m, OpKind k)
{
    const double state = (double)m->heads * m->key_dim * m->value_dim,
                 map = (double)m->heads * m->key_dim * (m->value_dim + (m->read ? m->key_dim : 0));
    switch (k) {
    case OP_SCAN:
    case OP_SCAN_PIECES: return 4 * state;
    case OP_SCAN_BACK:
    case OP_SCAN_PIECES_BACK: return 8 * state;
    case OP_STATES:
    case OP_STATES_BACK: return 4 * map;
    default: return 0;
    }
}

/* Where a layer's mask has no selection nothing is chosen: the share of layers that choose, of all. */
static double selecting_share(const Program *p)
{
    double n = 0;
    for (int l = 0; l < p->model.layers; l++)
        n += p->masks[p->layer_mask[l]].selection > 0;
    return n / p->model.layers;
}

/* Heads that score for a chunk's: its own, or the indexer's. */
static Heads scoring_heads(const Step *s, const Selection *x, bool is_short)
{
    const Heads chunk = shape_chunk(&s->shape, is_short), all = s->shape.rank;
    const BurstIndexer *m = &s->program->model.indexer;
    return x->indexer ? (Heads){m->heads * chunk.kv_heads / all.kv_heads, m->kv_heads} : chunk;
}

static int64_t scoring_dim(const Program *p, const Selection *x)
{
    return x->indexer ? p->model.indexer.dim : p->model.head_dim;
}

/* Chunks of queries, each of which chooses among all blocks. */
static int query_chunks(const Step *s) { return s->by_queries ? s->chunks : 1; }

/* What represents blocks; tiles, where the tile after needs it; and lists. Of the largest selection. */
static Collective select_collective(const Step *s)
{
    const Program *p = s->program;
    const Heads h = s->shape.chunk;
    double bytes = 0;
    for (int i = 0; i < p->selection_count; i++) {
        const Selection *x = &p->selections[i];
        const double blocks = (double)((p->sequence + x->block - 1) / x->block),
                     tiles = (double)select_tiles(p, x),
                     query = (double)(x->query_rows * scoring_heads(s, x, false).heads * scoring_dim(p, x)),
                     key = (double)select_key_words(p, x, h), queries = x->query_rows > 1 ? tiles * query : 0;
        bytes = fmax(bytes,
                     4 * (blocks * key + (queries + tiles * (double)select_words(h, x)) / query_chunks(s)));
    }
    return collective_of(&p->cluster, (Ring){s->choice.ranks, 1, 1, false}, selecting_share(p) * bytes);
}

/* What the ranks of recurrent layers send each other. */
static Collective scan_collective(const Step *s, OpKind k)
{
    const BurstScan scan = scan_of_rank(&s->program->model, s->shape.tensor), *m = &scan;
    const bool states = k == OP_STATES || k == OP_STATES_BACK;
    const double maps = (double)s->choice.ranks * s->pieces,
                 rows = 2.0 * s->pieces * (s->program->model.scan_kernel - 1);
    return collective_of(&s->program->cluster, (Ring){states ? s->choice.ranks : 2, 1, 1, false},
                         states ? maps * (double)burst_scan_map(m) * 4
                                : rows * m->columns * s->program->target->activation_bytes);
}

Collective sequence_collective(const Step *s, const Op *o)
{
    switch (o->kind) {
    case OP_STATES:
    case OP_STATES_BACK:
    case OP_HALO:
    case OP_HALO_BACK: return scan_collective(s, o->kind);
    case OP_SELECT: return s->choice.ranks > 1 ? select_collective(s) : (Collective){0};
    default: return (Collective){0};
    }
}

/* Products of the maps of all pieces. */
static double fold_flops(const Step *s, OpKind k)
{
    const BurstScan scan = scan_of_rank(&s->program->model, s->shape.tensor), *m = &scan;
    if (k != OP_STATES && k != OP_STATES_BACK)
        return 0;
    return 2.0 * s->choice.ranks * s->pieces * m->heads * m->key_dim * m->value_dim *
           (m->read ? m->key_dim : 1);
}

static Work scan_work(const Step *s, const Op *o)
{
    const BurstScan scan = scan_of_rank(&s->program->model, s->shape.tensor);
    const double rate = scan_rate(s, o->kind);
    return (Work){.flops = scan_flops(&scan, o->kind) / rate,
                  .bytes = memory_bytes(s, o, false),
                  .products = fold_flops(s, o->kind) / rate,
                  .seconds = sequence_collective(s, o).seconds};
}

/* Shares of the rate of one large product that scores by every key reach, with tensor cores and without
 * (estimated from the kernels' instructions, not measured). */
static const double score_products = 0.45, score_sums = 0.05;
/* Heads that read what represents a block together; columns of a product of tensor cores. */
enum { SCORE_HEADS = 8, SCORE_COLUMNS = 16 };

/* Per token. A device reads what represents a block once for every SCORE_HEADS heads of a key head (measured
 * for lists of a key head: at 0.6 of memory's rate, from its cache), but products with every key take longer.
 */
static Work score_work(const Step *s, const Selection *x, bool is_short)
{
    const Program *p = s->program;
    const Heads h = scoring_heads(s, x, is_short);
    if (h.kv_heads == 0) /* no chunk is shorter than one key head */
        return (Work){0};
    const int64_t dim = scoring_dim(p, x), query = h.heads * dim, group = h.heads / h.kv_heads;
    const double scores = (double)select_tiles(p, x) * (double)p->sequence / (double)x->block /
                          (x->noncausal ? 1 : 2) / (double)p->sequence,
                 flops = 2.0 * scores * (double)(query * x->key_rows),
                 reads = h.kv_heads * ceil((double)group / SCORE_HEADS);
    Work w = {.flops = flops};
    if (p->target->device_memory && x->key == BURST_SELECT_MAX_KEY) {
        const bool tensor = x->query == BURST_SELECT_FIRST_QUERY && dim % SCORE_COLUMNS == 0;
        w.products = flops * (double)p->sequence / s->choice.ranks *
                     (1 / (tensor ? score_products : score_sums) - 1);
    } else if (p->target->device_memory)
        w.bytes = 4 * scores * reads * (double)(select_key_words(p, x, h) / h.kv_heads);
    return w;
}

static Work select_work(const Step *s, const Op *o, bool is_short)
{
    const Program *p = s->program;
    Work most = {0};
    for (int i = 0; i < p->selection_count; i++) {
        const Work w = score_work(s, &p->selections[i], is_short);
        most.flops = fmax(most.flops, w.flops);
        most.products = fmax(most.products, w.products);
        most.bytes = fmax(most.bytes, w.bytes);
    }
    return (Work){.flops = selecting_share(p) * most.flops,
                  .products = selecting_share(p) * most.products,
                  .bytes = selecting_share(p) *
                           (most.bytes + query_chunks(s) * operand_bytes(s, o, o->read[1], is_short)),
                  .seconds = sequence_collective(s, o).seconds};
}

/* Per token. On a device, logits of a tile are read twice and their gradients written, and dw is read and
 * written for each tile (runtime/cuda/ops/loss.cu). */
static double loss_bytes(const Step *s)
{
    const Model *m = &s->program->model;
    const double d = m->hidden, tile = (double)s->loss_tile;
    const Target *t = s->program->target;
    return t->activation_bytes * 4 * d + (t->device_memory ? m->vocab * (4 + 4 + 2 + 8 * d / tile) : 0);
}

/* The loss per token of all tensor ranks' tokens, of which a rank computes its own. */
static Work loss_work(const Step *s, const Op *o, double product)
{
    const double own = (double)s->tokens / (double)s->all_tokens;
    const Target *t = s->program->target;
    if (o->kind == OP_EVALUATE) /* the product alone; on a device logits are written and read */
        return (Work){.flops = own * product,
                      .bytes = own * (t->activation_bytes * (double)s->program->model.hidden +
                                      (t->device_memory ? s->program->model.vocab * (4 + 4) : 0))};
    return (Work){.flops = own * 3 * product, .bytes = own * loss_bytes(s)};
}

Collective tensor_collective(const Step *s, const Op *o)
{
    const bool gathers = o->kind == OP_TENSOR_GATHER || o->kind == OP_TENSOR_SCATTER_BACK,
               both = o->kind == OP_TENSOR_ALL_REDUCE || o->kind == OP_TENSOR_ALL_REDUCE_BACK;
    const Value *all = &s->values.at[gathers ? o->write[0].value : o->read[0].value];
    return collective_of(&s->program->cluster, (Ring){s->shape.tensor, 1, both ? 2 : 1, false},
                         (double)step_bytes(s, all, 0));
}

static double unit_bytes(const Step *s, const Op *o, int unit)
{
    double bytes = 0;
    for (int i = 0; i < OP_WRITES && o->write[i].value >= 0; i++)
        bytes += (double)step_bytes(s, &s->values.at[o->write[i].value], o->embedding ? 0 : unit);
    return bytes;
}

/* Parameters and moments are read and written; gradients are read for the norm and for the update, and
 * zeroed unless a copy overwrites them. */
static Work update_work(const Step *s, const Op *o, int unit)
{
    const double state = (double)step_bytes(s, &s->values.at[step_value(s, "param")], unit);
    const double grad = (double)step_bytes(s, &s->values.at[o->read[0].value], unit);
    const bool host = s->choice.optimizer == OPTIMIZER_ON_HOST,
               own_cores = s->program->target->device_memory, /* or those of the rank itself */
               matrices = s->block[BLOCK_MATRICES].ops.n && unit > 0 && unit != s->program->model.layers + 1;
    if (matrices) /* only vectors are left, but the norm covers all gradients */
        return (Work){.fixed = grad};
    const double rounded = o->write[0].value < 0
                               ? 0
                               : (double)step_bytes(s, &s->values.at[o->write[0].value], unit);
    const double bytes = 6 * state + (3 - host) * grad + rounded;
    return host && own_cores ? (Work){.seconds = bytes / cluster_host_rate(&s->program->cluster)}
                             : (Work){.fixed = bytes};
}

/* A layer's matrices only: the update of momentum and parameters. */
static Work muon_work(const Step *s, const Op *o, int unit)
{
    const double state = (double)step_bytes(s, &s->values.at[step_value(s, "param")], unit);
    const double read = (double)step_bytes(s, &s->values.at[o->read[0].value], unit);
    const double other = o->write[0].value < 0
                             ? (double)step_bytes(s, &s->values.at[step_value(s, step_param(s))], unit)
                             : (double)step_bytes(s, &s->values.at[o->write[0].value], unit);
    return (Work){.fixed = 2 * state + read + (o->write[0].value >= 0 || step_copies_params(s) ? other : 0)};
}

static MuonShare orthogonal_share(const Step *s)
{
    Arena *a = arena_new();
    const MuonShare share = muon_share(a, s->program, s->units);
    arena_free(a);
    return share;
}

/* The rank with most matrices, which are read and written. */
static Work orthogonal_work(const Step *s)
{
    const MuonShare share = orthogonal_share(s);
    const double bytes = (double)share.elements * s->program->target->activation_bytes;
    return (Work){.products = (double)share.flops,
                  .fixed = (5 + 2 * BURST_MUON_ITERATIONS) * bytes}; /* norm, X, iterations, and back */
}

static Work memory_work(const Op *o, double bytes)
{
    return op_part(o) == BURST_P_NORM || op_part(o) == BURST_P_ROPE ? (Work){.norms = bytes}
                                                                    : (Work){.bytes = bytes};
}

Work op_work(const Step *s, const Op *o, int block, int unit, bool is_short)
{
    switch (op_work_kind(o->kind)) {
    case WORK_MEMORY: return memory_work(o, memory_bytes(s, o, is_short));
    case WORK_CLEAR: return (Work){.fixed = unit_bytes(s, o, unit)};
    case WORK_PRODUCT:
        return (Work){.flops = token_share(s, o) * product_flops(s, o, &s->block[block], is_short),
                      .bytes = added_bytes(s, o, is_short)};
    case WORK_EXPERTS: return experts_work(s, o);
    case WORK_SCAN: return scan_work(s, o);
    case WORK_SELECT: return select_work(s, o, is_short);
    case WORK_LOSS: return loss_work(s, o, product_flops(s, o, &s->block[block], false));
    case WORK_NEXT: return (Work){.products = product_flops(s, o, &s->block[block], false)};
    case WORK_TENSOR: return (Work){.seconds = tensor_collective(s, o).seconds};
    case WORK_UPDATE: return (o->kind == OP_OPTIMIZER ? update_work : muon_work)(s, o, unit);
    case WORK_ORTHOGONAL: return orthogonal_work(s);
    default: return (Work){0};
    }
}

/* ---- kernels ---- */

static int matrices_of(const Step *s, const Unit *u)
{
    int n = 0;
    for (int i = 0; i < u->tensors; i++)
        n += u->tensor[i].first == FIRST_NORMAL && burst_muon_takes(u->tensor[i].cols);
    return (n + s->units.ranks - 1) / s->units.ranks;
}

/* Tensors that lie beside each other and decay alike are updated by one kernel; Muon's matrices are not. */
static int update_runs(const Step *s, const Unit *u)
{
    const bool muon = s->block[BLOCK_MATRICES].ops.n > 0;
    int runs = 0, last = -1;
    for (int i = 0; i < u->tensors; i++) {
        const bool decays = u->tensor[i].first == FIRST_NORMAL;
        const int of = muon && decays && burst_muon_takes(u->tensor[i].cols) ? -1 : decays;
        runs += of >= 0 && of != last;
        last = of;
    }
    return runs;
}

/* The loss has its kernels for each tile of a chunk of tokens. */
static int loss_tiles(const Step *s, const Op *o)
{
    const int64_t rows = op_in_loop(s, o, LOOP_TOKENS) ? s->chunk : s->tokens;
    return s->loss_tile > 0 ? (int)((rows + s->loss_tile - 1) / s->loss_tile) : 1;
}

int op_launches(const Step *s, const Op *o, int unit)
{
    const WorkKind work = op_work_kind(o->kind);
    const int each = op_row_of(o->kind)->launches > 0 ? op_row_of(o->kind)->launches : 1;
    if (!s->program->target->device_memory ||
        (work == WORK_UPDATE && s->choice.optimizer == OPTIMIZER_ON_HOST))
        return 1;
    switch (work) {
    case WORK_LOSS: return each * loss_tiles(s, o);
    case WORK_ORTHOGONAL: /* norm and order of each, and products of each iteration */
        return (5 + 3 * BURST_MUON_ITERATIONS) * (int)orthogonal_share(s).matrices;
    case WORK_UPDATE: /* AdamW: and the norm's kernel */
        return o->kind == OP_OPTIMIZER ? 1 + update_runs(s, step_unit(s, unit))
                                       : matrices_of(s, step_unit(s, unit));
    default: return each;
    }
}

/* ---- kinds of ranks ---- */

RankKind rank_kind_of(const Cluster *c, int rank, double tokens)
{
    const NodeGroup *g = cluster_group_of(c, rank);
    return (RankKind){g->device, cost_rate_share(c, g), tokens};
}

bool rank_kinds_equal(RankKind x, RankKind y)
{
    return x.device == y.device && x.share == y.share && x.tokens == y.tokens;
}

double work_seconds(RankKind k, Work w)
{
    const Device *d = k.device;
    const double memory = (d->passes > 0 ? (k.tokens * w.bytes + w.fixed) / d->passes : 0) +
                          (d->norms > 0 ? k.tokens * w.norms / d->norms : 0);
    const double products = (k.tokens * w.flops + w.products) / d->matmul +
                            (d->experts > 0 ? (k.tokens * w.experts + w.tiles) / d->experts : 0);
    return (products + memory) / k.share + w.seconds;
}
