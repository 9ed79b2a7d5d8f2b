/* attend.c: start and delta of host attention, its scratch, and the packing and tile masks behind both directions. */
#include "attend_kernel.h"

_Static_assert((int)BURST_SIZES_TILE == (int)BURST_TILE, "the compiler sizes scratch for the tiles that are used");

int64_t burst_attend_scratch(int head_dim)
{
    return burst_attend_floats(head_dim);
}

void burst_attend_start(const BurstAttend *a)
{
    int64_t rows = a->q_heads * a->qc->tokens;
    if (rows == 0)
        return;
    memset(a->o, 0, (size_t)(rows * a->head_dim) * sizeof *a->o);
    for (int64_t i = 0; i < rows; i++)
        a->lse[i] = -INFINITY;
}

void burst_attend_delta(int64_t rows, int head_dim, const float *o, const float *d_o, float *delta)
{
    for (int64_t i = 0; i < rows; i++)
        delta[i] = (float)vec_dot(head_dim, o + i * head_dim, d_o + i * head_dim);
}

static float *carve(float **next, int64_t floats)
{
    float *at = *next;
    *next += floats;
    return at;
}

void attend_carve(const BurstAttend *a, bool backward, AttendScratch *s)
{
    /* The heads' packed tiles keep their alignment: LANES floats are whole cache lines, whatever d is. */
    float *next = (float *)(((uintptr_t)a->scratch + 63) & ~(uintptr_t)63);
    int64_t packed = (int64_t)LANES * a->head_dim;
    for (int h = 0; h < ATTEND_HEADS; h++) {
        AttendHead *head = &s->head[h];
        head->qt = carve(&next, packed);
        head->dot = head->o = carve(&next, packed);
        if (backward)
            head->o = NULL;
        else
            head->dot = NULL;
        head->max = carve(&next, LANES);
        head->sum = carve(&next, LANES);
    }
    s->s = carve(&next, BURST_TILE * LANES);
    s->ds = carve(&next, BURST_TILE * LANES);
    s->factor = carve(&next, LANES);
}

void attend_pack(const float *x, int n, int d, float factor, float *out)
{
    for (int t = 0; t < d; t++) {
        float *row = out + (int64_t)t * LANES;
        for (int i = 0; i < n; i++)
            row[i] = x[(int64_t)i * d + t] * factor;
        for (int i = n; i < LANES; i++)
            row[i] = 0;
    }
}

int attend_tile(const BurstAttend *a, int qt, int kt, AttendTile *t)
{
    int kind = a->mask->tile(&a->qc->side[qt], &a->kc->side[kt]);
    int64_t q0 = (int64_t)qt * BURST_TILE, k0 = (int64_t)kt * BURST_TILE;
    int64_t nq = a->qc->tokens - q0, nk = a->kc->tokens - k0;
    *t = (AttendTile){q0, k0, (int)(nq < BURST_TILE ? nq : BURST_TILE), (int)(nk < BURST_TILE ? nk : BURST_TILE),
                      kind == BURST_PARTIAL};
    return kind;
}

/* Bit j of the result: byte j of keep, each 0 or 1. The product gathers a byte's bit of eight into the top byte. */
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

void attend_keep(const BurstAttend *a, const AttendTile *t, AttendScratch *s)
{
    uint8_t keep[BURST_TILE] = {0};
    for (int i = 0; i < t->nq; i++) {
        a->mask->row(a->qc->position[t->q0 + i], a->kc->position + t->k0, t->nk, a->tables, keep);
        s->keep[i] = pack_bits(keep);
    }
    for (int i = t->nq; i < BURST_TILE; i++)
        s->keep[i] = 0;
    transpose_bits(s->keep);
}
