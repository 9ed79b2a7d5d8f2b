/* cuda_attention_backward.cuh: attention backward of one (query chunk, key chunk) pair, sm_80 form
 * (FlashAttention-2).
 *
 * A block of 8 warps owns a tile of 128 keys and walks the query tiles of its list, for every query head
 * that reads the key head, so dK and dV stay in registers. Scores are transposed, S^T = K Q^T: a warp (four
 * groups of 32 keys, two parts) computes 32 keys by its part of the queries, which are the A operand of dV
 * and dK in that register layout. For those products the parts split head_dim instead, and a warp reads the
 * other part's P and dS from shared memory. dQ is added to global memory. Gradients are sums: they need the
 * final lse and delta = rowsum(dO * O), and then pairs add up in any number. With head_dim over 128 a tile
 * has 64 keys, in two groups and four parts. Columns are padded with zeros in shared memory to whole blocks
 * of 16 per part. A part's columns are contiguous, or blocks of 16 with a stride of the number of parts, so
 * that no address carries. About 162 KB of shared memory, one block per multiprocessor: sm_80, and sm_90 and
 * later. */
#include "cuda_attention.cuh"

template <int D, class MASK, int E = D> struct BurstBackwardLayout {
    using Shape = BurstTileShape<80, D, E>;
    static constexpr int BM = Shape::BACKWARD_Q, BN = Shape::BACKWARD_K;
    static constexpr int THREADS = 256, STAGES = Shape::BACKWARD_STAGES;
    static constexpr int ROW_BYTES = burst_row_bytes(D), VALUE_BYTES = burst_row_bytes(E),
                         STAGE = BM * ROW_BYTES, VALUE_STAGE = BM * VALUE_BYTES,
                         Q_INTS = burst::token_ints<MASK>(BM) * 4;
    static constexpr int K = 0, V = K + BN * ROW_BYTES, Q = V + BN * VALUE_BYTES, DO = Q + STAGES * STAGE;
    static constexpr int WIDE = burst_80_columns(D, BN), VALUE_WIDE = burst_80_columns(E, BN); /* padded */
    static constexpr int P = DO + STAGES * VALUE_STAGE, DS = P + BN * BM * 2;
    static constexpr int ROWS = DS + BN * BM * 2; /* stages of lse[BM], delta[BM] */
    static constexpr int INTS = ROWS + STAGES * 2 * BM * 4;
    static constexpr int K_INTS = INTS + STAGES * Q_INTS;
    static constexpr int BYTES = K_INTS + burst::token_ints<MASK>(BN) * 4;
    static_assert(BYTES <= BURST_BLOCK_BYTES, "a block has no more shared memory");
};

