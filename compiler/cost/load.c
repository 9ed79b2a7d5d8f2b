/* cost/load.c: chooses the simulated ranks, and finds how long each computes and how many bytes it receives.
 *
 * Groups of up to EXACT_RANKS are simulated whole. In larger ones whole nodes are simulated, evenly spaced
 * from the first to the last, so many that the simulation has about CELLS operations. Each simulated rank
 * has its own loads; its simulated neighbours stand for its real ones. */
#include "cost/cost.h"

#include "base/parallel.h"
#include "burst_int.h"
#include "ir/kernels.h"

#include <math.h>
#include <string.h>

enum { CELLS = 40000 };

/* Bytes of so many tokens of an exchange. */
static double exchange_bytes(const Model *m, Heads h, TensorId t, bool backward, const Target *target,
                             double tokens)
{
    /* complete, with lse */
    const double output = (double)h.heads * m->value_dim * target->activation_bytes + 4.0 * h.heads;
    return tokens *
           (t == T_O ? output : (double)travel_bytes(m, target, t, backward, false, h.heads, h.kv_heads));
}

double cost_rate_share(const Cluster *c, const NodeGroup *g)
{
    return c->target->shares_cores && c->host_cores > 0 && g->gpus > c->host_cores
               ? (double)c->host_cores / g->gpus
               : 1;
}

/* ---- the simulated ranks ---- */

static int gcd(int x, int y)
{
    return y ? gcd(y, x % y) : x;
}

/* The simulated ranks as coordinates: the outermost have fewer values, evenly spaced. */
typedef struct Grid { int size[MAX_COORDS], stride[MAX_COORDS], ranks; } Grid;

/* Values of a coordinate that are taken together, so that nodes stay whole (unless one node holds all). */
static int unit_of(const Draft *d, const Choice *c, int coord)
{
    int gpus = d->program->cluster.groups[0].gpus, node = c->ranks * choice_tensor(c) > gpus ? gpus : 1;
    return node / gcd(node, c->placed && c->size[coord] > 1 ? c->place[coord] : c->stride[coord]);
}

static void set_strides(const Choice *c, Grid *g)
{
    g->ranks = 1;
    for (int i = 0; i < c->coords; i++)
        g->ranks *= g->size[i];
    int left = g->ranks;
    for (int i = coord_inside(c, -1); i >= 0; i = coord_inside(c, i))
        g->stride[i] = left /= g->size[i];
}

static Grid whole_grid(const Choice *c)
{
    Grid g;
    memcpy(g.size, c->size, sizeof g.size);
    set_strides(c, &g);
    return g;
}

/* A grid with about CELLS operations, and at least two units of a coordinate. */
static Grid part_of_grid(const Draft *d)
{
    const Choice *c = d->attention.at[0].choice;
    int ops = attentions_operations(&d->attention), wanted = 0;
    Grid g = whole_grid(c);
    for (int i = coord_inside(c, -1); i >= 0 && wanted < 2; i = coord_inside(c, i)) {
        int unit = unit_of(d, c, i), units = c->size[i] / unit;
        if (units < 2)
            continue;
        wanted = CELLS / (ops * (g.ranks / g.size[i] * unit) + 1);
        g.size[i] = (int)burst_min(burst_max(wanted, 2), units) * unit;
        set_strides(c, &g);
    }
    return g;
}

int cost_simulated_ranks(const Draft *d)
{
    int ranks = d->choice.ranks;
    const bool one_pair = choice_rows(&d->choice, false) == 1 && choice_rows(&d->choice, true) == 1;
    if (ranks <= EXACT_RANKS || one_pair || !layers_share_sizes(&d->choice))
        /* an all-to-all alone is cheap for any number of ranks, and parts of different grids do not match */
        return ranks;
    return part_of_grid(d).ranks;
}

static int real_rank(const Draft *d, const Choice *c, const Grid *g, int simulated)
{
    int rank = 0;
    for (int i = 0; i < c->coords; i++) {
        int x = simulated / g->stride[i] % g->size[i], unit = unit_of(d, c, i), units = g->size[i] / unit,
            blocks = c->size[i] / unit;
        if (g->size[i] < c->size[i])
            x = (int)((int64_t)(x / unit) * (blocks - 1) / (units - 1)) * unit + x % unit;
        rank += x * c->stride[i];
    }
    return rank;
}

