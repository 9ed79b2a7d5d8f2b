/* burst_measure_cuda.cuh: the rates of a machine's GPUs, for `burstc probe` and `burstc bench`.
 *
 * The text that includes this (compiler/tools/measure.c) has included the kernels and defined
 *   MEASURE_CASES(X)   X(head_dim, value_dim, mask, tokens, heads, kv_heads): attention to be timed
 *   MEASURE_MACHINE    1: memory, passes, PCIe and links as well
 *   MEASURE_SECONDS    length of the rounds
 *   MEASURE_EXPERT_BYTES, MEASURE_EXPERT_TILE   of scratch for the order of rows, an expert; rows of a tile
 * All computing is timed in turn, round by round, on random numbers: a power-limited chip is slower at each
 * kind of work than with that kind alone, and a training step mixes them. Attention includes what a step's
 * does: the lists of tiles, forward; delta, zeroing, lists, backward, finishing dQ. Every rank computes;
 * rank 0 prints the slowest rank's medians, one figure a line, in seconds, bytes/s and FLOP/s, which
 * compiler/tools/measure.c reads.
 */
#include "burst_step_cuda.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/* Products and passes: a Llama-3-8B layer's. */
enum {
    MEASURE_N = 16384,
    MEASURE_HIDDEN = 4096,
    MEASURE_FFN = 14336,
    MEASURE_WIDE = 2 * MEASURE_FFN,
    MEASURE_HEAD_DIM = 128
};
/* Experts of as many tokens: Qwen3-30B-A3B's. */
enum {
    MEASURE_EXPERTS = 128,
    MEASURE_TOP = 8,
    MEASURE_WIDTH = 768,
    MEASURE_NARROW = 2048,
    MEASURE_ROWS = MEASURE_N * MEASURE_TOP
};
enum { MEASURE_ROUNDS = 48, MEASURE_LEAST_ROUNDS = 5, MEASURE_DOCUMENTS = 7 };
static constexpr size_t MEASURE_MIB = 1 << 20, MEASURE_HOP = 256 * MEASURE_MIB, MEASURE_SMALL_HOP = 1 << 14;
static constexpr size_t MEASURE_GRADIENTS = 832 * MEASURE_MIB; /* a layer's */
static constexpr double MEASURE_SHORT = 4e-3; /* seconds: shorter work is timed several times at once */

