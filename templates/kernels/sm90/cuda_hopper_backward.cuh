/* cuda_hopper_backward.cuh: attention backward of some chunks of queries with some of keys, sm_90a form
 * (FlashAttention-3).
 *
 * A block owns a multiprocessor and takes works, longest list first, until none is left: a tile of 128 keys
 * and the query tiles of its list, for every query head that reads the key head. The next work's queries and
 * keys are loaded while dK and dV of the last are added. Two consumer warpgroups have 64 keys each and keep
 * dK and dV in registers. Scores are transposed, S^T = K Q^T and dP^T = V dO^T, so that P^T and dS^T are the
 * A operands of dV and dK in that register layout. For dQ = dS K a warpgroup needs the dS of both: it goes
 * through shared memory, and each computes 64 by 64 of dQ over all 128 keys. The copy engine adds dQ to
 * memory. In the first warpgroup one warp loads rows of heads, one lse and delta, one finds works and loads
 * positions and table values, and one adds dQ. Head_dim over 128: cuda_hopper_backward_wide.cuh. */
#include "cuda_hopper_backward_load.cuh"

namespace burst {

/* ---- a consumer: a thread's part of 64 keys, keys lane/4 and lane/4 + 8 of its warp's 16 ---- */
template <int D, int E, int BM> struct BackwardState {
    float dk[D / 2], dv[E / 2], s[BM / 2], dp[BM / 2];
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

static __device__ __forceinline__ BackwardConsumer backward_consumer()
{
    const int number = (thread_number() - 128) & 255, lane = number & 31;
    return {number >> 7, number & 127, lane, (number >> 5) * 16 + (lane >> 2)};
}

/* Issues sum += X rows: 64 keys by head_dim, over the tile's queries. */
template <int D, int BM>
static __device__ __forceinline__ void backward_sum(float (&sum)[D / 2], const uint32_t *x, uint32_t rows)
{
    const uint64_t b = descriptor(rows, BM * 128);
    hold(sum);
    products_begin();
#pragma unroll
    for (int t = 0; t < BM / 16; t++)
        Wgmma<D>::template registers<1>(sum, x + t * 4, b + inner_rows(t), 1);
    products_end();
}

/* Issues a block of dQ = dS K: 64 queries by 64 columns, over so many keys. */
template <int KEYS>
static __device__ __forceinline__ void backward_dq_over(float (&dq)[32], uint32_t ds, uint32_t k)
{
    const uint64_t a = descriptor(ds, 16), b = descriptor(k, 16);
    products_begin();
#pragma unroll
    for (int t = 0; t < KEYS / 16; t++)
        Wgmma<64>::template shared<1, 1>(dq, a + inner_rows(t), b + inner_rows(t), t > 0);
    products_end();
}

/* The same over the tile's keys that are seen: all, or one warpgroup's 64. */
template <class L>
static __device__ __forceinline__ void backward_dq(float (&dq)[32], uint32_t base, const BackwardConsumer &c,
                                                   int stage, int entry)
{
    const uint32_t ds = base + L::DS + stage * L::DS_BYTES + (L::WIDE == 64 ? c.me * 16384 : 0);
    const uint32_t k = base + L::K + (L::WIDE == 64 ? 0 : c.me * 16384);
    if (!L::BLOCKS || (entry_seen(entry, 0) && entry_seen(entry, 1)))
        backward_dq_over<L::BN>(dq, ds, k);
    else
        backward_dq_over<64>(dq, ds + entry_seen(entry, 1) * 8192, k + entry_seen(entry, 1) * 8192);
}

/* Converts scores to probabilities, and packs these as the A operand of dV. */
template <class L, class STATE>
static __device__ __forceinline__ void backward_exp(STATE &w, const float *rows, float scale_log2)
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

/* The same, with P for dS multiplied by the slope of the softcap. lse is read just before its use, since
 * registers are few. */
template <int BM, class STATE>
static __device__ __forceinline__ void backward_exp_capped(STATE &w, const float *rows)
{
#pragma unroll
    for (int i = 0; i < BM / 2; i += 2) {
        const float2 lse = *(const float2 *)(rows + i / 8 * 16 + i / 4 % 2 * 2);
        const float p[2] = {exp2_fast(fmaf(w.s[i], 1.44269504f, -lse.x)),
                            exp2_fast(fmaf(w.s[i + 1], 1.44269504f, -lse.y))};
        w.p[i / 2] = pack(p[0], p[1]);
        w.s[i] = times_slope(p[0], p[0], lse.x), w.s[i + 1] = times_slope(p[1], p[1], lse.y);
    }
}

/* dS = P (dP - delta), packed as the A operand of dK. */
template <int D, int E, int BM>
static __device__ __forceinline__ void backward_ds(BackwardState<D, E, BM> &w)
{
#pragma unroll
    for (int i = 0; i < BM / 2; i += 2)
        w.ds[i / 2] = pack(w.s[i] * (w.dp[i] - w.delta[i / 4 * 2]),
                           w.s[i + 1] * (w.dp[i + 1] - w.delta[i / 4 * 2 + 1]));
}

/* Stores dQ to shared memory, in rows of 32 columns in the order of dq_place, 16 bytes u of row r at u ^ (r
 * % 8), as its map says. */
static __device__ __forceinline__ void backward_store_dq(const float (&dq)[32], uint32_t to,
                                                         const BackwardConsumer &c)
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int row = c.thread / 32 * 16 + c.lane / 4 + half * 8;
#pragma unroll
        for (int j = 0; j < 8; j += 2) {
            const uint32_t unit = (uint32_t)((c.lane % 4 * 2 + j / 2 % 2) ^ (row & 7));
            asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(
                             to + (uint32_t)(j / 4 * 64 * 128 + row * 128) + unit * 16),
                         "f"(dq[j * 4 + half * 2]), "f"(dq[j * 4 + half * 2 + 1]),
                         "f"(dq[j * 4 + 4 + half * 2]), "f"(dq[j * 4 + 5 + half * 2])
                         : "memory");
        }
    }
}

