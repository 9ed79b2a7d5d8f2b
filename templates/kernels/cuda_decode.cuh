/* cuda_decode.cuh: attention of one token with a cache of keys and values, which are read once: some warps
 * take the keys of a key head in turn, 16 at a time, for all query heads that read it (GQA). The parts of all
 * blocks are then merged by their log-sum-exp (Flash-Decoding; FlashAttention-2, section 3.1).
 *
 * Products are mma.sync of sm_80 on any device: time is that of reading the cache. Its elements go from
 * memory to registers of the fragments that they are used in. A sum over a head's elements may run in any
 * order, so a lane has eight elements that are adjacent in memory where the instruction's columns are not; so
 * have a value's columns. */
#ifndef CUDA_DECODE_CUH
#define CUDA_DECODE_CUH

#include "cuda_attention.cuh"

/* The running token: its position; tokens of the prompt before, of which this rank has `rows`, with filling
 * up to the plan's length; tokens that followed the prompt, which the ranks keep in turn. */
typedef struct BurstRunning {
    int32_t at, prompt, rows, more;
} BurstRunning;

typedef struct BurstDecode {
    const __nv_bfloat16 *q; /* [heads][D] */
    const __nv_bfloat16 *k, *v; /* [rows][kv_heads][D], [E] */
    const BurstRunning *running;
    const int32_t *position; /* of the prompt's rows */
    const int32_t *kept; /* of these, the first that is kept, and how many are */
    int ranks, rank;
    float scale;
    float *parts; /* [splits][heads][burst_decode_row] */
} BurstDecode;

