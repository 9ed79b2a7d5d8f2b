/* host/ops/embed.c: lookups in the embedding, and their gradients. */
#include "burst_step.h"
#include "burst_sizes.h"

#include <string.h>

enum { STRIP = 64, BITS = 8, DIGITS = 1 << BITS };

int burst_op_embed(BurstExec *e, int64_t n, int hidden, const int32_t *token, const BurstAct *table,
                   BurstAct *x)
{
    (void)e;
    for (int64_t i = 0; i < n; i++)
        memcpy(x + i * hidden, table + (int64_t)token[i] * hidden, (size_t)hidden * sizeof *x);
    return BURST_OK;
}

/* Sorts indices stably by a digit of their tokens. */
static void sort_digit(int64_t n, const int32_t *token, int shift, const int32_t *from, int32_t *to)
{
    int64_t at[DIGITS] = {0}, sum = 0;
    for (int64_t i = 0; i < n; i++)
        at[token[i] >> shift & (DIGITS - 1)]++;
    for (int d = 0; d < DIGITS; d++) {
        const int64_t count = at[d];
        at[d] = sum;
        sum += count;
    }
    for (int64_t i = 0; i < n; i++)
        to[at[token[from[i]] >> shift & (DIGITS - 1)]++] = from[i];
}

/* Indices sorted by token, stably. */
static const int32_t *sorted(int64_t n, const int32_t *token, int32_t *place, int32_t *other)
{
    int32_t most = 0;
    for (int64_t i = 0; i < n; i++) {
        place[i] = (int32_t)i;
        most = token[i] > most ? token[i] : most;
    }
    for (int shift = 0; shift < 31 && most >> shift; shift += BITS) {
        int32_t *const to = other;
        sort_digit(n, token, shift, place, to);
        other = place, place = to;
    }
    return place;
}

/* Adds the rows at these indices to one row, one strip of columns at a time in doubles, however many rows
 * there are. */
static void add_rows(int64_t count, int hidden, const int32_t *place, const float *dx, float *row)
{
    for (int first = 0; first < hidden; first += STRIP) {
        const int columns = hidden - first < STRIP ? hidden - first : STRIP;
        double sum[STRIP] = {0};
        for (int64_t i = 0; i < count; i++) {
            const float *x = dx + (int64_t)place[i] * hidden + first;
            for (int j = 0; j < columns; j++)
                sum[j] += (double)x[j];
        }
        for (int j = 0; j < columns; j++)
            row[first + j] = (float)(row[first + j] + sum[j]);
    }
}

int burst_op_embed_back(BurstExec *e, int64_t n, int hidden, const int32_t *token, const BurstAct *dx,
                        float *dtable, void *scratch)
{
    int32_t *const room = (int32_t *)scratch;
    const int32_t *place = sorted(n, token, room, room + n);
    (void)e;
    for (int64_t i = 0, end; i < n; i = end) {
        const int32_t mine = token[place[i]];
        for (end = i + 1; end < n && token[place[end]] == mine; end++)
            ;
        add_rows(end - i, hidden, place + i, dx, dtable + (int64_t)mine * hidden);
    }
    return BURST_OK;
}
