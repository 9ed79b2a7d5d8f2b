/* host/ops/scan/conv.c: depthwise causal convolution with silu, and its gradients. */
#include "burst_step.h"

#include <math.h>

/* The row `back` rows before row t of the piece that begins at `first`, in x or in the piece's halo; NULL
 * where the document begins after it. */
static const float *row_before(const BurstConv *c, const int32_t *place, const float *x, const float *halo,
                               int64_t first, int64_t t, int back)
{
    if (place[t] < back)
        return NULL;
    if (t - back >= first)
        return x + (t - back) * c->channels;
    return halo ? halo + (c->kernel - 1 + t - back - first) * c->channels : NULL;
}

static void rows_before(const BurstConv *c, const int32_t *place, const float *x, const float *halo,
                        int64_t first, int64_t t, const float *row[BURST_MOST_KERNEL])
{
    for (int j = 0; j < c->kernel; j++)
        row[j] = row_before(c, place, x, halo, first, t, c->kernel - 1 - j);
}

static float weight(const BurstConv *c, const float *w, int channel, int j)
{
    return w[channel * c->kernel + j] * (float)burst_conv_scale(c, channel);
}

static float sum_at(const BurstConv *c, const float *const *row, const float *w, const float *bias, int i)
{
    float sum = bias ? bias[i] : 0;
    for (int j = 0; j < c->kernel; j++)
        if (row[j])
            sum += weight(c, w, i, j) * row[j][i];
    return sum;
}

static const float *halo_of(const BurstConv *c, const float *halo, int piece)
{
    return halo ? halo + (int64_t)piece * (c->kernel - 1) * c->channels : NULL;
}

int burst_op_conv(BurstExec *e, int64_t n, const BurstConv *c, const BurstPieces *p, const int32_t *place,
                  const BurstAct *x, const BurstAct *halo, const BurstAct *w, const BurstAct *bias,
                  BurstAct *y)
{
    const float *row[BURST_MOST_KERNEL];
    (void)e, (void)n;
    for (int piece = 0; piece < p->count; piece++)
        for (int64_t t = p->first[piece]; t < p->first[piece + 1]; t++) {
            rows_before(c, place, x, halo_of(c, halo, piece), p->first[piece], t, row);
            for (int i = 0; i < c->channels; i++) {
                const float sum = sum_at(c, row, w, bias, i);
                y[t * c->channels + i] = c->silu ? sum / (1 + expf(-sum)) : sum;
            }
        }
    return BURST_OK;
}

/* The gradient of the sum. */
static float slope(const BurstConv *c, float sum, float dy)
{
    const float s = 1 / (1 + expf(-sum));
    return c->silu ? dy * s * (1 + sum * (1 - s)) : dy;
}

static void add_row(const BurstConv *c, int j, const float *w, const float *d_sum, float *dx)
{
    for (int i = 0; dx && i < c->channels; i++)
        dx[i] += weight(c, w, i, j) * d_sum[i];
}

/* One channel's sums over tokens are doubles. */
static void weights_back(const BurstConv *c, const BurstPieces *p, const int32_t *place, const float *x,
                         const float *halo, const float *w, const float *bias, const float *dy, int channel,
                         float *dw, float *db)
{
    const float *row[BURST_MOST_KERNEL];
    double sum[BURST_MOST_KERNEL + 1] = {0};
    for (int piece = 0; piece < p->count; piece++)
        for (int64_t t = p->first[piece]; t < p->first[piece + 1]; t++) {
            rows_before(c, place, x, halo_of(c, halo, piece), p->first[piece], t, row);
            const double d = (double)slope(c, sum_at(c, row, w, bias, channel),
                                           dy[t * c->channels + channel]);
            for (int j = 0; j < c->kernel; j++)
                sum[j] += row[j] ? d * (double)row[j][channel] : 0;
            sum[BURST_MOST_KERNEL] += d;
        }
    for (int j = 0; j < c->kernel; j++)
        dw[channel * c->kernel + j] += (float)(sum[j] * burst_conv_scale(c, channel));
    if (db)
        db[channel] += (float)sum[BURST_MOST_KERNEL];
}

/* dx[t] takes the gradients of the sums of rows t up to t + kernel - 1 of its document. */
int burst_op_conv_back(BurstExec *e, int64_t n, const BurstConv *c, const BurstPieces *p,
                       const int32_t *place, const BurstAct *x, const BurstAct *halo, const BurstAct *w,
                       const BurstAct *bias, const BurstAct *dy, BurstAct *dx, BurstAct *d_halo, float *dw,
                       float *db, void *scratch)
{
    const float *row[BURST_MOST_KERNEL];
    float *const d_sum = scratch;
    (void)e;
    memset(dx, 0, (size_t)(n * c->channels) * sizeof *dx);
    if (d_halo)
        memset(d_halo, 0, (size_t)(p->count * (c->kernel - 1) * c->channels) * sizeof *d_halo);
    for (int piece = 0; piece < p->count; piece++)
        for (int64_t t = p->first[piece]; t < p->first[piece + 1]; t++) {
            const float *own_halo = halo_of(c, halo, piece);
            rows_before(c, place, x, own_halo, p->first[piece], t, row);
            for (int i = 0; i < c->channels; i++)
                d_sum[i] = slope(c, sum_at(c, row, w, bias, i), dy[t * c->channels + i]);
            for (int j = 0; j < c->kernel; j++)
                add_row(c, j, w, d_sum,
                        (float *)row_before(c, place, dx, halo_of(c, d_halo, piece), p->first[piece], t,
                                            c->kernel - 1 - j));
        }
    for (int channel = 0; channel < c->channels; channel++)
        weights_back(c, p, place, x, halo, w, bias, dy, channel, dw, db);
    return BURST_OK;
}

int burst_op_conv_tails(BurstExec *e, const BurstConv *c, const BurstPieces *p, const BurstAct *x,
                        BurstAct *tails)
{
    const int64_t count = (int64_t)(c->kernel - 1) * c->channels;
    (void)e;
    for (int piece = 0; piece < p->count; piece++)
        memcpy(tails + piece * count, x + p->first[piece + 1] * c->channels - count,
               (size_t)count * sizeof *x);
    return BURST_OK;
}

int burst_op_conv_tails_back(BurstExec *e, const BurstConv *c, const BurstPieces *p, const BurstAct *d_tails,
                             BurstAct *dx)
{
    const int64_t count = (int64_t)(c->kernel - 1) * c->channels;
    (void)e;
    for (int piece = 0; piece < p->count; piece++)
        for (int64_t i = 0; i < count; i++)
            dx[p->first[piece + 1] * c->channels - count + i] += d_tails[piece * count + i];
    return BURST_OK;
}
