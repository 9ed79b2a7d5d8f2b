/* cuda_hopper_backward.cuh: attention backward of one chunk of queries with one or more of keys, sm_90a form (FlashAttention-3).
 *
 * A block owns a tile of 128 keys and walks the query tiles of its list, for every query head that reads the key head. Two
 * consumer warpgroups have 64 keys each and keep dK and dV in registers. Scores are transposed, S^T = K Q^T and dP^T = V dO^T,
 * so that P^T and dS^T are the left sides of dV and dK as they lie in registers. For dQ = dS K a warpgroup needs the dS of
 * both: it goes through shared memory, and each makes 64 by 64 of dQ, of all 128 keys. dQ leaves by the copy engine, which adds
 * it to memory. Of the first warpgroup one warp loads rows of heads, one lse and delta, one positions
 * and table values, and one adds dQ.
 */
#include "cuda_hopper.cuh"

/* A chunk of keys of a launch: its tokens, its gradients, and which row of the lists its first tile is. */
typedef struct BurstBackwardKeys {
    BurstTokens tokens;
    float *dk, *dv;
    int row;
} BurstBackwardKeys;

/* A launch: what its first pair is, the chunks of keys of all, and tensors as the copy engine sees them. */
typedef struct BurstBackwardLaunch {
    CUtensorMap q, d_o, dq, k[BURST_MOST_CHUNKS], v[BURST_MOST_CHUNKS];
    BurstBackwardKeys keys[BURST_MOST_CHUNKS];
    int chunks;
    BurstBackward p;
} BurstBackwardLaunch;

template <int D, class MASK> struct BurstBackwardLayout {
    static constexpr int BM = BurstTiles<D, MASK>::BACKWARD_Q, BN = BurstTiles<D, MASK>::BACKWARD_K, STAGES = 2, THREADS = 384;
    static constexpr int COLUMNS = D, WIDE = (D + 63) / 64 * 64; /* in shared memory */
    static_assert(BN == 128 && BM * WIDE == 64 * 128 && D % 32 == 0, "dQ of a query tile is two blocks of 64 by 64");
    static constexpr int FEW = WIDE == 64 ? 40 : 24, MANY = WIDE == 64 ? 232 : 240; /* registers */
    /* lse and delta are read before products are asked for: loads queue behind those. */
    static constexpr bool EARLY = WIDE == 128 && !burst::CAPPED;
    static constexpr bool TOKENS = !MASK::ALL; /* positions are needed */
    static constexpr int K_BYTES = BN * WIDE * 2, Q_BYTES = BM * WIDE * 2, DS_BYTES = BN * BM * 2, DQ_BYTES = 64 * 64 * 4;
    static constexpr int Q_TOKENS = burst::token_ints<MASK>(BM) * 4, ROWS_BYTES = 2 * BM * 4 + Q_TOKENS; /* of a stage */
    static constexpr int K = 0, V = K + K_BYTES, Q = V + K_BYTES, DO = Q + STAGES * Q_BYTES, DS = DO + STAGES * Q_BYTES;
    static constexpr int DQ = DS + STAGES * DS_BYTES; /* of each warpgroup */
    static constexpr int ROWS = DQ + 2 * DQ_BYTES;    /* lse * log2 e and delta in the order of backward_place, then tokens */
    static constexpr int K_INTS = ROWS + STAGES * ROWS_BYTES, ENTRY = K_INTS + burst::token_ints<MASK>(BN) * 4;
    static constexpr int KV_FULL = ENTRY + 16, Q_FULL = KV_FULL + 8, Q_EMPTY = Q_FULL + 8 * STAGES;
    static constexpr int DO_FULL = Q_EMPTY + 8 * STAGES, DO_EMPTY = DO_FULL + 8 * STAGES, BYTES = DO_EMPTY + 8 * STAGES;
};