#define MEASURE_CUDA(call) \
    do { \
        const cudaError_t measure_error = (call); \
        if (measure_error != cudaSuccess) \
            return burst_fail(m->c, BURST_E_DEVICE, "%s: %s", #call, cudaGetErrorString(measure_error)); \
    } while (0)

static bool measure_machine(void) { return MEASURE_MACHINE; }

/* ---- attention ---- */
typedef struct MeasureKernels {
    /* tile: queries and keys, forward and backward; keys: BURST_KEYS_* of both */
    int d, e, tokens, heads, kv_heads, tile[4], keys[2];
    unsigned tables;
    cudaError_t (*forward_setup)(void), (*backward_setup)(void);
    cudaError_t (*lists)(const BurstTokens *, int, const BurstTokens *, int, const BurstTileRanges *, int,
                         int, bool, int, BurstSide *, BurstTileLists, cudaStream_t);
    cudaError_t (*forward)(const BurstForward *, int, int, int, cudaStream_t);
    cudaError_t (*backward)(const BurstBackward *, int, int, int, cudaStream_t);
    cudaError_t (*delta)(BurstRows, BurstRows, int, int, float *, cudaStream_t);
    cudaError_t (*finish)(const float *, int, int, float, BurstRows, cudaStream_t);
    void (*pairs)(BurstTokens, unsigned long long *, cudaStream_t);
} MeasureKernels;

template <class MASK> static __global__ void measure_pairs_kernel(BurstTokens t, unsigned long long *sum)
{
    unsigned long long kept = 0;
    for (int q = (int)blockIdx.x; q < t.n; q += (int)gridDim.x) {
        int32_t tq[BURST_MAX_TABLES] = {}, tk[BURST_MAX_TABLES] = {};
        for (int i = 0; i < BURST_MAX_TABLES; i++)
            tq[i] = MASK::TABLES >> i & 1 ? t.table[i][q] : 0;
        for (int k = (int)threadIdx.x; k < t.n; k += (int)blockDim.x) {
            for (int i = 0; i < BURST_MAX_TABLES; i++)
                tk[i] = MASK::TABLES >> i & 1 ? t.table[i][k] : 0;
            kept += MASK::keep(q, k, tq, tk) != 0;
        }
    }
    atomicAdd(sum, kept);
}

template <class MASK> static void measure_pairs(BurstTokens t, unsigned long long *sum, cudaStream_t stream)
{
    measure_pairs_kernel<MASK><<<1024, 256, 0, stream>>>(t, sum);
}

#define MEASURE_KERNELS(D, E, MASK, n, h, hk) \
    {D, \
     E, \
     n, \
     h, \
     hk, \
     {BurstTiles<D, MASK, E>::FORWARD_Q, BurstTiles<D, MASK, E>::FORWARD_K, \
      BurstTiles<D, MASK, E>::BACKWARD_Q, BurstTiles<D, MASK, E>::BACKWARD_K}, \
     {MASK::KEYS, MASK::KEYS_BACKWARD}, \
     MASK::TABLES, \
     burst_forward_setup<D, MASK, E>, \
     burst_backward_setup<D, MASK, E>, \
     burst_make_lists<MASK>, \
     burst_forward<D, MASK, E>, \
     burst_backward<D, MASK, E>, \
     burst_delta<E>, \
     burst_finish_dq<D>, \
     measure_pairs<MASK>},
static const MeasureKernels measure_cases[] = {MEASURE_CASES(MEASURE_KERNELS)};
enum { MEASURE_CASE_COUNT = sizeof measure_cases / sizeof measure_cases[0] };

typedef enum MeasureDirection { MEASURE_FORWARD, MEASURE_BACKWARD, MEASURE_DIRECTIONS } MeasureDirection;

/* The latest `n` times, once the chip is warm. */
typedef struct MeasureTimes {
    int n;
    double at[MEASURE_ROUNDS];
} MeasureTimes;

typedef struct MeasureSpan {
    cudaEvent_t begin, end;
    int times;
    MeasureTimes *to;
} MeasureSpan;
enum { MEASURE_SPANS = MEASURE_CASE_COUNT * (1 + MEASURE_DIRECTIONS) + 4 }; /* per round */

typedef struct Measure {
    BurstCtx *c;
    BurstGpu *g;
    int multiprocessors;
    cudaEvent_t begin, end;
    MeasureSpan span[MEASURE_SPANS];
    int spans;
    BurstBf16 *a, *b, *out, *w;   /* [N][WIDE], [N][WIDE], [N][WIDE], [WIDE][HIDDEN] */
    float *dw, *rstd;
    BurstBf16 *expert_w; /* gate and up, then down of all experts */
    float *expert_dw;
    int32_t *choice, *slot, *row, *first;
    char *experts_scratch;
    double *scratch;
    int32_t *position;            /* of the longest case */
    BurstBf16 *q, *k, *v, *d_o, *o;
    float *lse, *delta, *dq, *dk, *dv;
    int32_t *lists[MEASURE_DIRECTIONS], *table;
    BurstSide *sides;
    unsigned long long *sum;
    char *hop_out, *hop_in;
    float *gradients;
    double *result;               /* of a clock: cycles, nanoseconds */
    int repeat[MEASURE_CASE_COUNT][MEASURE_DIRECTIONS];
    MeasureTimes attention[MEASURE_CASE_COUNT][MEASURE_DIRECTIONS], product, experts, passes, norms, copy;
} Measure;

static size_t measure_most(size_t (*of)(const MeasureKernels *))
{
    size_t most = 0;
    for (const MeasureKernels &k : measure_cases)
        most = of(&k) > most ? of(&k) : most;
    return most;
}

/* Elements of a head, as wide as the wider of keys and values. */
static size_t measure_widest(const MeasureKernels *k) { return (size_t)(k->d > k->e ? k->d : k->e); }
static size_t measure_queries(const MeasureKernels *k) { return k->tokens * k->heads * measure_widest(k); }
static size_t measure_keys(const MeasureKernels *k) { return k->tokens * k->kv_heads * measure_widest(k); }
static size_t measure_rows(const MeasureKernels *k) { return (size_t)k->tokens * k->heads; }
/* At least as many as the passes need. */
static size_t measure_tokens(const MeasureKernels *k)
{
    return k->tokens > MEASURE_N ? (size_t)k->tokens : (size_t)MEASURE_N;
}

static size_t measure_list(const MeasureKernels *k)
{
    const int *t = k->tile, n = k->tokens;
    const size_t f = burst_lists_ints(burst_tiles(n, t[0]), burst_tiles(n, t[1]), 0, 1);
    const size_t b = burst_lists_ints(burst_tiles(n, t[3]), burst_tiles(n, t[2]),
                                      PLAN_DETERMINISTIC ? k->heads : 0, 1);
    return f > b ? f : b;
}

static size_t measure_sides(const MeasureKernels *k)
{
    const int *t = k->tile, n = k->tokens;
    const int f = burst_lists_sides(burst_tiles(n, t[0]), k->keys[0], t[0], burst_tiles(n, t[1]));
    const int b = burst_lists_sides(burst_tiles(n, t[3]), k->keys[1], t[3], burst_tiles(n, t[2]));
    return (size_t)(f > b ? f : b);
}

/* ---- buffers ---- */
/* Sizes of all buffers; called once to count and once to allocate. */
template <class Take> static void measure_buffers(Measure *m, Take take)
{
    const size_t wide = (size_t)MEASURE_N * MEASURE_WIDE * 2, weights = (size_t)MEASURE_WIDE * MEASURE_HIDDEN;
    const size_t longest = measure_most(measure_tokens);
    const size_t q = measure_most(measure_queries), kv = measure_most(measure_keys),
                 rows = measure_most(measure_rows);
    take(&m->a, wide), take(&m->b, wide), take(&m->out, wide), take(&m->w, weights * 2),
        take(&m->dw, weights * 4);
    take(&m->rstd, (size_t)MEASURE_N * 4),
        take(&m->scratch, (size_t)burst_gpu_rmsnorm_scratch(MEASURE_HIDDEN) * 8);
    if (measure_machine()) {
        const size_t matrix = (size_t)MEASURE_EXPERTS * MEASURE_WIDTH * MEASURE_NARROW;
        take(&m->expert_w, 3 * matrix * 2), take(&m->expert_dw, 2 * matrix * 4);
        take(&m->choice, (size_t)MEASURE_ROWS * 4), take(&m->slot, (size_t)MEASURE_ROWS * 4);
        take(&m->row, (size_t)MEASURE_ROWS * 4), take(&m->first, (MEASURE_EXPERTS + 1) * sizeof *m->first);
        take(&m->experts_scratch, (size_t)MEASURE_EXPERTS * MEASURE_EXPERT_BYTES);
    }
    take(&m->position, longest * 4), take(&m->table, longest * 4);
    take(&m->q, q * 2), take(&m->d_o, q * 2), take(&m->o, q * 2), take(&m->dq, q * 4);
    take(&m->k, kv * 2), take(&m->v, kv * 2), take(&m->dk, kv * 4), take(&m->dv, kv * 4);
    take(&m->lse, rows * 4), take(&m->delta, rows * 4);
    take(&m->lists[0], measure_most(measure_list) * 4), take(&m->lists[1], measure_most(measure_list) * 4);
    take(&m->sides, measure_most(measure_sides) * sizeof(BurstSide));
    take(&m->sum, sizeof *m->sum), take(&m->result, 2 * sizeof *m->result);
    take(&m->hop_out, MEASURE_HOP), take(&m->hop_in, MEASURE_HOP);
    if (measure_machine())
        take(&m->gradients, MEASURE_GRADIENTS);
}

static size_t measure_bytes(void)
{
    Measure none = {};
    size_t all = MEASURE_MIB;
    measure_buffers(&none, [&](auto, size_t bytes) { all += bytes + 512; });
    return all;
}

/* Approximately normal random numbers: the sum of four bytes of a hash. Zeros would draw less power than
 * real data. */
static __global__ void measure_fill_kernel(int64_t count, uint32_t seed, float scale, BurstBf16 *x)
{
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count;
         i += (int64_t)gridDim.x * blockDim.x) {
        uint32_t h = (uint32_t)i * 0x9e3779b1u + seed + (uint32_t)(i >> 32);
        h = (h ^ (h >> 16)) * 0x85ebca6bu;
        h = (h ^ (h >> 13)) * 0xc2b2ae35u;
        h ^= h >> 16;
        const int sum = (int)(h & 255) + (int)(h >> 8 & 255) + (int)(h >> 16 & 255) + (int)(h >> 24);
        x[i] = __float2bfloat16(scale * ((float)sum - 510) / 148);
    }
}

