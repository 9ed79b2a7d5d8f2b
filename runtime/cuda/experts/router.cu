/* router.cu: which experts each token chooses, with which weights, and the order of their rows. Nothing waits
 * for the host: the number of an expert's rows stays on the device. */
#include "cuda/gpu.h"
#include "cuda/ops/vec.cuh"

#include <float.h>
#include <limits.h>

enum { THREADS = 256, WARPS = THREADS / WARP };

/* ---- logits: bf16 products with fp32 sums, in fp32 ---- */

int burst_op_logits(BurstGpu *g, int64_t n, int hidden, int experts, const BurstBf16 *x, const BurstBf16 *w,
                    float *logits)
{
    const Shape s = {.transpose_a = 1,
                     .m = experts,
                     .n = n,
                     .k = hidden,
                     .lda = hidden,
                     .ldb = hidden,
                     .ldc = experts,
                     .fp32_out = 1};
    return gpu_product(g, &s, w, x, logits, logits);
}

/* The gradients of logits are rounded to bf16 in scratch, some tokens at a time. */
int burst_op_logits_dw(BurstGpu *g, int64_t n, int hidden, int experts, const float *d_logits,
                       const BurstBf16 *x, float *dw, void *scratch)
{
    BurstBf16 *const rounded = (BurstBf16 *)scratch;
    for (int64_t t = 0; t < n; t += BURST_GPU_ROUTER_TOKENS) {
        const int64_t tokens = burst_between(0, n - t, BURST_GPU_ROUTER_TOKENS);
        BURST_TRY(gpu_add_rounded(g, g->compute, tokens * experts, d_logits + t * experts, false, rounded));
        BURST_TRY(burst_op_linear_dw(g, tokens, hidden, experts, 1, rounded, x + t * hidden, dw));
    }
    return BURST_OK;
}

int burst_op_logits_dx(BurstGpu *g, int64_t n, int hidden, int experts, const float *d_logits,
                       const BurstBf16 *w, BurstBf16 *dx, bool add, void *scratch)
{
    BurstBf16 *const rounded = (BurstBf16 *)scratch;
    for (int64_t t = 0; t < n; t += BURST_GPU_ROUTER_TOKENS) {
        const int64_t tokens = burst_between(0, n - t, BURST_GPU_ROUTER_TOKENS);
        BURST_TRY(gpu_add_rounded(g, g->compute, tokens * experts, d_logits + t * experts, false, rounded));
        BURST_TRY(burst_op_linear_dx(g, tokens, hidden, experts, 1, rounded, w, dx + t * hidden, add));
    }
    return BURST_OK;
}

/* ---- the choice: a warp a token, whose lane l has experts l, l + 32, ... ---- */

/* Scores of a token; those beyond the experts are -1. The sum of a softmax is a double. */
template <int EACH>
static __device__ __forceinline__ void scores_of(const BurstExperts &m, const float *logit, int lane,
                                                 float score[EACH])
{
    float most = -INFINITY;
    double sum = 0;
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const int expert = i * WARP + lane;
        score[i] = expert < m.experts ? logit[expert] : -INFINITY;
        most = fmaxf(most, score[i]);
    }
#pragma unroll
    for (int at = WARP / 2; at > 0; at /= 2)
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, at));
    const bool softmax = m.score == BURST_SCORE_SOFTMAX;
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const bool is = i * WARP + lane < m.experts;
        score[i] = softmax ? expf(score[i] - most) : 1 / (1 + expf(-score[i]));
        sum += is ? (double)score[i] : 0;
        score[i] = is ? score[i] : -1;
    }
    sum = warp_sum(sum);
#pragma unroll
    for (int i = 0; i < EACH; i++)
        if (softmax && score[i] >= 0)
            score[i] = (float)(score[i] / sum);
}

enum { NO_EXPERT = INT_MAX };

/* A NaN is less than any number, but for -inf: experts outside the best groups. */
static __device__ __forceinline__ float order_of(float by) { return isnan(by) ? -FLT_MAX : by; }

