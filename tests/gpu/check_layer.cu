/* check_layer.cu: RMSNorm, RoPE, SwiGLU, attention's delta and addition against references in double. */
#include "check.h"

#include <math.h>

/* ---- RMSNorm ---- */
typedef struct Norm {
    int n, hidden;
    Floats x, w, dy, add, dw;
    Doubles y, rstd, dx, dw_after;
} Norm;

static const double norm_eps = 1e-5;

static Norm norm_case(int n, int hidden)
{
    Norm m;
    const size_t count = (size_t)n * hidden;
    m.n = n, m.hidden = hidden;
    m.x = random_bf16(count, 11, 1.5), m.dy = random_bf16(count, 12, 1), m.add = random_bf16(count, 13, 0.5);
    m.w = random_bf16((size_t)hidden, 14, 1), m.dw = random_floats((size_t)hidden, 15, 1);
    m.y.resize(count), m.rstd.resize((size_t)n), m.dx.resize(count);
    m.dw_after.assign(m.dw.begin(), m.dw.end());
    return m;
}

static void norm_row(Norm *m, int row)
{
    const size_t at = (size_t)row * m->hidden;
    double square = 0, along = 0;
    for (int j = 0; j < m->hidden; j++) {
        square += (double)m->x[at + j] * m->x[at + j];
        along += (double)m->w[j] * m->dy[at + j] * m->x[at + j];
    }
    const double r = m->rstd[row] = 1 / sqrt(square / m->hidden + norm_eps);
    for (int j = 0; j < m->hidden; j++) {
        const double x = m->x[at + j], dy = m->dy[at + j], w = m->w[j];
        m->y[at + j] = x * r * w;
        m->dx[at + j] = m->add[at + j] + r * (w * dy - x * r * r * along / m->hidden);
        m->dw_after[j] += dy * x * r;
    }
}

static double *norm_scratch(Check *k, int hidden)
{
    return (double *)poisoned(k, (size_t)burst_gpu_norm_doubles(hidden) * sizeof(double));
}

static void check_norm(Check *k, int n, int hidden)
{
    Norm m = norm_case(n, hidden);
    const size_t count = (size_t)n * hidden;
    for (int row = 0; row < n; row++)
        norm_row(&m, row);
    BurstBf16 *x = up_bf16(k, m.x), *w = up_bf16(k, m.w), *y = (BurstBf16 *)poisoned(k, count * sizeof *y),
              *dx = up_bf16(k, m.add);
    float *rstd = (float *)poisoned(k, (size_t)n * sizeof *rstd), *dw = up(k, m.dw);
    double *scratch = norm_scratch(k, hidden);
    MUST(k, burst_op_rmsnorm(k->g, n, hidden, norm_eps, x, w, y, rstd));
    compare(k, "rmsnorm", down_bf16(k, y, count), m.y, BF16);
    compare(k, "rmsnorm, rstd", down(k, rstd, (size_t)n), m.rstd, FP32);
    MUST(k, burst_op_rmsnorm_back(k->g, n, hidden, x, rstd, up_bf16(k, m.dy), w, dx, true, dw, scratch));
    compare(k, "rmsnorm_back", down_bf16(k, dx, count), m.dx, BF16);
    compare(k, "rmsnorm_back, dw", down(k, dw, (size_t)hidden), m.dw_after, FP32);
    for (size_t i = 0; i < count; i++)
        m.dx[i] -= m.add[i];
    MUST(k, burst_op_rmsnorm_back(k->g, n, hidden, x, rstd, up_bf16(k, m.dy), w, dx, false, dw, scratch));
    compare(k, "rmsnorm_back, nothing added", down_bf16(k, dx, count), m.dx, BF16);
}

