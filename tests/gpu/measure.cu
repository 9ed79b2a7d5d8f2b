/* measure.cu: rates of the layer's kernels at the size of a 7B model, and of a hop. Printed, not judged. */
#include "check.h"

#include <stdio.h>

enum {
    N = 16384,
    HIDDEN = 4096,
    FFN = 14336,
    HEADS = 32,
    D = 128,
    VOCAB = 128256,
    LOSS_TOKENS = 4096,
    LONG = 131072,
    ROUNDS = 5
};

typedef struct Sizes {
    double flops, bytes;
} Sizes; /* of one call */

/* The best of some rounds, by events on the stream. */
template <typename Call>
static void timed(Check *k, const char *name, cudaStream_t stream, Sizes s, Call call)
{
    cudaEvent_t begin, end;
    float best = 1e30f, ms = 0;
    cudaEventCreate(&begin);
    cudaEventCreate(&end);
    for (int i = 0; i < ROUNDS; i++) {
        cudaEventRecord(begin, stream);
        MUST(k, call());
        cudaEventRecord(end, stream);
        MUST(k, burst_gpu_sync(k->g));
        cudaEventElapsedTime(&ms, begin, end);
        best = ms < best ? ms : best;
    }
    if (burst_rank(k->c) == 0)
        printf("%-18s %9.3f ms %8.1f TFLOP/s %8.1f GB/s\n", name, best, s.flops / best * 1e-9,
               s.bytes / best * 1e-6);
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
}

/* Random numbers that repeat every million: made on the host once, multiplied on the device. */
static BurstBf16 *rows(Check *k, size_t count, unsigned seed)
{
    const size_t piece = 1 << 20;
    BurstBf16 *from = up_bf16(k, random_bf16(piece, seed, 0.05)),
              *to = (BurstBf16 *)burst_gpu_take(k->g, count * sizeof *to);
    for (size_t at = 0; to && at < count; at += piece) {
        const size_t part = count - at < piece ? count - at : piece;
        cudaMemcpyAsync(to + at, from, part * sizeof *to, cudaMemcpyDeviceToDevice, burst_gpu_compute(k->g));
    }
    MUST(k, to ? burst_gpu_sync(k->g) : BURST_E_MEMORY);
    return to;
}

typedef struct Arrays {
    BurstBf16 *x, *y, *z, *wide, *gu, *gu2, *w;
    float *dw, *fp32, *rstd, *scratch;
    int32_t *ints;
} Arrays;

static Arrays arrays(Check *k)
{
    const size_t count = (size_t)N * HIDDEN, wide = (size_t)N * FFN;
    Arrays a;
    a.x = rows(k, count, 1), a.y = rows(k, count, 2), a.z = rows(k, count, 3);
    a.wide = rows(k, wide, 4), a.gu = rows(k, 2 * wide, 5), a.gu2 = rows(k, 2 * wide, 6);
    a.w = rows(k, (size_t)VOCAB * HIDDEN, 7);
    a.dw = (float *)burst_gpu_take(k->g, (size_t)VOCAB * HIDDEN * sizeof(float));
    a.fp32 = (float *)burst_gpu_take(k->g, count * sizeof(float));
    a.rstd = up(k, random_floats(N, 8, 1));
    a.scratch = (float *)burst_gpu_take(k->g,
                                        (size_t)burst_gpu_loss_bytes(burst_gpu_loss_tile(VOCAB), VOCAB));
    a.ints = up(k, random_ints(N, 9, 32000));
    MUST(k, a.dw && a.fp32 && a.scratch ? BURST_OK : BURST_E_MEMORY);
    return a;
}

static void measure_products(Check *k, const Arrays &a, cudaStream_t s)
{
    const double flops = 2.0 * N * HIDDEN * FFN;
    timed(k, "linear", s, {flops, 0},
          [&] { return burst_op_linear(k->g, N, HIDDEN, FFN, 1, a.x, a.w, NULL, a.wide); });
    timed(k, "linear_dx", s, {flops, 0},
          [&] { return burst_op_linear_dx(k->g, N, HIDDEN, FFN, 1, a.wide, a.w, a.y, false); });
    timed(k, "linear_dw", s, {flops, 0},
          [&] { return burst_op_linear_dw(k->g, N, HIDDEN, FFN, 1, a.wide, a.x, a.dw); });
}

