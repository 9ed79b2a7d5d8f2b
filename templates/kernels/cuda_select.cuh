/* cuda_select.cuh: tiles of queries choose blocks of keys, on a device (burst_attend.h).
 *
 * What represents blocks and tiles is summed in fp32, in one order. The n best of a list are found by the
 * bits of their scores (cuda_scores.cuh), eight at a time: no table of scores of all tiles is kept, and
 * nothing depends on the order of threads. */
#ifndef CUDA_SELECT_CUH
#define CUDA_SELECT_CUH

#include "cuda_scores.cuh"

namespace burst {

/* The run of positions of begin .. end - 1 that are in the document of `of`; called by all threads. */
static __device__ __forceinline__ int2 select_run(const BurstChoose &s, int begin, int end, int of)
{
    __shared__ int run[2];
    if (threadIdx.x == 0)
        run[0] = end, run[1] = begin;
    __syncthreads();
    for (int at = begin + (int)threadIdx.x; at < end; at += (int)blockDim.x)
        if (select_together(s, min(at, of), max(at, of)))
            atomicMin(&run[0], at), atomicMax(&run[1], at + 1);
    __syncthreads();
    const int2 found = make_int2(run[0], run[1]);
    __syncthreads();
    return found;
}

/* The mean of n rows of one column: runs of 16 are summed apart, so that long sums keep small terms. */
static __device__ __forceinline__ float select_mean(const __nv_bfloat16 *x, int64_t row, int n)
{
    float sum = 0;
    for (int first = 0; first < n; first += 16) {
        float part = 0;
#pragma unroll
        for (int i = 0; i < 16; i++)
            part += first + i < n ? __bfloat162float(x[(first + i) * row]) : 0.0f;
        sum += part;
    }
    return n > 0 ? sum / (float)n : 0.0f;
}

/* The least and the greatest; NaN if one is. */
static __device__ __forceinline__ float2 select_limits(const __nv_bfloat16 *x, int64_t row, int n)
{
    float lo = __bfloat162float(x[0]), hi = lo;
    for (int i = 1; i < n; i++) {
        const float v = __bfloat162float(x[i * row]);
        lo = v < lo || isnan(v) ? v : lo;
        hi = v > hi || isnan(v) ? v : hi;
    }
    return make_float2(lo, hi);
}

} // namespace burst

/* ---- what represents blocks and tiles ---- */

/* out[blocks of the chunk][key heads][words]; a block of threads a key head's block, a thread a column. */
static __global__ void burst_select_keys_kernel(const __grid_constant__ BurstChoose s, BurstChoosing c,
                                                BurstRows k, int d, float *out)
{
    const int at = (int)(blockIdx.x * s.how.block), head = (int)blockIdx.y, column = (int)threadIdx.x,
              n = min((int)s.how.block, c.n - at), begin = c.position[at], end = begin + n,
              words = (int)burst_select_device_words(s.how.key, s.how.block, d);
    const int2 run = burst::select_run(s, begin, end, end - 1);
    const __nv_bfloat16 *const x = k.at + head * k.head + (at + run.x - begin) * k.row + column;
    float *const block = out + ((int64_t)blockIdx.x * s.kv_heads + head) * words, *const to = block + column;
    if (column >= d)
        return;
    if (s.how.key == BURST_SELECT_LIMITS) {
        const float2 limits = burst::select_limits(x, k.row, end - run.x);
        to[0] = limits.x, to[d] = limits.y;
    } else if (s.how.key == BURST_SELECT_MAX_KEY)
        for (int i = 0; i < (int)s.how.block; i++) /* the last one again where a block has fewer */
            ((__nv_bfloat16 *)block)[i * d + column] = x[min(i, end - run.x - 1) * k.row];
    else
        to[0] = s.how.key == BURST_SELECT_MEAN_KEY ? burst::select_mean(x, k.row, end - run.x)
                                                   : __bfloat162float(x[0]);
}

