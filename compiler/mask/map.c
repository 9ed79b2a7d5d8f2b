/* mask/map.c: the work of (query chunk, key chunk) pairs under one mask. */
#include "mask/internal.h"

#include <math.h>

static const double CELLS_WORK = 0x1p30; /* operations, for pictures */

/* drawn: with a drawn selection; else with all pairs that may be chosen. */
static MaskMap *make_map(Arena *a, const Program *p, int mask, int tile_q, int tile_k, int batch, bool drawn)
{
    MaskMap *m = NEW(a, MaskMap);
    *m = (MaskMap){
        .tile_q = tile_q, .tile_k = tile_k, .sequence = p->sequence, .covers = {.arena = a}, .trust = 1};
    m->ranges.arena = m->walk.arena = a;
    const Expr *e = p->masks[mask].expr;
    /* many masks together get at most twice the budget of one */
    const double part = fmax(2.0 / (1 + p->mask_count), 1.0 / 64);
    m->effort = mask_effort(p->sequence, part);
    m->looks = mask_effort(p->sequence, part / 4);
    m->edges = mask_effort(p->sequence, part / 4);
    m->gaps = mask_effort(p->sequence, part / 4);
    m->cover = mask_lower(a, e, NULL);
    const MaskDocuments **documents = NEW_ARRAY(a, const MaskDocuments *, p->table_count);
    for (int t = 0; t < p->table_count && m->cover->open; t++) {
        documents[t] = p->tables[t].len_max > 0 ? mask_documents_draw(a, &p->tables[t], p->sequence, batch)
                                                : NULL;
        m->sampled_tables |= documents[t] != NULL;
    }
    m->sampled_tables |= p->masks[mask].selection > 0;
    m->batch = mask_lower(a, e, documents);
    m->sampled = drawn ? mask_lower_drawn(a, e, documents) : m->batch;
    m->cells = (int64_t)(CELLS_WORK * part);
    m->count_tiles = mask_counter_new(a, m->sampled, &m->effort);
    m->count_pairs = mask_counter_new(a, m->sampled, &m->effort);
    m->chunks = mask_chunks(a, p->sequence, tile_q < tile_k ? tile_q : tile_k);
    m->by_document = mask_is_within(m->sampled, p->sequence, &m->within);
    return m;
}

MaskMap *mask_map(Arena *a, const Program *p, int mask, int tile_q, int tile_k)
{
    return make_map(a, p, mask, tile_q, tile_k, 0, true);
}

MaskMap *mask_map_of_all(Arena *a, const Program *p, int mask, int tile_q, int tile_k)
{
    return make_map(a, p, mask, tile_q, tile_k, 0, false);
}

MaskMap *mask_map_of_batch(Arena *a, const Program *p, int mask, int tile_q, int tile_k, int batch)
{
    MaskMap *m = make_map(a, p, mask, tile_q, tile_k, batch, true);
    m->cover = m->batch;
    m->sampled_tables = p->masks[mask].selection > 0;
    return m;
}

bool mask_draws(const Program *p)
{
    bool draws = false;
    for (int t = 0; t < p->table_count; t++)
        draws |= p->tables[t].len_max > 0;
    return draws;
}

int mask_box(const void *map, const BurstSide *q, const BurstSide *k)
{
    return mask_node_cover(((const MaskMap *)map)->cover, q, k);
}

void mask_map_begin(MaskMap *m)
{
    mask_effort_begin(&m->effort);
    mask_effort_begin(&m->looks);
    mask_effort_begin(&m->edges);
    mask_effort_begin(&m->gaps);
    mask_counter_trust(m->count_tiles);
    mask_counter_trust(m->count_pairs);
    m->trust = 1;
}

static MaskRange whole(const PosSet *s, int64_t tile) { return mask_range_make(s, tile, 0, s->tokens); }

static double share_of_sequence(const MaskMap *m, const PosSet *q, const PosSet *k)
{
    return (double)q->tokens / (double)m->sequence * ((double)k->tokens / (double)m->sequence);
}

