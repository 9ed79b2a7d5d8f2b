/* mask/print.c: --emit=mask: the pairs that a mask keeps, in numbers and as a picture. */
#include "mask/internal.h"

#include <inttypes.h>

enum { PICTURE = 32 };

static char shade(MaskShare s)
{
    if (!s.sure)
        return '?';
    if (s.share <= 0)
        return ' ';
    if (s.share >= 1)
        return '#';
    return s.share < 0.5 ? '.' : '+';
}

/* Queries go down, keys to the right, in at most PICTURE cells a side. */
static void print_picture(MaskMap *m, Text *out)
{
    const int64_t n = m->sequence, cells = burst_min(PICTURE, n);
    int64_t unsure = 0;
    text_printf(out,
                "picture %" PRId64 " x %" PRId64
                " (queries down, keys right; ' ' none, '.' under half, '+' more, '#' all)\n",
                cells, cells);
    for (int64_t i = 0; i < cells; i++) {
        text_add(out, "|");
        for (int64_t j = 0; j < cells; j++) {
            Piece a, b;
            const PosSet q = pos_run(&a, i * n / cells, (i + 1) * n / cells),
                         k = pos_run(&b, j * n / cells, (j + 1) * n / cells);
            const MaskShare share = mask_share(m, &q, &k, 1);
            const char c = shade(share);
            unsure += !share.sure;
            text_add_n(out, &c, 1);
        }
        text_add(out, "|\n");
    }
    if (unsure)
        text_printf(out,
                    "'?': whether a cell keeps none or all of its pairs takes too long to find out (%" PRId64
                    ")\n",
                    unsure);
}

MaskSum mask_sum(MaskMap *m)
{
    Piece piece;
    const PosSet all = pos_run(&piece, 0, m->sequence);
    const PairWork w = mask_work(m, &all, &all);
    return (MaskSum){w, (double)w.pairs / ((double)m->sequence * (double)m->sequence)};
}

/* The figures and the picture above are of a drawn selection. */
static void print_selection(Arena *scratch, const Program *p, int mask, Text *out)
{
    static const char *const queries[] = {BURST_SELECT_QUERIES(BURST_SELECT_NAME)},
                             *const keys[] = {BURST_SELECT_KEYS(BURST_SELECT_NAME)},
                             *const heads[] = {BURST_SELECT_HEADS(BURST_SELECT_NAME)};
    const Selection *s = &p->selections[p->masks[mask].selection - 1];
    MaskMap *all = mask_map_of_all(scratch, p, mask, BURST_TILE, BURST_TILE);
    text_printf(out,
                "selection %s: top %" PRId64 " of k / %" PRId64 " by %s(%s, %s) for %s per %" PRId64
                " queries; above, one drawn at random\nwhere ",
                s->text, s->top, s->block, s->score, queries[s->query], keys[s->key], heads[s->heads],
                s->queries);
    mask_text(s->where, p->tables, out);
    text_add(out, "\nalways ");
    mask_text(s->always, p->tables, out);
    text_printf(out, "\npairs_at_most %" PRId64 "\nall pairs that may be chosen, ", mask_sum(all).work.pairs);
    print_picture(all, out);
}

void print_mask(const Program *p, int mask, Text *out)
{
    Arena *scratch = arena_new();
    MaskMap *m = mask_map(scratch, p, mask, BURST_TILE, BURST_TILE);
    const MaskSum sum = mask_sum(m);
    const PairWork w = sum.work;
    text_printf(out, "burst-mask 1\nmask %s\nexpression ", p->masks[mask].text);
    mask_text(p->masks[mask].expr, p->tables, out);
    text_printf(out, "\nsequence %" PRId64 "\npairs %" PRId64 "\n", p->sequence, w.pairs);
    text_printf(out, "density %.6g\n", sum.density);
    text_printf(out, "relative_error %.3g\ntile %d x %d\n", w.pairs_error, BURST_TILE, BURST_TILE);
    text_printf(out, "tiles_full %" PRId64 "\ntiles_partial %" PRId64 "\n", w.tiles_full, w.tiles_partial);
    print_picture(m, out);
    if (p->masks[mask].selection)
        print_selection(scratch, p, mask, out);
    arena_free(scratch);
}