namespace burst {

/* Named barriers: a warpgroup's dQ is in shared memory, and may be written again; both warpgroups' dS is there. */
enum { DQ_FULL = 1, DQ_EMPTY = 3, DS_FULL = 5 };

/* What a block does, the same to all of its warps. */
struct BackwardWork {
    const int32_t *list;
    int row, chunk, tile, count, first, kv, head, head_end; /* row: of the lists, tile `tile` of the chunk; first: the first entry */
};

static __device__ __forceinline__ BackwardWork backward_work(const BurstBackwardLaunch &a)
{
    const BurstBackward &p = a.p;
    const Place place = place_of((int)blockIdx.x, p.lists.rows, p.kv_heads * p.splits, p.section);
    const BurstTileList of = list_of(p.lists, place.tile);
    const int kv = place.head / p.splits, split = place.head % p.splits;
    /* The query heads of this key head that are here, and of those this split's share. */
    const int low = max((p.kv_head0 + kv) * p.group - p.q_head0, 0);
    const int heads = min((p.kv_head0 + kv + 1) * p.group - p.q_head0, p.q_heads) - low;
    int chunk = 0;
    while (chunk + 1 < a.chunks && of.tile >= a.keys[chunk + 1].row)
        chunk++;
    BackwardWork w = {p.lists.list + (int64_t)of.tile * p.lists.stride, of.tile, chunk, of.tile - a.keys[chunk].row, of.count, of.first, kv,
                      low + heads * split / p.splits, low + heads * (split + 1) / p.splits};
    return w;
}

/* Where lse and delta of query i of a tile lie: the four that a lane needs of two n-tiles side by side. */
static __device__ __forceinline__ int backward_place(int i)
{
    return i / 16 * 16 + i % 8 / 2 * 4 + i % 16 / 8 * 2 + i % 2;
}

/* ---- the loading warp ---- */
template <class L> static __device__ __forceinline__ void backward_load(const BurstBackwardLaunch &a, unsigned char *shared, const BackwardWork &w)
{
    const uint32_t base = shared_address(shared);
    Stage<L::STAGES> s = {};
    barrier_expect(base + L::KV_FULL, 2 * L::K_BYTES);
    tensor_load<L::BN, L::COLUMNS>(base + L::K, &a.k[w.chunk], w.tile * L::BN, w.kv, base + L::KV_FULL);
    tensor_load<L::BN, L::COLUMNS>(base + L::V, &a.v[w.chunk], w.tile * L::BN, w.kv, base + L::KV_FULL);
    for (int head = w.head; head < w.head_end; head++)
        for (int i = 0; i < w.count; i++, s.next()) {
            const int row = (i ? __ldg(w.list + i) : w.first) / 2 * L::BM;
            barrier_wait(base + L::Q_EMPTY + s.at * 8, s.parity ^ 1);
            barrier_expect(base + L::Q_FULL + s.at * 8, L::Q_BYTES);
            tensor_load<L::BM, L::COLUMNS>(base + L::Q + s.at * L::Q_BYTES, &a.q, row, head, base + L::Q_FULL + s.at * 8);
            barrier_wait(base + L::DO_EMPTY + s.at * 8, s.parity ^ 1);
            barrier_expect(base + L::DO_FULL + s.at * 8, L::Q_BYTES);
            tensor_load<L::BM, L::COLUMNS>(base + L::DO + s.at * L::Q_BYTES, &a.d_o, row, head, base + L::DO_FULL + s.at * 8);
        }
}

/* ---- the warp of what belongs to queries ---- */
/* lse * log2 e and delta of a lane's queries; +inf where there is no key or no query, so that p = 0. */
template <int BM>
static __device__ __forceinline__ void backward_rows(const BurstBackward &p, int head, int first, int lane, float (&lse)[BM / 32],
                                                     float (&delta)[BM / 32])
{
#pragma unroll
    for (int i = 0; i < BM / 32; i++) {
        const int row = first + i * 32 + lane;
        const int64_t at = (int64_t)head * p.q_tokens.n + row;
        const float x = row < p.q_tokens.n ? p.lse[at] : -CUDART_INF_F;
        lse[i] = x == -CUDART_INF_F ? CUDART_INF_F : x * 1.44269504f;
        delta[i] = row < p.q_tokens.n ? p.delta[at] : 0.0f;
    }
}

template <class L>
static __device__ __forceinline__ void backward_load_rows(const BurstBackwardLaunch &a, unsigned char *shared, const BackwardWork &w)
{
    const uint32_t base = shared_address(shared);
    const int lane = (int)threadIdx.x % 32;
    Stage<L::STAGES> s = {};
    for (int head = w.head; head < w.head_end; head++)
        for (int i = 0; i < w.count; i++, s.next()) {
            const int entry = i ? __ldg(w.list + i) : w.first;
            float lse[L::BM / 32], delta[L::BM / 32], *const rows = (float *)(shared + L::ROWS + s.at * L::ROWS_BYTES);
            backward_rows<L::BM>(a.p, head, entry / 2 * L::BM, lane, lse, delta);
            barrier_wait(base + L::Q_EMPTY + s.at * 8, s.parity ^ 1);
#pragma unroll
            for (int j = 0; j < L::BM / 32; j++) {
                rows[backward_place(j * 32 + lane)] = lse[j];
                rows[L::BM + backward_place(j * 32 + lane)] = delta[j];
            }
            if (lane == 0)
                ((volatile int32_t *)(shared + L::ENTRY))[s.at] = entry;
            __syncwarp();
            if (lane == 0)
                barrier_arrive(base + L::Q_FULL + s.at * 8);
        }
}

/* ---- the warp of positions and table values ---- */
template <class L, class MASK>
static __device__ __forceinline__ void backward_load_tokens(const BurstBackwardLaunch &a, uint32_t base, const BackwardWork &w)
{
    const int lane = (int)threadIdx.x % 32;
    Stage<L::STAGES> s = {};
    copy_tokens_warp<L::BN, MASK>(base + L::K_INTS, a.keys[w.chunk].tokens, w.tile * L::BN, lane);
    barrier_copies(base + L::KV_FULL);
    __syncwarp();
    if (lane == 0)
        barrier_arrive(base + L::KV_FULL);
    for (int left = (w.head_end - w.head) * w.count, i = 0; left > 0; left--, s.next()) {
        const int entry = i ? __ldg(w.list + i) : w.first;
        if (++i == w.count)
            i = 0;
        barrier_wait(base + L::Q_EMPTY + s.at * 8, s.parity ^ 1);
        if (entry & 1) {
            copy_tokens_warp<L::BM, MASK>(base + L::ROWS + s.at * L::ROWS_BYTES + 2 * L::BM * 4, a.p.q_tokens, entry / 2 * L::BM, lane);
            barrier_copies(base + L::Q_FULL + s.at * 8);
        }
        __syncwarp();
        if (lane == 0)
            barrier_arrive(base + L::Q_FULL + s.at * 8);
    }
}

/* ---- the warp that adds dQ ---- */
/* With turns: waits until all rows that come before this one have added to the query tile; lets the next one add. First lane. */
static __device__ __forceinline__ void backward_await_turn(const BurstTileLists &lists, const BackwardWork &w, int head, int tile)
{
    const int32_t turn = __ldg(lists.turn + (int64_t)w.row * lists.stride + tile), *const added = lists.added + (int64_t)head * lists.stride + tile;
    int32_t now;
    do
        asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(now) : "l"(added) : "memory");
    while (now != turn);
    asm volatile("fence.proxy.async.global;" ::: "memory");
}

