/* represent.c: what represents tiles of queries and blocks of keys. One rank computes each of these in one
 * order, so they do not depend on the number of ranks. */
#include "host/ops/select/select.h"

#include <math.h>
#include <string.h>

/* The first position of a run that is in the document of `of`, a position of the run. */
static int64_t first_together(const BurstSelect *s, int64_t begin, int64_t end, int64_t of)
{
    while (begin < end - 1 && !select_together(s, begin, of))
        begin++;
    return begin;
}

/* ---- what represents blocks and tiles ---- */

/* The mean of n rows. */
static void mean(int64_t n, int d, const float *x, float *out)
{
    for (int c = 0; c < d; c++) {
        double sum = 0;
        for (int64_t i = 0; i < n; i++)
            sum += (double)x[i * d + c];
        out[c] = (float)(sum / (double)n);
    }
}

/* The least and then the greatest of each channel; NaN if one is. */
static void limits(int64_t n, int d, const float *x, float *out)
{
    for (int c = 0; c < d; c++) {
        float lo = x[c], hi = x[c];
        for (int64_t i = 1; i < n; i++) {
            const float v = x[i * d + c];
            lo = v < lo || isnan(v) ? v : lo;
            hi = v > hi || isnan(v) ? v : hi;
        }
        out[c] = lo, out[d + c] = hi;
    }
}

/* The keys as they are; the last one again where a block has fewer. */
static void all_keys(const BurstSelect *s, int64_t n, const float *x, float *out)
{
    const int d = s->head_dim;
    for (int64_t i = 0; i < s->how->block; i++)
        memcpy(out + i * d, x + select_least(i, n - 1) * d, (size_t)d * sizeof *out);
}

static void represent(const BurstSelect *s, int64_t n, const float *x, float *out)
{
    switch (s->how->key) {
    case BURST_SELECT_MEAN_KEY: mean(n, s->head_dim, x, out); break;
    case BURST_SELECT_LIMITS: limits(n, s->head_dim, x, out); break;
    case BURST_SELECT_MAX_KEY: all_keys(s, n, x, out); break;
    default: memcpy(out, x, (size_t)s->head_dim * sizeof *out);
    }
}

void burst_select_keys(const BurstSelect *s, const BurstChunk *c, const float *k, float *out)
{
    const int64_t block = s->how->block, width = burst_select_width(s->how->key, block, s->head_dim);
    for (int64_t at = 0, i = 0; at < c->tokens; at += block, i++) {
        const int64_t begin = c->position[at], n = select_least(block, c->tokens - at),
                      first = first_together(s, begin, begin + n, begin + n - 1) - begin;
        for (int h = 0; h < s->kv_heads; h++)
            represent(s, n - first, k + (h * c->tokens + at + first) * s->head_dim,
                      out + (i * s->kv_heads + h) * width);
    }
}

/* The mean of the queries from position `from` of a tile that are in the document of `of`: they follow each
 * other. at: the tile's first row. */
static void mean_together(const BurstSelect *s, int64_t begin, int64_t end, int64_t of, const float *x,
                          float *out)
{
    int64_t first = begin, last = end;
    while (first < end && !select_together(s, select_least(first, of), first < of ? of : first))
        first++;
    while (last > first && !select_together(s, select_least(last - 1, of), last - 1 < of ? of : last - 1))
        last--;
    if (last > first)
        mean(last - first, s->head_dim, x + (first - begin) * s->head_dim, out);
    else
        memset(out, 0, (size_t)s->head_dim * sizeof *out);
}

void burst_select_queries(const BurstSelect *s, const BurstChunk *c, const float *q, float *out)
{
    const int64_t tile = s->how->queries, d = s->head_dim;
    const bool before = s->how->query == BURST_SELECT_PREVIOUS_MEAN;
    const int64_t width = before ? 2 * d : d;
    for (int64_t at = 0, i = 0; at < c->tokens; at += tile, i++) {
        const int64_t begin = c->position[at], end = begin + select_least(tile, c->tokens - at);
        for (int h = 0; h < s->q_heads; h++) {
            const float *x = q + (h * c->tokens + at) * d;
            float *to = out + (i * s->q_heads + h) * width;
            if (s->how->query == BURST_SELECT_OWN_MEAN)
                mean_together(s, begin, end, begin, x, to);
            else
                memcpy(to, x, (size_t)d * sizeof *to);
            if (before && end < s->sequence)
                mean_together(s, begin, end, end, x, to + d);
            else if (before)
                memset(to + d, 0, (size_t)d * sizeof *to);
        }
    }
}

void burst_select_place(const BurstChunk *c, int64_t unit, int64_t words, const float *from, int64_t step,
                        float *to)
{
    for (int64_t at = 0; at < c->tokens; at += unit, from += words)
        memcpy(to + c->position[at] / unit * step, from, (size_t)words * sizeof *to);
}
