/* burst_pairs_cuda.cuh: launches of attention, for pairs of a chunk of queries and some of keys, or for
 * the whole sequence.
 *
 * The program has included the kernels and defined PLAN_KERNEL_MASKS: the masks as kernels take them, by
 * number.
 */

/* Chunks of keys of a launch, which may be as many as its kernels take. */
typedef struct PlanLaunchKeys { BurstTokens tokens[BURST_MOST_CHUNKS]; int tiles; } PlanLaunchKeys;

template <class PAIR> static inline PlanLaunchKeys plan_launch_keys(const PAIR *pair, int pairs, int tile)
{
    PlanLaunchKeys k = {};
    for (int i = 0; i < pairs; i++) {
        k.tokens[i] = pair[i].k_tokens;
        k.tiles += burst_tiles(k.tokens[i].n, tile);
    }
    return k;
}

/* The lists of live tiles of the pairs, then the kernel; on the compute stream. */
template <class MASK>
static inline cudaError_t plan_forward_pairs(PlanState *s, BurstForward *pair, int pairs)
{
    constexpr int Q = BurstTiles<PLAN_HEAD_DIM, MASK, PLAN_VALUE_DIM>::FORWARD_Q,
                  K = BurstTiles<PLAN_HEAD_DIM, MASK, PLAN_VALUE_DIM>::FORWARD_K;
    const PlanLaunchKeys keys = plan_launch_keys(pair, pairs, K);
    const BurstTokens q = pair->q_tokens;
    cudaStream_t stream = burst_gpu_compute(s->exec);
    pair->lists = burst_lists_place(burst_tiles(q.n, Q), keys.tiles, false, s->buffer.lists);
    const cudaError_t e = burst_make_lists<MASK>(&q, 1, keys.tokens, pairs, Q, K, true, s->buffer.tile_sides,
                                                 pair->lists, stream);
    if (e != cudaSuccess)
        return e;
    return burst_forward<PLAN_HEAD_DIM, MASK, PLAN_VALUE_DIM>(pair, 1, pairs, s->multiprocessors, stream);
}

template <class MASK>
static inline cudaError_t plan_backward_pairs(PlanState *s, BurstBackward *pair, int pairs)
{
    constexpr int Q = BurstTiles<PLAN_HEAD_DIM, MASK, PLAN_VALUE_DIM>::BACKWARD_Q,
                  K = BurstTiles<PLAN_HEAD_DIM, MASK, PLAN_VALUE_DIM>::BACKWARD_K;
    const PlanLaunchKeys keys = plan_launch_keys(pair, pairs, K);
    const BurstTokens q = pair->q_tokens;
    cudaStream_t stream = burst_gpu_compute(s->exec);
    pair->lists = burst_lists_place(keys.tiles, burst_tiles(q.n, Q), PLAN_DETERMINISTIC, s->buffer.lists);
    const cudaError_t e = burst_make_lists<MASK>(&q, 1, keys.tokens, pairs, Q, K, false, s->buffer.tile_sides,
                                                 pair->lists, stream);
    if (e != cudaSuccess)
        return e;
    return burst_backward<PLAN_HEAD_DIM, MASK, PLAN_VALUE_DIM>(pair, 1, pairs, s->multiprocessors, stream);
}

template <class... MASK>
static inline cudaError_t plan_forward_of(PlanState *s, BurstForward *pair, int pairs)
{
    static cudaError_t (*const launch[])(PlanState *, BurstForward *, int) = {plan_forward_pairs<MASK>...};
    return launch[s->mask](s, pair, pairs);
}

template <class... MASK>
static inline cudaError_t plan_backward_of(PlanState *s, BurstBackward *pair, int pairs)
{
    static cudaError_t (*const launch[])(PlanState *, BurstBackward *, int) = {plan_backward_pairs<MASK>...};
    return launch[s->mask](s, pair, pairs);
}

template <class MASK> static inline cudaError_t plan_setup_of(void)
{
    const cudaError_t e = burst_forward_setup<PLAN_HEAD_DIM, MASK, PLAN_VALUE_DIM>();
    return e != cudaSuccess ? e : burst_backward_setup<PLAN_HEAD_DIM, MASK, PLAN_VALUE_DIM>();
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

static cudaError_t plan_launch_backward(PlanState *s, BurstBackward *pair, int pairs)
{
    return plan_backward_of<PLAN_KERNEL_MASKS>(s, pair, pairs);
}

static cudaError_t plan_launch_setup(void)
{
    return plan_setup_all<PLAN_KERNEL_MASKS>();
}
