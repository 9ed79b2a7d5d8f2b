/* kernels.h: between the cut program's types and its exchanges: attention of one launch as plain loops,
 * causal by the tokens' positions, with the kernels' conventions of heads, layouts and flags; queued as
 * computing. */
#pragma once

static inline void queue(PlanState *s, std::function<void()> run)
{
    burst_gpu_compute(s->exec)->queue.push_back(Op{std::move(run)});
}

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                              size_t height, cudaMemcpyKind, cudaStream_t stream)
{
    stream->queue.push_back(Op{[=] {
        for (size_t i = 0; i < height; i++)
            memcpy((char *)to + i * to_pitch, (const char *)from + i * from_pitch, width);
    }});
    return cudaSuccess;
}

static inline double at(BurstRows x, int64_t i, int64_t head, int64_t column)
{
    return __bfloat162float(x.at[head * x.head + i * x.row + column]);
}

static inline double dot(int64_t width, BurstRows a, int64_t i, int64_t head_a, BurstRows b, int64_t j,
                         int64_t head_b)
{
    double sum = 0;
    for (int64_t x = 0; x < width; x++)
        sum += at(a, i, head_a, x) * at(b, j, head_b, x);
    return sum;
}

template <class P> static int64_t key_head(const P &p, int64_t head)
{
    const int64_t kv = (p.q_head0 + head) / p.group - p.kv_head0;
    if (kv < 0 || kv >= PLAN_KV_HEADS)
        world.wrong = "a query head reads no key head";
    return kv;
}

template <class P> static bool keeps(const P &p, int64_t i, int64_t j)
{
    return p.q_tokens.position[i] >= p.k_tokens.position[j];
}

/* Adds what a row of one head gets of the keys of one pair. */
static inline void add_keys(const BurstForward &p, int64_t h, int64_t i, double *sum, double *out)
{
    const int64_t kv = key_head(p, h);
    for (int64_t j = 0; j < p.k_tokens.n; j++)
        if (keeps(p, i, j)) {
            const double e = exp(dot(PLAN_HEAD_DIM, p.q, i, h, p.k, j, kv) * p.scale);
            *sum += e;
            for (int64_t x = 0; x < PLAN_VALUE_DIM; x++)
                out[x] += e * at(p.v, j, kv, x);
        }
}

/* A row of one head: added to what launches before left in o and lse, and by the last one rounded to out. */
static inline void forward_row(const std::vector<BurstForward> &pairs, int64_t h, int64_t i)
{
    const BurstForward &p = pairs[0];
    const int64_t row = h * p.q_tokens.n + i;
    double sum = p.flags & BURST_FIRST ? 0 : exp((double)p.lse[row]), out[PLAN_VALUE_DIM] = {};
    for (int64_t x = 0; x < PLAN_VALUE_DIM && !(p.flags & BURST_FIRST); x++)
        out[x] = sum * p.o[row * PLAN_VALUE_DIM + x];
    for (const BurstForward &pair : pairs)
        add_keys(pair, h, i, &sum, out);
    p.lse[row] = (float)log(sum);
    for (int64_t x = 0; x < PLAN_VALUE_DIM; x++) {
        const float o = sum > 0 ? (float)(out[x] / sum) : 0;
        if (p.flags & BURST_LAST)
            p.out.at[h * p.out.head + i * p.out.row + x] = __float2bfloat16(o);
        else
            p.o[row * PLAN_VALUE_DIM + x] = o;
    }
}

static inline bool sees(const BurstForward &p, int64_t i)
{
    for (int64_t j = 0; j < p.k_tokens.n; j++)
        if (keeps(p, i, j))
            return true;
    return false;
}

/* home: in two launches, those that see none of the pairs from there on, then, with rest, the others; the
 * first reads none of their keys. */
static inline void forward(std::vector<BurstForward> pairs, int home, bool rest)
{
    const size_t all = pairs.size();
    const BurstForward p = pairs[0];
    std::vector<BurstForward> away(pairs.begin() + home, pairs.end());
    if (home && !rest)
        pairs.resize((size_t)home);
    for (int64_t h = 0; h < p.q_heads; h++)
        for (int64_t i = 0; i < p.q_tokens.n; i++) {
            bool other = false;
            for (size_t a = 0; home && a < all - (size_t)home; a++)
                other = other || sees(away[a], i);
            if (other == rest)
                forward_row(pairs, h, i);
        }
}

