/* Made by emit_masks from select.burst; `ninja cuda_masks_update` makes it anew. */
/* mask plain:
 *   k <= q and (q / 128 == k / 128 or top(plain)) */
static __device__ BURST_MAYBE_UNUSED int plan_mask0_tile(const BurstSide *q, const BurstSide *k)
{
    const int c0 = burst_negative(burst_affine(-1, 1, -1), q, k); /* k <= q */
    const int c1 = burst_zero(burst_form_sub(burst_form_div(burst_affine(1, 0, 0), 128, q, k), burst_form_div(burst_affine(0, 1, 0), 128, q, k)), q, k); /* q / 128 == k / 128 */
    const int c2 = burst_selected(k); /* top(plain) */
    return burst_and(c0, burst_or(c1, c2));
}

/* tq[t], tk[t]: the value of table t at q, at k. */
static __device__ BURST_MAYBE_UNUSED int plan_mask0_keep(int32_t q, int32_t k, const int32_t *tq, const int32_t *tk)
{
    (void)tq, (void)tk;
    const int c0 = k <= q; /* k <= q */
    const int c1 = burst_floor_div32(q, 128) == burst_floor_div32(k, 128); /* q / 128 == k / 128 */
    const int c2 = tk[BURST_SELECT_TABLE]; /* top(plain) */
    return (c0 & (c1 | c2));
}

struct PlanMask0 {
    enum { TABLES = 0x0, ALL = 0, KEYS = 0, KEYS_BACKWARD = 0 }; /* templates/kernels/cuda_attention.cuh */
    enum { CHOSEN_QUERIES = 128, CHOSEN_KEYS = 128 };
    static __device__ int tile(const BurstSide *q, const BurstSide *k) { return plan_mask0_tile(q, k); }
    static __device__ int keep(int32_t q, int32_t k, const int32_t *tq, const int32_t *tk)
    {
        return plan_mask0_keep(q, k, tq, tk);
    }
};

/* mask limits:
 *   k <= q and (q / 128 == k / 128 or k < 64 or top(limits)) */
static __device__ BURST_MAYBE_UNUSED int plan_mask1_tile(const BurstSide *q, const BurstSide *k)
{
    const int c0 = burst_negative(burst_affine(-1, 1, -1), q, k); /* k <= q */
    const int c1 = burst_zero(burst_form_sub(burst_form_div(burst_affine(1, 0, 0), 128, q, k), burst_form_div(burst_affine(0, 1, 0), 128, q, k)), q, k); /* q / 128 == k / 128 */
    const int c2 = burst_negative(burst_affine(0, 1, -64), q, k); /* k < 64 */
    const int c3 = burst_selected(k); /* top(limits) */
    return burst_and(c0, burst_or(burst_or(c1, c2), c3));
}

/* tq[t], tk[t]: the value of table t at q, at k. */
static __device__ BURST_MAYBE_UNUSED int plan_mask1_keep(int32_t q, int32_t k, const int32_t *tq, const int32_t *tk)
{
    (void)tq, (void)tk;
    const int c0 = k <= q; /* k <= q */
    const int c1 = burst_floor_div32(q, 128) == burst_floor_div32(k, 128); /* q / 128 == k / 128 */
    const int c2 = k < 64; /* k < 64 */
    const int c3 = tk[BURST_SELECT_TABLE]; /* top(limits) */
    return (c0 & ((c1 | c2) | c3));
}

struct PlanMask1 {
    enum { TABLES = 0x0, ALL = 0, KEYS = 2, KEYS_BACKWARD = 2 }; /* templates/kernels/cuda_attention.cuh */
    enum { CHOSEN_QUERIES = 128, CHOSEN_KEYS = 64 };
    static __device__ int tile(const BurstSide *q, const BurstSide *k) { return plan_mask1_tile(q, k); }
    static __device__ int keep(int32_t q, int32_t k, const int32_t *tq, const int32_t *tk)
    {
        return plan_mask1_keep(q, k, tq, tk);
    }
};

/* mask documents:
 *   k <= q and doc[q] == doc[k] and (q / 128 == k / 128 or top(documents)) */
