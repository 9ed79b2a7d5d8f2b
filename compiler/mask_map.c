/* mask_map.c: the work of (query chunk, key chunk) pairs under one mask. */
#include "mask.h"

#include <math.h>

/* Verdicts one call may evaluate: so many for the whole sequence against itself, and a share of them for a part. Exact
 * up to EXACT_TOKENS for blocks of 64 tokens drawn at random. */
static const int64_t exact_cells = INT64_C(1) << 26, sampled_cells = INT64_C(1) << 21, least_cells = INT64_C(1) << 17;
enum { EXACT_TOKENS = 256 << 10 };

MaskMap *mask_map(Arena *a, const Program *p, int mask, int tile_q, int tile_k)
{
    MaskMap *m = NEW(a, MaskMap);
    *m = (MaskMap){.tile_q = tile_q, .tile_k = tile_k, .sequence = p->sequence};
    const MaskDocuments **documents = NEW_ARRAY(a, const MaskDocuments *, p->table_count);
    for (int t = 0; t < p->table_count; t++) {
        documents[t] = p->tables[t].len_max > 0 ? mask_documents_draw(a, &p->tables[t], t, p->sequence) : NULL;
        m->sampled_tables |= documents[t] != NULL;
    }
    const Expr *e = p->masks[mask].expr;
    m->cover = mask_lower(a, e, TABLES_UNKNOWN, documents);
    m->count_tiles = mask_counter_new(a, mask_lower(a, e, TABLES_SAMPLED, documents));
    m->count_pairs = mask_counter_new(a, mask_lower(a, e, TABLES_MOST_PAIRS, documents));
    return m;
}

static MaskRange whole(const PosSet *s, int64_t tile)
{
    return mask_range_make(s, tile, 0, s->tokens);
}

static int64_t cells_for(const MaskMap *m, const PosSet *q, const PosSet *k)
{
    const double share = (double)q->tokens * (double)k->tokens / ((double)m->sequence * (double)m->sequence);
    const int64_t all = m->sequence <= EXACT_TOKENS ? exact_cells : sampled_cells;
    return burst_max((int64_t)((double)all * fmin(share, 1)), least_cells);
}

PairWork mask_work(MaskMap *m, const PosSet *q, const PosSet *k)
{
    if (!q->tokens || !k->tokens)
        return (PairWork){.cover = COVER_EMPTY};
    const int64_t cells = cells_for(m, q, k);
    const MaskCount pairs = mask_counter_count(m->count_pairs, whole(q, 1), whole(k, 1), cells);
    const MaskRange tq = whole(q, m->tile_q), tk = whole(k, m->tile_k);
    const MaskCount tiles = mask_counter_count(m->count_tiles, tq, tk, cells);
    PairWork w = {.pairs = pairs.full, .tiles_full = tiles.full, .tiles_partial = tiles.partial};
    if (pairs.estimated)
        w.pairs_error = 2 * sqrt(pairs.variance) / (double)burst_max(pairs.full, 1);
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

static int look(const MaskNode *n, MaskRange q, MaskRange k, int seen);

static int look_halves(const MaskNode *n, const MaskRange *q, const MaskRange *k, int seen)
{
    static const MaskUnits none = {0};
    MaskRange left, right;
    const bool q_can = mask_range_tiles(q) > 1, k_can = mask_range_tiles(k) > 1;
    const bool q_first = !q->piece || (k->piece && q->hi - q->lo >= k->hi - k->lo);
    if (q_can && (!k_can || q_first)) {
        mask_range_split(q, &none, &left, &right);
        return look(n, right, *k, look(n, left, *k, seen));
    }
    mask_range_split(k, &none, &left, &right);
    return look(n, *q, right, look(n, *q, left, seen));
}

/* A guess that often saves the search: the last queries' tile with the first keys'. */
static bool corner_is_partial(const MaskNode *n, const MaskRange *q, const MaskRange *k)
{
    if (!q->piece || !k->piece)
        return false;
    const int64_t last = (q->tokens - 1) / q->tile * q->tile;
    const MaskRange a = mask_range_make(q->set, q->tile, q->first + last, q->tokens - last);
    const MaskRange b = mask_range_make(k->set, k->tile, k->first, burst_min(k->tile, k->tokens));
    const BurstSide x = {.lo = a.lo, .hi = a.hi}, y = {.lo = b.lo, .hi = b.hi};
    return mask_node_cover(n, &x, &y) == BURST_PARTIAL;
}

static int look(const MaskNode *n, MaskRange q, MaskRange k, int seen)
{
    if (seen == SEEN_BOTH)
        return seen;
    const BurstSide a = {.lo = q.lo, .hi = q.hi}, b = {.lo = k.lo, .hi = k.hi};
    const int cover = mask_node_cover(n, &a, &b);
    if (cover != BURST_PARTIAL)
        return seen | (cover == BURST_FULL ? SEEN_LIVE : SEEN_OPEN);
    if ((q.tokens <= q.tile && k.tokens <= k.tile) || corner_is_partial(n, &q, &k))
        return SEEN_BOTH;
    return look_halves(n, &q, &k, seen);
}

Cover mask_pair_cover(MaskMap *m, const PosSet *q, const PosSet *k)
{
    if (!q->tokens || !k->tokens)
        return COVER_EMPTY;
    const int seen = look(m->cover, whole(q, m->tile_q), whole(k, m->tile_k), 0);
    return seen == SEEN_LIVE ? COVER_FULL : seen == SEEN_OPEN ? COVER_EMPTY : COVER_PARTIAL;
}