namespace burst {

/* On sm_90 a launch of decode_launch begins while the kernel before it ends: it lets the next one begin, and
 * waits before it reads what that one wrote. */
static __device__ __forceinline__ void decode_turn(void)
{
#if BURST_FORM == 90
    asm volatile("griddepcontrol.launch_dependents;");
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

template <typename... P, typename... A>
static inline cudaError_t decode_launch_with(void (*kernel)(P...), dim3 grid, int threads, int shared,
                                             cudaStream_t stream, A... arguments)
{
    cudaLaunchAttribute overlapped = {};
    overlapped.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    overlapped.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t launch = {};
    launch.gridDim = grid;
    launch.blockDim = dim3((unsigned)threads);
    launch.dynamicSmemBytes = (size_t)shared;
    launch.stream = stream;
    launch.attrs = &overlapped;
    launch.numAttrs = BURST_FORM == 90;
    return cudaLaunchKernelEx(&launch, kernel, static_cast<P>(arguments)...);
}

template <typename... P, typename... A>
static inline cudaError_t decode_launch(void (*kernel)(P...), dim3 grid, int threads, cudaStream_t stream,
                                        A... arguments)
{
    return decode_launch_with(kernel, grid, threads, 0, stream, arguments...);
}

enum { DECODE_WARPS = 4, DECODE_KEYS = 16 };

/* Of burst_kernels.h, for kernels. A block has so many heads of a key head; keys from one tile of a warp to
 * its next. */
template <int E, int HEADS = 1, int KV_HEADS = 1> struct DecodeShape {
    static constexpr int ROW = burst_decode_row(E, 1), SHARED = HEADS / KV_HEADS,
                         ROWS = burst_decode_heads(HEADS, KV_HEADS), GROUPS = (SHARED + ROWS - 1) / ROWS,
                         SPLITS = burst_decode_splits(HEADS, KV_HEADS),
                         STRIDE = SPLITS * DECODE_WARPS * DECODE_KEYS;
};

/* Whether the running token sees a row: of a tile's 16, one a lane. */
template <class MASK>
static __device__ __forceinline__ bool decode_sees(const BurstDecode &d, const BurstRunning &r, int row,
                                                   int kept, int rows)
{
    if (row >= rows)
        return false;
    const bool later = row >= kept;
    const int position = later ? r.prompt + (row - kept) * d.ranks + d.rank
                               : d.position[row + d.kept[0]];
    return (later || position < r.prompt) && MASK::keep(r.at, position, NULL, NULL);
}

static __device__ __forceinline__ uint4 read_once(const __nv_bfloat16 *at)
{
    uint4 x;
    asm("ld.global.cs.v4.u32 {%0,%1,%2,%3}, [%4];"
        : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
        : "l"(__cvta_generic_to_global(at)));
    return x;
}

/* Scores times log2(e). */
static __device__ __forceinline__ float decode_score(float product, float scale)
{
    const float log2e = 1.44269504088896340736f;
    return (CAPPED ? CAP * tanhf(product * scale / CAP) : product * scale) * log2e;
}

/* The most and the sum of a row's four lanes. */
static __device__ __forceinline__ float most_of_row(float x)
{
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

static __device__ __forceinline__ float sum_of_row(float x)
{
    x += __shfl_xor_sync(0xffffffffu, x, 1);
    return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

/* A block has ROWS (8 or 16) query heads of one key head, and of its tiles of keys every splits-th of each
 * warp. A lane has row lane / 4 of the heads, with 16 also row lane / 4 + 8. */
template <int D, int E, int ROWS, class MASK> struct Decode {
    enum { CHUNKS = (D + 31) / 32, COLUMNS = (E + 63) / 64, HALVES = ROWS / 8 };
    enum { AT_ONCE = 4 }; /* chunks of a key's elements */
    uint32_t q[CHUNKS][4][HALVES]; /* four words of eight elements, as K's */
    float o[8 * COLUMNS]
           [2 * HALVES]; /* element 64 c + 16 (lane % 4) + (8, 0 if i is even) + j: o[8 c + j][i] */
    float most[HALVES], sum[HALVES];

    __device__ __forceinline__ void begin(const __nv_bfloat16 *heads, int count)
    {
        const int lane = threadIdx.x % 32, row = lane / 4, first = lane % 4 * 8;
#pragma unroll
        for (int c = 0; c < CHUNKS; c++)
#pragma unroll
            for (int h = 0; h < HALVES; h++) {
                uint4 x = make_uint4(0, 0, 0, 0);
                if (row + 8 * h < count && 32 * c + first < D)
                    x = *(const uint4 *)(heads + (row + 8 * h) * D + 32 * c + first);
                q[c][0][h] = x.x, q[c][1][h] = x.y, q[c][2][h] = x.z, q[c][3][h] = x.w;
            }
#pragma unroll
        for (int i = 0; i < 8 * COLUMNS; i++)
#pragma unroll
            for (int j = 0; j < 2 * HALVES; j++)
                o[i][j] = 0;
#pragma unroll
        for (int h = 0; h < HALVES; h++)
            most[h] = -CUDART_INF_F, sum[h] = 0;
    }

    static __device__ __forceinline__ void product(float c[4], uint32_t a0, uint32_t a1, uint32_t a2,
                                                   uint32_t a3, uint32_t b0, uint32_t b1)
    {
        const uint32_t a[4] = {a0, a1, a2, a3};
        mma(c, a, b0, b1);
    }

    /* A lane's columns of the four keys that its fragments have. */
    static __device__ __forceinline__ void read_values(uint4 value[4], const __nv_bfloat16 *v, int64_t v_row,
                                                       int row, int last, int column)
    {
        const int lane = threadIdx.x % 32, g = lane / 4, j = lane % 4;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            value[i] = make_uint4(0, 0, 0, 0);
            if (column + 8 * g < E)
                value[i] = read_once(v + min(row + 2 * j + i % 2 + i / 2 * 8, last) * v_row + column + 8 * g);
        }
    }

    /* Scores of the tile's keys, of elements that `key` has. */
    __device__ __forceinline__ void score(float s[2][4], const uint4 (&key)[2][AT_ONCE], int first) const
    {
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++)
#pragma unroll
            for (int t = 0; t < 2; t++) {
                const int c = first + i;
                if (c >= CHUNKS)
                    continue;
                const uint4 x = key[t][i];
                product(s[t], q[c][0][0], HALVES > 1 ? q[c][0][HALVES - 1] : 0, q[c][1][0],
                        HALVES > 1 ? q[c][1][HALVES - 1] : 0, x.x, x.y);
                product(s[t], q[c][2][0], HALVES > 1 ? q[c][2][HALVES - 1] : 0, q[c][3][0],
                        HALVES > 1 ? q[c][3][HALVES - 1] : 0, x.z, x.w);
            }
    }

    static __device__ __forceinline__ void read_keys(uint4 (&key)[2][AT_ONCE], int first,
                                                     const __nv_bfloat16 *k, int64_t k_row, int row, int last)
    {
        const int lane = threadIdx.x % 32, g = lane / 4, j = lane % 4;
#pragma unroll
        for (int t = 0; t < 2; t++)
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++) {
                const int element = 32 * (first + i) + 8 * j;
                key[t][i] = make_uint4(0, 0, 0, 0);
                if (element < D)
                    key[t][i] = read_once(k + min(row + 8 * t + g, last) * k_row + element);
            }
    }

    /* o += P V of eight columns a lane. */
    __device__ __forceinline__ void add_values(int c, const uint32_t a[4], const uint4 value[4])
    {
        const uint32_t *w[4];
#pragma unroll
        for (int i = 0; i < 4; i++)
            w[i] = (const uint32_t *)&value[i];
#pragma unroll
        for (int n = 0; n < 8; n++) {
            const uint32_t half = n % 2 ? 0x7632 : 0x5410;
            float *to = o[8 * c + n], x[4] = {to[0], to[1], HALVES > 1 ? to[2 * HALVES - 2] : 0,
                                              HALVES > 1 ? to[2 * HALVES - 1] : 0};
            mma(x, a, __byte_perm(w[0][n / 2], w[1][n / 2], half),
                __byte_perm(w[2][n / 2], w[3][n / 2], half));
            to[0] = x[0], to[1] = x[1];
            if (HALVES > 1)
                to[2 * HALVES - 2] = x[2], to[2 * HALVES - 1] = x[3];
        }
    }

    /* One tile; kept: a bit per key. All of it is read before it is used, if there are registers for it. */
    __device__ __forceinline__ void tile(const __nv_bfloat16 *k, int64_t k_row, const __nv_bfloat16 *v,
                                         int64_t v_row, int row, int last, uint32_t kept, float scale)
    {
        constexpr bool EARLY = COLUMNS <= 2;
        uint4 key[2][AT_ONCE], value[EARLY ? COLUMNS : 1][4];
        float s[2][4] = {};
        read_keys(key, 0, k, k_row, row, last);
#pragma unroll
        for (int c = 0; c < COLUMNS && EARLY; c++)
            read_values(value[c], v, v_row, row, last, 64 * c);
        score(s, key, 0);
#pragma unroll
        for (int c = AT_ONCE; c < CHUNKS; c += AT_ONCE) {
            read_keys(key, c, k, k_row, row, last);
            score(s, key, c);
        }
        weigh(s, kept, scale);
        const uint32_t a[4] = {pack(s[0][0], s[0][1]), HALVES > 1 ? pack(s[0][2], s[0][3]) : 0,
                               pack(s[1][0], s[1][1]), HALVES > 1 ? pack(s[1][2], s[1][3]) : 0};
#pragma unroll
        for (int c = 0; c < COLUMNS; c++) {
            if (!EARLY)
                read_values(value[0], v, v_row, row, last, 64 * c);
            add_values(c, a, value[EARLY ? c : 0]);
        }
    }

    /* Scores become exp(score - most). */
    __device__ __forceinline__ void weigh(float s[2][4], uint32_t kept, float scale)
    {
        const int j = threadIdx.x % 4;
        float top[HALVES];
        bool rises = false;
#pragma unroll
        for (int h = 0; h < HALVES; h++) {
            top[h] = most[h];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                float &x = s[i / 2][2 * h + i % 2];
                x = kept >> (i / 2 * 8 + 2 * j + i % 2) & 1 ? decode_score(x, scale) : -CUDART_INF_F;
                top[h] = fmaxf(top[h], x);
            }
            top[h] = most_of_row(top[h]);
            rises = rises || top[h] > most[h];
        }
        if (__any_sync(0xffffffffu, rises))
            lower(top);
#pragma unroll
        for (int h = 0; h < HALVES; h++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                float &x = s[i / 2][2 * h + i % 2];
                x = exp2_fast(x - most[h]);
                sum[h] += x;
            }
    }

