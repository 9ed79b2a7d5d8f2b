/* step/passes/zero.c: parameters and moments sharded over all ranks unit by unit (ZeRO, arXiv 1910.02054),
 * and the optimizer.
 *
 * Units are visited in the order embedding, layers, head, layers backwards. A visit begins with the gather
 * of the next one's weights; one that computes gradients zeroes their sum just before and reduces it last.
 * The embedding's own gradients come after the last visit and need no weights. A head tied to the embedding
 * gathers and reduces that unit in addition to its own.
 *
 * If weights last the step, only the step's first forward gathers them. If gradients do, they are zeroed in
 * the first sequence and reduced in the last; otherwise at most two units' sums exist at a time.
 *
 * If weights are sharded over the ranks of a group and other groups have replicas (AMSP, arXiv 2311.00257),
 * gathers and reductions are within the group, and the last sequence sums each unit's shard of gradients
 * over the ranks that hold the same one.
 *
 * Where a layer's experts are in units of their own, its block has a visit of each, whose operations follow
 * each other; what the rest of the layer needs stays until its end.
 *
 * A rank that holds whole units has nothing to gather or to reduce: operations read its parameters and add
 * to its gradients.
 *
 * Gradients kept in bf16 are never accumulated in it: each visit's sum is fp32, over the ranks too, and is
 * added to the shard and rounded when it is reduced, also on a single rank. Sums of shards, over replicas or
 * tensor ranks, are fp32 in the memory of that sum. */
#include "step/step.h"

#include <string.h>

typedef struct Weights {
    Step *step;
    bool alone, weights_last, sums_last, bf16;
    int weight, sum;            /* read, and accumulated, by operations */
    int tied, tied_sum;         /* the embedding's, for a tied head */
    int shard, gathered;        /* gradients after their reduction; the gathers' input */
} Weights;

static bool reads_weight(const Op *o)
{
    static const OpKind gradients[] = {OP_EMBED_BACK,       OP_LINEAR_DW,     OP_BIAS_BACK,
                                       OP_LOGITS_DW,        OP_EXPERTS_UP_DW, OP_EXPERTS_DOWN_DW,
                                       OP_EXPERTS_BIAS_BACK};
    for (int i = 0; i < countof(gradients); i++)
        if (o->kind == gradients[i])
            return false;
    return o->weight;
}

static bool makes_gradients(const Op *o)
{
    static const OpKind both[] = {
        OP_NORM_BACK, OP_SINK_BACK,        OP_ATTENTION_BACK, OP_EXPERTS_OUT_BIAS_BACK, OP_SCAN_GATES_BACK,
        OP_CONV_BACK, OP_CONV_PIECES_BACK, OP_SCAN_BACK,      OP_SCAN_PIECES_BACK,      OP_GATED_NORM_BACK,
        OP_LOSS};
    bool makes = o->weight && !reads_weight(o);
    for (int i = 0; i < countof(both); i++)
        makes |= o->weight && o->kind == both[i];
    return makes;
}

static Op gather(const Weights *w, int weight, int next, bool embedding)
{
    Op o = op_make(OP_GATHER);
    o.embedding = embedding;
    o.when = w->weights_last ? WHEN_FIRST : WHEN_ALWAYS;
    if (w->gathered >= 0)
        op_read(&o, w->gathered, next);
    op_write(&o, weight, next, false);
    return o;
}

static Op zero(const Weights *w, int sum, bool embedding)
{
    Op o = op_make(OP_ZERO);
    o.embedding = embedding;
    o.when = w->sums_last ? WHEN_FIRST : WHEN_ALWAYS;
    op_write(&o, sum, 0, false);
    return o;
}

static Op reduce(const Weights *w, int sum, bool embedding, bool adds)
{
    Op o = op_make(OP_REDUCE);
    o.embedding = embedding;
    o.when = w->sums_last ? WHEN_LAST : WHEN_ALWAYS;
    op_read(&o, sum, 0);
    op_write(&o, w->shard, 0, adds);
    return o;
}

/* Sums gradients of all sequences in place: over replicas; or, if tensor ranks do not split the tensor, over
 * tensor ranks, each of which has the gradients of its tokens or heads. */
static Op sum_shards(const Weights *w, OpKind k)
{
    Op o = op_make(k);
    o.when = WHEN_LAST;
    op_read(&o, w->shard, 0);
    op_write(&o, w->shard, 0, false);
    if (w->bf16)
        op_write(&o, w->sum, 0, false);
    return o;
}

static void use_unit(const Weights *w, Block *b)
{
    for (int i = 0; i < b->ops.n; i++) {
        Op *o = &b->ops.at[i];
        const bool tied = (o->kind == OP_LOSS || o->kind == OP_NEXT) && w->step->program->model.tied;
        o->embedding = tied;
        if (reads_weight(o))
            op_read(o, tied ? w->tied : w->weight, 0);
        if (makes_gradients(o))
            op_write(o, tied ? w->tied_sum : w->sum, 0, true);
    }
}

/* Waits for the previous unit's reduction, so that at most two units' sums exist at a time; if each visit
 * gathers weights, for the gather instead. A single rank, whose reductions take no time, waits for the
 * visit's own: its sum is the only one. */
