/* mask/range.c: ranges of tiles of a PosSet: hull, shape, and where to split them so that halves have equal
 * keys. */
#include "mask/internal.h"

MaskRange mask_range_make(const PosSet *set, int64_t tile, int64_t first, int64_t tokens)
{
    MaskRange r = {
        .set = set, .tile = tile, .first = first, .tokens = tokens, .lo = INT64_MAX, .hi = INT64_MIN};
    int64_t begin = 0;
    for (const Piece *p = set->pieces; p < set->pieces + set->npieces && begin < first + tokens; p++) {
        const int64_t n = p->run * p->count, from = burst_max(first - begin, 0),
                      to = burst_min(first + tokens - begin, n) - 1;
        if (from <= to) {
            const int64_t least = p->start +
                                  (p->count == 1 ? from : from / p->run * p->stride + from % p->run);
            const int64_t most = p->start + (p->count == 1 ? to : to / p->run * p->stride + to % p->run);
            r.lo = burst_min(r.lo, least), r.hi = burst_max(r.hi, most);
            r.piece = to - from + 1 == tokens ? p : NULL;
            r.piece_first = begin;
        }
        begin += n;
    }
    return r;
}

MaskRange mask_range_part(const MaskRange *r, int64_t first, int64_t tokens)
{
    if (!r->piece || r->piece->count > 1)
        return mask_range_make(r->set, r->tile, r->first + first, tokens);
    MaskRange part = *r;
    part.first += first;
    part.tokens = tokens;
    part.lo += first;
    part.hi = part.lo + tokens - 1;
    return part;
}

int64_t mask_range_tiles(const MaskRange *r)
{
    return (r->tokens + r->tile - 1) / r->tile;
}

/* A gap of the range: local index of its begin, and its width. */
typedef struct Gap { int64_t at, width; } Gap;

static Gap wider(Gap a, Gap b)
{
    return b.width > a.width ? b : a;
}

int mask_range_apart(const MaskRange *r, MaskRange part[2])
{
    Gap widest = {0, r->tile};
    int64_t begin = 0, last = INT64_MAX; /* position before the piece */
    for (const Piece *p = r->set->pieces;
         p < r->set->pieces + r->set->npieces && begin < r->first + r->tokens; p++) {
        const int64_t from = burst_max(r->first - begin, 0),
                      to = burst_min(r->first + r->tokens - begin, p->run * p->count) - 1;
        if (from <= to) {
            const int64_t turn = from / p->run, next = (turn + 1) * p->run;
            widest = begin > r->first ? wider(widest, (Gap){begin - r->first, p->start - last}) : widest;
            widest = next <= to ? wider(widest, (Gap){begin + next - r->first, p->stride - p->run + 1})
                                : widest;
        }
        begin += p->run * p->count;
        last = mask_piece_last(p);
    }
    part[0] = *r;
    if (widest.at == 0)
        return 1;
    part[0] = mask_range_make(r->set, r->tile, r->first, widest.at);
    part[1] = mask_range_make(r->set, r->tile, r->first + widest.at, r->tokens - widest.at);
    return 2;
}

int mask_box_cover(const MaskNode *n, const MaskRange *q, const MaskRange *k)
{
    if (q->lo == q->hi && k->lo == k->hi && !n->open)
        return mask_node_at(n, q->lo, k->lo) ? BURST_FULL : BURST_EMPTY;
    const BurstSide a = {.lo = q->lo, .hi = q->hi}, b = {.lo = k->lo, .hi = k->hi};
    return mask_node_cover(n, &a, &b);
}

/* Lower bound of last - first position over a tile: its positions differ, so it spans at least its tokens,
 * and inside one piece also the gaps between runs. */
int64_t mask_range_width(const MaskRange *r)
{
    const int64_t rest = r->tokens % r->tile, steps = (rest ? rest : r->tile) - 1;
    if (!r->piece || r->piece->count == 1)
        return steps;
    return steps + steps / r->piece->run * (r->piece->stride - r->piece->run);
}