static void measure_fill(Measure *m, size_t count, uint32_t seed, float scale, BurstBf16 *x)
{
    measure_fill_kernel<<<1024, 256, 0, burst_gpu_compute(m->g)>>>((int64_t)count, seed, scale, x);
}

/* Fills positions, and the documents of a table: lengths in turn. */
static int measure_tokens_fill(Measure *m)
{
    static const int lengths[MEASURE_DOCUMENTS] = {8192, 1024, 512, 12000, 3000, 4096, 3944};
    const size_t n = measure_most(measure_tokens);
    int32_t *position = (int32_t *)malloc(n * 4), *document = (int32_t *)malloc(n * 4);
    if (!position || !document)
        return burst_fail(m->c, BURST_E_MEMORY, "no memory for %zu tokens", n);
    int number = 0, left = lengths[0];
    for (size_t i = 0; i < n; i++) {
        position[i] = (int32_t)i;
        document[i] = number;
        if (--left == 0)
            left = lengths[++number % MEASURE_DOCUMENTS];
    }
    MEASURE_CUDA(cudaMemcpy(m->position, position, n * 4, cudaMemcpyHostToDevice));
    MEASURE_CUDA(cudaMemcpy(m->table, document, n * 4, cudaMemcpyHostToDevice));
    free(position);
    free(document);
    return BURST_OK;
}

