/* mask/line.c: counts tiles on either side of a straight line in closed form: most boxes reduce to that. */
#include "mask/internal.h"

/* The range's tiles as first positions 0, step, 2 step, ... relative to the range, each `width` wide. */
static bool progression(const MaskRange *r, int64_t *step, int64_t *width)
{
    int64_t shape[SHAPE_WORDS];
    mask_range_shape(r, shape);
    int64_t stride = 0;
    if (shape[1] == 0 || shape[1] == 1) /* one run, or runs of one token */
        stride = shape[1] ? shape[2] : 1;
    const bool short_tile = r->tokens > r->tile && r->tokens % r->tile;
    *step = stride * r->tile;
    *width = stride * (burst_min(r->tile, r->tokens) - 1);
    return stride && !short_tile;
}

/* Sum over i < n of floor((a*i + b) / m), for a, b >= 0 and m > 0. */
static int64_t floor_sum(int64_t n, int64_t m, int64_t a, int64_t b)
{
    int64_t total = 0;
    while (n > 0) {
        total += a / m * (n * (n - 1) / 2) + b / m * n;
        a %= m, b %= m;
        const __int128 last = (__int128)a * n + b;
        if (last < m)
            break;
        n = (int64_t)(last / m), b = (int64_t)(last % m);
        const int64_t swap = a;
        a = m, m = swap;
    }
    return total;
}

typedef struct Line { int64_t a, n, b, m; } Line; /* a*i + b*j over i < n, j < m */

/* Points with a*i + b*j + c < 0. */
static int64_t below(Line l, int64_t c)
{
    if (l.a < 0)
        c += l.a * (l.n - 1), l.a = -l.a;
    if (l.b < 0)
        c += l.b * (l.m - 1), l.b = -l.b;
    const int64_t most = -1 - c; /* a*i + b*j <= most */
    if (most < 0)
        return 0;
    const int64_t whole = burst_max(0, burst_min(l.n, burst_floor_div(most - l.b * (l.m - 1), l.a) + 1));
    const int64_t some = burst_min(l.n, most / l.a + 1), rows = some - whole;
    if (rows <= 0)
        return whole * l.m;
    return whole * l.m + rows + floor_sum(rows, l.b, l.a, most - l.a * (some - 1));
}

int64_t mask_line_below(int64_t a, int64_t n, int64_t b, int64_t m, int64_t c)
{
    return below((Line){a, n, b, m}, c);
}

/* Whether the key is a line, or a line joined with a condition that every tile leaves open. */
static bool is_line(const int64_t *key, int words)
{
    const bool joined = words == 5 && ((key[4] & 0xff) == MN_AND || (key[4] & 0xff) == MN_OR);
    return (words == 4 || joined) && key[0] == MN_NEGATIVE && key[1] && key[2];
}

bool mask_count_line(const int64_t *key, int words, const MaskRange *q, const MaskRange *k, MaskCount *n)
{
    int64_t step_q, width_q, step_k, width_k;
    if (!is_line(key, words) || !progression(q, &step_q, &width_q) ||
        !progression(k, &step_k, &width_k))
        return false;
    const Line l = {.a = key[1] * step_q,
                    .n = mask_range_tiles(q),
                    .b = key[2] * step_k,
                    .m = mask_range_tiles(k)};
    const int64_t most = key[3] + burst_max(key[1], 0) * width_q + burst_max(key[2], 0) * width_k;
    const int64_t least = key[3] + burst_min(key[1], 0) * width_q + burst_min(key[2], 0) * width_k;
    const int joined = words == 5 ? key[4] & 0xff : 0;
    const int64_t live = joined == MN_OR ? l.n * l.m : below(l, least);
    *n = (MaskCount){.full = joined == MN_AND ? 0 : below(l, most)};
    n->partial = live - n->full;
    return true;
}
