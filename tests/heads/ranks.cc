/* ranks.cc: the exchanges of an emitted program on all of its ranks at once: two layers forward and
 * backward, queued whole, then run in random orders (streams.h). Every rank's rows are compared with
 * attention of the whole sequence on one.
 *
 *     ranks [--without-waits]     with it, success is that some order goes wrong
 */
#include "burst_step_cuda.h"
#include "context.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "program.inc"

enum { LAYERS = 2, D = PLAN_HEAD_DIM };
enum { Q, K, V, DO, INPUTS };
enum { O, LSE, DQ, DK, DV, OUTPUTS };
static const char *const output_name[] = {"o", "lse", "dq", "dk", "dv"};

/* ---- numbers ---- */

static int heads_of(int input) { return input == K || input == V ? PLAN_KV_HEADS : PLAN_HEADS; }

/* Of a sequence, layer and input, by global position; in [-1, 1). */
static BurstBf16 value(int sequence, int layer, int input, int64_t position, int64_t head, int64_t column)
{
    uint64_t x = (uint64_t)(((sequence * LAYERS + layer) * INPUTS + input) * 1000003 + position * 4099 +
                            head * 131 + column);
    x = (x + 1) * 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 29) * 0xbf58476d1ce4e5b9u;
    return __float2bfloat16((float)((x >> 40 & 0xffff) / 32768.0 - 1));
}

/* ---- one rank ---- */

struct Rank {
    BurstCtx ctx;
    PlanState state;
    std::vector<float> out[LAYERS][OUTPUTS]; /* as they are when computing gets there */
};

static int start(Rank *r, int rank)
{
    BurstCtx *c = &r->ctx;
    PlanState *s = &r->state;
    memset(s, 0, sizeof *s);
    c->rank = rank;
    s->exec = world.gpu[(size_t)rank].get();
    s->heads = plan_chunk_heads(0);
    BURST_TRY(plan_take(c, s));
    BURST_TRY(plan_chunks(c, s));
    all_live(c, s, false, plan_trace_forward);
    all_live(c, s, true, plan_trace_backward);
    return BURST_OK;
}

static void fill(PlanState *s, int sequence, int layer, int input, BurstBf16 *x)
{
    const int heads = heads_of(input);
    queue(s, [=] {
        for (int64_t i = 0; i < s->n; i++)
            for (int64_t h = 0; h < heads; h++)
                for (int64_t j = 0; j < D; j++)
                    x[(i * heads + h) * D + j] = value(sequence, layer, input, s->chunk[s->me].position[i], h,
                                                       j);
    });
}

static void keep_floats(Rank *r, int layer, int output, const float *x, int64_t count)
{
    queue(&r->state, [=] { r->out[layer][output].assign(x, x + count); });
}

static void keep_output(Rank *r, int layer, const BurstBf16 *o)
{
    const int64_t n = r->state.n;
    queue(&r->state, [=] {
        for (int64_t h = 0; h < PLAN_HEADS; h++)
            for (int64_t i = 0; i < n; i++)
                for (int64_t x = 0; x < D; x++)
                    r->out[layer][O].push_back(__bfloat162float(o[(i * PLAN_HEADS + h) * D + x]));
    });
}

static int layer_forward(Rank *r, int layer)
{
    PlanState *s = &r->state;
    const int sequence = r->ctx.rank / PLAN_GROUP;
    fill(s, sequence, layer, Q, plan_act(s, PLAN_AT_Q(layer)));
    fill(s, sequence, layer, K, plan_act(s, PLAN_AT_K(layer)));
    fill(s, sequence, layer, V, plan_act(s, PLAN_AT_V(layer)));
    BURST_TRY(plan_attention(&r->ctx, s, 0, plan_act(s, PLAN_AT_Q(layer)), plan_act(s, PLAN_AT_K(layer)),
                             plan_act(s, PLAN_AT_V(layer)), plan_act(s, PLAN_AT_O(layer)),
                             plan_floats(s, PLAN_AT_LSE(layer))));
    keep_output(r, layer, plan_act(s, PLAN_AT_O(layer)));
    keep_floats(r, layer, LSE, plan_floats(s, PLAN_AT_LSE(layer)), PLAN_HEADS * s->n);
    return BURST_OK;
}

