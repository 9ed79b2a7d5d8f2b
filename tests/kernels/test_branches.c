/* test_branches.c: the elementwise operations of recurrent layers and the causal convolution, against their
 * definitions in double; gradients against central differences of sum(y dy). */
#include "burst_step.h"
#include "kernel_test.h"

enum { MOST_INPUTS = 4 };
static const double VALUES = 3e-7, GRADIENTS = 2e-6;

/* An operation: inputs in doubles, one output. */
typedef struct Case {
    int64_t length[MOST_INPUTS], out;
    double *in[MOST_INPUTS];
    const void *sizes;
    void (*value)(const struct Case *, double *y);
} Case;

static double loss(const Case *c, const float *dy)
{
    double *y = zero_doubles(c->out), sum = 0;
    c->value(c, y);
    for (int64_t i = 0; i < c->out; i++)
        sum += y[i] * dy[i];
    free(y);
    return sum;
}

/* d += the gradient by input `which`. */
static void add_gradient(Case *c, int which, const float *dy, double *d)
{
    for (int64_t i = 0; i < c->length[which]; i++) {
        double *const x = c->in[which] + i, at = *x, h = 1e-5;
        *x = at + h;
        const double more = loss(c, dy);
        *x = at - h;
        d[i] += (more - loss(c, dy)) / (2 * h);
        *x = at;
    }
}

static double *in_doubles(const float *x, int64_t n)
{
    double *y = zero_doubles(n);
    for (int64_t i = 0; i < n; i++)
        y[i] = x[i];
    return y;
}

static void check_value(const Case *c, const float *y)
{
    double *want = zero_doubles(c->out);
    c->value(c, want);
    assert_close(c->out, y, want, VALUES);
    free(want);
}

/* before: what the gradient is added to, or NULL. */
static void check_gradient(Case *c, int which, const float *dy, const float *before, const float *d)
{
    double *want = before ? in_doubles(before, c->length[which]) : zero_doubles(c->length[which]);
    add_gradient(c, which, dy, want);
    assert_close(c->length[which], d, want, GRADIENTS);
    free(want);
}

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }
static double gate_of(int gate, double z)
{
    const double by[] = {
        [BURST_GATE_PLAIN] = z, [BURST_GATE_SIGMOID] = sigmoid(z), [BURST_GATE_SILU] = z * sigmoid(z)};
    return by[gate];
}

/* ---- gate ---- */

typedef struct Gating {
    int gate;
    double scale;
} Gating;

static void gate_value(const Case *c, double *y)
{
    const Gating *g = c->sizes;
    for (int64_t i = 0; i < c->out; i++)
        y[i] = c->in[0][i] * gate_of(g->gate, g->scale * c->in[1][i]);
}

static void gates(void **state)
{
    (void)state;
    for (int gate = 0; gate < BURST_GATES; gate++)
        for (int64_t n = 0; n < 40; n += 13) {
            Random r = {(uint64_t)n + 1};
            float *x = random_array(&r, n), *z = random_array(&r, n), *dy = random_array(&r, n),
                  *y = random_array(&r, n), *dz = random_array(&r, n);
            const Gating g = {gate, 1 + (double)n / 20};
            Case c = {{n, n}, n, {in_doubles(x, n), in_doubles(z, n)}, &g, gate_value};
            burst_op_gate_elements(NULL, gate, g.scale, n, 1, x, z, y);
            check_value(&c, y);
            float *dx = copy_array(dy, n);
            burst_op_gate_elements_back(NULL, gate, g.scale, n, 1, x, z, dx, dx, dz); /* in place */
            check_gradient(&c, 0, dy, NULL, dx);
            check_gradient(&c, 1, dy, NULL, dz);
            free(x), free(z), free(dy), free(y), free(dx), free(dz), free(c.in[0]), free(c.in[1]);
        }
}

/* ---- norms ---- */