static __device__ BURST_MAYBE_UNUSED int plan_mask2_tile(const BurstSide *q, const BurstSide *k)
{
    const int c0 = burst_negative(burst_affine(-1, 1, -1), q, k); /* k <= q */
    const int c1 = burst_zero(burst_form_sub(burst_table(q, 0), burst_table(k, 0)), q, k); /* doc[q] == doc[k] */
    const int c2 = burst_zero(burst_form_sub(burst_form_div(burst_affine(1, 0, 0), 128, q, k), burst_form_div(burst_affine(0, 1, 0), 128, q, k)), q, k); /* q / 128 == k / 128 */
    const int c3 = burst_selected(k); /* top(documents) */
    return burst_and(burst_and(c0, c1), burst_or(c2, c3));
}

/* tq[t], tk[t]: the value of table t at q, at k. */
static __device__ BURST_MAYBE_UNUSED int plan_mask2_keep(int32_t q, int32_t k, const int32_t *tq, const int32_t *tk)
{
    (void)tq, (void)tk;
    const int c0 = k <= q; /* k <= q */
    const int c1 = tq[0] == tk[0]; /* doc[q] == doc[k] */
    const int c2 = burst_floor_div32(q, 128) == burst_floor_div32(k, 128); /* q / 128 == k / 128 */
    const int c3 = tk[BURST_SELECT_TABLE]; /* top(documents) */
    return ((c0 & c1) & (c2 | c3));
}

struct PlanMask2 {
    enum { TABLES = 0x1, ALL = 0, KEYS = 2, KEYS_BACKWARD = 2 }; /* templates/kernels/cuda_attention.cuh */
    enum { CHOSEN_QUERIES = 128, CHOSEN_KEYS = 32 };
    static __device__ int tile(const BurstSide *q, const BurstSide *k) { return plan_mask2_tile(q, k); }
    static __device__ int keep(int32_t q, int32_t k, const int32_t *tq, const int32_t *tk)
    {
        return plan_mask2_keep(q, k, tq, tk);
    }
};

/* mask both:
 *   top(both) */
static __device__ BURST_MAYBE_UNUSED int plan_mask3_tile(const BurstSide *q, const BurstSide *k)
{
    (void)q;
    const int c0 = burst_selected(k); /* top(both) */
    return c0;
}

/* tq[t], tk[t]: the value of table t at q, at k. */
static __device__ BURST_MAYBE_UNUSED int plan_mask3_keep(int32_t q, int32_t k, const int32_t *tq, const int32_t *tk)
{
    (void)tq, (void)tk;
    (void)q;
    (void)k;
    const int c0 = tk[BURST_SELECT_TABLE]; /* top(both) */
    return c0;
}

struct PlanMask3 {
    enum { TABLES = 0x0, ALL = 0, KEYS = 2, KEYS_BACKWARD = 2 }; /* templates/kernels/cuda_attention.cuh */
    enum { CHOSEN_QUERIES = 128, CHOSEN_KEYS = 48 };
    static __device__ int tile(const BurstSide *q, const BurstSide *k) { return plan_mask3_tile(q, k); }
    static __device__ int keep(int32_t q, int32_t k, const int32_t *tq, const int32_t *tk)
    {
        return plan_mask3_keep(q, k, tq, tk);
    }
};

/* mask near:
 *   k <= q and q - k < 1000 and (q < 700 or k >= 700) and (q / 128 == k / 128 and q mod 5 != 0 or top(near)) */
static __device__ BURST_MAYBE_UNUSED int plan_mask4_tile(const BurstSide *q, const BurstSide *k)
{
    const int c0 = burst_negative(burst_affine(-1, 1, -1), q, k); /* k <= q */
    const int c1 = burst_negative(burst_affine(1, -1, -1000), q, k); /* q - k < 1000 */
    const int c2 = burst_negative(burst_affine(1, 0, -700), q, k); /* q < 700 */
    const int c3 = burst_negative(burst_affine(0, -1, 699), q, k); /* k >= 700 */
    const int c4 = burst_zero(burst_form_sub(burst_form_div(burst_affine(1, 0, 0), 128, q, k), burst_form_div(burst_affine(0, 1, 0), 128, q, k)), q, k); /* q / 128 == k / 128 */
    const int c5 = burst_not(burst_zero(burst_form_sub(burst_form_mod(burst_affine(1, 0, 0), 5, q, k), burst_affine(0, 0, 0)), q, k)); /* q mod 5 != 0 */
    const int c6 = burst_selected(k); /* top(near) */
    return burst_and(burst_and(c0, c1), burst_and(burst_or(c2, c3), burst_or(burst_and(c4, c5), c6)));
}

