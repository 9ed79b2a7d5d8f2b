/* loss.cu: LM head and cross entropy fused over tiles of tokens (BurstEngine, 3.3). A tile's logits are fp32
 * in scratch; their gradients replace them as bf16 and are the input of the two products of backward.
 * Nothing of size n x vocab is stored. */
#include "cuda/gpu.h"
#include "cuda/ops/vec.cuh"

#include <math_constants.h>

enum { THREADS = 512 };

/* ---- logits after the product ---- */
/* bias NULL: none; cap 0: none. Heads with neither have kernels of their own. */
typedef struct Finish {
    const BurstBf16 *bias; /* [vocab] */
    float bias_scale, cap;
} Finish;

template <bool FINISHES> static __device__ float finished(const Finish &h, int word, float logit)
{
    if (!FINISHES)
        return logit;
    const float z = h.bias ? logit + h.bias_scale * __bfloat162float(h.bias[word]) : logit;
    return h.cap > 0 ? h.cap * tanhf(z / h.cap) : z;
}

/* The slope of a finished logit with respect to the product. */
template <bool FINISHES> static __device__ float slope(const Finish &h, float logit)
{
    if (!FINISHES || !(h.cap > 0))
        return 1;
    const float part = logit / h.cap;
    return (1 - part) * (1 + part);
}

/* ---- one token ---- */
/* The greatest logit, and the sum of exp(logit - top) over all but the label: the label's own gradient is
 * -others / (others + its own exp), which is accurate even if the label is nearly certain. */
typedef struct Sums {
    float top, others;
} Sums;

static __device__ Sums join(Sums a, Sums b)
{
    const float top = fmaxf(a.top, b.top);
    if (top == -CUDART_INF_F)
        return Sums{top, 0};
    return Sums{top, a.others * __expf(a.top - top) + b.others * __expf(b.top - top)};
}

/* Loads eight logits at i; -inf after the vocabulary. */
template <bool FINISHES>
static __device__ void load_logits(const Finish &h, const float *logit, int vocab, int i, float f[VEC])
{
    load(logit + i, f);
    for (int j = 0; j < VEC; j++)
        f[j] = i + j < vocab ? finished<FINISHES>(h, i + j, f[j]) : -CUDART_INF_F;
}

template <bool FINISHES>
static __device__ Sums thread_sums(const Finish &h, const float *logit, int vocab, int label)
{
    Sums s = {-CUDART_INF_F, 0};
    for (int i = VEC * threadIdx.x; i < vocab; i += VEC * THREADS) {
        float f[VEC], top = s.top, sum = 0;
        load_logits<FINISHES>(h, logit, vocab, i, f);
        for (int j = 0; j < VEC; j++)
            top = fmaxf(top, f[j]);
        for (int j = 0; j < VEC; j++)
            sum += i + j == label ? 0 : __expf(f[j] - top);
        s = Sums{top, s.others * __expf(s.top - top) + sum};
    }
    return s;
}

static __device__ Sums block_sums(Sums s)
{
    __shared__ Sums part[WARP];
    for (int lane = WARP / 2; lane > 0; lane /= 2)
        s = join(s, Sums{__shfl_xor_sync(0xffffffffu, s.top, lane),
                         __shfl_xor_sync(0xffffffffu, s.others, lane)});
    if (threadIdx.x % WARP == 0)
        part[threadIdx.x / WARP] = s;
    __syncthreads();
    s = part[0];
    for (int i = 1; i < THREADS / WARP; i++)
        s = join(s, part[i]);
    return s;
}

/* The gradient of the product from the finished logit's; 0 after the vocabulary. */
template <bool FINISHES> static __device__ float gradient_before(const Finish &h, float logit, float gradient)
{
    return FINISHES && gradient == 0 ? 0 : gradient * slope<FINISHES>(h, logit);
}

/* Writes factor (softmax - onehot) as bf16 in place: in the first half of the row's bytes. A round writes
 * only what this or an earlier round has read. */
