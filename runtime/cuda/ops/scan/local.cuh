/* local.cuh: what a chunk has without its state: decays, lengths, B and the inverse of I + A (arXiv
 * 2412.06464, section 3.3), by blocks of 16 in fp32. One block a chunk and key head, for all its value heads.
 */
#ifndef BURST_CUDA_SCAN_LOCAL_CUH
#define BURST_CUDA_SCAN_LOCAL_CUH

#include "cuda/ops/scan/args.cuh"

enum { LOCAL_THREADS = 128, SQUARE = CHUNK + 1 };

/* Rows are read no more when squares are written. */
template <int KEY> struct LocalShared {
    union {
        struct {
            Bf16 q[CHUNK * (KEY + PAD)], k[CHUNK * (KEY + PAD)];
        };
        struct {
            float a[CHUNK * SQUARE], t[CHUNK * SQUARE], product[3 * 256];
        };
    };
    float q_by[CHUNK], k_by[CHUNK], beta[CHUNK], sum[CHUNK];
    int place[CHUNK], begin[CHUNK];
    unsigned starts[CHUNK / WARP];
};

/* by / |x| of a warp's 16 rows. */
template <int KEY>
static __device__ __forceinline__ void lengths(const Bf16 *tile, bool normalize, float by, float *out)
{
    const int lane = threadIdx.x % WARP, first = threadIdx.x / WARP * 16;
    for (int row = first; row < first + 16; row++) {
        float square = 0;
        for (int i = 2 * lane; i < KEY; i += 2 * WARP) {
            const float2 x = load_pair(tile + row * (KEY + PAD) + i);
            square += x.x * x.x + x.y * x.y;
        }
        square = warp_sum(square);
        if (lane == 0)
            out[row] = normalize ? by * rsqrtf(square + (float)BURST_SCAN_EPS) : by;
    }
}

/* The row in which the row's document begins, or the chunk. */
template <int KEY> static __device__ __forceinline__ void find_begins(LocalShared<KEY> *s)
{
    const int i = threadIdx.x;
    if (i < CHUNK) {
        const unsigned starts = __ballot_sync(0xffffffffu, s->place[i] == 0);
        if (i % WARP == 0)
            s->starts[i / WARP] = starts;
    }
    __syncthreads();
    if (i < CHUNK) {
        const uint64_t starts = s->starts[0] | (uint64_t)s->starts[1] << WARP;
        const uint64_t upto = starts << (CHUNK - 1 - i);
        const int back = upto ? __clzll((long long)upto) : CHUNK;
        s->begin[i] = back < i ? i - back : 0;
    }
}

/* Sums of decays from the documents' begins on, by two warps. */
template <int KEY> static __device__ __forceinline__ void sum_decays(float decay, LocalShared<KEY> *s)
{
    const int i = threadIdx.x, begin = i < CHUNK ? s->begin[i] : 0;
    if (i < CHUNK) {
        const int first = i / WARP * WARP;
#pragma unroll
        for (int m = 1; m < WARP; m *= 2) {
            const float before = __shfl_up_sync(0xffffffffu, decay, m);
            decay += i - m >= first && i - m >= begin ? before : 0;
        }
        s->sum[i] = decay;
    }
    __syncthreads();
    if (i >= WARP && i < CHUNK && begin < WARP)
        s->sum[i] = decay + s->sum[WARP - 1];
    __syncthreads();
}

/* A head's numbers of rows. Rows after the end of the piece have 0 for all but the sum of decays. */
template <int KEY>
static __device__ __forceinline__ void row_numbers(const ScanArgs &a, const ChunkPlace &c, int head,
                                                   LocalShared<KEY> *s)
{
    const int i = threadIdx.x, last = c.rows - 1;
    const bool there = i < c.rows;
    const int64_t at = (c.row + i) * a.heads + head;
    if (i < CHUNK)
        s->beta[i] = there ? a.beta[at] : 0;
    sum_decays(there ? a.decay[at] : 0, s);
    if (i < CHUNK) {
        const bool enters = s->begin[i] == 0 && s->place[0] != 0, goes_on = s->begin[i] == s->begin[last];
        const bool whole = s->begin[last] == 0 && s->place[0] != 0;
        float4 *to = a.row + ((c.slot * a.heads + head) * CHUNK + i) * 2;
        to[0] = make_float4(s->beta[i], there && enters ? __expf(s->sum[i]) : 0,
                            there && goes_on ? __expf(s->sum[last] - s->sum[i]) : 0, s->sum[i]);
        to[1] = make_float4(s->q_by[i], s->k_by[i], (float)s->begin[i], whole ? __expf(s->sum[last]) : 0);
    }
}

/* The inverse of I + A of a warp's diagonal block, column by column. */
static __device__ __forceinline__ void invert_diagonal(const float *a, float *t)
{
    const int block = threadIdx.x / WARP * 16, column = threadIdx.x % WARP;
    if (column >= 16)
        return;
    float x[16];
#pragma unroll
    for (int i = 0; i < 16; i++) {
        x[i] = i == column;
#pragma unroll
        for (int j = 0; j < i; j++)
            x[i] -= a[(block + i) * SQUARE + block + j] * x[j];
        t[(block + i) * SQUARE + block + column] = x[i];
    }
}

/* Blocks `far` below the diagonal: T_ij = -T_ii sum over j <= k < i of A_ik T_kj. A thread has a column and
 * two rows of each block. */