/* tq[t], tk[t]: the value of table t at q, at k. */
static __device__ BURST_MAYBE_UNUSED int plan_mask4_keep(int32_t q, int32_t k, const int32_t *tq, const int32_t *tk)
{
    (void)tq, (void)tk;
    const int c0 = k <= q; /* k <= q */
    const int c1 = (q - k) < 1000; /* q - k < 1000 */
    const int c2 = q < 700; /* q < 700 */
    const int c3 = k >= 700; /* k >= 700 */
    const int c4 = burst_floor_div32(q, 128) == burst_floor_div32(k, 128); /* q / 128 == k / 128 */
    const int c5 = burst_floor_mod32(q, 5) != 0; /* q mod 5 != 0 */
    const int c6 = tk[BURST_SELECT_TABLE]; /* top(near) */
    return ((c0 & c1) & ((c2 | c3) & ((c4 & c5) | c6)));
}

struct PlanMask4 {
    enum { TABLES = 0x0, ALL = 0, KEYS = 0, KEYS_BACKWARD = 0 }; /* templates/kernels/cuda_attention.cuh */
    enum { CHOSEN_QUERIES = 128, CHOSEN_KEYS = 256 };
    static __device__ int tile(const BurstSide *q, const BurstSide *k) { return plan_mask4_tile(q, k); }
    static __device__ int keep(int32_t q, int32_t k, const int32_t *tq, const int32_t *tk)
    {
        return plan_mask4_keep(q, k, tq, tk);
    }
};

/* mask causal:
 *   k <= q */
static __device__ BURST_MAYBE_UNUSED int plan_mask5_tile(const BurstSide *q, const BurstSide *k)
{
    const int c0 = burst_negative(burst_affine(-1, 1, -1), q, k); /* k <= q */
    return c0;
}

/* tq[t], tk[t]: the value of table t at q, at k. */
static __device__ BURST_MAYBE_UNUSED int plan_mask5_keep(int32_t q, int32_t k, const int32_t *tq, const int32_t *tk)
{
    (void)tq, (void)tk;
    const int c0 = k <= q; /* k <= q */
    return c0;
}

struct PlanMask5 {
    enum { TABLES = 0x0, ALL = 0, KEYS = 0, KEYS_BACKWARD = 0 }; /* templates/kernels/cuda_attention.cuh */
    static __device__ int tile(const BurstSide *q, const BurstSide *k) { return plan_mask5_tile(q, k); }
    static __device__ int keep(int32_t q, int32_t k, const int32_t *tq, const int32_t *tk)
    {
        return plan_mask5_keep(q, k, tq, tk);
    }
};

#define TEST_MASKS(X) X(0) X(1) X(2) X(3) X(4) X(5)
/* mask open to plain:
 *   k <= q and not q / 128 == k / 128 */
static __device__ BURST_MAYBE_UNUSED int plan_mask6_tile(const BurstSide *q, const BurstSide *k)
{
    const int c0 = burst_negative(burst_affine(-1, 1, -1), q, k); /* k <= q */
    const int c1 = burst_zero(burst_form_sub(burst_form_div(burst_affine(1, 0, 0), 128, q, k), burst_form_div(burst_affine(0, 1, 0), 128, q, k)), q, k); /* q / 128 == k / 128 */
    return burst_and(c0, burst_not(c1));
}

