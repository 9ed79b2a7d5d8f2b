/* muon.c: Muon's matrices: their owners, the exchange of their parts, and the host's update. */
#include "optimizer/muon.h"

#include "core/context.h"
#include "core/weights.h"
#include "burst_step.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

bool muon_updates(const BurstPlan *p, int unit, const BurstTensor *t)
{
    return p->train.optimizer == BURST_OPTIMIZER_MUON && unit > 0 && unit != p->layers + 1 &&
           t->init_std > 0 && burst_muon_takes(t->cols);
}

/* ---- owners ---- */

/* For the matrices of all units, one after the other, made once. */
struct MuonOwners {
    int *owner;
    int64_t *at;
};

static int count_matrices(const BurstPlan *p, int unit)
{
    const BurstUnit *u = burst_unit(p, unit);
    int n = 0;
    for (const BurstTensor *t = u->tensor; t < u->tensor + u->tensors; t++)
        n += muon_updates(p, unit, t);
    return n;
}

/* Matrices of the units before `end`. */
static int matrices_before(const BurstPlan *p, int end)
{
    int n = 0;
    for (int unit = 1; unit < end; unit++)
        n += count_matrices(p, unit);
    return n;
}

static void list_matrices(const BurstPlan *p, BurstMatrices *of, BurstMatrix *matrix)
{
    for (int unit = 0; unit < burst_unit_count(p); unit++) {
        const BurstUnit *u = burst_unit(p, unit);
        of[unit] = (BurstMatrices){matrix, 0};
        for (const BurstTensor *t = u->tensor; t < u->tensor + u->tensors; t++)
            if (muon_updates(p, unit, t))
                *matrix++ = (BurstMatrix){t->rows, t->cols}, of[unit].n++;
    }
}

static int make_owners(BurstCtx *c)
{
    const int units = burst_unit_count(c->plan), ranks = plan_shards(c->plan);
    const size_t all = (size_t)matrices_before(c->plan, units);
    int64_t *load = calloc(2 * (size_t)ranks, sizeof *load);
    BurstMatrix *matrix = calloc(all + 1, sizeof *matrix);
    BurstMatrices *of = calloc((size_t)units, sizeof *of);
    struct MuonOwners *o = calloc(1, sizeof *o + all * (sizeof *o->owner + sizeof *o->at));
    const bool there = load && matrix && of && o;
    if (there) {
        o->at = (int64_t *)(void *)(o + 1);
        o->owner = (int *)(void *)(o->at + all);
        list_matrices(c->plan, of, matrix);
        burst_muon_share(of, units, ranks, o->owner, o->at, load, load + ranks);
        c->owners = o;
    } else {
        free(o);
    }
    free(load), free(matrix), free(of);
    return there ? BURST_OK
                 : burst_fail(c, BURST_E_MEMORY, "out of memory for the owners of %zu matrices", all);
}

int muon_matrices(BurstCtx *c, int unit, MuonMatrix matrix[BURST_MUON_MATRICES], int *count)
{
    const BurstPlan *p = c->plan;
    const BurstUnit *u = burst_unit(p, unit);
    if (!c->owners)
        BURST_TRY(make_owners(c));
    const int before = matrices_before(p, unit);
    int n = 0;
    for (const BurstTensor *t = u->tensor; t < u->tensor + u->tensors; t++) {
        const bool columns = t->split == BURST_BY_COLS || t->split == BURST_BY_KEY_COLS;
        if (!muon_updates(p, unit, t))
            continue;
        matrix[n] = (MuonMatrix){.tensor = t, .parts = columns ? plan_tensor(p) / tensor_copies(p, t) : 1};
        matrix[n].owner = c->owners->owner[before + n];
        matrix[n].at = c->owners->at[before + n];
        n++;
    }
    *count = n;
    return BURST_OK;
}

MuonPart muon_part(const BurstCtx *c, int rank, int unit, const MuonMatrix *x)
{
    const BurstPlan *p = c->plan;
    const BurstUnit *u = burst_unit(p, unit);
    const ElementRange s = tensor_part(p, rank, u, x->tensor);
    BurstRun first = {0};
    if (!burst_next_run(p, rank, u, x->tensor, &first))
        return (MuonPart){0};
    const int64_t cols = x->tensor->cols / x->parts, row = first.from / x->tensor->cols,
                  col = first.from % x->tensor->cols;
    return (MuonPart){.begin = s.begin,
                      .count = s.end - s.begin,
                      .at = x->at + (col / cols * x->tensor->rows + row) * cols + col % cols,
                      .sends = tensor_is_written(p, rank, u, x->tensor)};
}

/* ---- exchange between shards and owners ---- */

/* Gathers a matrix's parts at its owner from the ranks that have them, or with `back` sends them to all of
 * these. */
static int exchange_at_owner(BurstCtx *c, int unit, const MuonMatrix *x, float *matrices, bool back)
{
    const BurstGroup g = burst_shard_group(c);
    BurstReq *sent = c->gather_reqs + (size_t)GATHERS_MAX * (size_t)c->world, received;
    for (int i = 0; i < g.count; i++) {
        const MuonPart part = muon_part(c, g.first + i, unit, x);
        const size_t bytes = (size_t)part.count * sizeof *matrices;
        if (g.first + i == c->rank || !part.count)
            continue;
        if (back)
            BURST_TRY(burst_send(c, CHANNEL_SCATTER, g.first + i, matrices + part.at, bytes, &sent[i]));
        else if (part.sends) {
            BURST_TRY(burst_recv(c, CHANNEL_SCATTER, g.first + i, matrices + part.at, bytes, &received));
            BURST_TRY(burst_wait(c, &received));
        }
    }
    for (int i = 0; i < g.count && back; i++)
        if (g.first + i != c->rank && muon_part(c, g.first + i, unit, x).count)
            BURST_TRY(burst_wait(c, &sent[i]));
    return BURST_OK;
}