static inline void backward_pair(const BurstBackward &p, int64_t h, int64_t kv, int64_t i, int64_t j)
{
    const int64_t row = h * p.q_tokens.n + i, key = kv * p.k_tokens.n + j;
    const double e = exp(dot(PLAN_HEAD_DIM, p.q, i, h, p.k, j, kv) * p.scale - p.lse[row]);
    const double ds = e * (dot(PLAN_VALUE_DIM, p.d_o, i, h, p.v, j, kv) - p.delta[row]);
    for (int64_t x = 0; x < PLAN_HEAD_DIM; x++) {
        p.dq[row * PLAN_HEAD_DIM + x] += (float)(ds * at(p.k, j, kv, x)); /* its scale: plan_order_dq */
        p.dk[key * PLAN_HEAD_DIM + x] += (float)(ds * at(p.q, i, h, x) * p.scale);
    }
    for (int64_t x = 0; x < PLAN_VALUE_DIM; x++)
        p.dv[key * PLAN_VALUE_DIM + x] += (float)(e * at(p.d_o, i, h, x));
}

static inline void backward(const BurstBackward &p)
{
    for (int64_t h = 0; h < p.q_heads; h++)
        for (int64_t i = 0; i < p.q_tokens.n; i++)
            for (int64_t j = 0; j < p.k_tokens.n; j++)
                if (keeps(p, i, j))
                    backward_pair(p, h, key_head(p, h), i, j);
}

static int most_pairs; /* of one launch */

static inline bool plan_carries_tiles(const PlanState *) { return true; }

/* Pairs of one launch differ in their keys alone; the first one's flags are those of all. */
static cudaError_t plan_launch_forward(PlanState *s, BurstForward *pair, int pairs)
{
    if (pairs < 1 || pairs > BURST_FORWARD_CHUNKS)
        world.wrong = "a launch of no pair, or of too many";
    most_pairs = pairs > most_pairs ? pairs : most_pairs;
    const std::vector<BurstForward> all(pair, pair + pairs);
    const int home = s->launch.home;
    const bool rest = s->launch.rest;
    for (const BurstForward &p : all)
        if (p.q.at != pair->q.at || p.o != pair->o || p.lse != pair->lse)
            world.wrong = "pairs of a launch have other queries";
    queue(s, [all, home, rest] { forward(all, home, rest); });
    return cudaSuccess;
}

static cudaError_t plan_launch_backward(PlanState *s, BurstBackward *pair, int pairs)
{
    if (pairs < 1 || pairs > BURST_BACKWARD_CHUNKS)
        world.wrong = "a launch of no pair, or of too many";
    for (int i = 0; i < pairs; i++) {
        const BurstBackward p = pair[i];
        if (p.q.at != pair->q.at || p.dq != pair->dq)
            world.wrong = "pairs of a launch have other queries";
        queue(s, [p] { backward(p); });
    }
    return cudaSuccess;
}

static int plan_order_dq(BurstCtx *, PlanState *s, float *dq)
{
    const int64_t count = s->heads.queries * s->chunk[s->me].tokens * PLAN_HEAD_DIM;
    queue(s, [=] {
        for (int64_t i = 0; i < count; i++)
            dq[i] *= PLAN_SCALE;
    });
    return BURST_OK;
}

#ifdef PLAN_LATENTS
static inline float added(float x) { return x; }
static inline float added(BurstBf16 x) { return __bfloat162float(x); }

template <class T>
static int plan_add_rows(BurstCtx *, PlanState *s, int64_t rows, int width, const T *x, int64_t x_pitch,
                         float *y, int64_t y_pitch)
{
    queue(s, [=] {
        for (int64_t at = 0; at < rows * width; at++)
            y[at / width * y_pitch + at % width] += added(x[at / width * x_pitch + at % width]);
    });
    return BURST_OK;
}
#endif

/* ---- every operation of the schedule is live: kernels leave out what the mask does ---- */

struct BurstTrace { std::vector<uint8_t> compute; };
void burst_trace_compute(BurstTrace *t, int, int) { t->compute.push_back(1); }
void burst_trace_pass(BurstTrace *t, int, int, int) { t->compute.push_back(0); }

static inline void all_live(BurstCtx *c, PlanState *s, int backward, void (*trace)(BurstTrace *, int))
{
    BurstTrace t;
    trace(&t, s->me);
    BurstLive *live = &s->live[0][backward];
    *live = {};
    live->ops = (int)t.compute.size();
    c->memory.push_back(std::make_unique<std::vector<char>>(3 * t.compute.size()));
    uint8_t *at = (uint8_t *)c->memory.back()->data();
    for (uint8_t **bits : {&live->compute, &live->send, &live->recv}) {
        *bits = at;
        for (int i = 0; i < live->ops; i++)
            *at++ = (bits == &live->compute) == (t.compute[(size_t)i] != 0);
    }
}