static void choose_ranks(Arena *a, const Draft *d, AttentionInput *in)
{
    const Choice *c = in->schedule->choice;
    Grid g = in->ranks == c->ranks ? whole_grid(c) : part_of_grid(d);
    int *rank = NEW_ARRAY(a, int, in->ranks);
    for (int i = 0; i < in->ranks; i++)
        rank[i] = real_rank(d, c, &g, i);
    in->rank = rank;
    memcpy(in->size, g.size, sizeof in->size);
    memcpy(in->stride, g.stride, sizeof in->stride);
}

/* The group with the slowest device of a mixed cluster: data-parallel groups run alike, and it decides. */
static int slowest_group(const Draft *d)
{
    const Cluster *c = &d->program->cluster;
    const Choice *choice = &d->choice;
    int slowest = 0;
    double least = INFINITY;
    for (int g = 0; g < c->world / choice->ranks / choice_tensor(choice); g++)
        for (int r = 0; r < choice->ranks; r++) {
            const double rate = cluster_group_of(c, choice_rank(choice, g, r))->device->attention_forward;
            slowest = rate < least ? g : slowest;
            least = fmin(least, rate);
        }
    return slowest;
}

/* Number of groups in the same nodes, which share NICs and uplinks. Consecutive groups are seldom in one
 * node and are not distinguished. Tensor ranks, which have a chunk together, count too. */
static int groups_alike(const Draft *d)
{
    const Cluster *c = &d->program->cluster;
    const Choice *choice = &d->choice;
    int alike = 0;
    for (int g = 0; choice->placed && g < choice->data; g++)
        alike += cluster_node_of(c, choice_rank(choice, g, 0)) ==
                 cluster_node_of(c, choice_rank(choice, 0, 0));
    if (choice->tensor && !alike)
        return choice->tensor;
    return choice->tensor ? choice->tensor * alike : alike;
}

/* ---- loads ---- */

/* What a simulated rank computes with, for all pairs of chunks. */
typedef struct Computer {
    const Device *device;
    double rate_share, columns; /* share of the device's rates; columns of a head */
    Share share;                /* of the heads */
} Computer;

/* All pairs of a rank, whose rows are begun once. own: pairs with its own keys; rest: tiles of queries that
 * also see others' keys, which have at most so many rows. */
typedef struct AtOnce {
    AttentionWork all;
    double own, rows;
    BurstTileRanges rest;
} AtOnce;

/* The last pair of chunks of queries that ranks share. */
typedef struct Shared {
    int key; /* -1: none yet */
    PairWork work;
} Shared;

typedef struct Loader {
    Arena *arena;
    const Draft *draft;
    AttentionInput *in;
    PairCounts *counts;
    bool backward;
    int shares;   /* ranks that share the heads; 1: none */
    Shared *shared; /* [chunks] by the first rank's chunk of queries */
    const int64_t *shared_tokens; /* [ranks] */
    int sides;    /* sides whose chunks travel */
    double *pairs;
    double tile_sides;        /* as for attention_work_of */
    double slowdown; /* attention_slowdown */
    double predicate; /* attention_predicate */
    AtOnce *at_once; /* [ranks] forward in two launches; NULL: pair by pair */
    int *launches; /* [ranks][chunks] that had the chunk's queries; NULL: not counted */
    RankLaunch *launch; /* [ranks] with launches: where forward has some for several chunks */
    const Computer *computer; /* [ranks] simulated */
} Loader;

/* Seconds of work in a launch for several chunks; a launch takes at least a shortest kernel's time. */
static double joined_seconds(const Loader *l, int rank, AttentionWork w)
{
    const Computer *with = &l->computer[rank];
    const double heads = with->share.heads,
                 rate = attention_rate(with->device, l->backward, l->draft->program->model.head_dim, w) *
                        with->rate_share / l->slowdown,
                 flops = (l->backward ? 10 : 4) * w.pairs * with->columns * heads;
    l->in->tile_flops[rank] += flops;
    return w.pairs > 0 && heads > 0 ? flops / rate : 0;
}

static double at_least_a_kernel(const Loader *l, int rank, double seconds)
{
    return seconds > 0 ? fmax(seconds, l->computer[rank].device->target->least_kernel) : 0;
}

