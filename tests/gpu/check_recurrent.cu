/* check_recurrent.cu: the operations of recurrent layers on the device against the host's, which
 * tests/kernels compares with float64. */
#include "check.h"

extern "C" {
int burst_op_rmsnorm_plus(BurstCtx *, int64_t, int, double, const float *, const float *, float *, float *);
int burst_op_rmsnorm_plus_back(BurstCtx *, int64_t, int, const float *, const float *, const float *,
                               const float *, float *, bool, float *, void *);
int burst_op_gate_elements(BurstCtx *, int, double, int64_t, int, const float *, const float *, float *);
int burst_op_gate_elements_back(BurstCtx *, int, double, int64_t, int, const float *, const float *,
                                const float *, float *, float *);
int burst_op_activate(BurstCtx *, int, double, int64_t, int, const float *, float *);
int burst_op_activate_back(BurstCtx *, int, double, int64_t, int, const float *, const float *, float *);
int burst_op_conv(BurstCtx *, int64_t, const BurstConv *, const BurstPieces *, const int32_t *, const float *,
                  const float *, const float *, const float *, float *);
int burst_op_conv_back(BurstCtx *, int64_t, const BurstConv *, const BurstPieces *, const int32_t *,
                       const float *, const float *, const float *, const float *, const float *, float *,
                       float *, float *, float *, void *);
int burst_op_conv_tails(BurstCtx *, const BurstConv *, const BurstPieces *, const float *, float *);
int burst_op_conv_tails_back(BurstCtx *, const BurstConv *, const BurstPieces *, const float *, float *);
int burst_op_scan_gates(BurstCtx *, int64_t, const BurstScan *, const float *, const float *, const float *,
                        float *, float *);
int burst_op_scan_gates_back(BurstCtx *, int64_t, const BurstScan *, const float *, const float *,
                             const float *, const float *, const float *, float *, float *, float *, void *);
int burst_op_gated_norm(BurstCtx *, int64_t, const BurstGatedNorm *, const float *, const float *,
                        const float *, float *, float *);
int burst_op_gated_norm_back(BurstCtx *, int64_t, const BurstGatedNorm *, const float *, const float *,
                             const float *, const float *, const float *, float *, float *, float *, void *);
int burst_op_scan(BurstCtx *, int64_t, const BurstScan *, const BurstPieces *, const int32_t *, const float *,
                  const float *, const float *, const float *, const float *, float *, float *, void *);
int burst_op_scan_back(BurstCtx *, int64_t, const BurstScan *, const BurstPieces *, const int32_t *,
                       const float *, const float *, const float *, const float *, const float *,
                       const float *, const float *, float *, float *, float *, float *, float *, void *);
int burst_op_scan_map(BurstCtx *, int64_t, const BurstScan *, const BurstPieces *, const int32_t *,
                      const float *, const float *, const float *, float *, void *);
int burst_op_scan_map_back(BurstCtx *, int64_t, const BurstScan *, const BurstPieces *, const int32_t *,
                           const float *, const float *, const float *, const float *, float *, void *);
int burst_op_scan_fold(BurstCtx *, const BurstScan *, const BurstFold *, const float *, float *, void *);
int burst_op_scan_fold_back(BurstCtx *, const BurstScan *, const BurstFold *, const float *, float *, void *);
}

/* Sums of a few hundred products with the device's exponential. A scan rounds states, factors and what it
 * writes: a few roundings; decays' gradients are differences of such sums. */
constexpr double SUMS = 1e-5, SCAN = 6e-3, SCAN_DECAY = 1.5e-2;
#define HOST(call) MUST(k, call)

static BurstCtx *const NONE = NULL;

static Doubles doubles(const Floats &x) { return Doubles(x.begin(), x.end()); }

/* Documents' borders at about every `each`-th row; the first row goes on. */
static std::vector<int32_t> places(int64_t n, int each)
{
    std::vector<int32_t> place((size_t)n), drawn = random_ints((size_t)n, 9, each);
    for (int64_t i = 0, at = 7; i < n; i++, at++) {
        at = drawn[(size_t)i] == 0 && i > 0 ? 0 : at;
        place[(size_t)i] = (int32_t)at;
    }
    return place;
}