/* Scores, probabilities and dS of one query tile, in stage s. */
template <class L, class MASK, int D, int E>
static __device__ __forceinline__ void backward_probabilities(
    BackwardState<D, E, L::BM> &w, const BurstBackwardLaunch &a, unsigned char *shared,
    const BackwardConsumer &c, const Stage<L::STAGES> &s, int keys, int entry, int list)
{
    const uint32_t base = shared_address(shared);
    const float *const rows = (const float *)(shared + L::ROWS + s.at * L::ROWS_BYTES) + c.lane % 4 * 4;
    const int32_t *const q_ints = (const int32_t *)(shared + L::ROWS + s.at * L::ROWS_BYTES) + 2 * L::BM;
    if (L::EARLY)
        backward_read<L::BM>(w.lse, rows), backward_read<L::BM>(w.delta, rows + L::BM);
    tile_scores<D, L::BN, L::BM>(w.s, base + L::K + c.me * 8192, base + L::Q + s.at * L::Q_BYTES);
    barrier_wait(base + L::DO_FULL + s.at * 8, s.parity);
    tile_scores<E, L::BN, L::BM>(w.dp, base + L::V + c.me * 8192, base + L::DO + s.at * L::DO_BYTES);
    products_wait<1>();
    hold(w.s);
    cap_scores<L::BM / 2>(w.s, a.p.scale);
    if (L::BLOCKS ? entry_masked(entry, c.me) : entry & 1) {
        mask_scores<L::BN, L::BM, MASK, true>(w.s, (const int32_t *)(shared + L::K_INTS), q_ints, c.key,
                                              c.lane, keys, a.p.lists.chosen, list);
        if (L::EARLY) /* repeated, so that the mask can use their registers */
            backward_read<L::BM>(w.lse, rows), backward_read<L::BM>(w.delta, rows + L::BM);
    }
    if (CAPPED)
        backward_exp_capped<L::BM>(w, rows);
    else
        backward_exp<L>(w, rows, a.p.scale * 1.44269504f);
    products_wait<0>();
    hold(w.dp);
    if (!L::EARLY)
        backward_read<L::BM>(w.delta, rows + L::BM);
    backward_ds(w);
}