static void measure_elementwise(Check *k, const Arrays &a, cudaStream_t s)
{
    const double one = 2.0 * N * HIDDEN, wide = 2.0 * N * FFN;
    timed(k, "rmsnorm", s, {0, 2 * one},
          [&] { return burst_op_rmsnorm(k->g, N, HIDDEN, 1e-5, a.x, a.w, a.y, a.rstd); });
    timed(k, "rmsnorm_back", s, {0, 4 * one}, [&] {
        return burst_op_rmsnorm_back(k->g, N, HIDDEN, a.x, a.rstd, a.y, a.w, a.z, true, a.dw, a.scratch);
    });
    BurstRope rope = {};
    rope.theta = 5e5;
    timed(k, "rope", s, {0, 2 * one},
          [&] { return burst_op_rope(k->g, N, HEADS, D, &rope, a.ints, a.y, a.y); });
    timed(k, "rope_back", s, {0, 3 * one},
          [&] { return burst_op_rope_back(k->g, N, HEADS, D, &rope, a.ints, a.fp32, a.y); });
    timed(k, "swiglu", s, {0, 3 * wide}, [&] { return burst_op_swiglu(k->g, N, FFN, a.gu, a.wide); });
    timed(k, "swiglu_back", s, {0, 5 * wide},
          [&] { return burst_op_swiglu_back(k->g, N, FFN, a.gu, a.wide, a.gu2); });
    timed(k, "delta", s, {0, 2 * one}, [&] { return burst_op_delta(k->g, N, HEADS, D, a.x, a.y, a.fp32); });
    timed(k, "embed", s, {0, 2 * one}, [&] { return burst_op_embed(k->g, N, HIDDEN, a.ints, a.w, a.y); });
    timed(k, "embed_back", s, {0, one},
          [&] { return burst_op_embed_back(k->g, N, HIDDEN, a.ints, a.x, a.dw, NULL); });
}

/* The embedding's gradient of a long sequence: of all words alike, and of one word that is so many per
 * cent of them. */
static void measure_embedding(Check *k, const Arrays &a, cudaStream_t s)
{
    static const struct {
        const char *name;
        int percent;
    } cases[] = {{"embed_back alike", 0},
                 {"embed_back 10 %", 10},
                 {"embed_back 90 %", 90},
                 {"embed_back 100 %", 100}};
    const BurstBf16 *dx = rows(k, (size_t)LONG * HIDDEN, 11);
    for (const auto &c : cases) {
        std::vector<int32_t> token = random_ints(LONG, 12, VOCAB);
        for (int i = 0; i < LONG; i++)
            token[i] = i * 37 % 100 < c.percent ? 7 : token[i];
        const int32_t *at = up(k, token);
        timed(k, c.name, s, {0, 2.0 * LONG * HIDDEN},
              [&] { return burst_op_embed_back(k->g, LONG, HIDDEN, at, dx, a.dw, NULL); });
    }
}

static void measure_loss(Check *k, const Arrays &a, cudaStream_t s)
{
    double *sum = (double *)burst_gpu_take(k->g, sizeof *sum);
    float *weight = up(k, Floats(LOSS_TOKENS, 1.0f));
    for (const double softcap : {0.0, 30.0})
        timed(k, softcap > 0 ? "loss, softcap" : "loss", s, {6.0 * LOSS_TOKENS * HIDDEN * VOCAB, 0}, [&] {
            return burst_op_loss_head(k->g, LOSS_TOKENS, HIDDEN, VOCAB, burst_gpu_loss_tile(VOCAB), 1,
                                      softcap, 1, a.x, a.w, a.ints, weight, 1e-4, sum, a.y, a.dw, a.scratch);
        });
}

/* One tensor of 64 Mi elements a rank; the norm's pass over the gradients and the host's wait for it
 * included. */
static void measure_adamw(Check *k, cudaStream_t s)
{
    const int64_t shard = 64 << 20, all = shard * burst_world(k->c);
    const BurstTensor tensor = {"weight", all, 1, 0, 1};
    const BurstUnit unit = {"unit", all, shard, 1, &tensor, 1};
    BurstPlan p = *k->p;
    p.units = &unit, p.unit_rows = 1;
    float *part[4];
    for (float *&at : part) {
        at = (float *)burst_gpu_take(k->g, (size_t)shard * sizeof(float));
        cudaMemsetAsync(at, 0, (size_t)shard * sizeof(float), s);
    }
    BurstBf16 *bf16 = (BurstBf16 *)burst_gpu_take(k->g, (size_t)shard * sizeof *bf16), *fp32_gradients = NULL;
    BurstGpuWeights w = {.units = 1,
                         .param = &part[0],
                         .grad = &part[1],
                         .m = &part[2],
                         .v = &part[3],
                         .bf16 = &bf16,
                         .grad_bf16 = &fp32_gradients};
    double norm;
    timed(k, "weights_update", s, {0, 34.0 * (double)shard},
          [&] { return burst_op_update(k->g, &p, &w, 1, &norm); });
}

static void measure_hop(Check *k, const Arrays &a)
{
    const int world = burst_world(k->c), me = burst_rank(k->c);
    for (size_t bytes = 8u << 20; world > 1 && bytes <= 128u << 20; bytes *= 4) {
        char name[32];
        snprintf(name, sizeof name, "hop of %zu MiB", bytes >> 20);
        const BurstBuffer out = {a.x, bytes, a.y}, in = {a.y, bytes, NULL};
        timed(k, name, burst_gpu_channel(k->g, 0), {0, (double)bytes}, [&] {
            return burst_gpu_hop(k->g, 0, &out, 1, (me + 1) % world, &in, 1, (me + world - 1) % world);
        });
    }
}

void measure(Check *k)
{
    const cudaStream_t s = burst_gpu_compute(k->g);
    const Arrays a = arrays(k);
    measure_products(k, a, s);
    measure_elementwise(k, a, s);
    measure_embedding(k, a, s);
    measure_loss(k, a, s);
    measure_adamw(k, s);
    measure_hop(k, a);
}
