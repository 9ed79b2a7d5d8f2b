/* experts64.c: a feed-forward layer of experts in float64, token by token, from its definition. */
#include "dot64.h"
#include "model64.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 64 }; /* experts */

typedef struct Route {
    double score[MOST], weight[MOST]; /* of all; of the chosen */
    int choice[MOST];
    double sum;  /* that weights were divided by, or 1 */
    double over; /* by how much the sum of scores is above its least */
    double gap;  /* from the last chosen score to the next, also of groups */
} Route;

static int64_t matrix(const Shape64 *s) { return (int64_t)s->ffn * s->hidden; }

int64_t expert64_size(const Shape64 *s)
{
    return 3 * matrix(s) + (s->expert_bias ? 2 * s->ffn + s->hidden : 0);
}

/* ---- the choice ---- */

static void set_scores(const Shape64 *s, const double *x, const Experts64 *w, double *score)
{
    double all = 0;
    for (int e = 0; e < s->experts; e++) {
        const double logit = dot64(s->hidden, x, w->router + (int64_t)e * s->hidden) +
                             (w->bias ? w->bias[e] : 0);
        score[e] = s->sigmoid ? 1 / (1 + exp(-logit)) : exp(logit);
        all += score[e];
    }
    for (int e = 0; e < s->experts && !s->sigmoid; e++)
        score[e] /= all;
}

/* The largest of n by repeated choice of what is left, the first of equal ones; the distance from the last of
 * them to the next, of those that there are, comes back. */
static double choose(int n, int top, const double *by, int *choice)
{
    bool taken[MOST] = {false};
    double last = 0, next = -INFINITY;
    for (int k = 0; k < top; k++) {
        int best = -1;
        for (int e = 0; e < n; e++)
            if (!taken[e] && (best < 0 || by[e] > by[best]))
                best = e;
        taken[best] = true;
        choice[k] = best;
        last = by[best];
    }
    for (int e = 0; e < n; e++)
        next = !taken[e] && by[e] > next ? by[e] : next;
    return next == -INFINITY ? 1 : last - next;
}

/* Largest first. */
static int descending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x < y) - (x > y);
}

/* Leaves by[] of the best groups alone; the gap of groups comes back. */
static double keep_groups(const Shape64 *s, double *by)
{
    const int each = s->experts / s->groups;
    double group[MOST], left[MOST];
    int choice[MOST];
    for (int g = 0; g < s->groups; g++) {
        memcpy(left, by + g * each, sizeof *left * (size_t)each);
        qsort(left, (size_t)each, sizeof *left, descending);
        group[g] = s->two ? left[0] + left[1] : left[0];
    }
    const double gap = choose(s->groups, s->top_groups, group, choice);
    for (int e = 0; e < s->experts; e++)
        left[e] = -INFINITY;
    for (int k = 0; k < s->top_groups; k++)
        memcpy(left + choice[k] * each, by + choice[k] * each, sizeof *left * (size_t)each);
    memcpy(by, left, sizeof *left * (size_t)s->experts);
    return gap;
}

/* Takes the given experts; how many of them are its own. */
static int64_t take(const Shape64 *s, const int32_t *choice, Route *r)
{
    int64_t agreed = 0;
    for (int k = 0; k < s->top; k++)
        for (int i = 0; i < s->top; i++)
            agreed += choice[k] == r->choice[i];
    for (int k = 0; k < s->top; k++)
        r->choice[k] = choice[k];
    return agreed;
}

/* choice: of the token; NULL: its own. How many of the given are its own comes back. */
static int64_t route(const Shape64 *s, const double *x, const Experts64 *w, const int32_t *choice, Route *r)
{
    double by[MOST], sum = s->score_eps, groups = 1;
    set_scores(s, x, w, r->score);
    for (int e = 0; e < s->experts; e++)
        by[e] = r->score[e] + (w->correction ? w->correction[e] : 0);
    if (s->groups)
        groups = keep_groups(s, by);
    r->gap = choose(s->experts, s->top, by, r->choice);
    r->gap = groups < r->gap ? groups : r->gap;
    const int64_t agreed = choice ? take(s, choice, r) : 0;
    for (int k = 0; k < s->top; k++)
        sum += r->score[r->choice[k]];
    r->over = sum - s->least;
    r->sum = s->normalize ? fmax(sum, s->least) : 1;
    for (int k = 0; k < s->top; k++)
        r->weight[k] = s->score_scale * r->score[r->choice[k]] / r->sum;
    return agreed;
}

/* ---- one expert ---- */

/* x by its gate and up, as its activation has them: clamped, with their slopes. */
typedef struct Hidden {
    double *g, *u, *a, *of_g, *of_u; /* [ffn]; of_: slopes of a */
} Hidden;

static double slope_of_clamp(double x, double low, double high)
{
    return above64(low - x) || above64(x - high) ? 0 : 1;
}

/* a = silu(alpha g) / alpha (u + offset); back: and its slopes */
static Hidden activate(const Shape64 *s, const double *w, const double *x, bool back)
{
    double *at = new64(5 * (int64_t)s->ffn);
    const Hidden h = {at, at + s->ffn, at + 2 * s->ffn, at + 3 * s->ffn, at + 4 * s->ffn};
    const double limit = s->limit > 0 ? s->limit : INFINITY, *bias = w + 3 * matrix(s);
    for (int i = 0; i < s->ffn; i++) {
        h.g[i] = dot64(s->hidden, x, w + (int64_t)i * s->hidden) + (s->expert_bias ? bias[i] : 0);
        h.u[i] = dot64(s->hidden, x, w + matrix(s) + (int64_t)i * s->hidden) +
                 (s->expert_bias ? bias[s->ffn + i] : 0);
        const double g = fmin(h.g[i], limit), u = fmin(fmax(h.u[i], -limit), limit) + s->offset,
                     p = 1 / (1 + exp(-s->alpha * g));
        h.a[i] = g * p * u;
        if (back) {
            h.of_g[i] = slope_of_clamp(h.g[i], -INFINITY, limit) * u * (p + s->alpha * g * p * (1 - p));
            h.of_u[i] = slope_of_clamp(h.u[i], -limit, limit) * g * p;
        }
        round64(1, h.g + i), round64(1, h.u + i), round64(1, h.a + i);
    }
    return h;
}

