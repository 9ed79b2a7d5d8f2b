/* cuda_scores.cuh: the scores by which tiles of queries choose blocks of keys, on a device (burst_attend.h).
 *
 * A block of threads scores all blocks of keys for one list. With `max K`, where a block has many products,
 * and queries that are bf16, 128 rows of queries (of some tiles and heads) are multiplied with 64 blocks at a
 * time on tensor cores, a key of each block after the other, and the maxima stay in registers. Either way a
 * score's terms are added in one order, whatever the ranks and the number of tiles. */
#ifndef CUDA_SCORES_CUH
#define CUDA_SCORES_CUH

#include "burst_model.h"
#include "cuda_attention.cuh"

enum { BURST_SELECT_THREADS = 256, BURST_SELECT_HEADS_AT_ONCE = 8 };

/* A layer's choice, with the heads of its queries and keys. lists: of a tile. table[t]: values by position;
 * NULL: none. */
typedef struct BurstChoose {
    BurstSelection how;
    int q_heads, kv_heads, lists, sequence;
    const int32_t *table[BURST_MAX_TABLES];
} BurstChoose;

/* The tokens of a rank: whole tiles and blocks in the order of positions, the sequence's last ones cut. */
typedef struct BurstChoosing {
    int n;
    const int32_t *position;
} BurstChoosing;

namespace burst {

/* Whether two positions are in one document, as far as `where` tells documents apart. */
static __device__ __forceinline__ bool select_together(const BurstChoose &s, int a, int b)
{
    const int32_t *const t = s.how.documents ? s.table[s.how.documents - 1] : NULL;
    if (!t)
        return true;
    return s.how.by_position ? t[b] - t[a] == b - a : t[a] == t[b];
}

/* Scores as numbers that rise with them: 0 is no candidate, NaN is -inf, and both zeros are one. */
static __device__ __forceinline__ uint32_t select_rank(float score)
{
    const float x = isnan(score) ? -CUDART_INF_F : score + 0.0f;
    const uint32_t bits = __float_as_uint(x);
    return bits >> 31 ? ~bits : bits | 0x80000000u;
}

} // namespace burst

/* What a list is made of: the heads that share it, and the queries and keys that represent tiles and blocks.
 * queries [tiles][q_heads][query_width]; keys [kv_heads * key_width][blocks], of `max K` bf16
 * [blocks][kv_heads][keys of a block][d]; rows: BURST_SELECT_ROWS rows of scores of blocks. */
typedef struct BurstScoring {
    const float *queries, *keys;
    const uint32_t *open;
    uint32_t *rows;
    int32_t *lists;
    int d, blocks, words, each, n_lists;
} BurstScoring;