/* Of two experts that with the larger order; of equal ones the lower number. */
static __device__ __forceinline__ bool is_better(float by, int expert, float than, int of)
{
    return by == than ? expert < of : by > than;
}

/* Takes the best of those that are left, bit i of which is number i * WARP + lane, and returns its number. */
template <int EACH>
static __device__ __forceinline__ int take_best(const float by[EACH], int lane, unsigned *left)
{
    float best = -INFINITY;
    int expert = NO_EXPERT;
#pragma unroll
    for (int i = 0; i < EACH; i++)
        if ((*left >> i & 1) && is_better(order_of(by[i]), i * WARP + lane, best, expert))
            best = order_of(by[i]), expert = i * WARP + lane;
#pragma unroll
    for (int at = WARP / 2; at > 0; at /= 2) {
        const float other = __shfl_xor_sync(0xffffffffu, best, at);
        const int of = __shfl_xor_sync(0xffffffffu, expert, at);
        if (is_better(other, of, best, expert))
            best = other, expert = of;
    }
    if (expert % WARP == lane)
        *left &= ~(1u << expert / WARP);
    return expert;
}

/* Bits of a lane's numbers below `count`. */
template <int EACH> static __device__ __forceinline__ unsigned numbers_below(int count, int lane)
{
    unsigned bits = 0;
#pragma unroll
    for (int i = 0; i < EACH; i++)
        bits |= i * WARP + lane < count ? 1u << i : 0;
    return bits;
}

/* The largest order of a group, or the sum of the two largest. */
static __device__ __forceinline__ float group_order(const BurstExperts &m, const float *by)
{
    float first = -INFINITY, second = -INFINITY;
    for (int i = 0; i < m.experts / m.groups; i++) {
        const float lower = by[i] > first ? first : by[i];
        second = lower > second ? lower : second;
        first = by[i] > first ? by[i] : first;
    }
    return m.group_score == BURST_GROUP_TWO ? first + second : first;
}

/* Orders outside the best groups become -inf. shared: of a warp, for its orders. */
template <int EACH>
static __device__ __forceinline__ void keep_groups(const BurstExperts &m, int lane, float by[EACH],
                                                   float shared[EACH * WARP])
{
    const int each = m.experts / m.groups;
    float group[EACH];
    unsigned left = numbers_below<EACH>(m.groups, lane), kept = 0;
#pragma unroll
    for (int i = 0; i < EACH; i++)
        shared[i * WARP + lane] = by[i];
    __syncwarp();
#pragma unroll
    for (int i = 0; i < EACH; i++)
        group[i] = left >> i & 1 ? group_order(m, shared + (i * WARP + lane) * each) : -INFINITY;
    for (int k = 0; k < m.top_groups; k++) {
        const int best = take_best<EACH>(group, lane, &left);
#pragma unroll
        for (int i = 0; i < EACH; i++)
            kept |= (i * WARP + lane) / each == best ? 1u << i : 0;
    }
#pragma unroll
    for (int i = 0; i < EACH; i++)
        by[i] = kept >> i & 1 ? by[i] : -INFINITY;
}

/* correction [experts]: added to the scores that experts are chosen by; NULL: 0. */
template <int EACH>
static __device__ __forceinline__ void orders_of(const BurstExperts &m, const float *correction, int lane,
                                                 const float score[EACH], float by[EACH],
                                                 float shared[EACH * WARP])
{
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const int expert = i * WARP + lane;
        by[i] = score[i] + (correction && expert < m.experts ? correction[expert] : 0);
    }
    if (m.groups)
        keep_groups<EACH>(m, lane, by, shared);
}

/* One of a lane's numbers. */
template <int EACH> static __device__ __forceinline__ float number_of(const float x[EACH], int i)
{
    float found = 0;
#pragma unroll
    for (int j = 0; j < EACH; j++)
        found = j == i ? x[j] : found;
    return found;
}

