/* cuda_hopper_backward_wide.cuh: the consumers of backward for head_dim over 128, sm_90a form.
 *
 * A warpgroup has no registers for dK and dV of 64 keys, so each has one of them: the first computes S^T and
 * P of a tile of 64 keys and keeps dV, the second computes dP^T and keeps dK. P goes to the second in fp32
 * through shared memory, where it computes dS = P (dP - delta), and dS comes back for dQ = dS K, of which
 * the first computes the first 128 columns and the second the rest. P^T and dS^T are the A operands of dV
 * and dK in that register layout. dQ is added to memory from registers: it does not fit in shared memory. */
namespace burst {

/* State of a thread of the first warpgroup, and of the second: keys lane/4 and lane/4 + 8 of its warp's
 * 16. */
template <int E, int BM> struct WideValues { float dv[E / 2], s[BM / 2], lse[BM / 4]; uint32_t p[BM / 4]; };
template <int D, int BM> struct WideKeys { float dk[D / 2], dp[BM / 2]; uint32_t ds[BM / 4]; };

/* Issues COLUMNS columns of dQ = dS K for 64 queries, over the tile's 64 keys; k: at the first column. */
template <int COLUMNS>
static __device__ __forceinline__ void wide_dq(float (&dq)[COLUMNS / 2], uint32_t ds, uint32_t k)
{
    const uint64_t a = descriptor(ds, 16), b = descriptor(k, 64 * 128);
    products_begin();
#pragma unroll
    for (int t = 0; t < 4; t++)
        Wgmma<COLUMNS>::template shared<1, 1>(dq, a + inner_rows(t), b + inner_rows(t), t > 0);
    products_end();
}

/* Adds them to memory. at: the tile's first query and the first column. rows: queries that exist. Without a
 * branch, since other products are running. */
template <int COLUMNS, int D>
static __device__ __forceinline__ void wide_add_dq(const float (&dq)[COLUMNS / 2], float *at, int rows)
{
    const int thread = thread_number() % 128, lane = thread % 32;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int row = thread / 32 * 16 + lane / 4 + half * 8;
#pragma unroll
        for (int j = 0; j < COLUMNS / 8; j += 2)
            add_four_if(row < rows, at + row * D + j / 4 * 32 + dq_place<D>(j % 4, lane % 4, 0),
                        dq[j * 4 + half * 2], dq[j * 4 + half * 2 + 1], dq[j * 4 + 4 + half * 2],
                        dq[j * 4 + 5 + half * 2]);
    }
}

/* Offset of P for the thread of the same number in the other warpgroup: four floats i, every 2 KB. */
static __device__ __forceinline__ uint32_t wide_place(uint32_t p, int thread)
{
    return p + (uint32_t)thread * 16;
}

/* Computes P of one query tile, in registers and in shared memory. */
template <class L, class MASK, int E>
static __device__ __forceinline__ void wide_probabilities(WideValues<E, L::BM> &w,
                                                          const BurstBackwardLaunch &a, unsigned char *shared,
                                                          const BackwardConsumer &c,
                                                          const Stage<L::STAGES> &s, int keys, int list)
{
    const uint32_t base = shared_address(shared), to = wide_place(base + L::P, c.thread);
    const float *const rows = (const float *)(shared + L::ROWS + s.at * L::ROWS_BYTES) + c.lane % 4 * 4;
    const int32_t *const q_ints = (const int32_t *)(shared + L::ROWS + s.at * L::ROWS_BYTES) + 2 * L::BM;
    barrier_wait(base + L::Q_FULL + s.at * 8, s.parity);
    const int entry = ((const volatile int32_t *)(shared + L::ENTRY))[s.at];
    tile_scores<L::COLUMNS, L::BN, L::BM>(w.s, base + L::K, base + L::Q + s.at * L::Q_BYTES);
    products_wait<0>();
    hold(w.s);
    cap_scores<L::BM / 2>(w.s, a.p.scale);
    if (entry & 1)
        mask_scores<L::BN, L::BM, MASK, true>(w.s, (const int32_t *)(shared + L::K_INTS), q_ints, c.key,
                                              c.lane, keys, a.p.lists.chosen, list);
    if (CAPPED)
        backward_exp_capped<L::BM>(w, rows);
    else
        backward_exp<L>(w, rows, a.p.scale * 1.44269504f);
    __syncwarp();
    warp_arrive(base + L::Q_EMPTY + s.at * 8, c.lane);
#pragma unroll
    for (int i = 0; i < L::BM / 8; i++)
        asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(to + i * 2048), "f"(w.s[i * 4]),
                     "f"(w.s[i * 4 + 1]), "f"(w.s[i * 4 + 2]), "f"(w.s[i * 4 + 3])
                     : "memory");
    named_arrive(P_FULL, 256);
}