static __device__ __forceinline__ void backward_end_turn(const BurstTileLists &lists, int head, int tile)
{
    adds_made();
    asm volatile("fence.proxy.async.global;" ::: "memory");
    asm volatile("red.release.gpu.global.add.s32 [%0], 1;" ::"l"(lists.added + (int64_t)head * lists.stride + tile) : "memory");
}

/* Up to head_dim 64 the warpgroups' blocks are rows 0 and 64, else columns 0 and 64 (panels of 32); columns that a head does not
 * have are left out. */
template <class L>
static __device__ __forceinline__ void backward_add_dq(const BurstBackwardLaunch &a, uint32_t base, const BackwardWork &w)
{
    const bool first = threadIdx.x % 32 == 0;
    int left = w.count * (w.head_end - w.head);
    named_arrive(DQ_EMPTY, 160), named_arrive(DQ_EMPTY + 1, 160);
    for (int head = w.head; head < w.head_end; head++)
        for (int i = 0; i < w.count; i++) {
            const int tile = (i ? __ldg(w.list + i) : w.first) / 2, row = tile * L::BM;
            left--;
            if (PLAN_DETERMINISTIC && first)
                backward_await_turn(a.p.lists, w, head, tile);
            __syncwarp();
#pragma unroll
            for (int half = 0; half < 2; half++) {
                named_sync(DQ_FULL + half, 160);
                if (first)
                    tensor_add(&a.dq, base + L::DQ + half * L::DQ_BYTES, row + (L::WIDE == 64 ? half * 64 : 0), L::WIDE == 64 ? 0 : half * 2,
                               head);
            }
#pragma unroll
            for (int half = 0; half < 2; half++) {
                if (first) {
                    if (half)
                        adds_read<0>();
                    else
                        adds_read<1>();
                }
                __syncwarp();
                if (left)
                    named_arrive(DQ_EMPTY + half, 160);
            }
            if (PLAN_DETERMINISTIC && first)
                backward_end_turn(a.p.lists, head, tile);
        }
    if (first)
        adds_made();
}