static BurstExperts measure_layer(void)
{
    BurstExperts m = {};
    m.experts = MEASURE_EXPERTS, m.top = MEASURE_TOP, m.width = MEASURE_WIDTH;
    m.scale = m.alpha = 1;
    return m;
}

/* A token's experts, each of another sixteen: those of an expert are no whole tiles. */
static int measure_choose(Measure *m)
{
    static int32_t choice[MEASURE_ROWS];
    const BurstExperts of = measure_layer();
    const int part = MEASURE_EXPERTS / MEASURE_TOP;
    for (int i = 0; i < MEASURE_ROWS; i++) {
        uint32_t h = (uint32_t)i * 0x9e3779b1u;
        h = (h ^ (h >> 16)) * 0x85ebca6bu;
        choice[i] = i % MEASURE_TOP * part + (int32_t)((h ^ (h >> 13)) % (uint32_t)part);
    }
    measure_fill(m, (size_t)3 * MEASURE_EXPERTS * MEASURE_WIDTH * MEASURE_NARROW, 8, 0.02f, m->expert_w);
    MEASURE_CUDA(cudaMemcpy(m->choice, choice, sizeof choice, cudaMemcpyHostToDevice));
    return burst_op_arrange(m->g, MEASURE_N, &of, m->choice, m->slot, m->row, m->first, m->experts_scratch);
}

static int measure_open(Measure *m)
{
    BURST_TRY(burst_gpu_open(m->c, 1, measure_bytes(), &m->g));
    measure_buffers(m, [&](auto *at, size_t bytes) { *at = (decltype(*at + 0))burst_gpu_take(m->g, bytes); });
    const size_t wide = (size_t)MEASURE_N * MEASURE_WIDE;
    measure_fill(m, wide, 1, 1, m->a);
    measure_fill(m, wide, 2, 1, m->b);
    measure_fill(m, (size_t)MEASURE_WIDE * MEASURE_HIDDEN, 3, 0.02f, m->w);
    measure_fill(m, measure_most(measure_queries), 4, 1, m->q);
    measure_fill(m, measure_most(measure_keys), 5, 1, m->k);
    measure_fill(m, measure_most(measure_keys), 6, 1, m->v);
    measure_fill(m, measure_most(measure_queries), 7, 1, m->d_o);
    MEASURE_CUDA(cudaGetLastError());
    MEASURE_CUDA(cudaEventCreate(&m->begin));
    MEASURE_CUDA(cudaEventCreate(&m->end));
    for (MeasureSpan &span : m->span) {
        MEASURE_CUDA(cudaEventCreate(&span.begin));
        MEASURE_CUDA(cudaEventCreate(&span.end));
    }
    for (const MeasureKernels &k : measure_cases) {
        MEASURE_CUDA(k.forward_setup());
        MEASURE_CUDA(k.backward_setup());
    }
    if (measure_machine())
        BURST_TRY(measure_choose(m));
    return measure_tokens_fill(m);
}

/* ---- measured calls ---- */
static BurstTokens measure_side(const Measure *m, const MeasureKernels *k)
{
    BurstTokens t = {k->tokens, m->position, {}};
    for (int i = 0; i < BURST_MAX_TABLES; i++)
        t.table[i] = k->tables >> i & 1 ? m->table : NULL;
    return t;
}

static BurstRows measure_view(BurstBf16 *at, int heads, int width)
{
    BurstRows r = {at, (int64_t)heads * width, width};
    return r;
}

static int measure_lists(Measure *m, const MeasureKernels *k, int direction, BurstTileLists *out)
{
    const int *t = k->tile + 2 * direction, tiles_q = burst_tiles(k->tokens, t[0]),
              tiles_k = burst_tiles(k->tokens, t[1]);
    const BurstTokens tokens = measure_side(m, k);
    *out = burst_lists_place(direction ? tiles_k : tiles_q, direction ? tiles_q : tiles_k,
                             PLAN_DETERMINISTIC && direction, 1, m->lists[direction]);
    MEASURE_CUDA(k->lists(&tokens, 1, &tokens, 1, NULL, t[0], t[1], !direction, 0, m->sides, *out,
                          burst_gpu_compute(m->g)));
    return BURST_OK;
}

static int measure_forward(Measure *m, const MeasureKernels *k)
{
    BurstForward p;
    memset(&p, 0, sizeof p);
    p.q = measure_view(m->q, k->heads, k->d), p.out = measure_view(m->o, k->heads, k->e);
    p.k = measure_view(m->k, k->kv_heads, k->d), p.v = measure_view(m->v, k->kv_heads, k->e);
    p.lse = m->lse;
    p.q_tokens = p.k_tokens = measure_side(m, k);
    p.q_heads = k->heads, p.group = k->heads / k->kv_heads;
    p.flags = BURST_FIRST | BURST_LAST;
    p.scale = 1 / sqrtf((float)k->d);
    BURST_TRY(measure_lists(m, k, MEASURE_FORWARD, &p.lists));
    MEASURE_CUDA(k->forward(&p, 1, 1, m->multiprocessors, burst_gpu_compute(m->g)));
    return BURST_OK;
}

