/* cost_load.c: which ranks are simulated, how long each computes and how many bytes come to it.
 *
 * Groups of up to EXACT_RANKS are simulated whole. Of larger ones, whole nodes are, evenly spaced from the first to the
 * last, so many that the simulation has about CELLS operations. Each does all its own steps with its own loads; its
 * neighbours in the simulation stand for those it really has.
 */
#include "cost.h"

#include <math.h>

enum { EXACT_RANKS = 64, CELLS = 40000, TILE = 64 };
/* The least time of a kernel: launch on a device, a function call on cpu. Seconds. */
static const double least_seconds[2] = {5e-6, 1e-7};

double cost_chunk_bytes(const Model *m, TensorId t, bool backward, bool cpu, double tokens)
{
    double e = cpu ? 4 : 2, g = 4; /* gradients travel in fp32 */
    double q = (double)m->heads * m->head_dim, kv = 2.0 * m->kv_heads * m->head_dim;
    switch (t) {
    case T_Q: return tokens * (backward ? 2 * q * e + 8.0 * m->heads : q * e); /* backward: with dO, D and lse */
    case T_KV: return tokens * kv * e;
    case T_O: return tokens * (q * e + 4.0 * m->heads); /* with lse */
    case T_DQ: return tokens * q * g;
    default: return tokens * kv * g;
    }
}

double cost_rate_share(const Cluster *c, int rank)
{
    const NodeGroup *g = cluster_group_of(c, rank);
    return g->device->is_cpu && c->host_cores > 0 && g->gpus > c->host_cores ? (double)c->host_cores / g->gpus : 1;
}

/* ---- the simulated ranks ---- */

static int gcd(int x, int y)
{
    return y ? gcd(y, x % y) : x;
}

/* Ranks that are taken together: whole nodes (unless one holds all), and whole rows of the inner coordinate. */
static int unit_of(const Draft *d)
{
    const Choice *c = d->forward->choice;
    int gpus = d->program->cluster.groups[0].gpus, node = c->ranks > gpus ? gpus : 1;
    int inner = c->coords > 1 ? c->size[1] : 1;
    return node / gcd(node, inner) * inner;
}

static int simulated_units(const Draft *d, int unit)
{
    int ops = d->forward->trace.n > d->backward->trace.n ? d->forward->trace.n : d->backward->trace.n;
    int most = d->forward->choice->ranks / unit, wanted = CELLS / (ops * unit + 1);
    wanted = wanted < 2 ? 2 : wanted;
    return wanted < most ? wanted : most;
}

int cost_simulated_ranks(const Draft *d)
{
    int ranks = d->forward->choice->ranks, unit = unit_of(d);
    if (ranks <= EXACT_RANKS || ranks < 2 * unit || d->forward->trace.n < ranks)
        return ranks; /* a trace shorter than the group (all-to-all) costs little for any number of ranks */
    return simulated_units(d, unit) * unit;
}

static void choose_ranks(Arena *a, const Draft *d, AttentionInput *in)
{
    const Choice *c = d->forward->choice;
    in->size[1] = c->coords > 1 ? c->size[1] : 1;
    in->size[0] = in->ranks / in->size[1];
    int unit = in->ranks == c->ranks ? in->ranks : unit_of(d), units = in->ranks / unit, blocks = c->ranks / unit;
    int *rank = NEW_ARRAY(a, int, in->ranks);
    for (int i = 0; i < in->ranks; i++) {
        int64_t block = units > 1 ? (int64_t)(i / unit) * (blocks - 1) / (units - 1) : 0;
        rank[i] = (int)block * unit + i % unit;
    }
    in->rank = rank;
}

/* Data-parallel groups run alike, side by side; on a mixed cluster the one with the slowest device counts. */
static int slowest_group(const Draft *d)
{
    const Cluster *c = &d->program->cluster;
    int ranks = d->forward->choice->ranks, slowest = 0;
    for (int r = 0; r < c->world / ranks * ranks; r++)
        if (cluster_group_of(c, r)->device->attention_forward <
            cluster_group_of(c, slowest)->device->attention_forward)
            slowest = r;
    return slowest / ranks * ranks;
}

/* ---- heads of a rank under head parallelism ---- */

static bool by_query_heads(TensorId t)
{
    return t == T_Q || t == T_O || t == T_DQ;
}

static double head_share(const Model *m, TensorId t, int ranks, int rank)
{
    Share share = share_of(m, ranks, rank);
    return by_query_heads(t) ? (double)share.heads / m->heads : (double)share.kv_heads / m->kv_heads;
}

/* ---- loads ---- */

typedef struct Loader {
    Arena *arena;
    const Draft *draft;
    AttentionInput *in;
    MaskMap *map;
    bool backward;
    double *pairs;
} Loader;

static const Device *device_of(const Loader *l, int rank)
{
    return cluster_group_of(&l->draft->program->cluster, l->in->first + l->in->rank[rank])->device;
}

