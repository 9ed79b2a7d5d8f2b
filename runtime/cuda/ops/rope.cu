/* rope.cu: rotates heads by their global position; forward in place or out of place, backward from fp32 to
 * bf16. */
#include "cuda/gpu.h"
#include "cuda/ops/vec.cuh"
#include "families/frequency.h"

/* Blocks process many tokens: the frequencies (powers, in double) are computed once per block. */
enum { THREADS = 256 };
static constexpr unsigned BLOCKS = 2048;

typedef struct Rope {
    int64_t n;
    int heads, d;
    BurstRope rope;
    const int32_t *position;
    int64_t row, head; /* strides of the input: token-major, or by heads */
} Rope;

/* Divisors of frequencies: none, or for longrope a factor per pair. */
struct NoFactors {
    __device__ double operator[](int) const { return 1; }
};
struct Factors {
    double by[BURST_ROPE_PAIRS];
    __device__ double operator[](int pair) const { return by[pair]; }
};

/* Computed in double: at position 4M an fp32 angle would be off by a quarter. The remainder after whole
 * turns is small. */
static __device__ void angles(const Rope &r, const double *frequency, int32_t position, float direction,
                              float *cosine, float *sine)
{
    const float amplitude = (float)burst_rope_amplitude(&r.rope, position);
    for (int j = threadIdx.x; j < burst_rope_rotary(&r.rope, r.d) / 2; j += THREADS) {
        const double turns = position * frequency[j];
        float s, c;
        sincospif((float)(2 * (turns - rint(turns))), &s, &c);
        cosine[j] = amplitude * c;
        sine[j] = direction * amplitude * s;
    }
}

/* Eight pairs: elements j and j + d/2 of a head. */
template <typename In>
static __device__ void rotate(const In *x, BurstBf16 *y, int half, const float *cosine, const float *sine)
{
    float a[VEC], b[VEC], first[VEC], second[VEC];
    load(x, a);
    load(x + half, b);
    for (int i = 0; i < VEC; i++) {
        first[i] = a[i] * cosine[i] - b[i] * sine[i];
        second[i] = b[i] * cosine[i] + a[i] * sine[i];
    }
    store(y, first);
    store(y + half, second);
}

/* Four pairs of neighbours. */
template <typename In>
static __device__ void rotate_neighbours(const In *x, BurstBf16 *y, const float *cosine, const float *sine)
{
    float a[VEC], out[VEC];
    load(x, a);
    for (int i = 0; i < VEC / 2; i++) {
        out[2 * i] = a[2 * i] * cosine[i] - a[2 * i + 1] * sine[i];
        out[2 * i + 1] = a[2 * i + 1] * cosine[i] + a[2 * i] * sine[i];
    }
    store(y, out);
}

/* A thread's part of a head: pairs of rotated elements, or eight of the others, which lie before or after
 * them. */
template <typename In>
static __device__ void turn(const Rope &r, int rotary, int part, const In *x, BurstBf16 *y,
                            const float *cosine, const float *sine)
{
    const int turned = r.rope.interleaved ? rotary / VEC : rotary / 2 / VEC, at = VEC * part,
              begin = burst_rope_begin(&r.rope, r.d);
    if (part >= turned) {
        float f[VEC];
        const int rest = (begin ? 0 : rotary) + VEC * (part - turned);
        load(x + rest, f);
        store(y + rest, f);
    } else if (r.rope.interleaved) {
        rotate_neighbours(x + begin + at, y + begin + at, cosine + at / 2, sine + at / 2);
    } else {
        rotate(x + begin + at, y + begin + at, rotary / 2, cosine + at, sine + at);
    }
}

template <typename In, typename By>
static __global__ void __launch_bounds__(THREADS)
    rope_kernel(Rope r, By factor, float direction, const In *x, BurstBf16 *y)
{
    /* [rotary/2] turns per position; then the cosines and sines of one token */
    extern __shared__ double frequency[];
    const int rotary = burst_rope_rotary(&r.rope, r.d), half = rotary / 2;
    const int pieces = (r.rope.interleaved ? rotary : half) / VEC + (r.d - rotary) / VEC;
    float *cosine = (float *)(frequency + half), *sine = cosine + half;
    let_next_begin();
    for (int j = threadIdx.x; j < half; j += THREADS)
        frequency[j] = burst_rope_frequency(&r.rope, rotary, j) / factor[j] / (2 * 3.14159265358979323846);
    await_previous();
    for (int64_t row = blockIdx.x; row < r.n; row += gridDim.x) {
        __syncthreads();
        angles(r, frequency, r.position[row], direction, cosine, sine);
        __syncthreads();
        for (int i = threadIdx.x; i < r.heads * pieces; i += THREADS) {
            const int head = i / pieces;
            turn(r, rotary, i % pieces, x + row * r.row + head * r.head, y + (row * r.heads + head) * r.d,
                 cosine, sine);
        }
    }
}