/* Hands finished products of dQ to the warp that adds them, once it has taken the previous ones. */
template <class L>
static __device__ __forceinline__ void backward_give_dq(float (&dq)[32], uint32_t base,
                                                        const BackwardConsumer &c)
{
    hold(dq);
    named_sync(DQ_EMPTY + c.me, 160);
    backward_store_dq(dq, base + L::DQ + c.me * L::DQ_BYTES, c);
    stored_for_engines();
    named_arrive(DQ_FULL + c.me, 160);
}

/* dQ of a query tile that sees none of this warpgroup's keys: from the other's dS only. */
template <class L>
static __device__ __forceinline__ void backward_tile_unseen(uint32_t base, const BackwardConsumer &c,
                                                            const Stage<L::STAGES> &s, int entry)
{
    named_sync(DS_FULL, 256);
    float dq[32];
    backward_dq<L>(dq, base, c, s.at, entry);
    barrier_wait(base + L::DO_FULL + s.at * 8, s.parity);
    warp_arrive(base + L::DO_EMPTY + s.at * 8, c.lane);
    products_wait<0>();
    backward_give_dq<L>(dq, base, c);
    __syncwarp();
    warp_arrive(base + L::Q_EMPTY + s.at * 8, c.lane);
}

/* One query tile. dS has two stages, so that one barrier a tile serves both warpgroups. */
template <class L, class MASK, int D, int E>
static __device__ __forceinline__ void backward_tile(BackwardState<D, E, L::BM> &w,
                                                     const BurstBackwardLaunch &a, unsigned char *shared,
                                                     const BackwardConsumer &c, const Stage<L::STAGES> &s,
                                                     int keys, int list)
{
    const uint32_t base = shared_address(shared), ds = base + L::DS + s.at * L::DS_BYTES;
    const uint32_t store = ds + (uint32_t)(c.me * 64 + c.thread / 32 * 16) * 128 + lanes_down(c.lane);
    barrier_wait(base + L::Q_FULL + s.at * 8, s.parity);
    const int entry = ((const volatile int32_t *)(shared + L::ENTRY))[s.at];
    if (L::BLOCKS && !entry_seen(entry, c.me)) {
        backward_tile_unseen<L>(base, c, s, entry);
        return;
    }
    backward_probabilities<L, MASK>(w, a, shared, c, s, keys, entry, list);
#pragma unroll
    for (int t = 0; t < L::BM / 16; t++)
        store_block(block_at<L::BN>(store, 0, 0, t * 16), w.ds + t * 4);
    backward_sum<E, L::BM>(w.dv, w.p, base + L::DO + s.at * L::DO_BYTES);
    stored_for_engines();
    named_sync(DS_FULL, 256);
    float dq[32];
    backward_dq<L>(dq, base, c, s.at, entry);
    products_wait<1>();
    warp_arrive(base + L::DO_EMPTY + s.at * 8, c.lane);
    backward_sum<D, L::BM>(w.dk, w.ds, base + L::Q + s.at * L::Q_BYTES);
    products_wait<1>();
    backward_give_dq<L>(dq, base, c);
    products_wait<0>();
    warp_arrive(base + L::Q_EMPTY + s.at * 8, c.lane);
}