static double compute_seconds(const Loader *l, int rank, AttentionWork w)
{
    return at_least_a_kernel(l, rank, joined_seconds(l, rank, w));
}

/* ---- a rank's part of a chunk: all of its heads, or its share of the heads of all sharing ranks' chunks
 * ---- */

/* Index among the ranks that share the heads. */
static int place_of(const Loader *l, int rank)
{
    return l->shares == 1
               ? 0
               : rel_coord(l->in->schedule->choice, rank, l->in->schedule->choice->schedule->exchanged);
}

/* chunk: with its piece, if chunks of t have several. */
static int64_t tokens_of(const Loader *l, TensorId t, int chunk)
{
    const Choice *c = l->in->schedule->choice;
    const int pieces = tensor_pieces(c, t), piece = chunk_piece(c, chunk);
    if (pieces > 1) {
        const int64_t n = l->draft->partition->of[chunk % c->ranks].tokens;
        return pos_cut(n, piece + 1, pieces) - pos_cut(n, piece, pieces);
    }
    return l->shares == 1 ? l->draft->partition->of[chunk].tokens : l->shared_tokens[chunk];
}

/* [ranks] tokens of all ranks that share the rank's heads. */
static const int64_t *tokens_of_sharing(const Loader *l)
{
    const Choice *c = l->in->schedule->choice;
    int64_t *tokens = NEW_ARRAY(l->arena, int64_t, c->ranks);
    for (int r = 0; r < c->ranks; r++) {
        const int first = choice_member(c, r, 0);
        tokens[r] = tokens[first];
        for (int i = 0; i < l->shares && r == first; i++)
            tokens[r] += l->draft->partition->of[choice_member(c, r, i)].tokens;
    }
    return tokens;
}

static double head_share(const Loader *l, TensorId t, int place)
{
    const Heads all = l->draft->shape.chunk;
    const Share share = share_of(all, l->shares, place);
    return t == T_Q || t == T_O || t == T_DQ ? (double)share.heads / all.heads
                                             : (double)share.kv_heads / all.kv_heads;
}

/* Work per token of another rank's chunk: keys and values are rebuilt from the received latents, in backward
 * once more, and gradients of latents and of their weights are computed. Intermediate values are written and
 * read. */
static Work latents_work(const Loader *l)
{
    const Model *m = &l->draft->program->model;
    const Target *t = l->draft->program->cluster.target;
    const double heads = l->draft->shape.chunk.kv_heads, own = heads * (m->head_dim - m->shared),
                 keys = heads * m->head_dim, values = heads * m->value_dim, act = t->activation_bytes;
    const double made = t->device_memory ? own + keys : keys, sums = 4 * (keys + values);
    Work w = {.flops = 2 * m->latent * (own + values), .norms = act * (made + m->shared)};
    if (l->backward) {
        w.flops *= 3;
        w.bytes = sums + (m->latent + m->shared) * (act + 8); /* cleared; added to fp32 */
        w.norms += t->device_memory ? sums + act * (2 * keys + values + own) : 0;
    }
    return w;
}

static double latents_seconds(const Loader *l, int rank, int64_t tokens)
{
    const RankKind kind = rank_kind_of(&l->draft->program->cluster, links_rank(l->in, rank), (double)tokens);
    return work_seconds(kind, latents_work(l));
}

/* Of all pairs of the sharing ranks' chunks. */
static PairWork sum_of_pairs(const Loader *l, int q, int k)
{
    const Choice *c = l->in->schedule->choice;
    PairWork sum = {0};
    for (int i = 0; i < l->shares; i++)
        for (int j = 0, row = choice_member(c, q, i); j < l->shares; j++) {
            const PairWork w = pair_work(l->counts, row, choice_member(c, k, j));
            sum.cover = w.cover == COVER_EMPTY ? sum.cover : COVER_PARTIAL;
            sum.pairs += w.pairs;
            sum.tiles_full += w.tiles_full;
            sum.tiles_partial += w.tiles_partial;
        }
    return sum;
}