double mask_taken(const MaskMap *m)
{
    return m->effort.taken + m->looks.taken + m->edges.taken + m->gaps.taken;
}

static bool count_by_document(MaskMap *m, const PosSet *q, const PosSet *k, MaskCount *pairs,
                              MaskCount *tiles)
{
    const MaskSide of_q = {q, m->tile_q}, of_k = {k, m->tile_k};
    int64_t work = 0;
    const bool counted = m->by_document &&
                         mask_count_within(&m->chunks, &m->within, of_q, of_k, pairs, tiles, &work);
    mask_effort_take(&m->effort, work);
    return counted;
}

PairWork mask_work(MaskMap *m, const PosSet *q, const PosSet *k)
{
    if (!q->tokens || !k->tokens)
        return (PairWork){.cover = COVER_EMPTY};
    const MaskRange tq = whole(q, m->tile_q), tk = whole(k, m->tile_k);
    MaskCount pairs, tiles;
    if (!count_by_document(m, q, k, &pairs, &tiles)) {
        const double share = share_of_sequence(m, q, k);
        pairs = mask_counter_count(m->count_pairs, whole(q, 1), whole(k, 1), share);
        tiles = mask_counter_count(m->count_tiles, tq, tk, share);
    }
    /* A pair that stays open is kept for some values of the tables, as far as intervals tell. */
    PairWork w = {.pairs = pairs.full + pairs.partial,
                  .tiles_full = tiles.full,
                  .tiles_partial = tiles.partial};
    w.tiles_estimated = tiles.estimated;
    if (pairs.estimated)
        w.pairs_error = pairs.error / (double)burst_max(w.pairs, 1);
    if (tiles.estimated || m->sampled_tables)
        w.cover = mask_pair_cover(m, q, k);
    else if (tiles.full == mask_range_tiles(&tq) * mask_range_tiles(&tk))
        w.cover = COVER_FULL;
    else
        w.cover = tiles.full || tiles.partial ? COVER_PARTIAL : COVER_EMPTY;
    return w;
}

/* ---- the cover alone ---- */
enum { SEEN_LIVE = 1, SEEN_OPEN = 2, SEEN_BOTH = 3 }; /* a tile that is not EMPTY; a tile that is not FULL */

static int look(MaskMap *m, MaskRange q, MaskRange k, int seen);

static int look_halves(MaskMap *m, const MaskRange *q, const MaskRange *k, int seen)
{
    static const MaskUnits none = {0};
    MaskRange left, right;
    if (mask_range_first(q, k)) {
        mask_range_split(q, &none, &left, &right);
        return look(m, right, *k, look(m, left, *k, seen));
    }
    mask_range_split(k, &none, &left, &right);
    return look(m, *q, right, look(m, *q, left, seen));
}

/* The cover of two tiles. To find whether there is work, tiles with a wide gap are judged by parts, as ranks
 * do before they compute or send. Covers use the hulls, as counted tiles do. */
static int tile_cover(MaskMap *m, const MaskRange *q, const MaskRange *k)
{
    MaskRange a[2], b[2];
    const int cover = mask_box_cover(m->cover, q, k);
    if (cover != BURST_PARTIAL || m->enough != SEEN_LIVE)
        return cover;
    const int parts = mask_range_apart(q, a), others = mask_range_apart(k, b);
    if (parts * others == 1)
        return BURST_PARTIAL;
    m->left -= parts * others * m->cover->work;
    for (int i = 0; i < parts * others; i++)
        if (mask_box_cover(m->cover, &a[i / others], &b[i % others]) != BURST_EMPTY)
            return BURST_PARTIAL;
    return BURST_EMPTY;
}

