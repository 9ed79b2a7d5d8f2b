/* cuda_hopper_backward_load.cuh: a launch of backward's sm_90a kernels, and its first warpgroup, which finds
 * tiles of keys with work, loads for the consumers, and adds dQ. */
#include "cuda_hopper.cuh"

/* Chunks of a launch: their tokens, the copy engine's maps, other arrays that are read and added to, and the
 * index of the first tile among those of all chunks. */
typedef struct BurstBackwardQueries {
    CUtensorMap q, d_o, dq;
    const float *lse, *delta;
    float *added; /* dq */
    BurstTokens tokens;
    int first;
} BurstBackwardQueries;
typedef struct BurstBackwardKeys {
    CUtensorMap k, v;
    BurstTokens tokens;
    float *dk, *dv;
    int first;
} BurstBackwardKeys;

/* A launch: its chunks; all other fields are its first pair's. */
typedef struct BurstBackwardLaunch {
    BurstBackwardQueries queries[BURST_MOST_CHUNKS];
    BurstBackwardKeys keys[BURST_MOST_CHUNKS];
    int chunks; /* of keys */
    BurstBackward p;
} BurstBackwardLaunch;

template <int D, class MASK, int E = D> struct BurstBackwardLayout {
    using Tiles = BurstTiles<D, MASK, E>;
    static constexpr int BM = Tiles::BACKWARD_Q, BN = Tiles::BACKWARD_K, STAGES = 2, THREADS = 384;
    static constexpr int COLUMNS = D, WIDE = (D + 63) / 64 * 64; /* in shared memory */
    static constexpr int VALUES = E, VALUE_WIDE = (E + 63) / 64 * 64; /* the same for V, dV and dO */
    static constexpr bool APART = D > 128; /* dK and dV belong to different warpgroups */
    /* warpgroups skip tiles that see none of their keys */
    static constexpr bool BLOCKS = Tiles::BACKWARD_BLOCKS;
    static constexpr bool SELECTS = BurstSelects<MASK>::YES;
    static_assert(D % 32 == 0 && (APART ? BN == 64 && BM == 64 : BN == 128 && BM * WIDE == 64 * 128),
                  "what a warpgroup makes of dQ");
    static constexpr int FEW = D <= 96 ? 40 : 24, MANY = D <= 96 ? 232 : 240; /* registers */
    /* lse and delta are read before products are issued, since loads queue after those. */
    static constexpr bool EARLY = WIDE == 128 && !burst::CAPPED;
    static constexpr int K_BYTES = BN * WIDE * 2, Q_BYTES = BM * WIDE * 2, V_BYTES = BN * VALUE_WIDE * 2,
                         DO_BYTES = BM * VALUE_WIDE * 2, DS_BYTES = BN * BM * 2,
                         DQ_BYTES = APART ? 0 : 64 * 64 * 4;
    /* per stage */
    static constexpr int Q_TOKENS = burst::token_ints<MASK>(BM) * 4, ROWS_BYTES = 2 * BM * 4 + Q_TOKENS;
    static constexpr int K = 0, V = K + K_BYTES, Q = V + V_BYTES, DO = Q + STAGES * Q_BYTES,
                         DS = DO + STAGES * DO_BYTES;
    static constexpr int DQ = DS + (APART ? 1 : STAGES) * DS_BYTES, P = DQ; /* DQ: per warpgroup */
    /* lse * log2 e and delta in the order of backward_place, then tokens */
    static constexpr int ROWS = DQ + (APART ? BN * BM * 4 : 2 * DQ_BYTES);
    static constexpr int K_INTS = ROWS + STAGES * ROWS_BYTES,
                         ENTRY = K_INTS + burst::token_ints<MASK>(BN) * 4;
    static constexpr int ORDER = ENTRY + 8, WORK = ENTRY + 16; /* BackwardOrder; a stage's BackwardWork */
    static constexpr int KV_FULL = WORK + STAGES * 32, KV_EMPTY = KV_FULL + 8;
    static constexpr int Q_FULL = KV_EMPTY + 8, Q_EMPTY = Q_FULL + 8 * STAGES;
    static constexpr int DO_FULL = Q_EMPTY + 8 * STAGES, DO_EMPTY = DO_FULL + 8 * STAGES;
    static constexpr int WORK_FULL = DO_EMPTY + 8 * STAGES, WORK_EMPTY = WORK_FULL + 8 * STAGES,
                         BYTES = WORK_EMPTY + 8 * STAGES;
    static_assert(BYTES <= BURST_BLOCK_BYTES, "a block has no more shared memory");
};