/* A rank's part of rows is all of them here, twice: on two ranks that have the same. */
static void check_norm_of_parts(Check *k, int n, int hidden)
{
    Norm m = norm_case(n, hidden);
    const size_t count = (size_t)n * hidden, rows = (size_t)n;
    for (int row = 0; row < n; row++)
        norm_row(&m, row);
    BurstBf16 *x = up_bf16(k, m.x), *w = up_bf16(k, m.w), *y = (BurstBf16 *)poisoned(k, count * sizeof *y),
              *dx = (BurstBf16 *)poisoned(k, count * sizeof *dx), *dy = up_bf16(k, m.dy);
    float *part = (float *)poisoned(k, rows * sizeof *part),
          *rstd = (float *)poisoned(k, rows * sizeof *rstd),
          *d_square = (float *)poisoned(k, rows * sizeof *d_square), *dw = up(k, m.dw);
    MUST(k, burst_op_squares(k->g, n, hidden, 2, x, part));
    Floats square = down(k, part, rows);
    for (float &s : square)
        s *= 2; /* the sum over both */
    MUST(k, burst_op_rmsnorm_part(k->g, n, hidden, norm_eps, x, up(k, square), w, y, rstd));
    compare(k, "rmsnorm of parts", down_bf16(k, y, count), m.y, BF16);
    compare(k, "rmsnorm of parts, rstd", down(k, rstd, rows), m.rstd, FP32);
    MUST(k, burst_op_rmsnorm_part_back(k->g, n, hidden, x, rstd, dy, w, dx, false, d_square, dw,
                                       norm_scratch(k, hidden)));
    compare(k, "rmsnorm_back of parts, dw", down(k, dw, (size_t)hidden), m.dw_after, FP32);
    Doubles first(count), d_squares(rows), second(count);
    for (size_t i = 0; i < count; i++) {
        const double r = m.rstd[i / hidden], scaled = (double)m.w[i % hidden] * m.dy[i];
        first[i] = r * scaled;
        d_squares[i / hidden] -= r * r * r / 2 * scaled * m.x[i];
    }
    compare(k, "rmsnorm_back of parts", down_bf16(k, dx, count), first, BF16);
    compare(k, "rmsnorm_back of parts, d_square", down(k, d_square, rows), d_squares, FP32);
    for (size_t i = 0; i < count; i++)
        second[i] = m.add[i] + 2 * (double)m.x[i] * d_squares[i / hidden] / hidden / 2;
    BurstBf16 *sum = up_bf16(k, m.add);
    MUST(k, burst_op_squares_back(k->g, n, hidden, 2, x, d_square, sum, true));
    compare(k, "squares_back", down_bf16(k, sum, count), second, BF16);
}

/* ---- a bias ---- */
static void check_bias(Check *k, int n, int width)
{
    const size_t count = (size_t)n * width;
    const Floats x = random_bf16(count, 16, 1.5), b = random_bf16((size_t)width, 17, 1),
                 before = random_floats((size_t)width, 18, 1);
    Doubles y(count), db(before.begin(), before.end());
    for (size_t i = 0; i < count; i++) {
        y[i] = (double)x[i] + b[i % width];
        db[i % width] += x[i];
    }
    BurstBf16 *at = up_bf16(k, x), *sum = (BurstBf16 *)poisoned(k, count * sizeof *sum);
    float *gradient = up(k, before);
    MUST(k, burst_op_bias(k->g, n, width, at, up_bf16(k, b), sum));
    compare(k, "bias", down_bf16(k, sum, count), y, BF16);
    MUST(k, burst_op_bias_back(k->g, n, width, at, gradient));
    compare(k, "bias_back", down(k, gradient, (size_t)width), db, FP32);
}

/* ---- many rows ---- */
/* The first row of each chain of fp32 sums is large, and all others are an eighth of its unit in the last
 * place beyond a multiple of that: a chain that goes on in fp32 loses as much with every row. */
static Floats chained(size_t n, int width, size_t chains)
{
    Floats x(n * width, 0x1.02p-11f);
    for (size_t i = 0; i < chains * width; i++)
        x[i] = 256;
    return x;
}

static Doubles column_sums(const Floats &x, int width)
{
    Doubles sum(width);
    for (size_t i = 0; i < x.size(); i++)
        sum[i % width] += x[i];
    return sum;
}

