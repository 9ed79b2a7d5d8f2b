/* burst_pairs_cuda.cuh: launches of attention, for pairs of a chunk of queries with some chunks of keys, or
 * for the whole sequence.
 *
 * The program has included the kernels and defined PLAN_KERNEL_MASKS: the masks as kernels take them, by
 * number. */

/* Chunks of keys of a launch, up to what its kernels take. */
typedef struct PlanLaunchKeys {
    BurstTokens tokens[BURST_MOST_CHUNKS];
    BurstTileRanges there[BURST_MOST_CHUNKS];
    int tiles;
} PlanLaunchKeys;

template <class PAIR>
static inline PlanLaunchKeys plan_launch_keys(const PlanState *s, const PAIR *pair, int pairs, int tile)
{
    PlanLaunchKeys k = {};
    for (int i = 0; i < pairs; i++) {
        k.tokens[i] = pair[i].k_tokens;
        k.there[i] = s->launch.there[i];
        k.tiles += burst_tiles(k.tokens[i].n, tile);
    }
    return k;
}

#ifdef PLAN_LIBRARY
/* Where the call's next launch keeps its lists (own tiles by others) in the batch's memory; NULL: it does
 * not keep them. Calls with the same mask and direction have the same launches in the same order. During
 * stream capture nothing runs, so such a launch keeps no lists. */
static inline PlanKept *plan_keep(PlanState *s, bool backward, int own, int other, bool turns, int parts)
{
    cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    const size_t ints = (burst_lists_ints(own, other, turns ? PLAN_HEADS : 0, parts) + 63) / 64 * 64;
    PlanKept *kept = s->launches < PLAN_KEPT ? &s->kept[s->mask][backward][s->launches++] : NULL;
    if (!kept || kept->made)
        return kept;
    if (s->kept_ints + ints > PLAN_KEPT_INTS ||
        cudaStreamIsCapturing(burst_gpu_compute(s->exec), &capture) != cudaSuccess ||
        capture != cudaStreamCaptureStatusNone)
        return NULL;
    kept->lists = burst_lists_place(own, other, turns, parts, s->buffer.kept_lists + s->kept_ints);
    s->kept_ints += ints;
    return kept;
}
#endif

/* Makes the pairs' lists of live tiles on the compute stream. */
template <class MASK>
static inline cudaError_t plan_lists(PlanState *s, bool backward, const BurstTokens &q,
                                     const PlanLaunchKeys &keys, int pairs, int tile_q, int tile_k,
                                     BurstTileLists *lists)
{
    const int tiles = burst_tiles(q.n, tile_q), own = backward ? keys.tiles : tiles,
              other = backward ? tiles : keys.tiles, home = backward ? 0 : s->launch.home,
              parts = home ? 2 : 1;
    const bool turns = backward && PLAN_DETERMINISTIC;
    *lists = burst_lists_place(own, other, turns, parts, s->buffer.lists);
#ifdef PLAN_LIBRARY
    PlanKept *kept = plan_keep(s, backward, own, other, turns, parts);
    if (kept) {
        const bool made = kept->made;
        kept->made = true;
        *lists = kept->lists;
        if (made)
            return cudaSuccess;
    }
#endif
    return burst_make_lists<MASK>(&q, 1, keys.tokens, pairs, keys.there, tile_q, tile_k, !backward, home,
                                  s->buffer.tile_sides, *lists, burst_gpu_compute(s->exec));
}

/* Makes the lists, then launches the kernel. Lists of a launch in two parts, or in pieces of the heads, are
 * made once. */
template <class MASK>
static inline cudaError_t plan_forward_pairs(PlanState *s, BurstForward *pair, int pairs)
{
    constexpr int Q = BurstTiles<PLAN_HEAD_DIM, MASK, PLAN_VALUE_DIM>::FORWARD_Q,
                  K = BurstTiles<PLAN_HEAD_DIM, MASK, PLAN_VALUE_DIM>::FORWARD_K;
    cudaError_t e = cudaSuccess;
    if (s->launch.rest)
        pair->lists = burst_lists_rest(pair->lists);
    else if (!s->launch.listed)
        e = plan_lists<MASK>(s, false, pair->q_tokens, plan_launch_keys(s, pair, pairs, K), pairs, Q, K,
                             &pair->lists);
    if (e != cudaSuccess)
        return e;
    pair->flags |= s->launch.home ? BURST_PART : 0;
    return burst_forward<PLAN_HEAD_DIM, MASK, PLAN_VALUE_DIM>(pair, 1, pairs, s->multiprocessors,
                                                              burst_gpu_compute(s->exec));
}