namespace burst {

/* How a block's warps share its work: each part has QUERIES of the scores, and COLUMNS of a gradient of
 * width W (dK or dV) from part * FIRST on, 16 of them every STEP. S: BurstTileShape. */
template <class S, int W> struct BackwardParts {
    static constexpr int BM = S::BACKWARD_Q, BN = S::BACKWARD_K;
    static constexpr int PARTS = burst_80_parts(BN), GROUPS = BURST_80_WARPS / PARTS;
    static constexpr int WIDE = burst_80_columns(W, BN), QUERIES = BM / PARTS, COLUMNS = WIDE / PARTS;
    static constexpr bool ADJACENT = (COLUMNS & (COLUMNS - 1)) == 0;
    static constexpr int FIRST = ADJACENT ? COLUMNS : 16, STEP = ADJACENT ? 16 : 16 * PARTS;
};

/* A lane's addresses in shared memory for load_block, and its rows. */
typedef struct BackwardLane {
    /* keys: first key of the warp's 32; part: of the queries for S and dP, of head_dim for dK and dV */
    int lane, keys, part;
    uint32_t down, across; /* for load_block */
} BackwardLane;

template <class S, int D, int E> struct BackwardSums {
    float dk[2][BackwardParts<S, D>::COLUMNS / 8][4], dv[2][BackwardParts<S, E>::COLUMNS / 8][4];
};
/* Q: queries of a part. */
template <int Q> struct BackwardScores { float s[2][Q / 8][4], ds[2][Q / 8][4]; };

template <int N> static __device__ __forceinline__ void backward_zero(float (&x)[2][N][4])
{
#pragma unroll
    for (int e = 0; e < N * 8; e++)
        (&x[0][0][0])[e] = 0;
}

/* s += A B^T: 32 keys of tile A by the warp's queries of tile B, over W columns. */
template <class S, int W, int Q, int A>
static __device__ __forceinline__ void backward_scores(float s[2][Q / 8][4], uint32_t keys, uint32_t queries)
{
    constexpr int BM = S::BACKWARD_Q, BN = S::BACKWARD_K;
#pragma unroll
    for (int x = 0; x < W; x += 16) {
        uint32_t a[2][4];
        load_block(a[0], block_at<BN>(keys, A, 0, x));
        load_block(a[1], block_at<BN>(keys, A, 16, x));
#pragma unroll
        for (int j = 0; j < Q / 16; j++) {
            uint32_t r[4];
            load_block(r, block_at<BM>(queries, 0, j * 16, x));
#pragma unroll
            for (int b = 0; b < 2; b++) {
                mma(s[b][2 * j], a[b], r[0], r[1]);
                mma(s[b][2 * j + 1], a[b], r[2], r[3]);
            }
        }
    }
}

/* s = A B^T under the softcap. */
template <class S, int D, int Q, int A>
static __device__ __forceinline__ void backward_capped(float (&s)[2][Q / 8][4], uint32_t keys,
                                                       uint32_t queries, float scale)
{
    backward_zero(s);
    backward_scores<S, D, Q, A>(s, keys, queries);
    cap_scores<Q>(&s[0][0][0], scale);
}

/* Sets -inf where the mask drops a pair or the row is no key. keys: their number from the tile's first
 * on. */
template <class L, class MASK, int Q>
static __device__ __forceinline__ void backward_mask(float (&s)[2][Q][4], const unsigned char *shared,
                                                     int stage, const BackwardLane &w, int keys,
                                                     const BurstChosen &chosen)
{
    const int32_t *const q_ints = (const int32_t *)(shared + L::INTS + stage * L::Q_INTS);
    const int32_t *const k_ints = (const int32_t *)(shared + L::K_INTS);
    mask_blocks<L::BN, L::BM, MASK, true>(s, k_ints, q_ints, w.keys, w.part * Q * 8, w.lane, keys, chosen);
}

/* Scores to probabilities. A query without keys has lse = -inf and gets p = 0. */
template <int Q>
static __device__ __forceinline__ void backward_exp(float (&s)[2][Q][4], const float *lse, float scale_log2)
{
#pragma unroll
    for (int j = 0; j < Q; j++) {
        const float2 of = *(const float2 *)(lse + j * 8);
        const float x = of.x == -CUDART_INF_F ? CUDART_INF_F : of.x * 1.44269504f;
        const float y = of.y == -CUDART_INF_F ? CUDART_INF_F : of.y * 1.44269504f;
#pragma unroll
        for (int b = 0; b < 2; b++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                s[b][j][e] = exp2_fast(s[b][j][e] * scale_log2 - (e % 2 ? y : x));
    }
}

/* ds times the slope of the softcap at the scores of P. */
template <int Q>
static __device__ __forceinline__ void backward_slope(float (&ds)[2][Q][4], const float (&s)[2][Q][4],
                                                      const float *lse)
{
    if constexpr (CAPPED)
#pragma unroll
        for (int j = 0; j < Q; j++) {
            const float2 of = *(const float2 *)(lse + j * 8);
#pragma unroll
            for (int b = 0; b < 2; b++)
#pragma unroll
                for (int e = 0; e < 4; e++)
                    ds[b][j][e] = times_slope(ds[b][j][e], s[b][j][e], (e % 2 ? of.y : of.x) * 1.44269504f);
        }
}

/* ds = P (dP - delta), with dP in ds. delta is subtracted last: if a row sees one key it equals dP bit by
 * bit (runtime/cuda/ops/delta.cu), and the difference is exactly 0. */
template <int Q>
static __device__ __forceinline__ void backward_less_delta(float (&ds)[2][Q][4], const float (&p)[2][Q][4],
                                                           const float *delta)
{
#pragma unroll
    for (int j = 0; j < Q; j++) {
        const float2 of = *(const float2 *)(delta + j * 8);
#pragma unroll
        for (int b = 0; b < 2; b++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                ds[b][j][e] = p[b][j][e] * (ds[b][j][e] - (e % 2 ? of.y : of.x));
    }
}

/* dS = P (dP - delta), times the softcap's slope at the scores of P. delta's address is computed after the
 * products, which leave no register for it. */
template <class L, int E, int Q>
static __device__ __forceinline__ void backward_ds(BackwardScores<Q> &x, uint32_t keys, uint32_t queries,
                                                   const float *lse, const unsigned char *shared, int stage)
{
    backward_zero(x.ds);
    backward_scores<typename L::Shape, E, Q, L::V>(x.ds, keys, queries + L::DO);
    not_ahead();
    const int thread = thread_number(), part = thread / 32 / BackwardParts<typename L::Shape, E>::GROUPS;
    const float *const delta = (const float *)(shared + L::ROWS) + (stage * 2 + 1) * L::BM;
    backward_less_delta(x.ds, x.s, delta + part * Q + thread % 4 * 2);
    backward_slope(x.ds, x.s, lse);
}

/* Packs x as fragments of A operands with k = queries, and stores them for the other parts. */
template <int Q>
static __device__ __forceinline__ void backward_pack(uint32_t (&a)[2][Q / 2][4], const float (&x)[2][Q][4],
                                                     uint32_t store)
{
#pragma unroll
    for (int b = 0; b < 2; b++)
#pragma unroll
        for (int j = 0; j < Q; j++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const uint32_t both = pack(x[b][j][2 * h], x[b][j][2 * h + 1]);
                a[b][j / 2][j % 2 * 2 + h] = both;
                const uint32_t at = (store ^ (uint32_t)(j << 4)) + (uint32_t)((b * 16 + h * 8) * 128);
                asm volatile("st.shared.b32 [%0], %1;" ::"r"(at), "r"(both) : "memory");
            }
}

/* sum += A B for 32 keys by the warp's columns, over 16 queries. b16: at their first row. */
template <class P>
static __device__ __forceinline__ void backward_step(float sum[2][P::COLUMNS / 8][4], const uint32_t a0[4],
                                                     const uint32_t a1[4], uint32_t b16)
{
#pragma unroll
    for (int x = 0; x < P::COLUMNS / 16; x++) {
        uint32_t r[4];
        load_block_transposed(r, block_at<P::BM>(b16, 0, 0, x * P::STEP));
        mma(sum[0][2 * x], a0, r[0], r[1]);
        mma(sum[0][2 * x + 1], a0, r[2], r[3]);
        mma(sum[1][2 * x], a1, r[0], r[1]);
        mma(sum[1][2 * x + 1], a1, r[2], r[3]);
    }
}

/* For each part, the warp's own first: its queries' columns in a tile of the warp's keys, and its queries in
 * a tile at the warp's columns. */
template <class P> struct BackwardReach {
    uint32_t keys[P::PARTS], rows[P::PARTS];
};

template <class P>
static __device__ __forceinline__ void backward_reach(BackwardReach<P> &r, const BackwardLane &w,
                                                      uint32_t offset)
{
#pragma unroll
    for (int i = 0; i < P::PARTS; i++) {
        int part = w.part;
        if (i > 0)
            part = P::PARTS == 2 ? 1 - part : (part + i) % P::PARTS;
        r.keys[i] = moved<P::BN>(w.down, w.keys, part * P::QUERIES);
        r.rows[i] = moved<P::BM>(w.down + offset, part * P::QUERIES, w.part * P::FIRST);
    }
}

/* sum += A B for the warp's keys and columns over all queries. A's own part is in registers, the others in
 * A's tile. */
template <int A, int B, class P>
static __device__ __forceinline__ void backward_sum(float sum[2][P::COLUMNS / 8][4],
                                                    const uint32_t own[2][P::QUERIES / 16][4],
                                                    const BackwardReach<P> &r)
{
#pragma unroll
    for (int i = 0; i < P::PARTS; i++)
#pragma unroll
        for (int t = 0; t < P::QUERIES / 16; t++) {
            const uint32_t rows = r.rows[i] + (uint32_t)(B + t * 16 * 128);
            if (i == 0) {
                backward_step<P>(sum, own[0][t], own[1][t], rows);
                continue;
            }
            uint32_t a[2][4];
            load_block(a[0], block_at<P::BN>(r.keys[i] + A, 0, 0, t * 16));
            load_block(a[1], block_at<P::BN>(r.keys[i] + A, 0, 16, t * 16));
            backward_step<P>(sum, a[0], a[1], rows);
        }
}

/* Adds 32 queries by 32 columns of dQ; with half, by the first 16. at: row lane/4 of the group of
 * columns. */
template <int D>
static __device__ __forceinline__ void backward_add_rows(const float sum[2][4][4], float *at, int lane,
                                                         int rows, bool half)
{
#pragma unroll
    for (int row = 0; row < 4; row++) {
        const float(&s)[4][4] = sum[row / 2];
        const int h = row % 2 * 2;
        float *to = at + row * 8 * D;
        if (row * 8 >= rows)
            break;
#if __CUDA_ARCH__ >= 900
#pragma unroll
        for (int j = 0; j < 4; j += 2)
            if (j < 2 || !half)
                add_four(to + dq_place<D>(j, lane % 4, 0), s[j][h], s[j][h + 1], s[j + 1][h],
                         s[j + 1][h + 1]);
#else
#pragma unroll
        for (int j = 0; j < 8; j++)
            if (j < 4 || !half)
                add_one(to + dq_place<D>(j / 2, lane % 4, j % 2), s[j / 2][h + j % 2]);
#endif
    }
}

/* The same for a head's queries from `query` on and columns from `column` on. */
template <int D>
static __device__ __forceinline__ void backward_add_dq(const float sum[2][4][4], const BurstBackward &p,
                                                       int head, int query, int column, int lane)
{
    backward_add_rows<D>(sum, p.dq + ((int64_t)head * p.q_tokens.n + query) * D + column, lane,
                         p.q_tokens.n - query, D % 32 && column + 32 > D);
}

/* dQ = dS K: 32 queries by 32 columns a warp. */
template <int BN>
static __device__ __forceinline__ void backward_dq(float sum[2][4][4], uint32_t ds, uint32_t k)
{
#pragma unroll
    for (int n = 0; n < BN; n += 16) {
        uint32_t a[2][4], r[4];
#pragma unroll
        for (int b = 0; b < 2; b++)
            load_block_transposed(a[b], block_at<BN>(ds, 0, n, b * 16));
#pragma unroll
        for (int x = 0; x < 2; x++) {
            load_block_transposed(r, block_at<BN>(k, 0, n, x * 16));
#pragma unroll
            for (int b = 0; b < 2; b++) {
                mma(sum[b][2 * x], a[b], r[0], r[1]);
                mma(sum[b][2 * x + 1], a[b], r[2], r[3]);
            }
        }
    }
}

/* place.head: (key head, split); place.tile: in the order of the lists. */
static __device__ __forceinline__ Place backward_place(const BurstBackward &p)
{
    return place_of(block_number(), p.lists.rows, p.kv_heads * p.splits, p.section);
}

/* The query heads of a split of key head kv: its share of those in this launch. */
static __device__ __forceinline__ void backward_heads(const BurstBackward &p, int number, int kv, int &first,
                                                      int &end)
{
    const int low = max((p.kv_head0 + kv) * p.group - p.q_head0, 0);
    const int heads = min((p.kv_head0 + kv + 1) * p.group - p.q_head0, p.q_heads) - low,
              split = number % p.splits;
    first = low + heads * split / p.splits;
    end = low + heads * (split + 1) / p.splits;
}

/* Adds row `row`, at key `key`, of the part's columns of a gradient of width W. */
template <class P, int W>
static __device__ __forceinline__ void backward_write_row(const float (&sum)[2][P::COLUMNS / 8][4], int row,
                                                          float scale, float *to, int64_t key, int part,
                                                          int lane, bool there)
{
    constexpr int TILES = P::COLUMNS / 8;
    /* the part's columns that exist */
    const int columns = P::WIDE == W ? TILES / 2 * P::STEP : W - part * P::FIRST;
    add_row<TILES, P::STEP>(sum[row / 2], row % 2 * 2, scale, to + key * W + part * P::FIRST, lane, there,
                            columns);
}

/* first: the first of the warp's keys. */
template <class S, int D, int E>
static __device__ __forceinline__ void backward_write(const BackwardSums<S, D, E> &sums,
                                                      const BurstBackward &p, int head, int first, int part,
                                                      int lane)
{
#pragma unroll
    for (int row = 0; row < 4; row++) {
        const int key = first + row * 8 + lane / 4;
        const int64_t at = (int64_t)head * p.k_tokens.n + key;
        const bool there = key < p.k_tokens.n;
        backward_write_row<BackwardParts<S, D>, D>(sums.dk, row, p.scale, p.dk, at, part, lane, there);
        backward_write_row<BackwardParts<S, E>, E>(sums.dv, row, 1, p.dv, at, part, lane, there);
    }
}

/* Prefetches rows of a gradient into the L2 cache. */
template <int W>
static __device__ __forceinline__ void backward_expect_rows(const float *from, int64_t row, int rows)
{
#pragma unroll 1
    for (int i = thread_number() * 32; i < rows * W; i += 256 * 32)
        asm volatile("prefetch.global.L2 [%0];" ::"l"(from + row * W + i));
}

/* Prefetches the rows of dK and dV that this block adds to: additions that miss the cache delay others. */
template <class S, int D, int E>
static __device__ __forceinline__ void backward_expect(const BurstBackward &p)
{
    const Place here = backward_place(p);
    const int key0 = tile_again(p.lists, here.tile) * S::BACKWARD_K,
              rows = min(S::BACKWARD_K, p.k_tokens.n - key0);
    const int64_t row = (int64_t)(here.head / p.splits) * p.k_tokens.n + key0;
    backward_expect_rows<D>(p.dk, row, rows);
    backward_expect_rows<E>(p.dv, row, rows);
}

/* Starts the copies of the block's key tile. */
template <int D, class MASK, int E>
static __device__ __forceinline__ void backward_copy_keys(uint32_t base, const BurstBackward &p, int kv,
                                                          int first)
{
    using L = BurstBackwardLayout<D, MASK, E>;
    copy_tile<L::BN, D, 256, L::WIDE>(base + L::K, p.k.at + kv * p.k.head, p.k.row, first, p.k_tokens.n);
    copy_tile<L::BN, E, 256, L::VALUE_WIDE>(base + L::V, p.v.at + kv * p.v.head, p.v.row, first,
                                            p.k_tokens.n);
    copy_tokens<L::BN, 256, MASK>(base + L::K_INTS, p.k_tokens, first);
}

/* Starts the copies of one query tile into a stage. */
template <int D, class MASK, int E>
static __device__ __forceinline__ void backward_copy(uint32_t base, const BurstBackward &p, int head,
                                                     int entry, int stage)
{
    using L = BurstBackwardLayout<D, MASK, E>;
    const int first = entry_tile(entry) * L::BM, n = p.q_tokens.n, i = (int)threadIdx.x;
    copy_tile<L::BM, D, 256, L::WIDE>(base + L::Q + stage * L::STAGE, p.q.at + head * p.q.head, p.q.row,
                                      first, n);
    copy_tile<L::BM, E, 256, L::VALUE_WIDE>(base + L::DO + stage * L::VALUE_STAGE,
                                            p.d_o.at + head * p.d_o.head, p.d_o.row, first, n);
    if (i < 2 * L::BM) {
        const int row = min(first + i % L::BM, n - 1);
        copy4(base + L::ROWS + (uint32_t)(stage * 2 * L::BM + i) * 4,
              (i < L::BM ? p.lse : p.delta) + (int64_t)head * n + row, first + i % L::BM < n);
    }
    if (entry & 1)
        copy_tokens<L::BM, 256, MASK>(base + L::INTS + stage * L::Q_INTS, p.q_tokens, first);
}

/* The same after a tile with one stage: nothing is copied while it is read. */
template <int D, class MASK, int E>
static __device__ __forceinline__ void backward_copy_late(uint32_t base, const BurstBackward &p, int head,
                                                          int head_end, int entry)
{
    if (BurstBackwardLayout<D, MASK, E>::STAGES == 1) {
        __syncthreads(); /* its tiles, P and dS are no longer read */
        if (head < head_end)
            backward_copy<D, MASK, E>(base, p, head, entry, 0);
        copies_commit();
    }
}

/* Makes ptxas drop registers between tiles; found by trial. */
template <int D>
static __device__ __forceinline__ void backward_forget(BackwardLane &w, int &dq_row, int &dq_column)
{
    (void)w, (void)dq_column;
    forget(dq_row);
#if __CUDA_ARCH__ >= 900
    if (D != 128)
        forget(dq_column);
#else
    if (D == 64)
        forget(w.part);
    else if (D == 128)
        forget(w.lane), forget(w.part);
#endif
}

} // namespace burst

template <int D, class MASK, int E = D>
static __global__ void __launch_bounds__(256, 1) burst_backward_kernel(const BurstBackward p)
{
    using namespace burst;
    using L = BurstBackwardLayout<D, MASK, E>;
    using S = typename L::Shape;
    using P = BackwardParts<S, D>;
    using PV = BackwardParts<S, E>;
    constexpr int BM = L::BM, BN = L::BN, Q = P::QUERIES;
    extern __shared__ __align__(1024) unsigned char shared[];
    const Place place = backward_place(p);
    const BurstTileList of = list_of(p.lists, place.tile);
    const int tile = of.tile, count = of.count, kv = place.head / p.splits;
    int head, head_end;
    backward_heads(p, place.head, kv, head, head_end);
    if (count == 0 || head >= head_end)
        return;
    const int32_t *const list = p.lists.list + (int64_t)tile * p.lists.stride;
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, key0 = tile * BN,
              keys = p.k_tokens.n;
    const uint32_t base = shared_address(shared);
    BackwardLane w = {lane, warp % P::GROUPS * 32, warp / P::GROUPS, base + lanes_down(lane),
                      base + lanes_across(lane)};
    /* dQ: groups of 32 columns by groups of 32 queries. */
    constexpr int DQ_WIDE = (D + 31) / 32, DQ_GROUPS = DQ_WIDE * (BM / 32);
    int dq_column = warp % DQ_WIDE * 32, dq_row = warp / DQ_WIDE * 32;
    const uint32_t warp_keys = moved<BN>(w.down, w.keys, 0);
    const uint32_t store = moved<BN>(base + (uint32_t)((lane / 4 << 4) + lane % 4 * 4), w.keys + lane / 4,
                                     w.part * Q);

    backward_copy_keys<D, MASK, E>(base, p, kv, key0);
    int next = of.first;
    backward_copy<D, MASK, E>(base, p, head, next, 0);
    copies_commit();
    BackwardSums<S, D, E> sums;
    backward_zero(sums.dk), backward_zero(sums.dv);
    for (int i = 0, stage = 0; head < head_end; stage ^= L::STAGES - 1) {
        const int entry = next, now = head;
        if (++i == count)
            i = 0, head++;
        backward_forget<D>(w, dq_row, dq_column);
        if (BurstSelects<MASK>::YES) /* the search in a list needs registers */
            forget(w.keys);
        copies_wait<0>();
        __syncthreads(); /* this stage has arrived; the other, P and dS are no longer read */
        if (head < head_end) {
            next = list[i];
            if (L::STAGES == 2)
                backward_copy<D, MASK, E>(base, p, head, next, stage ^ 1);
        } else
            backward_expect<S, D, E>(p);
        copies_commit();
        const uint32_t offset = (uint32_t)(stage * L::STAGE),
                       value_offset = (uint32_t)(stage * L::VALUE_STAGE),
                       part = moved<BM>(w.across + offset, w.part * Q, 0),
                       value_part = moved<BM>(w.across + value_offset, w.part * Q, 0);
        const float *const rows = (const float *)(shared + L::ROWS) + stage * 2 * BM + w.part * Q +
                                  lane % 4 * 2;
        BackwardReach<P> reach;
        BackwardReach<PV> values;
        backward_reach(reach, w, offset);
        backward_reach(values, w, value_offset);
        BackwardScores<Q> x;
        backward_capped<S, D, Q, L::K>(x.s, warp_keys, part + L::Q, p.scale);
        if (entry & 1)
            backward_mask<L, MASK>(x.s, shared, stage, w, keys - key0, p.lists.chosen);
        backward_exp(x.s, rows, score_scale(p.scale) * 1.44269504f);
        backward_ds<L, E>(x, warp_keys, value_part, rows, shared, stage);
        uint32_t pa[2][Q / 16][4], dsa[2][Q / 16][4];
        backward_pack(pa, x.s, store + L::P);
        backward_pack(dsa, x.ds, store + L::DS);
        __syncthreads(); /* P and dS are complete */
        backward_sum<L::P, L::DO>(sums.dv, pa, values);
        backward_sum<L::DS, L::Q>(sums.dk, dsa, reach);
#pragma unroll 1
        for (int first = 0; first < DQ_GROUPS; first += BURST_80_WARPS) {
            if (DQ_GROUPS != BURST_80_WARPS)
                dq_column = (first + warp) % DQ_WIDE * 32, dq_row = (first + warp) / DQ_WIDE * 32;
            if (DQ_GROUPS % BURST_80_WARPS && first + warp >= DQ_GROUPS)
                break;
            float dq[2][4][4] = {};
            backward_dq<BN>(dq, moved<BN>(w.across, 0, dq_row) + L::DS,
                            moved<BN>(w.down, 0, dq_column) + L::K);
            backward_add_dq<D>(dq, p, now, entry_tile(entry) * BM + dq_row + lane / 4, dq_column, lane);
        }
        backward_copy_late<D, MASK, E>(base, p, head, head_end, next);
    }
    copies_wait<0>();
    const Place here = backward_place(p);
    const int thread = thread_number();
    backward_write(sums, p, here.head / p.splits,
                      tile_again(p.lists, here.tile) * BN + thread / 32 % P::GROUPS * 32,
                      thread / 32 / P::GROUPS, thread % 32);
}

/* Raises the kernel's shared-memory limit; called once per device at start-up. */
template <int D, class MASK, int E = D> static cudaError_t burst_backward_setup(void)
{
    return cudaFuncSetAttribute(burst_backward_kernel<D, MASK, E>,
                                cudaFuncAttributeMaxDynamicSharedMemorySize,
                                BurstBackwardLayout<D, MASK, E>::BYTES);
}

/* Adds the gradients of the pair; launches of this form have only one, and one for each band of a selection's
 * lists. With few key tiles, the heads of a
 * group are split over several blocks, so that each multiprocessor has some. The order of the sums then
 * varies from run to run, as dQ's always does. */
template <int D, class MASK, int E = D>
static cudaError_t burst_backward(const BurstBackward *pair, int queries, int keys, int multiprocessors,
                                  cudaStream_t stream)
{
    BurstBackward p = *pair;
    const int tiles = p.lists.rows * p.kv_heads;
    (void)queries, (void)keys;
    if (tiles == 0 || p.q_heads == 0)
        return cudaSuccess;
    p.splits = 1;
    while (p.splits < p.group && tiles * p.splits < 6 * multiprocessors)
        p.splits++;
    p.section = p.splits * burst_section(p.kv_heads, 2.0 * (D + E) * p.q_tokens.n * p.group / p.splits);
    const BurstTileLists lists = p.lists;
    for (int band = 0; band < lists.sets; band++) {
        p.lists = burst_lists_set(lists, band);
        burst_backward_kernel<D, MASK, E>
            <<<tiles * p.splits, 256, BurstBackwardLayout<D, MASK, E>::BYTES, stream>>>(p);
    }
    return cudaGetLastError();
}
