/* picture_partition.c: which rank owns which positions, and each rank's share of the masks' work. */
#include "tools/pictures/pictures.h"

#include <inttypes.h>
#include <math.h>

enum {
    LEFT = 64,
    TOP = 30,
    SIDE = 512,
    WIDTH = 680,
    ROW = 16,
    COLUMNS = 128,
    STRIP = 40,
    LOOKED_AT = 256,
    MOST_STRIPS = 8
};

/* The fraction of a column's tokens that ranks first .. end own. */
static double owned(const Partition *p, int first, int end, int64_t begin_position, int64_t end_position)
{
    int64_t n = 0;
    for (int r = first; r < end && r < p->ranks; r++)
        n += pos_before(&p->of[r], end_position) - pos_before(&p->of[r], begin_position);
    return (double)n / (double)(end_position - begin_position);
}

Panel *picture_partition(Arena *a, const Partition *p)
{
    static const Key keys[] = {{"h1", "some of the tokens there"}, {"h3", "half and more"}, {"h5", "all"}};
    const int per_row = (p->ranks + SVG_CELLS - 1) / SVG_CELLS, rows = (p->ranks + per_row - 1) / per_row;
    const int64_t n = p->sequence, columns = n < COLUMNS ? n : COLUMNS;
    const double height = ROW * fmin(rows, 16);
    Panel *panel = panel_new(a,
                             arena_printf(a, "partition %s, %d rank%s", partition_text(a, p->kind, p->block),
                                          p->ranks, plural(p->ranks)),
                             WIDTH, TOP + height + 60);
    double *share = NEW_ARRAY(a, double, rows * columns);
    for (int64_t i = 0; i < rows * columns; i++) {
        const int first = (int)(i / columns) * per_row;
        share[i] = owned(p, first, first + per_row, i % columns * n / columns,
                         (i % columns + 1) * n / columns);
    }
    svg_grid(panel, a, (Grid){LEFT, TOP, SIDE, height, rows, (int)columns, share, "h"});
    svg_axis(panel, a, (Axis){LEFT, TOP, height, .down = true, p->ranks, AXIS_COUNT, "rank"});
    svg_axis(panel, a, (Axis){LEFT, TOP + height, SIDE, .most = (double)n, AXIS_TOKENS, "position (tokens)"});
    svg_text(panel, LEFT + SIDE + 8, TOP + 12, "s", "%s tokens a rank%s", tokens_text(a, p->max_tokens),
             n % p->ranks ? " at most" : "");
    if (per_row > 1)
        svg_text(panel, LEFT + SIDE + 8, TOP + 26, "s d", "a row is %d ranks", per_row);
    svg_keys(panel, LEFT, TOP + height + 50, 160, keys, countof(keys));
    return panel;
}

/* ---- work ---- */

/* Pairs of ranks under one mask. exact: of all ranks; else of some, and `most` is a lower bound. */
typedef struct Balance { int n; bool exact; double *pairs, mean, most, imbalance; } Balance;

static void sum_balance(Balance *b)
{
    double sum = 0;
    for (int i = 0; i < b->n; i++) {
        b->most = fmax(b->most, b->pairs[i]);
        sum += b->pairs[i];
    }
    b->mean = b->exact ? sum / b->n : b->mean;
    b->imbalance = b->mean > 0 ? fmax(b->most, b->mean) / b->mean : 1;
}

/* Counts all ranks or, if there are very many, some evenly spaced from the first to the last. */
static Balance balance_of(Arena *a, const Partition *part, PairCounts *counts)
{
    Balance b = {.n = part->ranks <= LOOKED_AT ? part->ranks : SVG_CELLS, .exact = part->ranks <= LOOKED_AT};
    b.pairs = NEW_ARRAY(a, double, b.n);
    b.mean = b.exact ? 0 : (double)pair_whole(counts).pairs / part->ranks;
    for (int64_t i = 0; i < b.n; i++)
        b.pairs[i] =
            (double)pair_row(counts, b.exact ? (int)i : (int)(i * (part->ranks - 1) / (b.n - 1))).pairs;
    sum_balance(&b);
    return b;
}

/* All layers together, as the search and the cost model count them. */
static Balance balance_of_layers(Arena *a, const Program *p, const Balance *mask)
{
    Balance all = {.n = mask->n, .exact = mask->exact, .pairs = NEW_ARRAY(a, double, mask->n)};
    for (int l = 0; l < p->model.layers; l++) {
        if (!model_attends(&p->model, l))
            continue;
        all.mean += mask[p->layer_mask[l]].mean;
        for (int i = 0; i < all.n; i++)
            all.pairs[i] += mask[p->layer_mask[l]].pairs[i];
    }
    sum_balance(&all);
    return all;
}

/* A bar for each rank, or for several ranks the highest of theirs. */
static void add_strip(Panel *p, Arena *a, const char *name, const Balance *b, double y)
{
    const int each = (b->n + SVG_CELLS - 1) / SVG_CELLS;
    const double high = STRIP - 14, width = (double)SIDE * each / b->n, bar = width - 1,
                 scale = b->most > 0 ? high / b->most : 0;
    svg_text(p, LEFT, y + 9, "s", "%s", svg_short(a, name, 60));
    text_add(&p->body, "<path class=\"h4\" d=\"");
    for (int i = 0; i < b->n; i += each) {
        double most = 0;
        for (int r = i; r < i + each && r < b->n; r++)
            most = fmax(most, b->pairs[r]);
        text_printf(&p->body, "M%.1f %.6gh%.1fv%.1fh-%.1fz", LEFT + i / each * width, y + STRIP, bar,
                    -scale * most, bar);
    }
    text_add(&p->body, "\"/>\n");
    svg_rect(p, LEFT, y + STRIP - scale * b->mean - 1, SIDE, 1.5, "t4", NULL);
    svg_text(p, LEFT + SIDE + 8, y + STRIP - 2, "s", "balance %s%.3f", b->exact ? "" : "\xe2\x89\xa5 ",
             b->imbalance);
}

Panel *picture_balance(Arena *a, const Program *p, const Partition *part, PairCounts **counts)
{
    const int drawn = p->mask_count < MOST_STRIPS ? p->mask_count : MOST_STRIPS;
    const double height = TOP + (drawn + 1.0) * (STRIP + 8);
    const char *title = arena_printf(a, "pairs of each rank, partition %s",
                                     partition_text(a, part->kind, part->block));
    Panel *panel = panel_new(a, title, WIDTH, height + 36);
    Balance *b = NEW_ARRAY(a, Balance, p->mask_count);
    for (int m = 0; m < p->mask_count; m++) {
        b[m] = balance_of(a, part, counts[m]);
        if (m < drawn)
            add_strip(panel, a, p->masks[m].text, &b[m], TOP + m * (STRIP + 8));
    }
    const Balance all = balance_of_layers(a, p, b);
    add_strip(panel, a, drawn < p->mask_count ? "all layers (more masks than are drawn)" : "all layers", &all,
              TOP + drawn * (STRIP + 8));
    svg_axis(panel, a,
             (Axis){LEFT, height, SIDE, .most = part->ranks, AXIS_COUNT,
                    "rank (line: the mean; balance: the most over the mean)"});
    return panel;
}
