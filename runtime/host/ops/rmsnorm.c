/* host/ops/rmsnorm.c: RMSNorm and its gradients. */
#include "burst_rt.h"
#include "host/ops/vec.h"

void burst_rmsnorm(int64_t n, int hidden, const float *x, const float *w, double eps, float *y, float *rstd)
{
    for (int64_t i = 0; i < n; i++) {
        const float *xi = x + i * hidden;
        float *yi = y + i * hidden, r = (float)(1 / sqrt(vec_dot(hidden, xi, xi) / hidden + eps));
        rstd[i] = r;
        for (int j = 0; j < hidden; j++)
            yi[j] = xi[j] * r * w[j];
    }
}

enum { STRIP = 64 }; /* columns at a time */

/* dx of one token: r (w dy - x r^2 mean(w dy x)). */
static void token_back(int hidden, const float *x, const float *w, float r, const float *dy, float *dx)
{
    double sum = 0;
    for (int first = 0; first < hidden; first += STRIP) {
        int columns = hidden - first < STRIP ? hidden - first : STRIP;
        float scaled[STRIP];
        for (int j = 0; j < columns; j++)
            scaled[j] = w[first + j] * dy[first + j];
        sum += vec_dot(columns, scaled, x + first);
    }
    float along = (float)(sum / hidden * r * r);
    for (int j = 0; j < hidden; j++)
        dx[j] += r * (w[j] * dy[j] - x[j] * along);
}

/* dw of a strip of columns, so that the sums over tokens are doubles without a buffer of `hidden` of them. */
static void strip_back(int64_t n, int hidden, int columns, const float *x, const float *rstd, const float *dy,
                       float *dw)
{
    double sum[STRIP] = {0};
    for (int64_t i = 0; i < n; i++)
        for (int j = 0; j < columns; j++)
            sum[j] += (double)(dy[i * hidden + j] * x[i * hidden + j] * rstd[i]);
    for (int j = 0; j < columns; j++)
        dw[j] += (float)sum[j];
}

void burst_rmsnorm_back(int64_t n, int hidden, const float *x, const float *w, const float *rstd,
                        const float *dy, float *dx, float *dw)
{
    for (int64_t i = 0; i < n; i++)
        token_back(hidden, x + i * hidden, w, rstd[i], dy + i * hidden, dx + i * hidden);
    for (int j = 0; j < hidden; j += STRIP)
        strip_back(n, hidden, hidden - j < STRIP ? hidden - j : STRIP, x + j, rstd, dy + j, dw + j);
}