    /* Scales what there is to another maximum, which is finite. */
    __device__ __forceinline__ void lower(const float top[HALVES])
    {
#pragma unroll
        for (int h = 0; h < HALVES; h++) {
            const float less = exp2_fast(most[h] - top[h]);
            most[h] = top[h];
            sum[h] *= less;
#pragma unroll
            for (int i = 0; i < 8 * COLUMNS; i++)
                o[i][2 * h] *= less, o[i][2 * h + 1] *= less;
        }
    }
};

/* What the warps of a block have of its rows, added in order. */
template <int E, int ROWS> struct DecodeBlock {
    float o[ROWS][E], most[DECODE_WARPS][ROWS], sum[DECODE_WARPS][ROWS];
};

/* A lane's columns of a warp, a few at a time: all at once would need twice their registers. */
template <int E, int ROWS, int N>
static __device__ __forceinline__ void decode_add_warp(const float (&o)[N][ROWS / 4], const float factor[],
                                                       bool adds, DecodeBlock<E, ROWS> *b)
{
    const int lane = threadIdx.x % 32, g = lane / 4, j = lane % 4;
#pragma unroll
    for (int n = 0; n < N; n++) {
#pragma unroll
        for (int i = 0; i < ROWS / 4; i++) {
            const int column = n / 8 * 64 + (2 * j + i % 2) * 8 + n % 8;
            float *at = &b->o[g + i / 2 * 8][column < E ? column : 0];
            const float x = (adds ? *at : 0) + factor[i / 2] * o[n][i];
            if (column < E)
                *at = x;
        }
        asm volatile("" ::: "memory");
    }
}