static __device__ __forceinline__ void invert_below(int far, const float *a, float *t, float *product)
{
    const int column = threadIdx.x % 16, row = threadIdx.x / 16;
    for (int block = 0; block < 4 - far; block++) {
        const float *upper = a + ((block + far) * 16 + row) * SQUARE, *lower = upper + 8 * SQUARE;
        float sum0 = 0, sum1 = 0;
#pragma unroll 8
        for (int k = block * 16; k < (block + far) * 16; k++) {
            const float x = t[k * SQUARE + block * 16 + column];
            sum0 += upper[k] * x, sum1 += lower[k] * x;
        }
        product[block * 256 + threadIdx.x] = sum0;
        product[block * 256 + threadIdx.x + 128] = sum1;
    }
    __syncthreads();
    for (int block = 0; block < 4 - far; block++) {
        const int diagonal = (block + far) * 16;
        float *upper = t + (diagonal + row) * SQUARE, *lower = upper + 8 * SQUARE, sum0 = 0, sum1 = 0;
#pragma unroll
        for (int k = 0; k < 16; k++) {
            const float x = product[block * 256 + k * 16 + column];
            sum0 += upper[diagonal + k] * x, sum1 += lower[diagonal + k] * x;
        }
        upper[block * 16 + column] = -sum0;
        lower[block * 16 + column] = -sum1;
    }
    __syncthreads();
}

/* The warp's fragments of a factor, or of its transpose, from fp32 rows; blocks above the diagonal are 0. */
static __device__ __forceinline__ void store_factor(const float *m, bool transposed, uint4 *to)
{
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    for (int step = 0; step < FACTOR_STEPS; step++) {
        uint32_t r[4];
        for (int i = 0; i < 4; i++) {
            const int row = warp * 16 + lane / 4 + i % 2 * 8, column = step * 16 + lane % 4 * 2 + i / 2 * 8;
            float low = 0, high = 0;
            if (transposed ? step >= warp : step <= warp) {
                low = transposed ? m[column * SQUARE + row] : m[row * SQUARE + column];
                high = transposed ? m[(column + 1) * SQUARE + row] : m[row * SQUARE + column + 1];
            }
            r[i] = pack(low, high);
        }
        to[(warp * FACTOR_STEPS + step) * WARP + lane] = make_uint4(r[0], r[1], r[2], r[3]);
    }
}

/* A product of rows of this warp by all keys times the decays between them, [64][64] with 0 above the
 * diagonal; strict: and on it. beta: multiplies rows. */
template <int KEY>
static __device__ __forceinline__ void store_square(const LocalShared<KEY> *s, const float c[8][4],
                                                    const float *row_by, bool strict, const float *beta,
                                                    float *to)
{
    const int first = threadIdx.x / WARP * 16;
#pragma unroll
    for (int tile = 0; tile < 8; tile++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int i = first + sum_row(e), j = tile * 8 + sum_column(e);
            const bool seen = (strict ? j < i : j <= i) && j >= s->begin[i];
            const float by = __expf(seen ? s->sum[i] - s->sum[j] : -INFINITY) * row_by[i] * s->k_by[j];
            to[i * SQUARE + j] = c[tile][e] * by * (beta ? beta[i] : 1);
        }
}

/* BACK: transposes too. */
template <int KEY, bool READ, bool BACK>
static __global__ void __launch_bounds__(LOCAL_THREADS, 4)
    scan_local_kernel(const __grid_constant__ ScanArgs a)
{
    LocalShared<KEY> *const s = (LocalShared<KEY> *)shared_memory();
    const int key_head = blockIdx.y, group = a.heads / a.key_heads, first = threadIdx.x / WARP * 16;
    const ChunkPlace c = chunk_place(a, blockIdx.x / a.chunks, blockIdx.x % a.chunks);
    if (c.rows <= 0)
        return;
    const Bf16 *x = a.x + c.row * a.columns + key_head * KEY;
    copy_tile<LOCAL_THREADS, KEY, CHUNK>(s->q, KEY + PAD, x + a.q, a.columns, c.rows);
    copy_tile<LOCAL_THREADS, KEY, CHUNK>(s->k, KEY + PAD, x + a.k, a.columns, c.rows);
    copies_commit();
    if (threadIdx.x < CHUNK)
        s->place[threadIdx.x] = threadIdx.x < c.rows ? a.place[c.row + threadIdx.x] : 1;
    copies_wait<0>();
    __syncthreads();
    find_begins(s);
    lengths<KEY>(s->q, a.normalize, a.scale, s->q_by);
    lengths<KEY>(s->k, a.normalize, 1, s->k_by);
    float queries[8][4], keys[8][4];
    clear<8>(queries);
    clear<8>(keys);
    for (int k = 0; k < KEY; k += 16) {
        uint32_t r[4];
        load_a(r, s->q + first * (KEY + PAD) + k, KEY + PAD);
        multiply<8, true>(queries, r, s->k + k, KEY + PAD);
        load_a(r, s->k + first * (KEY + PAD) + k, KEY + PAD);
        multiply<8, true>(keys, r, s->k + k, KEY + PAD);
    }
    for (int head = key_head * group; head < (key_head + 1) * group; head++) {
        const int64_t slot = c.slot * a.heads + head;
        __syncthreads();
        row_numbers(a, c, head, s);
        __syncthreads();
        store_square(s, queries, s->q_by, false, NULL, s->t);
        __syncthreads();
        store_factor(s->t, false, a.between + slot * FACTOR);
        if (BACK)
            store_factor(s->t, true, a.between_back + slot * FACTOR);
        if (!READ)
            continue;
        store_square(s, keys, s->k_by, true, s->beta, s->a);
        __syncthreads();
        invert_diagonal(s->a, s->t);
        __syncthreads();
        for (int far = 1; far < 4; far++)
            invert_below(far, s->a, s->t, s->product);
        store_factor(s->t, false, a.inverse + slot * FACTOR);
        if (BACK)
            store_factor(s->t, true, a.inverse_back + slot * FACTOR);
    }
}

#endif
