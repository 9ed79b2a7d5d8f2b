/* ops.h: the operations of a step on a device, as plain loops from their definitions, queued as computing
 * (burst_gpu.h). */
#pragma once
#include "streams.h"

#include <cmath>

static inline double value_of(BurstBf16 x) { return __bfloat162float(x); }
static inline BurstBf16 rounded(double x) { return __float2bfloat16((float)x); }

static inline int compute(BurstGpu *g, std::function<void()> run)
{
    burst_gpu_compute(g)->queue.push_back(Op{std::move(run)});
    return BURST_OK;
}

int burst_op_embed(BurstGpu *g, int64_t n, int hidden, const int32_t *token, const BurstBf16 *table,
                   BurstBf16 *x)
{
    return compute(g, [=] {
        for (int64_t i = 0; i < n * hidden; i++)
            x[i] = table[(int64_t)token[i / hidden] * hidden + i % hidden];
    });
}

int burst_op_embed_back(BurstGpu *g, int64_t n, int hidden, const int32_t *token, const BurstBf16 *dx,
                        float *dtable, void *)
{
    return compute(g, [=] {
        for (int64_t i = 0; i < n * hidden; i++)
            dtable[(int64_t)token[i / hidden] * hidden + i % hidden] += (float)value_of(dx[i]);
    });
}

int burst_op_linear_columns(BurstGpu *g, int64_t n, int in, int out, int row, const BurstBf16 *x,
                            const BurstBf16 *w, const BurstBf16 *add, BurstBf16 *y)
{
    return compute(g, [=] {
        for (int64_t at = 0; at < n * out; at++) {
            double sum = add ? value_of(add[at]) : 0;
            for (int64_t i = 0; i < in; i++)
                sum += value_of(x[at / out * in + i]) * value_of(w[at % out * row + i]);
            y[at] = rounded(sum);
        }
    });
}

int burst_op_linear_dx_columns(BurstGpu *g, int64_t n, int in, int out, int row, const BurstBf16 *dy,
                               const BurstBf16 *w, BurstBf16 *dx, bool add)
{
    return compute(g, [=] {
        for (int64_t at = 0; at < n * in; at++) {
            double sum = add ? value_of(dx[at]) : 0;
            for (int64_t o = 0; o < out; o++)
                sum += value_of(dy[at / in * out + o]) * value_of(w[o * row + at % in]);
            dx[at] = rounded(sum);
        }
    });
}

int burst_op_linear_dw_columns(BurstGpu *g, int64_t n, int in, int out, int row, const BurstBf16 *dy,
                               const BurstBf16 *x, float *dw)
{
    return compute(g, [=] {
        for (int64_t at = 0; at < (int64_t)out * in; at++)
            for (int64_t t = 0; t < n; t++)
                dw[at / in * row + at % in] += (float)(value_of(dy[t * out + at / in]) *
                                                       value_of(x[t * in + at % in]));
    });
}

int burst_op_linear(BurstGpu *g, int64_t n, int in, int out, int tensors, const BurstBf16 *x,
                    const BurstBf16 *w, const BurstBf16 *add, BurstBf16 *y)
{
    return burst_op_linear_columns(g, n, in, out * tensors, in, x, w, add, y);
}

int burst_op_linear_dx(BurstGpu *g, int64_t n, int in, int out, int tensors, const BurstBf16 *dy,
                       const BurstBf16 *w, BurstBf16 *dx, bool add)
{
    return burst_op_linear_dx_columns(g, n, in, out * tensors, in, dy, w, dx, add);
}

int burst_op_linear_dw(BurstGpu *g, int64_t n, int in, int out, int tensors, const BurstBf16 *dy,
                       const BurstBf16 *x, float *dw)
{
    return burst_op_linear_dw_columns(g, n, in, out * tensors, in, dy, x, dw);
}

int burst_op_join(BurstGpu *g, int64_t n, int heads, int own, int shared, const BurstBf16 *x,
                  const BurstBf16 *every, BurstBf16 *y)
{
    return compute(g, [=] {
        for (int64_t row = 0; row < n * heads; row++)
            for (int i = 0; i < own + shared; i++)
                y[row * (own + shared) + i] = i < own ? x[row * own + i]
                                                      : every[row / heads * shared + i - own];
    });
}