/* OTHER: with a correction or groups. */
template <int EACH, bool OTHER>
static __global__ void __launch_bounds__(THREADS)
    choose_kernel(int64_t n, const BurstExperts m, const float *logits, const float *correction,
                  int32_t *choice, float *route)
{
    __shared__ float shared[OTHER ? WARPS : 1][OTHER ? EACH * WARP : 1];
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const int64_t t = (int64_t)blockIdx.x * WARPS + warp;
    if (t >= n)
        return;
    float score[EACH], other[OTHER ? EACH : 1];
    double sum = m.eps;
    unsigned left = numbers_below<EACH>(m.experts, lane);
    scores_of<EACH>(m, logits + t * m.experts, lane, score);
    if constexpr (OTHER)
        orders_of<EACH>(m, correction, lane, score, other, shared[warp]);
    for (int k = 0; k < m.top; k++) {
        const int expert = take_best<EACH>(OTHER ? other : score, lane, &left);
        const float taken = __shfl_sync(0xffffffffu, number_of<EACH>(score, expert / WARP), expert % WARP);
        if (lane == 0)
            choice[t * m.top + k] = expert, route[t * m.top + k] = taken;
        sum += (double)taken;
    }
    const double factor = m.normalize ? m.scale / fmax(sum, m.least) : m.scale;
    __syncwarp();
    for (int k = lane; k < m.top; k += WARP)
        route[t * m.top + k] = (float)(route[t * m.top + k] * factor);
}

/* Of one token. With weights w = scale p / S, S the sum of the chosen p plus eps, and their gradients g:
 * dp = (scale / S) (g - sum(g p) / S), the second term only where S is not the constant `least`. */
template <int EACH>
static __global__ void __launch_bounds__(THREADS)
    choose_back_kernel(int64_t n, const BurstExperts m, const float *logits, const int32_t *choice,
                       const float *d_route, float *d_logits)
{
    __shared__ float scores[WARPS][EACH * WARP];
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const int64_t t = (int64_t)blockIdx.x * WARPS + warp;
    if (t >= n)
        return;
    float score[EACH];
    scores_of<EACH>(m, logits + t * m.experts, lane, score);
#pragma unroll
    for (int i = 0; i < EACH; i++)
        scores[warp][i * WARP + lane] = score[i];
    __syncwarp();
    const int32_t *const chosen = choice + t * m.top;
    const float *const g = d_route + t * m.top;
    double sum = m.eps, mean = 0, all = 0;
    for (int k = 0; k < m.top; k++) {
        const double p = (double)scores[warp][chosen[k]];
        sum += p, mean += g[k] * p;
    }
    const double factor = m.normalize ? m.scale / fmax(sum, m.least) : m.scale;
    mean = m.normalize && sum > m.least ? mean / sum : 0;
    for (int k = 0; k < m.top; k++)
        all += factor * (g[k] - mean) * (double)scores[warp][chosen[k]];
    const bool softmax = m.score == BURST_SCORE_SOFTMAX;
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const int expert = i * WARP + lane;
        double d = softmax ? -(double)score[i] * all : 0;
        for (int k = 0; k < m.top; k++)
            if (chosen[k] == expert)
                d += factor * (g[k] - mean) * score[i] * (softmax ? 1 : 1 - (double)score[i]);
        if (expert < m.experts)
            d_logits[t * m.experts + expert] = (float)d;
    }
}

/* A lane has 1, 2, 4, ... experts. */
static decltype(&choose_kernel<1, false>) const choose_kernels[][2] = {
    {choose_kernel<1, false>, choose_kernel<1, true>},   {choose_kernel<2, false>, choose_kernel<2, true>},
    {choose_kernel<4, false>, choose_kernel<4, true>},   {choose_kernel<8, false>, choose_kernel<8, true>},
    {choose_kernel<16, false>, choose_kernel<16, true>}, {choose_kernel<32, false>, choose_kernel<32, true>}};
static decltype(&choose_back_kernel<1>)
    const choose_back_kernels[] = {choose_back_kernel<1>, choose_back_kernel<2>,  choose_back_kernel<4>,
                                   choose_back_kernel<8>, choose_back_kernel<16>, choose_back_kernel<32>};
static_assert(BURST_MOST_EXPERTS <= 32 * WARP, "a lane's experts");