/* Tries the last query tile with the first key tile, which often ends the look early. */
static bool corner_is_partial(MaskMap *m, const MaskRange *q, const MaskRange *k)
{
    if (!q->piece || !k->piece)
        return false;
    const int64_t last = (q->tokens - 1) / q->tile * q->tile;
    const MaskRange a = mask_range_make(q->set, q->tile, q->first + last, q->tokens - last);
    const MaskRange b = mask_range_make(k->set, k->tile, k->first, burst_min(k->tile, k->tokens));
    return tile_cover(m, &a, &b) == BURST_PARTIAL;
}

/* Looks for tiles until m->enough is seen. Returns SEEN_BOTH, which claims nothing, if the budget runs
 * out. */
static int look(MaskMap *m, MaskRange q, MaskRange k, int seen)
{
    if ((seen & m->enough) == m->enough)
        return seen;
    if ((m->left -= m->cover->work) < 0)
        return SEEN_BOTH;
    const bool tiles = q.tokens <= q.tile && k.tokens <= k.tile;
    const int cover = tiles ? tile_cover(m, &q, &k) : mask_box_cover(m->cover, &q, &k);
    if (cover != BURST_PARTIAL)
        return seen | (cover == BURST_FULL ? SEEN_LIVE : SEEN_OPEN);
    if (tiles || corner_is_partial(m, &q, &k))
        return SEEN_BOTH;
    return look_halves(m, &q, &k, seen);
}

Cover mask_pair_cover(MaskMap *m, const PosSet *q, const PosSet *k)
{
    if (!q->tokens || !k->tokens)
        return COVER_EMPTY;
    int64_t key[PAIR_WORDS];
    const int words = mask_pair_key(q, k, key);
    const MaskCount *known = mask_memory_find(&m->covers, key, words);
    if (known)
        return (Cover)known->full;
    const double share = share_of_sequence(m, q, k);
    const int64_t allowed = m->left = mask_effort_for(&m->looks, share, m->trust);
    m->enough = SEEN_BOTH;
    const int seen = look(m, whole(q, m->tile_q), whole(k, m->tile_k), 0);
    Cover cover = COVER_PARTIAL;
    if (seen == SEEN_LIVE || seen == SEEN_OPEN)
        cover = seen == SEEN_LIVE ? COVER_FULL : COVER_EMPTY;
    if (mask_effort_spend(&m->looks, &m->trust, allowed, m->left) || m->left < 0)
        mask_memory_add(&m->covers, key, words, (MaskCount){.full = cover});
    return cover;
}

int mask_pair_live(MaskMap *m, const PosSet *q, const PosSet *k, int64_t limit)
{
    if (!q->tokens || !k->tokens)
        return 0;
    const int64_t allowed = m->left = burst_min(limit * m->cover->work,
                                                mask_effort_for(&m->looks, share_of_sequence(m, q, k), 1));
    m->enough = SEEN_LIVE;
    const int seen = look(m, whole(q, m->tile_q), whole(k, m->tile_k), 0);
    mask_effort_take(&m->looks, allowed - m->left);
    return m->left < 0 ? -1 : (seen & SEEN_LIVE) != 0;
}

/* ---- live tiles of one side ---- */

typedef struct SideLook {
    MaskMap *m;
    MaskRange other;
    const PosSet *set;
    int side, tile;
} SideLook;

static SideLook look_at(MaskMap *m, const PosSet *q, const PosSet *k, int side)
{
    if (side == BURST_OF_QUERIES)
        return (SideLook){m, whole(k, m->tile_k), q, side, m->tile_q};
    return (SideLook){m, whole(q, m->tile_q), k, side, m->tile_k};
}

static int32_t tiles_of(const SideLook *l)
{
    const MaskRange all = whole(l->set, l->tile);
    return (int32_t)mask_range_tiles(&all);
}

static bool any_live(const void *of, int32_t first, int32_t tiles)
{
    const SideLook *l = of;
    const int64_t begin = burst_tile_begin(first, l->set->tokens),
                  end = burst_tile_begin(first + tiles, l->set->tokens);
    const MaskRange part = mask_range_make(l->set, l->tile, begin, end - begin);
    l->m->enough = SEEN_LIVE;
    return (l->side == BURST_OF_QUERIES ? look(l->m, part, l->other, 0) : look(l->m, l->other, part, 0)) &
           SEEN_LIVE;
}