int burst_op_join_back(BurstGpu *g, int64_t n, int heads, int own, int shared, const BurstBf16 *dy,
                       BurstBf16 *dx, BurstBf16 *d_every, bool add)
{
    return compute(g, [=] {
        for (int64_t row = 0; row < n * heads; row++)
            for (int i = 0; i < own; i++)
                dx[row * own + i] = dy[row * (own + shared) + i];
        for (int64_t at = 0; at < n * shared; at++) {
            double sum = add ? value_of(d_every[at]) : 0;
            for (int h = 0; h < heads; h++)
                sum += value_of(dy[(at / shared * heads + h) * (own + shared) + own + at % shared]);
            d_every[at] = rounded(sum);
        }
    });
}

int burst_op_bias(BurstGpu *g, int64_t n, int width, const BurstBf16 *x, const BurstBf16 *b, BurstBf16 *y)
{
    return compute(g, [=] {
        for (int64_t i = 0; i < n * width; i++)
            y[i] = rounded(value_of(x[i]) + value_of(b[i % width]));
    });
}

int burst_op_bias_back(BurstGpu *g, int64_t n, int width, const BurstBf16 *dy, float *db)
{
    return compute(g, [=] {
        for (int64_t i = 0; i < n * width; i++)
            db[i % width] += (float)value_of(dy[i]);
    });
}

int burst_op_bias_pair(BurstGpu *g, int64_t n, int width, const BurstBf16 *x, const BurstBf16 *b,
                       BurstBf16 *y)
{
    return burst_op_bias(g, n, 2 * width, x, b, y);
}

int burst_op_bias_pair_back(BurstGpu *g, int64_t n, int width, const BurstBf16 *dy, float *db)
{
    return burst_op_bias_back(g, n, 2 * width, dy, db);
}

int burst_op_rmsnorm(BurstGpu *g, int64_t n, int hidden, double eps, const BurstBf16 *x, const BurstBf16 *w,
                     BurstBf16 *y, float *rstd)
{
    return compute(g, [=] {
        for (int64_t t = 0; t < n; t++) {
            double sum = 0;
            for (int i = 0; i < hidden; i++)
                sum += value_of(x[t * hidden + i]) * value_of(x[t * hidden + i]);
            rstd[t] = (float)(1 / std::sqrt(sum / hidden + eps));
            for (int i = 0; i < hidden; i++)
                y[t * hidden + i] = rounded(value_of(x[t * hidden + i]) * rstd[t] * value_of(w[i]));
        }
    });
}

int burst_op_rmsnorm_back(BurstGpu *g, int64_t n, int hidden, const BurstBf16 *x, const float *rstd,
                          const BurstBf16 *dy, const BurstBf16 *w, BurstBf16 *dx, bool add, float *dw,
                          void *room)
{
    double *const scratch = (double *)room;
    return compute(g, [=] {
        for (int i = 0; i < hidden; i++)
            scratch[i] = 0; /* the partial sums of a device's blocks */
        for (int64_t t = 0; t < n; t++) {
            const double r = rstd[t];
            double along = 0;
            for (int i = 0; i < hidden; i++) {
                along += value_of(dy[t * hidden + i]) * value_of(w[i]) * value_of(x[t * hidden + i]);
                scratch[i] += (float)(value_of(dy[t * hidden + i]) * value_of(x[t * hidden + i]) * r);
            }
            for (int i = 0; i < hidden; i++)
                dx[t * hidden + i] = rounded((add ? value_of(dx[t * hidden + i]) : 0) +
                                             r * value_of(dy[t * hidden + i]) * value_of(w[i]) -
                                             r * r * r * along / hidden * value_of(x[t * hidden + i]));
        }
        for (int i = 0; i < hidden; i++)
            dw[i] += scratch[i];
    });
}

/* ---- rows that tensor ranks share ---- */

