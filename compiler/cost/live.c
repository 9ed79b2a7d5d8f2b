/* cost/live.c: which transfers of the simulated ranks carry something, where the mask leaves pairs empty.
 *
 * The rule is prune.c's: a copy travels on where somebody further along computes with it, a partial sum
 * where something was added to it. There it runs on all ranks of a group; here on the simulated ones, in
 * relative chunks, so that the time does not grow with the square of the ranks. Where all ranks are
 * simulated both agree (tests/cost).
 */
#include "cost/cost.h"

typedef struct Marks {
    const AttentionInput *in;
    int chunks;                   /* of keys */
    BurstTileRanges *mark[TENSOR_COUNT];  /* [simulated rank][relative chunk] */
    BurstTileRanges *moved;        /* [simulated rank] */
    BurstTileRanges *live;         /* [trace.n][simulated rank] */
} Marks;

static BurstTileRanges *mark_of(Marks *m, TensorId t, int rank, int chunk)
{
    return &m->mark[t][(size_t)rank * (size_t)m->chunks + (size_t)chunk];
}

static void widen(BurstTileRanges *mark, BurstTileRanges r)
{
    *mark = burst_join(*mark, r);
}

static void mark_computed(Marks *m, int at, int side, int tensor)
{
    const int chunk = m->in->schedule->trace.at[at].chunk[side];
    const size_t row = (size_t)at * (size_t)m->in->ranks;
    for (int r = 0; r < m->in->ranks && tensor >= 0; r++)
        if (m->in->seconds[row + (size_t)r] > 0)
            widen(mark_of(m, (TensorId)tensor, r, chunk),
                  m->in->tiles ? m->in->tiles[row + (size_t)r].side[side] : burst_all_tiles());
}

/* Moves the mark of the chunk that is passed to its sender (need, backwards in time) or its receiver
 * (content). */
static void carry(Marks *m, int at, bool to_sender)
{
    const Schedule *s = m->in->schedule;
    const Instance *i = &s->trace.at[at];
    TensorId t = i->node->ref[0].tensor;
    int there = rel_sub(s->choice, i->chunk[0], i->hop);
    for (int r = 0; r < m->in->ranks; r++) {
        int to = grid_add(m->in, r, i->hop);
        BurstTileRanges *mark = to_sender ? mark_of(m, t, to, there) : mark_of(m, t, r, i->chunk[0]);
        m->moved[r] = *mark;
        m->live[(size_t)at * (size_t)m->in->ranks + (size_t)to] = *mark;
        *mark = (BurstTileRanges){0};
    }
    for (int r = 0; r < m->in->ranks; r++)
        widen(to_sender ? mark_of(m, t, r, i->chunk[0]) : mark_of(m, t, grid_add(m->in, r, i->hop), there),
              m->moved[r]);
}

static bool moves(const Instance *i, bool sums)
{
    bool sum = tensor_accumulates(i->node->ref[0].tensor);
    return (i->node->kind == N_PASS || i->node->kind == N_RETURN) && sum == sums;
}

static bool computes(const Instance *i)
{
    return i->node->kind == N_COMPUTE;
}

BurstTileRanges *cost_live(Arena *a, const AttentionInput *in)
{
    const Trace *trace = &in->schedule->trace;
    Marks m = {.in = in, .chunks = choice_chunks(in->schedule->choice)};
    m.live = NEW_ARRAY(a, BurstTileRanges, trace->n * in->ranks);
    m.moved = NEW_ARRAY(a, BurstTileRanges, in->ranks);
    for (int t = 0; t < TENSOR_COUNT; t++)
        m.mark[t] = NEW_ARRAY(a, BurstTileRanges, in->ranks * m.chunks);
    for (int at = trace->n - 1; at >= 0; at--) {
        for (int side = 0; side < 2 && computes(&trace->at[at]); side++)
            mark_computed(&m, at, side, side ? T_KV : T_Q);
        if (moves(&trace->at[at], false))
            carry(&m, at, true);
    }
    for (int at = 0; at < trace->n; at++) {
        for (int side = 0; side < 2 && computes(&trace->at[at]); side++)
            mark_computed(&m, at, side, result_tensor(in->schedule->backward, side));
        if (moves(&trace->at[at], true))
            carry(&m, at, false);
    }
    return m.live;
}
