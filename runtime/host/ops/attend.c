/* attend.c: start and delta of host attention, its scratch, and the packing and tile masks for both
 * directions. */
#include "host/ops/attend_kernel.h"

_Static_assert((int)BURST_SIZES_TILE == (int)BURST_TILE,
               "the compiler sizes scratch for the tiles that are used");

int64_t burst_attend_scratch(int head_dim)
{
    return burst_attend_floats(head_dim);
}

void burst_attend_start(const BurstAttend *a)
{
    int64_t rows = a->q_heads * a->qc->tokens;
    if (rows == 0)
        return;
    memset(a->o, 0, (size_t)(rows * attend_values(a)) * sizeof *a->o);
    for (int64_t i = 0; i < rows; i++)
        a->lse[i] = -INFINITY;
}

void burst_attend_merge(int64_t rows, int d, const float *o_in, const float *lse_in, const float *rest_in,
                        float *o, float *lse, float *rest)
{
    for (int64_t i = 0; i < rows; i++) {
        if (lse_in[i] == -INFINITY)
            continue;
        const double in = (double)lse_in[i] + rest_in[i],
                     own = lse[i] == -INFINITY ? -INFINITY : (double)lse[i] + rest[i];
        const double most = fmax(in, own), sum = most + log(exp(in - most) + exp(own - most));
        const double from_in = exp(in - sum), from_own = exp(own - sum);
        for (int64_t j = i * d; j < (i + 1) * d; j++)
            o[j] = (float)(from_own * o[j] + from_in * o_in[j]);
        lse[i] = (float)sum;
        rest[i] = (float)(sum - (float)sum);
    }
}

void burst_attend_delta(int64_t rows, int head_dim, const float *o, const float *d_o, float *delta)
{
    for (int64_t i = 0; i < rows; i++)
        delta[i] = (float)vec_dot(head_dim, o + i * head_dim, d_o + i * head_dim);
}

/* Whether all values are finite: x * 0 is 0 only for finite numbers. */
bool attend_finite(const float *x, int64_t n)
{
    Vec zeros = {0};
    int64_t i = 0;
    for (; i + VEC <= n; i += VEC)
        zeros += vec_load(x + i) * 0.0f;
    if (i < n)
        zeros += vec_load_part(x + i, (int)(n - i)) * 0.0f;
    return vec_sum(zeros) == 0;
}

bool attend_finite_keys(const BurstAttend *a, int kv, AttendKeys keys)
{
    const int64_t d = a->head_dim, e = attend_values(a), at = kv * a->kc->tokens + keys.first;
    return attend_finite(a->k + at * d, keys.count * d) && attend_finite(a->v + at * e, keys.count * e);
}

void attend_add_pairs(int nk, const uint64_t *keep, const float *weight, bool to_keys, int width,
                      const float *from, float *to)
{
    for (int k = 0; k < nk; k++)
        for (uint64_t sees = keep[k]; sees; sees &= sees - 1) {
            const int q = __builtin_ctzll(sees);
            const float *source = from + (to_keys ? q : k) * width;
            float *sum = to + (to_keys ? k : q) * width;
            for (int t = 0; t < width; t++)
                sum[t] += weight[k * LANES + q] * source[t];
        }
}

static float *carve(float **next, int64_t floats)
{
    float *at = *next;
    *next += floats;
    return at;
}

void attend_carve(const BurstAttend *a, AttendScratch *s)
{
    /* Packed tiles keep the alignment: LANES floats are whole cache lines, whatever d is. */
    float *next = (float *)(((uintptr_t)a->scratch + 63) & ~(uintptr_t)63);
    const int d = a->head_dim, e = attend_values(a);
    const int64_t packed = (int64_t)LANES * (d > e ? d : e);
    for (int i = 0; i < ATTEND_SLOTS; i++) {
        AttendSlot *slot = &s->slot[i];
        slot->qt = carve(&next, packed);
        slot->dot = carve(&next, packed);
        slot->part = carve(&next, packed);
        slot->max = carve(&next, LANES);
        slot->sum = carve(&next, LANES);
        slot->rest = carve(&next, LANES);
        slot->shrink = carve(&next, LANES);
    }
    s->dk = carve(&next, 2 * packed);
    s->dv = s->dk + packed;
    memset(s->dk, 0, (size_t)(2 * packed) * sizeof *s->dk);
    s->s = carve(&next, BURST_TILE * LANES);
    s->ds = carve(&next, BURST_TILE * LANES);
    s->factor = carve(&next, LANES);
}

static int key_head(const BurstAttend *a, int h)
{
    return (a->q_head0 + h) / a->group - a->kv_head0;
}

int attend_heads(const BurstAttend *a, int h0)
{
    int heads = 1;
    while (heads < ATTEND_SLOTS && h0 + heads < a->q_heads && key_head(a, h0 + heads) == key_head(a, h0))
        heads++;
    return heads;
}

int attend_slots(const BurstAttend *a, int h0, int heads, int q0, AttendScratch *s)
{
    int tiles = ATTEND_SLOTS / heads < a->qc->tiles - q0 ? ATTEND_SLOTS / heads : a->qc->tiles - q0;
    for (int i = 0; i < tiles; i++)
        for (int h = 0; h < heads; h++) {
            AttendSlot *slot = &s->slot[i * heads + h];
            int64_t first = (int64_t)(q0 + i) * BURST_TILE, left = a->qc->tokens - first;
            slot->row = (h0 + h) * a->qc->tokens + first;
            slot->queries = (int)(left < BURST_TILE ? left : BURST_TILE);
            slot->kv = key_head(a, h0);
            slot->folds = 0;
        }
    return tiles;
}