int burst_op_squares(BurstGpu *g, int64_t n, int width, int ranks, const BurstBf16 *x, float *part)
{
    return compute(g, [=] {
        for (int64_t t = 0; t < n; t++) {
            double sum = 0;
            for (int i = 0; i < width; i++)
                sum += value_of(x[t * width + i]) * value_of(x[t * width + i]);
            part[t] = (float)(sum / width / ranks);
        }
    });
}

int burst_op_squares_back(BurstGpu *g, int64_t n, int width, int ranks, const BurstBf16 *x,
                          const float *d_part, BurstBf16 *dx, bool add)
{
    return compute(g, [=] {
        for (int64_t i = 0; i < n * width; i++)
            dx[i] = rounded((add ? value_of(dx[i]) : 0) +
                            2 * value_of(x[i]) * d_part[i / width] / width / ranks);
    });
}

int burst_op_rmsnorm_part(BurstGpu *g, int64_t n, int width, double eps, const BurstBf16 *x,
                          const float *square, const BurstBf16 *w, BurstBf16 *y, float *rstd)
{
    return compute(g, [=] {
        for (int64_t i = 0; i < n * width; i++) {
            const double r = 1 / std::sqrt(square[i / width] + eps);
            rstd[i / width] = (float)r;
            y[i] = rounded(value_of(x[i]) * r * value_of(w[i % width]));
        }
    });
}

int burst_op_rmsnorm_part_back(BurstGpu *g, int64_t n, int width, const BurstBf16 *x, const float *rstd,
                               const BurstBf16 *dy, const BurstBf16 *w, BurstBf16 *dx, bool add,
                               float *d_square, float *dw, void *room)
{
    double *const scratch = (double *)room;
    return compute(g, [=] {
        for (int i = 0; i < width; i++)
            scratch[i] = 0;
        for (int64_t t = 0; t < n; t++)
            d_square[t] = 0;
        for (int64_t i = 0; i < n * width; i++) {
            const double r = rstd[i / width], scaled = value_of(w[i % width]) * value_of(dy[i]);
            d_square[i / width] -= (float)(r * r * r / 2 * scaled * value_of(x[i]));
            scratch[i % width] += value_of(dy[i]) * value_of(x[i]) * r;
            dx[i] = rounded((add ? value_of(dx[i]) : 0) + r * scaled);
        }
        for (int i = 0; i < width; i++)
            dw[i] += (float)scratch[i];
    });
}

/* Of row i and head h: where its columns are in x, and their gradients or rotated values in y [n][heads *
 * d]. The last elements turn, all or -rotary of them. */
template <class In>
static void turn(int64_t n, int heads, int d, double theta, int rotary, const int32_t *position,
                 int direction, const In &x, BurstBf16 *y)
{
    const int turned = rotary < 0 ? -rotary : d, first = d - turned;
    for (int64_t i = 0; i < n; i++)
        for (int h = 0; h < heads; h++) {
            BurstBf16 *row = y + (i * heads + h) * d;
            for (int j = 0; j < first; j++)
                row[j] = rounded(x(i, h, j));
            for (int j = first; j < first + turned / 2; j++) {
                const double angle =
                    theta ? direction * position[i] * std::pow(theta, -2.0 * (j - first) / turned) : 0;
                const double a = x(i, h, j), b = x(i, h, j + turned / 2);
                row[j] = rounded(a * std::cos(angle) - b * std::sin(angle));
                row[j + turned / 2] = rounded(a * std::sin(angle) + b * std::cos(angle));
            }
        }
}

int burst_op_rope_rows(BurstGpu *g, int64_t n, int64_t, int heads, int d, const BurstRope *rope,
                       const int32_t *position, const BurstBf16 *x, BurstBf16 *y)
{
    const double theta = rope->theta;
    const int rotary = rope->rotary;
    return compute(g, [=] {
        turn(
            n, heads, d, theta, rotary, position, 1,
            [=](int64_t i, int h, int j) { return value_of(x[(i * heads + h) * d + j]); }, y);
    });
}

int burst_op_rope(BurstGpu *g, int64_t n, int heads, int d, const BurstRope *rope, const int32_t *position,
                  const BurstBf16 *x, BurstBf16 *y)
{
    return burst_op_rope_rows(g, n, n, heads, d, rope, position, x, y);
}