template <bool FINISHES>
static __device__ void gradients(const Finish &h, float *logit, int vocab, int label, float top, float share,
                                 float at_label)
{
    BurstBf16 *out = (BurstBf16 *)logit;
    for (int first = 0; first < vocab; first += VEC * THREADS) {
        const int i = first + VEC * (int)threadIdx.x;
        float f[VEC];
        if (i < vocab)
            load_logits<FINISHES>(h, logit, vocab, i, f);
        __syncthreads();
        if (i >= vocab)
            continue;
        for (int j = 0; j < VEC; j++)
            f[j] = gradient_before<FINISHES>(h, f[j], i + j == label ? at_label : share * __expf(f[j] - top));
        store(out + i, f);
    }
}

static __device__ void no_gradients(float *logit, int vocab)
{
    for (int i = VEC * threadIdx.x; i < vocab; i += VEC * THREADS)
        *(uint4 *)((BurstBf16 *)logit + i) = make_uint4(0, 0, 0, 0);
}

/* BACK: logits are replaced by their gradients. */
template <bool FINISHES, bool BACK>
static __global__ void __launch_bounds__(THREADS)
    loss_kernel(Finish h, int vocab, int64_t row, const int32_t *label, const float *weight, float scale,
                float *logits, double *loss)
{
    float *logit = logits + blockIdx.x * row;
    const int mine = label[blockIdx.x];
    const float w = weight[blockIdx.x];
    if (mine < 0 || w == 0) {
        if (BACK)
            no_gradients(logit, vocab);
        if (threadIdx.x == 0)
            loss[blockIdx.x] = 0;
        return;
    }
    const float at_label = finished<FINISHES>(h, mine, logit[mine]);
    const Sums s = block_sums(thread_sums<FINISHES>(h, logit, vocab, mine));
    const float own = __expf(at_label - s.top), sum = s.others + own, factor = scale * w;
    if (threadIdx.x == 0)
        loss[blockIdx.x] = (double)w *
                           (log((double)s.others + (double)own) + (double)s.top - (double)at_label);
    if (BACK)
        gradients<FINISHES>(h, logit, vocab, mine, s.top, factor / sum, -factor * (s.others / sum));
}

/* One block, with a fixed order. */
static __global__ void __launch_bounds__(THREADS)
    add_losses_kernel(int64_t tokens, const double *loss, double *loss_sum)
{
    double sum = 0;
    for (int64_t i = threadIdx.x; i < tokens; i += THREADS)
        sum += loss[i];
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        *loss_sum += sum;
}

/* ---- tiles ---- */
typedef struct Head {
    int hidden, vocab;
    const BurstBf16 *w, *bias;
    float *dw, *d_bias;
    double bias_scale;
    float *logits; /* [tile][burst_gpu_loss_row(vocab)] */
    double *loss;  /* [tile] */
} Head;

/* logits^T [vocab][tokens] = W x^T. */
static int logits_of(BurstGpu *g, const Head *h, int64_t tokens, const BurstBf16 *x)
{
    Shape s = {.transpose_a = 1,
               .m = h->vocab,
               .n = tokens,
               .k = h->hidden,
               .lda = h->hidden,
               .ldb = h->hidden,
               .ldc = burst_gpu_loss_row(h->vocab),
               .fp32_out = 1};
    return gpu_product(g, &s, h->w, x, h->logits, h->logits);
}

/* dx^T = W^T dlogits^T, dw^T += x^T dlogits, and the bias's sums. A bf16 row of dlogits has the stride of an
 * fp32 one. */