/* The row's part, by all warps: their outputs are added one warp after the other. */
template <int D, int E, int ROWS, class MASK>
static __device__ __forceinline__ void decode_add(Decode<D, E, ROWS, MASK> &w, DecodeBlock<E, ROWS> *b)
{
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, j = lane % 4;
    float factor[ROWS / 8];
#pragma unroll
    for (int h = 0; h < ROWS / 8; h++) {
        w.sum[h] = sum_of_row(w.sum[h]);
        if (j == 0)
            b->most[warp][g + 8 * h] = w.most[h], b->sum[warp][g + 8 * h] = w.sum[h];
    }
    __syncthreads();
#pragma unroll
    for (int h = 0; h < ROWS / 8; h++) {
        float top = -CUDART_INF_F;
        for (int i = 0; i < DECODE_WARPS; i++)
            top = fmaxf(top, b->most[i][g + 8 * h]);
        factor[h] = w.most[h] == -CUDART_INF_F ? 0 : exp2_fast(w.most[h] - top);
    }
#pragma unroll 1
    for (int turn = 0; turn < DECODE_WARPS; turn++) {
        if (turn == warp)
            decode_add_warp<E, ROWS>(w.o, factor, turn > 0, b);
        __syncthreads();
    }
}

/* Writes the parts of `count` heads. */
template <int E, int ROWS>
static __device__ __forceinline__ void decode_write(const DecodeBlock<E, ROWS> *b, int count, float *part)
{
    constexpr int ROW = DecodeShape<E>::ROW;
    for (int h = 0; h < count; h++) {
        float top = -CUDART_INF_F, sum = 0;
        for (int i = 0; i < DECODE_WARPS; i++)
            top = fmaxf(top, b->most[i][h]);
        for (int i = 0; i < DECODE_WARPS && top > -CUDART_INF_F; i++)
            sum += b->sum[i][h] * exp2_fast(b->most[i][h] - top);
        for (int i = threadIdx.x; i < E; i += 32 * DECODE_WARPS)
            part[h * ROW + i] = sum > 0 ? b->o[h][i] / sum : 0;
        if (threadIdx.x == 0)
            part[h * ROW + E] = sum > 0 ? (top + log2f(sum)) * 0.69314718055994530942f : -CUDART_INF_F;
    }
}

/* Grid: splits, groups of query heads of a key head. */
template <int D, int E, int HEADS, int KV_HEADS, class MASK>
static __global__ void __launch_bounds__(32 * DECODE_WARPS) burst_decode_kernel(BurstDecode d)
{
    using S = DecodeShape<E, HEADS, KV_HEADS>;
    __shared__ DecodeBlock<E, S::ROWS> block;
    const int kv = blockIdx.y / S::GROUPS, head = kv * S::SHARED + blockIdx.y % S::GROUPS * S::ROWS,
              left = (kv + 1) * S::SHARED - head, count = left < S::ROWS ? left : S::ROWS,
              lane = threadIdx.x % 32;
    decode_turn();
    const BurstRunning running = *d.running;
    const int kept = d.kept[1], rows = kept + (running.more + d.ranks - d.rank) / d.ranks;
    Decode<D, E, S::ROWS, MASK> w;
    w.begin(d.q + head * D, count);
    int row = (blockIdx.x * DECODE_WARPS + threadIdx.x / 32) * DECODE_KEYS;
    bool sees = decode_sees<MASK>(d, running, row + lane % DECODE_KEYS, kept, rows);
    for (; row < rows; row += S::STRIDE) {
        const uint32_t seen = __ballot_sync(0xffffffffu, sees) & 0xffff;
        sees = decode_sees<MASK>(d, running, row + S::STRIDE + lane % DECODE_KEYS, kept, rows);
        if (seen)
            w.tile(d.k + kv * D, KV_HEADS * D, d.v + kv * E, KV_HEADS * E, row, rows - 1, seen, d.scale);
    }
    decode_add(w, &block);
    decode_write(&block, count, d.parts + ((int64_t)blockIdx.x * HEADS + head) * S::ROW);
}

} /* namespace burst */