static void norm_value(const Case *c, double *y)
{
    const BurstGatedNorm *m = c->sizes;
    const double scale = m->scale > 0 ? m->scale : 1;
    for (int64_t i = 0; i < c->out / m->width; i++) {
        const double *x = c->in[0] + i * m->width, *z = c->in[1] + i * m->width;
        const double *w = c->in[2] + (m->shared ? 0 : i % m->groups * m->width);
        double square = 0;
        for (int j = 0; j < m->width; j++)
            square += pow(x[j] * (m->before ? gate_of(m->gate, scale * z[j]) : 1), 2) / m->width;
        for (int j = 0; j < m->width; j++)
            y[i * m->width + j] = x[j] * gate_of(m->gate, scale * z[j]) / sqrt(square + m->eps) * w[j];
    }
}

static void check_gated_norm(int64_t n, BurstGatedNorm m)
{
    Random r = {(uint64_t)(n * 10 + m.width)};
    const int64_t count = n * m.groups * m.width, weights = (m.shared ? 1 : m.groups) * (int64_t)m.width;
    float *x = random_array(&r, count), *z = random_array(&r, count), *w = random_array(&r, weights),
          *dy = random_array(&r, count), *y = random_array(&r, count), *dx = random_array(&r, count),
          *dz = random_array(&r, count), *dw = random_array(&r, weights),
          *rstd = random_array(&r, n * m.groups), *dw_before = copy_array(dw, weights);
    Case c = {{count, count, weights},
              count,
              {in_doubles(x, count), in_doubles(z, count), in_doubles(w, weights)},
              &m,
              norm_value};
    burst_op_gated_norm(NULL, n, &m, x, z, w, y, rstd);
    burst_op_gated_norm_back(NULL, n, &m, x, z, w, rstd, dy, dx, dz, dw, NULL);
    check_value(&c, y);
    check_gradient(&c, 0, dy, NULL, dx);
    check_gradient(&c, 1, dy, NULL, dz);
    check_gradient(&c, 2, dy, dw_before, dw);
    free(x), free(z), free(w), free(dy), free(y), free(dx), free(dz), free(dw), free(rstd), free(dw_before);
    for (int i = 0; i < 3; i++)
        free(c.in[i]);
}

static void gated_norms(void **state)
{
    (void)state;
    for (int gate = 0; gate < BURST_GATES; gate++)
        for (int before = 0; before < 2; before++)
            for (int shared = 0; shared < 2; shared++)
                for (int64_t n = 0; n < 6; n += 2)
                    check_gated_norm(n, (BurstGatedNorm){3, 10, shared, before, gate, 1e-5, shared * 0.6});
}

static void plus_value(const Case *c, double *y)
{
    const int64_t hidden = c->length[1];
    for (int64_t i = 0; i < c->out / hidden; i++) {
        double square = 1e-5;
        for (int64_t j = 0; j < hidden; j++)
            square += pow(c->in[0][i * hidden + j], 2) / (double)hidden;
        for (int64_t j = 0; j < hidden; j++)
            y[i * hidden + j] = c->in[0][i * hidden + j] / sqrt(square) * (1 + c->in[1][j]);
    }
}

static void plus(void **state)
{
    enum { HIDDEN = 19 };
    (void)state;
    for (int64_t n = 0; n < 10; n += 3) {
        Random r = {(uint64_t)n};
        const int64_t count = n * HIDDEN;
        float *x = random_array(&r, count), *w = random_array(&r, HIDDEN), *dy = random_array(&r, count),
              *y = random_array(&r, count), *dx = random_array(&r, count), *rstd = random_array(&r, n),
              *dw = random_array(&r, HIDDEN), *dw_before = copy_array(dw, HIDDEN),
              *added = copy_array(dx, count);
        Case c = {{count, HIDDEN}, count, {in_doubles(x, count), in_doubles(w, HIDDEN)}, NULL, plus_value};
        burst_op_rmsnorm_plus(NULL, n, HIDDEN, 1e-5, x, w, y, rstd);
        burst_op_rmsnorm_plus_back(NULL, n, HIDDEN, x, rstd, dy, w, dx, true, dw, NULL);
        check_value(&c, y);
        check_gradient(&c, 0, dy, added, dx);
        check_gradient(&c, 1, dy, dw_before, dw);
        free(x), free(w), free(dy), free(y), free(dx), free(rstd), free(dw), free(dw_before), free(added);
        free(c.in[0]), free(c.in[1]);
    }
}

