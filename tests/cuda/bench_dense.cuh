/* Made by emit_masks from bench_dense.burst; `ninja cuda_masks_update` makes it anew. */
/* mask causal:
 *   k <= q */
static __device__ BURST_MAYBE_UNUSED int plan_mask0_tile(const BurstSide *q, const BurstSide *k)
{
    const int c0 = burst_negative(burst_affine(-1, 1, -1), q, k); /* k <= q */
    return c0;
}

/* tq[t], tk[t]: the value of table t at q, at k. */
static __device__ BURST_MAYBE_UNUSED int plan_mask0_keep(int32_t q, int32_t k, const int32_t *tq, const int32_t *tk)
{
    (void)tq, (void)tk;
    const int c0 = k <= q; /* k <= q */
    return c0;
}

struct PlanMask0 {
    enum { TABLES = 0x0, ALL = 0, KEYS = 0, KEYS_BACKWARD = 0 }; /* templates/kernels/cuda_attention.cuh */
    static __device__ int tile(const BurstSide *q, const BurstSide *k) { return plan_mask0_tile(q, k); }
    static __device__ int keep(int32_t q, int32_t k, const int32_t *tq, const int32_t *tk)
    {
        return plan_mask0_keep(q, k, tq, tk);
    }
};

/* mask full:
 *   true */
static __device__ BURST_MAYBE_UNUSED int plan_mask1_tile(const BurstSide *q, const BurstSide *k)
{
    (void)q;
    (void)k;
    return BURST_FULL;
}

/* tq[t], tk[t]: the value of table t at q, at k. */
static __device__ BURST_MAYBE_UNUSED int plan_mask1_keep(int32_t q, int32_t k, const int32_t *tq, const int32_t *tk)
{
    (void)tq, (void)tk;
    (void)q;
    (void)k;
    return 1;
}

struct PlanMask1 {
    enum { TABLES = 0x0, ALL = 1, KEYS = 1, KEYS_BACKWARD = 0 }; /* templates/kernels/cuda_attention.cuh */
    static __device__ int tile(const BurstSide *q, const BurstSide *k) { return plan_mask1_tile(q, k); }
    static __device__ int keep(int32_t q, int32_t k, const int32_t *tq, const int32_t *tk)
    {
        return plan_mask1_keep(q, k, tq, tk);
    }
};

#define TEST_MASKS(X) X(0) X(1)