static void check_plus(Check *k, int n, int hidden)
{
    const size_t count = (size_t)n * hidden;
    const Floats x = random_bf16(count, 1, 1), w = random_bf16(hidden, 2, 0.5), dy = random_bf16(count, 3, 1);
    Floats y(count), rstd(n), dx(count), dw(hidden);
    HOST(burst_op_rmsnorm_plus(NONE, n, hidden, 1e-5, x.data(), w.data(), y.data(), rstd.data()));
    HOST(burst_op_rmsnorm_plus_back(NONE, n, hidden, x.data(), rstd.data(), dy.data(), w.data(), dx.data(),
                                    false, dw.data(), NULL));
    BurstBf16 *in = up_bf16(k, x), *by = up_bf16(k, w), *out = (BurstBf16 *)poisoned(k, 2 * count),
              *d_in = (BurstBf16 *)poisoned(k, 2 * count);
    float *r = (float *)poisoned(k, 4 * (size_t)n), *d_by = up(k, Floats(hidden));
    MUST(k, burst_op_rmsnorm_plus(k->g, n, hidden, 1e-5, in, by, out, r));
    MUST(k, burst_op_rmsnorm_plus_back(k->g, n, hidden, in, r, up_bf16(k, dy), by, d_in, false, d_by,
                                       poisoned(k, 8 * (size_t)burst_gpu_norm_doubles(hidden))));
    compare(k, "rmsnorm_plus", down_bf16(k, out, count), doubles(y), BF16);
    compare(k, "rmsnorm_plus_back", down_bf16(k, d_in, count), doubles(dx), BF16);
    compare(k, "rmsnorm_plus_back, dw", down(k, d_by, hidden), doubles(dw), SUMS);
}

static void check_gate(Check *k, int gate, int n, int width)
{
    const double scale = gate == BURST_GATE_SILU ? 0.4 : 1;
    const size_t count = (size_t)n * width;
    const Floats x = random_bf16(count, 1, 1), z = random_bf16(count, 2, 1), dy = random_bf16(count, 3, 1);
    Floats y(count), dx(count), dz(count);
    HOST(burst_op_gate_elements(NONE, gate, scale, n, width, x.data(), z.data(), y.data()));
    HOST(burst_op_gate_elements_back(NONE, gate, scale, n, width, x.data(), z.data(), dy.data(), dx.data(),
                                     dz.data()));
    BurstBf16 *in = up_bf16(k, x), *by = up_bf16(k, z), *out = (BurstBf16 *)poisoned(k, 2 * count),
              *d = up_bf16(k, dy), *d_by = (BurstBf16 *)poisoned(k, 2 * count);
    MUST(k, burst_op_gate_elements(k->g, gate, scale, n, width, in, by, out));
    MUST(k, burst_op_gate_elements_back(k->g, gate, scale, n, width, in, by, d, d, d_by));
    compare(k, "gate_elements", down_bf16(k, out, count), doubles(y), BF16);
    compare(k, "gate_elements_back", down_bf16(k, d, count), doubles(dx), BF16);
    compare(k, "gate_elements_back, gate", down_bf16(k, d_by, count), doubles(dz), BF16);
}

/* SwiGLU with a scaled gate; the host has gates, then ups, the device both in a token's row. */
static void check_scaled(Check *k, int n, int width)
{
    const size_t count = (size_t)n * width;
    const Floats gate = random_bf16(count, 1, 1), up_ = random_bf16(count, 2, 1),
                 dy = random_bf16(count, 3, 1);
    Floats host(2 * count), rows(2 * count), y(count), d(2 * count), d_rows(2 * count);
    for (size_t i = 0; i < count; i++) {
        const size_t row = i / width * 2 * width + i % width;
        host[i] = rows[row] = gate[i], host[count + i] = rows[row + width] = up_[i];
    }
    HOST(burst_op_activate(NONE, BURST_ACTIVATION_SWIGLU, 0.4, n, width, host.data(), y.data()));
    HOST(burst_op_activate_back(NONE, BURST_ACTIVATION_SWIGLU, 0.4, n, width, host.data(), dy.data(),
                                d.data()));
    for (size_t i = 0; i < count; i++) {
        const size_t row = i / width * 2 * width + i % width;
        d_rows[row] = d[i], d_rows[row + width] = d[count + i];
    }
    BurstBf16 *in = up_bf16(k, rows), *out = (BurstBf16 *)poisoned(k, 2 * count),
              *d_in = (BurstBf16 *)poisoned(k, 4 * count);
    MUST(k, burst_op_activate(k->g, BURST_ACTIVATION_SWIGLU, 0.4, n, width, in, out));
    MUST(k, burst_op_activate_back(k->g, BURST_ACTIVATION_SWIGLU, 0.4, n, width, in, up_bf16(k, dy), d_in));
    compare(k, "activate, scaled", down_bf16(k, out, count), doubles(y), BF16);
    compare(k, "activate_back, scaled", down_bf16(k, d_in, 2 * count), doubles(d_rows), BF16);
}