/* x is 1, and so is rstd: dw is the sum of dy. */
static void check_long_norm(Check *k, int64_t n, int hidden, size_t chains)
{
    const Floats dy = chained((size_t)n, hidden, chains);
    BurstBf16 *x = up_bf16(k, Floats(dy.size(), 1)), *w = up_bf16(k, Floats(hidden, 1)), *dx = up_bf16(k, dy);
    float *rstd = up(k, Floats((size_t)n, 1)), *dw = up(k, Floats(hidden));
    MUST(k, burst_op_rmsnorm_back(k->g, n, hidden, x, rstd, dx, w, dx, false, dw, norm_scratch(k, hidden)));
    compare(k, "rmsnorm_back, dw of many rows", down(k, dw, (size_t)hidden), column_sums(dy, hidden), FP32);
}

static void check_long_bias(Check *k, int64_t n, int width, size_t chains)
{
    const Floats dy = chained((size_t)n, width, chains);
    float *db = up(k, Floats(width));
    MUST(k, burst_op_bias_back(k->g, n, width, up_bf16(k, dy), db));
    compare(k, "bias_back of many rows", down(k, db, (size_t)width), column_sums(dy, width), FP32);
}

/* ---- RoPE ---- */
static Doubles rotated(int n, int heads, int d, double theta, const std::vector<int32_t> &position,
                       double direction, const Floats &x)
{
    Doubles y(x.size());
    for (int row = 0; row < n * heads; row++)
        for (int j = 0; j < d / 2; j++) {
            const size_t at = (size_t)row * d + j;
            const double angle = position[row / heads] * pow(theta, -2.0 * j / d), s = direction * sin(angle),
                         c = cos(angle);
            y[at] = x[at] * c - x[at + d / 2] * s;
            y[at + d / 2] = x[at + d / 2] * c + x[at] * s;
        }
    return y;
}

/* [heads][n][d] to [n][heads * d]. */
static Floats by_tokens(int n, int heads, int d, const Floats &x)
{
    Floats y(x.size());
    for (size_t i = 0; i < x.size(); i++) {
        const size_t head = i / ((size_t)n * d), row = i / d % n;
        y[(row * heads + head) * d + i % d] = x[i];
    }
    return y;
}

/* longrope: each pair's frequency by its own factor, the long ones of a sequence that is longer. */
static void check_longrope(Check *k, int d)
{
    enum { TOKENS = 70, HEADS = 3 };
    BurstRopeFactors factors = {};
    BurstRope turn = {};
    turn.theta = 1e4, turn.kind = BURST_ROPE_LONGROPE, turn.original = 4096, turn.attention = 1.19;
    turn.factors = &factors;
    factors.count = d / 2;
    for (int j = 0; j < d / 2; j++)
        factors.short_factor[j] = 1 + 0.01 * j, factors.long_factor[j] = 1 + 0.3 * j;
    const size_t count = (size_t)TOKENS * HEADS * d;
    const Floats x = random_bf16(count, 25, 1);
    const std::vector<int32_t> position = random_ints(TOKENS, 26, 1 << 17);
    for (const double length : {4096.0, 4097.0}) {
        turn.length = length;
        Doubles y(count);
        for (int row = 0; row < TOKENS * HEADS; row++)
            for (int j = 0; j < d / 2; j++) {
                const double by = length > 4096 ? 1 + 0.3 * j : 1 + 0.01 * j,
                             angle = position[row / HEADS] * pow(1e4, -2.0 * j / d) / by;
                const size_t at = (size_t)row * d + j;
                y[at] = 1.19 * (x[at] * cos(angle) - x[at + d / 2] * sin(angle));
                y[at + d / 2] = 1.19 * (x[at + d / 2] * cos(angle) + x[at] * sin(angle));
            }
        BurstBf16 *z = up_bf16(k, x);
        MUST(k, burst_op_rope(k->g, TOKENS, HEADS, d, &turn, up(k, position), z, z));
        compare(k, "longrope", down_bf16(k, z, count), y, BF16);
    }
}