static Op wait(const Weights *w, int next)
{
    Op o = op_wait(OP_REDUCE);
    op_read(&o, w->shard, next);
    return o;
}

/* Of the block's unit, or of a group's. */
static bool has_gradients(const Block *b, int group)
{
    for (int i = 0; i < b->ops.n; i++)
        if (b->ops.at[i].group == group && makes_gradients(&b->ops.at[i]))
            return true;
    return false;
}

/* Around the loss. */
static void tie_head(const Weights *w)
{
    Block *b = &w->step->block[BLOCK_HEAD];
    const int loss = w->step->forward ? 0 : op_first(b, OP_LOSS);
    if (!w->sums_last && !w->step->forward)
        op_insert(w->step, b, loop_end(w->step, b, loss), reduce(w, w->tied_sum, true, false));
    if (!w->step->forward)
        op_insert(w->step, b, loop_begin(w->step, b, loss), zero(w, w->tied_sum, true));
    if (!w->weights_last)
        op_insert(w->step, b, 0, gather(w, w->tied, 0, true));
}

/* Before the first operation that adds to the unit's gradients, or the loop over chunks around it: what is
 * recomputed before that, and is widest while the previous unit's gradient is reduced, uses their memory. */
static int zero_at(const Step *s, const Block *b, int group)
{
    int i = 0;
    while (b->ops.at[i].group != group || !makes_gradients(&b->ops.at[i]))
        i++;
    return loop_begin(s, b, i);
}

int step_group_end(const Step *s, const Block *b, int group)
{
    int last = b->ops.n - 1;
    while (b->ops.at[last].group != group)
        last--;
    return loop_end(s, b, last);
}

/* Of a group of experts: before its first operation, which need not be the first that reads its weights. */
static int gather_at(const Step *s, const Block *b, int group)
{
    int first = 0;
    while (b->ops.at[first].group != group)
        first++;
    return loop_begin(s, b, first);
}

/* One after the other. */
static void insert_ops(Step *s, Block *b, int at, int group, const Op *op, int n)
{
    for (int i = 0; i < n; i++) {
        Op o = op[i];
        o.group = group;
        op_insert(s, b, at + i, o);
    }
}

/* The visit of a group of a layer's experts. */
static void visit_group(const Weights *w, int block, int group)
{
    Step *s = w->step;
    Block *b = &s->block[block];
    const bool gradients = has_gradients(b, group),
               gathers = !w->weights_last || (block < BLOCK_HEAD && !w->alone);
    Op end[5];
    int n = 0;
    if (gradients && w->weights_last && !w->sums_last && !w->alone)
        end[n++] = wait(w, -1);
    if (gradients && !(w->alone && w->sums_last))
        end[n++] = reduce(w, w->sum, false, false);
    if (gradients && s->shape.tensor > 1)
        end[n++] = sum_shards(w, OP_TENSOR_SUM);
    if (gradients && step_replicates(s))
        end[n++] = sum_shards(w, OP_ALL_REDUCE);
    if (gradients && w->alone && !w->sums_last)
        end[n++] = wait(w, 0);
    insert_ops(s, b, step_group_end(s, b, group), group, end, n);
    const Op first = zero(w, w->sum, false), ahead = gather(w, w->weight, 1, false);
    if (gradients)
        insert_ops(s, b, zero_at(s, b, group), group, &first, 1);
    if (gathers)
        insert_ops(s, b, gather_at(s, b, group), group, &ahead, 1);
}

/* The gather of the unit that is visited next: layers without experts have no visits of groups. */
static Op gather_next(const Weights *w, int block)
{
    Op o = gather(w, w->weight, 1, false);
    if (block_of_layer(block) && !step_groups(w->step, block))
        o.group = block_phase(block) == BLOCK_FORWARD || block_phase(block) == BLOCK_FORWARD_AGAIN
                      ? w->step->units.groups
                      : w->step->units.groups > 0;
    return o;
}

/* A layer's weights are there before those that are gathered in the same turn: of its second group, where it
 * begins with experts so that nothing else waits for them; or, where it has none, of the next layer. */
static void wait_for_layer(const Weights *w, Block *b)
{
    Op o = op_wait(OP_GATHER);
    o.when = gather(w, w->weight, 0, false).when;
    op_read(&o, w->weight, 0);
    op_insert(w->step, b, 0, o);
}

