/* cuda_hopper_forward.cuh: attention forward of some chunks of queries with some of keys, sm_90a form
 * (FlashAttention-3).
 *
 * A block owns a multiprocessor and takes tiles of queries, longest list first, until none is left. The
 * first warpgroup loads by the copy engine, and the others compute 64 queries each. Scores and output are in
 * registers, and so are the probabilities as the A operand of P V. QK^T of key tile i + 1 is issued before
 * PV of tile i, so that the softmax overlaps products, of this warpgroup and, if they take turns, of the
 * others. What a consumer needs to know of queries and keys (tile, head, entry of the list, positions) is
 * next to them in shared memory, so that consumers read no global memory. The running state (O, lse) seeds
 * the softmax as in the sm_80 form: a ring step needs no merge. A list covers all chunks of keys of the
 * launch, so that the state is read and written once for all of them. */
#include "cuda_hopper_forward_load.cuh"

namespace burst {

/* ---- a consumer: a thread's part of 64 rows, rows lane/4 and lane/4 + 8 of its warp's 16 ---- */
template <int E, int BN> struct ForwardState {
    float o[E / 2], s[BN / 2];
    uint32_t p[BN / 4];
    float m[2], l[2], shrink[2]; /* m: reference of the exponents; l: this lane's part of the sum */
    /* m of one of the warp's rows changed in this tile, so O and l are relative to the previous m */
    bool moved;
};

template <class L> struct ForwardConsumer {
    int me, lane, row; /* row: the first of the thread's two, of the tile */
    Stage<L::Q_STAGES> q;
    Stage<L::STAGES> k, v;
};

/* Loads the running state of rows first + row and + 8. */
template <int E, int BN>
static __device__ __forceinline__ void forward_seed(ForwardState<E, BN> &w, const BurstForward &p,
                                                    const BurstForwardQueries &of, int head, int row,
                                                    int lane)
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const bool there = !(p.flags & BURST_FIRST) && row + half * 8 < of.tokens.n;
        const int64_t at = (int64_t)head * of.tokens.n + row + half * 8;
        const float lse = there ? of.lse[at] : -CUDART_INF_F;
        w.m[half] = __fdividef(lse, score_scale(p.scale));
        w.l[half] = lse != -CUDART_INF_F && lane % 4 == 0 ? 1.0f : 0.0f;
#pragma unroll
        for (int j = 0; j < E / 8; j++)
            w.o[j * 4 + half * 2] = w.o[j * 4 + half * 2 + 1] = 0;
        if (there) {
            const float *const from = of.o + at * E + lane % 4 * 2;
#pragma unroll
            for (int j = 0; j < E / 8; j++) {
                const float2 x = *(const float2 *)(from + j * 8);
                w.o[j * 4 + half * 2] = x.x, w.o[j * 4 + half * 2 + 1] = x.y;
            }
        }
    }
}

/* Issues O += P V. */
template <int E, int BN>
static __device__ __forceinline__ void forward_values(ForwardState<E, BN> &w, uint32_t v)
{
    const uint64_t b = descriptor(v, BN * 128);
    hold(w.o);
    products_begin();
#pragma unroll
    for (int x = 0; x < BN / 16; x++)
        Wgmma<E>::template registers<1>(w.o, w.p + x * 4, b + inner_rows(x), 1);
    products_end();
}

/* This lane's largest score of a row. */
template <int E, int BN>
static __device__ __forceinline__ float forward_largest(const ForwardState<E, BN> &w, int half)
{
    float top[2] = {-CUDART_INF_F, -CUDART_INF_F};
#pragma unroll
    for (int j = 0; j < BN / 8; j++)
        top[j % 2] = fmaxf(top[j % 2], fmaxf(w.s[j * 4 + half * 2], w.s[j * 4 + half * 2 + 1]));
    return fmaxf(top[0], top[1]);
}

/* The reference of a row's exponents. A row without keys so far keeps m = -inf and gets p = 0. */
static __device__ __forceinline__ float forward_shift(float m, float scale_log2)
{
    return m == -CUDART_INF_F ? 0.0f : __fmul_rn(m, scale_log2);
}

/* Updates the running maximum. Both products are rounded, or an unchanged m would scale l by slightly more
 * or less than 1 in each tile. */
template <int E, int BN>
static __device__ __forceinline__ void forward_follow(ForwardState<E, BN> &w, int half, float most,
                                                      float scale_log2)
{
    const float old = w.m[half];
    w.m[half] = fmaxf(quad_max(most), old);
    w.shrink[half] = exp2_fast(__fmul_rn(old, scale_log2) - forward_shift(w.m[half], scale_log2));
    w.l[half] *= w.shrink[half];
}