static int measure_backward(Measure *m, const MeasureKernels *k)
{
    const cudaStream_t stream = burst_gpu_compute(m->g);
    const float scale = 1 / sqrtf((float)k->d);
    BurstBackward p;
    memset(&p, 0, sizeof p);
    p.q = measure_view(m->q, k->heads, k->d), p.d_o = measure_view(m->d_o, k->heads, k->e);
    p.k = measure_view(m->k, k->kv_heads, k->d), p.v = measure_view(m->v, k->kv_heads, k->e);
    p.lse = m->lse, p.delta = m->delta, p.dq = m->dq, p.dk = m->dk, p.dv = m->dv;
    p.q_tokens = p.k_tokens = measure_side(m, k);
    p.q_heads = k->heads, p.kv_heads = k->kv_heads, p.group = k->heads / k->kv_heads;
    p.scale = scale;
    MEASURE_CUDA(k->delta(measure_view(m->o, k->heads, k->e), p.d_o, k->tokens, k->heads, m->delta, stream));
    BURST_TRY(burst_gpu_zero(m->g, m->dq, measure_queries(k) * 4));
    BURST_TRY(burst_gpu_zero(m->g, m->dk, measure_keys(k) * 4));
    BURST_TRY(burst_gpu_zero(m->g, m->dv, measure_keys(k) * 4));
    BURST_TRY(measure_lists(m, k, MEASURE_BACKWARD, &p.lists));
    MEASURE_CUDA(k->backward(&p, 1, 1, m->multiprocessors, stream));
    MEASURE_CUDA(k->finish(m->dq, k->tokens, k->heads, scale, measure_view(m->out, k->heads, k->d), stream));
    return BURST_OK;
}

static int measure_attention(Measure *m, int i, int direction)
{
    return direction ? measure_backward(m, &measure_cases[i]) : measure_forward(m, &measure_cases[i]);
}

/* Each forward, gradient of x and gradient of the weight: 6 operations a weight and token. */
static const struct {
    int in, out;
} measure_shapes[] = {{MEASURE_HIDDEN, MEASURE_HIDDEN},
                      {MEASURE_HIDDEN, MEASURE_WIDE},
                      {MEASURE_FFN, MEASURE_HIDDEN}};

static double measure_product_flops(void)
{
    double flops = 0;
    for (const auto &s : measure_shapes)
        flops += 6.0 * MEASURE_N * s.in * s.out;
    return flops;
}

static int measure_products(Measure *m)
{
    for (const auto &s : measure_shapes) {
        BURST_TRY(burst_op_linear(m->g, MEASURE_N, s.in, s.out, 1, m->a, m->w, NULL, m->out));
        BURST_TRY(burst_op_linear_dx(m->g, MEASURE_N, s.in, s.out, 1, m->b, m->w, m->out, false));
        BURST_TRY(burst_op_linear_dw(m->g, MEASURE_N, s.in, s.out, 1, m->b, m->a, m->dw));
    }
    return BURST_OK;
}

/* Operations of whole tiles: the last of an expert is half full. */
static constexpr double MEASURE_EXPERTS_FLOPS = 18.0 *
                                                (MEASURE_ROWS + MEASURE_EXPERTS * MEASURE_EXPERT_TILE / 2) *
                                                MEASURE_WIDTH * MEASURE_NARROW;

/* Forward and both gradients of the two products of experts' matrices. */
static int measure_experts(Measure *m)
{
    const BurstExperts of = measure_layer();
    const BurstBf16 *up = m->expert_w,
                    *down = up + (size_t)2 * MEASURE_EXPERTS * MEASURE_WIDTH * MEASURE_NARROW;
    const int n = MEASURE_N, h = MEASURE_NARROW;
    BURST_TRY(burst_op_experts_up(m->g, n, &of, h, m->a, m->row, m->first, up, m->out, NULL));
    BURST_TRY(burst_op_experts_down(m->g, n, &of, h, m->b, m->first, down, m->out));
    BURST_TRY(burst_op_experts_down_dw(m->g, n, &of, h, m->a, m->b, m->row, m->first, m->expert_dw, NULL));
    BURST_TRY(burst_op_experts_down_dx(m->g, n, &of, h, m->a, m->row, m->first, down, m->out, NULL));
    BURST_TRY(burst_op_experts_up_dw(m->g, n, &of, h, m->b, m->a, m->row, m->first, m->expert_dw, NULL));
    return burst_op_experts_up_dx(m->g, n, &of, h, m->b, m->first, up, m->out);
}