static int products_back(BurstGpu *g, const Head *h, int64_t tokens, const BurstBf16 *x, BurstBf16 *dx)
{
    const int64_t row = 2 * burst_gpu_loss_row(h->vocab);
    Shape to_x = {.m = h->hidden, .n = tokens, .k = h->vocab, .lda = h->hidden, .ldb = row, .ldc = h->hidden};
    Shape to_w = {.transpose_b = 1,
                  .m = h->hidden,
                  .n = h->vocab,
                  .k = tokens,
                  .lda = h->hidden,
                  .ldb = row,
                  .ldc = h->hidden,
                  .fp32_out = 1,
                  .beta = 1};
    BURST_TRY(gpu_product(g, &to_x, h->w, h->logits, dx, dx));
    BURST_TRY(gpu_product(g, &to_w, x, h->logits, h->dw, h->dw));
    if (!h->bias)
        return BURST_OK;
    return gpu_bias_back_rows(g, tokens, h->vocab, row, (const BurstBf16 *)h->logits,
                              h->bias_scale, h->d_bias);
}

int burst_op_loss_head(BurstGpu *g, int64_t n, int hidden, int vocab, int64_t tile, int tensors,
                       double softcap, double bias_scale, const BurstBf16 *x, const BurstBf16 *w,
                       const int32_t *label, const float *weight, double scale, double *loss,
                       BurstBf16 *dx, float *dw, void *scratch)
{
    const int64_t row = burst_gpu_loss_row(vocab), matrix = (int64_t)vocab * hidden;
    const bool biased = tensors > 1, finishes = biased || softcap > 0;
    const Head h = {hidden,
                    vocab,
                    w,
                    biased ? w + matrix : NULL,
                    dw,
                    biased ? dw + matrix : NULL,
                    bias_scale,
                    (float *)scratch,
                    (double *)((float *)scratch + tile * row)};
    const Finish finish = {h.bias, (float)bias_scale, (float)softcap};
    const uintptr_t weights = address(w) | address(dw);
    BURST_TRY(gpu_aligned(g, "loss", hidden, address(x) | weights | address(dx) | address(scratch)));
    for (int64_t i = 0; i < n; i += tile) {
        const int64_t tokens = n - i < tile ? n - i : tile;
        BURST_TRY(logits_of(g, &h, tokens, x + i * hidden));
        const auto kernel = finishes ? loss_kernel<true, true> : loss_kernel<false, true>;
        kernel<<<(unsigned)tokens, THREADS, 0, g->compute>>>(finish, vocab, row, label + i, weight + i,
                                                             (float)scale, h.logits, h.loss);
        BURST_TRY(gpu_launched(g, "loss"));
        add_losses_kernel<<<1, THREADS, 0, g->compute>>>(tokens, h.loss, loss);
        BURST_TRY(gpu_launched(g, "loss"));
        BURST_TRY(products_back(g, &h, tokens, x + i * hidden, dx + i * hidden));
    }
    return BURST_OK;
}

int burst_op_loss(BurstGpu *g, int64_t n, int hidden, int vocab, int64_t tile, const BurstBf16 *x,
                  const BurstBf16 *w, const int32_t *label, const float *weight, double scale, double *loss,
                  BurstBf16 *dx, float *dw, void *scratch)
{
    return burst_op_loss_head(g, n, hidden, vocab, tile, 1, 0, 1, x, w, label, weight, scale, loss, dx, dw,
                              scratch);
}

/* ---- the next token ---- */
enum { NEXT_THREADS = 1024 };
typedef struct Best {
    float logit;
    int word;
} Best;

/* The first of equal ones. */
static __device__ Best better(Best a, Best b)
{
    return b.logit > a.logit || (b.logit == a.logit && b.word < a.word) ? b : a;
}

static __device__ Best warp_best(Best x)
{
    for (int lane = WARP / 2; lane > 0; lane /= 2)
        x = better(x, Best{__shfl_xor_sync(0xffffffffu, x.logit, lane),
                           __shfl_xor_sync(0xffffffffu, x.word, lane)});
    return x;
}

