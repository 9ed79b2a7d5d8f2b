/* experts64.c: a feed-forward layer of experts in float64, token by token, from its definition. */
#include "model64.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 64 }; /* experts */

typedef struct Route {
    double score[MOST], weight[MOST]; /* of all; of the chosen */
    int choice[MOST];
    double sum; /* that weights were divided by, or 1 */
    double gap; /* from the last chosen score to the next */
} Route;

/* [gate, up: [width][hidden], down: [hidden][width]] of one expert */
static const double *expert_of(const Shape64 *s, const double *w, int expert)
{
    return w + (int64_t)expert * 3 * s->ffn * s->hidden;
}

static double dot(int64_t n, const double *x, const double *y)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += x[i] * y[i];
    return sum;
}

static void set_scores(const Shape64 *s, const double *x, const double *router, double *score)
{
    double all = 0;
    for (int e = 0; e < s->experts; e++) {
        const double logit = dot(s->hidden, x, router + (int64_t)e * s->hidden);
        score[e] = s->sigmoid ? 1 / (1 + exp(-logit)) : exp(logit);
        all += score[e];
    }
    for (int e = 0; e < s->experts && !s->sigmoid; e++)
        score[e] /= all;
}

/* By repeated choice of the largest that is left, the first of equal ones. */
static void choose(const Shape64 *s, Route *r)
{
    bool taken[MOST] = {false};
    double last = 0, next = -1;
    for (int k = 0; k < s->top; k++) {
        int best = -1;
        for (int e = 0; e < s->experts; e++)
            if (!taken[e] && (best < 0 || r->score[e] > r->score[best]))
                best = e;
        taken[best] = true;
        r->choice[k] = best;
        last = r->score[best];
    }
    for (int e = 0; e < s->experts; e++)
        next = !taken[e] && r->score[e] > next ? r->score[e] : next;
    r->gap = next < 0 ? 1 : last - next;
}

static void route(const Shape64 *s, const double *x, const double *router, Route *r)
{
    set_scores(s, x, router, r->score);
    choose(s, r);
    r->sum = s->normalize ? s->score_eps : 1;
    for (int k = 0; k < s->top && s->normalize; k++)
        r->sum += r->score[r->choice[k]];
    for (int k = 0; k < s->top; k++)
        r->weight[k] = s->score_scale * r->score[r->choice[k]] / r->sum;
}

/* a[width] = silu(gate x) * up x */
static void activate(const Shape64 *s, const double *w, const double *x, double *g, double *u, double *a)
{
    for (int i = 0; i < s->ffn; i++) {
        g[i] = dot(s->hidden, x, w + (int64_t)i * s->hidden);
        u[i] = dot(s->hidden, x, w + (int64_t)(s->ffn + i) * s->hidden);
        a[i] = g[i] / (1 + exp(-g[i])) * u[i];
    }
}

double experts64_forward(const Shape64 *s, int64_t n, const double *x, const double *router, const double *w,
                         double *y)
{
    double *g = new64(3 * s->ffn), *u = g + s->ffn, *a = u + s->ffn, gap = 1;
    for (int64_t t = 0; t < n; t++) {
        Route r;
        route(s, x + t * s->hidden, router, &r);
        gap = r.gap < gap ? r.gap : gap;
        for (int k = 0; k < s->top; k++) {
            const double *of = expert_of(s, w, r.choice[k]), *down = of + 2 * (int64_t)s->ffn * s->hidden;
            activate(s, of, x + t * s->hidden, g, u, a);
            for (int i = 0; i < s->hidden; i++)
                y[t * s->hidden + i] += r.weight[k] * dot(s->ffn, a, down + (int64_t)i * s->ffn);
        }
    }
    free(g);
    return gap;
}

/* One expert's part; the gradient of its weight comes back. */
static double expert_back(const Shape64 *s, double weight, const double *w, const double *x, const double *dy,
                          double *dx, double *dw)
{
    const int64_t size = (int64_t)s->ffn * s->hidden;
    double *g = new64(4 * s->ffn), *u = g + s->ffn, *a = u + s->ffn, *da = a + s->ffn;
    activate(s, w, x, g, u, a);
    for (int i = 0; i < s->hidden; i++)
        for (int j = 0; j < s->ffn; j++) {
            da[j] += dy[i] * w[2 * size + (int64_t)i * s->ffn + j];
            dw[2 * size + (int64_t)i * s->ffn + j] += weight * dy[i] * a[j];
        }
    const double d_weight = dot(s->ffn, da, a);
    for (int j = 0; j < s->ffn; j++) {
        const double p = 1 / (1 + exp(-g[j])), slope = p * (1 + g[j] * (1 - p));
        const double dg = weight * da[j] * u[j] * slope, du = weight * da[j] * g[j] * p;
        for (int i = 0; i < s->hidden; i++) {
            dx[i] += dg * w[(int64_t)j * s->hidden + i] + du * w[size + (int64_t)j * s->hidden + i];
            dw[(int64_t)j * s->hidden + i] += dg * x[i];
            dw[size + (int64_t)j * s->hidden + i] += du * x[i];
        }
    }
    free(g);
    return d_weight;
}

/* d[k]: gradients of the chosen's weights; through their quotient and the scores into the router. */
static void router_back(const Shape64 *s, const Route *r, const double *d, const double *x,
                        const double *router, double *dx, double *drouter)
{
    double d_score[MOST] = {0}, d_sum = 0, mean = 0;
    for (int k = 0; k < s->top; k++) {
        d_score[r->choice[k]] += s->score_scale * d[k] / r->sum;
        d_sum -= s->normalize ? d[k] * r->weight[k] / r->sum : 0;
    }
    for (int k = 0; k < s->top; k++)
        d_score[r->choice[k]] += d_sum;
    for (int e = 0; e < s->experts; e++)
        mean += d_score[e] * r->score[e];
    for (int e = 0; e < s->experts; e++) {
        const double p = r->score[e], dz = s->sigmoid ? d_score[e] * p * (1 - p) : p * (d_score[e] - mean);
        for (int i = 0; i < s->hidden; i++) {
            dx[i] += dz * router[(int64_t)e * s->hidden + i];
            drouter[(int64_t)e * s->hidden + i] += dz * x[i];
        }
    }
}

void experts64_backward(const Shape64 *s, int64_t n, const double *x, const double *router, const double *w,
                        const double *dy, double *dx, double *drouter, double *dw)
{
    for (int64_t t = 0; t < n; t++) {
        const double *at = x + t * s->hidden;
        double d[MOST];
        Route r;
        route(s, at, router, &r);
        for (int k = 0; k < s->top; k++) {
            const int64_t offset = (int64_t)r.choice[k] * 3 * s->ffn * s->hidden;
            d[k] = expert_back(s, r.weight[k], w + offset, at, dy + t * s->hidden, dx + t * s->hidden,
                               dw + offset);
        }
        router_back(s, &r, d, at, router, dx + t * s->hidden, drouter);
    }
}