/* Bytes of rows of `hidden` and `ffn` elements read and written, as the step's operations count them. */
static constexpr double MEASURE_NORM_BYTES = 2.0 * MEASURE_N * 11 * MEASURE_HIDDEN,
                        MEASURE_PASS_BYTES = 2.0 * MEASURE_N * 8 * MEASURE_FFN;

static int measure_passes(Measure *m)
{
    BURST_TRY(burst_op_swiglu(m->g, MEASURE_N, MEASURE_FFN, m->a, m->out));
    return burst_op_swiglu_back(m->g, MEASURE_N, MEASURE_FFN, m->a, m->b, m->out);
}

static int measure_norms(Measure *m)
{
    const int n = MEASURE_N, h = MEASURE_HIDDEN, d = MEASURE_HEAD_DIM;
    BurstRope rope = {};
    rope.theta = 5e5;
    BURST_TRY(burst_op_rmsnorm(m->g, n, h, 1e-5, m->a, m->w, m->out, m->rstd));
    BURST_TRY(burst_op_rope(m->g, n, h / d, d, &rope, m->position, m->out, m->out));
    BURST_TRY(burst_op_rope_back(m->g, n, h / d, d, &rope, m->position, m->dw, m->out));
    return burst_op_rmsnorm_back(m->g, n, h, m->a, m->rstd, m->b, m->w, m->out, true, m->dw, m->scratch);
}

static int measure_copy(Measure *m)
{
    MEASURE_CUDA(cudaMemcpyAsync(m->hop_in, m->hop_out, MEASURE_HOP, cudaMemcpyDeviceToDevice,
                                 burst_gpu_compute(m->g)));
    return BURST_OK;
}

/* ---- rounds ---- */
template <class Call>
static int measure_time(Measure *m, cudaStream_t stream, int times, double *seconds, Call call)
{
    float ms = 0;
    MEASURE_CUDA(cudaEventRecord(m->begin, stream));
    for (int i = 0; i < times; i++)
        BURST_TRY(call());
    MEASURE_CUDA(cudaEventRecord(m->end, stream));
    BURST_TRY(burst_gpu_sync(m->g));
    MEASURE_CUDA(cudaEventElapsedTime(&ms, m->begin, m->end));
    *seconds = 1e-3 * ms / times;
    return BURST_OK;
}

static void measure_add(MeasureTimes *t, double seconds) { t->at[t->n++ % MEASURE_ROUNDS] = seconds; }

static int measure_by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double measure_median(MeasureTimes *t)
{
    const int n = t->n < MEASURE_ROUNDS ? t->n : MEASURE_ROUNDS;
    qsort(t->at, (size_t)n, sizeof *t->at, measure_by_size);
    return n ? t->at[n / 2] : 0;
}

/* Replaces a rank's seconds by the slowest rank's, for which ranks that share a sequence wait; apart, if
 * given: the ratio to the fastest rank's. */
static int measure_slowest(Measure *m, double *seconds, double *apart)
{
    const int world = burst_world(m->c);
    double of[BURST_MOST_VALUES] = {};
    if (world > BURST_MOST_VALUES)
        return burst_fail(m->c, BURST_E_DEVICE, "more than %d GPUs", BURST_MOST_VALUES);
    of[burst_rank(m->c)] = *seconds;
    BURST_TRY(burst_allreduce(m->c, BurstGroup{0, 1, world}, of, world));
    double least = of[0];
    for (int r = 0; r < world; r++) {
        *seconds = of[r] > *seconds ? of[r] : *seconds;
        least = of[r] < least ? of[r] : least;
    }
    if (apart)
        *apart = *seconds / least;
    return BURST_OK;
}

/* Queues the call on the compute stream between two events. A round is waited for only at its end, or the
 * chip would idle between calls. */
template <class Call> static int measure_queue(Measure *m, int times, MeasureTimes *to, Call call)
{
    MeasureSpan *span = &m->span[m->spans++];
    const cudaStream_t stream = burst_gpu_compute(m->g);
    *span = MeasureSpan{span->begin, span->end, times, to};
    MEASURE_CUDA(cudaEventRecord(span->begin, stream));
    for (int i = 0; i < times; i++)
        BURST_TRY(call());
    MEASURE_CUDA(cudaEventRecord(span->end, stream));
    return BURST_OK;
}

static int measure_collect(Measure *m)
{
    BURST_TRY(burst_gpu_sync(m->g));
    for (int i = 0; i < m->spans; i++) {
        float ms = 0;
        MEASURE_CUDA(cudaEventElapsedTime(&ms, m->span[i].begin, m->span[i].end));
        measure_add(m->span[i].to, 1e-3 * ms / m->span[i].times);
    }
    m->spans = 0;
    return BURST_OK;
}