namespace burst {

/* Named barriers: a warpgroup's dQ is in shared memory; it may be overwritten; both warpgroups' dS is
 * complete. */
enum { DQ_FULL = 1, DQ_EMPTY = 3, DS_FULL = 5, P_FULL = 6 };

/* The order of works, which blocks take head by head, where each key head has `splits` for each of its
 * bands: works that share the query heads of a key tile. section, late: see Place; heads: of all these. */
struct BackwardOrder {
    uint16_t splits, section, late, heads;
};

/* With few query heads per work, the rows that all blocks access at a time fit the L2 cache, and a long list
 * occupies no block for long. But each work adds a whole tile of dK and dV, so it should have BACKWARD_LEAST
 * query tiles on average (benchmarks/log). */
enum { BACKWARD_LEAST = 32 };
static __device__ __forceinline__ BackwardOrder backward_order(const BurstBackward &p)
{
    const int tiles = max(p.lists.taken[1] / max(p.lists.taken[2], 1), 1);
    const int heads = p.lists.heads == 1 ? 1 : (BACKWARD_LEAST + tiles - 1) / tiles;
    const int splits = PLAN_DETERMINISTIC ? 1 : min(p.group, max(p.splits, (p.group + heads - 1) / heads));
    const int all = (p.kv_heads << p.lists.band_bits) * splits, late = late_heads(p.lists, all, 1);
    return {(uint16_t)splits, (uint16_t)max(p.section * splits / p.group, 1), (uint16_t)late, (uint16_t)all};
}

/* A tile of keys and its queries: row `row` of the lists, tile `tile` of the chunk; first: the first entry.
 * count -1: no more works. */
struct __align__(16) BackwardWork { int row, chunk, tile, count, first, kv, head, head_end; };

/* Fills work `number` field by field, since the warp has few registers. Returns whether it has anything to
 * do. */
template <class MASK>
static __device__ __forceinline__ bool backward_work(const BurstBackwardLaunch &a, int number, int rows,
                                                     const volatile BackwardOrder &order,
                                                     volatile BackwardWork &w)
{
    const BurstBackward &p = a.p;
    const int splits = order.splits, bits = BurstSelects<MASK>::YES ? p.lists.band_bits : 0;
    const Place place = place_late(number, rows, order.heads, order.section, order.late);
    w.row = place.head / splits & ((1 << bits) - 1); /* the band */
    const int kv = place.head / splits >> bits, split = place.head % splits;
    /* this key head's query heads in this launch, and this split's share of them */
    const int low = max((p.kv_head0 + kv) * p.group - p.q_head0, 0);
    const int heads = min((p.kv_head0 + kv + 1) * p.group - p.q_head0, p.q_heads) - low;
    w.kv = kv, w.head = low + heads * split / splits, w.head_end = low + heads * (split + 1) / splits;
    int set = 0;
    if constexpr (BurstSelects<MASK>::YES)
        set = ((burst_list_of<MASK>(p.lists, p.q_head0, w.head) << p.lists.band_bits) + w.row) * p.lists.rows;
    const BurstTileList of = list_of(p.lists, set + place.tile);
    w.row = set + of.tile, w.count = of.count, w.first = of.first;
    const int chunk = chunk_of(a.keys, a.chunks, of.tile);
    w.chunk = chunk, w.tile = of.tile - a.keys[chunk].first;
    return w.count > 0 && w.head < w.head_end;
}

/* Hands the next work with anything to do, or the end, to all warps; called by one lane. begun: it is not
 * the block's first. */
template <class L, class MASK>
static __device__ __forceinline__ void backward_hand(const BurstBackwardLaunch &a, unsigned char *shared,
                                                     const Stage<L::STAGES> &works, bool begun)
{
    const uint32_t base = shared_address(shared);
    const volatile BackwardOrder &order = *(const volatile BackwardOrder *)(shared + L::ORDER);
    int rows = a.p.lists.turn || a.p.lists.sets > 1 ? a.p.lists.rows : list_of(a.p.lists, 0).live;
    volatile BackwardWork &w = *(volatile BackwardWork *)(shared + L::WORK + works.at * 32);
    barrier_wait(base + L::WORK_EMPTY + works.at * 8, works.parity ^ 1);
    int number = begun ? ask_number(a.p.lists, rows * order.heads) : block_number();
    while (number < rows * order.heads && !backward_work<MASK>(a, number, rows, order, w)) {
        forget(rows);
        number = ask_number(a.p.lists, rows * order.heads);
    }
    if (number >= rows * order.heads)
        w.count = -1;
    barrier_arrive(base + L::WORK_FULL + works.at * 8);
}

/* The work that was handed over; NULL after the last. This warp is done with it. */
template <class L>
static __device__ __forceinline__ const BackwardWork *backward_take(unsigned char *shared,
                                                                    const Stage<L::STAGES> &works)
{
    const BackwardWork *const w = (const BackwardWork *)(shared + L::WORK + works.at * 32);
    barrier_wait(shared_address(shared) + L::WORK_FULL + works.at * 8, works.parity);
    return w->count > 0 ? w : NULL;
}

template <class L>
static __device__ __forceinline__ void backward_done(uint32_t base, Stage<L::STAGES> &works)
{
    __syncwarp();
    warp_arrive(base + L::WORK_EMPTY + works.at * 8, (int)threadIdx.x % 32);
    works.next();
}

/* Offset of lse and delta of query i of a tile: the four that a lane needs of two adjacent n-tiles are
 * contiguous. */
static __device__ __forceinline__ int backward_place(int i)
{
    return i / 16 * 16 + i % 8 / 2 * 4 + i % 16 / 8 * 2 + i % 2;
}

/* ---- the loading warp: its first lane ---- */
template <class L> struct BackwardLoader {
    Stage<L::STAGES> s, works;
    uint32_t parity; /* of the keys' barriers */
};

template <class L>
static __device__ __forceinline__ void backward_load_keys(const BurstBackwardLaunch &a, uint32_t base,
                                                          const BackwardWork &w, uint32_t parity)
{
    barrier_wait(base + L::KV_EMPTY, parity ^ 1);
    barrier_expect(base + L::KV_FULL, L::K_BYTES + L::V_BYTES);
    tensor_load<L::BN, L::COLUMNS>(base + L::K, &a.keys[w.chunk].k, w.tile * L::BN, w.kv, base + L::KV_FULL);
    tensor_load<L::BN, L::VALUES>(base + L::V, &a.keys[w.chunk].v, w.tile * L::BN, w.kv, base + L::KV_FULL);
}

/* Prefetches the rows of dK and dV that the work adds to: additions that miss the cache delay others. Values
 * derived from the work are recomputed for each, since registers are few. */
template <int BN, int COLUMNS>
static __device__ __forceinline__ void backward_bring_rows(const float *sums, const BurstTokens &tokens,
                                                           const BackwardWork &w)
{
    int first = w.tile * BN;
    forget(first);
    bring_near(sums + ((int64_t)w.kv * tokens.n + first) * COLUMNS,
               (uint32_t)(min(BN, tokens.n - first) * COLUMNS * 4));
}

template <class L>
static __device__ __forceinline__ void backward_bring(const BurstBackwardLaunch &a, const BackwardWork &w)
{
    backward_bring_rows<L::BN, L::COLUMNS>(a.keys[w.chunk].dk, a.keys[w.chunk].tokens, w);
    backward_bring_rows<L::BN, L::VALUES>(a.keys[w.chunk].dv, a.keys[w.chunk].tokens, w);
}

/* One query tile's rows of Q or dO. */
template <int BM, int COLUMNS, int BYTES>
static __device__ __forceinline__ void backward_load_tile(uint32_t to, const CUtensorMap *map, int row,
                                                          int head, uint32_t full, uint32_t empty,
                                                          uint32_t parity)
{
    barrier_wait(empty, parity ^ 1);
    barrier_expect(full, BYTES);
    tensor_load<BM, COLUMNS>(to, map, row, head, full);
}

/* A work's keys are requested after its first queries, which need not wait for the last work's products. */
template <class L>
static __device__ __forceinline__ void backward_load(const BurstBackwardLaunch &a, uint32_t base,
                                                     const BackwardWork &w, Stage<L::STAGES> &s,
                                                     uint32_t parity)
{
    const int32_t *const list = a.p.lists.list + (int64_t)w.row * a.p.lists.stride;
    int head = w.head;
    for (int left = w.count * (w.head_end - head), i = 0; left > 0; left--, s.next()) {
        const int entry = i ? __ldg(list + i) : w.first, row = entry_tile(entry) * L::BM;
        const BurstBackwardQueries &of = a.queries[entry_chunk(entry)];
        const uint32_t at = base + s.at * 8;
        backward_load_tile<L::BM, L::COLUMNS, L::Q_BYTES>(base + L::Q + (uint32_t)(s.at * L::Q_BYTES), &of.q,
                                                          row, head, at + L::Q_FULL, at + L::Q_EMPTY,
                                                          s.parity);
        backward_load_tile<L::BM, L::VALUES, L::DO_BYTES>(base + L::DO + (uint32_t)(s.at * L::DO_BYTES),
                                                          &of.d_o, row, head, at + L::DO_FULL,
                                                          at + L::DO_EMPTY, s.parity);
        if (i == 0 && head == w.head)
            backward_load_keys<L>(a, base, w, parity);
        if (++i == w.count)
            i = 0, head++;
    }
}

/* ---- the warp of the queries' lse and delta ---- */
/* lse * log2 e and delta of a lane's queries; +inf if there is no key or no query, so that p = 0. */
template <int BM>
static __device__ __forceinline__ void backward_rows(const BurstBackwardQueries &of, int head, int first,
                                                     int lane, float (&lse)[BM / 32], float (&delta)[BM / 32])
{
#pragma unroll
    for (int i = 0; i < BM / 32; i++) {
        const int row = first + i * 32 + lane;
        const int64_t at = (int64_t)head * of.tokens.n + row;
        const float x = row < of.tokens.n ? of.lse[at] : -CUDART_INF_F;
        lse[i] = x == -CUDART_INF_F ? CUDART_INF_F : x * 1.44269504f;
        delta[i] = row < of.tokens.n ? of.delta[at] : 0.0f;
    }
}

template <class L>
static __device__ __forceinline__ void backward_load_rows(const BurstBackwardLaunch &a, unsigned char *shared,
                                                          const BackwardWork &w, Stage<L::STAGES> &s)
{
    const uint32_t base = shared_address(shared);
    const int lane = (int)threadIdx.x % 32;
    const int32_t *const list = a.p.lists.list + (int64_t)w.row * a.p.lists.stride;
    for (int head = w.head; head < w.head_end; head++)
        for (int i = 0; i < w.count; i++, s.next()) {
            const int entry = i ? __ldg(list + i) : w.first;
            float lse[L::BM / 32],
                delta[L::BM / 32], *const rows = (float *)(shared + L::ROWS + s.at * L::ROWS_BYTES);
            backward_rows<L::BM>(a.queries[entry_chunk(entry)], head, entry_tile(entry) * L::BM, lane, lse,
                                 delta);
            barrier_wait(base + L::Q_EMPTY + s.at * 8, s.parity ^ 1);
#pragma unroll
            for (int j = 0; j < L::BM / 32; j++) {
                rows[backward_place(j * 32 + lane)] = lse[j];
                rows[L::BM + backward_place(j * 32 + lane)] = delta[j];
            }
            if (lane == 0)
                ((volatile int32_t *)(shared + L::ENTRY))[s.at] = entry;
            __syncwarp();
            warp_arrive(base + L::Q_FULL + s.at * 8, lane);
        }
}

/* ---- the warp of works, positions and table values ---- */
template <class L, class MASK>
static __device__ __forceinline__ void backward_load_tokens(const BurstBackwardLaunch &a, uint32_t base,
                                                            const BackwardWork &w, Stage<L::STAGES> &s,
                                                            uint32_t parity)
{
    const int lane = thread_number() % 32;
    const int32_t *const list = a.p.lists.list + (int64_t)w.row * a.p.lists.stride;
    barrier_wait(base + L::KV_EMPTY, parity ^ 1);
    if (!MASK::ALL) {
        copy_tokens_warp<L::BN, MASK>(base + L::K_INTS, a.keys[w.chunk].tokens, w.tile * L::BN, lane);
        barrier_copies(base + L::KV_FULL);
    }
    __syncwarp();
    warp_arrive(base + L::KV_FULL, lane);
    for (int left = (w.head_end - w.head) * w.count, i = 0; left > 0; left--, s.next()) {
        const int entry = i ? __ldg(list + i) : w.first;
        if (++i == w.count)
            i = 0;
        barrier_wait(base + L::Q_EMPTY + s.at * 8, s.parity ^ 1);
        if (!MASK::ALL && entry & 1) {
            copy_tokens_warp<L::BM, MASK>(base + L::ROWS + s.at * L::ROWS_BYTES + 2 * L::BM * 4,
                                          a.queries[entry_chunk(entry)].tokens, entry_tile(entry) * L::BM,
                                          lane);
            barrier_copies(base + L::Q_FULL + s.at * 8);
        }
        __syncwarp();
        warp_arrive(base + L::Q_FULL + s.at * 8, lane);
    }
}

/* ---- the warp that adds dQ ---- */
static __device__ __forceinline__ int32_t *backward_added(const BurstTileLists &lists, int head, int tile)
{
    return lists.added + (int64_t)head * lists.stride + tile;
}

/* Orders additions by the copy engine and ordinary accesses of the counters. */
static __device__ __forceinline__ void backward_order_adds()
{
    asm volatile("fence.proxy.async.global;" ::: "memory");
}

/* With turns, in the first lane: the next query tile's turn, and the number of rows that had added to it
 * when last read. */
struct BackwardTurn { int32_t turn, seen; };

static __device__ __forceinline__ BackwardTurn backward_look(const BurstTileLists &lists,
                                                             const BackwardWork &w, int head, int tile)
{
    BackwardTurn t = {__ldg(lists.turn + (int64_t)w.row * lists.stride + tile), 0};
    asm volatile("ld.relaxed.gpu.global.s32 %0, [%1];"
                 : "=r"(t.seen)
                 : "l"(backward_added(lists, head, tile))
                 : "memory");
    return t;
}

/* Waits until all earlier rows have added to the query tile. */
static __device__ __forceinline__ void backward_await_turn(const BackwardTurn &t, const int32_t *added)
{
    int32_t now = t.seen;
    while (now != t.turn)
        asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(now) : "l"(added) : "memory");
    backward_order_adds();
}

