/* cuda_attention_forward.cuh: attention forward of one (query chunk, key chunk) pair, sm_80 form
 * (FlashAttention-2).
 *
 * A block owns a tile of 128 queries of one head and walks its list of key tiles. It has 4 warps of 32 rows
 * or, with head_dim over 128, 8 warps of 16 (runtime/include/burst_kernels.h). The running state (O, lse) is
 * read into registers before the walk and written after it, so folding a ring step needs no merge: the state
 * seeds the softmax with m = lse, l = 1. The next load is always in flight: V during Q K^T, the next K
 * during P V. Runs on sm_80 and later with 64 KB of shared memory, two blocks per multiprocessor, or with
 * 144 KB, one. */
#include "cuda_attention.cuh"

template <int D, class MASK, int E = D> struct BurstForwardLayout {
    using Shape = BurstTileShape<80, D, E>;
    static constexpr int BM = Shape::FORWARD_Q, BN = Shape::FORWARD_K;
    static constexpr int ROWS = Shape::FORWARD_ROWS, THREADS = BM / ROWS * 32,
                         BLOCKS = 256 / THREADS;
    static constexpr int ROW_BYTES = burst_row_bytes(D), VALUE_BYTES = burst_row_bytes(E);
    static constexpr int Q = 0, K = Q + BM * ROW_BYTES, V = K + BN * ROW_BYTES,
                         Q_INTS = V + BN * VALUE_BYTES;
    static constexpr int K_INTS = Q_INTS + burst::token_ints<MASK>(BM) * 4;
    static constexpr int BYTES = K_INTS + burst::token_ints<MASK>(BN) * 4;
    static_assert(BYTES <= BURST_BLOCK_BYTES, "a block has no more shared memory");
};