/* ---- a consumer: a thread's part of 64 keys, keys lane/4 and lane/4 + 8 of its warp's 16 ---- */
template <int D, int BM> struct BackwardState {
    float dk[D / 2], dv[D / 2], s[BM / 2], dp[BM / 2];
    float lse[BM / 4], delta[BM / 4]; /* of the lane's queries */
    uint32_t p[BM / 4], ds[BM / 4];
};

/* lse * log2 e or delta of the lane's queries; rows: the first four of them. */
template <int BM> static __device__ __forceinline__ void backward_read(float (&x)[BM / 4], const float *rows)
{
#pragma unroll
    for (int j = 0; j < BM / 16; j++) {
        const float4 of = *(const float4 *)(rows + j * 16);
        x[j * 4] = of.x, x[j * 4 + 1] = of.y, x[j * 4 + 2] = of.z, x[j * 4 + 3] = of.w;
    }
}

struct BackwardConsumer { int me, thread, lane, key; /* key: the first of the thread's two, of the tile */ };

/* Asks for 64 keys by BM queries: c = A B^T over head_dim. */
template <int D, int BM> static __device__ __forceinline__ void backward_scores(float (&c)[BM / 2], uint32_t keys, uint32_t queries)
{
    const uint64_t a = descriptor(keys, 16), b = descriptor(queries, 16);
    products_begin();
#pragma unroll
    for (int x = 0; x < D / 16; x++)
        Wgmma<BM>::template shared<0, 0>(c, a + inner_columns<128>(x), b + inner_columns<BM>(x), x > 0);
    products_end();
}

/* Asks for sum += X rows: 64 keys by head_dim, over the tile's queries. */
template <int D, int BM> static __device__ __forceinline__ void backward_sum(float (&sum)[D / 2], const uint32_t *x, uint32_t rows)
{
    const uint64_t b = descriptor(rows, BM * 128);
    hold(sum);
    products_begin();
#pragma unroll
    for (int t = 0; t < BM / 16; t++)
        Wgmma<D>::template registers<1>(sum, x + t * 4, b + inner_rows(t), 1);
    products_end();
}

/* Asks for a block of dQ = dS K: 64 queries by 64 columns, over the tile's 128 keys. */
static __device__ __forceinline__ void backward_dq(float (&dq)[32], uint32_t ds, uint32_t k)
{
    const uint64_t a = descriptor(ds, 16), b = descriptor(k, 16);
    products_begin();
#pragma unroll
    for (int t = 0; t < 8; t++)
        Wgmma<64>::template shared<1, 1>(dq, a + inner_rows(t), b + inner_rows(t), t > 0);
    products_end();
}

/* -inf where the mask drops a pair or the row is no key. keys: from the tile's first on. */
template <int BM, int BN, class MASK>
static __device__ __forceinline__ void backward_mask(float (&s)[BM / 2], const int32_t *q_ints, const int32_t *k_ints,
                                                     const BackwardConsumer &c, int keys)
{
    int32_t k_value[2][BURST_MAX_TABLES];
    token_values<BN, MASK>(k_ints, c.key, k_value[0]);
    token_values<BN, MASK>(k_ints, c.key + 8, k_value[1]);
    const int32_t k_position[2] = {k_ints[c.key], k_ints[c.key + 8]};
#pragma unroll
    for (int j = 0; j < BM / 8; j++) {
        not_ahead();
        const int query0 = j * 8 + c.lane % 4 * 2;
        const int2 both = *(const int2 *)(q_ints + query0);
#pragma unroll
        for (int e = 0; e < 4; e++) {
            int32_t q_value[BURST_MAX_TABLES];
            token_values<BM, MASK>(q_ints, query0 + e % 2, q_value);
            const bool keep = (c.key + e / 2 * 8 < keys) &
                              (MASK::ALL || MASK::keep(e % 2 ? both.y : both.x, k_position[e / 2], q_value, k_value[e / 2]) != 0);
            s[j * 4 + e] = keep ? s[j * 4 + e] : -CUDART_INF_F;
        }
    }
}