/* Adds dK and dV of a work's keys; the thread has two keys. */
template <class L, int D, int E>
static __device__ __forceinline__ void backward_write(BackwardState<D, E, L::BM> &w,
                                                      const BurstBackwardLaunch &a, const BackwardWork &work)
{
    const BurstBackwardKeys &of = a.keys[work.chunk];
    const BackwardConsumer c = backward_consumer();
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int key = work.tile * L::BN + c.key + half * 8;
        const int64_t at = (int64_t)work.kv * of.tokens.n + key;
        const bool there = key < of.tokens.n;
        add_row<D / 8>((const float(*)[4])w.dk, half * 2, a.p.scale, of.dk + at * D, c.lane, there);
        add_row<E / 8>((const float(*)[4])w.dv, half * 2, 1, of.dv + at * E, c.lane, there);
    }
}

template <int D, class MASK, int E>
static __device__ __forceinline__ void backward_consume(const BurstBackwardLaunch &a, unsigned char *shared,
                                                        int me)
{
    using L = BurstBackwardLayout<D, MASK, E>;
    const uint32_t base = shared_address(shared);
    BackwardConsumer c = backward_consumer();
    c.me = me; /* in a uniform register */
    Stage<L::STAGES> s = {}, works = {};
    for (const BackwardWork *work; (work = backward_take<L>(shared, works)); backward_done<L>(base, works)) {
        BackwardState<D, E, L::BM> w;
#pragma unroll
        for (int i = 0; i < D / 2; i++)
            w.dk[i] = 0;
#pragma unroll
        for (int i = 0; i < E / 2; i++)
            w.dv[i] = 0;
        barrier_wait(base + L::KV_FULL, (uint32_t)works.at); /* a work is in one of two stages */
        const int keys = a.keys[work->chunk].tokens.n - work->tile * L::BN,
                  list = burst_list_of<MASK>(a.p.lists, a.p.q_head0, work->head);
        for (int left = work->count * (work->head_end - work->head); left > 0; left--, s.next())
            backward_tile<L, MASK>(w, a, shared, c, s, keys, list);
        __syncwarp();
        warp_arrive(base + L::KV_EMPTY, c.lane);
        hold(w.dk), hold(w.dv);
        backward_write<L>(w, a, *work);
    }
}

template <class L> static __device__ __forceinline__ void backward_barriers(uint32_t base)
{
    barrier_make(base + L::KV_FULL, 1 + WARP);
    barrier_make(base + L::KV_EMPTY, 8 * WARP);
    for (int i = 0; i < L::STAGES; i++) {
        barrier_make(base + L::WORK_FULL + i * 8, 1);
        barrier_make(base + L::WORK_EMPTY + i * 8, (10 + !L::APART) * WARP);
        barrier_make(base + L::Q_FULL + i * 8, 1 + 2 * WARP);
        barrier_make(base + L::Q_EMPTY + i * 8, 8 * WARP);
        barrier_make(base + L::DO_FULL + i * 8, 1);
        barrier_make(base + L::DO_EMPTY + i * 8, 8 * WARP);
    }
    barriers_made();
}

} // namespace burst

#include "cuda_hopper_backward_wide.cuh"

template <int D, class MASK, int E = D>
static __global__ void __launch_bounds__(384, 1)
    burst_backward_kernel(const __grid_constant__ BurstBackwardLaunch a)
{
    using namespace burst;
    using L = BurstBackwardLayout<D, MASK, E>;
    extern __shared__ __align__(1024) unsigned char shared[];
    const int warp = group_number<32>();
    if (threadIdx.x == 0) {
        *(BackwardOrder *)(shared + L::ORDER) = backward_order(a.p);
        backward_barriers<L>(shared_address(shared));
    }
    __syncthreads();
    if (warp < 4) {
        registers_down<L::FEW>();
        backward_produce<L, MASK>(a, shared, warp);
    } else {
        registers_up<L::MANY>();
        if constexpr (L::APART)
            wide_consume<D, MASK, E>(a, shared, warp / 4 - 1);
        else
            backward_consume<D, MASK, E>(a, shared, warp / 4 - 1);
    }
}