/* Finishes the logits; one block. */
static __global__ void __launch_bounds__(NEXT_THREADS)
    next_kernel(Finish h, int vocab, float *logits, int32_t *next)
{
    __shared__ Best part[NEXT_THREADS / WARP];
    Best best = {-CUDART_INF_F, 0};
    for (int i = VEC * threadIdx.x; i < vocab; i += VEC * NEXT_THREADS) {
        float f[VEC];
        load_logits<true>(h, logits, vocab, i, f);
        store(logits + i, f);
        for (int j = 0; j < VEC; j++)
            best = f[j] > best.logit ? Best{f[j], i + j} : best;
    }
    best = warp_best(best);
    if (threadIdx.x % WARP == 0)
        part[threadIdx.x / WARP] = best;
    __syncthreads();
    best = warp_best(part[threadIdx.x % WARP]);
    if (threadIdx.x == 0)
        *next = best.word;
}

int burst_op_head_logits(BurstGpu *g, int hidden, int first, int rows, const BurstBf16 *x, const BurstBf16 *w,
                    float *logits)
{
    const BurstBf16 *own = w + (int64_t)first * hidden;
    const Head h = {hidden, rows, own, NULL, NULL, NULL, 1, logits + first, NULL};
    const VectorProduct one = {hidden, rows, hidden, x, own, NULL, NULL, logits + first};
    return gpu_has_vector_product(&one) ? gpu_vector_product(g, &one) : logits_of(g, &h, 1, x);
}

int burst_op_head_greatest(BurstGpu *g, int vocab, double softcap, double bias_scale, const BurstBf16 *bias,
                           int32_t *next, float *logits)
{
    const Finish finish = {bias, (float)bias_scale, (float)softcap};
    next_kernel<<<1, NEXT_THREADS, 0, g->compute>>>(finish, vocab, logits, next);
    return gpu_launched(g, "the next token");
}

int burst_op_next(BurstGpu *g, int64_t row, int hidden, int vocab, double softcap, double bias_scale,
                  const BurstBf16 *x, const BurstBf16 *w, const BurstBf16 *bias, int32_t *next,
                  void *scratch)
{
    if (row < 0)
        return BURST_OK;
    BURST_TRY(burst_op_head_logits(g, hidden, 0, vocab, x + row * hidden, w, (float *)scratch));
    return burst_op_head_greatest(g, vocab, softcap, bias_scale, bias, next, (float *)scratch);
}

int burst_op_evaluate(BurstGpu *g, int64_t n, int hidden, int vocab, int64_t tile, int tensors,
                      double softcap, double bias_scale, const BurstBf16 *x, const BurstBf16 *w,
                      const int32_t *label, const float *weight, double *loss, void *scratch)
{
    const int64_t row = burst_gpu_loss_row(vocab);
    float *logits = (float *)scratch;
    const BurstBf16 *bias = tensors > 1 ? w + (int64_t)vocab * hidden : NULL;
    const Head h = {hidden, vocab, w, bias, NULL, NULL, bias_scale, logits, (double *)(logits + tile * row)};
    const Finish finish = {bias, (float)bias_scale, (float)softcap};
    const auto kernel = bias || softcap > 0 ? loss_kernel<true, false> : loss_kernel<false, false>;
    BURST_TRY(gpu_aligned(g, "loss", hidden, address(x) | address(w) | address(scratch)));
    for (int64_t i = 0; i < n; i += tile) {
        const int64_t tokens = n - i < tile ? n - i : tile;
        BURST_TRY(logits_of(g, &h, tokens, x + i * hidden));
        kernel<<<(unsigned)tokens, THREADS, 0, g->compute>>>(finish, vocab, row, label + i, weight + i, 1,
                                                             h.logits, h.loss);
        BURST_TRY(gpu_launched(g, "loss"));
        add_losses_kernel<<<1, THREADS, 0, g->compute>>>(tokens, h.loss, loss);
        BURST_TRY(gpu_launched(g, "loss"));
    }
    return BURST_OK;
}