/* Scores to probabilities, and these as the left side of dV. */
template <class L, int D>
static __device__ __forceinline__ void backward_exp(BackwardState<D, L::BM> &w, const float *rows, float scale_log2)
{
    if (!L::EARLY)
        backward_read<L::BM>(w.lse, rows);
#pragma unroll
    for (int i = 0; i < L::BM / 2; i++)
        w.s[i] = exp2_fast(fmaf(w.s[i], scale_log2, -w.lse[i / 4 * 2 + i % 2]));
#pragma unroll
    for (int i = 0; i < L::BM / 4; i++)
        w.p[i] = pack(w.s[i * 2], w.s[i * 2 + 1]);
}

/* The same, and P for dS times the slope of the softcap. lse is read where it is needed: registers are few. */
template <int D, int BM> static __device__ __forceinline__ void backward_exp_capped(BackwardState<D, BM> &w, const float *rows)
{
#pragma unroll
    for (int i = 0; i < BM / 2; i += 2) {
        const float2 lse = *(const float2 *)(rows + i / 8 * 16 + i / 4 % 2 * 2);
        const float p[2] = {exp2_fast(fmaf(w.s[i], 1.44269504f, -lse.x)), exp2_fast(fmaf(w.s[i + 1], 1.44269504f, -lse.y))};
        w.p[i / 2] = pack(p[0], p[1]);
        w.s[i] = times_slope(p[0], p[0], lse.x), w.s[i + 1] = times_slope(p[1], p[1], lse.y);
    }
}

/* dS = P (dP - delta), as the left side of dK. */
template <int D, int BM> static __device__ __forceinline__ void backward_ds(BackwardState<D, BM> &w)
{
#pragma unroll
    for (int i = 0; i < BM / 2; i += 2)
        w.ds[i / 2] = pack(w.s[i] * (w.dp[i] - w.delta[i / 4 * 2]), w.s[i + 1] * (w.dp[i + 1] - w.delta[i / 4 * 2 + 1]));
}

/* dQ to shared memory, rows of 32 columns in the order of dq_place, 16 bytes u of row r at u ^ (r % 8), as its map says. */
static __device__ __forceinline__ void backward_store_dq(const float (&dq)[32], uint32_t to, const BackwardConsumer &c)
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int row = c.thread / 32 * 16 + c.lane / 4 + half * 8;
#pragma unroll
        for (int j = 0; j < 8; j += 2) {
            const uint32_t unit = (uint32_t)((c.lane % 4 * 2 + j / 2 % 2) ^ (row & 7));
            asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(to + (uint32_t)(j / 4 * 64 * 128 + row * 128) + unit * 16),
                         "f"(dq[j * 4 + half * 2]), "f"(dq[j * 4 + half * 2 + 1]), "f"(dq[j * 4 + 4 + half * 2]),
                         "f"(dq[j * 4 + 5 + half * 2])
                         : "memory");
        }
    }
}

/* Scores, probabilities and dS of one query tile, in stage s. */
template <class L, class MASK, int D>
static __device__ __forceinline__ void backward_probabilities(BackwardState<D, L::BM> &w, const BurstBackwardLaunch &a, unsigned char *shared,
                                                              const BackwardConsumer &c, const Stage<L::STAGES> &s, int keys)
{
    const uint32_t base = shared_address(shared);
    const float *const rows = (const float *)(shared + L::ROWS + s.at * L::ROWS_BYTES) + c.lane % 4 * 4;
    const int32_t *const q_ints = (const int32_t *)(shared + L::ROWS + s.at * L::ROWS_BYTES) + 2 * L::BM;
    barrier_wait(base + L::Q_FULL + s.at * 8, s.parity);
    const int entry = ((const volatile int32_t *)(shared + L::ENTRY))[s.at];
    if (L::EARLY)
        backward_read<L::BM>(w.lse, rows), backward_read<L::BM>(w.delta, rows + L::BM);
    backward_scores<D, L::BM>(w.s, base + L::K + c.me * 8192, base + L::Q + s.at * L::Q_BYTES);
    barrier_wait(base + L::DO_FULL + s.at * 8, s.parity);
    backward_scores<D, L::BM>(w.dp, base + L::V + c.me * 8192, base + L::DO + s.at * L::Q_BYTES);
    products_wait<1>();
    hold(w.s);
    cap_scores<L::BM / 2>(w.s, a.p.scale);
    if (entry & 1) {
        backward_mask<L::BM, L::BN, MASK>(w.s, q_ints, (const int32_t *)(shared + L::K_INTS), c, keys);
        if (L::EARLY) /* again, so that the mask has their registers */
            backward_read<L::BM>(w.lse, rows), backward_read<L::BM>(w.delta, rows + L::BM);
    }
    if (CAPPED)
        backward_exp_capped(w, rows);
    else
        backward_exp<L>(w, rows, a.p.scale * 1.44269504f);
    products_wait<0>();
    hold(w.dp);
    if (!L::EARLY)
        backward_read<L::BM>(w.delta, rows + L::BM);
    backward_ds(w);
}

