/* burst_pairs_cuda.cuh: launches of attention, for one pair of chunks or for the whole sequence.
 *
 * The program has included the kernels and defined PLAN_KERNEL_MASKS: the masks as kernels take them, by number.
 */

/* The lists of live tiles of the pair, then the kernel; on the compute stream. */
template <class MASK> static inline cudaError_t plan_forward_pair(PlanState *s, BurstForward p)
{
    constexpr int Q = BurstTiles<PLAN_HEAD_DIM, MASK>::FORWARD_Q, K = BurstTiles<PLAN_HEAD_DIM, MASK>::FORWARD_K;
    cudaStream_t stream = burst_gpu_compute(s->exec);
    p.lists = burst_lists_place(burst_tiles(p.q_tokens.n, Q), burst_tiles(p.k_tokens.n, K), false, s->buffer.lists);
    const cudaError_t e = burst_make_lists<MASK>(p.q_tokens, p.k_tokens, Q, K, true, s->buffer.tile_sides, p.lists, stream);
    return e != cudaSuccess ? e : burst_forward<PLAN_HEAD_DIM, MASK>(p, s->multiprocessors, stream);
}

template <class MASK> static inline cudaError_t plan_backward_pair(PlanState *s, BurstBackward p)
{
    constexpr int Q = BurstTiles<PLAN_HEAD_DIM, MASK>::BACKWARD_Q, K = BurstTiles<PLAN_HEAD_DIM, MASK>::BACKWARD_K;
    cudaStream_t stream = burst_gpu_compute(s->exec);
    p.lists = burst_lists_place(burst_tiles(p.k_tokens.n, K), burst_tiles(p.q_tokens.n, Q), PLAN_DETERMINISTIC, s->buffer.lists);
    const cudaError_t e = burst_make_lists<MASK>(p.q_tokens, p.k_tokens, Q, K, false, s->buffer.tile_sides, p.lists, stream);
    return e != cudaSuccess ? e : burst_backward<PLAN_HEAD_DIM, MASK>(p, s->multiprocessors, stream);
}

template <class... MASK> static inline cudaError_t plan_forward_of(PlanState *s, BurstForward p)
{
    static cudaError_t (*const pair[])(PlanState *, BurstForward) = {plan_forward_pair<MASK>...};
    return pair[s->mask](s, p);
}

template <class... MASK> static inline cudaError_t plan_backward_of(PlanState *s, BurstBackward p)
{
    static cudaError_t (*const pair[])(PlanState *, BurstBackward) = {plan_backward_pair<MASK>...};
    return pair[s->mask](s, p);
}

template <class MASK> static inline cudaError_t plan_setup_of(void)
{
    const cudaError_t e = burst_forward_setup<PLAN_HEAD_DIM, MASK>();
    return e != cudaSuccess ? e : burst_backward_setup<PLAN_HEAD_DIM, MASK>();
}

template <class... MASK> static inline cudaError_t plan_setup_all(void)
{
    cudaError_t e = cudaSuccess;
    ((e = e != cudaSuccess ? e : plan_setup_of<MASK>()), ...);
    return e;
}

static cudaError_t plan_launch_forward(PlanState *s, BurstForward p)
{
    return plan_forward_of<PLAN_KERNEL_MASKS>(s, p);
}

static cudaError_t plan_launch_backward(PlanState *s, BurstBackward p)
{
    return plan_backward_of<PLAN_KERNEL_MASKS>(s, p);
}

static cudaError_t plan_launch_setup(void)
{
    return plan_setup_all<PLAN_KERNEL_MASKS>();
}