/* Ranks that share heads have the same pairs of chunks. */
static PairWork work_of(Loader *l, int q, int k)
{
    const Choice *c = l->in->schedule->choice;
    if (l->shares == 1)
        return pair_work(l->counts, q, k);
    if (l->shares == c->ranks)
        return pair_whole(l->counts);
    const int row = choice_member(c, q, 0), key = choice_member(c, k, 0);
    Shared *x = &l->shared[row];
    if (x->key != key)
        *x = (Shared){key, sum_of_pairs(l, row, key)};
    return x->work;
}

/* ---- launches ---- */

/* Begins and ends of rows of a launch beside its products: seconds to read and write their output in fp32,
 * which the first and the last launch do for all rows. Measured with the sm_90a form:
 * benchmarks/log/2026-11-28-packed-sequences.md. */
static double passed_output(const Loader *l, int rank, double rows)
{
    static const double beside = 0.75; /* share of the memory's rate */
    const Computer *with = &l->computer[rank];
    const double hbm = with->device->hbm * with->rate_share * beside;
    return hbm > 0 ? 2 * sizeof(float) * rows * with->share.heads * l->draft->program->model.value_dim / hbm
                   : 0;
}

/* Whether the instance before is in the same launch: pieces of a chunk that no transfer separates. */
static bool continues_launch(const Loader *l, const Instance *i)
{
    const Choice *c = l->in->schedule->choice;
    return i > l->in->schedule->trace.at && i[-1].node->kind == N_COMPUTE && i[-1].chunk[0] == i->chunk[0] &&
           i[-1].chunk[1] % c->ranks == i->chunk[1] % c->ranks;
}

/* Launches for several chunks have rows of all of them, at most all rows. */
static double launch_seconds(Loader *l, const Instance *i, int rank, double rows)
{
    const Schedule *s = l->in->schedule;
    const Choice *c = s->choice;
    int *before = &l->launches[(size_t)rank * (size_t)c->ranks + (size_t)i->chunk[0]];
    const double all = (double)tokens_of(l, T_Q, rel_add(c, l->in->rank[rank], i->chunk[0]));
    const bool in_group = s->in_groups && !chunk_is_own(c, i->chunk[1]);
    if (in_group && !schedule_begins_launch(s, (int)(i - s->trace.at), &l->launch[rank]))
        return 0;
    if (*before && !in_group && continues_launch(l, i))
        return 0;
    return ++*before == 1 ? 0 : passed_output(l, rank, in_group || *before == 2 ? all : rows);
}

/* Adds the pair to the rank's work. */
static double add_at_once(const Loader *l, int rank, const Instance *i, AttentionWork pair)
{
    const Choice *c = l->in->schedule->choice;
    const int me = l->in->rank[rank], q = rel_add(c, me, i->chunk[0]), k = rel_add(c, me, i->chunk[1]);
    AtOnce *x = &l->at_once[rank];
    x->all.pairs += pair.pairs;
    x->all.partial += pair.partial;
    x->all.rows = fmin((double)tokens_of(l, T_Q, q), x->all.rows + pair.rows);
    if (chunk_is_own(c, i->chunk[1])) {
        x->own += pair.pairs;
    } else {
        x->rows += pair.rows;
        x->rest = burst_join(x->rest,
                             pair_tiles_of(l->counts, q, k, 1 << BURST_OF_QUERIES).side[BURST_OF_QUERIES]);
    }
    return pair.pairs;
}

/* Seconds of a pair that an earlier pair's launch computes: it is live all the same. */
static const double noted = 1e-12;

/* Sets the seconds of the rank's two launches: rows that see its own keys alone, and the others, with the
 * first pair of others' keys. */
static void share_at_once(Loader *l)
{
    const Schedule *s = l->in->schedule;
    for (int r = 0; r < l->in->ranks; r++) {
        const AtOnce *x = &l->at_once[r];
        const double tokens = (double)tokens_of(l, T_Q, l->in->rank[r]),
                     rest = fmin(x->rows, (double)burst_ranges_tokens(x->rest, (int64_t)tokens)) / tokens,
                     all = compute_seconds(l, r, x->all),
                     home = x->own > 0 ? all * x->own * (1 - rest) / x->all.pairs : 0;
        double left = all - home;
        for (int at = 0; at < s->trace.n; at++) {
            double *seconds = &l->in->seconds[(size_t)at * (size_t)l->in->ranks + (size_t)r];
            if (*seconds <= 0 || s->trace.at[at].node->kind != N_COMPUTE)
                continue;
            const bool own = chunk_is_own(s->choice, s->trace.at[at].chunk[1]);
            *seconds = fmax(noted, own ? *seconds * home / x->own : left);
            left = own ? left : 0;
        }
    }
}

