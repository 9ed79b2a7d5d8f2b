/* cost/timed.c: what a model's operations take and send. It is the same each time that a stream runs them, so
 * it is found once for each model. */
#include "cost/cost.h"

#include <math.h>

typedef struct Timing {
    Arena *arena;
    const StepModel *model;
    /* [whole chunk, last chunk] as the model's seconds, filled on first use */
    double *seconds[2][STEP_BLOCKS];
} Timing;

static bool is_cut(const Step *s, const StepOp *o) { return op_dim(s, o->op) == LOOP_TOKENS; }

/* Tokens of the operation's chunk. */
static int64_t chunk_tokens(const Step *s, const StepOp *o)
{
    const int chunk = o->index[op_in_loop(s, o->op, LOOP_KEYS) ? LOOP_KEYS : LOOP_TOKENS];
    const int64_t left = s->all_tokens - chunk * s->chunk;
    return left < s->chunk ? left : s->chunk;
}

/* The share of the tokens in the operation's chunk. */
static double chunk_share(const Step *s, const StepOp *o)
{
    return is_cut(s, o) ? (double)chunk_tokens(s, o) / (double)s->all_tokens : 1;
}

/* Seconds of the operation's chunk; with any work at least as long as its kernels' launches take. */
static double op_seconds(const StepModel *m, const StepOp *o, int kind)
{
    const double all = model_seconds(m, o)[kind], chunk = chunk_share(m->step, o) * all;
    return all > 0 ? fmax(chunk, model_launches(m, o) * m->rank_kind[kind].device->target->least_kernel) : 0;
}

static const double *chunk_seconds(Timing *t, const StepOp *o)
{
    const StepModel *m = t->model;
    const bool last = is_cut(m->step, o) && chunk_tokens(m->step, o) < m->step->chunk;
    double **block = &t->seconds[last][o->block];
    if (!*block)
        *block = NEW_ARRAY(t->arena, double, model_cells(m, o->block));
    double *seconds = *block + (model_seconds(m, o) - m->seconds[o->block]);
    const bool known = seconds[0] > 0;
    for (int k = 0; k < m->rank_kinds && !known; k++)
        seconds[k] = op_seconds(m, o, k);
    return seconds;
}

/* Seconds of a copy alone, sized for the rank with most tokens. */
static const double *copy_seconds(Timing *t, const StepOp *o)
{
    const Step *step = t->model->step;
    const Operand all = o->op->kind == OP_STAGE ? o->op->write[0] : o->op->read[0];
    const double bytes = chunk_share(step, o) *
                         (double)step_bytes(step, &step->values.at[all.value], o->unit);
    double *seconds = NEW(t->arena, double);
    *seconds = bytes / cluster_pcie(t->model->cluster);
    return seconds;
}

/* The ring of a collective: replicas of a shard, tensor ranks with equal tensors, or ranks that share a
 * unit. */
static Ring ring_of(OpKind k, int world, int ranks, int sharing)
{
    if (k == OP_ALL_REDUCE)
        return (Ring){world / ranks, ranks, 2, true};
    if (k == OP_TENSOR_SUM)
        return (Ring){ranks / sharing, 1, 2, true};
    return (Ring){sharing, ranks / sharing, 1, k != OP_GATHER};
}

static Collective weights_collective(const StepModel *m, const StepOp *at)
{
    const Step *step = m->step;
    const bool gather = at->op->kind == OP_GATHER;
    const Operand full = gather ? at->op->write[0] : at->op->read[0];
    const int unit = at->op->embedding ? 0 : unit_of_visit(step, op_visit(step, at) + full.next);
    const int ranks = step->units.ranks, sharing = step_unit(step, unit)->ranks, world = m->cluster->world;
    const Ring ring = ring_of(at->op->kind, world, ranks, sharing);
    return collective_of(m->cluster, ring, (double)step_bytes(step, &step->values.at[full.value], unit));
}

/* Muon's exchange of matrices: computing continues when each rank has what it needs. As long as a gather of
 * a shard or, if that is longer, of a unit's part of the matrices of the owner with most: a rank sends or
 * receives all but its own. */
static Collective matrices_collective(const StepModel *m, const StepOp *at)
{
    const Step *step = m->step;
    const Operand shard = at->op->kind == OP_TO_OWNERS ? at->op->read[0] : at->op->write[0];
    const Value *matrices = &step->values.at[step_value(step, "matrices")];
    const Ring ring = {.ranks = step->units.ranks, .stride = 1, .rounds = 1};
    double all = 0;
    for (int unit = 1; unit < step_units(step); unit++)
        all += unit_is_of_layer(step, unit) ? (double)step_unit(step, unit)->elements : 0;
    const double part = (double)step_unit(step, at->unit)->elements / all;
    const double bytes = fmax((double)step_bytes(step, &step->values.at[shard.value], at->unit),
                              (double)matrices->bytes * part);
    return collective_of(m->cluster, ring, bytes);
}

static Collective sent_by(const StepModel *m, const StepOp *o)
{
    switch (op_work_kind(o->op->kind)) {
    case WORK_COLLECTIVE: return weights_collective(m, o);
    case WORK_TENSOR: return tensor_collective(m->step, o->op);
    case WORK_EXCHANGE: return matrices_collective(m, o);
    default: return sequence_collective(m->step, o->op);
    }
}

static const Collective *collective(Timing *t, const StepOp *o)
{
    const WorkKind work = op_work_kind(o->op->kind);
    const Collective c = sent_by(t->model, o);
    if (!c.bytes && work != WORK_COLLECTIVE && work != WORK_TENSOR && work != WORK_EXCHANGE)
        return NULL;
    Collective *kept = NEW(t->arena, Collective);
    *kept = c;
    return kept;
}

static TimedOp timed(Timing *t, const StepOp *o)
{
    const Step *s = t->model->step;
    const WorkKind work = op_work_kind(o->op->kind);
    TimedOp x = {.op = o, .work = work, .part = op_part(o->op), .event = step_event(s, o)};
    if (op_of_last_token(s, o))
        x.skipped = true;
    else if (work == WORK_COPY)
        x.seconds = copy_seconds(t, o);
    else if (o->op->kind != OP_WAIT && work != WORK_ATTENTION) {
        x.seconds = chunk_seconds(t, o);
        x.sends = collective(t, o);
    }
    return x;
}

void model_time(Arena *a, StepModel *m)
{
    Timing t = {.arena = a, .model = m};
    TimedOp *all = NEW_ARRAY(a, TimedOp, m->ops);
    m->timed_ops = 0;
    for (int i = 0; i < m->ops; i++)
        if (op_follows(m->step, &m->op[i]))
            all[m->timed_ops++] = timed(&t, &m->op[i]);
    m->timed = all;
}