/* out[tiles of the chunk][query heads][width]. */
static __global__ void burst_select_queries_kernel(const __grid_constant__ BurstChoose s, BurstChoosing c,
                                                   BurstRows q, int d, float *out)
{
    const int at = (int)(blockIdx.x * s.how.queries), head = (int)blockIdx.y, column = (int)threadIdx.x,
              begin = c.position[at], end = begin + min((int)s.how.queries, c.n - at),
              width = (int)burst_select_query_width(s.how.query, d);
    const bool before = s.how.query == BURST_SELECT_PREVIOUS_MEAN, own = s.how.query == BURST_SELECT_OWN_MEAN;
    const int of = before && end < s.sequence ? end : begin;
    const int2 run = before || own ? burst::select_run(s, begin, end, of) : make_int2(begin, begin);
    const __nv_bfloat16 *const x = q.at + head * q.head + at * q.row + column;
    float *const to = out + ((int64_t)blockIdx.x * s.q_heads + head) * width + column;
    if (column >= d)
        return;
    const float mean = burst::select_mean(x + (run.x - begin) * q.row, q.row, run.y - run.x);
    to[0] = own ? mean : __bfloat162float(x[0]);
    if (before)
        to[d] = end < s.sequence ? mean : 0.0f;
}

/* to[unit of the sequence * unit_step + word * word_step] of each of the chunk's units, which are in the
 * order of its tokens. */
static __global__ void burst_select_place_kernel(BurstChoosing c, int unit, int words, const uint32_t *from,
                                                 int64_t unit_step, int64_t word_step, uint32_t *to)
{
    const int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, i = at / words, w = at % words;
    if (i * unit < c.n)
        to[c.position[i * unit] / unit * unit_step + w * word_step] = from[at];
}

static __global__ void burst_by_position_kernel(int n, const int32_t *position, const int32_t *value,
                                                int32_t *to)
{
    const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < n)
        to[position[i]] = value[i];
}

/* ---- blocks that a tile may choose ---- */

