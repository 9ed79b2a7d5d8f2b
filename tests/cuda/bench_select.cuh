/* Made by emit_masks from bench_select.burst; `ninja cuda_masks_update` makes it anew. */
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
    enum { TABLES = 0x0, ALL = 0, KEYS = 1, KEYS_BACKWARD = 0 }; /* templates/kernels/cuda_attention.cuh */
    static __device__ int tile(const BurstSide *q, const BurstSide *k) { return plan_mask0_tile(q, k); }
    static __device__ int keep(int32_t q, int32_t k, const int32_t *tq, const int32_t *tk)
    {
        return plan_mask0_keep(q, k, tq, tk);
    }
};

/* mask window(2048):
 *   k <= q and q - k < 2048 */
static __device__ BURST_MAYBE_UNUSED int plan_mask1_tile(const BurstSide *q, const BurstSide *k)
{
    const int c0 = burst_negative(burst_affine(-1, 1, -1), q, k); /* k <= q */
    const int c1 = burst_negative(burst_affine(1, -1, -2048), q, k); /* q - k < 2048 */
    return burst_and(c0, c1);
}

/* tq[t], tk[t]: the value of table t at q, at k. */
static __device__ BURST_MAYBE_UNUSED int plan_mask1_keep(int32_t q, int32_t k, const int32_t *tq, const int32_t *tk)
{
    (void)tq, (void)tk;
    const int c0 = k <= q; /* k <= q */
    const int c1 = (q - k) < 2048; /* q - k < 2048 */
    return (c0 & c1);
}

struct PlanMask1 {
    enum { TABLES = 0x0, ALL = 0, KEYS = 0, KEYS_BACKWARD = 0 }; /* templates/kernels/cuda_attention.cuh */
    static __device__ int tile(const BurstSide *q, const BurstSide *k) { return plan_mask1_tile(q, k); }
    static __device__ int keep(int32_t q, int32_t k, const int32_t *tq, const int32_t *tk)
    {
        return plan_mask1_keep(q, k, tq, tk);
    }
};

/* mask blocks:
 *   k <= q and (q / 128 == k / 128 or top(blocks)) */
static __device__ BURST_MAYBE_UNUSED int plan_mask2_tile(const BurstSide *q, const BurstSide *k)
{
    const int c0 = burst_negative(burst_affine(-1, 1, -1), q, k); /* k <= q */
    const int c1 = burst_zero(burst_form_sub(burst_form_div(burst_affine(1, 0, 0), 128, q, k), burst_form_div(burst_affine(0, 1, 0), 128, q, k)), q, k); /* q / 128 == k / 128 */
    const int c2 = burst_selected(k); /* top(blocks) */
    return burst_and(c0, burst_or(c1, c2));
}

/* tq[t], tk[t]: the value of table t at q, at k. */
static __device__ BURST_MAYBE_UNUSED int plan_mask2_keep(int32_t q, int32_t k, const int32_t *tq, const int32_t *tk)
{
    (void)tq, (void)tk;
    const int c0 = k <= q; /* k <= q */
    const int c1 = burst_floor_div32(q, 128) == burst_floor_div32(k, 128); /* q / 128 == k / 128 */
    const int c2 = tk[BURST_SELECT_TABLE]; /* top(blocks) */
    return (c0 & (c1 | c2));
}

struct PlanMask2 {
    enum { TABLES = 0x0, ALL = 0, KEYS = 0, KEYS_BACKWARD = 0 }; /* templates/kernels/cuda_attention.cuh */
    enum { CHOSEN_QUERIES = 128, CHOSEN_KEYS = 128 };
    static __device__ int tile(const BurstSide *q, const BurstSide *k) { return plan_mask2_tile(q, k); }
    static __device__ int keep(int32_t q, int32_t k, const int32_t *tq, const int32_t *tk)
    {
        return plan_mask2_keep(q, k, tq, tk);
    }
};

/* mask apart:
 *   k <= q and (q / 128 == k / 128 or top(apart)) */
static __device__ BURST_MAYBE_UNUSED int plan_mask3_tile(const BurstSide *q, const BurstSide *k)
{
    const int c0 = burst_negative(burst_affine(-1, 1, -1), q, k); /* k <= q */
    const int c1 = burst_zero(burst_form_sub(burst_form_div(burst_affine(1, 0, 0), 128, q, k), burst_form_div(burst_affine(0, 1, 0), 128, q, k)), q, k); /* q / 128 == k / 128 */
    const int c2 = burst_selected(k); /* top(apart) */
    return burst_and(c0, burst_or(c1, c2));
}