/* ---- the convolution: of a sequence with documents, whole and in pieces with halos ---- */

typedef struct Convolved {
    BurstConv c;
    const int32_t *place;
    bool bias;
} Convolved;

/* Of three sections of the channels. */
static double scale_of(const BurstConv *c, int64_t channel)
{
    double scale = c->scale[0] > 0 ? c->scale[0] : 1;
    for (int i = 0; i < 2 && c->scale[0] > 0; i++)
        scale = channel >= c->from[i] ? c->scale[i + 1] : scale;
    return scale;
}

static void conv_value(const Case *c, double *y)
{
    const Convolved *v = c->sizes;
    const int channels = v->c.channels, kernel = v->c.kernel;
    for (int64_t at = 0; at < c->out; at++) {
        const int64_t t = at / channels, i = at % channels;
        double sum = v->bias ? c->in[2][i] : 0;
        for (int j = 0; j < kernel; j++) {
            const int back = kernel - 1 - j;
            sum += back > v->place[t]
                       ? 0
                       : c->in[1][i * kernel + j] * scale_of(&v->c, i) * c->in[0][(t - back) * channels + i];
        }
        y[at] = v->c.silu ? gate_of(BURST_GATE_SILU, sum) : sum;
    }
}

/* Each piece on a rank of its own. */
static void check_conv(Random *r, BurstConv c, const int64_t *border, int pieces, const int32_t *place,
                       bool bias)
{
    const int64_t n = border[pieces], count = n * c.channels, weights = c.channels * c.kernel,
                  halo = (int64_t)(c.kernel - 1) * c.channels;
    const Convolved v = {c, place, bias};
    float *x = random_array(r, count), *w = random_array(r, weights), *b = random_array(r, c.channels),
          *dy = random_array(r, count), *y = random_array(r, count), *dx = random_array(r, count),
          *dw = random_array(r, weights), *db = random_array(r, c.channels),
          *dw_before = copy_array(dw, weights), *db_before = copy_array(db, c.channels),
          *tails = random_array(r, (pieces + 1) * halo), *d_halo = random_array(r, (pieces + 1) * halo),
          *scratch = random_array(r, c.channels);
    for (int i = 0; i < pieces; i++) {
        const int64_t first[2] = {0, border[i + 1] - border[i]}, at = border[i] * c.channels;
        const BurstPieces p = {1, first};
        burst_op_conv_tails(NULL, &c, &p, x + at, tails + (i + 1) * halo);
        burst_op_conv(NULL, first[1], &c, &p, place + border[i], x + at, i ? tails + i * halo : NULL, w,
                      bias ? b : NULL, y + at);
        burst_op_conv_back(NULL, first[1], &c, &p, place + border[i], x + at, i ? tails + i * halo : NULL, w,
                           bias ? b : NULL, dy + at, dx + at, i ? d_halo + i * halo : NULL, dw,
                           bias ? db : NULL, scratch);
        if (i > 0) { /* the piece before has these rows */
            const int64_t before[2] = {0, border[i] - border[i - 1]};
            burst_op_conv_tails_back(NULL, &c, &(BurstPieces){1, before}, d_halo + i * halo,
                                     dx + border[i - 1] * c.channels);
        }
    }
    Case k = {{count, weights, c.channels},
              count,
              {in_doubles(x, count), in_doubles(w, weights), in_doubles(b, c.channels)},
              &v,
              conv_value};
    check_value(&k, y);
    check_gradient(&k, 0, dy, NULL, dx);
    check_gradient(&k, 1, dy, dw_before, dw);
    if (bias)
        check_gradient(&k, 2, dy, db_before, db);
    free(x), free(w), free(b), free(dy), free(y), free(dx), free(dw), free(db), free(dw_before),
        free(db_before);
    free(tails), free(d_halo), free(scratch), free(k.in[0]), free(k.in[1]), free(k.in[2]);
}