/* One query tile. dS has two stages, so that one barrier a tile serves both warpgroups. */
template <class L, class MASK, int D>
static __device__ __forceinline__ void backward_tile(BackwardState<D, L::BM> &w, const BurstBackwardLaunch &a, unsigned char *shared,
                                                     const BackwardConsumer &c, const Stage<L::STAGES> &s, int keys)
{
    const uint32_t base = shared_address(shared), ds = base + L::DS + s.at * L::DS_BYTES;
    const uint32_t store = ds + (uint32_t)(c.me * 64 + c.thread / 32 * 16) * 128 + lanes_down(c.lane);
    backward_probabilities<L, MASK>(w, a, shared, c, s, keys);
#pragma unroll
    for (int t = 0; t < L::BM / 16; t++)
        store_block(block_at<L::BN>(store, 0, 0, t * 16), w.ds + t * 4);
    backward_sum<D, L::BM>(w.dv, w.p, base + L::DO + s.at * L::Q_BYTES);
    stored_for_engines();
    named_sync(DS_FULL, 256);
    float dq[32];
    backward_dq(dq, ds + (L::WIDE == 64 ? c.me * 16384 : 0), base + L::K + (L::WIDE == 64 ? 0 : c.me * 16384));
    products_wait<1>();
    if (c.lane == 0)
        barrier_arrive(base + L::DO_EMPTY + s.at * 8);
    backward_sum<D, L::BM>(w.dk, w.ds, base + L::Q + s.at * L::Q_BYTES);
    products_wait<1>();
    hold(dq);
    named_sync(DQ_EMPTY + c.me, 160);
    backward_store_dq(dq, base + L::DQ + c.me * L::DQ_BYTES, c);
    stored_for_engines();
    named_arrive(DQ_FULL + c.me, 160);
    products_wait<0>();
    if (c.lane == 0)
        barrier_arrive(base + L::Q_EMPTY + s.at * 8);
}

template <int D, class MASK>
static __device__ __forceinline__ void backward_consume(const BurstBackwardLaunch &a, unsigned char *shared, const BackwardWork &work, int me)
{
    using L = BurstBackwardLayout<D, MASK>;
    const BurstBackwardKeys &of = a.keys[work.chunk];
    const int thread = (int)threadIdx.x % 128, lane = thread % 32, key0 = work.tile * L::BN;
    const BackwardConsumer c = {me, thread, lane, me * 64 + thread / 32 * 16 + lane / 4};
    BackwardState<D, L::BM> w;
    Stage<L::STAGES> s = {};
#pragma unroll
    for (int i = 0; i < D / 2; i++)
        w.dk[i] = w.dv[i] = 0;
    barrier_wait(shared_address(shared) + L::KV_FULL, 0);
    for (int left = work.count * (work.head_end - work.head); left > 0; left--, s.next())
        backward_tile<L, MASK>(w, a, shared, c, s, of.tokens.n - key0);
    hold(w.dk), hold(w.dv);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int key = key0 + c.key + half * 8;
        const int64_t at = ((int64_t)work.kv * of.tokens.n + key) * D;
        const bool there = key < of.tokens.n;
        add_row<D / 8>((const float(*)[4])w.dk, half * 2, a.p.scale, of.dk + at, lane, there);
        add_row<D / 8>((const float(*)[4])w.dv, half * 2, 1, of.dv + at, lane, there);
    }
}

template <class L> static __device__ __forceinline__ void backward_barriers(uint32_t base)
{
    barrier_make(base + L::KV_FULL, 1 + L::TOKENS);
    for (int i = 0; i < L::STAGES; i++) {
        barrier_make(base + L::Q_FULL + i * 8, 2 + L::TOKENS);
        barrier_make(base + L::Q_EMPTY + i * 8, 8);
        barrier_make(base + L::DO_FULL + i * 8, 1);
        barrier_make(base + L::DO_EMPTY + i * 8, 8);
    }
    barriers_made();
}

} // namespace burst