/* tq[t], tk[t]: the value of table t at q, at k. */
static __device__ BURST_MAYBE_UNUSED int plan_mask3_keep(int32_t q, int32_t k, const int32_t *tq, const int32_t *tk)
{
    (void)tq, (void)tk;
    const int c0 = k <= q; /* k <= q */
    const int c1 = burst_floor_div32(q, 128) == burst_floor_div32(k, 128); /* q / 128 == k / 128 */
    const int c2 = tk[BURST_SELECT_TABLE]; /* top(apart) */
    return (c0 & (c1 | c2));
}

struct PlanMask3 {
    enum { TABLES = 0x0, ALL = 0, KEYS = 0, KEYS_BACKWARD = 0 }; /* templates/kernels/cuda_attention.cuh */
    enum { CHOSEN_QUERIES = 128, CHOSEN_KEYS = 128 };
    static __device__ int tile(const BurstSide *q, const BurstSide *k) { return plan_mask3_tile(q, k); }
    static __device__ int keep(int32_t q, int32_t k, const int32_t *tq, const int32_t *tk)
    {
        return plan_mask3_keep(q, k, tq, tk);
    }
};

#define TEST_MASKS(X) X(0) X(1) X(2) X(3)
/* mask open to blocks:
 *   k <= q and not q / 128 == k / 128 */
static __device__ BURST_MAYBE_UNUSED int plan_mask4_tile(const BurstSide *q, const BurstSide *k)
{
    const int c0 = burst_negative(burst_affine(-1, 1, -1), q, k); /* k <= q */
    const int c1 = burst_zero(burst_form_sub(burst_form_div(burst_affine(1, 0, 0), 128, q, k), burst_form_div(burst_affine(0, 1, 0), 128, q, k)), q, k); /* q / 128 == k / 128 */
    return burst_and(c0, burst_not(c1));
}

/* tq[t], tk[t]: the value of table t at q, at k. */
static __device__ BURST_MAYBE_UNUSED int plan_mask4_keep(int32_t q, int32_t k, const int32_t *tq, const int32_t *tk)
{
    (void)tq, (void)tk;
    const int c0 = k <= q; /* k <= q */
    const int c1 = burst_floor_div32(q, 128) == burst_floor_div32(k, 128); /* q / 128 == k / 128 */
    return (c0 & (1 - c1));
}

struct PlanMask4 {
    enum { TABLES = 0x0, ALL = 0, KEYS = 0, KEYS_BACKWARD = 0 }; /* templates/kernels/cuda_attention.cuh */
    static __device__ int tile(const BurstSide *q, const BurstSide *k) { return plan_mask4_tile(q, k); }
    static __device__ int keep(int32_t q, int32_t k, const int32_t *tq, const int32_t *tk)
    {
        return plan_mask4_keep(q, k, tq, tk);
    }
};

/* mask open to apart:
 *   k <= q and not q / 128 == k / 128 */
static __device__ BURST_MAYBE_UNUSED int plan_mask5_tile(const BurstSide *q, const BurstSide *k)
{
    const int c0 = burst_negative(burst_affine(-1, 1, -1), q, k); /* k <= q */
    const int c1 = burst_zero(burst_form_sub(burst_form_div(burst_affine(1, 0, 0), 128, q, k), burst_form_div(burst_affine(0, 1, 0), 128, q, k)), q, k); /* q / 128 == k / 128 */
    return burst_and(c0, burst_not(c1));
}

/* tq[t], tk[t]: the value of table t at q, at k. */
static __device__ BURST_MAYBE_UNUSED int plan_mask5_keep(int32_t q, int32_t k, const int32_t *tq, const int32_t *tk)
{
    (void)tq, (void)tk;
    const int c0 = k <= q; /* k <= q */
    const int c1 = burst_floor_div32(q, 128) == burst_floor_div32(k, 128); /* q / 128 == k / 128 */
    return (c0 & (1 - c1));
}

struct PlanMask5 {
    enum { TABLES = 0x0, ALL = 0, KEYS = 0, KEYS_BACKWARD = 0 }; /* templates/kernels/cuda_attention.cuh */
    static __device__ int tile(const BurstSide *q, const BurstSide *k) { return plan_mask5_tile(q, k); }
    static __device__ int keep(int32_t q, int32_t k, const int32_t *tq, const int32_t *tk)
    {
        return plan_mask5_keep(q, k, tq, tk);
    }
};

#define TEST_OPEN(X) X(4) X(5)
