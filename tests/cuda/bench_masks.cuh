/* Made by emit_masks from bench_masks.burst; `ninja cuda_masks_update` makes it anew. */
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

/* mask window(4096):
 *   k <= q and q - k < 4096 */
static __device__ BURST_MAYBE_UNUSED int plan_mask1_tile(const BurstSide *q, const BurstSide *k)
{
    const int c0 = burst_negative(burst_affine(-1, 1, -1), q, k); /* k <= q */
    const int c1 = burst_negative(burst_affine(1, -1, -4096), q, k); /* q - k < 4096 */
    return burst_and(c0, c1);
}

/* tq[t], tk[t]: the value of table t at q, at k. */
static __device__ BURST_MAYBE_UNUSED int plan_mask1_keep(int32_t q, int32_t k, const int32_t *tq, const int32_t *tk)
{
    (void)tq, (void)tk;
    const int c0 = k <= q; /* k <= q */
    const int c1 = (q - k) < 4096; /* q - k < 4096 */
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

/* mask window(1024):
 *   k <= q and q - k < 1024 */
static __device__ BURST_MAYBE_UNUSED int plan_mask2_tile(const BurstSide *q, const BurstSide *k)
{
    const int c0 = burst_negative(burst_affine(-1, 1, -1), q, k); /* k <= q */
    const int c1 = burst_negative(burst_affine(1, -1, -1024), q, k); /* q - k < 1024 */
    return burst_and(c0, c1);
}

/* tq[t], tk[t]: the value of table t at q, at k. */
static __device__ BURST_MAYBE_UNUSED int plan_mask2_keep(int32_t q, int32_t k, const int32_t *tq, const int32_t *tk)
{
    (void)tq, (void)tk;
    const int c0 = k <= q; /* k <= q */
    const int c1 = (q - k) < 1024; /* q - k < 1024 */
    return (c0 & c1);
}

struct PlanMask2 {
    enum { TABLES = 0x0, ALL = 0, KEYS = 0, KEYS_BACKWARD = 0 }; /* templates/kernels/cuda_attention.cuh */
    static __device__ int tile(const BurstSide *q, const BurstSide *k) { return plan_mask2_tile(q, k); }
    static __device__ int keep(int32_t q, int32_t k, const int32_t *tq, const int32_t *tk)
    {
        return plan_mask2_keep(q, k, tq, tk);
    }
};

/* mask document:
 *   k <= q and doc[q] == doc[k] */
static __device__ BURST_MAYBE_UNUSED int plan_mask3_tile(const BurstSide *q, const BurstSide *k)
{
    const int c0 = burst_negative(burst_affine(-1, 1, -1), q, k); /* k <= q */
    const int c1 = burst_zero(burst_form_sub(burst_table(q, 0), burst_table(k, 0)), q, k); /* doc[q] == doc[k] */
    return burst_and(c0, c1);
}

/* tq[t], tk[t]: the value of table t at q, at k. */
static __device__ BURST_MAYBE_UNUSED int plan_mask3_keep(int32_t q, int32_t k, const int32_t *tq, const int32_t *tk)
{
    (void)tq, (void)tk;
    const int c0 = k <= q; /* k <= q */
    const int c1 = tq[0] == tk[0]; /* doc[q] == doc[k] */
    return (c0 & c1);
}

struct PlanMask3 {
    enum { TABLES = 0x1, ALL = 0, KEYS = 0, KEYS_BACKWARD = 0 }; /* templates/kernels/cuda_attention.cuh */
    static __device__ int tile(const BurstSide *q, const BurstSide *k) { return plan_mask3_tile(q, k); }
    static __device__ int keep(int32_t q, int32_t k, const int32_t *tq, const int32_t *tk)
    {
        return plan_mask3_keep(q, k, tq, tk);
    }
};

/* mask window_sink(4096, 64):
 *   k <= q and (q - k < 4096 or k < 64) */
static __device__ BURST_MAYBE_UNUSED int plan_mask4_tile(const BurstSide *q, const BurstSide *k)
{
    const int c0 = burst_negative(burst_affine(-1, 1, -1), q, k); /* k <= q */
    const int c1 = burst_negative(burst_affine(1, -1, -4096), q, k); /* q - k < 4096 */
    const int c2 = burst_negative(burst_affine(0, 1, -64), q, k); /* k < 64 */
    return burst_and(c0, burst_or(c1, c2));
}

/* tq[t], tk[t]: the value of table t at q, at k. */
static __device__ BURST_MAYBE_UNUSED int plan_mask4_keep(int32_t q, int32_t k, const int32_t *tq, const int32_t *tk)
{
    (void)tq, (void)tk;
    const int c0 = k <= q; /* k <= q */
    const int c1 = (q - k) < 4096; /* q - k < 4096 */
    const int c2 = k < 64; /* k < 64 */
    return (c0 & (c1 | c2));
}

struct PlanMask4 {
    enum { TABLES = 0x0, ALL = 0, KEYS = 0, KEYS_BACKWARD = 0 }; /* templates/kernels/cuda_attention.cuh */
    static __device__ int tile(const BurstSide *q, const BurstSide *k) { return plan_mask4_tile(q, k); }
    static __device__ int keep(int32_t q, int32_t k, const int32_t *tq, const int32_t *tk)
    {
        return plan_mask4_keep(q, k, tq, tk);
    }
};

/* mask prefix_lm(4096):
 *   k <= q or k < 4096 */
static __device__ BURST_MAYBE_UNUSED int plan_mask5_tile(const BurstSide *q, const BurstSide *k)
{
    const int c0 = burst_negative(burst_affine(-1, 1, -1), q, k); /* k <= q */
    const int c1 = burst_negative(burst_affine(0, 1, -4096), q, k); /* k < 4096 */
    return burst_or(c0, c1);
}

/* tq[t], tk[t]: the value of table t at q, at k. */
static __device__ BURST_MAYBE_UNUSED int plan_mask5_keep(int32_t q, int32_t k, const int32_t *tq, const int32_t *tk)
{
    (void)tq, (void)tk;
    const int c0 = k <= q; /* k <= q */
    const int c1 = k < 4096; /* k < 4096 */
    return (c0 | c1);
}

struct PlanMask5 {
    enum { TABLES = 0x0, ALL = 0, KEYS = 1, KEYS_BACKWARD = 0 }; /* templates/kernels/cuda_attention.cuh */
    static __device__ int tile(const BurstSide *q, const BurstSide *k) { return plan_mask5_tile(q, k); }
    static __device__ int keep(int32_t q, int32_t k, const int32_t *tq, const int32_t *tk)
    {
        return plan_mask5_keep(q, k, tq, tk);
    }
};

/* mask bigbird(64, 1, 3, 5):
 *   k <= q and (k / 64 < 1 or q / 64 - k / 64 < 3 or hash(q / 64, k / 64) mod 5 == 0) */
static __device__ BURST_MAYBE_UNUSED int plan_mask6_tile(const BurstSide *q, const BurstSide *k)
{
    const int c0 = burst_negative(burst_affine(-1, 1, -1), q, k); /* k <= q */
    const int c1 = burst_negative(burst_form_sub(burst_form_div(burst_affine(0, 1, 0), 64, q, k), burst_affine(0, 0, 1)), q, k); /* k / 64 < 1 */
    const int c2 = burst_negative(burst_form_sub(burst_form_sub(burst_form_div(burst_affine(1, 0, 0), 64, q, k), burst_form_div(burst_affine(0, 1, 0), 64, q, k)), burst_affine(0, 0, 3)), q, k); /* q / 64 - k / 64 < 3 */
    const int c3 = burst_zero(burst_form_sub(burst_form_hash(burst_form_div(burst_affine(1, 0, 0), 64, q, k), burst_form_div(burst_affine(0, 1, 0), 64, q, k), 5, q, k), burst_affine(0, 0, 0)), q, k); /* hash(q / 64, k / 64) mod 5 == 0 */
    return burst_and(c0, burst_or(burst_or(c1, c2), c3));
}

/* tq[t], tk[t]: the value of table t at q, at k. */
static __device__ BURST_MAYBE_UNUSED int plan_mask6_keep(int32_t q, int32_t k, const int32_t *tq, const int32_t *tk)
{
    (void)tq, (void)tk;
    const int c0 = k <= q; /* k <= q */
    const int c1 = burst_floor_div32(k, 64) < 1; /* k / 64 < 1 */
    const int c2 = (burst_floor_div32(q, 64) - burst_floor_div32(k, 64)) < 3; /* q / 64 - k / 64 < 3 */
    const int c3 = burst_floor_mod32(burst_hash32(burst_floor_div32(q, 64), burst_floor_div32(k, 64)), 5) == 0; /* hash(q / 64, k / 64) mod 5 == 0 */
    return (c0 & ((c1 | c2) | c3));
}

struct PlanMask6 {
    enum { TABLES = 0x0, ALL = 0, KEYS = 2, KEYS_BACKWARD = 2 }; /* templates/kernels/cuda_attention.cuh */
    static __device__ int tile(const BurstSide *q, const BurstSide *k) { return plan_mask6_tile(q, k); }
    static __device__ int keep(int32_t q, int32_t k, const int32_t *tq, const int32_t *tk)
    {
        return plan_mask6_keep(q, k, tq, tk);
    }
};

/* mask landmarks:
 *   k <= q and (q - k < 4096 or k mod 1024 < 128) */
static __device__ BURST_MAYBE_UNUSED int plan_mask7_tile(const BurstSide *q, const BurstSide *k)
{
    const int c0 = burst_negative(burst_affine(-1, 1, -1), q, k); /* k <= q */
    const int c1 = burst_negative(burst_affine(1, -1, -4096), q, k); /* q - k < 4096 */
    const int c2 = burst_negative(burst_form_sub(burst_form_mod(burst_affine(0, 1, 0), 1024, q, k), burst_affine(0, 0, 128)), q, k); /* k mod 1024 < 128 */
    return burst_and(c0, burst_or(c1, c2));
}

/* tq[t], tk[t]: the value of table t at q, at k. */
static __device__ BURST_MAYBE_UNUSED int plan_mask7_keep(int32_t q, int32_t k, const int32_t *tq, const int32_t *tk)
{
    (void)tq, (void)tk;
    const int c0 = k <= q; /* k <= q */
    const int c1 = (q - k) < 4096; /* q - k < 4096 */
    const int c2 = burst_floor_mod32(k, 1024) < 128; /* k mod 1024 < 128 */
    return (c0 & (c1 | c2));
}

struct PlanMask7 {
    enum { TABLES = 0x0, ALL = 0, KEYS = 0, KEYS_BACKWARD = 0 }; /* templates/kernels/cuda_attention.cuh */
    static __device__ int tile(const BurstSide *q, const BurstSide *k) { return plan_mask7_tile(q, k); }
    static __device__ int keep(int32_t q, int32_t k, const int32_t *tq, const int32_t *tk)
    {
        return plan_mask7_keep(q, k, tq, tk);
    }
};

/* mask halves:
 *   k <= q and (q - k < 1024 or k mod 512 < 64) */
static __device__ BURST_MAYBE_UNUSED int plan_mask8_tile(const BurstSide *q, const BurstSide *k)
{
    const int c0 = burst_negative(burst_affine(-1, 1, -1), q, k); /* k <= q */
    const int c1 = burst_negative(burst_affine(1, -1, -1024), q, k); /* q - k < 1024 */
    const int c2 = burst_negative(burst_form_sub(burst_form_mod(burst_affine(0, 1, 0), 512, q, k), burst_affine(0, 0, 64)), q, k); /* k mod 512 < 64 */
    return burst_and(c0, burst_or(c1, c2));
}

/* tq[t], tk[t]: the value of table t at q, at k. */
static __device__ BURST_MAYBE_UNUSED int plan_mask8_keep(int32_t q, int32_t k, const int32_t *tq, const int32_t *tk)
{
    (void)tq, (void)tk;
    const int c0 = k <= q; /* k <= q */
    const int c1 = (q - k) < 1024; /* q - k < 1024 */
    const int c2 = burst_floor_mod32(k, 512) < 64; /* k mod 512 < 64 */
    return (c0 & (c1 | c2));
}

struct PlanMask8 {
    enum { TABLES = 0x0, ALL = 0, KEYS = 2, KEYS_BACKWARD = 2 }; /* templates/kernels/cuda_attention.cuh */
    static __device__ int tile(const BurstSide *q, const BurstSide *k) { return plan_mask8_tile(q, k); }
    static __device__ int keep(int32_t q, int32_t k, const int32_t *tq, const int32_t *tk)
    {
        return plan_mask8_keep(q, k, tq, tk);
    }
};

#define TEST_MASKS(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8)
