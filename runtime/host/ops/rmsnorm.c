/* host/ops/rmsnorm.c: RMSNorm and its gradients, for whole rows and parts of rows. */
#include "burst_step.h"
#include "host/ops/vec.h"

/* shift: added to w. */
static int rmsnorm(int64_t n, int hidden, double eps, const float *x, const float *w, float shift, float *y,
                   float *rstd)
{
    for (int64_t i = 0; i < n; i++) {
        const float *xi = x + i * hidden;
        float *yi = y + i * hidden, r = (float)(1 / sqrt(vec_dot(hidden, xi, xi) / hidden + eps));
        rstd[i] = r;
        for (int j = 0; j < hidden; j++)
            yi[j] = xi[j] * r * (shift + w[j]);
    }
    return BURST_OK;
}

int burst_op_rmsnorm(BurstExec *e, int64_t n, int hidden, double eps, const BurstAct *x, const BurstAct *w,
                     BurstAct *y, float *rstd)
{
    (void)e;
    return rmsnorm(n, hidden, eps, x, w, 0, y, rstd);
}

int burst_op_rmsnorm_plus(BurstExec *e, int64_t n, int hidden, double eps, const BurstAct *x,
                          const BurstAct *w, BurstAct *y, float *rstd)
{
    (void)e;
    return rmsnorm(n, hidden, eps, x, w, 1, y, rstd);
}

int burst_op_squares(BurstExec *e, int64_t n, int width, int ranks, const BurstAct *x, float *part)
{
    (void)e;
    for (int64_t i = 0; i < n; i++)
        part[i] = (float)(vec_dot(width, x + i * width, x + i * width) / ((double)width * ranks));
    return BURST_OK;
}

int burst_op_squares_back(BurstExec *e, int64_t n, int width, int ranks, const BurstAct *x,
                          const float *d_part, BurstAct *dx, bool add)
{
    (void)e;
    if (!add)
        memset(dx, 0, (size_t)(n * width) * sizeof *dx);
    for (int64_t i = 0; i < n; i++) {
        const float twice = (float)(2.0 * d_part[i] / ((double)width * ranks));
        for (int j = 0; j < width; j++)
            dx[i * width + j] += twice * x[i * width + j];
    }
    return BURST_OK;
}

int burst_op_rmsnorm_part(BurstExec *e, int64_t n, int width, double eps, const BurstAct *x,
                          const float *square, const BurstAct *w, BurstAct *y, float *rstd)
{
    (void)e;
    for (int64_t i = 0; i < n; i++) {
        const float r = rstd[i] = (float)(1 / sqrt(square[i] + eps));
        for (int j = 0; j < width; j++)
            y[i * width + j] = x[i * width + j] * r * w[j];
    }
    return BURST_OK;
}

enum { STRIP = 64 }; /* columns at a time */

/* The sum of w dy x. */
static double sum_along(int hidden, const float *x, const float *w, float shift, const float *dy)
{
    double sum = 0;
    for (int first = 0; first < hidden; first += STRIP) {
        int columns = hidden - first < STRIP ? hidden - first : STRIP;
        float scaled[STRIP];
        for (int j = 0; j < columns; j++)
            scaled[j] = (shift + w[first + j]) * dy[first + j];
        sum += vec_dot(columns, scaled, x + first);
    }
    return sum;
}

/* dx of one token: r (w dy - x r^2 mean(w dy x)). */
static void token_back(int hidden, const float *x, const float *w, float shift, float r, const float *dy,
                       float *dx)
{
    float along = (float)(sum_along(hidden, x, w, shift, dy) / hidden * r * r);
    for (int j = 0; j < hidden; j++)
        dx[j] += r * ((shift + w[j]) * dy[j] - x[j] * along);
}

/* dw of a strip of columns, so that sums over tokens are doubles without a buffer of `hidden` of them. */
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

static void weight_back(int64_t n, int hidden, const float *x, const float *rstd, const float *dy, float *dw)
{
    for (int j = 0; j < hidden; j += STRIP)
        strip_back(n, hidden, hidden - j < STRIP ? hidden - j : STRIP, x + j, rstd, dy + j, dw + j);
}

static int rmsnorm_back(int64_t n, int hidden, const float *x, const float *rstd, const float *dy,
                        const float *w, float shift, float *dx, bool add, float *dw)
{
    if (!add)
        memset(dx, 0, (size_t)(n * hidden) * sizeof *dx);
    for (int64_t i = 0; i < n; i++)
        token_back(hidden, x + i * hidden, w, shift, rstd[i], dy + i * hidden, dx + i * hidden);
    weight_back(n, hidden, x, rstd, dy, dw);
    return BURST_OK;
}

int burst_op_rmsnorm_back(BurstExec *e, int64_t n, int hidden, const BurstAct *x, const float *rstd,
                          const BurstAct *dy, const BurstAct *w, BurstAct *dx, bool add, float *dw,
                          void *scratch)
{
    (void)e, (void)scratch;
    return rmsnorm_back(n, hidden, x, rstd, dy, w, 0, dx, add, dw);
}

int burst_op_rmsnorm_plus_back(BurstExec *e, int64_t n, int hidden, const BurstAct *x, const float *rstd,
                               const BurstAct *dy, const BurstAct *w, BurstAct *dx, bool add, float *dw,
                               void *scratch)
{
    (void)e, (void)scratch;
    return rmsnorm_back(n, hidden, x, rstd, dy, w, 1, dx, add, dw);
}

int burst_op_rmsnorm_part_back(BurstExec *e, int64_t n, int width, const BurstAct *x, const float *rstd,
                               const BurstAct *dy, const BurstAct *w, BurstAct *dx, bool add, float *d_square,
                               float *dw, void *scratch)
{
    (void)e, (void)scratch;
    if (!add)
        memset(dx, 0, (size_t)(n * width) * sizeof *dx);
    for (int64_t i = 0; i < n; i++) {
        const int64_t at = i * width;
        const double r = rstd[i];
        d_square[i] = (float)(-r * r * r / 2 * sum_along(width, x + at, w, 0, dy + at));
        for (int j = 0; j < width; j++)
            dx[at + j] += rstd[i] * w[j] * dy[at + j];
    }
    weight_back(n, width, x, rstd, dy, dw);
    return BURST_OK;
}