namespace burst {

/* A warp's rows: B blocks of 16. In a block a lane holds rows lane/4 and lane/4 + 8. */
template <int D, int E, int BN, int B = BurstTileShape<80, D, E>::FORWARD_ROWS / 16> struct ForwardState {
    static constexpr int BLOCKS = B;
    float o[B][E / 8][4], s[B][BN / 8][4];
    float m[B][2], l[B][2]; /* m: maximum of the raw scores; l: this lane's part of the sum */
};

/* place.tile: in the order of the lists. */
static __device__ __forceinline__ Place forward_place(const BurstForward &p)
{
    return place_of(block_number(), p.lists.rows, p.q_heads, p.section);
}

template <int D, int E, int BN>
static __device__ __forceinline__ void forward_seed(ForwardState<D, E, BN> &w, const BurstForward &p,
                                                    int head, int row0, int lane)
{
    const bool first = p.flags & BURST_FIRST;
#pragma unroll
    for (int b = 0; b < w.BLOCKS; b++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int row = row0 + b * 16 + half * 8 + lane / 4;
            const bool there = !first && row < p.q_tokens.n;
            const int64_t at = (int64_t)head * p.q_tokens.n + row;
            const float lse = there ? p.lse[at] : -CUDART_INF_F;
            w.m[b][half] = __fdividef(lse, score_scale(p.scale));
            w.l[b][half] = lse != -CUDART_INF_F && lane % 4 == 0 ? 1.0f : 0.0f;
            if (there) {
                const float *o = p.o + at * E + lane % 4 * 2;
#pragma unroll
                for (int j = 0; j < E / 8; j++) {
                    const float2 of = *(const float2 *)(o + j * 8);
                    w.o[b][j][half * 2] = of.x, w.o[b][j][half * 2 + 1] = of.y;
                }
            } else
#pragma unroll
                for (int j = 0; j < E / 8; j++)
                    w.o[b][j][half * 2] = w.o[b][j][half * 2 + 1] = 0;
        }
}

/* s = Q K^T for the warp's rows and BN keys. q_lanes: advanced to those rows. */
template <int D, int BM, int Q, int K, int E, int BN>
static __device__ __forceinline__ void forward_scores(ForwardState<D, E, BN> &w, uint32_t q_lanes,
                                                      uint32_t k_lanes)
{
    constexpr int B = ForwardState<D, E, BN>::BLOCKS;
#pragma unroll
    for (int b = 0; b < B; b++)
#pragma unroll
        for (int j = 0; j < BN / 8; j++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                w.s[b][j][e] = 0;
    /* operands are loaded one step ahead of their products */
    uint32_t a[2][B][4], r[2][4];
#pragma unroll
    for (int b = 0; b < B; b++)
        load_block(a[0][b], block_at<BM>(q_lanes, Q, b * 16, 0));
    load_block(r[0], block_at<BN>(k_lanes, K, 0, 0));
#pragma unroll
    /* two loops, since one of more than about 50 iterations would not be unrolled */
    for (int x = 0; x < D / 16; x++)
#pragma unroll
        for (int j = 0; j < BN / 16; j++) {
            const int step = x * (BN / 16) + j, next_x = (step + 1) / (BN / 16),
                      next_j = (step + 1) % (BN / 16);
            not_ahead();
            if (next_x < D / 16)
                load_block(r[(step + 1) % 2], block_at<BN>(k_lanes, K, next_j * 16, next_x * 16));
            if (j == BN / 16 - 2 && x + 1 < D / 16)
#pragma unroll
                for (int b = 0; b < B; b++)
                    load_block(a[(x + 1) % 2][b], block_at<BM>(q_lanes, Q, b * 16, x * 16 + 16));
#pragma unroll
            for (int b = 0; b < B; b++) {
                mma(w.s[b][2 * j], a[x % 2][b], r[step % 2][0], r[step % 2][1]);
                mma(w.s[b][2 * j + 1], a[x % 2][b], r[step % 2][2], r[step % 2][3]);
            }
        }
}

template <int D, class MASK, int E, int BN>
static __device__ __forceinline__ void forward_mask(ForwardState<D, E, BN> &w, const int32_t *q_ints,
                                                    const int32_t *k_ints, int keys,
                                                    const BurstChosen &chosen)
{
    using Shape = BurstTileShape<80, D, E>;
    /* at head_dim 64, and under a softcap with tables, ptxas should not keep the thread's number; found by
     * trial */
    const int thread = D == 64 || (CAPPED && MASK::TABLES != 0) ? thread_number() : (int)threadIdx.x;
    mask_blocks<Shape::FORWARD_Q, BN, MASK, false>(w.s, q_ints, k_ints, thread / 32 * Shape::FORWARD_ROWS, 0,
                                                   thread % 32, keys, chosen);
}

/* Whether any of the warp's pairs in this tile is unmasked; NaN counts as unmasked. */
template <int D, int E, int BN>
static __device__ __forceinline__ bool forward_seen(const ForwardState<D, E, BN> &w)
{
    float top = w.s[0][0][0];
#pragma unroll
    for (int b = 0; b < w.BLOCKS; b++)
#pragma unroll
        for (int j = 0; j < BN / 8; j++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                top = max_or_nan(top, w.s[b][j][e]);
    return __any_sync(0xffffffffu, top != -CUDART_INF_F);
}

/* Converts scores to probabilities, and rescales O and l to the new maximum. A row without keys so far keeps
 * m = -inf and gets p = 0. Maxima settle after a few tiles: if no maximum of the warp moved, O is not
 * rescaled. */
template <int D, int E, int BN>
static __device__ __forceinline__ void forward_softmax(ForwardState<D, E, BN> &w, float scale_log2)
{
    float shrink[ForwardState<D, E, BN>::BLOCKS][2];
    bool moved = false;
#pragma unroll
    for (int b = 0; b < w.BLOCKS; b++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float top = w.m[b][half];
#pragma unroll
            for (int j = 0; j < BN / 8; j++)
                top = fmaxf(top, fmaxf(w.s[b][j][half * 2], w.s[b][j][half * 2 + 1]));
            top = quad_max(top);
            const float shift = top == -CUDART_INF_F ? 0.0f : __fmul_rn(top, scale_log2);
            /* both are rounded, not fused: an unchanged maximum must give exactly 1 */
            shrink[b][half] = exp2_fast(__fmul_rn(w.m[b][half], scale_log2) - shift);
            moved |= top != w.m[b][half];
            /* summed per tile: added one by one to a large running sum, small terms would vanish */
            float sum = 0;
            w.m[b][half] = top;
#pragma unroll
            for (int j = 0; j < BN / 8; j++)
#pragma unroll
                for (int e = half * 2; e < half * 2 + 2; e++) {
                    w.s[b][j][e] = exp2_fast(w.s[b][j][e] * scale_log2 - shift);
                    sum += w.s[b][j][e];
                }
            w.l[b][half] = w.l[b][half] * shrink[b][half] + sum;
        }
    if (!__any_sync(0xffffffffu, moved))
        return;
#pragma unroll
    for (int b = 0; b < w.BLOCKS; b++)
#pragma unroll
        for (int j = 0; j < E / 8; j++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                w.o[b][j][e] *= shrink[b][e / 2];
}

/* O += P V. */
template <int D, int V, int E, int BN>
static __device__ __forceinline__ void forward_values(ForwardState<D, E, BN> &w, uint32_t lanes)
{
    uint32_t a[ForwardState<D, E, BN>::BLOCKS][4], r[2][4];
    load_block_transposed(r[0], block_at<BN>(lanes, V, 0, 0));
#pragma unroll
    for (int j = 0; j < BN / 16; j++)
#pragma unroll
        for (int x = 0; x < E / 16; x++) {
            const int step = j * (E / 16) + x, next = step + 1;
            if (step % 2 == 0)
                not_ahead();
            if (next < BN / 16 * (E / 16))
                load_block_transposed(r[next % 2],
                                      block_at<BN>(lanes, V, next / (E / 16) * 16, next % (E / 16) * 16));
            if (x == 0)
#pragma unroll
                for (int b = 0; b < w.BLOCKS; b++)
#pragma unroll
                    for (int e = 0; e < 4; e++)
                        a[b][e] = pack(w.s[b][2 * j + e / 2][e % 2 * 2],
                                       w.s[b][2 * j + e / 2][e % 2 * 2 + 1]);
#pragma unroll
            for (int b = 0; b < w.BLOCKS; b++) {
                mma(w.o[b][2 * x], a[b], r[step % 2][0], r[step % 2][1]);
                mma(w.o[b][2 * x + 1], a[b], r[step % 2][2], r[step % 2][3]);
            }
        }
}

template <int D, int E, int BN>
static __device__ __forceinline__ void forward_write(ForwardState<D, E, BN> &w, const BurstForward &p,
                                                     int head, int row0, int lane)
{
#pragma unroll
    for (int b = 0; b < w.BLOCKS; b++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int row = row0 + b * 16 + half * 8 + lane / 4;
            const float l = quad_sum(w.l[b][half]), part = l == 0 ? 0.0f : __fdividef(1.0f, l);
            const bool there = row < p.q_tokens.n;
            const int64_t at = (int64_t)head * p.q_tokens.n + row;
            if (there && lane % 4 == 0)
                p.lse[at] = l == 0 ? -CUDART_INF_F : w.m[b][half] * score_scale(p.scale) + logf(l);
            if (p.flags & BURST_LAST) {
                __nv_bfloat16 *const begin = p.out.at + head * p.out.head + row * p.out.row, *const out =
                                                                                                 begin +
                                                                                                 lane % 4 * 8;
#pragma unroll
                for (int j = 0; j + 4 <= E / 8; j += 4) {
                    uint32_t x[4];
#pragma unroll
                    for (int i = 0; i < 4; i++)
                        x[i] = pack(w.o[b][j + i][half * 2] * part, w.o[b][j + i][half * 2 + 1] * part);
                    quad_transpose(x, lane);
                    if (there)
                        *(uint4 *)(out + j * 8) = make_uint4(x[0], x[1], x[2], x[3]);
                }
#pragma unroll
                for (int j = E / 32 * 4; j < E / 8; j++) /* the last 16 columns, if their number is odd */
                    if (there)
                        *(uint32_t *)(begin + j * 8 + lane % 4 * 2) =
                            pack(w.o[b][j][half * 2] * part, w.o[b][j][half * 2 + 1] * part);
            } else if (there) {
                float *o = p.o + at * E + lane % 4 * 2;
#pragma unroll
                for (int j = 0; j < E / 8; j++)
                    *(float2 *)(o + j * 8) = make_float2(w.o[b][j][half * 2] * part,
                                                         w.o[b][j][half * 2 + 1] * part);
            }
        }
}

} // namespace burst

template <int D, class MASK, int E = D>
static __global__ void __launch_bounds__(BurstForwardLayout<D, MASK, E>::THREADS,
                                         BurstForwardLayout<D, MASK, E>::BLOCKS)
    burst_forward_kernel(const BurstForward p)
{
    using namespace burst;
    using L = BurstForwardLayout<D, MASK, E>;
    constexpr int BN = L::BN, THREADS = L::THREADS;
    extern __shared__ __align__(1024) unsigned char shared[];
    const Place place = forward_place(p);
    const BurstTileList of = list_of(p.lists, place.tile);
    const int tile = of.tile, count = of.count;
    if (count == 0 && !p.flags)
        return;
    const int32_t *list = p.lists.list + (int64_t)tile * p.lists.stride;
    int kv = (p.q_head0 + place.head) / p.group - p.kv_head0, lane = (int)threadIdx.x % 32;
    int warp_row = (int)threadIdx.x / 32 * L::ROWS;
    const int first = tile * L::BM, keys = p.k_tokens.n;
    const uint32_t base = shared_address(shared), down = base + lanes_down(lane),
                   across = base + lanes_across(lane);
    const int32_t *const q_ints = (const int32_t *)(shared + L::Q_INTS), *const k_ints =
                                                                             (const int32_t *)(shared +
                                                                                               L::K_INTS);

    copy_tile<L::BM, D, THREADS>(base + L::Q, p.q.at + place.head * p.q.head, p.q.row, first, p.q_tokens.n);
    copy_tokens<L::BM, THREADS, MASK>(base + L::Q_INTS, p.q_tokens, first);
    int next = of.first;
    if (count)
        copy_tile<BN, D, THREADS>(base + L::K, p.k.at + kv * p.k.head, p.k.row, next / 2 * BN, keys);
    copies_commit();
    ForwardState<D, E, BN> w;
    forward_seed(w, p, place.head, first + warp_row, lane);
    for (const int32_t *const end = list + count; list < end;) {
        const int entry = next, key0 = entry_tile(entry) * BN;
        next = ++list < end ? *list : -1;
        forget(kv);
        if (CAPPED && MASK::TABLES != 0)
            forget(lane), forget(warp_row);
        if (D == 128 && MASK::ALL) /* which values ptxas should not keep was found by trial */
            forget(warp_row);
        copies_wait<0>();
        __syncthreads(); /* K has arrived; the last V and key tokens are no longer read */
        copy_tile<BN, E, THREADS>(base + L::V, p.v.at + kv * p.v.head, p.v.row, key0, keys);
        if (entry & 1)
            copy_tokens<BN, THREADS, MASK>(base + L::K_INTS, p.k_tokens, key0);
        copies_commit();
        forward_scores<D, L::BM, L::Q, L::K>(w, moved<L::BM>(down, warp_row, 0), across);
        copies_wait<0>();
        __syncthreads(); /* V has arrived; K is no longer read */
        if (next >= 0)
            copy_tile<BN, D, THREADS>(base + L::K, p.k.at + kv * p.k.head, p.k.row, next / 2 * BN, keys);
        copies_commit();
        cap_scores<BN * L::ROWS / 32>(&w.s[0][0][0], p.scale);
        if (entry & 1) {
            forward_mask<D, MASK>(w, q_ints, k_ints, keys - key0, p.lists.chosen);
            if (!MASK::ALL && !forward_seen(w))
                continue; /* the tile is partial for other warps */
        }
        forward_softmax(w, score_scale(p.scale) * 1.44269504f);
        forward_values<D, L::V>(w, down);
    }
    copies_wait<0>();
    const Place here = forward_place(p);
    const int thread = thread_number();
    forward_write(w, p, here.head, tile_again(p.lists, here.tile) * L::BM + thread / 32 * L::ROWS,
                  thread % 32);
}

/* Raises the kernel's shared-memory limit; called once per device at start-up. */
template <int D, class MASK, int E = D> static cudaError_t burst_forward_setup(void)
{
    return cudaFuncSetAttribute(burst_forward_kernel<D, MASK, E>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                BurstForwardLayout<D, MASK, E>::BYTES);
}

/* Folds the pair into (o, lse) or, with BURST_LAST, finishes it into out; launches of this form have one
 * pair. An EMPTY pair needs no launch unless it is the first or the last of its query chunk. */
template <int D, class MASK, int E = D>
static cudaError_t burst_forward(const BurstForward *pair, int queries, int keys, int multiprocessors,
                                 cudaStream_t stream)
{
    BurstForward p = *pair;
    const int blocks = p.lists.rows * p.q_heads;
    (void)queries, (void)keys, (void)multiprocessors;
    p.section = p.group * burst_section((p.q_heads + p.group - 1) / p.group, 2.0 * (D + E) * p.k_tokens.n);
    if (blocks == 0)
        return cudaSuccess;
    burst_forward_kernel<D, MASK, E>
        <<<blocks, BurstForwardLayout<D, MASK, E>::THREADS, BurstForwardLayout<D, MASK, E>::BYTES, stream>>>(
            p);
    return cudaGetLastError();
}