/* theta 0: no rotation. */
static inline int turn_back(BurstGpu *g, int64_t n, int64_t all, int heads, int d, double theta, int rotary,
                            const int32_t *position, const float *dy, BurstBf16 *dx)
{
    return compute(g, [=] {
        turn(
            n, heads, d, theta, rotary, position, -1,
            [=](int64_t i, int h, int j) { return (double)dy[(h * all + i) * d + j]; }, dx);
    });
}

int burst_op_rope_back_rows(BurstGpu *g, int64_t n, int64_t all, int heads, int d, const BurstRope *rope,
                            const int32_t *position, const float *dy, BurstBf16 *dx)
{
    return turn_back(g, n, all, heads, d, rope->theta, rope->rotary, position, dy, dx);
}

int burst_op_rope_back(BurstGpu *g, int64_t n, int heads, int d, const BurstRope *rope,
                       const int32_t *position, const float *dy, BurstBf16 *dx)
{
    return burst_op_rope_back_rows(g, n, n, heads, d, rope, position, dy, dx);
}

int burst_op_to_tokens_rows(BurstGpu *g, int64_t n, int64_t all, int heads, int d, const float *x,
                            BurstBf16 *y)
{
    return turn_back(g, n, all, heads, d, 0, 0, NULL, x, y);
}

int burst_op_to_tokens(BurstGpu *g, int64_t n, int heads, int d, const float *x, BurstBf16 *y)
{
    return burst_op_to_tokens_rows(g, n, n, heads, d, x, y);
}

int burst_op_zero(BurstGpu *g, float *x, int64_t count)
{
    return burst_gpu_zero(g, x, (size_t)count * sizeof *x);
}

int burst_op_delta_lse(BurstGpu *g, int64_t n, int heads, int d, const BurstBf16 *o, const BurstBf16 *d_o,
                       const float *d_lse, float *delta)
{
    BURST_TRY(burst_op_delta(g, n, heads, d, o, d_o, delta));
    return burst_gpu_subtract(g, n * heads, d_lse, delta);
}

int burst_gpu_subtract(BurstGpu *g, int64_t count, const float *x, float *y)
{
    return compute(g, [=] {
        for (int64_t i = 0; i < count; i++)
            y[i] -= x[i];
    });
}

/* The weight that the keys of a row have beside the sink. */
static inline double kept_beside(BurstBf16 sink, float lse)
{
    return 1 / (1 + std::exp(value_of(sink) - lse));
}

int burst_op_sink(BurstGpu *g, int64_t n, int heads, int d, const BurstBf16 *o, const float *lse,
                  const BurstBf16 *sink, BurstBf16 *out)
{
    return compute(g, [=] {
        for (int64_t at = 0; at < n * heads * d; at++) {
            const int64_t i = at / d / heads, h = at / d % heads;
            out[at] = rounded(value_of(o[at]) * kept_beside(sink[h], lse[h * n + i]));
        }
    });
}

int burst_op_sink_back(BurstGpu *g, int64_t n, int heads, int d, const BurstBf16 *d_out, const BurstBf16 *o,
                       const float *lse, const BurstBf16 *sink, BurstBf16 *d_o, float *d_lse, float *d_sink)
{
    return compute(g, [=] {
        for (int64_t row = 0; row < n * heads; row++) {
            const int64_t h = row % heads, at = h * n + row / heads;
            const double keep = kept_beside(sink[h], lse[at]);
            double along = 0;
            for (int64_t x = row * d; x < (row + 1) * d; x++) {
                along += value_of(d_out[x]) * value_of(o[x]);
                d_o[x] = rounded(value_of(d_out[x]) * keep);
            }
            d_lse[at] = (float)(keep * (1 - keep) * along);
            d_sink[h] -= d_lse[at];
        }
    });
}

int burst_op_swiglu(BurstGpu *g, int64_t n, int ffn, const BurstBf16 *gu, BurstBf16 *a)
{
    return compute(g, [=] {
        for (int64_t i = 0; i < n * ffn; i++) {
            const BurstBf16 *gate = gu + i / ffn * 2 * ffn + i % ffn;
            a[i] = rounded(value_of(gate[0]) / (1 + std::exp(-value_of(gate[0]))) * value_of(gate[ffn]));
        }
    });
}