void mask_range_shape(const MaskRange *r, int64_t shape[SHAPE_WORDS])
{
    const Piece *p = r->piece;
    const int64_t phase = p->count == 1 ? 0 : (r->first - r->piece_first) % p->run;
    const bool one_run = p->count == 1 || phase + r->tokens <= p->run;
    shape[0] = r->tokens;
    shape[1] = one_run ? 0 : p->run;
    shape[2] = one_run ? 0 : p->stride;
    shape[3] = one_run ? 0 : phase;
}

/* Tiles before the end of a piece, so that a tile that straddles pieces is split off. */
static int64_t tiles_to_piece_end(const MaskRange *r)
{
    int64_t end = 0;
    for (const Piece *p = r->set->pieces; end <= r->first; p++)
        end += p->run * p->count;
    const int64_t tiles = (end - r->first) / r->tile;
    return tiles ? tiles : 1;
}

static int64_t least_common_multiple(int64_t a, int64_t b)
{
    int64_t x = a, y = b;
    while (y) {
        const int64_t rest = x % y;
        x = y, y = rest;
    }
    return a / x > INT64_MAX / 2 / b ? 0 : a / x * b;
}

/* The multiple of unit in (lo, hi] that is divisible by the largest power of two; 0: none. */
static int64_t roundest(int64_t lo, int64_t hi, int64_t unit)
{
    const int64_t below = lo / unit, last = hi / unit;
    if (below == last)
        return 0;
    const int bit = 63 - __builtin_clzll((unsigned long long)(below ^ last));
    return (last >> bit << bit) * unit;
}

static int64_t round_position(const MaskRange *r, const MaskUnits *units)
{
    const int64_t stride = r->piece->count > 1 ? r->piece->stride : 1;
    int64_t unit = 1;
    for (int i = -1; i < units->n; i++) {
        const int64_t one = i >= 0 ? units->of[i] : stride;
        const int64_t joined = least_common_multiple(unit, one);
        if (joined && roundest(r->lo, r->hi, joined))
            unit = joined;
    }
    return roundest(r->lo, r->hi, unit);
}

/* Local index, from the range's first token, of the first position of its piece that is >= position. */
static int64_t index_of(const MaskRange *r, int64_t position)
{
    const Piece *p = r->piece;
    const int64_t offset = position - p->start, skip = r->first - r->piece_first;
    if (p->count == 1)
        return offset - skip;
    return offset / p->stride * p->run + burst_min(offset % p->stride, p->run) - skip;
}

bool mask_range_first(const MaskRange *q, const MaskRange *k)
{
    const bool q_can = mask_range_tiles(q) > 1, k_can = mask_range_tiles(k) > 1;
    return q_can && (!k_can || !q->piece || (k->piece && q->hi - q->lo >= k->hi - k->lo));
}

void mask_range_split(const MaskRange *r, const MaskUnits *units, MaskRange *left, MaskRange *right)
{
    const int64_t tiles = mask_range_tiles(r);
    int64_t cut;
    if (r->piece) {
        const int64_t index = index_of(r, units->end ? units->end : round_position(r, units));
        cut = (index + r->tile / 2) / r->tile;
        if (cut <= 0 || cut >= tiles)
            cut = tiles / 2;
    } else {
        cut = tiles_to_piece_end(r);
    }
    *left = mask_range_part(r, 0, cut * r->tile);
    *right = mask_range_part(r, cut * r->tile, r->tokens - cut * r->tile);
}

/* The end of the cell that begins at local index i. */
static int64_t cell_end(const MaskRange *r, int64_t unit, int64_t i)
{
    if (r->tile > 1)
        return burst_min(i + r->tile, r->tokens);
    const MaskRange one = mask_range_part(r, i, 1);
    return burst_min(index_of(r, (one.lo / unit + 1) * unit), r->tokens);
}

int mask_range_cells(const MaskRange *r, const MaskUnits *units, MaskRange cell[RANGE_CELLS])
{
    int64_t unit = 0;
    for (int i = 0; i < units->n; i++)
        unit = unit && unit < units->of[i] ? unit : units->of[i];
    if (!r->piece || (r->tile == 1 && !unit))
        return 0;
    int n = 0;
    for (int64_t i = 0, end; i < r->tokens; i = end) {
        if (n == RANGE_CELLS)
            return 0;
        end = cell_end(r, unit, i);
        cell[n++] = mask_range_part(r, i, end - i);
    }
    return n;
}