namespace burst {

/* The query that represents a tile for a head. */
static __device__ __forceinline__ const float *select_query(const BurstChoose &s, const BurstScoring &x,
                                                            int tile, int head)
{
    const int width = (int)burst_select_query_width(s.how.query, x.d), first = tile * (int)s.how.queries;
    const bool before = s.how.query == BURST_SELECT_PREVIOUS_MEAN && tile > 0 &&
                        select_together(s, first - 1, first);
    return x.queries + ((int64_t)(tile - before) * s.q_heads + head) * width + (before ? x.d : 0);
}

/* The products of heads with one of the block's keys. */
template <bool LIMITS, int H>
static __device__ __forceinline__ void select_products(const float *keys, int blocks, int d, const float *q,
                                                       float (&score)[H])
{
#pragma unroll 4
    for (int c = 0; c < d; c++) {
        const float lo = __ldg(keys + (int64_t)c * blocks),
                    hi = LIMITS ? __ldg(keys + (int64_t)(d + c) * blocks) : 0;
#pragma unroll
        for (int h = 0; h < H; h++) {
            const float of = q[c * H + h];
            score[h] = LIMITS ? score[h] + max_or_nan(of * lo, of * hi) : fmaf(of, lo, score[h]);
        }
    }
}

/* The same with a key in bf16. */
template <int H>
static __device__ __forceinline__ void select_products(const uint32_t *key, int d, const float *q,
                                                       float (&score)[H])
{
#pragma unroll 4
    for (int c = 0; c < d; c += 2) {
        const uint32_t two = __ldg(key + c / 2);
        const float2 x = __bfloat1622float2(*(const __nv_bfloat162 *)&two);
#pragma unroll
        for (int h = 0; h < H; h++)
            score[h] = fmaf(q[(c + 1) * H + h], x.y, fmaf(q[c * H + h], x.x, score[h]));
    }
}

template <int H> static __device__ __forceinline__ float select_sum(const float (&score)[H], int heads)
{
    float sum = 0;
#pragma unroll
    for (int h = 0; h < H; h++)
        sum += h < heads ? score[h] : 0.0f;
    return sum;
}

/* Each head's greatest score of n keys. */
template <int H>
static __device__ __forceinline__ void select_greatest(const uint32_t *keys, int n, int d, const float *q,
                                                       float (&score)[H])
{
#pragma unroll
    for (int h = 0; h < H; h++)
        score[h] = -CUDART_INF_F;
    for (int i = 0; i < n; i++) {
        float other[H] = {};
        select_products(keys + (int64_t)i * (d / 2), d, q, other);
#pragma unroll
        for (int h = 0; h < H; h++)
            score[h] = max_or_nan(score[h], other[h]);
    }
}

/* The block's scores by the heads of q [channels][H], which read one key head. EVERY: with `max K`, by every
 * key.
 */
template <bool EVERY, int H>
static __device__ __forceinline__ void select_score(const BurstChoose &s, const BurstScoring &x, int block,
                                                    int kv, const float *q, float (&score)[H])
{
    const int64_t words = burst_select_device_words(s.how.key, s.how.block, x.d);
    const float *const keys = x.keys + kv * words * x.blocks + block;
#pragma unroll
    for (int h = 0; h < H; h++)
        score[h] = 0;
    if (EVERY)
        select_greatest((const uint32_t *)x.keys + ((int64_t)block * s.kv_heads + kv) * words,
                        (int)s.how.block, x.d, q, score);
    else if (s.how.key == BURST_SELECT_LIMITS)
        select_products<true>(keys, x.blocks, x.d, q, score);
    else
        select_products<false>(keys, x.blocks, x.d, q, score);
}

/* Whether the tile may choose the block. */
static __device__ __forceinline__ bool score_open(const BurstScoring &x, int own, int block)
{
    return block < x.blocks && x.open[(int64_t)own * x.words + block / 32] >> block % 32 & 1;
}

/* q [channels][H]: the tile's queries of `count` heads; called by all threads. */
template <int H>
static __device__ __forceinline__ void select_queries(const BurstChoose &s, const BurstScoring &x, int tile,
                                                      int head, int count, float *q)
{
    __syncthreads();
    for (int i = (int)threadIdx.x; i < x.d * H; i += BURST_SELECT_THREADS)
        q[i] = i % H < count ? select_query(s, x, tile, head + i % H)[i / H] : 0.0f;
    __syncthreads();
}

/* The scores of all blocks that the tile may choose, as ranks, in the row; 0: others. A score is the sum of
 * its heads' in their order. H: heads at once. */
template <bool EVERY, int H>
static __device__ __forceinline__ void select_scores(const BurstChoose &s, const BurstScoring &x, int tile,
                                                     int own, int first, uint32_t *row, float *q)
{
    const int group = s.q_heads / s.kv_heads, end = first + x.each;
    for (int head = first, count; head < end; head += count) {
        const int kv = head / group;
        count = min(min(H, end - head), (kv + 1) * group - head);
        select_queries<H>(s, x, tile, head, count, q);
        for (int b = (int)threadIdx.x; b < x.blocks; b += BURST_SELECT_THREADS) {
            float score[H], sum = head == first ? 0.0f : __uint_as_float(row[b]);
            if (!score_open(x, own, b)) {
                row[b] = 0;
                continue;
            }
            select_score<EVERY, H>(s, x, b, kv, q, score);
            sum += select_sum(score, count);
            row[b] = head + count == end ? select_rank(sum) : __float_as_uint(sum);
        }
    }
}

/* The same of `count` heads of one key head that have a list each, in as many rows. */
template <bool EVERY, int H>
static __device__ __forceinline__ void select_scores_apart(const BurstChoose &s, const BurstScoring &x,
                                                           int tile, int own, int first, int count,
                                                           uint32_t *rows, float *q)
{
    select_queries<H>(s, x, tile, first, count, q);
    for (int b = (int)threadIdx.x; b < x.blocks; b += BURST_SELECT_THREADS) {
        float score[H];
        const bool there = score_open(x, own, b);
        if (there)
            select_score<EVERY, H>(s, x, b, first / (s.q_heads / s.kv_heads), q, score);
#pragma unroll
        for (int h = 0; h < H; h++)
            if (h < count)
                rows[(int64_t)h * x.blocks + b] = there ? select_rank(score[h]) : 0;
    }
}

/* ---- products with every key ---- */

enum { SCORE_ROWS = 128, SCORE_BLOCKS = 64, SCORE_STAGES = 3 };

/* Lists that are scored at once, and where their scores are: row (tile - first tile) * lists + (list - first
 * list). A block of threads has rows of `heads` for each of SCORE_ROWS / heads tiles. */
typedef struct ScoreRows {
    int tile, tiles, list, lists, heads;
} ScoreRows;

/* Words of a row of bf16 in shared memory: rows are 16 bytes apart modulo 128, so that the eight rows of an
 * 8 x 8 block are in different banks. */
static __host__ __device__ constexpr int score_stride(int d) { return d / 2 + 4; }

static __host__ __device__ constexpr size_t score_shared(int d)
{
    const size_t of_queries = 4 * SCORE_ROWS * score_stride(d),
                 copies = 4 * SCORE_STAGES * SCORE_BLOCKS * score_stride(d),
                 maxima = 4 * SCORE_ROWS * (SCORE_BLOCKS + 1);
    return of_queries + (copies > maxima ? copies : maxima);
}

/* The queries of `count` heads from `head` on, for each tile from `own` on; others are zero. */
static __device__ __forceinline__ void score_queries(const BurstChoose &s, const BurstChoosing &c,
                                                     const BurstScoring &x, const ScoreRows &r, int own,
                                                     int head, int count, uint32_t *to)
{
    for (int at = (int)threadIdx.x; at < SCORE_ROWS * (x.d / 2); at += BURST_SELECT_THREADS) {
        const int row = at / (x.d / 2), w = at % (x.d / 2), tile = own + row / r.heads, h = row % r.heads;
        uint32_t two = 0;
        if (tile < r.tile + r.tiles && h < count) {
            const int number = c.position[tile * (int)s.how.queries] / (int)s.how.queries;
            const float *const q = select_query(s, x, number, head + h) + 2 * w;
            two = pack(q[0], q[1]);
        }
        to[row * score_stride(x.d) + w] = two;
    }
}

/* Starts the copy of key i of the blocks from `first` on. */
static __device__ __forceinline__ void score_key(const BurstChoose &s, const BurstScoring &x, int first,
                                                 int kv, int i, uint32_t *to)
{
    const int parts = x.d / 8;
    for (int at = (int)threadIdx.x; at < SCORE_BLOCKS * parts; at += BURST_SELECT_THREADS) {
        const int row = at / parts, w = at % parts * 4, block = min(first + row, x.blocks - 1);
        const int64_t key = ((int64_t)block * s.kv_heads + kv) * s.how.block + i;
        copy16(shared_address(to + row * score_stride(x.d) + w),
               (const uint32_t *)x.keys + key * (x.d / 2) + w, first + row < x.blocks);
    }
}

/* Products of a warp's 32 rows of queries with one key of each of its 32 blocks; a, b: its lanes' addresses.
 */
static __device__ __forceinline__ void score_products(uint32_t a, uint32_t b, int d, float (&sum)[2][4][4])
{
    const uint32_t rows16 = 64 * score_stride(d);
#pragma unroll 2
    for (int k = 0; k < d; k += 16, a += 32, b += 32) {
        uint32_t q[2][4], keys[2][4];
#pragma unroll
        for (int i = 0; i < 2; i++)
            load_block(q[i], a + i * rows16), load_block(keys[i], b + i * rows16);
#pragma unroll
        for (int m = 0; m < 2; m++)
#pragma unroll
            for (int n = 0; n < 4; n++)
                mma(sum[m][n], q[m], keys[n / 2][2 * (n % 2)], keys[n / 2][2 * (n % 2) + 1]);
    }
}

/* maxima[rows of queries][blocks]: over the blocks' keys. room: of SCORE_STAGES copies, then of the maxima.
 */
static __device__ __forceinline__ void score_maxima(const BurstChoose &s, const BurstScoring &x, int first,
                                                    int kv, const uint32_t *queries, uint32_t *room)
{
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, stride = score_stride(x.d),
              row = warp / 2 * 32, column = warp % 2 * 32, n = (int)s.how.block, copy = SCORE_BLOCKS * stride;
    const uint32_t a = shared_address(queries + (row + lane % 16) * stride + lane / 16 * 4),
                   b = shared_address(room + (column + lane / 16 * 8 + lane % 8) * stride + lane / 8 % 2 * 4);
    float best[2][4][4];
    for (int i = 0; i < 32; i++)
        best[i / 16][i / 4 % 4][i % 4] = -CUDART_INF_F;
    for (int i = 0; i < SCORE_STAGES - 1; i++) {
        if (i < n)
            score_key(s, x, first, kv, i, room + i * copy);
        copies_commit();
    }
    for (int i = 0; i < n; i++) {
        copies_wait<SCORE_STAGES - 2>();
        __syncthreads();
        if (i + SCORE_STAGES - 1 < n)
            score_key(s, x, first, kv, i + SCORE_STAGES - 1,
                      room + (i + SCORE_STAGES - 1) % SCORE_STAGES * copy);
        copies_commit();
        float sum[2][4][4] = {};
        score_products(a, b + (uint32_t)(i % SCORE_STAGES * copy * 4), x.d, sum);
#pragma unroll
        for (int e = 0; e < 32; e++)
            best[e / 16][e / 4 % 4][e % 4] = max_or_nan(best[e / 16][e / 4 % 4][e % 4],
                                                        sum[e / 16][e / 4 % 4][e % 4]);
    }
    copies_wait<0>();
    __syncthreads();
    float *const maxima = (float *)room;
#pragma unroll
    for (int e = 0; e < 32; e++)
        maxima[(row + e / 16 * 16 + lane / 4 + e % 4 / 2 * 8) * (SCORE_BLOCKS + 1) + column + e / 4 % 4 * 8 +
               lane % 4 * 2 + e % 2] = best[e / 16][e / 4 % 4][e % 4];
    __syncthreads();
}

} // namespace burst