/* Runs everything once to warm up, and finds how often to repeat short calls. */
static int measure_first(Measure *m)
{
    double seconds = 0;
    BURST_TRY(measure_products(m));
    for (int i = 0; i < MEASURE_CASE_COUNT; i++)
        for (int d = 0; d < MEASURE_DIRECTIONS; d++) {
            for (int warm = 0; warm < 2; warm++)
                BURST_TRY(measure_time(m, burst_gpu_compute(m->g), 1, &seconds,
                                       [&] { return measure_attention(m, i, d); }));
            m->repeat[i][d] = seconds > MEASURE_SHORT ? 1 : (int)(MEASURE_SHORT / seconds) + 1;
        }
    return BURST_OK;
}

static int measure_round(Measure *m)
{
    for (int i = 0; i < MEASURE_CASE_COUNT; i++) {
        BURST_TRY(measure_queue(m, 1, &m->product, [&] { return measure_products(m); }));
        for (int d = 0; d < MEASURE_DIRECTIONS; d++)
            BURST_TRY(measure_queue(m, m->repeat[i][d], &m->attention[i][d],
                                    [&] { return measure_attention(m, i, d); }));
    }
    if (measure_machine()) {
        BURST_TRY(measure_queue(m, 1, &m->experts, [&] { return measure_experts(m); }));
        BURST_TRY(measure_queue(m, 2, &m->passes, [&] { return measure_passes(m); }));
        BURST_TRY(measure_queue(m, 4, &m->norms, [&] { return measure_norms(m); }));
        BURST_TRY(measure_queue(m, 8, &m->copy, [&] { return measure_copy(m); }));
    }
    return measure_collect(m);
}

static int measure_rounds(Measure *m)
{
    const double begin = burst_seconds();
    BURST_TRY(measure_first(m));
    for (int i = 0;
         i < MEASURE_ROUNDS && (i < MEASURE_LEAST_ROUNDS || burst_seconds() - begin < MEASURE_SECONDS); i++)
        BURST_TRY(measure_round(m));
    return BURST_OK;
}

/* ---- tiles, pairs and the clock ---- */
/* Measures a multiprocessor's clock over so many nanoseconds while other work runs: cycles and
 * nanoseconds. */
static __global__ void measure_clock_kernel(double *out, int64_t length)
{
    int64_t begin, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
    const int64_t cycles = clock64();
    do {
        __nanosleep(2000);
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    } while (now - begin < length);
    out[0] = (double)(clock64() - cycles), out[1] = (double)(now - begin);
}

static int measure_clock(Measure *m, int i, int direction, double seconds, double *hertz)
{
    enum { REPEAT = 4 };
    const int times = REPEAT * m->repeat[i][direction];
    double got[2] = {0, 1};
    measure_clock_kernel<<<1, 1, 0, burst_gpu_channel(m->g, 0)>>>(m->result,
                                                                  (int64_t)(0.7e9 * seconds * times));
    for (int at = 0; at < times; at++)
        BURST_TRY(measure_attention(m, i, direction));
    BURST_TRY(burst_gpu_sync(m->g));
    MEASURE_CUDA(cudaMemcpy(got, m->result, sizeof got, cudaMemcpyDeviceToHost));
    *hertz = 1e9 * got[0] / got[1];
    return BURST_OK;
}

/* Counts the computed tiles of one head. */
static int measure_tiles(Measure *m, const MeasureKernels *k, int direction, double *tiles)
{
    enum { MOST = 1 << 16 };
    static int32_t count[MOST];
    BurstTileLists l;
    BURST_TRY(measure_lists(m, k, direction, &l));
    BURST_TRY(burst_gpu_sync(m->g));
    *tiles = 0;
    for (int at = 0; at < l.rows; at += MOST) {
        const int part = l.rows - at < MOST ? l.rows - at : MOST;
        MEASURE_CUDA(cudaMemcpy(count, l.count + at, (size_t)part * sizeof *count, cudaMemcpyDeviceToHost));
        for (int i = 0; i < part; i++)
            *tiles += count[i];
    }
    return BURST_OK;
}

static int measure_count(Measure *m, const MeasureKernels *k, double *pairs)
{
    unsigned long long sum = 0;
    MEASURE_CUDA(cudaMemsetAsync(m->sum, 0, sizeof sum, burst_gpu_compute(m->g)));
    k->pairs(measure_side(m, k), m->sum, burst_gpu_compute(m->g));
    MEASURE_CUDA(cudaGetLastError());
    BURST_TRY(burst_gpu_sync(m->g));
    MEASURE_CUDA(cudaMemcpy(&sum, m->sum, sizeof sum, cudaMemcpyDeviceToHost));
    *pairs = (double)sum;
    return BURST_OK;
}

/* Prints attention NUMBER PAIRS, then for both directions seconds, tiles and cycles per tile of a
 * multiprocessor of rank 0. apart: of both directions. */