#ifndef PLAN_INFER
template <class MASK>
static inline cudaError_t plan_backward_pairs(PlanState *s, BurstBackward *pair, int pairs)
{
    constexpr int Q = BurstTiles<PLAN_HEAD_DIM, MASK, PLAN_VALUE_DIM>::BACKWARD_Q,
                  K = BurstTiles<PLAN_HEAD_DIM, MASK, PLAN_VALUE_DIM>::BACKWARD_K;
    cudaError_t e = cudaSuccess;
    if (!s->launch.listed)
        e = plan_lists<MASK>(s, true, pair->q_tokens, plan_launch_keys(s, pair, pairs, K), pairs, Q, K,
                             &pair->lists);
    if (e != cudaSuccess)
        return e;
    return burst_backward<PLAN_HEAD_DIM, MASK, PLAN_VALUE_DIM>(pair, 1, pairs, s->multiprocessors,
                                                               burst_gpu_compute(s->exec));
}
#endif

template <class... MASK>
static inline cudaError_t plan_forward_of(PlanState *s, BurstForward *pair, int pairs)
{
    static cudaError_t (*const launch[])(PlanState *, BurstForward *, int) = {plan_forward_pairs<MASK>...};
    return launch[s->mask](s, pair, pairs);
}

#ifndef PLAN_INFER
template <class... MASK>
static inline cudaError_t plan_backward_of(PlanState *s, BurstBackward *pair, int pairs)
{
    static cudaError_t (*const launch[])(PlanState *, BurstBackward *, int) = {plan_backward_pairs<MASK>...};
    return launch[s->mask](s, pair, pairs);
}
#endif

/* Whether tiles of keys have PLAN_CARRIED tokens, or half of that. */
template <class MASK> static constexpr bool plan_tiles_divide(void)
{
    using T = BurstTiles<PLAN_HEAD_DIM, MASK, PLAN_VALUE_DIM>;
    return PLAN_CARRIED % T::FORWARD_K == 0 && PLAN_CARRIED % T::BACKWARD_K == 0;
}

template <class... MASK> static inline bool plan_carries_tiles_of(int mask)
{
    static const bool divide[] = {plan_tiles_divide<MASK>()...};
    return divide[mask];
}

static inline bool plan_carries_tiles(const PlanState *s)
{
    return plan_carries_tiles_of<PLAN_KERNEL_MASKS>(s->mask);
}

template <class MASK> static inline cudaError_t plan_setup_of(void)
{
    const cudaError_t e = burst_forward_setup<PLAN_HEAD_DIM, MASK, PLAN_VALUE_DIM>();
#ifdef PLAN_INFER
    return e;
#else
    return e != cudaSuccess ? e : burst_backward_setup<PLAN_HEAD_DIM, MASK, PLAN_VALUE_DIM>();
#endif
}

template <class... MASK> static inline cudaError_t plan_setup_all(void)
{
    cudaError_t e = cudaSuccess;
    ((e = e != cudaSuccess ? e : plan_setup_of<MASK>()), ...);
    return e;
}

static cudaError_t plan_launch_forward(PlanState *s, BurstForward *pair, int pairs)
{
    return plan_forward_of<PLAN_KERNEL_MASKS>(s, pair, pairs);
}

#ifdef PLAN_INFER
static cudaError_t plan_launch_backward(PlanState *, BurstBackward *, int)
{
    return cudaErrorNotSupported; /* there is none */
}

template <class... MASK>
static inline cudaError_t plan_decode_of(PlanState *s, int mask, const BurstDecode *d)
{
    static cudaError_t (*const launch[])(const BurstDecode *, cudaStream_t) = {
        burst_decode<PLAN_HEAD_DIM, PLAN_VALUE_DIM, PLAN_HEADS, PLAN_KV_HEADS, MASK>...};
    return launch[mask](d, burst_gpu_compute(s->exec));
}

static cudaError_t plan_launch_decode(PlanState *s, int mask, const BurstDecode *d)
{
    return plan_decode_of<PLAN_KERNEL_MASKS>(s, mask, d);
}
#else
static cudaError_t plan_launch_backward(PlanState *s, BurstBackward *pair, int pairs)
{
    return plan_backward_of<PLAN_KERNEL_MASKS>(s, pair, pairs);
}
#endif

static cudaError_t plan_launch_setup(void)
{
    return plan_setup_all<PLAN_KERNEL_MASKS>();
}