/* The scores of SCORE_BLOCKS blocks for one list of some tiles, as ranks; 0: not a candidate. */
static __global__ void __launch_bounds__(BURST_SELECT_THREADS)
    burst_select_products_kernel(const __grid_constant__ BurstChoose s, BurstChoosing c, BurstScoring x,
                                 burst::ScoreRows r)
{
    using namespace burst;
    extern __shared__ __align__(16) uint32_t select_shared[];
    uint32_t *const queries = select_shared, *const room = queries + SCORE_ROWS * score_stride(x.d);
    const int list = r.list + (int)blockIdx.y % r.lists, at_once = SCORE_ROWS / r.heads,
              own = r.tile + (int)blockIdx.y / r.lists * at_once,
              tiles = min(at_once, r.tile + r.tiles - own), first = (int)blockIdx.x * SCORE_BLOCKS,
              group = s.q_heads / s.kv_heads, begin = list * x.each, end = begin + x.each;
    bool any = false;
    for (int at = (int)threadIdx.x; at < tiles * SCORE_BLOCKS; at += BURST_SELECT_THREADS)
        any |= score_open(x, own + at / SCORE_BLOCKS, first + at % SCORE_BLOCKS);
    const bool there = __syncthreads_or(any);
    for (int head = begin, count; head < end; head += count) {
        const int kv = head / group;
        count = min(min(r.heads, end - head), (kv + 1) * group - head);
        if (there) {
            __syncthreads();
            score_queries(s, c, x, r, own, head, count, queries);
            score_maxima(s, x, first, kv, queries, room);
        }
        for (int at = (int)threadIdx.x; at < tiles * SCORE_BLOCKS; at += BURST_SELECT_THREADS) {
            const int tile = at / SCORE_BLOCKS, block = first + at % SCORE_BLOCKS;
            const float *const maxima = (const float *)room + tile * r.heads * (SCORE_BLOCKS + 1) +
                                        at % SCORE_BLOCKS;
            uint32_t *const row = x.rows +
                                  ((int64_t)(own + tile - r.tile) * r.lists + (list - r.list)) * x.blocks;
            if (block >= x.blocks)
                continue;
            if (!score_open(x, own + tile, block)) {
                row[block] = 0;
                continue;
            }
            float sum = head == begin ? 0.0f : __uint_as_float(row[block]);
            for (int h = 0; h < count; h++)
                sum += maxima[h * (SCORE_BLOCKS + 1)];
            row[block] = head + count == end ? select_rank(sum) : __float_as_uint(sum);
        }
    }
}

/* Rows of queries for a tile's list: the smallest power of two with room for its heads of one key head. */
static inline int burst_score_heads(const BurstChoose &s, int each)
{
    const int group = s.q_heads / s.kv_heads, most = each < group ? each : group;
    int heads = 1;
    while (heads < most && heads < burst::SCORE_ROWS)
        heads *= 2;
    return heads;
}

/* Whether scores are products on tensor cores: of queries in bf16 with every key, where the device has room.
 */
static inline bool burst_scores_products(const BurstChoose &s, int d)
{
    if (s.how.key != BURST_SELECT_MAX_KEY || s.how.query != BURST_SELECT_FIRST_QUERY || d % 16)
        return false;
    return cudaFuncSetAttribute(burst_select_products_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                (int)burst::score_shared(d)) == cudaSuccess ||
           cudaGetLastError() == cudaSuccess; /* that a later launch would report */
}

#endif
