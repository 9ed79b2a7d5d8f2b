/* host/ops/layernorm.c: LayerNorm without its bias, and its gradients. Backward recomputes the mean. */
#include "burst_step.h"
#include "host/ops/vec.h"

static float mean_of(int hidden, const float *x)
{
    double sum = 0;
    for (int j = 0; j < hidden; j++)
        sum += (double)x[j];
    return (float)(sum / hidden);
}

int burst_op_layernorm(BurstExec *e, int64_t n, int hidden, double eps, const BurstAct *x, const BurstAct *w,
                       BurstAct *y, float *rstd)
{
    (void)e;
    for (int64_t i = 0; i < n; i++) {
        const float *xi = x + i * hidden, mean = mean_of(hidden, xi);
        float *yi = y + i * hidden;
        double square = 0;
        for (int j = 0; j < hidden; j++)
            square += (double)(xi[j] - mean) * (double)(xi[j] - mean);
        const float r = rstd[i] = (float)(1 / sqrt(square / hidden + eps));
        for (int j = 0; j < hidden; j++)
            yi[j] = (xi[j] - mean) * r * w[j];
    }
    return BURST_OK;
}

/* dx of one token: r (w dy - mean(w dy) - z mean(w dy z)), where z is the normed x. */
static void token_back(int hidden, const float *x, const float *w, float r, const float *dy, float *dx)
{
    const float mean = mean_of(hidden, x);
    double sum = 0, along = 0;
    for (int j = 0; j < hidden; j++) {
        const double g = (double)(w[j] * dy[j]);
        sum += g;
        along += g * (double)((x[j] - mean) * r);
    }
    const float all = (float)(sum / hidden), share = (float)(along / hidden);
    for (int j = 0; j < hidden; j++)
        dx[j] += r * (w[j] * dy[j] - all - (x[j] - mean) * r * share);
}

enum { STRIP = 64 }; /* columns at a time, so that sums over tokens are doubles */

int burst_op_layernorm_back(BurstExec *e, int64_t n, int hidden, const BurstAct *x, const float *rstd,
                            const BurstAct *dy, const BurstAct *w, BurstAct *dx, bool add, float *dw,
                            void *scratch)
{
    (void)e, (void)scratch;
    if (!add)
        memset(dx, 0, (size_t)(n * hidden) * sizeof *dx);
    for (int first = 0; first < hidden; first += STRIP) {
        double sum[STRIP] = {0};
        const int columns = hidden - first < STRIP ? hidden - first : STRIP;
        for (int64_t i = 0; i < n; i++) {
            const float mean = mean_of(hidden, x + i * hidden);
            for (int j = 0; j < columns; j++)
                sum[j] += (double)(dy[i * hidden + first + j] * (x[i * hidden + first + j] - mean) * rstd[i]);
        }
        for (int j = 0; j < columns; j++)
            dw[first + j] += (float)sum[j];
    }
    for (int64_t i = 0; i < n; i++)
        token_back(hidden, x + i * hidden, w, rstd[i], dy + i * hidden, dx + i * hidden);
    return BURST_OK;
}