static int measure_print_case(Measure *m, int i, double apart[MEASURE_DIRECTIONS])
{
    const MeasureKernels *k = &measure_cases[i];
    double pairs = 0, seconds[MEASURE_DIRECTIONS] = {}, tiles[MEASURE_DIRECTIONS] = {},
           cycles[MEASURE_DIRECTIONS] = {};
    BURST_TRY(measure_count(m, k, &pairs));
    for (int d = 0; d < MEASURE_DIRECTIONS; d++) {
        double hertz = 0;
        seconds[d] = measure_median(&m->attention[i][d]);
        BURST_TRY(measure_tiles(m, k, d, &tiles[d]));
        BURST_TRY(measure_clock(m, i, d, seconds[d], &hertz));
        cycles[d] = tiles[d] > 0 ? seconds[d] * hertz * m->multiprocessors / (tiles[d] * k->heads) : 0;
        BURST_TRY(measure_slowest(m, &seconds[d], &apart[d]));
    }
    if (burst_rank(m->c) == 0)
        printf("attention %d %.0f %.9g %.0f %.6g %.9g %.0f %.6g\n", i, pairs, seconds[0], tiles[0], cycles[0],
               seconds[1], tiles[1], cycles[1]);
    return BURST_OK;
}

#include "burst_measure_links_cuda.cuh"

/* Prints the name and the slowest rank's rate of so many operations or bytes. */
static int measure_print_rate(Measure *m, const char *name, double work, MeasureTimes *t, double *apart)
{
    double seconds = measure_median(t);
    BURST_TRY(measure_slowest(m, &seconds, apart));
    if (burst_rank(m->c) == 0)
        printf("%s %.6g\n", name, work / seconds);
    return BURST_OK;
}

static int measure_print_machine(Measure *m)
{
    BURST_TRY(measure_print_rate(m, "passes", MEASURE_PASS_BYTES, &m->passes, NULL));
    BURST_TRY(measure_print_rate(m, "norms", MEASURE_NORM_BYTES, &m->norms, NULL));
    BURST_TRY(measure_print_rate(m, "copy", 2.0 * MEASURE_HOP, &m->copy, NULL));
    BURST_TRY(measure_print_rate(m, "experts", MEASURE_EXPERTS_FLOPS, &m->experts, NULL));
    BURST_TRY(measure_pcie(m));
    return burst_world(m->c) > 1 ? measure_links(m) : BURST_OK;
}

static int measure_body(BurstCtx *c, const BurstPlan *p, void *argument)
{
    static Measure measure;
    Measure *m = &measure;
    cudaDeviceProp device;
    (void)p, (void)argument;
    m->c = c;
    setenv("BURST_TRANSPORT", "auto", 1);
    BURST_TRY(measure_open(m));
    int current;
    MEASURE_CUDA(cudaGetDevice(&current));
    MEASURE_CUDA(cudaGetDeviceProperties(&device, current));
    m->multiprocessors = device.multiProcessorCount;
    if (burst_rank(c) == 0)
        printf("burst-measure 1\ngpus %d\ndevice %zu %s\n", burst_world(c), device.totalGlobalMem,
               device.name);
    BURST_TRY(measure_rounds(m));
    double apart[1 + MEASURE_DIRECTIONS] = {}, other[MEASURE_DIRECTIONS];
    BURST_TRY(measure_print_rate(m, "product", measure_product_flops(), &m->product, apart));
    for (int i = 0; i < MEASURE_CASE_COUNT; i++)
        BURST_TRY(measure_print_case(m, i, i ? other : apart + 1));
    if (burst_rank(c) == 0 && burst_world(c) > 1)
        printf("apart %.4f %.4f %.4f\n", apart[0], apart[1], apart[2]);
    if (measure_machine())
        BURST_TRY(measure_print_machine(m));
    if (burst_rank(c) == 0)
        printf("end\n");
    fflush(stdout);
    const int status = burst_barrier(c, BurstGroup{0, 1, burst_world(c)});
    burst_gpu_close(m->g);
    return status;
}

/* Runs in a process of its own, since CUDA does not survive a fork. */
static int measure_devices(void)
{
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        int count = 0;
        _exit(cudaGetDeviceCount(&count) == cudaSuccess ? count : 0);
    }
    int status = 0;
    return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : 0;
}

int main(int argc, char **argv)
{
    const int found = measure_devices();
    static const BurstUnit unit = {"gradients", 1, 1, 0, NULL, 1};
    BurstPlan p = {};
    p.units = &unit;
    p.abi = BURST_RT_ABI, p.source = "burstc", p.data = 1, p.nodes = 1;
    p.world = p.group = measure_machine() && found > 0 ? found : 1;
    p.on_gpu = true;
    p.arena_bytes = burst_weights_bytes(&p) + 4096;
    return burst_launch(&p, argc, argv, measure_body, NULL);
}