static void check_conv(Check *k, BurstConv c, std::vector<int64_t> first, bool with_halo, bool with_bias)
{
    const BurstPieces p = {(int)first.size() - 1, first.data()};
    const int64_t n = first.back();
    const size_t count = (size_t)n * c.channels, weights = (size_t)c.channels * c.kernel,
                 halos = (size_t)p.count * (c.kernel - 1) * c.channels;
    const std::vector<int32_t> place = places(n, 20);
    const Floats x = random_bf16(count, 1, 1), halo = random_bf16(halos, 2, 1),
                 w = random_bf16(weights, 3, 1), bias = random_bf16(c.channels, 4, 1),
                 dy = random_bf16(count, 5, 1);
    Floats y(count), dx(count), d_halo(halos), dw(weights), db(c.channels), sums(c.channels), tails(halos);
    const float *host_halo = with_halo ? halo.data() : NULL, *host_bias = with_bias ? bias.data() : NULL;
    HOST(burst_op_conv(NONE, n, &c, &p, place.data(), x.data(), host_halo, w.data(), host_bias, y.data()));
    HOST(burst_op_conv_back(NONE, n, &c, &p, place.data(), x.data(), host_halo, w.data(), host_bias,
                            dy.data(), dx.data(), with_halo ? d_halo.data() : NULL, dw.data(),
                            with_bias ? db.data() : NULL, sums.data()));
    int32_t *at = up(k, place);
    BurstBf16 *in = up_bf16(k, x), *in_halo = with_halo ? up_bf16(k, halo) : NULL, *by = up_bf16(k, w),
              *in_bias = with_bias ? up_bf16(k, bias) : NULL, *out = (BurstBf16 *)poisoned(k, 2 * count),
              *d_in = (BurstBf16 *)poisoned(k, 2 * count), *d_in_halo = (BurstBf16 *)poisoned(k, 2 * halos),
              *out_tails = (BurstBf16 *)poisoned(k, 2 * halos);
    float *d_by = up(k, Floats(weights)), *d_bias = up(k, Floats(c.channels));
    MUST(k, burst_op_conv(k->g, n, &c, &p, at, in, in_halo, by, in_bias, out));
    MUST(k, burst_op_conv_back(k->g, n, &c, &p, at, in, in_halo, by, in_bias, up_bf16(k, dy), d_in,
                               with_halo ? d_in_halo : NULL, d_by, with_bias ? d_bias : NULL,
                               poisoned(k, 8 * (size_t)burst_gpu_conv_doubles(&c))));
    compare(k, "conv", down_bf16(k, out, count), doubles(y), BF16);
    compare(k, "conv_back", down_bf16(k, d_in, count), doubles(dx), BF16);
    if (with_halo)
        compare(k, "conv_back, halo", down_bf16(k, d_in_halo, halos), doubles(d_halo), BF16);
    compare(k, "conv_back, dw", down(k, d_by, weights), doubles(dw), SUMS);
    compare(k, "conv_back, db", down(k, d_bias, c.channels), doubles(db), SUMS);
    HOST(burst_op_conv_tails(NONE, &c, &p, x.data(), tails.data()));
    MUST(k, burst_op_conv_tails(k->g, &c, &p, in, out_tails));
    compare(k, "conv_tails", down_bf16(k, out_tails, halos), doubles(tails), 0);
    Floats added = x;
    HOST(burst_op_conv_tails_back(NONE, &c, &p, halo.data(), added.data()));
    MUST(k, burst_op_conv_tails_back(k->g, &c, &p, up_bf16(k, halo), in));
    compare(k, "conv_tails_back", down_bf16(k, in, count), doubles(added), BF16);
}

