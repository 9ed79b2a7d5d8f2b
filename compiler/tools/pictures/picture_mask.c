/* picture_mask.c: a mask as a grid of cells of whole kernel tiles: full, partial with the share that is
 * kept, or empty. */
#include "tools/pictures/pictures.h"

#include "burst_int.h"

#include <inttypes.h>

enum { LEFT = 64, TOP = 30, SIDE = 320, WIDTH = 450, HEIGHT = 476, FEW = 4 };

static int64_t tiles_of(int64_t tokens)
{
    return (tokens + BURST_TILE - 1) / BURST_TILE;
}

static double kept_share(MaskMap *m, int64_t step, int64_t i, int64_t j, int64_t n)
{
    Piece piece[2];
    const PosSet q = pos_run(&piece[0], i * step, burst_min(n, (i + 1) * step));
    const PosSet k = pos_run(&piece[1], j * step, burst_min(n, (j + 1) * step));
    return mask_share(m, &q, &k, BURST_TILE).share;
}

/* Adds cells large enough to read; the last ones may reach beyond the sequence. Returns the sequence's
 * length in pixels. */
static double add_grid(Panel *p, Arena *a, MaskMap *m, int64_t n, int most)
{
    /* tiles and tokens per cell */
    const int64_t across = (tiles_of(n) + most - 1) / most, step = across * BURST_TILE;
    const int cells = (int)((n + step - 1) / step);
    double *share = NEW_ARRAY(a, double, cells * cells);
    for (int i = 0; i < cells * cells; i++)
        share[i] = kept_share(m, step, i / cells, i % cells, n);
    svg_grid(p, a, (Grid){LEFT, TOP, SIDE, SIDE, cells, cells, share, "p"});
    svg_text(p, LEFT, TOP + SIDE + 48, "s d", "a cell: %s x %s tokens, %" PRId64 " kernel tile%s",
             tokens_text(a, step), tokens_text(a, step), across * across, across > 1 ? "s" : "");
    return SIDE * (double)n / (double)(cells * step);
}

/* Full, partial and empty tiles as parts of one bar. */
static void add_tiles(Panel *p, const PairWork *w, int64_t n, double y)
{
    const int64_t all = tiles_of(n) * tiles_of(n),
                  tiles[] = {w->tiles_full, w->tiles_partial, all - w->tiles_full - w->tiles_partial};
    static const char *const class[] = {"p5", "p3", "ex"};
    double x = LEFT;
    for (int i = 0; i < countof(tiles); i++) {
        const double width = SIDE * (double)tiles[i] / (double)all;
        if (tiles[i] > 0)
            svg_rect(p, x, y, width, 10, class[i], NULL);
        x += width;
    }
    svg_text(p, LEFT, y + 24, "s",
             "tiles of %d x %d: %" PRId64 " full, %" PRId64 " partial, %" PRId64 " empty", BURST_TILE,
             BURST_TILE, tiles[0], tiles[1], tiles[2]);
}

Panel *picture_mask(Arena *a, const Program *p, int mask, MaskMap *m)
{
    static const Key keys[] = {{"ex", "empty"}, {"p1", "< 1/4"},   {"p2", "< 1/2"},
                               {"p3", "< 3/4"}, {"p4", "partial"}, {"p5", "full"}};
    Panel *panel = panel_new(a, arena_printf(a, "mask %s", svg_short(a, p->masks[mask].text, 40)), WIDTH,
                             HEIGHT);
    const MaskSum sum = mask_sum(m);
    const double n = (double)p->sequence, y = TOP + SIDE + 66;
    const double side = add_grid(panel, a, m, p->sequence, p->mask_count > FEW ? SVG_CELLS / 2 : SVG_CELLS);
    svg_axis(panel, a, (Axis){LEFT, TOP, side, .down = true, n, AXIS_TOKENS, "query position (tokens)"});
    svg_axis(panel, a, (Axis){LEFT, TOP + SIDE, side, .most = n, AXIS_TOKENS, "key position (tokens)"});
    svg_keys(panel, LEFT, y, 56, keys, countof(keys));
    add_tiles(panel, &sum.work, p->sequence, y + 10);
    svg_text(panel, LEFT, y + 54, "", "density %.6g, %" PRId64 " pairs%s", sum.density, sum.work.pairs,
             sum.work.pairs_error > 0 ? arena_printf(a, " \xc2\xb1 %.3g %%", 100 * sum.work.pairs_error)
                                      : "");
    return panel;
}
