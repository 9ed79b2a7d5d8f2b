/* ---- launches of attention, for one pair of chunks or for the whole sequence ---- */

/* The lists of live tiles of the pair, then the kernel; on the compute stream. */
template <class MASK> static cudaError_t plan_forward_pair(PlanState *s, BurstForward p)
{
    constexpr int Q = BurstTiles<PLAN_HEAD_DIM, MASK>::FORWARD_Q, K = BurstTiles<PLAN_HEAD_DIM, MASK>::FORWARD_K;
    cudaStream_t stream = burst_gpu_compute(s->exec);
    p.lists = burst_lists_place(burst_tiles(p.q_tokens.n, Q), burst_tiles(p.k_tokens.n, K), s->lists);
    const cudaError_t e = burst_make_lists<MASK>(p.q_tokens, p.k_tokens, Q, K, true, s->tile_sides, p.lists, stream);
    return e != cudaSuccess ? e : burst_forward<PLAN_HEAD_DIM, MASK>(p, s->multiprocessors, stream);
}

template <class MASK> static cudaError_t plan_backward_pair(PlanState *s, BurstBackward p)
{
    constexpr int Q = BurstTiles<PLAN_HEAD_DIM, MASK>::BACKWARD_Q, K = BurstTiles<PLAN_HEAD_DIM, MASK>::BACKWARD_K;
    cudaStream_t stream = burst_gpu_compute(s->exec);
    p.lists = burst_lists_place(burst_tiles(p.k_tokens.n, K), burst_tiles(p.q_tokens.n, Q), s->lists);
    const cudaError_t e = burst_make_lists<MASK>(p.q_tokens, p.k_tokens, Q, K, false, s->tile_sides, p.lists, stream);
    return e != cudaSuccess ? e : burst_backward<PLAN_HEAD_DIM, MASK>(p, s->multiprocessors, stream);
}

// @insert launches

/* What forward and backward ask of a pair. Rows of Q, dO and KV are token-major. */
static BurstRows plan_rows(char *at, int heads)
{
    BurstRows r = {(BurstBf16 *)at, (int64_t)heads * PLAN_HEAD_DIM, PLAN_HEAD_DIM};
    return r;
}