/* A key of what the mask leaves open between two pieces, relative to their begins: pairs with equal keys
 * have the same live tiles. Returns its words; 0 if a side has several pieces, or if the open part depends
 * on absolute positions. */
static int name_pair(MaskMap *m, const PosSet *q, const PosSet *k, int side, int64_t limit)
{
    const MaskRange a = whole(q, m->tile_q), b = whole(k, m->tile_k);
    MaskWalk *w = &m->walk;
    if (q->npieces > 1 || k->npieces > 1)
        return 0;
    w->key.n = 0;
    const MaskOpen open = mask_walk_box(w, m->cover, &a, &b);
    if (w->absolute || (open.cover == BURST_PARTIAL && !w->key.n))
        return 0;
    const Piece *x = q->pieces, *y = k->pieces;
    const int64_t more[] = {open.cover, open.same, side,      limit,  a.tokens, b.tokens,
                            x->run,     x->count,  x->stride, y->run, y->count, y->stride};
    for (int i = 0; i < countof(more); i++)
        *(int64_t *)vec_push(w->arena, &w->key) = more[i];
    return w->key.n;
}

static BurstTileRanges find_tiles(MaskMap *m, const PosSet *q, const PosSet *k, int side, int64_t limit);

BurstTileRanges mask_pair_tiles(MaskMap *m, const PosSet *q, const PosSet *k, int side, int64_t limit)
{
    if (!q->tokens || !k->tokens)
        return (BurstTileRanges){0};
    const int words = name_pair(m, q, k, side, limit);
    const MaskCount *known = words ? mask_memory_find(&m->ranges, m->walk.key.at, words) : NULL;
    if (known)
        return m->found.at[known->full];
    const BurstTileRanges found = find_tiles(m, q, k, side, limit);
    if (words && m->left >= 0) {
        mask_memory_add(&m->ranges, m->walk.key.at, words, (MaskCount){.full = m->found.n});
        *(BurstTileRanges *)vec_push(m->ranges.arena, &m->found) = found;
    }
    return found;
}

/* Gaps have a budget of their own. If it runs out, the hull is still as tight as without them. */
static BurstTileRanges find_tiles(MaskMap *m, const PosSet *q, const PosSet *k, int side, int64_t limit)
{
    const double share = share_of_sequence(m, q, k);
    const SideLook look = look_at(m, q, k, side);
    int64_t allowed = m->left = burst_min(limit * m->cover->work, mask_effort_for(&m->edges, share, 1));
    const BurstTileRange hull = burst_find_hull(any_live, &look, tiles_of(&look));
    mask_effort_take(&m->edges, allowed - m->left);
    if (m->left < 0)
        return burst_all_tiles();
    allowed = m->left = burst_min(BURST_CELLS * limit * m->cover->work, mask_effort_for(&m->gaps, share, 1));
    const BurstTileRanges found = burst_find_ranges(any_live, &look, hull);
    mask_effort_take(&m->gaps, allowed - m->left);
    return found;
}

bool mask_tiles_within(MaskMap *m, const PosSet *q, const PosSet *k, int side, BurstTileRanges ranges)
{
    const SideLook look = look_at(m, q, k, side);
    const int32_t tiles = tiles_of(&look);
    int32_t at = 0;
    m->left = INT64_MAX;
    for (int i = 0; i < burst_ranges_count(&ranges); i++) {
        const int32_t lo = (int32_t)burst_min(ranges.at[i].lo, tiles);
        if (at < lo && any_live(&look, at, lo - at))
            return false;
        at = (int32_t)burst_min(ranges.at[i].hi, tiles);
    }
    return at == tiles || !any_live(&look, at, tiles - at);
}
