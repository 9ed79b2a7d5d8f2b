/* mask/keys.c: chooses the key tiles of attention for a mask (BURST_KEYS_* in
 * runtime/include/burst_kernels.h).
 *
 * Long tiles have less overhead per tile. Short ones skip more masked pairs, and need no predicate where a
 * long tile is partial but its halves are full and empty. So tiles of the whole sequence are counted at both
 * lengths, and both times are estimated. */
#include "mask/internal.h"

#include "burst_kernels.h"
#include "ir/kernels.h"

#include <math.h>

unsigned mask_tables(const Expr *e)
{
    if (!e || e->op == E_SELECTED)
        return 0;
    const unsigned own = e->op == E_TABLE_Q || e->op == E_TABLE_K ? 1u << e->value : 0;
    return own | mask_tables(e->a) | mask_tables(e->b);
}

int64_t mask_divisor(int64_t a, int64_t b)
{
    for (a = burst_abs(a), b = burst_abs(b); b;) {
        const int64_t rest = a % b;
        a = b, b = rest;
    }
    return a;
}

/* ---- blocks or usual tiles, by counted tiles ---- */
enum { SIDES = 2 }; /* tiles per side: one part, two parts */
typedef struct TileCount { double live, partial; } TileCount;
/* [queries in two parts][keys in two parts] */
typedef struct TileCounts { TileCount of[SIDES][SIDES]; } TileCounts;

/* The fraction of a search's counting budget (mask_effort.c) for one mask. */
static const double COUNT_PART = 1.0 / 32;

static TileCounts count_tiles(const Program *p, int mask)
{
    Arena *scratch = arena_new();
    const MaskMap *m = mask_map(scratch, p, mask, BURST_90_PART, BURST_90_PART);
    MaskEffort effort = mask_effort(p->sequence, COUNT_PART);
    Piece piece;
    const PosSet all = pos_run(&piece, 0, p->sequence);
    TileCounts t;
    for (int q = 0; q < SIDES; q++)
        for (int k = 0; k < SIDES; k++) {
            const MaskCount n = mask_counter_count(mask_counter_new(scratch, m->sampled, &effort),
                                                   mask_range_make(&all, BURST_90_PART << q, 0, all.tokens),
                                                   mask_range_make(&all, BURST_90_PART << k, 0, all.tokens),
                                                   1.0 / (SIDES * SIDES));
            t.of[q][k] = (TileCount){(double)(n.full + n.partial), (double)n.partial};
        }
    arena_free(scratch);
    return t;
}

/* Tile times relative to a full usual tile (forward 128 x 128, backward 64 queries x 128 keys), measured as
 * docs/cost.md says. partial: cost of the predicate. For BURST_KEYS_BLOCKS: a tile that both warpgroups
 * compute, a tile that one of them computes, and the predicate's cost in 64 x 64. */
typedef struct TileTimes { double partial, both, one, part; } TileTimes;
static const TileTimes tile_times[2] = {{0.6, 0.62, 0.4, 0.15}, {0.4, 1.04, 1.15, 0.2}};

static bool takes_blocks(const Program *p, int mask, bool backward)
{
    const TileCounts n = count_tiles(p, mask);
    const TileTimes *t = &tile_times[backward];
    const TileCount usual = n.of[!backward][1], tiles = backward ? n.of[0][1] : n.of[1][0],
                    parts = n.of[0][0];
    const double one = fmin(fmax(2 * tiles.live - parts.live, 0), tiles.live), both = tiles.live - one;
    return both * t->both + one * t->one + parts.partial * t->part < usual.live + usual.partial * t->partial;
}

/* ---- long or usual tiles ---- */
static bool draws(const Expr *e)
{
    return e && (e->op == E_HASH || draws(e->a) || draws(e->b));
}

/* Whether queries keep enough keys on average for long tiles, estimated on a grid of pairs. Never with
 * tables, whose values are unknown here, nor with a hash: most of its tiles are partial, and short tiles are
 * empty more often. */
static bool is_long(const Expr *e, int64_t sequence)
{
    enum { SIDE = 128 };
    int64_t kept = 0;
    if (mask_tables(e) || draws(e))
        return false;
    for (int64_t i = 0; i < SIDE; i++)
        for (int64_t j = 0; j < SIDE; j++)
            kept += expr_eval(e, sequence * (2 * i + 1) / (2 * SIDE),
                              sequence * (SIDE * j + i) / (SIDE * SIDE), NULL, NULL) != 0;
    return (double)kept / (SIDE * SIDE) * (double)sequence >= BURST_LONG_KEYS;
}

/* ---- tiles of a selection: of tiles of queries and blocks of keys, so that no predicate is needed ---- */
static int selection_keys(const Program *p, const Selection *s, bool backward)
{
    const BurstTileSizes t = kernels_of(p).tile;
    const int64_t queries = backward ? t.backward_q : t.forward_q,
                  keys = backward ? t.backward_k : t.forward_k[BURST_KEYS_USUAL];
    return keys && s->queries % queries == 0 && s->block % keys == 0 ? BURST_KEYS_USUAL : BURST_KEYS_BLOCKS;
}

static int find_keys(const Program *p, int mask, bool backward)
{
    if (p->masks[mask].selection)
        return selection_keys(p, &p->selections[p->masks[mask].selection - 1], backward);
    if (takes_blocks(p, mask, backward))
        return BURST_KEYS_BLOCKS;
    return !backward && is_long(p->masks[mask].expr, p->sequence) ? BURST_KEYS_LONG : BURST_KEYS_USUAL;
}