/* Lets the next row add to a query tile once this one's additions are made. The fence also orders earlier
 * reads. */
static __device__ __forceinline__ void backward_end_turn(int32_t *added)
{
    adds_made<0>();
    backward_order_adds();
    asm volatile("fence.acq_rel.gpu;\n red.relaxed.gpu.global.add.s32 [%0], 1;" ::"l"(added) : "memory");
}

/* Adds a query tile's dQ as the warpgroups hand it over. Up to head_dim 64 their blocks are rows 0 and 64,
 * else columns 0 and 64 (panels of 32); columns beyond the head are skipped. */
template <class L>
static __device__ __forceinline__ void backward_add_tile(const BurstBackwardQueries &of, uint32_t base,
                                                         int row, int head, bool first)
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        named_sync(DQ_FULL + half, 160);
        if (first)
            tensor_add(&of.dq, base + L::DQ + half * L::DQ_BYTES, row + (L::WIDE == 64 ? half * 64 : 0),
                       L::WIDE == 64 ? 0 : half * 2, head);
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
        named_arrive(DQ_EMPTY + half, 160);
    }
}

template <class L>
static __device__ __forceinline__ void backward_add_dq(const BurstBackwardLaunch &a, uint32_t base,
                                                       const BackwardWork &w)
{
    const bool first = threadIdx.x % 32 == 0;
    const BurstTileLists &lists = a.p.lists;
    const int32_t *const list = lists.list + (int64_t)w.row * lists.stride;
    BackwardTurn turn = {};
    /* over all chunks */
    int entry = w.first, head = w.head, tile = a.queries[entry_chunk(entry)].first + entry_tile(entry);
    if (PLAN_DETERMINISTIC && first)
        turn = backward_look(lists, w, head, tile), turn.seen = -1; /* read again, in order */
    for (int left = w.count * (w.head_end - w.head), i = 0; left > 0; left--) {
        int32_t *const added = PLAN_DETERMINISTIC ? backward_added(lists, head, tile) : NULL;
        if (PLAN_DETERMINISTIC && first)
            backward_await_turn(turn, added);
        __syncwarp();
        backward_add_tile<L>(a.queries[entry_chunk(entry)], base, entry_tile(entry) * L::BM, head, first);
        if (++i == w.count)
            i = 0, head++;
        entry = i ? __ldg(list + i) : w.first, tile = a.queries[entry_chunk(entry)].first + entry_tile(entry);
        if (PLAN_DETERMINISTIC && first) {
            /* during the additions: after them it would take longer than a tile */
            if (left > 1)
                turn = backward_look(lists, w, head, tile);
            backward_end_turn(added);
        }
    }
}

