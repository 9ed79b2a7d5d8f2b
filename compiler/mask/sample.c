/* mask/sample.c: estimates the tiles of a box that a mask keeps, if counting would take too long.
 *
 * The box is split for a while, largest part first, and decided parts are counted. Open tiles are sampled,
 * one from each of n equal strata, so that the error is at most the error of n independent samples, whatever
 * the mask. */
#include "mask/internal.h"

#include <math.h>

enum { MOST_BOXES = 1 << 12, DRAWS_A_BOX = 16, LOOKS_A_BOX = 4, BOX_COST = 4, DRAW_COST = 4 };

struct MaskBox { MaskRange q, k; };

typedef struct Sampler {
    const MaskNode *mask;
    MaskBox *box;        /* a ring */
    int first, boxes;
    uint64_t random;
    MaskCount sum;       /* of decided boxes */
} Sampler;

static uint64_t random_bits(Sampler *s)
{
    uint64_t z = s->random += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static double tiles_of(const MaskBox *b)
{
    return (double)mask_range_tiles(&b->q) * (double)mask_range_tiles(&b->k);
}

static void put(Sampler *s, MaskBox b)
{
    s->box[(s->first + s->boxes++) % MOST_BOXES] = b;
}

static MaskBox take(Sampler *s)
{
    const MaskBox b = s->box[s->first];
    s->first = (s->first + 1) % MOST_BOXES;
    s->boxes--;
    return b;
}

/* Whether the box stays open; counts it if not. */
static bool is_open(Sampler *s, const MaskBox *b)
{
    const int64_t tiles = mask_range_tiles(&b->q) * mask_range_tiles(&b->k);
    const int cover = mask_box_cover(s->mask, &b->q, &b->k);
    if (cover == BURST_FULL)
        s->sum.full += tiles;
    else if (cover == BURST_PARTIAL && tiles == 1)
        s->sum.partial++;
    return cover == BURST_PARTIAL && tiles > 1;
}

static void put_halves(Sampler *s, const MaskBox *b)
{
    static const MaskUnits none = {0};
    MaskBox left = *b, right = *b;
    if (mask_range_first(&b->q, &b->k))
        mask_range_split(&b->q, &none, &left.q, &right.q);
    else
        mask_range_split(&b->k, &none, &left.k, &right.k);
    put(s, left);
    put(s, right);
}

static void cut(Sampler *s, int most)
{
    for (int looks = LOOKS_A_BOX * most; looks && s->boxes && s->boxes < most; looks--) {
        const MaskBox b = take(s);
        if (is_open(s, &b))
            put_halves(s, &b);
    }
    for (int n = s->boxes; n; n--) {
        const MaskBox b = take(s);
        if (is_open(s, &b))
            put(s, b);
    }
}

static MaskRange tile_of(const MaskRange *r, int64_t tile)
{
    const int64_t begin = tile * r->tile;
    return mask_range_part(r, begin, burst_min(r->tile, r->tokens - begin));
}

static MaskRange draw(Sampler *s, const MaskRange *r)
{
    return tile_of(r, (int64_t)(random_bits(s) % (uint64_t)mask_range_tiles(r)));
}

/* Counts every tile, if there are fewer tiles than samples. */
static void count_all(Sampler *s, const MaskBox *b)
{
    const int64_t nq = mask_range_tiles(&b->q), nk = mask_range_tiles(&b->k);
    for (int64_t i = 0; i < nq; i++) {
        const MaskRange q = tile_of(&b->q, i);
        for (int64_t j = 0; j < nk; j++) {
            const MaskRange k = tile_of(&b->k, j);
            const int cover = mask_box_cover(s->mask, &q, &k);
            s->sum.full += cover == BURST_FULL;
            s->sum.partial += cover == BURST_PARTIAL;
        }
    }
}

/* Half-width of the 95 % Wilson interval of a share p of n samples, which also holds for p near 0 or 1. */
static double share_error(double p, int n)
{
    return 2 * sqrt(p * (1 - p) / n + 1.0 / n / n) + 2 * fabs(1 - 2 * p) / n;
}

static MaskCount draw_all(Sampler *s, double open, int n)
{
    int seen[3] = {0}, at = 0;
    double end = tiles_of(&s->box[s->first]);
    for (int i = 0; i < n; i++) {
        const double place = (i + (double)(random_bits(s) >> 11) * 0x1p-53) * (open / n);
        while (place >= end && at + 1 < s->boxes)
            end += tiles_of(&s->box[(s->first + ++at) % MOST_BOXES]);
        const MaskBox *b = &s->box[(s->first + at) % MOST_BOXES];
        const MaskRange q = draw(s, &b->q), k = draw(s, &b->k);
        seen[mask_box_cover(s->mask, &q, &k)]++;
    }
    const double full = (double)seen[BURST_FULL] / n, partial = (double)seen[BURST_PARTIAL] / n;
    s->sum.full += (int64_t)(open * full);
    s->sum.partial += (int64_t)(open * partial);
    s->sum.error = open * fmax(share_error(full, n), share_error(full + partial, n));
    s->sum.estimated = true;
    return s->sum;
}

MaskCount mask_sample(Arena *a, MaskBox **ring, const MaskNode *mask, MaskRange q, MaskRange k, MaskEffort *e,
                      double share)
{
    const bool pairs = q.tile == 1 && k.tile == 1 && !mask->open;
    const int64_t work = mask->work * (pairs ? 1 : BOX_COST) + DRAW_COST;
    const int n = mask_effort_draws(e, share, work);
    const double tiles = (double)mask_range_tiles(&q) * (double)mask_range_tiles(&k);
    if (!n)
        return pairs ? (MaskCount){.full = (int64_t)(tiles / 2), .error = tiles / 2 + 1, .estimated = true}
                     : (MaskCount){.partial = (int64_t)tiles, .error = tiles, .estimated = true};
    if (!*ring)
        *ring = NEW_ARRAY(a, MaskBox, MOST_BOXES);
    Sampler s = {.mask = mask, .box = *ring, .random = 1};
    put(&s, (MaskBox){q, k});
    cut(&s, (int)burst_max(burst_min(n / DRAWS_A_BOX, MOST_BOXES - 1), 1));
    double open = 0;
    for (int i = 0; i < s.boxes; i++)
        open += tiles_of(&s.box[(s.first + i) % MOST_BOXES]);
    if (open > n)
        return draw_all(&s, open, n);
    for (int i = 0; i < s.boxes; i++)
        count_all(&s, &s.box[(s.first + i) % MOST_BOXES]);
    return s.sum;
}