/* Kernels compute whole tiles: partial ones cost as much as full ones, up to what the chunks have. */
static double tile_pairs(PairWork w, const PosSet *q, const PosSet *k)
{
    double tiles = (double)(w.tiles_full + w.tiles_partial) * TILE * TILE;
    return fmax((double)w.pairs, fmin(tiles, (double)q->tokens * (double)k->tokens));
}

static double compute_seconds(const Loader *l, int rank, double pairs, double heads)
{
    const Device *d = device_of(l, rank);
    double rate = (l->backward ? d->attention_backward : d->attention_forward) *
                  cost_rate_share(&l->draft->program->cluster, l->in->first + l->in->rank[rank]);
    double flops = (l->backward ? 10 : 4) * pairs * l->draft->program->model.head_dim * heads;
    return pairs > 0 && heads > 0 ? fmax(flops / rate, least_seconds[d->is_cpu]) : 0;
}

static void load_compute(Loader *l, const Instance *i, double *seconds)
{
    const Choice *c = l->draft->forward->choice;
    const Model *m = &l->draft->program->model;
    const PosSet *of = l->draft->partition->of;
    const Piece all = {0, l->draft->partition->sequence, l->draft->partition->sequence, 1};
    const PosSet sequence = {all.run, 1, &all};
    bool whole = i->node->ref[0].whole;
    PairWork w = {0};
    for (int r = 0; r < l->in->ranks; r++) {
        int me = l->in->rank[r];
        const PosSet *q = whole ? &sequence : &of[rel_add(c, me, i->chunk[0])];
        const PosSet *k = whole ? &sequence : &of[rel_add(c, me, i->chunk[1])];
        if (!whole || r == 0)
            w = mask_work(l->map, q, k);
        double heads = whole ? share_of(m, c->ranks, me).heads : m->heads;
        seconds[r] = w.cover == COVER_EMPTY ? 0 : compute_seconds(l, r, tile_pairs(w, q, k), heads);
        if (l->pairs && w.cover != COVER_EMPTY)
            l->pairs[r] += (double)w.pairs * heads / m->heads;
    }
}

static void load_exchange(Loader *l, const Instance *i, double *bytes)
{
    const Choice *c = l->draft->forward->choice;
    const Model *m = &l->draft->program->model;
    const PosSet *of = l->draft->partition->of;
    TensorId t = i->node->ref[0].tensor;
    double shares = 0, sequence = (double)l->draft->partition->sequence;
    for (int r = 0; r < c->ranks; r++)
        shares += head_share(m, t, c->ranks, r);
    for (int r = 0; r < l->in->ranks; r++) {
        double mine = head_share(m, t, c->ranks, l->in->rank[r]), tokens = (double)of[l->in->rank[r]].tokens;
        double sent = i->node->stmt->tokens_to_heads ? tokens * (shares - mine) : (sequence - tokens) * mine;
        bytes[r] = cost_chunk_bytes(m, t, l->backward, device_of(l, r)->is_cpu, sent);
    }
}

static void load_arrivals(Loader *l, const Instance *i, const uint8_t *live, double *bytes)
{
    const Choice *c = l->draft->forward->choice;
    int there = rel_sub(c, i->chunk[0], i->hop);
    for (int r = 0; r < l->in->ranks; r++) {
        double tokens = (double)l->draft->partition->of[rel_add(c, l->in->rank[r], there)].tokens;
        bytes[r] = live[r] ? cost_chunk_bytes(&l->draft->program->model, i->node->ref[0].tensor, l->backward,
                                              device_of(l, r)->is_cpu, tokens) : 0;
    }
}

static void load_transfers(Loader *l)
{
    const Trace *trace = &l->in->schedule->trace;
    size_t ranks = (size_t)l->in->ranks;
    const uint8_t *live = cost_live(l->arena, l->in);
    for (int at = 0; at < trace->n; at++) {
        const Instance *i = &trace->at[at];
        size_t row = (size_t)at * ranks;
        if (i->node->kind == N_EXCHANGE)
            load_exchange(l, i, &l->in->bytes[row]);
        else if (i->node->kind != N_COMPUTE)
            load_arrivals(l, i, &live[row], &l->in->bytes[row]);
    }
}

AttentionInput cost_load(Arena *a, const Draft *d, int ranks, int mask, bool backward, double *pairs)
{
    AttentionInput in = {.cluster = &d->program->cluster, .schedule = backward ? d->backward : d->forward,
                         .first = slowest_group(d), .ranks = ranks};
    choose_ranks(a, d, &in);
    size_t cells = (size_t)in.schedule->trace.n * (size_t)in.ranks;
    in.seconds = NEW_ARRAY(a, double, cells);
    in.bytes = NEW_ARRAY(a, double, cells);
    Loader l = {a, d, &in, d->maps[mask], backward, pairs};
    for (int at = 0; at < in.schedule->trace.n; at++)
        if (in.schedule->trace.at[at].node->kind == N_COMPUTE)
            load_compute(&l, &in.schedule->trace.at[at], &in.seconds[(size_t)at * (size_t)in.ranks]);
    load_transfers(&l);
    return in;
}
