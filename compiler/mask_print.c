/* mask_print.c: --emit=mask: what a mask keeps, in numbers and as a picture. */
#include "mask.h"

#include <inttypes.h>

enum { PICTURE = 32 };

static PosSet run_of(Piece *p, int64_t begin, int64_t end)
{
    *p = (Piece){.start = begin, .run = end - begin, .stride = end - begin, .count = 1};
    return (PosSet){.tokens = end - begin, .npieces = 1, .pieces = p};
}

static char shade(double density)
{
    if (density <= 0)
        return ' ';
    return density >= 1 ? '#' : density < 0.5 ? '.' : '+';
}

/* Queries go down, keys to the right; at most PICTURE cells a side. */
static void print_picture(MaskMap *m, Text *out)
{
    const int64_t n = m->sequence, cells = burst_min(PICTURE, n);
    text_printf(out, "picture %" PRId64 " x %" PRId64 " (queries down, keys right; ' ' none, '.' under half, '+' more, '#' all)\n",
                cells, cells);
    for (int64_t i = 0; i < cells; i++) {
        text_add(out, "|");
        for (int64_t j = 0; j < cells; j++) {
            Piece a, b;
            const PosSet q = run_of(&a, i * n / cells, (i + 1) * n / cells), k = run_of(&b, j * n / cells, (j + 1) * n / cells);
            const char c = shade((double)mask_work(m, &q, &k).pairs / ((double)q.tokens * (double)k.tokens));
            text_add_n(out, &c, 1);
        }
        text_add(out, "|\n");
    }
}

void print_mask(const Program *p, int mask, Text *out)
{
    Arena *scratch = arena_new();
    MaskMap *m = mask_map(scratch, p, mask, BURST_TILE, BURST_TILE);
    Piece piece;
    const PosSet all = run_of(&piece, 0, p->sequence);
    const PairWork w = mask_work(m, &all, &all);
    text_printf(out, "burst-mask 1\nmask %s\nexpression ", p->masks[mask].text);
    mask_text(p->masks[mask].expr, p->tables, out);
    text_printf(out, "\nsequence %" PRId64 "\npairs %" PRId64 "\n", p->sequence, w.pairs);
    text_printf(out, "density %.6g\n", (double)w.pairs / ((double)p->sequence * (double)p->sequence));
    text_printf(out, "relative_error %.3g\ntile %d x %d\n", w.pairs_error, BURST_TILE, BURST_TILE);
    text_printf(out, "tiles_full %" PRId64 "\ntiles_partial %" PRId64 "\n", w.tiles_full, w.tiles_partial);
    print_picture(m, out);
    arena_free(scratch);
}