/* Converts scores to probabilities. m is updated only if the row's maximum has grown by more than 2^8, as in
 * the first few tiles. The result is exact, since sums and O use the same m, and otherwise no lane needs
 * another's value (shuffles queue after the products that this warp issued). A tile's sum is computed from
 * zero and then added: added one by one to a large sum, small terms would vanish. */
template <int E, int BN>
static __device__ __forceinline__ void forward_softmax(ForwardState<E, BN> &w, float scale_log2)
{
    const float most[2] = {forward_largest(w, 0), forward_largest(w, 1)};
    w.moved = __any_sync(0xffffffffu,
                         ((most[0] - w.m[0]) * scale_log2 > 8.0f) | ((most[1] - w.m[1]) * scale_log2 > 8.0f));
    if (w.moved)
        forward_follow(w, 0, most[0], scale_log2), forward_follow(w, 1, most[1], scale_log2);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const float shift = forward_shift(w.m[half], scale_log2);
        float sum[2] = {0, 0};
#pragma unroll
        for (int j = 0; j < BN / 8; j++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                float &s = w.s[j * 4 + half * 2 + e];
                s = exp2_fast(fmaf(s, scale_log2, -shift));
                sum[e] += s;
            }
        w.l[half] += sum[0] + sum[1];
    }
}

/* Packs P as the A operand of P V, and rescales O if m has changed. */
template <int E, int BN> static __device__ __forceinline__ void forward_pack(ForwardState<E, BN> &w)
{
#pragma unroll
    for (int i = 0; i < BN / 4; i++)
        w.p[i] = pack(w.s[i * 2], w.s[i * 2 + 1]);
    if (!w.moved)
        return;
#pragma unroll
    for (int i = 0; i < E / 2; i++)
        w.o[i] *= w.shrink[i / 2 % 2];
}

/* Writes the state, or with BURST_LAST the result, of rows first + row and + 8. */
template <int E, int BN>
static __device__ __forceinline__ void forward_write(ForwardState<E, BN> &w, const BurstForward &p,
                                                     const BurstForwardQueries &of, int head, int row,
                                                     int lane)
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const float l = quad_sum(w.l[half]), part = l == 0 ? 0.0f : __fdividef(1.0f, l);
        const bool there = row + half * 8 < of.tokens.n;
        const int64_t at = (int64_t)head * of.tokens.n + row + half * 8;
        if (there && lane % 4 == 0)
            of.lse[at] = l == 0 ? -CUDART_INF_F : w.m[half] * score_scale(p.scale) + logf(l);
        if (p.flags & BURST_LAST) {
            __nv_bfloat16 *const out = of.out.at + head * of.out.head + (row + half * 8) * of.out.row +
                                       lane % 4 * 8;
#pragma unroll
            for (int j = 0; j < E / 8; j += 4) {
                uint32_t x[4];
#pragma unroll
                for (int i = 0; i < 4; i++)
                    x[i] = pack(w.o[(j + i) * 4 + half * 2] * part, w.o[(j + i) * 4 + half * 2 + 1] * part);
                quad_transpose(x, lane);
                if (there)
                    *(uint4 *)(out + j * 8) = make_uint4(x[0], x[1], x[2], x[3]);
            }
        } else if (there) {
            float *const o = of.o + at * E + lane % 4 * 2;
#pragma unroll
            for (int j = 0; j < E / 8; j++)
                *(float2 *)(o + j * 8) = make_float2(w.o[j * 4 + half * 2] * part,
                                                     w.o[j * 4 + half * 2 + 1] * part);
        }
    }
}

/* The list of the running tile's head. */
template <class L, class MASK>
static __device__ __forceinline__ int forward_list(const BurstForwardLaunch &a, const unsigned char *shared,
                                                   const ForwardConsumer<L> &c)
{
    if constexpr (BurstSelects<MASK>::YES)
        return burst_list_of<MASK>(a.p.lists, a.p.q_head0,
                                   ((const volatile ForwardWork *)(shared + L::TILE))[c.q.at].head);
    return 0;
}