/* The first warpgroup's part of one query tile. The second warpgroup read the last tile's P before it
 * finished its dS. */
template <class L, class MASK, int E>
static __device__ __forceinline__ void wide_values_tile(WideValues<E, L::BM> &w, const BurstBackwardLaunch &a,
                                                        unsigned char *shared, const BackwardConsumer &c,
                                                        const Stage<L::STAGES> &s, int keys, int list,
                                                        float *dq_at, int rows)
{
    const uint32_t base = shared_address(shared);
    wide_probabilities<L, MASK>(w, a, shared, c, s, keys, list);
    barrier_wait(base + L::DO_FULL + s.at * 8, s.parity);
    backward_sum<E, L::BM>(w.dv, w.p, base + L::DO + s.at * L::DO_BYTES);
    named_sync(DS_FULL, 256);
    float dq[64];
    wide_dq<128>(dq, base + L::DS, base + L::K);
    products_wait<1>();
    warp_arrive(base + L::DO_EMPTY + s.at * 8, c.lane);
    products_wait<0>();
    hold(dq);
    wide_add_dq<128, L::COLUMNS>(dq, dq_at, rows);
}

/* Computes dS of one query tile, in registers and in shared memory. */
template <class L, int D>
static __device__ __forceinline__ void wide_ds(WideKeys<D, L::BM> &w, unsigned char *shared,
                                               const BackwardConsumer &c, const Stage<L::STAGES> &s)
{
    const uint32_t base = shared_address(shared), from = wide_place(base + L::P, c.thread);
    const uint32_t store = base + L::DS + (uint32_t)(c.thread / 32 * 16) * 128 + lanes_down(c.lane);
    const float *const delta = (const float *)(shared + L::ROWS + s.at * L::ROWS_BYTES) + L::BM +
                               c.lane % 4 * 4;
    named_sync(P_FULL, 256);
#pragma unroll
    for (int i = 0; i < L::BM / 8; i++) {
        float p[4];
        const float2 of = *(const float2 *)(delta + i / 2 * 16 + i % 2 * 2);
        asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                     : "=f"(p[0]), "=f"(p[1]), "=f"(p[2]), "=f"(p[3])
                     : "r"(from + i * 2048)
                     : "memory");
        w.ds[i * 2] = pack(p[0] * (w.dp[i * 4] - of.x), p[1] * (w.dp[i * 4 + 1] - of.y));
        w.ds[i * 2 + 1] = pack(p[2] * (w.dp[i * 4 + 2] - of.x), p[3] * (w.dp[i * 4 + 3] - of.y));
    }
#pragma unroll
    for (int t = 0; t < L::BM / 16; t++)
        store_block(block_at<L::BN>(store, 0, 0, t * 16), w.ds + t * 4);
    stored_for_engines();
    named_sync(DS_FULL, 256);
}

/* The second warpgroup's part. Once P has arrived, both warpgroups have computed dQ of the last tile, and dS
 * may be overwritten. */