/* The next work is requested with the last query tile: earlier, a block would hold a long one while others
 * are idle. */
template <class L, class MASK>
static __device__ __forceinline__ void backward_find(const BurstBackwardLaunch &a, unsigned char *shared)
{
    Stage<L::STAGES> s = {};
    for (uint32_t i = 0;; i++) {
        const Stage<L::STAGES> works = {(int)(i % L::STAGES), i / L::STAGES % 2};
        if (thread_number() % 32 == 0)
            backward_hand<L, MASK>(a, shared, works, i > 0);
        const BackwardWork *const w = backward_take<L>(shared, works);
        if (!w)
            return;
        backward_load_tokens<L, MASK>(a, shared_address(shared), *w, s, (uint32_t)works.at);
        if (thread_number() % 32 == 0)
            backward_bring<L>(a, *w);
    }
}

/* Calls step for every work, in a warp that does not compute. */
template <class L, class STEP>
static __device__ __forceinline__ void backward_follow(unsigned char *shared, const STEP &step)
{
    Stage<L::STAGES> works = {}, s = {};
    for (const BackwardWork *w; (w = backward_take<L>(shared, works));
         backward_done<L>(shared_address(shared), works))
        step(*w, s, (uint32_t)works.at);
}

template <class L, class MASK>
static __device__ __forceinline__ void backward_produce(const BurstBackwardLaunch &a, unsigned char *shared,
                                                        int warp)
{
    const uint32_t base = shared_address(shared);
    const bool first = threadIdx.x % 32 == 0;
    if (warp == 0) {
        backward_follow<L>(shared, [&](const BackwardWork &w, Stage<L::STAGES> &s, uint32_t parity) {
            if (first)
                backward_load<L>(a, base, w, s, parity);
        });
    } else if (!L::APART && warp == 1) {
        named_arrive(DQ_EMPTY, 160), named_arrive(DQ_EMPTY + 1, 160);
        backward_follow<L>(shared, [&](const BackwardWork &w, Stage<L::STAGES> &, uint32_t) {
            backward_add_dq<L>(a, base, w);
        });
        if (first)
            adds_made<0>();
    } else if (warp == 2) {
        backward_follow<L>(shared, [&](const BackwardWork &w, Stage<L::STAGES> &s, uint32_t) {
            backward_load_rows<L>(a, shared, w, s);
        });
    } else if (warp == 3) {
        backward_find<L, MASK>(a, shared);
    }
}

} // namespace burst