/* After S: applies the mask if the tile is partial, releases K, and computes the softmax. */
template <class L, class MASK, int E>
static __device__ __forceinline__ void forward_take_scores(ForwardState<E, L::BN> &w,
                                                           const BurstForwardLaunch &a, unsigned char *shared,
                                                           ForwardConsumer<L> &c, int entry)
{
    hold(w.s);
    cap_scores<L::BN / 2>(w.s, a.p.scale);
    if (L::BLOCKS ? entry_masked(entry, c.me) : entry & 1) {
        const int32_t *const q_ints = (const int32_t *)(shared + L::Q_INTS + c.q.at * L::Q_TOKENS);
        const int32_t *const k_ints = (const int32_t *)(shared + L::K_INTS + c.k.at * L::K_TOKENS);
        mask_scores<L::BM, L::BN, MASK, false>(w.s, q_ints, k_ints, c.row, c.lane,
                                               a.keys[entry_chunk(entry)].n - entry_tile(entry) * L::BN,
                                               a.p.lists.chosen, forward_list<L, MASK>(a, shared, c));
        __syncwarp();
    }
    warp_arrive(shared_address(shared) + L::K_EMPTY + c.k.at * 8, c.lane);
    c.k.next();
    forward_softmax(w, score_scale(a.p.scale) * 1.44269504f);
}

/* After P V: releases V. */
template <class L, int E>
static __device__ __forceinline__ void forward_take_values(ForwardState<E, L::BN> &w, uint32_t base,
                                                           ForwardConsumer<L> &c)
{
    products_wait<0>();
    hold(w.o);
    warp_arrive(base + L::V_EMPTY + c.v.at * 8, c.lane);
    c.v.next();
}

/* If warpgroups take turns: waits for this one's turn; passes the turn on. */
template <class L> static __device__ __forceinline__ void forward_await_turn(const ForwardConsumer<L> &c)
{
    if (L::TURNS)
        named_sync(1 + c.me, 256);
}

template <class L> static __device__ __forceinline__ void forward_pass_turn(const ForwardConsumer<L> &c)
{
    if (L::TURNS)
        named_arrive(1 + (c.me == L::CONSUMERS - 1 ? 0 : c.me + 1), 256);
}

/* Scores of a tile; its softmax overlaps P V of the previous tile. */
template <class L, class MASK, int E>
static __device__ __forceinline__ void forward_tile(ForwardState<E, L::BN> &w, const BurstForwardLaunch &a,
                                                    unsigned char *shared, ForwardConsumer<L> &c, uint32_t q,
                                                    int entry)
{
    const uint32_t base = shared_address(shared);
    hold(w.o);
    tile_scores<L::COLUMNS, L::BM, L::BN>(w.s, q, base + L::K + c.k.at * L::K_BYTES);
    barrier_wait(base + L::V_FULL + c.v.at * 8, c.v.parity);
    forward_values(w, base + L::V + c.v.at * L::V_BYTES);
    forward_pass_turn(c);
    products_wait<1>();
    forward_take_scores<L, MASK>(w, a, shared, c, entry);
    forward_take_values(w, base, c);
    hold(w.s); /* P is packed here, not while the last P is still read */
    forward_pack(w);
}

/* The list of one tile; `count` at least 1. */
template <class L, class MASK, int E>
static __device__ __forceinline__ void forward_walk(ForwardState<E, L::BN> &w, const BurstForwardLaunch &a,
                                                    unsigned char *shared, ForwardConsumer<L> &c, int count)
{
    const uint32_t base = shared_address(shared), q = base + L::Q + c.q.at * L::Q_BYTES + c.me * 8192;
    const volatile int32_t *const entries = (const volatile int32_t *)(shared + L::ENTRY);
    barrier_wait(base + L::K_FULL + c.k.at * 8, c.k.parity);
    int entry = entries[c.k.at];
    tile_scores<L::COLUMNS, L::BM, L::BN>(w.s, q, base + L::K + c.k.at * L::K_BYTES);
    products_wait<0>();
    forward_take_scores<L, MASK>(w, a, shared, c, entry);
    forward_pack(w);
    for (int i = 1; i < count; i++) {
        barrier_wait(base + L::K_FULL + c.k.at * 8, c.k.parity);
        entry = entries[c.k.at];
        forward_await_turn(c);
        forward_tile<L, MASK>(w, a, shared, c, q, entry);
    }
}

/* P V of the previous tile, with nothing to overlap; releases its V. seen: by the warpgroup; else there is
 * no P. */