int burst_op_swiglu_back(BurstGpu *g, int64_t n, int ffn, const BurstBf16 *gu, const BurstBf16 *da,
                         BurstBf16 *dgu)
{
    return compute(g, [=] {
        for (int64_t i = 0; i < n * ffn; i++) {
            const int64_t at = i / ffn * 2 * ffn + i % ffn;
            const double x = value_of(gu[at]), up = value_of(gu[at + ffn]), s = 1 / (1 + std::exp(-x)),
                         d = value_of(da[i]);
            dgu[at] = rounded(d * up * s * (1 + x * (1 - s)));
            dgu[at + ffn] = rounded(d * x * s);
        }
    });
}

int burst_op_loss_head(BurstGpu *g, int64_t n, int hidden, int vocab, int64_t, int tensors, double softcap,
                       double bias_scale, const BurstBf16 *x, const BurstBf16 *w, const int32_t *label,
                       const float *weight, double scale, double *loss, BurstBf16 *dx, float *dw,
                       void *scratch)
{
    const int64_t matrix = (int64_t)vocab * hidden;
    return compute(g, [=] {
        float *p = (float *)scratch; /* the logits of a tile */
        for (int64_t t = 0; t < n; t++) {
            const double counts = label[t] < 0 ? 0 : weight[t];
            double sum = 0;
            for (int v = 0; v < vocab; v++) {
                double logit = tensors > 1 ? bias_scale * value_of(w[matrix + v]) : 0;
                for (int i = 0; i < hidden; i++)
                    logit += value_of(x[t * hidden + i]) * value_of(w[v * hidden + i]);
                logit = softcap > 0 ? softcap * std::tanh(logit / softcap) : logit;
                p[v] = (float)std::exp(logit);
                sum += p[v];
            }
            *loss += counts > 0 ? -counts * std::log(p[label[t]] / sum) : 0;
            for (int v = 0; v < vocab; v++) {
                const double part = softcap > 0 ? std::log(p[v]) / softcap : 0;
                p[v] = (float)(scale * counts * (p[v] / sum - (v == label[t])) * (1 - part * part));
                if (tensors > 1)
                    dw[matrix + v] += (float)(bias_scale * p[v]);
            }
            for (int i = 0; i < hidden; i++) {
                double d = 0;
                for (int v = 0; v < vocab; v++) {
                    d += p[v] * value_of(w[v * hidden + i]);
                    dw[v * hidden + i] += (float)(p[v] * value_of(x[t * hidden + i]));
                }
                dx[t * hidden + i] = rounded(d);
            }
        }
    });
}

int burst_op_evaluate(BurstGpu *g, int64_t n, int hidden, int vocab, int64_t, int tensors, double softcap,
                      double bias_scale, const BurstBf16 *x, const BurstBf16 *w, const int32_t *label,
                      const float *weight, double *loss, void *)
{
    const int64_t matrix = (int64_t)vocab * hidden;
    return compute(g, [=] {
        for (int64_t t = 0; t < n; t++) {
            double sum = 0, hit = 0;
            for (int v = 0; v < vocab; v++) {
                double logit = tensors > 1 ? bias_scale * value_of(w[matrix + v]) : 0;
                for (int i = 0; i < hidden; i++)
                    logit += value_of(x[t * hidden + i]) * value_of(w[v * hidden + i]);
                logit = softcap > 0 ? softcap * std::tanh(logit / softcap) : logit;
                sum += std::exp(logit);
                hit = v == label[t] ? logit : hit;
            }
            *loss += label[t] < 0 || weight[t] == 0 ? 0 : weight[t] * (std::log(sum) - hit);
        }
    });
}

int burst_op_loss(BurstGpu *g, int64_t n, int hidden, int vocab, int64_t tile, const BurstBf16 *x,
                  const BurstBf16 *w, const int32_t *label, const float *weight, double scale, double *loss,
                  BurstBf16 *dx, float *dw, void *scratch)
{
    return burst_op_loss_head(g, n, hidden, vocab, tile, 1, 0, 1, x, w, label, weight, scale, loss, dx, dw,
                              scratch);
}