/* Sets the seconds of each launch for several chunks with its first pair. */
static void join_launches(Loader *l)
{
    const Schedule *s = l->in->schedule;
    for (int r = 0; r < l->in->ranks; r++) {
        RankLaunch launch = NO_LAUNCH;
        double none = 0, *first = &none;
        for (int at = 0; at < s->trace.n; at++) {
            double *seconds = &l->in->seconds[(size_t)at * (size_t)l->in->ranks + (size_t)r];
            const Instance *i = &s->trace.at[at];
            if (i->node->kind != N_COMPUTE || *seconds <= 0 || chunk_is_own(s->choice, i->chunk[1]))
                continue;
            if (schedule_begins_launch(s, at, &launch)) {
                *first = at_least_a_kernel(l, r, *first);
                first = seconds;
                continue;
            }
            *first += *seconds;
            *seconds = noted;
        }
        *first = at_least_a_kernel(l, r, *first);
    }
}

/* Rows with any live tile: at most those of the runs that have some. Only for few ranks, whose runs are found
 * anyway where chunks travel in ranges. */
static void bound_rows(const Loader *l, int q, int k, AttentionWork *w)
{
    enum { FEW = 8 };
    const int side = l->backward ? BURST_OF_KEYS : BURST_OF_QUERIES;
    const int64_t tokens = tokens_of(l, l->backward ? T_KV : T_Q, l->backward ? k : q);
    if (l->shares == 1 && l->in->schedule->choice->ranks <= FEW)
        w->rows = fmin(w->rows,
                       (double)burst_ranges_tokens(pair_tiles_of(l->counts, q, k, 1 << side).side[side],
                                                   tokens));
}

static double pair_seconds(const Loader *l, int rank, const Instance *i, AttentionWork w)
{
    const Schedule *s = l->in->schedule;
    if (l->at_once)
        return add_at_once(l, rank, i, w);
    return s->run && !chunk_is_own(s->choice, i->chunk[1]) ? joined_seconds(l, rank, w)
                                                           : compute_seconds(l, rank, w);
}

/* tiles NULL: chunks travel whole. */
static void load_compute(Loader *l, const Instance *i, double *seconds, BurstPairTiles *of_pair)
{
    const Choice *c = l->in->schedule->choice;
    const Heads all = l->draft->shape.chunk;
    for (int r = 0; r < l->in->ranks; r++) {
        int me = l->in->rank[r], q = rel_add(c, me, i->chunk[0]), k = rel_add(c, me, i->chunk[1]);
        const PairWork w = work_of(l, q, k);
        AttentionWork tiles = attention_work_of(l->tile_sides, l->backward, w, tokens_of(l, T_Q, q),
                                                tokens_of(l, T_KV, k));
        tiles.partial *= l->predicate;
        seconds[r] = 0;
        if (w.cover != COVER_EMPTY)
            bound_rows(l, q, k, &tiles);
        if (w.cover != COVER_EMPTY)
            seconds[r] = pair_seconds(l, r, i, tiles);
        if (l->launches && seconds[r] > 0)
            seconds[r] += launch_seconds(l, i, r, tiles.rows);
        if (c->latents && seconds[r] > 0 && k != me)
            seconds[r] += latents_seconds(l, r, tokens_of(l, T_KV, k));
        if (of_pair && seconds[r] > 0)
            of_pair[r] = pair_tiles_of(l->counts, q, k, l->sides);
        if (l->pairs && w.cover != COVER_EMPTY)
            l->pairs[r] += (double)w.pairs * l->computer[r].share.heads / all.heads;
    }
}

/* A rank sends the other ranks' heads of its own tokens, or other ranks' tokens of its own heads; what it
 * sends of one kind, it receives of the other. */