static void check_gates(Check *k, int64_t n, int read)
{
    BurstScan s = {};
    s.heads = 6, s.read = read, s.beta_most = 2, s.step_least = 0.1, s.step_most = 1.5;
    s.step_scale = read ? 0 : 0.4;
    const size_t gates = (size_t)n * s.heads, raws = gates * (read ? 2 : 1);
    const Floats raw = random_bf16(raws, 1, 1), a_log = random_bf16(s.heads, 2, 1),
                 bias = random_bf16(s.heads, 3, 1), d_beta = random_floats(gates, 4, 1),
                 d_decay = random_floats(gates, 5, 1);
    Floats beta(gates), decay(gates), d_raw(raws), d_log(s.heads), d_bias(s.heads);
    HOST(burst_op_scan_gates(NONE, n, &s, raw.data(), a_log.data(), bias.data(), beta.data(), decay.data()));
    HOST(burst_op_scan_gates_back(NONE, n, &s, raw.data(), a_log.data(), bias.data(), d_beta.data(),
                                  d_decay.data(), d_raw.data(), d_log.data(), d_bias.data(), NULL));
    BurstBf16 *in = up_bf16(k, raw), *in_log = up_bf16(k, a_log), *in_bias = up_bf16(k, bias),
              *d_in = (BurstBf16 *)poisoned(k, 2 * raws);
    float *out_beta = (float *)poisoned(k, 4 * gates), *out_decay = (float *)poisoned(k, 4 * gates),
          *d_in_log = up(k, Floats(s.heads)), *d_in_bias = up(k, Floats(s.heads));
    MUST(k, burst_op_scan_gates(k->g, n, &s, in, in_log, in_bias, out_beta, out_decay));
    MUST(k, burst_op_scan_gates_back(k->g, n, &s, in, in_log, in_bias, up(k, d_beta), up(k, d_decay), d_in,
                                     d_in_log, d_in_bias,
                                     poisoned(k, 8 * (size_t)burst_gpu_scan_gates_doubles(s.heads))));
    compare(k, "scan_gates, beta", down(k, out_beta, gates), doubles(beta), FP32);
    compare(k, "scan_gates, decay", down(k, out_decay, gates), doubles(decay), FP32);
    compare(k, "scan_gates_back", down_bf16(k, d_in, raws), doubles(d_raw), BF16);
    compare(k, "scan_gates_back, a_log", down(k, d_in_log, s.heads), doubles(d_log), SUMS);
    compare(k, "scan_gates_back, dt_bias", down(k, d_in_bias, s.heads), doubles(d_bias), SUMS);
}

static void check_gated_norm(Check *k, int64_t n, BurstGatedNorm m)
{
    const size_t count = (size_t)n * m.groups * m.width,
                 weights = (size_t)(m.shared ? 1 : m.groups) * m.width, rows = (size_t)n * m.groups;
    const Floats x = random_bf16(count, 1, 1), z = random_bf16(count, 2, 1), w = random_bf16(weights, 3, 1),
                 dy = random_bf16(count, 4, 1);
    Floats y(count), rstd(rows), dx(count), dz(count), dw(weights);
    HOST(burst_op_gated_norm(NONE, n, &m, x.data(), z.data(), w.data(), y.data(), rstd.data()));
    HOST(burst_op_gated_norm_back(NONE, n, &m, x.data(), z.data(), w.data(), rstd.data(), dy.data(),
                                  dx.data(), dz.data(), dw.data(), NULL));
    BurstBf16 *in = up_bf16(k, x), *gate = up_bf16(k, z), *by = up_bf16(k, w),
              *out = (BurstBf16 *)poisoned(k, 2 * count), *d_in = (BurstBf16 *)poisoned(k, 2 * count),
              *d_gate = (BurstBf16 *)poisoned(k, 2 * count);
    float *r = (float *)poisoned(k, 4 * rows), *d_by = up(k, Floats(weights));
    MUST(k, burst_op_gated_norm(k->g, n, &m, in, gate, by, out, r));
    MUST(k, burst_op_gated_norm_back(k->g, n, &m, in, gate, by, r, up_bf16(k, dy), d_in, d_gate, d_by,
                                     poisoned(k, 8 * (size_t)burst_gpu_norm_doubles((int)weights))));
    compare(k, "gated_norm", down_bf16(k, out, count), doubles(y), BF16);
    compare(k, "gated_norm, rstd", down(k, r, rows), doubles(rstd), SUMS);
    compare(k, "gated_norm_back", down_bf16(k, d_in, count), doubles(dx), BF16);
    compare(k, "gated_norm_back, gate", down_bf16(k, d_gate, count), doubles(dz), BF16);
    compare(k, "gated_norm_back, dw", down(k, d_by, weights), doubles(dw), SUMS);
}

