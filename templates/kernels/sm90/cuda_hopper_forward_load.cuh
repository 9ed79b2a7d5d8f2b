/* cuda_hopper_forward_load.cuh: a launch of forward's sm_90a kernels, and its first warpgroup, which takes
 * tiles of queries and loads for the consumers. */
#include "cuda_hopper.cuh"

/* A chunk of queries of a launch: q's map for the copy engine, its results, and the index of its first tile
 * among those of all chunks. */
typedef struct BurstForwardQueries {
    CUtensorMap q;
    BurstRows out;
    float *o, *lse;
    BurstTokens tokens;
    int first;
} BurstForwardQueries;

/* A launch: its chunks; all other fields are its first pair's. */
typedef struct BurstForwardLaunch {
    CUtensorMap k[BURST_MOST_CHUNKS], v[BURST_MOST_CHUNKS];
    BurstForwardQueries queries[BURST_MOST_CHUNKS];
    BurstTokens keys[BURST_MOST_CHUNKS];
    int chunks; /* of queries */
    BurstForward p;
} BurstForwardLaunch;

/* TURNS: warpgroups take turns to issue products: at head_dim 64, with three of them (benchmarks/log). */
template <int D, class MASK, int E = D> struct BurstForwardLayout {
    using Tiles = BurstTiles<D, MASK, E>;
    static constexpr int BM = Tiles::FORWARD_Q, BN = Tiles::FORWARD_K;
    /* warpgroups skip tiles of which they see nothing */
    static constexpr bool BLOCKS = Tiles::FORWARD_BLOCKS;
    static constexpr int STAGES = BLOCKS && D <= 128 ? 4 : 2;
    static constexpr int CONSUMERS = BM / 64, THREADS = 128 * (1 + CONSUMERS);
    static constexpr bool TURNS = D <= 64;
    static constexpr int FEW = CONSUMERS == 2 ? 40 : 32, MANY = CONSUMERS == 2 ? 232 : 160; /* registers */
    static constexpr int COLUMNS = D, WIDE = (D + 63) / 64 * 64; /* in shared memory */
    static constexpr int VALUES = E, VALUE_WIDE = (E + 63) / 64 * 64; /* the same for V and O */
    static constexpr int Q_BYTES = BM * WIDE * 2, K_BYTES = BN * WIDE * 2, V_BYTES = BN * VALUE_WIDE * 2;
    static constexpr int Q_TOKENS = burst::token_ints<MASK>(BM) * 4,
                         K_TOKENS = burst::token_ints<MASK>(BN) * 4;
    static constexpr int KEYS = STAGES * (K_BYTES + V_BYTES + K_TOKENS + 4 + 4 * 8),
                         QUERIES = Q_BYTES + Q_TOKENS + 16 + 2 * 8;
    static constexpr int Q_STAGES = KEYS + 2 * QUERIES <= BURST_BLOCK_BYTES ? 2 : 1;
    static constexpr int Q = 0, K = Q + Q_STAGES * Q_BYTES, V = K + STAGES * K_BYTES;
    static constexpr int Q_INTS = V + STAGES * V_BYTES, K_INTS = Q_INTS + Q_STAGES * Q_TOKENS;
    static constexpr int TILE = K_INTS + STAGES * K_TOKENS; /* a query tile's ForwardWork */
    static constexpr int ENTRY = TILE + Q_STAGES * 16;
    static constexpr int Q_FULL = ENTRY + STAGES * 4, Q_EMPTY = Q_FULL + Q_STAGES * 8;
    static constexpr int K_FULL = Q_EMPTY + Q_STAGES * 8, K_EMPTY = K_FULL + STAGES * 8;
    static constexpr int V_FULL = K_EMPTY + STAGES * 8, V_EMPTY = V_FULL + STAGES * 8,
                         BYTES = V_EMPTY + STAGES * 8;
    static_assert(BYTES <= BURST_BLOCK_BYTES, "a block has no more shared memory");
};