/* Element i of its output. */
static double output(const Shape64 *s, const double *w, const Hidden *h, int i)
{
    return dot64(s->ffn, h->a, w + 2 * matrix(s) + (int64_t)i * s->ffn) +
           (s->expert_bias ? w[3 * matrix(s) + 2 * s->ffn + i] : 0);
}

double experts64_forward(const Shape64 *s, int64_t n, const double *x, const Experts64 *w, double *y)
{
    double gap = 1;
    for (int64_t t = 0; t < n; t++) {
        Route r;
        const int64_t agreed = route(s, x + t * s->hidden, w, w->choice ? w->choice + t * s->top : NULL, &r);
        if (s->agreed)
            *s->agreed += agreed;
        gap = r.gap < gap ? r.gap : gap;
        for (int k = 0; k < s->top; k++) {
            const double *of = w->w + r.choice[k] * expert64_size(s);
            const Hidden h = activate(s, of, x + t * s->hidden, false);
            for (int i = 0; i < s->hidden; i++)
                y[t * s->hidden + i] += r.weight[k] * output(s, of, &h, i);
            free(h.g);
        }
        round64(s->hidden, y + t * s->hidden);
    }
    return gap;
}

/* One expert's part; the gradient of its weight comes back. */
static double expert_back(const Shape64 *s, double weight, const double *w, const double *x, const double *dy,
                          double *dx, double *dw)
{
    const int64_t size = matrix(s);
    const Hidden h = activate(s, w, x, true);
    double *da = new64(s->ffn), d_weight = 0;
    for (int i = 0; i < s->hidden; i++) {
        d_weight += dy[i] * output(s, w, &h, i);
        for (int j = 0; j < s->ffn; j++) {
            da[j] += weight * dy[i] * w[2 * size + (int64_t)i * s->ffn + j];
            dw[2 * size + (int64_t)i * s->ffn + j] += weight * dy[i] * h.a[j];
        }
        if (s->expert_bias)
            dw[3 * size + 2 * s->ffn + i] += weight * dy[i];
    }
    round64(s->ffn, da);
    for (int j = 0; j < s->ffn; j++) {
        double dg = da[j] * h.of_g[j], du = da[j] * h.of_u[j];
        round64(1, &dg), round64(1, &du);
        for (int i = 0; i < s->hidden; i++) {
            dx[i] += dg * w[(int64_t)j * s->hidden + i] + du * w[size + (int64_t)j * s->hidden + i];
            dw[(int64_t)j * s->hidden + i] += dg * x[i];
            dw[size + (int64_t)j * s->hidden + i] += du * x[i];
        }
        if (s->expert_bias)
            dw[3 * size + j] += dg, dw[3 * size + s->ffn + j] += du;
    }
    free(da), free(h.g);
    return d_weight;
}

/* d[k]: gradients of the chosen's weights; through their quotient and the scores into the router. */
static void router_back(const Shape64 *s, const Route *r, const double *d, const double *x,
                        const Experts64 *w, double *dx, const Experts64 *dw)
{
    const bool follows = s->normalize && above64(r->over); /* the sum is that of scores, and no constant */
    double d_score[MOST] = {0}, d_sum = 0, mean = 0;
    for (int k = 0; k < s->top; k++) {
        d_score[r->choice[k]] += s->score_scale * d[k] / r->sum;
        d_sum -= follows ? d[k] * r->weight[k] / r->sum : 0;
    }
    for (int k = 0; k < s->top; k++)
        d_score[r->choice[k]] += d_sum;
    for (int e = 0; e < s->experts; e++)
        mean += d_score[e] * r->score[e];
    for (int e = 0; e < s->experts; e++) {
        const double p = r->score[e], dz = s->sigmoid ? d_score[e] * p * (1 - p) : p * (d_score[e] - mean);
        if (dw->bias)
            dw->bias[e] += dz;
        for (int i = 0; i < s->hidden; i++) {
            dx[i] += dz * w->router[(int64_t)e * s->hidden + i];
            dw->router[(int64_t)e * s->hidden + i] += dz * x[i];
        }
    }
}

void experts64_backward(const Shape64 *s, int64_t n, const double *x, const Experts64 *w, const double *dy,
                        double *dx, const Experts64 *dw)
{
    for (int64_t t = 0; t < n; t++) {
        const double *at = x + t * s->hidden;
        double d[MOST];
        Route r;
        route(s, at, w, w->choice ? w->choice + t * s->top : NULL, &r);
        for (int k = 0; k < s->top; k++) {
            const int64_t offset = r.choice[k] * expert64_size(s);
            d[k] = expert_back(s, r.weight[k], w->w + offset, at, dy + t * s->hidden, dx + t * s->hidden,
                               dw->w + offset);
        }
        router_back(s, &r, d, at, w, dx + t * s->hidden, dw);
        round64(s->hidden, dx + t * s->hidden);
    }
}
