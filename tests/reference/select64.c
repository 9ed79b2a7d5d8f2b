/* select64.c: the blocks that tiles of queries choose, from the definition (docs/language.md, "Selections").
 */
#include "dot64.h"
#include "model64.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TILE = 128 };
int64_t select64_given, select64_agreed;

static bool together(const Mask64 *m, int64_t a, int64_t b)
{
    return !m->select->documents || m->doc[a] == m->doc[b];
}

/* The mean of the rows from begin to end - 1 in the document of `of`, rounded as programs round it. */
static void mean_of(const Mask64 *m, const double *x, int d, int64_t begin, int64_t end, int64_t of,
                    double *out)
{
    int64_t n = 0;
    memset(out, 0, sizeof *out * (size_t)d);
    for (int64_t i = begin; i < end; i++)
        if (together(m, i, of)) {
            n++;
            for (int t = 0; t < d; t++)
                out[t] += x[i * d + t];
        }
    for (int t = 0; t < d; t++)
        out[t] = (double)(float)(out[t] / (double)n);
}

/* The layer's, or an indexer's. */
static Score64 scored(const Attention64 *a)
{
    return a->mask.select->indexer ? a->score : (Score64){a->heads, a->kv_heads, a->head_dim, a->q, a->k};
}

static double score_of(const Attention64 *a, int h, int64_t tile, int64_t begin, int64_t end)
{
    const Mask64 *m = &a->mask;
    const Select64 *s = m->select;
    const Score64 x = scored(a);
    const int d = x.head_dim;
    const double *q = x.q + h * a->n * d, *k = x.k + h / (x.heads / x.kv_heads) * a->n * d;
    const int64_t first = tile * TILE;
    double query[d], key[d], sum = 0;
    memcpy(query, q + first * d, sizeof query);
    if (s->query == SELECT64_PREVIOUS_MEAN && first > 0 && together(m, first - 1, first))
        mean_of(m, q, d, first - TILE, first, first, query);
    if (s->query == SELECT64_OWN_MEAN)
        mean_of(m, q, d, first, first + TILE < a->n ? first + TILE : a->n, first, query);
    while (!together(m, begin, end - 1))
        begin++;
    if (s->key == SELECT64_MAX_KEY) {
        double most = -INFINITY;
        for (int64_t i = begin; i < end; i++)
            most = fmax(most, dot64(d, query, k + i * d));
        return most;
    }
    mean_of(m, k, d, begin, end, end - 1, key);
    for (int t = 0; t < d; t++) {
        double best = query[t] * (s->key == SELECT64_MEAN_KEY ? key[t] : k[begin * d + t]);
        for (int64_t i = begin; i < end && s->key == SELECT64_LIMITS; i++)
            best = fmax(best, query[t] * k[i * d + t]);
        sum += best;
    }
    return sum;
}

static bool may_choose(const Attention64 *a, int64_t tile, int64_t begin, int64_t end)
{
    const Mask64 *m = &a->mask;
    const int64_t first = tile * TILE;
    if ((!m->select->noncausal && end - 1 > first) || !together(m, end - 1, first))
        return false;
    for (int64_t i = first; i < first + TILE && i < a->n; i++)
        for (int64_t j = begin; j < end; j++)
            if (m->keep(i, j, m->ctx) && !m->select->always(i, j))
                return true;
    return false;
}

static void choose(const Attention64 *a, int head, int end_head, int64_t tile, int64_t blocks,
                   uint8_t *chosen)
{
    const Select64 *s = a->mask.select;
    double *score = new64(blocks);
    for (int64_t b = 0; b < blocks; b++) {
        const int64_t begin = b * s->block, end = begin + s->block < a->n ? begin + s->block : a->n;
        score[b] = may_choose(a, tile, begin, end) ? 0 : NAN;
        for (int h = head; h < end_head && !isnan(score[b]); h++)
            score[b] += score_of(a, h, tile, begin, end);
    }
    for (int i = 0; i < s->top; i++) {
        int64_t best = -1;
        for (int64_t b = 0; b < blocks; b++)
            if (!isnan(score[b]) && (best < 0 || score[b] > score[best]))
                best = b;
        if (best >= 0)
            chosen[best] = 1, score[best] = NAN;
    }
    free(score);
}

/* What a list that is given has in place of what is chosen here. */
static void take(const Attention64 *a, int list, int64_t tile, int lists, int64_t blocks, uint8_t *chosen)
{
    const int top = a->mask.select->top;
    const int32_t *block = a->mask.lists + (tile * lists + list) * top;
    for (int i = 0; i < top && block[i] >= 0; i++)
        select64_given++, select64_agreed += chosen[block[i]];
    memset(chosen, 0, (size_t)blocks);
    for (int i = 0; i < top && block[i] >= 0; i++)
        chosen[block[i]] = 1;
}

uint8_t *select64(const Attention64 *a)
{
    const Select64 *s = a->mask.select;
    if (!s)
        return NULL;
    const int64_t tiles = (a->n + TILE - 1) / TILE, blocks = (a->n + s->block - 1) / s->block;
    const int group = s->heads == SELECT64_OF_KV ? a->heads / a->kv_heads : a->heads,
              each = s->heads == SELECT64_OF_HEAD ? 1 : group, scoring = scored(a).heads * each / a->heads;
    uint8_t *chosen = calloc((size_t)(a->heads * tiles * blocks), 1);
    if (!chosen)
        exit(3);
    for (int h = 0; h < a->heads; h++)
        for (int64_t t = 0; t < tiles; t++) {
            uint8_t *of = chosen + (h * tiles + t) * blocks;
            choose(a, h / each * scoring, (h / each + 1) * scoring, t, blocks, of);
            if (a->mask.lists)
                take(a, h / each, t, a->heads / each, blocks, of);
        }
    return chosen;
}

bool select64_keeps(const Attention64 *a, const uint8_t *chosen, int h, int64_t q, int64_t k)
{
    const Select64 *s = a->mask.select;
    if (!a->mask.keep(q, k, a->mask.ctx))
        return false;
    if (!s || s->always(q, k))
        return true;
    const int64_t tiles = (a->n + TILE - 1) / TILE, blocks = (a->n + s->block - 1) / s->block;
    return chosen[(h * tiles + q / TILE) * blocks + k / s->block];
}