static void check_rope(Check *k, int d)
{
    enum { TOKENS = 70, HEADS = 3 };
    const double theta = 5e5;
    BurstRope turn = {};
    turn.theta = theta;
    const size_t count = (size_t)TOKENS * HEADS * d;
    const Floats x = random_bf16(count, 21, 1), dy = random_floats(count, 22, 1),
                 dy_tokens = by_tokens(TOKENS, HEADS, d, dy);
    std::vector<int32_t> position = random_ints(TOKENS, 23, 4 << 20);
    position[0] = 0;
    int32_t *at = up(k, position);
    BurstBf16 *y = up_bf16(k, x), *dx = (BurstBf16 *)poisoned(k, count * sizeof *dx);
    MUST(k, burst_op_rope(k->g, TOKENS, HEADS, d, &turn, at, y, y));
    compare(k, "rope", down_bf16(k, y, count), rotated(TOKENS, HEADS, d, theta, position, 1, x), BF16);
    MUST(k, burst_op_rope_back(k->g, TOKENS, HEADS, d, &turn, at, up(k, dy), dx));
    compare(k, "rope_back", down_bf16(k, dx, count),
            rotated(TOKENS, HEADS, d, theta, position, -1, dy_tokens), BF16);
    MUST(k, burst_op_to_tokens(k->g, TOKENS, HEADS, d, up(k, dy), dx));
    compare(k, "rope_back, no rotation", down_bf16(k, dx, count), Doubles(dy_tokens.begin(), dy_tokens.end()),
            BF16);
}

/* ---- SwiGLU ---- */
static void check_swiglu(Check *k)
{
    enum { TOKENS = 37, FFN = 2104 };
    const Floats gu = random_bf16(2 * TOKENS * FFN, 31, 3), da = random_bf16(TOKENS * FFN, 32, 1);
    Doubles a(TOKENS * FFN), dgu(2 * TOKENS * FFN);
    for (int row = 0; row < TOKENS; row++)
        for (int j = 0; j < FFN; j++) {
            const size_t gate = (size_t)2 * row * FFN + j, up_at = gate + FFN, at = (size_t)row * FFN + j;
            const double x = gu[gate], u = gu[up_at], s = 1 / (1 + exp(-x));
            a[at] = x * s * u;
            dgu[up_at] = da[at] * x * s;
            dgu[gate] = da[at] * u * (s + x * s * (1 - s));
        }
    BurstBf16 *both = up_bf16(k, gu), *out = (BurstBf16 *)poisoned(k, a.size() * sizeof *out);
    BurstBf16 *d = (BurstBf16 *)poisoned(k, dgu.size() * sizeof *d);
    MUST(k, burst_op_swiglu(k->g, TOKENS, FFN, both, out));
    compare(k, "swiglu", down_bf16(k, out, a.size()), a, BF16);
    MUST(k, burst_op_swiglu_back(k->g, TOKENS, FFN, both, up_bf16(k, da), d));
    compare(k, "swiglu_back", down_bf16(k, d, dgu.size()), dgu, BF16);
}

/* ---- delta, add ---- */
static void check_delta(Check *k, int d)
{
    enum { TOKENS = 45, HEADS = 3 };
    const Floats o = random_bf16((size_t)TOKENS * HEADS * d, 41, 1), d_o = random_bf16(o.size(), 42, 1);
    Doubles want(TOKENS * HEADS);
    for (int row = 0; row < TOKENS * HEADS; row++)
        for (int j = 0; j < d; j++)
            want[(size_t)(row % HEADS * TOKENS + row / HEADS)] += (double)o[(size_t)row * d + j] *
                                                                  d_o[(size_t)row * d + j];
    float *delta = (float *)poisoned(k, want.size() * sizeof *delta);
    MUST(k, burst_op_delta(k->g, TOKENS, HEADS, d, up_bf16(k, o), up_bf16(k, d_o), delta));
    compare(k, "delta", down(k, delta, want.size()), want, FP32);
}