static void load_exchange(Loader *l, const Instance *i, double *sent, double *received)
{
    const Model *m = &l->draft->program->model;
    const Heads heads = l->draft->shape.chunk;
    const PosSet *of = l->draft->partition->of;
    const Target *target = l->draft->program->cluster.target;
    TensorId t = i->node->ref[0].tensor;
    double shares = 0;
    for (int place = 0; place < l->shares; place++)
        shares += head_share(l, t, place);
    for (int r = 0; r < l->in->ranks; r++) {
        const int rank = l->in->rank[r];
        double mine = head_share(l, t, place_of(l, rank)), tokens = (double)of[rank].tokens,
               all = (double)tokens_of(l, t, rank);
        bool to_heads = i->node->stmt->tokens_to_heads;
        double by_tokens = exchange_bytes(m, heads, t, l->backward, target, tokens * (shares - mine));
        double by_heads = exchange_bytes(m, heads, t, l->backward, target, (all - tokens) * mine);
        sent[r] = to_heads ? by_tokens : by_heads;
        received[r] = to_heads ? by_heads : by_tokens;
    }
}

/* whole: NULL, or also receives the bytes of whole chunks. */
static void load_arrivals(Loader *l, const Instance *i, const BurstTileRanges *live, double *bytes,
                          double *whole)
{
    const Choice *c = l->in->schedule->choice;
    const Model *m = &l->draft->program->model;
    const TensorId t = i->node->ref[0].tensor;
    int there = rel_sub(c, i->chunk[0], i->hop);
    for (int r = 0; r < l->in->ranks; r++) {
        if (!burst_has_tiles(live[r]))
            continue;
        const Share share = l->computer[r].share;
        const int64_t token = travel_bytes(m, l->draft->program->cluster.target, t, l->backward, c->latents,
                                           share.heads, share.kv_heads);
        const int64_t tokens = tokens_of(l, t, rel_add(c, l->in->rank[r], there));
        bytes[r] = (double)(token * burst_ranges_tokens(live[r], tokens));
        if (whole)
            whole[r] = (double)(token * tokens);
    }
}

static void load_transfers(Loader *l)
{
    const Trace *trace = &l->in->schedule->trace;
    size_t ranks = (size_t)l->in->ranks;
    Arena *a = arena_new();
    const BurstTileRanges *live = cost_live(a, l->in);
    for (int at = 0; at < trace->n; at++) {
        const Instance *i = &trace->at[at];
        size_t row = (size_t)at * ranks;
        if (i->node->kind == N_EXCHANGE)
            load_exchange(l, i, &l->in->bytes[row], &l->in->received[row]);
        else if (i->node->kind != N_COMPUTE)
            load_arrivals(l, i, &live[row], &l->in->bytes[row], l->in->whole ? &l->in->whole[row] : NULL);
    }
    arena_free(a);
}

static AttentionInput begin_load(const Draft *d, int ranks, int mask, bool backward)
{
    return (AttentionInput){.cluster = &d->program->cluster,
                            .schedule = attentions_schedule(&d->attention, mask, backward),
                            .group = slowest_group(d),
                            .alike = groups_alike(d),
                            .ranks = ranks};
}

static const Computer *computers(const Loader *l)
{
    const Program *p = l->draft->program;
    Computer *all = NEW_ARRAY(l->arena, Computer, l->in->ranks);
    for (int r = 0; r < l->in->ranks; r++) {
        const NodeGroup *g = links_group(l->in, r);
        all[r] = (Computer){.device = g->device, .rate_share = cost_rate_share(&p->cluster, g)};
        all[r].share = share_of(l->draft->shape.chunk, l->shares, place_of(l, l->in->rank[r]));
        const bool again = r > 0 && all[r - 1].device == g->device;
        all[r].columns = again ? all[r - 1].columns : attention_columns(p, g->device, l->backward);
    }
    return all;
}