/* Knuth's two-sum: exact whichever summand is larger. */
void attend_flush(int n, float shrink, float *restrict sum, float *restrict part)
{
    for (int i = 0; i < n; i++) {
        float old = sum[i] * shrink, now = old + part[i], added = now - old;
        part[i] = (old - (now - added)) + (part[i] - added);
        sum[i] = now;
    }
}

void attend_pack(const float *x, int n, int d, float *out)
{
    for (int t = 0; t < d; t++) {
        float *row = out + (int64_t)t * LANES;
        for (int i = 0; i < n; i++)
            row[i] = x[(int64_t)i * d + t];
        for (int i = n; i < LANES; i++)
            row[i] = 0;
    }
}

/* Bit j of the result is byte j of keep, each 0 or 1. The product gathers the bits of eight bytes in the top
 * byte. */
static uint64_t pack_bits(const uint8_t *keep)
{
    uint64_t bits = 0;
    for (int i = 0; i < BURST_TILE; i += 8) {
        uint64_t eight = 0;
        for (int j = 0; j < 8; j++)
            eight |= (uint64_t)keep[i + j] << (8 * j);
        bits |= (eight * UINT64_C(0x0102040810204080) >> 56) << i;
    }
    return bits;
}

/* 64 x 64 bits transposed by halving: swap the off-diagonal blocks of 32, 16, ... 1. */
static void transpose_bits(uint64_t *m)
{
    uint64_t low = UINT64_C(0x00000000ffffffff);
    for (int half = 32; half; half >>= 1, low ^= low << half)
        for (int i = 0; i < 64; i = ((i | half) + 1) & ~half) {
            uint64_t swap = ((m[i] >> half) ^ m[i | half]) & low;
            m[i] ^= swap << half;
            m[i | half] ^= swap;
        }
}

/* keep for a pair of tiles. */
static void keep_pairs(const BurstAttend *a, const BurstTables *tables, int q_tile, int k_tile,
                       uint64_t *keep)
{
    uint8_t row[BURST_TILE] = {0};
    int64_t q0 = (int64_t)q_tile * BURST_TILE, k0 = (int64_t)k_tile * BURST_TILE, left = a->kc->tokens - k0;
    for (int i = 0; i < BURST_TILE; i++) {
        keep[i] = 0;
        if (q0 + i >= a->qc->tokens)
            continue;
        a->mask->row(a->qc->position[q0 + i], a->kc->position + k0,
                     left < BURST_TILE ? (int)left : BURST_TILE, tables, row);
        keep[i] = pack_bits(row);
    }
    transpose_bits(keep);
}

/* The blocks that a tile's queries chose. A tile of queries is part of one that chooses together. */
static const int32_t *chosen_by(const BurstAttend *a, int h, int q_tile)
{
    const BurstSelection *how = a->mask->selection;
    const int64_t tile = a->qc->side[q_tile].lo / how->queries;
    int list = 0;
    if (how->heads != BURST_SELECT_OF_ALL)
        list = how->heads == BURST_SELECT_OF_HEAD ? a->q_head0 + h : (a->q_head0 + h) / a->group;
    return a->chosen + (tile * a->chosen_lists + list) * how->top;
}

bool burst_select_has(const int32_t *list, int top, int64_t block)
{
    int lo = 0, hi = top;
    while (lo < hi) { /* the rest of a list is -1, the greatest as an unsigned number */
        const int middle = lo + (hi - lo) / 2;
        if ((uint32_t)list[middle] < (uint32_t)block)
            lo = middle + 1;
        else
            hi = middle;
    }
    return lo < top && list[lo] == block;
}

/* Keys of a tile follow each other, since a rank has whole blocks. */
static int chosen_cover(const BurstAttend *a, int h, int q_tile, int k_tile, uint64_t *keep)
{
    const BurstSelection *how = a->mask->selection;
    const int32_t *list = chosen_by(a, h, q_tile);
    BurstSide k = a->kc->side[k_tile];
    int32_t chosen[BURST_TILE], least = 1, most = 0;
    for (int64_t at = k.lo; at <= k.hi && at - k.lo < BURST_TILE;) {
        const int64_t block = at / how->block, end = (block + 1) * how->block;
        const int32_t has = burst_select_has(list, how->top, block);
        least = has < least ? has : least;
        most = has > most ? has : most;
        for (; at < end && at <= k.hi && at - k.lo < BURST_TILE; at++)
            chosen[at - k.lo] = has;
    }
    k.table_lo[BURST_SELECT_TABLE] = least;
    k.table_hi[BURST_SELECT_TABLE] = most;
    const int cover = a->mask->tile(&a->qc->side[q_tile], &k);
    if (cover != BURST_PARTIAL)
        return cover;
    BurstTables tables = a->tables ? *a->tables : (BurstTables){0};
    tables.table[BURST_SELECT_TABLE] = chosen;
    tables.chosen_from = k.lo;
    keep_pairs(a, &tables, q_tile, k_tile, keep);
    return cover;
}

int attend_cover(const BurstAttend *a, int h, int q_tile, int k_tile, uint64_t *keep)
{
    if (a->mask->selection)
        return chosen_cover(a, h, q_tile, k_tile, keep);
    const int cover = burst_tile_cover(a->mask, a->qc, q_tile, a->kc, k_tile);
    if (cover == BURST_PARTIAL)
        keep_pairs(a, a->tables, q_tile, k_tile, keep);
    return cover;
}