/* A document begins in the piece in the middle: its M is 0, and what is before it is no number. */
static void check_fold(Check *k, int read)
{
    BurstScan s = {};
    s.heads = 2, s.key_heads = 1, s.key_dim = 64, s.value_dim = 64, s.read = read;
    const int32_t slot[] = {0, 3, 1, 5, 2, 4, 7, 6}, number[] = {1, 6};
    const BurstFold f = {8, 2, slot, number};
    const size_t map = (size_t)burst_scan_map(&s), state = (size_t)burst_scan_state(&s), out = 2 * state;
    Floats maps = random_floats(8 * map, 1, 0.1), before(out), d_after(out),
           scratch((size_t)burst_scan_floats(&s, 64));
    for (size_t i = state; i < map; i++)
        maps[(size_t)slot[3] * map + i] = 0;
    HOST(burst_op_scan_fold(NONE, &s, &f, maps.data(), before.data(), scratch.data()));
    HOST(burst_op_scan_fold_back(NONE, &s, &f, maps.data(), d_after.data(), scratch.data()));
    float *in = up(k, maps), *to = (float *)poisoned(k, 4 * out);
    MUST(k, burst_op_scan_fold(k->g, &s, &f, in, to, NULL));
    compare(k, "scan_fold", down(k, to, out), doubles(before), FP32);
    MUST(k, burst_op_scan_fold_back(k->g, &s, &f, in, to, NULL));
    compare(k, "scan_fold_back", down(k, to, out), doubles(d_after), FP32);
    for (size_t i = 0; i < state; i++)
        maps[(size_t)slot[1] * map + i] = NAN;
    MUST(k, burst_op_scan_fold(k->g, &s, &f, up(k, maps), to, NULL));
    const Floats got = down(k, to, out);
    compare(k, "scan_fold, no number before", Floats(got.begin() + (long)state, got.end()),
            Doubles(before.begin() + (long)state, before.end()), FP32);
}