/* The kernel's number. */
static int doublings(int experts)
{
    int i = 0;
    while (WARP << i < experts)
        i++;
    return i;
}

int burst_op_choose(BurstGpu *g, int64_t n, const BurstExperts *m, const float *logits, int32_t *choice,
                    float *route)
{
    return burst_op_choose_corrected(g, n, m, logits, NULL, choice, route);
}

int burst_op_choose_corrected(BurstGpu *g, int64_t n, const BurstExperts *m, const float *logits,
                              const float *correction, int32_t *choice, float *route)
{
    if (n == 0)
        return BURST_OK;
    const unsigned blocks = (unsigned)((n + WARPS - 1) / WARPS);
    const auto kernel = choose_kernels[doublings(m->experts)][correction || m->groups];
    kernel<<<blocks, THREADS, 0, g->compute>>>(n, *m, logits, correction, choice, route);
    return gpu_launched(g, "choose");
}

int burst_op_choose_back(BurstGpu *g, int64_t n, const BurstExperts *m, const float *logits,
                         const int32_t *choice, const float *d_route, float *d_logits)
{
    if (n == 0)
        return BURST_OK;
    choose_back_kernels[doublings(
        m->experts)]<<<(unsigned)((n + WARPS - 1) / WARPS), THREADS, 0, g->compute>>>(n, *m, logits, choice,
                                                                                      d_route, d_logits);
    return gpu_launched(g, "choose_back");
}

/* ---- the order of rows: a stable counting sort. A warp counts the choices of a piece; a block an expert
 * adds up the pieces before each; then each warp places its piece ---- */

enum { PIECE_WARPS = 4 };

/* counts[piece][experts]. */
static __global__ void __launch_bounds__(PIECE_WARPS *WARP)
    count_kernel(int64_t choices, int64_t each, int pieces, int begin, int experts, const int32_t *choice,
                 int32_t *counts)
{
    extern __shared__ int32_t shared[];
    const int lane = threadIdx.x % WARP, piece = blockIdx.x * PIECE_WARPS + threadIdx.x / WARP;
    int32_t *const count = shared + threadIdx.x / WARP * experts;
    if (piece >= pieces)
        return;
    for (int i = lane; i < experts; i += WARP)
        count[i] = 0;
    __syncwarp();
    const int64_t first = piece * each, end = min(first + each, choices);
    for (int64_t i = first + lane; i < end; i += WARP)
        if (choice[i] >= begin && choice[i] < begin + experts) /* not of another group */
            atomicAdd(&count[choice[i] - begin], 1);
    __syncwarp();
    for (int i = lane; i < experts; i += WARP)
        counts[(int64_t)piece * experts + i] = count[i];
}

/* The sum of x over the threads before, and of all. THREADS of them. */
static __device__ __forceinline__ int32_t sum_before(int32_t x, int32_t *all)
{
    __shared__ int32_t part[WARPS];
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    int32_t upto = x, before = 0;
#pragma unroll
    for (int at = 1; at < WARP; at *= 2) {
        const int32_t other = __shfl_up_sync(0xffffffffu, upto, at);
        upto += lane >= at ? other : 0;
    }
    __syncthreads(); /* the last call's parts have been read */
    if (lane == WARP - 1)
        part[warp] = upto;
    __syncthreads();
    *all = 0;
    for (int i = 0; i < WARPS; i++) {
        before += i < warp ? part[i] : 0;
        *all += part[i];
    }
    return before + upto - x;
}

/* counts[piece] of an expert become those of the pieces before; total[expert]: of all. */
static __global__ void __launch_bounds__(THREADS)
    before_kernel(int pieces, int experts, int32_t *counts, int32_t *total)
{
    const int expert = blockIdx.x;
    int32_t sum = 0, all;
    for (int first = 0; first < pieces; first += THREADS) {
        const int piece = first + threadIdx.x;
        int32_t *const at = counts + (int64_t)piece * experts + expert;
        const int32_t before = sum_before(piece < pieces ? *at : 0, &all);
        if (piece < pieces)
            *at = sum + before;
        sum += all;
    }
    if (threadIdx.x == 0)
        total[expert] = sum;
}