static Loader load_computing(Arena *a, const Draft *d, AttentionInput *in, int mask, double *pairs)
{
    const Schedule *s = in->schedule;
    Loader l = {.arena = a,
                .draft = d,
                .in = in,
                .counts = d->counts[mask],
                .backward = s->backward,
                .shares = choice_shares(s->choice, s->backward),
                .sides = schedule_sides(s),
                .pairs = pairs,
                .tile_sides = attention_tile_sides(d->program, s->backward),
                .predicate = attention_predicate(d->program, mask, d->program->model.head_dim),
                .slowdown = attention_slowdown(d->program, s->backward, mask, pair_whole(d->counts[mask]))};
    l.computer = computers(&l);
    if (l.shares > 1)
        l.shared_tokens = tokens_of_sharing(&l);
    if (l.shares > 1 && l.shares < s->choice->ranks)
        l.shared = NEW_ARRAY(a, Shared, choice_chunks(s->choice));
    for (int i = 0; i < choice_chunks(s->choice) && l.shared; i++)
        l.shared[i].key = -1;
    in->seconds = NEW_ARRAY(a, double, (size_t)s->trace.n * (size_t)in->ranks);
    in->tile_flops = NEW_ARRAY(a, double, in->ranks);
    if (s->at_once && !s->backward)
        l.at_once = NEW_ARRAY(a, AtOnce, in->ranks);
    if (!s->at_once && !s->backward && in->bytes && d->program->target->device_memory &&
        kernels_of(d->program).form == 90)
        l.launches = NEW_ARRAY(a, int, (size_t)in->ranks *(size_t)s->choice->ranks);
    l.launch = NEW_ARRAY(a, RankLaunch, in->ranks);
    for (int r = 0; r < in->ranks; r++)
        l.launch[r] = NO_LAUNCH;
    for (int at = 0; at < s->trace.n; at++) {
        const size_t row = (size_t)at * (size_t)in->ranks;
        if (s->trace.at[at].node->kind == N_COMPUTE)
            load_compute(&l, &s->trace.at[at], &in->seconds[row], in->tiles ? &in->tiles[row] : NULL);
    }
    if (l.at_once)
        share_at_once(&l);
    else if (s->run)
        join_launches(&l);
    return l;
}

/* ---- pieces of query heads ---- */

static bool in_pieces(const Instance *i)
{
    const TensorId t = i->node->ref[0].tensor;
    return i->node->kind == N_COMPUTE || t == T_Q || t == T_O || t == T_DQ;
}

/* The trace with pieces: keys first, then for each piece its queries, their pairs and their results, then
 * gradients of keys. of[i]: the instance that i is a piece of. */
static const Schedule *schedule_in_pieces(Arena *a, const Schedule *s, int pieces, int *of)
{
    Instance *at = NEW_ARRAY(a, Instance, (size_t)s->trace.n * (size_t)pieces);
    Schedule *made = NEW(a, Schedule);
    int n = 0;
    for (int piece = 0; piece < pieces; piece++)
        for (int i = 0; i < s->trace.n; i++) {
            const Instance *x = &s->trace.at[i];
            const bool first = x->node->kind == N_EXCHANGE && x->node->stmt->tokens_to_heads;
            if (!in_pieces(x) && piece != (first ? 0 : pieces - 1))
                continue;
            of[n] = i;
            at[n++] = *x;
        }
    *made = *s;
    made->trace = (Trace){n, at};
    return made;
}

const Schedule *cost_schedule(Arena *a, const Draft *d, int mask, bool backward)
{
    const Schedule *s = attentions_schedule(&d->attention, mask, backward);
    const int pieces = d->choice.head_pieces;
    if (pieces < 2)
        return s;
    return schedule_in_pieces(a, s, pieces, NEW_ARRAY(a, int, (size_t)s->trace.n *(size_t)pieces));
}

static double *cells_in_pieces(Arena *a, const AttentionInput *in, const double *cells, int n, const int *of,
                               int pieces)
{
    double *made = NEW_ARRAY(a, double, (size_t)n *(size_t)in->ranks);
    for (int i = 0; i < n; i++)
        for (int r = 0; r < in->ranks; r++)
            made[(size_t)i * (size_t)in->ranks + (size_t)r] =
                cells[(size_t)of[i] * (size_t)in->ranks + (size_t)r] /
                (in_pieces(&in->schedule->trace.at[of[i]]) ? pieces : 1);
    return made;
}

static void divide_heads(Arena *a, AttentionInput *in, int pieces)
{
    int *of = NEW_ARRAY(a, int, (size_t)in->schedule->trace.n *(size_t)pieces);
    const Schedule *s = schedule_in_pieces(a, in->schedule, pieces, of);
    in->seconds = cells_in_pieces(a, in, in->seconds, s->trace.n, of, pieces);
    in->bytes = cells_in_pieces(a, in, in->bytes, s->trace.n, of, pieces);
    in->received = cells_in_pieces(a, in, in->received, s->trace.n, of, pieces);
    in->schedule = s;
    in->pieces = true;
}