/* Exchanges matrix by matrix in the same order on all ranks, so that no rank waits for one that is
 * behind. */
static int exchange(BurstCtx *c, int unit, float *shard, float *matrices, bool back)
{
    MuonMatrix matrix[BURST_MUON_MATRICES];
    int n;
    BURST_TRY(muon_matrices(c, unit, matrix, &n));
    for (const MuonMatrix *x = matrix; x < matrix + n; x++) {
        const MuonPart part = muon_part(c, c->rank, unit, x);
        const int owner = burst_shard_group(c).first + x->owner;
        const size_t bytes = (size_t)part.count * sizeof *shard;
        BurstReq own;
        if (owner == c->rank) {
            BURST_TRY(exchange_at_owner(c, unit, x, matrices, back));
            if (part.count)
                memcpy(back ? shard + part.begin : matrices + part.at,
                       back ? matrices + part.at : shard + part.begin, bytes);
        } else if (part.count && (back || part.sends)) {
            BURST_TRY(back ? burst_recv(c, CHANNEL_SCATTER, owner, shard + part.begin, bytes, &own)
                           : burst_send(c, CHANNEL_SCATTER, owner, shard + part.begin, bytes, &own));
            BURST_TRY(burst_wait(c, &own));
        }
    }
    return BURST_OK;
}

int burst_op_to_owners(BurstExec *e, int unit, BurstAct *update, BurstAct *matrices)
{
    return exchange(e, unit, update, matrices, false);
}

int burst_op_from_owners(BurstExec *e, int unit, BurstAct *matrices, BurstAct *update)
{
    return exchange(e, unit, update, matrices, true);
}

/* ---- the host's update ---- */

typedef struct Elements {
    const BurstAdamW *o;
    int64_t count;
    float *param, *m, *update; /* param NULL: momentum, else the update */
    const float *grad;
    float scale;               /* of the update */
} Elements;

static void elements_part(const void *what, int part, int parts)
{
    const Elements *x = what;
    const int64_t end = x->count * (part + 1) / parts;
    const float grad = (float)x->o->grad_scale, keep = (float)x->o->momentum, scale = x->scale,
                decay = (float)(1 - x->o->lr * x->o->decay);
    for (int64_t i = x->count * part / parts; i < end && x->param; i++)
        x->param[i] = x->param[i] * decay - scale * x->update[i];
    for (int64_t i = x->count * part / parts; i < end && !x->param; i++) {
        const float g = x->grad[i] * grad, m = keep * x->m[i] + g;
        x->m[i] = m;
        x->update[i] = g + keep * m;
    }
}

/* Calls for this rank's part of each matrix of the unit: its momentum, which gives the update, or the update
 * of its parameters. */
static int each_part(BurstCtx *c, const BurstWeights *w, int unit, const BurstAdamW *o, float *update,
                     bool momentum)
{
    MuonMatrix matrix[BURST_MUON_MATRICES];
    int n;
    BURST_TRY(muon_matrices(c, unit, matrix, &n));
    for (const MuonMatrix *x = matrix; x < matrix + n; x++) {
        const MuonPart part = muon_part(c, c->rank, unit, x);
        const BurstMatrix size = {x->tensor->rows, x->tensor->cols};
        Elements e = {.o = o, .count = part.count, .update = update + part.begin};
        if (momentum) {
            e.m = w->m[unit] + part.begin;
            e.grad = w->grad[unit] + part.begin;
        } else {
            e.param = w->param[unit] + part.begin;
            e.scale = (float)(o->lr * burst_muon_scale(size));
        }
        in_parts(c, elements_part, &e);
    }
    return BURST_OK;
}

int burst_op_momentum(BurstExec *e, const BurstShards *w, int unit, const BurstAdamW *o, BurstAct *update)
{
    return each_part(e, w, unit, o, update, true);
}

int burst_op_muon(BurstExec *e, const BurstShards *w, int unit, const BurstAdamW *o, BurstAct *update)
{
    return each_part(e, w, unit, o, update, false);
}

int burst_op_orthogonalize(BurstExec *e, BurstAct *matrices, void *scratch)
{
    const int me = e->rank - burst_shard_group(e).first;
    MuonMatrix matrix[BURST_MUON_MATRICES];
    int n;
    for (int unit = 1; unit < burst_unit_count(e->plan); unit++) {
        BURST_TRY(muon_matrices(e, unit, matrix, &n));
        for (const MuonMatrix *x = matrix; x < matrix + n; x++)
            if (x->owner == me)
                burst_newton_schulz((int)x->tensor->rows, (int)x->tensor->cols, x->parts, matrices + x->at,
                                    (float *)scratch);
    }
    return BURST_OK;
}

void muon_close(BurstCtx *c)
{
    free(c->owners);
    c->owners = NULL;
}