/* ---- learned sinks ---- */
/* above: how far keys' scores lie above the sinks', whose weights are then next to none. */
static void check_sink(Check *k, int d, float above)
{
    enum { TOKENS = 45, HEADS = 3, ROWS = TOKENS * HEADS };
    const Floats o = random_bf16((size_t)ROWS * d, 61, 1), d_out = random_bf16(o.size(), 62, 1),
                 sink = random_bf16(HEADS, 63, 1);
    Floats lse = random_floats(ROWS, 64, 1);
    const Floats d_sink = random_floats(HEADS, 65, 1);
    for (float &x : lse)
        x += above;
    lse[7] = -INFINITY; /* a row without keys */
    Doubles out(o.size()), d_o(o.size()), d_lse(ROWS), total(d_sink.begin(), d_sink.end());
    for (int row = 0; row < ROWS; row++) {
        const int head = row % HEADS, at = head * TOKENS + row / HEADS;
        const double keep = 1 / (1 + exp((double)sink[(size_t)head] - lse[(size_t)at]));
        for (int j = 0; j < d; j++) {
            const size_t i = (size_t)row * d + j;
            out[i] = keep * o[i], d_o[i] = keep * d_out[i];
            d_lse[(size_t)at] += keep * (1 - keep) * d_out[i] * o[i];
        }
        total[(size_t)head] -= d_lse[(size_t)at];
    }
    BurstBf16 *y = (BurstBf16 *)poisoned(k, o.size() * sizeof *y), *dx = up_bf16(k, d_out);
    float *of_lse = (float *)poisoned(k, ROWS * sizeof *of_lse), *sum = up(k, d_sink);
    MUST(k, burst_op_sink(k->g, TOKENS, HEADS, d, up_bf16(k, o), up(k, lse), up_bf16(k, sink), y));
    compare(k, "sink", down_bf16(k, y, o.size()), out, BF16);
    MUST(k, burst_op_sink_back(k->g, TOKENS, HEADS, d, dx, up_bf16(k, o), up(k, lse), up_bf16(k, sink), dx,
                               of_lse, sum));
    compare(k, "sink_back, d_o", down_bf16(k, dx, o.size()), d_o, BF16);
    compare(k, "sink_back, d_lse", down(k, of_lse, ROWS), d_lse, FP32);
    compare(k, "sink_back, d_sink", down(k, sum, HEADS), total, FP32);
}

/* Odd counts and beginnings: the tail, and the way without 16-byte accesses. */
static void check_add(Check *k, int shift)
{
    const size_t count = 5003;
    const Floats x = random_floats(count + 1, 51, 1), y = random_floats(count + 1, 52, 1);
    Doubles want(y.begin(), y.end());
    for (size_t i = 0; i < count; i++)
        want[i + shift] += x[i];
    float *to = up(k, y);
    MUST(k, burst_gpu_add_floats(k->g, burst_gpu_compute(k->g), (int64_t)count, up(k, x), to + shift));
    compare(k, "add_floats", down(k, to, count + 1), want, FP32);
}

void check_layer(Check *k)
{
    check_norm(k, 70, 264);
    check_bias(k, 3, 8);
    check_bias(k, 1001, 4160); /* more columns than a block has threads, and a part of a block's columns */
    check_norm(k, 9001, 128); /* heads: a warp a row, more rows than warps */
    check_norm(k, 3, 8);
    check_norm(k, 700, 256);
    check_norm(k, 1000, 1024); /* more rows than blocks */
    check_norm(k, 5, 16384);   /* more shared memory than is free */
    check_norm_of_parts(k, 70, 264);
    check_norm_of_parts(k, 9001, 128);
    check_norm_of_parts(k, 1000, 1024);
    check_norm_of_parts(k, 5, 16384);
    check_long_norm(k, 512 << 10, 264, BURST_GPU_NORM_BLOCKS);
    check_long_norm(k, 4 << 20, 8, BURST_GPU_NORM_BLOCKS * 16); /* a chain a warp */
    check_long_bias(k, 512 << 10, 72, 64);
    check_rope(k, 64);
    check_rope(k, 128);
    check_longrope(k, 96);
    check_swiglu(k);
    check_delta(k, 64);
    check_delta(k, 128);
    check_delta(k, 80);
    check_sink(k, 64, 0);
    check_sink(k, 80, 12);
    check_add(k, 0);
    check_add(k, 1);
}
