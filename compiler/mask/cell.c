/* mask/cell.c: the share of a cell's pairs that a picture shows. It is 0 only if the mask keeps no pair and
 * 1 only if it keeps all.
 *
 * Counts of a large cell may be estimates, which can miss a few pairs. There one kept pair and one removed
 * pair are searched for. If that takes too long, the share is not sure. */
#include "mask/internal.h"

#include <math.h>

enum { POINTS = 1 << 12, POINTS_PER_WORK = 8, MOST_CELLS = 64 };
static const double LEAST_SHARE = 1e-9;

/* hole: search for a removed pair or tile instead of a kept one. */
typedef struct Seek { const MaskNode *mask; bool hole; int64_t left; } Seek;

/* A pair that only some tables keep counts as kept; a partial tile counts as partial. */
static bool is_sought(const Seek *s, int cover, int64_t tile)
{
    if (!s->hole)
        return cover != BURST_EMPTY;
    return tile == 1 ? cover == BURST_EMPTY : cover != BURST_FULL;
}

static bool seek_points(Seek *s, const MaskRange *q, const MaskRange *k)
{
    s->left -= s->mask->work * q->tokens * k->tokens / POINTS_PER_WORK;
    for (int64_t i = q->lo; i <= q->hi; i++)
        for (int64_t j = k->lo; j <= k->hi; j++)
            if (mask_node_at(s->mask, i, j) != s->hole)
                return true;
    return false;
}

static bool seek_box(Seek *s, MaskRange q, MaskRange k)
{
    static const MaskUnits none = {0};
    MaskRange left, right;
    if (s->left < 0)
        return false;
    s->left -= s->mask->work;
    const int cover = mask_box_cover(s->mask, &q, &k);
    const bool single = mask_range_tiles(&q) * mask_range_tiles(&k) == 1;
    if (cover != BURST_PARTIAL || single)
        return is_sought(s, cover, q.tile);
    if (q.tile == 1 && !s->mask->open && q.tokens * k.tokens <= POINTS)
        return seek_points(s, &q, &k);
    if (mask_range_first(&q, &k)) {
        mask_range_split(&q, &none, &left, &right);
        return seek_box(s, left, k) || seek_box(s, right, k);
    }
    mask_range_split(&k, &none, &left, &right);
    return seek_box(s, q, left) || seek_box(s, q, right);
}

/* Whether such a pair or tile exists. Clears *sure if the search was given up. */
static bool seek(MaskMap *m, bool hole, MaskRange q, MaskRange k, bool *sure)
{
    const int64_t allowed = m->cells / MOST_CELLS;
    Seek s = {m->sampled, hole, allowed};
    const bool found = seek_box(&s, q, k);
    m->cells -= allowed - s.left;
    *sure &= found || s.left >= 0;
    return found || s.left < 0;
}

MaskShare mask_share(MaskMap *m, const PosSet *q, const PosSet *k, int64_t tile)
{
    const PairWork w = mask_work(m, q, k);
    const MaskRange tq = mask_range_make(q, tile, 0, q->tokens), tk = mask_range_make(k, tile, 0, k->tokens);
    const int64_t all = mask_range_tiles(&tq) * mask_range_tiles(&tk);
    const int64_t full = tile == 1 ? w.pairs : w.tiles_full, partial = tile == 1 ? 0 : w.tiles_partial;
    const bool estimated = tile == 1 ? w.pairs_error > 0 : w.tiles_estimated;
    MaskShare s = {(double)w.pairs / ((double)q->tokens * (double)k->tokens), true};
    const bool some = estimated ? seek(m, false, tq, tk, &s.sure) : full + partial > 0;
    const bool hole = some && (estimated ? seek(m, true, tq, tk, &s.sure) : full < all);
    if (!some)
        s.share = 0;
    else
        s.share = hole ? fmin(fmax(s.share, LEAST_SHARE), 1 - LEAST_SHARE) : 1;
    return s;
}