static __global__ void __launch_bounds__(THREADS)
    first_kernel(int experts, const int32_t *total, int32_t *first)
{
    int32_t sum = 0, all;
    for (int at = 0; at < experts; at += THREADS) {
        const int expert = at + threadIdx.x;
        const int32_t before = sum_before(expert < experts ? total[expert] : 0, &all);
        if (expert < experts)
            first[expert] = sum + before;
        sum += all;
    }
    if (threadIdx.x == 0)
        first[experts] = sum;
}

static __global__ void __launch_bounds__(PIECE_WARPS *WARP)
    place_kernel(int64_t choices, int64_t each, int pieces, int begin, int experts, const int32_t *choice,
                 const int32_t *counts, const int32_t *first, int32_t *slot, int32_t *row)
{
    extern __shared__ int32_t shared[];
    const int lane = threadIdx.x % WARP, piece = blockIdx.x * PIECE_WARPS + threadIdx.x / WARP;
    int32_t *const next = shared + threadIdx.x / WARP * experts;
    if (piece >= pieces)
        return;
    for (int i = lane; i < experts; i += WARP)
        next[i] = first[i] + counts[(int64_t)piece * experts + i];
    __syncwarp();
    const int64_t from = piece * each, end = min(from + each, choices);
    for (int64_t i = from; i < end; i += WARP) {
        const int32_t chosen = i + lane < end ? choice[i + lane] - begin : -1;
        const bool is = chosen >= 0 && chosen < experts;
        const int32_t expert = is ? chosen : -1;
        const unsigned same = __match_any_sync(0xffffffffu, expert);
        const int before = __popc(same & ((1u << lane) - 1));
        const int32_t at = is ? next[expert] + before : 0;
        __syncwarp();
        if (is && before == 0)
            next[expert] += __popc(same);
        __syncwarp();
        if (is)
            slot[i + lane] = at, row[at] = (int32_t)(i + lane);
        else if (i + lane < end)
            slot[i + lane] = -1;
    }
}

/* Rows behind the last. */
static __global__ void __launch_bounds__(THREADS)
    no_rows_kernel(int64_t rows, const int32_t *end, int32_t *row)
{
    for (int64_t r = *end + blockIdx.x * (int64_t)THREADS + threadIdx.x; r < rows;
         r += (int64_t)gridDim.x * THREADS)
        row[r] = -1;
}

int burst_op_arrange(BurstGpu *g, int64_t n, const BurstExperts *m, const int32_t *choice, int32_t *slot,
                     int32_t *row, int32_t *first, void *scratch)
{
    const int experts = m->experts;
    const int64_t choices = n * m->top, least = 256,
                  each = burst_between(least, (choices + BURST_GPU_PIECES - 1) / BURST_GPU_PIECES,
                                       choices + least);
    const int pieces = (int)((choices + each - 1) / each);
    int32_t *const total = (int32_t *)scratch, *const counts = total + experts;
    const unsigned blocks = (unsigned)((pieces + PIECE_WARPS - 1) / PIECE_WARPS);
    const size_t shared = (size_t)PIECE_WARPS * experts * sizeof(int32_t);
    if (pieces)
        count_kernel<<<blocks, PIECE_WARPS * WARP, shared, g->compute>>>(choices, each, pieces, m->first,
                                                                         experts, choice, counts);
    before_kernel<<<(unsigned)experts, THREADS, 0, g->compute>>>(pieces, experts, counts, total);
    first_kernel<<<1, THREADS, 0, g->compute>>>(experts, total, first);
    if (pieces)
        place_kernel<<<blocks, PIECE_WARPS * WARP, shared, g->compute>>>(choices, each, pieces, m->first,
                                                                         experts, choice, counts, first, slot,
                                                                         row);
    if (m->rows && n)
        no_rows_kernel<<<1024, THREADS, 0, g->compute>>>(burst_expert_rows(m, n), first + experts, row);
    return gpu_launched(g, "arrange");
}