static int layer_backward(Rank *r, int layer)
{
    PlanState *s = &r->state;
    BurstAct *o = plan_act(s, PLAN_AT_O(layer)), *d_o = plan_act(s, PLAN_AT_D_O(layer));
    float *delta = plan_floats(s, PLAN_AT_DELTA), *dq = plan_floats(s, PLAN_AT_D_Q(layer)),
          *dk = plan_floats(s, PLAN_AT_D_K(layer)), *dv = plan_floats(s, PLAN_AT_D_V(layer));
    fill(s, r->ctx.rank / PLAN_GROUP, layer, DO, d_o);
    BURST_TRY(burst_op_delta(s->exec, s->n, PLAN_HEADS, PLAN_HEAD_DIM, o, d_o, delta));
    BURST_TRY(plan_attention_back(&r->ctx, s, 0, plan_act(s, PLAN_AT_Q(layer)), plan_act(s, PLAN_AT_K(layer)),
                                  plan_act(s, PLAN_AT_V(layer)), plan_floats(s, PLAN_AT_LSE(layer)), d_o,
                                  delta, dq, dk, dv));
    keep_floats(r, layer, DQ, dq, PLAN_HEADS * s->n * D);
    keep_floats(r, layer, DK, dk, PLAN_KV_HEADS * s->n * D);
    keep_floats(r, layer, DV, dv, PLAN_KV_HEADS * s->n * D);
    return BURST_OK;
}

/* ---- the answers: one launch over the whole sequence in order, with all heads ---- */

struct Whole {
    std::vector<BurstBf16> in[INPUTS], o;
    std::vector<float> out[OUTPUTS], delta;
    std::vector<int32_t> position;
};

static BurstRows rows(std::vector<BurstBf16> &x, int heads) { return BurstRows{x.data(), heads * D, D}; }

static void make_inputs(Whole *w, int sequence, int layer)
{
    for (int32_t i = 0; i < PLAN_SEQUENCE; i++)
        w->position.push_back(i);
    for (int input = 0; input < INPUTS; input++)
        for (int i = 0; i < PLAN_SEQUENCE; i++)
            for (int h = 0; h < heads_of(input); h++)
                for (int j = 0; j < D; j++)
                    w->in[input].push_back(value(sequence, layer, input, i, h, j));
    for (int out = 0; out < OUTPUTS; out++)
        w->out[out].assign((size_t)((out == DK || out == DV ? PLAN_KV_HEADS : PLAN_HEADS) * PLAN_SEQUENCE *
                                    (out == LSE ? 1 : D)),
                           0);
    w->o.resize(w->in[Q].size());
    w->delta.assign((size_t)PLAN_HEADS * PLAN_SEQUENCE, 0);
}

static void solve_forward(Whole *w)
{
    BurstForward p = {};
    p.q = rows(w->in[Q], PLAN_HEADS), p.k = rows(w->in[K], PLAN_KV_HEADS),
    p.v = rows(w->in[V], PLAN_KV_HEADS);
    p.out = rows(w->o, PLAN_HEADS), p.lse = w->out[LSE].data();
    p.q_tokens.n = p.k_tokens.n = PLAN_SEQUENCE;
    p.q_tokens.position = p.k_tokens.position = w->position.data();
    p.q_heads = PLAN_HEADS, p.group = PLAN_HEADS / PLAN_KV_HEADS, p.scale = PLAN_SCALE,
    p.flags = BURST_FIRST | BURST_LAST;
    forward({p}, 0, false);
    for (int64_t h = 0; h < PLAN_HEADS; h++)
        for (int64_t i = 0; i < PLAN_SEQUENCE; i++)
            for (int64_t x = 0; x < D; x++) {
                w->out[O][(size_t)((h * PLAN_SEQUENCE + i) * D + x)] = (float)at(p.out, i, h, x);
                w->delta[(size_t)(h * PLAN_SEQUENCE + i)] +=
                    (float)(at(p.out, i, h, x) * at(rows(w->in[DO], PLAN_HEADS), i, h, x));
            }
}