/* Raises the kernel's shared-memory limit; called once per device at start-up. */
template <int D, class MASK, int E = D> static cudaError_t burst_backward_setup(void)
{
    return cudaFuncSetAttribute(burst_backward_kernel<D, MASK, E>,
                                cudaFuncAttributeMaxDynamicSharedMemorySize,
                                BurstBackwardLayout<D, MASK, E>::BYTES);
}

/* Adds the gradients of the pairs of 1 to BURST_MOST_CHUNKS chunks of queries with as many of keys; pair[i *
 * keys + j] is of chunks i and j; lists are the first pair's. The heads of a group are split over several
 * works (backward_order), more if there are few key tiles, so that each multiprocessor has some works. The
 * order of the sums then varies from run to run, as dQ's always does. With PLAN_DETERMINISTIC a work has all
 * heads of its group, and dQ's additions take turns. */
template <int D, class MASK, int E = D>
static cudaError_t burst_backward(const BurstBackward *pair, int queries, int keys, int multiprocessors,
                                  cudaStream_t stream)
{
    using L = BurstBackwardLayout<D, MASK, E>;
    BurstBackwardLaunch a;
    memset(&a, 0, sizeof a);
    a.p = *pair, a.chunks = keys;
    BurstBackward &p = a.p;
    const int tiles = p.lists.rows * (p.kv_heads << p.lists.band_bits);
    double tokens = 0;
    cudaError_t e = cudaSuccess;
    for (int first = 0, i = 0; i < queries; first += burst_tiles(pair[i * keys].q_tokens.n, L::BM), i++) {
        const BurstBackward &from = pair[i * keys];
        const int n = from.q_tokens.n;
        BurstBackwardQueries &of = a.queries[i];
        of.lse = from.lse, of.delta = from.delta, of.added = from.dq, of.tokens = from.q_tokens,
        of.first = first, tokens += n;
        e = e != cudaSuccess ? e : burst_rows_map(&of.q, from.q, D, n, p.q_heads, L::BM);
        e = e != cudaSuccess ? e : burst_rows_map(&of.d_o, from.d_o, E, n, p.q_heads, L::BM);
        if (!L::APART)
            e = e != cudaSuccess
                    ? e
                    : burst_tensor_map(&of.dq, from.dq, 4, D, n, p.q_heads, D * 4, (int64_t)n * D * 4, 64, 2);
    }
    if (tiles == 0 || p.q_heads == 0 || tokens == 0)
        return cudaSuccess;
    for (int first = 0, j = 0; j < keys; first += burst_tiles(pair[j].k_tokens.n, L::BN), j++) {
        const BurstBackward &from = pair[j];
        const int n = from.k_tokens.n;
        BurstBackwardKeys &of = a.keys[j];
        of.tokens = from.k_tokens, of.dk = from.dk, of.dv = from.dv, of.first = first;
        e = e != cudaSuccess ? e : burst_rows_map(&of.k, from.k, D, n, p.kv_heads, L::BN);
        e = e != cudaSuccess ? e : burst_rows_map(&of.v, from.v, E, n, p.kv_heads, L::BN);
    }
    if (PLAN_DETERMINISTIC && e == cudaSuccess)
        e = cudaMemsetAsync(p.lists.added, 0, (size_t)p.q_heads * (size_t)p.lists.stride * sizeof(int32_t),
                            stream);
    if (e != cudaSuccess)
        return e;
    p.splits = 1;
    while (!PLAN_DETERMINISTIC && p.splits < p.group && tiles * p.splits < 12 * multiprocessors)
        p.splits++;
    p.section = burst_section(p.q_heads, 2.0 * (D + E) * tokens / (1 << p.lists.band_bits));
    const int works = PLAN_DETERMINISTIC ? tiles : tiles * p.group;
    const int blocks = works < multiprocessors ? works : multiprocessors;
    burst_backward_kernel<D, MASK, E><<<blocks, L::THREADS, L::BYTES, stream>>>(a);
    return cudaGetLastError();
}