template <int D, class MASK>
static __global__ void __launch_bounds__(384, 1) burst_backward_kernel(const __grid_constant__ BurstBackwardLaunch a)
{
    using namespace burst;
    using L = BurstBackwardLayout<D, MASK>;
    extern __shared__ __align__(1024) unsigned char shared[];
    const BackwardWork w = backward_work(a);
    const int warp = group_number<32>();
    if (w.count == 0 || w.head >= w.head_end)
        return;
    if (threadIdx.x == 0)
        backward_barriers<L>(shared_address(shared));
    __syncthreads();
    if (warp < 4) {
        registers_down<L::FEW>();
        if (warp == 0 && threadIdx.x == 0)
            backward_load<L>(a, shared, w);
        else if (warp == 1)
            backward_add_dq<L>(a, shared_address(shared), w);
        else if (warp == 2)
            backward_load_rows<L>(a, shared, w);
        else if (L::TOKENS && warp == 3)
            backward_load_tokens<L, MASK>(a, shared_address(shared), w);
    } else {
        registers_up<L::MANY>();
        backward_consume<D, MASK>(a, shared, w, warp / 4 - 1);
    }
}

/* Raises the kernel's shared-memory limit: once per device, at start-up. */
template <int D, class MASK> static cudaError_t burst_backward_setup(void)
{
    return cudaFuncSetAttribute(burst_backward_kernel<D, MASK>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                BurstBackwardLayout<D, MASK>::BYTES);
}

/* Adds the gradients of 1 to BURST_MOST_CHUNKS pairs; lists are those of the first. Where there are few key tiles, the heads of a group are split over several blocks, so that
 * the multiprocessors have a few blocks each; the sums' order then varies from run to run, as dQ's always does. Not so with
 * PLAN_DETERMINISTIC: a block has all heads of its group, and dQ's additions take turns. */
template <int D, class MASK> static cudaError_t burst_backward(const BurstBackward *pair, int pairs, int multiprocessors, cudaStream_t stream)
{
    using L = BurstBackwardLayout<D, MASK>;
    BurstBackward p = *pair;
    const int tiles = p.lists.rows * p.kv_heads, n = p.q_tokens.n;
    BurstBackwardLaunch a;
    memset(&a, 0, sizeof a);
    if (tiles == 0 || p.q_heads == 0 || n == 0)
        return cudaSuccess;
    p.splits = 1;
    while (!PLAN_DETERMINISTIC && p.splits < p.group && tiles * p.splits < 6 * multiprocessors)
        p.splits++;
    p.section = burst_section(p.kv_heads * p.splits, 4.0 * D * n * p.group / p.splits);
    a.p = p;
    a.chunks = pairs;
    cudaError_t e = burst_rows_map(&a.q, p.q, D, n, p.q_heads, L::BM);
    e = e != cudaSuccess ? e : burst_rows_map(&a.d_o, p.d_o, D, n, p.q_heads, L::BM);
    for (int row = 0, i = 0; i < pairs; row += burst_tiles(pair[i].k_tokens.n, L::BN), i++) {
        a.keys[i] = {pair[i].k_tokens, pair[i].dk, pair[i].dv, row};
        e = e != cudaSuccess ? e : burst_rows_map(&a.k[i], pair[i].k, D, pair[i].k_tokens.n, p.kv_heads, L::BN);
        e = e != cudaSuccess ? e : burst_rows_map(&a.v[i], pair[i].v, D, pair[i].k_tokens.n, p.kv_heads, L::BN);
    }
    e = e != cudaSuccess ? e : burst_tensor_map(&a.dq, p.dq, 4, D, n, p.q_heads, D * 4, (int64_t)n * D * 4, 64, 2);
    if (e != cudaSuccess)
        return e;
    if (PLAN_DETERMINISTIC)
        e = cudaMemsetAsync(p.lists.added, 0, (size_t)p.q_heads * (size_t)p.lists.stride * sizeof(int32_t), stream);
    if (e != cudaSuccess)
        return e;
    burst_backward_kernel<D, MASK><<<tiles * p.splits, L::THREADS, L::BYTES, stream>>>(a);
    return cudaGetLastError();
}