/* tq[t], tk[t]: the value of table t at q, at k. */
static __device__ BURST_MAYBE_UNUSED int plan_mask6_keep(int32_t q, int32_t k, const int32_t *tq, const int32_t *tk)
{
    (void)tq, (void)tk;
    const int c0 = k <= q; /* k <= q */
    const int c1 = burst_floor_div32(q, 128) == burst_floor_div32(k, 128); /* q / 128 == k / 128 */
    return (c0 & (1 - c1));
}

struct PlanMask6 {
    enum { TABLES = 0x0, ALL = 0, KEYS = 0, KEYS_BACKWARD = 0 }; /* templates/kernels/cuda_attention.cuh */
    static __device__ int tile(const BurstSide *q, const BurstSide *k) { return plan_mask6_tile(q, k); }
    static __device__ int keep(int32_t q, int32_t k, const int32_t *tq, const int32_t *tk)
    {
        return plan_mask6_keep(q, k, tq, tk);
    }
};

/* mask open to limits:
 *   k <= q and not (q / 128 == k / 128 or k < 64) */
static __device__ BURST_MAYBE_UNUSED int plan_mask7_tile(const BurstSide *q, const BurstSide *k)
{
    const int c0 = burst_negative(burst_affine(-1, 1, -1), q, k); /* k <= q */
    const int c1 = burst_zero(burst_form_sub(burst_form_div(burst_affine(1, 0, 0), 128, q, k), burst_form_div(burst_affine(0, 1, 0), 128, q, k)), q, k); /* q / 128 == k / 128 */
    const int c2 = burst_negative(burst_affine(0, 1, -64), q, k); /* k < 64 */
    return burst_and(c0, burst_not(burst_or(c1, c2)));
}

/* tq[t], tk[t]: the value of table t at q, at k. */
static __device__ BURST_MAYBE_UNUSED int plan_mask7_keep(int32_t q, int32_t k, const int32_t *tq, const int32_t *tk)
{
    (void)tq, (void)tk;
    const int c0 = k <= q; /* k <= q */
    const int c1 = burst_floor_div32(q, 128) == burst_floor_div32(k, 128); /* q / 128 == k / 128 */
    const int c2 = k < 64; /* k < 64 */
    return (c0 & (1 - (c1 | c2)));
}

struct PlanMask7 {
    enum { TABLES = 0x0, ALL = 0, KEYS = 0, KEYS_BACKWARD = 0 }; /* templates/kernels/cuda_attention.cuh */
    static __device__ int tile(const BurstSide *q, const BurstSide *k) { return plan_mask7_tile(q, k); }
    static __device__ int keep(int32_t q, int32_t k, const int32_t *tq, const int32_t *tk)
    {
        return plan_mask7_keep(q, k, tq, tk);
    }
};

/* mask open to documents:
 *   k <= q and doc[q] == doc[k] and not q / 128 == k / 128 */
static __device__ BURST_MAYBE_UNUSED int plan_mask8_tile(const BurstSide *q, const BurstSide *k)
{
    const int c0 = burst_negative(burst_affine(-1, 1, -1), q, k); /* k <= q */
    const int c1 = burst_zero(burst_form_sub(burst_table(q, 0), burst_table(k, 0)), q, k); /* doc[q] == doc[k] */
    const int c2 = burst_zero(burst_form_sub(burst_form_div(burst_affine(1, 0, 0), 128, q, k), burst_form_div(burst_affine(0, 1, 0), 128, q, k)), q, k); /* q / 128 == k / 128 */
    return burst_and(burst_and(c0, c1), burst_not(c2));
}

/* tq[t], tk[t]: the value of table t at q, at k. */
static __device__ BURST_MAYBE_UNUSED int plan_mask8_keep(int32_t q, int32_t k, const int32_t *tq, const int32_t *tk)
{
    (void)tq, (void)tk;
    const int c0 = k <= q; /* k <= q */
    const int c1 = tq[0] == tk[0]; /* doc[q] == doc[k] */
    const int c2 = burst_floor_div32(q, 128) == burst_floor_div32(k, 128); /* q / 128 == k / 128 */
    return ((c0 & c1) & (1 - c2));
}