template <class L, int E>
static __device__ __forceinline__ void forward_settle(ForwardState<E, L::BN> &w, uint32_t base,
                                                      ForwardConsumer<L> &c, bool seen)
{
    barrier_wait(base + L::V_FULL + c.v.at * 8, c.v.parity);
    if (seen) {
        forward_values(w, base + L::V + c.v.at * L::V_BYTES);
        products_wait<0>();
        hold(w.o);
    }
    warp_arrive(base + L::V_EMPTY + c.v.at * 8, c.lane);
    c.v.next();
}

/* A tile of which the warpgroup sees nothing, or saw nothing of the previous one: P V of that one, then the
 * scores of this one. */
template <class L, class MASK, int E>
static __device__ __forceinline__ void forward_tile_apart(ForwardState<E, L::BN> &w,
                                                          const BurstForwardLaunch &a, unsigned char *shared,
                                                          ForwardConsumer<L> &c, uint32_t q, int entry)
{
    const uint32_t base = shared_address(shared);
    if (entry_seen(entry, c.me)) {
        tile_scores<L::COLUMNS, L::BM, L::BN>(w.s, q, base + L::K + c.k.at * L::K_BYTES);
        forward_pass_turn(c);
        products_wait<0>();
        forward_take_scores<L, MASK>(w, a, shared, c, entry);
        forward_pack(w);
        return;
    }
    forward_pass_turn(c);
    __syncwarp();
    warp_arrive(base + L::K_EMPTY + c.k.at * 8, c.lane);
    c.k.next();
}

/* The same if the warpgroup sees nothing of some tiles; returns whether it sees some of the last. A separate
 * function, since this branch would slow down the other. */
template <class L, class MASK, int E>
static __device__ __forceinline__ bool forward_walk_blocks(ForwardState<E, L::BN> &w,
                                                           const BurstForwardLaunch &a, unsigned char *shared,
                                                           ForwardConsumer<L> &c, int count)
{
    const uint32_t base = shared_address(shared), q = base + L::Q + c.q.at * L::Q_BYTES + c.me * 8192;
    const volatile int32_t *const entries = (const volatile int32_t *)(shared + L::ENTRY);
    bool before = false;
    for (int i = 0; i < count; i++) {
        barrier_wait(base + L::K_FULL + c.k.at * 8, c.k.parity);
        const int entry = entries[c.k.at];
        const bool seen = entry_seen(entry, c.me);
        forward_await_turn(c);
        if (before && seen) {
            forward_tile<L, MASK>(w, a, shared, c, q, entry);
        } else {
            if (i)
                forward_settle<L>(w, base, c, before);
            forward_tile_apart<L, MASK>(w, a, shared, c, q, entry);
        }
        before = seen;
    }
    return before;
}

/* The last P V. Q, last read by the scores, is released before it. */
template <class L, int E>
static __device__ __forceinline__ void forward_finish(ForwardState<E, L::BN> &w, uint32_t base,
                                                      ForwardConsumer<L> &c, int count, bool seen)
{
    __syncwarp();
    warp_arrive(base + L::Q_EMPTY + c.q.at * 8, c.lane);
    if (count)
        forward_settle<L>(w, base, c, seen);
}

template <int D, class MASK, int E>
static __device__ __forceinline__ void forward_consume(const BurstForwardLaunch &a, unsigned char *shared,
                                                       int me)
{
    using L = BurstForwardLayout<D, MASK, E>;
    const uint32_t base = shared_address(shared);
    const int lane = (int)threadIdx.x % 32;
    ForwardConsumer<L> c = {me, lane, me * 64 + (int)threadIdx.x % 128 / 32 * 16 + lane / 4, {}, {}, {}};
    if (L::TURNS && me == L::CONSUMERS - 1)
        named_arrive(1, 256);
    for (;; c.q.next()) {
        barrier_wait(base + L::Q_FULL + c.q.at * 8, c.q.parity);
        const volatile ForwardWork &work = *(const volatile ForwardWork *)(shared + L::TILE + c.q.at * 16);
        const int tile = work.tile, head = work.head, count = work.count, chunk = work.chunk;
        if (tile < 0)
            return;
        ForwardState<E, L::BN> w;
        forward_seed(w, a.p, a.queries[chunk], head, tile * L::BM + c.row, lane);
        bool seen = true;
        if constexpr (L::BLOCKS)
            seen = forward_walk_blocks<L, MASK>(w, a, shared, c, count);
        else if (count)
            forward_walk<L, MASK>(w, a, shared, c, count);
        forward_finish<L>(w, base, c, count, seen);
        forward_write(w, a.p, a.queries[chunk], head, tile * L::BM + c.row, lane);
    }
}