static void check_scan(Check *k, int read)
{
    BurstScan s = {};
    s.heads = 4, s.key_heads = 2, s.key_dim = 64, s.value_dim = 128, s.read = read, s.normalize = read;
    s.scale = 0.125, s.columns = 2 * 128 + 4 * 128 + 8, s.v = 0, s.k = 512, s.q = 640;
    const int64_t first[] = {0, 70, 200, 333}, n = 333;
    const BurstPieces p = {3, first};
    const size_t rows = (size_t)n * s.columns, gates = (size_t)n * s.heads, out = gates * s.value_dim,
                 states = 3 * (size_t)burst_scan_state(&s), maps = 3 * (size_t)burst_scan_map(&s);
    const std::vector<int32_t> place = places(n, 60);
    const Floats x = random_bf16(rows, 1, 1), skip = random_bf16(s.heads, 2, 1),
                 before = random_floats(states, 3, 1), d_o = random_bf16(out, 4, 1),
                 d_after = random_floats(states, 5, 1);
    Floats beta = random_floats(gates, 6, 0.5), decay = random_floats(gates, 7, 0.1);
    for (size_t i = 0; i < gates; i++)
        beta[i] = fabsf(beta[i]), decay[i] = -fabsf(decay[i]);
    Floats o(out), after(states), dx(rows), d_beta(gates), d_decay(gates), d_skip(s.heads), d_before(states),
        map(maps), map_back(maps), room((size_t)burst_scan_floats(&s, n));
    HOST(burst_op_scan(NONE, n, &s, &p, place.data(), x.data(), beta.data(), decay.data(), skip.data(),
                       before.data(), o.data(), after.data(), room.data()));
    HOST(burst_op_scan_back(NONE, n, &s, &p, place.data(), x.data(), beta.data(), decay.data(), skip.data(),
                            before.data(), d_o.data(), d_after.data(), dx.data(), d_beta.data(),
                            d_decay.data(), d_skip.data(), d_before.data(), room.data()));
    HOST(burst_op_scan_map(NONE, n, &s, &p, place.data(), x.data(), beta.data(), decay.data(), map.data(),
                           room.data()));
    HOST(burst_op_scan_map_back(NONE, n, &s, &p, place.data(), x.data(), beta.data(), decay.data(),
                                d_o.data(), map_back.data(), room.data()));
    int32_t *at = up(k, place);
    BurstBf16 *in = up_bf16(k, x), *by = up_bf16(k, skip), *to = (BurstBf16 *)poisoned(k, 2 * out),
              *d_out = up_bf16(k, d_o), *d_in = (BurstBf16 *)poisoned(k, 2 * rows);
    float *b = up(k, beta), *a = up(k, decay), *from = up(k, before),
          *state = (float *)poisoned(k, 4 * states), *d_from = (float *)poisoned(k, 4 * states),
          *d_b = (float *)poisoned(k, 4 * gates), *d_a = (float *)poisoned(k, 4 * gates),
          *d_by = up(k, Floats(s.heads)), *m = (float *)poisoned(k, 4 * maps);
    void *scratch = poisoned(k, (size_t)burst_gpu_scan_bytes(&s, 3, 133));
    MUST(k, burst_op_scan(k->g, n, &s, &p, at, in, b, a, by, from, to, state, scratch));
    compare(k, "scan", down_bf16(k, to, out), doubles(o), SCAN);
    compare(k, "scan, after", down(k, state, states), doubles(after), SCAN);
    MUST(k, burst_op_scan_back(k->g, n, &s, &p, at, in, b, a, by, from, d_out, up(k, d_after), d_in, d_b, d_a,
                               d_by, d_from, scratch));
    compare(k, "scan_back", down_bf16(k, d_in, rows), doubles(dx), SCAN);
    compare(k, "scan_back, beta", down(k, d_b, gates), doubles(d_beta), SCAN);
    compare(k, "scan_back, decay", down(k, d_a, gates), doubles(d_decay), SCAN_DECAY);
    compare(k, "scan_back, skip", down(k, d_by, s.heads), doubles(d_skip), SUMS);
    compare(k, "scan_back, before", down(k, d_from, states), doubles(d_before), SCAN);
    MUST(k, burst_op_scan_map(k->g, n, &s, &p, at, in, b, a, m, scratch));
    compare(k, "scan_map", down(k, m, maps), doubles(map), SCAN);
    MUST(k, burst_op_scan_map_back(k->g, n, &s, &p, at, in, b, a, d_out, m, scratch));
    compare(k, "scan_map_back", down(k, m, maps), doubles(map_back), SCAN);
}

void check_recurrent(Check *k)
{
    check_plus(k, 70, 264);
    check_plus(k, 900, 128);
    check_conv(k, BurstConv{264, 4, 1}, {0, 3, 80, 84, 300}, true, true);
    check_conv(k, BurstConv{1032, 4, 1}, {0, 700}, true, false);
    check_conv(k, BurstConv{64, 3, 0}, {0, 2, 90}, true, false);
    check_conv(k, BurstConv{264, 4, 1, {132, 200}, {0.4, 2, 0.7}}, {0, 3, 80, 300}, true, true);
    check_scaled(k, 70, 264);
    check_conv(k, BurstConv{8, 2, 1}, {0, 33}, false, true);
    for (int read = 0; read < BURST_SCAN_READS; read++) {
        check_gates(k, 5000, read);
        check_fold(k, read);
        check_scan(k, read);
    }
    for (int gate = 0; gate < BURST_GATES; gate++) {
        check_gate(k, gate, 70, 264);
        for (int before = 0; before < 2; before++) {
            check_gated_norm(k, 333, BurstGatedNorm{5, 128, 1, before, gate, 1e-5, 0.4});
            check_gated_norm(k, 100, BurstGatedNorm{3, 520, 0, before, gate, 1e-5});
        }
    }
}