/* Loads all but transfers, as pairs are counted by one thread. */
static Loader start_load(Arena *a, const Draft *d, AttentionInput *in, int mask, double *pairs)
{
    choose_ranks(a, d, in);
    size_t cells = (size_t)in->schedule->trace.n * (size_t)in->ranks;
    in->bytes = NEW_ARRAY(a, double, cells);
    in->received = NEW_ARRAY(a, double, cells);
    in->tiles = d->choice.ranges ? NEW_ARRAY(a, BurstPairTiles, cells) : NULL;
    in->whole = d->choice.ranges ? NEW_ARRAY(a, double, cells) : NULL;
    return load_computing(a, d, in, mask, pairs);
}

static void finish_load(Loader *l)
{
    load_transfers(l);
    if (l->draft->choice.head_pieces > 1)
        divide_heads(l->arena, l->in, l->draft->choice.head_pieces);
}

AttentionInput cost_load(Arena *a, const Draft *d, int ranks, int mask, bool backward, double *pairs)
{
    AttentionInput in = begin_load(d, ranks, mask, backward);
    Loader l = start_load(a, d, &in, mask, pairs);
    finish_load(&l);
    return in;
}

static void finish_own(void *loaders, int i)
{
    Loader *l = (Loader *)loaders + i;
    l->arena = arena_new();
    finish_load(l);
}

void cost_load_both(Arena *a, const Draft *d, int ranks, int mask, double *pairs, AttentionInput in[2])
{
    Loader l[2];
    for (int backward = 0; backward < 2; backward++) {
        in[backward] = begin_load(d, ranks, mask, backward);
        l[backward] = start_load(a, d, &in[backward], mask, backward ? NULL : pairs);
    }
    parallel(2, finish_own, l);
    for (int backward = 0; backward < 2; backward++)
        arena_join(a, l[backward].arena);
}

AttentionInput cost_computing(Arena *a, const Draft *d, int ranks, int mask, bool backward, double *pairs)
{
    AttentionInput in = begin_load(d, ranks, mask, backward);
    int *rank = NEW_ARRAY(a, int, ranks);
    for (int i = 0; i < ranks; i++)
        rank[i] = ranks > 1 ? (int)((int64_t)i * (d->choice.ranks - 1) / (ranks - 1)) : 0;
    in.rank = rank;
    load_computing(a, d, &in, mask, pairs);
    return in;
}

/* ---- all masks ---- */

AttentionLoads cost_loads(Arena *a, const Draft *d)
{
    const int masks = d->program->mask_count, ranks = cost_simulated_ranks(d);
    AttentionLoads l = {.of = arena_alloc(a, sizeof *l.of * (size_t)masks),
                        .pairs = NEW_ARRAY(a, double *, masks)};
    Draft with = *d;
    with.choice.ranges = true;
    for (int m = 0; m < masks; m++) {
        l.pairs[m] = NEW_ARRAY(a, double, ranks);
        cost_load_both(a, &with, ranks, m, l.pairs[m], l.of[m]);
    }
    return l;
}

void loads_bind(Arena *a, const Draft *d, AttentionLoads *l)
{
    for (int i = 0; i < 2 * d->program->mask_count; i++)
        l->of[i / 2][i % 2].schedule = cost_schedule(a, d, i / 2, i % 2);
}

void loads_make_whole(const Draft *d, AttentionLoads *l)
{
    for (int i = 0; i < 2 * d->program->mask_count; i++) {
        AttentionInput *in = &l->of[i / 2][i % 2];
        in->bytes = in->whole;
        in->whole = NULL;
        in->tiles = NULL;
    }
}

double loads_saved(const Draft *d, const AttentionLoads *l)
{
    double whole = 0, bytes = 0;
    for (int i = 0; i < 2 * d->program->mask_count; i++) {
        const AttentionInput *in = &l->of[i / 2][i % 2];
        for (int j = 0; j < in->schedule->trace.n * in->ranks; j++) {
            bytes += in->bytes[j];
            whole += in->whole[j];
        }
    }
    return whole > 0 ? 1 - bytes / whole : 0;
}