template <class L> static __device__ __forceinline__ void forward_barriers(uint32_t base)
{
    for (int i = 0; i < L::Q_STAGES; i++) {
        barrier_make(base + L::Q_FULL + i * 8, 1);
        barrier_make(base + L::Q_EMPTY + i * 8, L::CONSUMERS * 4 * WARP);
    }
    for (int i = 0; i < L::STAGES; i++) {
        barrier_make(base + L::K_FULL + i * 8, 1);
        barrier_make(base + L::K_EMPTY + i * 8, L::CONSUMERS * 4 * WARP);
        barrier_make(base + L::V_FULL + i * 8, 1);
        barrier_make(base + L::V_EMPTY + i * 8, L::CONSUMERS * 4 * WARP);
    }
    barriers_made();
}

} // namespace burst

template <int D, class MASK, int E = D>
static __global__ void __launch_bounds__(BurstForwardLayout<D, MASK, E>::THREADS, 1)
    burst_forward_kernel(const __grid_constant__ BurstForwardLaunch a)
{
    using namespace burst;
    using L = BurstForwardLayout<D, MASK, E>;
    extern __shared__ __align__(1024) unsigned char shared[];
    const int warpgroup = group_number<128>();
    if (threadIdx.x == 0)
        forward_barriers<L>(shared_address(shared));
    __syncthreads();
    if (warpgroup == 0) {
        registers_down<L::FEW>();
        if (threadIdx.x < 32)
            forward_produce<L, MASK>(a, shared);
    } else {
        registers_up<L::MANY>();
        forward_consume<D, MASK, E>(a, shared, warpgroup - 1);
    }
}

/* Raises the kernel's shared-memory limit; called once per device at start-up. */
template <int D, class MASK, int E = D> static cudaError_t burst_forward_setup(void)
{
    return cudaFuncSetAttribute(burst_forward_kernel<D, MASK, E>,
                                cudaFuncAttributeMaxDynamicSharedMemorySize,
                                BurstForwardLayout<D, MASK, E>::BYTES);
}

/* Folds the pairs of 1 to BURST_MOST_CHUNKS chunks of queries with as many of keys, pair[i * keys + j] of
 * chunks i and j, into the queries' (o, lse) or, with BURST_LAST, finishes them into out. EMPTY pairs need
 * no launch unless they are the first or the last of their queries. lists are the first pair's. */
template <int D, class MASK, int E = D>
static cudaError_t burst_forward(const BurstForward *pair, int queries, int keys, int multiprocessors,
                                 cudaStream_t stream)
{
    using L = BurstForwardLayout<D, MASK, E>;
    BurstForwardLaunch a;
    memset(&a, 0, sizeof a);
    a.p = *pair, a.chunks = queries;
    const int total = a.p.lists.rows * a.p.q_heads;
    const int kv_heads = (a.p.q_head0 + a.p.q_heads - 1) / a.p.group - a.p.kv_head0 + 1;
    double tokens = 0;
    cudaError_t e = cudaSuccess;
    if (total == 0)
        return e;
    for (int first = 0, i = 0; i < queries; first += burst_tiles(pair[i * keys].q_tokens.n, L::BM), i++) {
        const BurstForward &p = pair[i * keys];
        BurstForwardQueries &of = a.queries[i];
        of.out = p.out, of.o = p.o, of.lse = p.lse, of.tokens = p.q_tokens, of.first = first;
        e = e != cudaSuccess ? e : burst_rows_map(&of.q, p.q, D, p.q_tokens.n, p.q_heads, L::BM);
    }
    for (int j = 0; j < keys; j++) {
        a.keys[j] = pair[j].k_tokens, tokens += pair[j].k_tokens.n;
        e = e != cudaSuccess ? e : burst_rows_map(&a.k[j], pair[j].k, D, a.keys[j].n, kv_heads, L::BN);
        e = e != cudaSuccess ? e : burst_rows_map(&a.v[j], pair[j].v, E, a.keys[j].n, kv_heads, L::BN);
    }
    if (e != cudaSuccess)
        return e;
    a.p.section = a.p.group *
                  burst_section((a.p.q_heads + a.p.group - 1) / a.p.group, 2.0 * (D + E) * tokens);
    const int blocks = total < multiprocessors ? total : multiprocessors;
    burst_forward_kernel<D, MASK, E><<<blocks, L::THREADS, L::BYTES, stream>>>(a);
    return cudaGetLastError();
}