struct PlanMask8 {
    enum { TABLES = 0x1, ALL = 0, KEYS = 0, KEYS_BACKWARD = 0 }; /* templates/kernels/cuda_attention.cuh */
    static __device__ int tile(const BurstSide *q, const BurstSide *k) { return plan_mask8_tile(q, k); }
    static __device__ int keep(int32_t q, int32_t k, const int32_t *tq, const int32_t *tk)
    {
        return plan_mask8_keep(q, k, tq, tk);
    }
};

/* mask open to both:
 *   true */
static __device__ BURST_MAYBE_UNUSED int plan_mask9_tile(const BurstSide *q, const BurstSide *k)
{
    (void)q;
    (void)k;
    return BURST_FULL;
}

/* tq[t], tk[t]: the value of table t at q, at k. */
static __device__ BURST_MAYBE_UNUSED int plan_mask9_keep(int32_t q, int32_t k, const int32_t *tq, const int32_t *tk)
{
    (void)tq, (void)tk;
    (void)q;
    (void)k;
    return 1;
}

struct PlanMask9 {
    enum { TABLES = 0x0, ALL = 1, KEYS = 0, KEYS_BACKWARD = 0 }; /* templates/kernels/cuda_attention.cuh */
    static __device__ int tile(const BurstSide *q, const BurstSide *k) { return plan_mask9_tile(q, k); }
    static __device__ int keep(int32_t q, int32_t k, const int32_t *tq, const int32_t *tk)
    {
        return plan_mask9_keep(q, k, tq, tk);
    }
};

/* mask open to near:
 *   k <= q and q - k < 1000 and (q < 700 or k >= 700) and not (q / 128 == k / 128 and q mod 5 != 0) */
static __device__ BURST_MAYBE_UNUSED int plan_mask10_tile(const BurstSide *q, const BurstSide *k)
{
    const int c0 = burst_negative(burst_affine(-1, 1, -1), q, k); /* k <= q */
    const int c1 = burst_negative(burst_affine(1, -1, -1000), q, k); /* q - k < 1000 */
    const int c2 = burst_negative(burst_affine(1, 0, -700), q, k); /* q < 700 */
    const int c3 = burst_negative(burst_affine(0, -1, 699), q, k); /* k >= 700 */
    const int c4 = burst_zero(burst_form_sub(burst_form_div(burst_affine(1, 0, 0), 128, q, k), burst_form_div(burst_affine(0, 1, 0), 128, q, k)), q, k); /* q / 128 == k / 128 */
    const int c5 = burst_not(burst_zero(burst_form_sub(burst_form_mod(burst_affine(1, 0, 0), 5, q, k), burst_affine(0, 0, 0)), q, k)); /* q mod 5 != 0 */
    return burst_and(burst_and(c0, c1), burst_and(burst_or(c2, c3), burst_not(burst_and(c4, c5))));
}

/* tq[t], tk[t]: the value of table t at q, at k. */
static __device__ BURST_MAYBE_UNUSED int plan_mask10_keep(int32_t q, int32_t k, const int32_t *tq, const int32_t *tk)
{
    (void)tq, (void)tk;
    const int c0 = k <= q; /* k <= q */
    const int c1 = (q - k) < 1000; /* q - k < 1000 */
    const int c2 = q < 700; /* q < 700 */
    const int c3 = k >= 700; /* k >= 700 */
    const int c4 = burst_floor_div32(q, 128) == burst_floor_div32(k, 128); /* q / 128 == k / 128 */
    const int c5 = burst_floor_mod32(q, 5) != 0; /* q mod 5 != 0 */
    return ((c0 & c1) & ((c2 | c3) & (1 - (c4 & c5))));
}

struct PlanMask10 {
    enum { TABLES = 0x0, ALL = 0, KEYS = 0, KEYS_BACKWARD = 0 }; /* templates/kernels/cuda_attention.cuh */
    static __device__ int tile(const BurstSide *q, const BurstSide *k) { return plan_mask10_tile(q, k); }
    static __device__ int keep(int32_t q, int32_t k, const int32_t *tq, const int32_t *tk)
    {
        return plan_mask10_keep(q, k, tq, tk);
    }
};

#define TEST_OPEN(X) X(6) X(7) X(8) X(9) X(10)