static void visit_block(const Weights *w, int block)
{
    Block *b = &w->step->block[block];
    const int groups = step_groups(w->step, block);
    const bool gradients = has_gradients(b, 0),
               again = block == BLOCK_EMBED_BACK && w->step->program->model.tied;
    const int last = w->step->forward ? BLOCK_HEAD
                                      : BLOCK_EMBED_BACK; /* no visit follows that needs weights */
    const bool gathers = w->weights_last ? block < BLOCK_HEAD && !w->alone : block < last;
    use_unit(w, b);
    for (int g = 1; g <= groups; g++)
        visit_group(w, block, g);
    if (block == BLOCK_HEAD && w->step->program->model.tied)
        tie_head(w);
    if (gradients && !(again && w->sums_last))
        op_insert(w->step, b, zero_at(w->step, b, 0), zero(w, w->sum, false));
    if (groups && gathers && gradients)
        wait_for_layer(w, b);
    if (gathers)
        op_insert(w->step, b, 0, gather_next(w, block));
    if (w->step->units.groups && !groups && gathers && block_of_layer(block))
        wait_for_layer(w, b);
    if (gradients && w->weights_last && !w->sums_last && !w->alone && block != BLOCK_HEAD)
        *vec_push(w->step->arena, &b->ops) = wait(w, -1);
    if (gradients && !(w->alone && w->sums_last))
        *vec_push(w->step->arena, &b->ops) = reduce(w, w->sum, false, again && !w->sums_last);
    if (gradients && w->step->shape.tensor > 1 && b->repeat == REPEAT_DOWN)
        *vec_push(w->step->arena, &b->ops) = sum_shards(w, OP_TENSOR_SUM);
    if (gradients && step_replicates(w->step))
        *vec_push(w->step->arena, &b->ops) = sum_shards(w, OP_ALL_REDUCE);
    if (gradients && w->alone && !w->sums_last)
        *vec_push(w->step->arena, &b->ops) = wait(w, 0);
}

static int add_value(Step *s, const char *name, ValueKind kind, Dim dim, Element e, Index index)
{
    return step_add_value(
        s, (Value){.name = name, .kind = kind, .dim = {dim}, .element = e, .index = index, .gradient = -1});
}

static int add_tied(Step *s)
{
    return add_value(s, "tied", VALUE_WEIGHT, DIM_UNIT, EL_ACTIVATION, INDEX_NONE);
}

static Weights add_values(Step *s, Sharding sharding, bool bf16)
{
    static const struct { bool weights, gradients; } last[SHARDINGS] = {
#define X(id, name, weights, gradients) {weights, gradients},
        SHARDING_ROWS(X)
#undef X
    };
    const bool alone = s->units.ranks == 1;
    Weights w = {.step = s,
                 .alone = alone,
                 .weights_last = alone || last[sharding].weights,
                 .sums_last = alone ? !bf16 : last[sharding].gradients,
                 .bf16 = bf16,
                 .gathered = -1};
    /* forward on a device reads rounded parameters, which are made of the host's */
    const bool rounded_alone = s->forward && step_copies_params(s);
    const int param = rounded_alone ? -1
                                    : add_value(s, "param", VALUE_STATE, DIM_SHARD, EL_FLOAT, INDEX_UNIT);
    if (!s->forward) {
        add_value(s, "m", VALUE_STATE, DIM_SHARD, EL_FLOAT, INDEX_UNIT);
        add_value(s, "v", VALUE_STATE, DIM_SHARD, EL_FLOAT, INDEX_UNIT);
        w.shard = add_value(s, "grad_shard", VALUE_SHARD, DIM_SHARD, bf16 ? EL_ACTIVATION : EL_FLOAT,
                            INDEX_UNIT);
    }
    if (step_copies_params(s))
        w.gathered = add_value(s, step_param(s), VALUE_ROUNDED, DIM_SHARD, EL_ACTIVATION, INDEX_UNIT);
    if (w.alone) {
        w.weight = w.tied = step_copies_params(s) ? w.gathered : param;
        w.sum = w.tied_sum = w.shard;
    } else {
        w.weight = w.tied = add_value(s, "weight", VALUE_WEIGHT, DIM_UNIT, EL_ACTIVATION,
                                      w.weights_last ? INDEX_UNIT : INDEX_VISIT);
    }
    const bool tied = s->program->model.tied && !w.weights_last; /* gathered once more, for the head */
    if (tied && s->forward)
        w.tied = add_tied(s);
    if ((alone && w.sums_last) || s->forward)
        return w;
    w.sum = w.tied_sum = add_value(s, "grad", VALUE_SUM, DIM_UNIT, EL_FLOAT,
                                   w.sums_last ? INDEX_UNIT : INDEX_VISIT);
    if (tied)
        w.tied = add_tied(s);
    if (s->program->model.tied && !w.sums_last)
        w.tied_sum = add_value(s, "grad_tied", VALUE_SUM, DIM_UNIT, EL_FLOAT, INDEX_NONE);
    return w;
}

void step_weights(Step *s, Sharding sharding, bool bf16)
{
    const Weights w = add_values(s, sharding, bf16);
    for (int i = 0; i < BLOCK_OPTIMIZER; i++)
        if (s->block[i].ops.n)
            visit_block(&w, i);
    if (!w.alone)
        op_insert(s, &s->block[BLOCK_EMBED], 0, gather(&w, w.weight, 0, false));
    if (s->forward)
        return;
    Op o = op_make(OP_OPTIMIZER);
    o.when = WHEN_LAST;
    op_read(&o, w.shard, 0);
    if (w.gathered >= 0)
        op_write(&o, w.gathered, 0, false);
    *vec_push(s->arena, &s->block[BLOCK_OPTIMIZER].ops) = o;
}