template <int D, int E, int HEADS, int KV_HEADS, class MASK>
static inline cudaError_t burst_decode(const BurstDecode *d, cudaStream_t stream)
{
    const dim3 grid((unsigned)burst_decode_splits(HEADS, KV_HEADS),
                    (unsigned)burst_decode_groups(HEADS, KV_HEADS));
    return burst::decode_launch(burst::burst_decode_kernel<D, E, HEADS, KV_HEADS, MASK>, grid,
                                32 * burst::DECODE_WARPS, stream, *d);
}

/* Merges COUNT parts of a head, a block of E threads each: as a part, or as the output and its log-sum-exp.
 */
template <int E, int COUNT>
static __global__ void burst_merge_parts_kernel(int heads, const float *parts, float *part, __nv_bfloat16 *o,
                                                float *lse)
{
    constexpr int ROW = burst::DecodeShape<E>::ROW;
    __shared__ float weight[COUNT];
    const int head = blockIdx.x, i = threadIdx.x;
    const int64_t next = (int64_t)heads * ROW;
    const float *at = parts + head * ROW;
    float top = -CUDART_INF_F, sum = 0, x = 0;
    burst::decode_turn();
    for (int j = i; j < COUNT; j += E)
        weight[j] = at[j * next + E];
    __syncthreads();
    for (int j = 0; j < COUNT; j++)
        top = fmaxf(top, weight[j]);
    if (top > -CUDART_INF_F)
#pragma unroll 8
        for (int j = 0; j < COUNT; j++) {
            const float w = __expf(weight[j] - top);
            sum += w;
            x += w * at[j * next + i];
        }
    const float out = sum > 0 ? x / sum : 0;
    if (part)
        part[head * ROW + i] = out;
    else
        o[head * E + i] = __float2bfloat16(out);
    const float all = sum > 0 ? top + __logf(sum) : -CUDART_INF_F;
    if (i == 0)
        *(part ? part + head * ROW + E : lse + head) = all;
}

/* Copies the running token's keys and values to their row, if they are this rank's to keep. */
static __global__ void burst_keep_row_kernel(const BurstRunning *running, int ranks, int rank,
                                             const int32_t *kept, int k_row, int v_row,
                                             const __nv_bfloat16 *k, const __nv_bfloat16 *v,
                                             __nv_bfloat16 *cache_k, __nv_bfloat16 *cache_v)
{
    burst::decode_turn();
    const BurstRunning r = *running;
    const int64_t row = kept[1] + r.more / ranks;
    if (r.more % ranks != rank)
        return;
    for (int i = threadIdx.x; i < k_row; i += blockDim.x)
        cache_k[row * k_row + i] = k[i];
    for (int i = threadIdx.x; i < v_row; i += blockDim.x)
        cache_v[row * v_row + i] = v[i];
}

/* The kernels above, launched. */
template <int E, int COUNT>
static inline cudaError_t burst_merge_parts(int heads, const float *parts, float *part, __nv_bfloat16 *o,
                                            float *lse, cudaStream_t stream)
{
    return burst::decode_launch(burst_merge_parts_kernel<E, COUNT>, dim3((unsigned)heads), E, stream, heads,
                                parts, part, o, lse);
}

static inline cudaError_t burst_keep_row(const BurstRunning *running, int ranks, int rank,
                                         const int32_t *kept, int k_row, int v_row, const __nv_bfloat16 *k,
                                         const __nv_bfloat16 *v, __nv_bfloat16 *cache_k,
                                         __nv_bfloat16 *cache_v, cudaStream_t stream)
{
    return burst::decode_launch(burst_keep_row_kernel, dim3(1), 256, stream, running, ranks, rank, kept,
                                k_row, v_row, k, v, cache_k, cache_v);
}

#endif