static void solve_backward(Whole *w)
{
    BurstBackward p = {};
    p.q = rows(w->in[Q], PLAN_HEADS), p.k = rows(w->in[K], PLAN_KV_HEADS),
    p.v = rows(w->in[V], PLAN_KV_HEADS);
    p.d_o = rows(w->in[DO], PLAN_HEADS);
    p.lse = w->out[LSE].data(), p.delta = w->delta.data();
    p.dq = w->out[DQ].data(), p.dk = w->out[DK].data(), p.dv = w->out[DV].data();
    p.q_tokens.n = p.k_tokens.n = PLAN_SEQUENCE;
    p.q_tokens.position = p.k_tokens.position = w->position.data();
    p.q_heads = PLAN_HEADS, p.kv_heads = PLAN_KV_HEADS, p.group = PLAN_HEADS / PLAN_KV_HEADS,
    p.scale = PLAN_SCALE;
    backward(p);
    for (float &x : w->out[DQ])
        x *= PLAN_SCALE;
}

/* ---- comparing ---- */

/* bf16 outputs may be rounded the other way; the rest differs by the order of sums alone. */
static const double tolerance[OUTPUTS] = {8e-3, 1e-5, 1e-4, 1e-4, 1e-4};

static double worst_error(const Rank &r, const Whole &w, int layer, int output)
{
    const std::vector<float> &is = r.out[layer][output];
    const int64_t heads = output == DK || output == DV ? PLAN_KV_HEADS : PLAN_HEADS,
                  width = output == LSE ? 1 : D, n = r.state.n;
    double worst = is.size() == (size_t)(heads * n * width) ? 0 : INFINITY;
    for (int64_t at = 0; at < heads * n * width && worst < INFINITY; at++) {
        const int64_t h = at / width / n, i = at / width % n,
                      position = r.state.chunk[r.state.me].position[i];
        const double should = w.out[output][(size_t)((h * PLAN_SEQUENCE + position) * width + at % width)];
        const double off = std::fabs(is[(size_t)at] - should);
        if (!(off <= worst))
            worst = std::isnan(off) ? INFINITY : off;
    }
    return worst;
}

/* One run of all ranks; false where anything is wrong. */
static bool run(unsigned seed, const std::vector<Whole> &whole, double worst[OUTPUTS])
{
    const size_t guards = 128 * (GUARD + 256);
    std::vector<Rank> rank(PLAN_WORLD);
    world.random.seed(seed);
    world.packed = seed % 2;
    world.wrong.clear();
    world_make(PLAN_WORLD, PLAN_CHANNELS, PLAN_DEVICE_BYTES + guards);
    for (int r = 0; r < PLAN_WORLD; r++)
        if (start(&rank[(size_t)r], r) != BURST_OK || layer_forward(&rank[(size_t)r], 0) ||
            layer_forward(&rank[(size_t)r], 1) || layer_backward(&rank[(size_t)r], 1) ||
            layer_backward(&rank[(size_t)r], 0))
            world.wrong += " (a call failed)";
    world_run();
    world_check_guards();
    bool fine = world.wrong.empty();
    for (int at = 0; fine && at < PLAN_WORLD * LAYERS * OUTPUTS; at++) {
        const int r = at / OUTPUTS / LAYERS, layer = at / OUTPUTS % LAYERS, output = at % OUTPUTS;
        const double off = worst_error(rank[(size_t)r], whole[(size_t)(r / PLAN_GROUP * LAYERS + layer)],
                                       layer, output);
        worst[output] = std::max(worst[output], off);
        if (off > tolerance[output])
            world.wrong = "rank " + std::to_string(r) + ", layer " + std::to_string(layer) + ": " +
                          output_name[output] + " is off";
    }
    return world.wrong.empty();
}

int main(int argc, char **argv)
{
    enum { ORDERS = 12 };
    std::vector<Whole> whole((size_t)(PLAN_DATA * LAYERS));
    double worst[OUTPUTS] = {};
    int failed = 0;
    world.without_waits = argc > 1 && strcmp(argv[1], "--without-waits") == 0;
    for (size_t i = 0; i < whole.size(); i++) {
        make_inputs(&whole[i], (int)i / LAYERS, (int)i % LAYERS);
        solve_forward(&whole[i]);
        solve_backward(&whole[i]);
    }
    for (unsigned seed = 0; seed < ORDERS; seed++)
        if (!run(seed, whole, worst)) {
            if (!failed++ && !world.without_waits)
                printf("order %u: %s\n", seed, world.wrong.c_str());
        }
    printf("%d of %d orders fail", failed, ORDERS);
    for (int i = 0; i < OUTPUTS; i++)
        printf(", %s %.1e", output_name[i], worst[i]);
    printf(", up to %d pairs a launch\n", most_pairs);
    return world.without_waits ? failed == 0 : failed != 0;
}