/* Rounds fp32 by heads to [n][heads * d] bf16. */
static __global__ void __launch_bounds__(THREADS) round_kernel(Rope r, const float *x, BurstBf16 *y)
{
    const int64_t count = r.n * r.heads * r.d, step = (int64_t)VEC * THREADS * gridDim.x;
    for (int64_t i = VEC * ((int64_t)blockIdx.x * THREADS + threadIdx.x); i < count; i += step) {
        const int64_t row = i / (r.heads * r.d), head = i / r.d % r.heads;
        float f[VEC];
        load(x + row * r.row + head * r.head + i % r.d, f);
        store(y + i, f);
    }
}

template <typename In>
static int rotate_rows(BurstGpu *g, const Rope &r, float direction, const In *x, BurstBf16 *y)
{
    const int rotary = burst_rope_rotary(&r.rope, r.d);
    BURST_TRY(gpu_aligned(g, "rope", r.rope.interleaved ? rotary : rotary / 2, address(x) | address(y)));
    BURST_TRY(gpu_aligned(g, "rope", r.d - rotary, 0));
    if (r.n == 0)
        return BURST_OK;
    const size_t shared = (size_t)(rotary / 2) * (sizeof(double) + 2 * sizeof(float));
    const unsigned blocks = r.n < BLOCKS ? (unsigned)r.n : BLOCKS;
    const bool few = r.n < GPU_FEW_TOKENS;
    if (r.rope.kind != BURST_ROPE_LONGROPE)
        return gpu_launch(g, few, rope_kernel<In, NoFactors>, dim3(blocks), THREADS, shared, r, NoFactors{},
                          direction, x, y);
    Factors factors;
    for (int j = 0; j < BURST_ROPE_PAIRS; j++)
        factors.by[j] = j < rotary / 2 ? burst_rope_factor(&r.rope, j) : 1;
    return gpu_launch(g, few, rope_kernel<In, Factors>, dim3(blocks), THREADS, shared, r, factors, direction,
                      x, y);
}

int burst_op_rope_rows(BurstGpu *g, int64_t n, int64_t all, int heads, int d, const BurstRope *rope,
                       const int32_t *position, const BurstBf16 *x, BurstBf16 *y)
{
    (void)all; /* only fp32 gradients are by heads */
    return rotate_rows<BurstBf16>(g, Rope{n, heads, d, *rope, position, heads * d, d}, 1, x, y);
}

int burst_op_rope(BurstGpu *g, int64_t n, int heads, int d, const BurstRope *rope, const int32_t *position,
                  const BurstBf16 *x, BurstBf16 *y)
{
    return burst_op_rope_rows(g, n, n, heads, d, rope, position, x, y);
}

int burst_op_rope_back_rows(BurstGpu *g, int64_t n, int64_t all, int heads, int d, const BurstRope *rope,
                            const int32_t *position, const float *dy, BurstBf16 *dx)
{
    return rotate_rows<float>(g, Rope{n, heads, d, *rope, position, d, all * d}, -1, dy, dx);
}

int burst_op_rope_back(BurstGpu *g, int64_t n, int heads, int d, const BurstRope *rope,
                       const int32_t *position, const float *dy, BurstBf16 *dx)
{
    return burst_op_rope_back_rows(g, n, n, heads, d, rope, position, dy, dx);
}

int burst_op_rotate(BurstGpu *g, int64_t n, int heads, int d, const BurstRope *rope, const int32_t *position,
                    const BurstBf16 *x, BurstBf16 *y)
{
    return burst_op_rope_rows(g, n, n, heads, d, rope, position, x, y);
}

int burst_op_rotate_back(BurstGpu *g, int64_t n, int heads, int d, const BurstRope *rope,
                         const int32_t *position, const BurstBf16 *dy, BurstBf16 *dx)
{
    return rotate_rows<BurstBf16>(g, Rope{n, heads, d, *rope, position, heads * d, d}, -1, dy, dx);
}

int burst_op_to_tokens_rows(BurstGpu *g, int64_t n, int64_t all, int heads, int d, const float *x,
                            BurstBf16 *y)
{
    BURST_TRY(gpu_aligned(g, "to_tokens", d, address(x) | address(y)));
    if (n == 0)
        return BURST_OK;
    round_kernel<<<BLOCKS, THREADS, 0, g->compute>>>(Rope{n, heads, d, BurstRope{}, NULL, d, all * d}, x, y);
    return gpu_launched(g, "to_tokens");
}

int burst_op_to_tokens(BurstGpu *g, int64_t n, int heads, int d, const float *x, BurstBf16 *y)
{
    return burst_op_to_tokens_rows(g, n, n, heads, d, x, y);
}