namespace burst {

/* A tile of queries: its index in its chunk, its head, and the length of its list. tile -1: no more
 * tiles. */
struct __align__(16) ForwardWork { int tile, head, count, chunk; };

/* ---- the producer: one warp, whose first lane requests copies ---- */
template <class L> struct ForwardProducer {
    int lane;
    Stage<L::Q_STAGES> q;
    Stage<L::STAGES> k, v;
};

/* Loads the keys of the list's entry, with their tokens if the tile is partial. */
template <class L, class MASK>
static __device__ __forceinline__ void forward_load_k(const BurstForwardLaunch &a, unsigned char *shared,
                                                      ForwardProducer<L> &w, int entry, int kv)
{
    const uint32_t base = shared_address(shared), full = base + L::K_FULL + w.k.at * 8;
    const int chunk = entry_chunk(entry), first = entry_tile(entry) * L::BN;
    barrier_wait(base + L::K_EMPTY + w.k.at * 8, w.k.parity ^ 1);
    if (!MASK::ALL && entry & 1) {
        copy_tokens_warp<L::BN, MASK>(base + L::K_INTS + w.k.at * L::K_TOKENS, a.keys[chunk], first, w.lane);
        barrier_copies(full);
    }
    __syncwarp();
    if (w.lane == 0) {
        ((volatile int32_t *)(shared + L::ENTRY))[w.k.at] = entry;
        barrier_expect(full, L::K_BYTES);
        tensor_load<L::BN, L::COLUMNS>(base + L::K + w.k.at * L::K_BYTES, &a.k[chunk], first, kv, full);
    }
    w.k.next();
}

template <class L>
static __device__ __forceinline__ void forward_load_v(const BurstForwardLaunch &a, uint32_t base,
                                                      ForwardProducer<L> &w, int entry, int kv)
{
    const uint32_t full = base + L::V_FULL + w.v.at * 8;
    barrier_wait(base + L::V_EMPTY + w.v.at * 8, w.v.parity ^ 1);
    if (w.lane == 0) {
        barrier_expect(full, L::V_BYTES);
        tensor_load<L::BN, L::VALUES>(base + L::V + w.v.at * L::V_BYTES, &a.v[entry_chunk(entry)],
                                       entry_tile(entry) * L::BN, kv, full);
    }
    w.v.next();
}

template <class L, class MASK>
static __device__ __forceinline__ void forward_load_q(const BurstForwardLaunch &a, unsigned char *shared,
                                                      ForwardProducer<L> &w, const ForwardWork &of)
{
    const uint32_t base = shared_address(shared), full = base + L::Q_FULL + w.q.at * 8;
    barrier_wait(base + L::Q_EMPTY + w.q.at * 8, w.q.parity ^ 1);
    if (!MASK::ALL) {
        copy_tokens_warp<L::BM, MASK>(base + L::Q_INTS + w.q.at * L::Q_TOKENS, a.queries[of.chunk].tokens,
                                      of.tile * L::BM, w.lane);
        barrier_copies(full);
    }
    __syncwarp();
    if (w.lane == 0) {
        volatile ForwardWork &to = *(volatile ForwardWork *)(shared + L::TILE + w.q.at * 16);
        to.tile = of.tile, to.head = of.head, to.count = of.count, to.chunk = of.chunk;
        barrier_expect(full, L::Q_BYTES);
        tensor_load<L::BM, L::COLUMNS>(base + L::Q + w.q.at * L::Q_BYTES, &a.queries[of.chunk].q,
                                       of.tile * L::BM, of.head, full);
    }
    w.q.next();
}

/* Prefetches the tile's running state: consumers read it while nothing else is computed. */
template <class L>
static __device__ __forceinline__ void forward_bring_state(const BurstForwardLaunch &a, const ForwardWork &of)
{
    const int n = a.queries[of.chunk].tokens.n, first = of.tile * L::BM, rows = min(L::BM, n - first);
    if (!(a.p.flags & BURST_FIRST))
        bring_near(a.queries[of.chunk].o + ((int64_t)of.head * n + first) * L::VALUES,
                   (uint32_t)(rows * L::VALUES * 4));
}

/* Loads one tile of queries and its list. The next tile is requested with the last keys: earlier, a block
 * would hold a long tile while others are idle. */
template <class L, class MASK>
static __device__ __forceinline__ int forward_produce_tile(const BurstForwardLaunch &a, unsigned char *shared,
                                                           ForwardProducer<L> &w, int number, int rows,
                                                           int late)
{
    const Place place = place_late(number, rows, a.p.q_heads, a.p.section, late);
    const int set = burst_list_of<MASK>(a.p.lists, a.p.q_head0, place.head) * a.p.lists.rows;
    const BurstTileList of = list_of(a.p.lists, set + place.tile);
    const int32_t *const list = a.p.lists.list + (int64_t)(set + of.tile) * a.p.lists.stride;
    const int kv = (a.p.q_head0 + place.head) / a.p.group - a.p.kv_head0;
    const int chunk = chunk_of(a.queries, a.chunks, of.tile);
    int entry = of.first, next = 0;
    const ForwardWork work = {of.tile - a.queries[chunk].first, place.head, of.count, chunk};
    if (w.lane == 0)
        forward_bring_state<L>(a, work);
    if (L::Q_STAGES == 1 && of.count) /* K need not wait for the last tile's Q */
        forward_load_k<L, MASK>(a, shared, w, entry, kv);
    forward_load_q<L, MASK>(a, shared, w, work);
    if (L::Q_STAGES == 2 && of.count)
        forward_load_k<L, MASK>(a, shared, w, entry, kv);
    for (int i = 1; i < of.count; i++) {
        const int after = __ldg(list + i);
        if (i == of.count - 1 && w.lane == 0)
            next = ask_number(a.p.lists, rows * a.p.q_heads);
        forward_load_k<L, MASK>(a, shared, w, after, kv);
        forward_load_v(a, shared_address(shared), w, entry, kv);
        entry = after;
    }
    if (of.count)
        forward_load_v(a, shared_address(shared), w, entry, kv);
    if (of.count < 2 && w.lane == 0)
        next = ask_number(a.p.lists, rows * a.p.q_heads);
    return __shfl_sync(0xffffffffu, next, 0);
}

/* Between the first pair and the last, rows that see none of the keys do not change. Each of several lists
 * has other such rows. */
static __device__ __forceinline__ bool forward_all(const BurstForward &p)
{
    return p.flags & (BURST_FIRST | BURST_LAST) && !(p.flags & BURST_PART);
}

static __device__ __forceinline__ int forward_rows(const BurstForward &p)
{
    return forward_all(p) || p.lists.sets > 1 ? p.lists.rows : list_of(p.lists, 0).live;
}

/* Whether tile `number` of several lists is in the launch; called by a warp. */
template <class MASK>
static __device__ __forceinline__ bool forward_live(const BurstForward &p, int number, int rows, int late)
{
    if (!BurstSelects<MASK>::YES || p.lists.sets == 1 || forward_all(p))
        return true;
    const Place place = place_late(number, rows, p.q_heads, p.section, late);
    const int list = burst_list_of<MASK>(p.lists, p.q_head0, place.head);
    return place.tile < list_of(p.lists, list * p.lists.rows).live;
}

template <class L, class MASK>
static __device__ __forceinline__ void forward_produce(const BurstForwardLaunch &a, unsigned char *shared)
{
    const uint32_t base = shared_address(shared);
    const int rows = forward_rows(a.p);
    const int late = late_heads(a.p.lists, a.p.q_heads, 2); /* benchmarks/log */
    ForwardProducer<L> w = {(int)threadIdx.x, {}, {}, {}};
    for (int number = (int)blockIdx.x; number < rows * a.p.q_heads;)
        if (forward_live<MASK>(a.p, number, rows, late))
            number = forward_produce_tile<L, MASK>(a, shared, w, number, rows, late);
        else
            number = __shfl_sync(0xffffffffu, w.lane ? 0 : ask_number(a.p.lists, rows * a.p.q_heads), 0);
    barrier_wait(base + L::Q_EMPTY + w.q.at * 8, w.q.parity ^ 1);
    if (w.lane == 0) {
        ((volatile ForwardWork *)(shared + L::TILE + w.q.at * 16))->tile = -1;
        barrier_arrive(base + L::Q_FULL + w.q.at * 8);
    }
}

} // namespace burst