static void convolutions(void **state)
{
    (void)state;
    for (int i = 0; i < 40; i++) {
        Random r = {(uint64_t)i};
        const BurstConv c = {.channels = 1 + i % 5,
                             .kernel = 2 + i % 3,
                             .silu = i % 4 != 0,
                             .from = {1, 2 + i % 2},
                             .scale = {i % 2 * 0.7, 1.5, 0.4}};
        const int pieces = 1 + (int)(random_bits(&r) % 4);
        int64_t border[5] = {0};
        int32_t place[64] = {0};
        for (int p = 0; p < pieces; p++)
            border[p + 1] = border[p] + c.kernel - 1 + random_bits(&r) % 9;
        for (int64_t t = 1; t < border[pieces]; t++)
            if (random_bits(&r) % (i % 2 ? 3 : 12))
                place[t] = place[t - 1] + 1;
        check_conv(&r, c, border, pieces, place, i % 3 == 0);
    }
}

/* ---- what tokens write by and forget by ---- */

/* Output: beta of all, then decays. */
static void gates_value(const Case *c, double *y)
{
    const BurstScan *s = c->sizes;
    for (int64_t i = 0; i < c->out / 2; i++) {
        const int64_t head = i % s->heads, row = i / s->heads * (s->read ? 2 * s->heads : s->heads) + head;
        const double alpha = (s->step_scale > 0 ? s->step_scale : 1) *
                                 c->in[0][row + (s->read ? s->heads : 0)] +
                             c->in[2][head];
        double softplus = log(1 + exp(alpha));
        if (!s->read)
            softplus = fmin(fmax(softplus, s->step_least), s->step_most);
        y[i] = s->read ? s->beta_most * sigmoid(c->in[0][row]) : softplus;
        y[c->out / 2 + i] = -exp(c->in[1][head]) * softplus;
    }
}

static void scan_gates(void **state)
{
    (void)state;
    for (int read = 0; read < BURST_SCAN_READS; read++)
        for (int64_t n = 0; n < 20; n += 6) {
            Random r = {(uint64_t)n + 5};
            const BurstScan s = {.heads = 3,
                                 .read = read,
                                 .beta_most = 2,
                                 .step_least = 0.1,
                                 .step_most = 1.5,
                                 .step_scale = n > 6 ? 0.3 : 0};
            const int64_t gates = n * s.heads, raws = gates * (read ? 2 : 1);
            float *raw = random_array(&r, raws), *a_log = random_array(&r, 3), *bias = random_array(&r, 3),
                  *d = random_array(&r, 2 * gates), *y = random_array(&r, 2 * gates),
                  *d_raw = random_array(&r, raws), *d_log = random_array(&r, 3),
                  *d_bias = random_array(&r, 3), *log_before = copy_array(d_log, 3),
                  *bias_before = copy_array(d_bias, 3);
            Case c = {{raws, 3, 3},
                      2 * gates,
                      {in_doubles(raw, raws), in_doubles(a_log, 3), in_doubles(bias, 3)},
                      &s,
                      gates_value};
            burst_op_scan_gates(NULL, n, &s, raw, a_log, bias, y, y + gates);
            burst_op_scan_gates_back(NULL, n, &s, raw, a_log, bias, d, d + gates, d_raw, d_log, d_bias, NULL);
            check_value(&c, y);
            check_gradient(&c, 0, d, NULL, d_raw);
            check_gradient(&c, 1, d, log_before, d_log);
            check_gradient(&c, 2, d, bias_before, d_bias);
            free(raw), free(a_log), free(bias), free(d), free(y), free(d_raw), free(d_log), free(d_bias);
            free(log_before), free(bias_before), free(c.in[0]), free(c.in[1]), free(c.in[2]);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(gates), cmocka_unit_test(gated_norms),
                                       cmocka_unit_test(plus), cmocka_unit_test(convolutions),
                                       cmocka_unit_test(scan_gates)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