int mask_keys(const Program *p, int mask, bool backward)
{
    int *const known = p->masks[mask].keys;
    if (!known)
        return find_keys(p, mask, backward);
    if (known[backward] < 0)
        known[backward] = find_keys(p, mask, backward);
    return known[backward];
}

/* ---- the time of tiles of blocks ---- */

/* As tile_times, where either warpgroup may be the one that computes. Fitted on one H200 to masks of random
 * blocks: benchmarks/log/2026-11-29-rates-that-last.md. */
static const struct {
    double both, one;
} block_times[2] = {{0.62, 0.4}, {1.04, 0.7}};

static double find_block_time(const Program *p, int mask, bool backward)
{
    if (p->masks[mask].selection || mask_tables(p->masks[mask].expr) || kernels_of(p).form != 90 ||
        mask_keys(p, mask, backward) != BURST_KEYS_BLOCKS)
        return 0;
    const TileCounts n = count_tiles(p, mask);
    /* a tile has one part or two; rough counts of both may disagree */
    const double tiles = (backward ? n.of[0][1] : n.of[1][0]).live,
                 parts = fmin(fmax(n.of[0][0].live, tiles), 2 * tiles), one = 2 * tiles - parts,
                 usual = parts / (backward ? 2 : 4); /* parts of a usual tile */
    return parts > 0 ? ((tiles - one) * block_times[backward].both + one * block_times[backward].one) / usual
                     : 0;
}

double mask_block_time(const Program *p, int mask, bool backward)
{
    double *const known = p->masks[mask].block_time;
    if (!known)
        return find_block_time(p, mask, backward);
    if (known[backward] < 0)
        known[backward] = find_block_time(p, mask, backward);
    return known[backward];
}

/* ---- lists of live tiles of one launch ---- */

static int64_t tiles(int64_t tokens, int tile)
{
    return (tokens + tile - 1) / tile;
}

/* Mirrors burst_lists_ints in templates/kernels/cuda_lists.cuh. */
static int64_t ints(int64_t own, int64_t other, int parts)
{
    return own * (other + 4 * parts + 1) + 4 * parts;
}

/* Key tiles of one launch over so many chunks, or pieces of a chunk; each ends in a tile of its own. */
static int64_t key_tiles(int64_t tokens, int pieces, int chunks, int tile)
{
    return chunks * tiles((tokens + pieces - 1) / pieces, tile);
}

/* The kind of key tiles with the longest lists: blocks, if a mask uses them. */
static int shortest_keys(const Program *p, int form, bool backward)
{
    for (int i = 0; i < p->mask_count && form == 90; i++)
        if (mask_keys(p, i, backward) == BURST_KEYS_BLOCKS)
            return BURST_KEYS_BLOCKS;
    return BURST_KEYS_USUAL;
}

/* The most lists of any selection, for so many query heads. */
static int64_t most_lists(const Program *p, int heads)
{
    const int share = p->model.heads / p->model.kv_heads;
    int64_t most = 1;
    for (int i = 0; i < p->selection_count; i++) {
        const Selection *s = &p->selections[i];
        const int each = s->for_each > 0 ? 1 : share, lists = s->for_each < 0 ? 1 : (heads + each - 1) / each;
        most = lists > most ? lists : most;
    }
    return most;
}

/* Memory of the lists of a launch of several; one has what it needs. */
enum { LISTS_BYTES = 64 << 20 };

/* Ints of the lists of a selection's launch: of all lists, if they fit. Those of backward are in bands, each
 * with an order and counts of its own. */
static int64_t selection_ints(int64_t forward, int64_t backward, int64_t own, int64_t lists)
{
    const int64_t most = LISTS_BYTES / (int64_t)sizeof(int32_t),
                  bands = backward + 6 * own * ((1 << BURST_MOST_BAND_BITS) - 1),
                  one = forward > bands ? forward : bands;
    if (lists * one <= most)
        return lists * one;
    return one > most ? one : most;
}

KernelLists kernels_lists(const Program *p, int64_t queries, int64_t tokens, int pieces, const int at_once[2],
                          bool halves, int heads, bool turns)
{
    const Kernels k = kernels_of(p);
    const BurstTileSizes *t = &k.tile;
    const int keys[2] = {shortest_keys(p, k.form, false), shortest_keys(p, k.form, true)};
    const int64_t parts[2] = {burst_tile_parts(k.form, keys[0], t->forward_q),
                              burst_tile_parts(k.form, keys[1], t->backward_k)};
    const int64_t q[2] = {tiles(queries, t->forward_q), tiles(queries, t->backward_q)};
    const int64_t kv[2] = {key_tiles(tokens, pieces, at_once[0] ? at_once[0] : pieces,
                                     t->forward_k[keys[0]]),
                           key_tiles(tokens, pieces, at_once[1] ? at_once[1] : pieces, t->backward_k)};
    const int64_t forward = ints(q[0], kv[0], halves ? 2 : 1);
    const int64_t backward = ints(kv[1], q[1], 1) + (turns ? (kv[1] + heads) * q[1] : 0);
    const int64_t one = forward > backward ? forward : backward;
    const int64_t lists = k.form == 90 && !turns ? most_lists(p, heads) : 1; /* BURST_LISTS of the kernels */
    const int64_t most = p->selection_count ? selection_ints(forward, backward, kv[1], lists) : one;
    const int64_t sides[2] = {BURST_HULLS * (q[0] * parts[0] + kv[0]),
                              BURST_HULLS * (q[1] + kv[1] * parts[1])};
    return (KernelLists){.ints = most, .one = one, .sides = sides[0] > sides[1] ? sides[0] : sides[1]};
}