/* side[i]: hull of the i-th run of `unit` positions; a warp each. */
static __global__ void burst_select_sides_kernel(const __grid_constant__ BurstChoose s, int unit,
                                                 BurstSide *side)
{
    const int number = (int)(blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = (int)threadIdx.x % 32,
              begin = number * unit, end = min(begin + unit, s.sequence);
    BurstSide hull = {};
    if (begin >= s.sequence)
        return;
    hull.lo = begin, hull.hi = end - 1;
#pragma unroll
    for (int t = 0; t < BURST_MAX_TABLES; t++) {
        int32_t low = INT32_MAX, high = INT32_MIN;
        for (int i = begin + lane; s.table[t] && i < end; i += 32)
            low = min(low, s.table[t][i]), high = max(high, s.table[t][i]);
        hull.table_lo[t] = __reduce_min_sync(0xffffffffu, low);
        hull.table_hi[t] = __reduce_max_sync(0xffffffffu, high);
    }
    if (lane == 0)
        side[number] = hull;
}

/* Whether `where` leaves any pair; all lanes of a warp. */
template <class OPEN>
static __device__ __forceinline__ bool burst_select_any(const BurstChoose &s, const BurstSide &q,
                                                        const BurstSide &k)
{
    for (int64_t i = q.lo; i <= q.hi; i++)
        for (int64_t first = k.lo; first <= k.hi; first += 32) {
            const int64_t j = first + (int)threadIdx.x % 32;
            int32_t tq[BURST_MAX_TABLES] = {}, tk[BURST_MAX_TABLES] = {};
#pragma unroll
            for (int t = 0; t < BURST_MAX_TABLES; t++)
                if (OPEN::TABLES >> t & 1 && j <= k.hi)
                    tq[t] = s.table[t][i], tk[t] = s.table[t][j];
            if (__any_sync(0xffffffffu, j <= k.hi && OPEN::keep((int32_t)i, (int32_t)j, tq, tk)))
                return true;
        }
    return false;
}

/* bits[own tile][words]: bit b % 32 of word b / 32: the tile may choose block b. A warp a word. */
template <class OPEN>
static __global__ void burst_select_open_kernel(const __grid_constant__ BurstChoose s, BurstChoosing c,
                                                const BurstSide *blocks, const BurstSide *tiles, int words,
                                                uint32_t *bits)
{
    const int64_t number = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / 32;
    const int lane = (int)threadIdx.x % 32, own = (int)(number / words), word = (int)(number % words),
              block = word * 32 + lane, count = (int)((s.sequence + s.how.block - 1) / s.how.block);
    if (own * s.how.queries >= c.n)
        return;
    const BurstSide tile = tiles[c.position[own * s.how.queries] / s.how.queries];
    BurstSide keys = {};
    int cover = BURST_EMPTY;
    if (block < count) {
        keys = blocks[block];
        if ((s.how.noncausal || keys.hi <= tile.lo) &&
            burst::select_together(s, (int)min(keys.hi, tile.lo), (int)max(keys.hi, tile.lo)))
            cover = OPEN::tile(&tile, &keys);
    }
    uint32_t found = __ballot_sync(0xffffffffu, cover == BURST_FULL);
    for (uint32_t rest = __ballot_sync(0xffffffffu, cover == BURST_PARTIAL); rest; rest &= rest - 1) {
        const int at = __ffs((int)rest) - 1;
        if (burst_select_any<OPEN>(s, tile, blocks[word * 32 + at]))
            found |= 1u << at;
    }
    if (lane == 0)
        bits[number] = found;
}

/* ---- lists ---- */

namespace burst {

/* Adds what the threads have; called by all. */
static __device__ __forceinline__ int select_total(int mine)
{
    __shared__ int total;
    __syncthreads();
    if (threadIdx.x == 0)
        total = 0;
    __syncthreads();
    const int warp = __reduce_add_sync(0xffffffffu, mine);
    if (threadIdx.x % 32 == 0 && warp)
        atomicAdd(&total, warp);
    __syncthreads();
    return total;
}

/* The digit at which the counts of all higher ones reach `rest`, which becomes what is left for its own; all
 * lanes of a warp. */
static __device__ __forceinline__ int select_digit(const int *count, int &rest)
{
    const int lane = (int)threadIdx.x % 32, top = 255 - 8 * lane;
    int mine = 0;
    for (int i = 0; i < 8; i++)
        mine += count[top - i];
    int until = mine;
    for (int step = 1; step < 32; step *= 2) {
        const int other = __shfl_up_sync(0xffffffffu, until, step);
        until += lane >= step ? other : 0;
    }
    const int at = __ffs((int)__ballot_sync(0xffffffffu, until >= rest)) - 1;
    int digit = 255 - 8 * at;
    rest -= __shfl_sync(0xffffffffu, until - mine, at);
    for (; count[digit] < rest; digit--)
        rest -= count[digit];
    return digit;
}

/* The rank of the last of the `top` best, and how many of equal rank are among these: by digits of eight
 * bits, the highest first. */
static __device__ __forceinline__ void select_last(const uint32_t *row, int blocks, int top, uint32_t &last,
                                                   int &equal)
{
    __shared__ int count[256];
    __shared__ uint32_t found;
    __shared__ int left;
    uint32_t known = 0;
    equal = top;
    for (int shift = 24; shift >= 0; shift -= 8) {
        count[threadIdx.x] = 0;
        __syncthreads();
        for (int b = (int)threadIdx.x; b < blocks; b += BURST_SELECT_THREADS) {
            const uint32_t x = row[b];
            if (x && (shift == 24 || x >> (shift + 8) == known >> (shift + 8)))
                atomicAdd(&count[x >> shift & 255], 1);
        }
        __syncthreads();
        if (threadIdx.x < 32) {
            int rest = equal;
            found = known | (uint32_t)select_digit(count, rest) << shift, left = rest;
        }
        __syncthreads();
        known = found, equal = left;
        __syncthreads();
    }
    last = known;
}

/* Each thread's count of those before it, and the sum of all; called by all. */
static __device__ __forceinline__ int select_before(bool mine, int &all)
{
    __shared__ int warps[BURST_SELECT_THREADS / 32];
    const unsigned there = __ballot_sync(0xffffffffu, mine);
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    int before = __popc(there & ((1u << lane) - 1));
    __syncthreads();
    if (lane == 0)
        warps[warp] = __popc(there);
    __syncthreads();
    all = 0;
    for (int w = 0; w < BURST_SELECT_THREADS / 32; w++) {
        before += w < warp ? warps[w] : 0;
        all += warps[w];
    }
    return before;
}

/* Writes the best blocks, rising, then -1. Of equal ones the lowest are taken. */
static __device__ __forceinline__ void select_write(const uint32_t *row, int blocks, int top, uint32_t last,
                                                    int equal, int32_t *list)
{
    int written = 0;
    for (int first = 0; first < blocks; first += BURST_SELECT_THREADS) {
        const int b = first + (int)threadIdx.x;
        const uint32_t x = b < blocks ? row[b] : 0;
        int alike, taken;
        const int before = select_before(x && x == last, alike);
        const bool take = x > last || (x && x == last && before < equal);
        const int at = select_before(take, taken);
        if (take)
            list[written + at] = b;
        equal = max(equal - alike, 0), written += taken;
    }
    for (int i = written + (int)threadIdx.x; i < top; i += BURST_SELECT_THREADS)
        list[i] = -1;
}

} // namespace burst

namespace burst {

/* Takes the best of a row of scores. */
static __device__ __forceinline__ void select_take(const BurstChoose &s, const uint32_t *row, int blocks,
                                                   int32_t *list)
{
    uint32_t last = 1;
    int mine = 0, equal = s.how.top;
    for (int b = (int)threadIdx.x; b < blocks; b += BURST_SELECT_THREADS)
        mine += row[b] != 0;
    if (select_total(mine) > s.how.top)
        select_last(row, blocks, s.how.top, last, equal);
    select_write(row, blocks, s.how.top, last, equal, list);
}

} // namespace burst

/* lists[own tiles][n_lists][top]; blocks of threads take lists in turn. */
template <bool EVERY>
static __global__ void __launch_bounds__(BURST_SELECT_THREADS)
    burst_select_lists_kernel(const __grid_constant__ BurstChoose s, BurstChoosing c, BurstScoring x)
{
    extern __shared__ float queries[];
    uint32_t *const row = x.rows + (int64_t)blockIdx.x * x.blocks;
    const int queries_of = (int)s.how.queries;
    for (int64_t number = blockIdx.x; number / x.n_lists * queries_of < c.n; number += gridDim.x) {
        const int own = (int)(number / x.n_lists), list = (int)(number % x.n_lists),
                  tile = c.position[own * queries_of] / queries_of;
        if (x.each == 1 || s.q_heads == s.kv_heads)
            burst::select_scores<EVERY, 1>(s, x, tile, own, list * x.each, row, queries);
        else
            burst::select_scores<EVERY, BURST_SELECT_HEADS_AT_ONCE>(s, x, tile, own, list * x.each, row,
                                                                    queries);
        burst::select_take(s, row, x.blocks, x.lists + number * s.how.top);
    }
}

/* The same where each of a key head's query heads has a list: as many lists at a time. */
template <bool EVERY>
static __global__ void __launch_bounds__(BURST_SELECT_THREADS)
    burst_select_apart_kernel(const __grid_constant__ BurstChoose s, BurstChoosing c, BurstScoring x)
{
    enum { H = BURST_SELECT_HEADS_AT_ONCE };
    extern __shared__ float queries[];
    uint32_t *const rows = x.rows + (int64_t)blockIdx.x * H * x.blocks;
    const int queries_of = (int)s.how.queries, group = s.q_heads / s.kv_heads,
              of_key_head = (group + H - 1) / H, units = s.kv_heads * of_key_head;
    for (int64_t number = blockIdx.x; number / units * queries_of < c.n; number += gridDim.x) {
        const int own = (int)(number / units), unit = (int)(number % units),
                  tile = c.position[own * queries_of] / queries_of, before = unit % of_key_head * H,
                  first = unit / of_key_head * group + before, count = min((int)H, group - before);
        burst::select_scores_apart<EVERY, H>(s, x, tile, own, first, count, rows, queries);
        for (int h = 0; h < count; h++)
            burst::select_take(s, rows + (int64_t)h * x.blocks, x.blocks,
                               x.lists + ((int64_t)own * x.n_lists + first + h) * s.how.top);
    }
}

/* The same of rows that burst_select_products_kernel has scored, a block of threads a list. */
static __global__ void __launch_bounds__(BURST_SELECT_THREADS)
    burst_select_best_kernel(const __grid_constant__ BurstChoose s, BurstScoring x, burst::ScoreRows r)
{
    const int64_t tile = r.tile + (int)blockIdx.x / r.lists, list = r.list + (int)blockIdx.x % r.lists;
    burst::select_take(s, x.rows + (int64_t)blockIdx.x * x.blocks, x.blocks,
                       x.lists + (tile * x.n_lists + list) * s.how.top);
}

/* ---- launches ---- */

static BURST_MAYBE_UNUSED unsigned burst_select_units(int n, int64_t unit)
{
    return (unsigned)((n + unit - 1) / unit);
}

static BURST_MAYBE_UNUSED cudaError_t burst_choose_keys(const BurstChoose &s, BurstChoosing c, BurstRows k,
                                                        int d, float *out, cudaStream_t stream)
{
    if (c.n)
        burst_select_keys_kernel<<<dim3(burst_select_units(c.n, s.how.block), (unsigned)s.kv_heads),
                                   (d + 31) / 32 * 32, 0, stream>>>(s, c, k, d, out);
    return cudaGetLastError();
}

static BURST_MAYBE_UNUSED cudaError_t burst_choose_queries(const BurstChoose &s, BurstChoosing c, BurstRows q,
                                                           int d, float *out, cudaStream_t stream)
{
    if (c.n)
        burst_select_queries_kernel<<<dim3(burst_select_units(c.n, s.how.queries), (unsigned)s.q_heads),
                                      (d + 31) / 32 * 32, 0, stream>>>(s, c, q, d, out);
    return cudaGetLastError();
}

static BURST_MAYBE_UNUSED cudaError_t burst_choose_place(BurstChoosing c, int64_t unit, int64_t words,
                                                         const void *from, int64_t unit_step,
                                                         int64_t word_step, void *to, cudaStream_t stream)
{
    const int64_t all = burst_select_units(c.n, unit) * words;
    if (all)
        burst_select_place_kernel<<<(unsigned)((all + 255) / 256), 256, 0, stream>>>(c, (int)unit, (int)words,
                                                                                     (const uint32_t *)from,
                                                                                     unit_step, word_step,
                                                                                     (uint32_t *)to);
    return cudaGetLastError();
}

/* As many lists at a time as there are rows for scores: all of some tiles, or some of a block of threads'
 * tiles. */
static BURST_MAYBE_UNUSED cudaError_t burst_choose_by_products(const BurstChoose &s, BurstChoosing c,
                                                               const BurstScoring &x, int own,
                                                               cudaStream_t stream)
{
    const int heads = burst_score_heads(s, x.each), at_once = burst::SCORE_ROWS / heads,
              fewest = own < at_once ? own : at_once, most = BURST_SELECT_ROWS / fewest,
              lists = x.n_lists < most ? x.n_lists : most,
              whole = BURST_SELECT_ROWS / lists / at_once * at_once, step = whole ? whole : fewest;
    const unsigned columns = burst_select_units(x.blocks, burst::SCORE_BLOCKS);
    for (int tile = 0; tile < own; tile += step)
        for (int list = 0; list < x.n_lists; list += lists) {
            const burst::ScoreRows r = {tile, own - tile < step ? own - tile : step, list,
                                        x.n_lists - list < lists ? x.n_lists - list : lists, heads};
            burst_select_products_kernel<<<dim3(columns,
                                                burst_select_units(r.tiles, at_once) * (unsigned)r.lists),
                                           BURST_SELECT_THREADS, burst::score_shared(x.d), stream>>>(s, c, x,
                                                                                                     r);
            burst_select_best_kernel<<<(unsigned)(r.tiles * r.lists), BURST_SELECT_THREADS, 0, stream>>>(s, x,
                                                                                                         r);
        }
    return cudaGetLastError();
}

/* A list, or those of some heads, after the other in each block of threads. */
template <bool EVERY>
static cudaError_t burst_choose_by_lists(const BurstChoose &s, BurstChoosing c, const BurstScoring &x,
                                         int all, cudaStream_t stream)
{
    const size_t bytes = (size_t)x.d * BURST_SELECT_HEADS_AT_ONCE * sizeof(float);
    const int rows_used = all < BURST_SELECT_ROWS ? all : BURST_SELECT_ROWS;
    if (x.each == 1 && s.q_heads > s.kv_heads)
        burst_select_apart_kernel<EVERY>
            <<<BURST_SELECT_ROWS / BURST_SELECT_HEADS_AT_ONCE, BURST_SELECT_THREADS, bytes, stream>>>(s, c,
                                                                                                      x);
    else
        burst_select_lists_kernel<EVERY><<<rows_used, BURST_SELECT_THREADS, bytes, stream>>>(s, c, x);
    return cudaGetLastError();
}

/* The lists of the chunk's tiles. queries, keys: as BurstScoring has them. work: burst_select_work bytes. */
template <class OPEN>
static cudaError_t burst_choose_lists(const BurstChoose &s, BurstChoosing c, int d, const float *queries,
                                      const float *keys, char *work, int32_t *lists, cudaStream_t stream)
{
    const int blocks = (int)burst_select_units(s.sequence, s.how.block),
              tiles = (int)burst_select_units(s.sequence, s.how.queries),
              own = (int)burst_select_units(c.n, s.how.queries), words = (blocks + 31) / 32,
              n_lists = s.lists, all = own * n_lists;
    BurstSide *const of_blocks = (BurstSide *)work, *const of_tiles = of_blocks + blocks;
    uint32_t *const open = (uint32_t *)(of_tiles + tiles), *const rows = open + (int64_t)own * words;
    const BurstScoring x = {queries, keys, open, rows, lists, d, blocks, words, s.q_heads / n_lists, n_lists};
    if (!all)
        return cudaSuccess;
    burst_select_sides_kernel<<<(blocks + 3) / 4, 128, 0, stream>>>(s, (int)s.how.block, of_blocks);
    burst_select_sides_kernel<<<(tiles + 3) / 4, 128, 0, stream>>>(s, (int)s.how.queries, of_tiles);
    burst_select_open_kernel<OPEN>
        <<<(unsigned)(((int64_t)own * words + 3) / 4), 128, 0, stream>>>(s, c, of_blocks, of_tiles, words,
                                                                         open);
    if (burst_scores_products(s, d))
        return burst_choose_by_products(s, c, x, own, stream);
    return s.how.key == BURST_SELECT_MAX_KEY ? burst_choose_by_lists<true>(s, c, x, all, stream)
                                             : burst_choose_by_lists<false>(s, c, x, all, stream);
}

#endif