template <class L, int D>
static __device__ __forceinline__ void wide_keys_tile(WideKeys<D, L::BM> &w, unsigned char *shared,
                                                      const BackwardConsumer &c, const Stage<L::STAGES> &s,
                                                      float *dq_at, int rows)
{
    const uint32_t base = shared_address(shared);
    barrier_wait(base + L::DO_FULL + s.at * 8, s.parity);
    tile_scores<L::VALUES, L::BN, L::BM>(w.dp, base + L::V, base + L::DO + s.at * L::DO_BYTES);
    barrier_wait(base + L::Q_FULL + s.at * 8, s.parity);
    products_wait<0>();
    hold(w.dp);
    warp_arrive(base + L::DO_EMPTY + s.at * 8, c.lane);
    wide_ds<L>(w, shared, c, s);
    float dq[(D - 128) / 2];
    wide_dq<D - 128>(dq, base + L::DS, base + L::K + 2 * 64 * 128);
    backward_sum<D, L::BM>(w.dk, w.ds, base + L::Q + s.at * L::Q_BYTES);
    products_wait<1>();
    hold(dq);
    wide_add_dq<D - 128, D>(dq, dq_at + 128, rows);
    products_wait<0>();
    warp_arrive(base + L::Q_EMPTY + s.at * 8, c.lane);
}

/* Adds a warpgroup's dK or dV of a work. */
template <class L, int D>
static __device__ __forceinline__ void wide_write(float (&sum)[D / 2], float *to, float scale,
                                                  const BackwardWork &work, int n)
{
    const BackwardConsumer c = backward_consumer();
    hold(sum);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int key = work.tile * L::BN + c.key % 64 + half * 8;
        add_row<D / 8>((const float(*)[4])sum, half * 2, scale, to + ((int64_t)work.kv * n + key) * D, c.lane,
                       key < n);
    }
}

/* Calls tile(its dQ, queries that exist) for every query tile of a work. A single loop: across nested loops
 * ptxas would move accumulators (C7514). */
template <class L, int D, class TILE>
static __device__ __forceinline__ void wide_walk(const BurstBackwardLaunch &a, const BackwardWork &work,
                                                 Stage<L::STAGES> &s, const TILE &tile)
{
    const int32_t *const list = a.p.lists.list + (int64_t)work.row * a.p.lists.stride;
    const int count = work.count;
    int head = work.head, i = 0;
    for (int left = count * (work.head_end - head); left > 0; left--, s.next()) {
        const int entry = i ? __ldg(list + i) : work.first, row = entry_tile(entry) * L::BM;
        const BurstBackwardQueries &of = a.queries[entry_chunk(entry)];
        tile(of.added + ((int64_t)head * of.tokens.n + row) * D, of.tokens.n - row);
        if (++i == count)
            i = 0, head++;
    }
}

template <int D, class MASK, int E>
static __device__ __forceinline__ void wide_consume(const BurstBackwardLaunch &a, unsigned char *shared,
                                                    int me)
{
    using L = BurstBackwardLayout<D, MASK, E>;
    const uint32_t base = shared_address(shared);
    BackwardConsumer c = backward_consumer();
    c.key %= 64;
    Stage<L::STAGES> s = {}, works = {};
    for (const BackwardWork *work; (work = backward_take<L>(shared, works)); backward_done<L>(base, works)) {
        const BurstBackwardKeys &of = a.keys[work->chunk];
        const int keys = of.tokens.n - work->tile * L::BN,
                  list = burst_list_of<MASK>(a.p.lists, a.p.q_head0, work->head);
        barrier_wait(base + L::KV_FULL, (uint32_t)works.at);
        if (me == 0) {
            WideValues<E, L::BM> w;
#pragma unroll
            for (int i = 0; i < E / 2; i++)
                w.dv[i] = 0;
            wide_walk<L, D>(a, *work, s, [&](float *dq, int rows) {
                wide_values_tile<L, MASK>(w, a, shared, c, s, keys, list, dq, rows);
            });
            __syncwarp();
            warp_arrive(base + L::KV_EMPTY, c.lane);
            wide_write<L, E>(w.dv, of.dv, 1, *work, of.tokens.n);
        } else {
            WideKeys<D, L::BM> w;
#pragma unroll
            for (int i = 0; i < D / 2; i++)
                w.dk[i] = 0;
            wide_walk<L, D>(a, *work, s,
                            [&](float *dq, int rows) { wide_keys_tile<L>(w, shared, c, s, dq, rows); });
            __syncwarp();
            warp_arrive(base + L::KV_EMPTY, c.lane);
            wide_write<L, D>(w.dk, of.dk, a.p.scale, *work, of.tokens.n);
        }
    }
}

} // namespace burst
