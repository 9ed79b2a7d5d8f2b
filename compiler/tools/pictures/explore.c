/* explore.c: one page without network or scripts: a model's masks, partitions and candidate layouts side
 * by side. */
#include "tools/pictures/pictures.h"

#include <math.h>
#include <string.h>

#include "burst_rt.h"

enum { MASKS = 12, TIMED_MASKS = 2, LAYOUTS = 3, ALONE_RANKS = 8, EXPRESSION = 2000 };

static const char page_style[] =
    "body{font:15px/1.45 system-ui,sans-serif;margin:2em auto;max-width:1420px;padding:0 "
    "1.5em;background:var(--bg);color:var(--ink)}"
    "h1{font-size:1.6em;margin-bottom:.2em}h2{margin-top:2em;border-bottom:1px solid "
    "var(--grid)}.dim,figcaption{color:var(--dim)}"
    ".row{display:flex;flex-wrap:wrap;gap:1.5em;align-items:flex-start}figure{margin:0;max-width:100%}"
    "figcaption{font-size:.87em;max-width:440px}"
    "svg{max-width:100%;height:auto;vertical-align:top}code{overflow-wrap:anywhere}.scroll{overflow-x:auto}"
    "table{border-collapse:collapse}"
    "th,td{padding:.25em .8em;text-align:right;border-bottom:1px solid "
    "var(--grid);white-space:nowrap}th.l,td.l{text-align:left}"
    "td.why{white-space:normal;min-width:20em}tr.best{font-weight:600}tr.best td:first-child{border-left:4px "
    "solid var(--p5)}";

typedef struct Page {
    Arena *arena;
    Diags *diags;
    const Program *program;
    const Found *found; /* plan NULL: no cluster */
    MaskMap **maps;
    Text *out;
} Page;

static void add(const Page *g, const char *before, const char *text, const char *after)
{
    text_add(g->out, before);
    svg_escape(text, g->out);
    text_add(g->out, after);
}

/* ---- masks ---- */

static const char *layers_text(Arena *a, const Program *p, int mask)
{
    int n = 0;
    for (int l = 0; l < p->model.layers; l++)
        n += p->layer_mask[l] == mask;
    return n ? arena_printf(a, "%d of %d layers", n, p->model.layers) : "no layer uses it";
}

/* Masks that no layer uses come after those that the rest of the page is about. */
static Program with_all_masks(const Program *p)
{
    Program all = *p;
    all.mask_count = p->all_masks;
    all.table_count = p->all_tables;
    return all;
}

static void add_masks(const Page *g)
{
    const Program all = with_all_masks(g->program);
    text_add(g->out, "<h2>Masks</h2>\n<div class=\"row\">\n");
    for (int m = 0; m < all.mask_count && m < MASKS; m++) {
        Text expression = {0};
        mask_text(all.masks[m].expr, all.tables, &expression);
        text_add(g->out, "<figure>\n");
        svg_inline(picture_mask(g->arena, &all, m, g->maps[m]), g->out);
        add(g, "<figcaption><code>", svg_short(g->arena, expression.at, EXPRESSION), "</code><br>");
        add(g, "", layers_text(g->arena, g->program, m), "</figcaption></figure>\n");
        text_free(&expression);
    }
    text_add(g->out, "</div>\n");
    if (all.mask_count > MASKS)
        text_printf(g->out, "<p class=\"dim\">%d more masks are not drawn.</p>\n", all.mask_count - MASKS);
    if (all.open_masks)
        add(g, "<p class=\"dim\">Not drawn, because they take parameters and no layer uses them: ",
            svg_short(g->arena, all.open_masks, 400), "</p>\n");
}

/* ---- partitions ---- */

/* Ranks that share a sequence: as chosen; without a cluster, as the layout says or a default. */
static int ranks_of(const Page *g)
{
    const Layout *l = &g->program->layout;
    const int64_t asked = (l->context.is_auto ? 1 : l->context.value) *
                          (l->heads.is_auto ? 1 : l->heads.value);
    if (g->found->plan)
        return plan_draft(g->found->plan)->choice.ranks;
    if (asked > 1 && asked <= g->program->sequence)
        return (int)asked;
    return g->program->sequence < ALONE_RANKS ? 1 : ALONE_RANKS;
}

/* By mask; what the search has counted already, where it has. */
static PairCounts **counts_of(const Page *g, const Partition *part)
{
    const Program *p = g->program;
    for (int i = 0; i < g->found->evaluated_count; i++) {
        const Evaluated *x = &g->found->evaluated[i];
        if (x->choice.partition == part->kind && x->choice.ranks == part->ranks)
            return x->counts;
    }
    PairCounts **counts = NEW_ARRAY(g->arena, PairCounts *, p->mask_count);
    for (int m = 0; m < p->mask_count; m++)
        counts[m] = pair_counts(g->arena, g->maps[m], part, 1);
    return counts;
}

static void add_partitions(const Page *g)
{
    const int ranks = ranks_of(g);
    const int64_t n = g->program->sequence, given = g->program->layout.block.given
                                                        ? g->program->layout.block.value
                                                        : BURST_TILE * (int64_t)ranks;
    text_printf(g->out,
                "<h2>Tokens and work of each rank</h2>\n<p class=\"dim\">%d rank%s a sequence%s.</p>\n<div "
                "class=\"row\">\n",
                ranks, ranks > 1 ? "s share" : " has",
                g->found->plan ? "" : "; with a cluster, as many as it has");
    for (int kind = 0; kind < PART_KINDS && ranks > 1; kind++) {
        const Partition *part = partition_make(g->arena, (PartitionKind)kind, given < n ? given : n, n,
                                               ranks);
        text_add(g->out, "<figure>\n");
        svg_inline(picture_partition(g->arena, part), g->out);
        svg_inline(picture_balance(g->arena, g->program, part, counts_of(g, part)), g->out);
        text_add(g->out, "</figure>\n");
    }
    text_add(g->out, "</div>\n");
}

/* ---- layouts ---- */

static void add_figures(const Page *g, const Evaluated *x)
{
    if (x->why_not)
        add(g, "<td class=\"l why\" colspan=\"7\">", svg_short(g->arena, x->why_not, 400), "</td></tr>\n");
    else
        text_printf(g->out,
                    "<td>%.3f</td><td>%.1f</td><td>%.2f</td><td>%.3f</td><td>%s</td><td>%s</td><td class=\"l "
                    "why\">%s</td></tr>\n",
                    x->cost.step * 1e3, 100 * x->cost.exposed / x->cost.step, x->cost.imbalance,
                    (double)x->cost.memory / (1 << 30), size_text(g->arena, x->cost.bytes_link),
                    size_text(g->arena, x->cost.bytes_nic), x->verdict);
}

static void add_candidates(const Page *g)
{
    const Found *f = g->found;
    text_add(g->out, "<h2>Layouts</h2>\n<p class=\"dim\">Every layout that was tried, with simulated times, "
                     "as --explain prints them; bytes are those a rank sends in a step.</p>\n<div "
                     "class=\"scroll\"><table>\n<tr>");
    for (int i = 0; i < SETTING_COUNT; i++)
        if (f->column[i])
            add(g, "<th class=\"l\">", settings[i]->form->name, "</th>");
    text_add(
        g->out,
        "<th>step (ms)</th><th>exposed (%)</th><th>balance</th><th>memory (GiB)</th><th>inside nodes</th>"
        "<th>between nodes</th><th class=\"l\">verdict (what it waits for)</th></tr>\n");
    for (int i = 0; i < f->evaluated_count; i++) {
        const Evaluated *x = &f->evaluated[i];
        text_add(g->out, x->chosen ? "<tr class=\"best\">" : "<tr>");
        for (int d = 0; d < SETTING_COUNT; d++)
            if (f->column[d]) {
                const char *text = settings[d]->text(g->arena, &x->choice);
                add(g, "<td class=\"l\">", text ? text : "-", "</td>");
            }
        add_figures(g, x);
    }
    add(g, "</table></div>\n<pre>", f->remarks, "</pre>\n");
}

/* The step, and of each mask's attention (the first layer's alone, where not all) work and timelines. */
static void add_layout(const Page *g, const Draft *d, const Cost *cost, bool all)
{
    const Program *p = g->program;
    add(g, "<h3><code>", choice_text(g->arena, &d->choice), "</code></h3>\n<div class=\"row\">\n");
    svg_inline(picture_step(g->arena, cost), g->out);
    for (int m = 0; m < p->mask_count && m < TIMED_MASKS; m++)
        for (int backward = 0; backward < 2 && (all || m == p->layer_mask[0]); backward++) {
            const Attended loads = attended(g->arena, d, m, backward, false),
                           times = attended(g->arena, d, m, backward, true);
            if (!backward)
                svg_inline(picture_work(g->arena, &loads), g->out);
            svg_inline(picture_timeline(g->arena, &times), g->out);
        }
    text_add(g->out, "</div>\n");
}

/* The fastest candidate of each schedule, the chosen one first. */
static void add_layouts(const Page *g)
{
    const Draft *chosen = plan_draft(g->found->plan);
    const char *shown[LAYOUTS] = {schedule_text(g->arena, &chosen->choice)};
    text_add(g->out, "<h2>Where the time goes</h2>\n<p class=\"dim\">The chosen layout, then the fastest of "
                     "other schedules.</p>\n");
    add_layout(g, chosen, &g->found->cost, true);
    for (int n = 1; n < LAYOUTS; n++) {
        const Evaluated *best = NULL;
        for (int i = 0; i < g->found->evaluated_count; i++) {
            const Evaluated *x = &g->found->evaluated[i];
            bool seen = x->why_not;
            for (int k = 0; k < n; k++)
                seen = seen || strcmp(shown[k], schedule_text(g->arena, &x->choice)) == 0;
            best = !seen && (!best || x->cost.step < best->cost.step) ? x : best;
        }
        if (!best)
            return;
        Draft d = draft_make(g->arena, g->diags, g->program, &best->choice);
        d.counts = best->counts;
        const Cost cost = cost_draft(g->arena, &d, INFINITY);
        add_layout(g, &d, &cost, false);
        shown[n] = schedule_text(g->arena, &best->choice);
    }
}

/* ---- all ---- */

static void add_head(const Page *g)
{
    const Program *p = g->program;
    const Model *m = &p->model;
    text_printf(g->out, "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta "
                        "name=\"viewport\" content=\"width=device-width\">"
                        "<meta name=\"color-scheme\" content=\"light dark\">\n");
    add(g, "<title>", m->name, ": masks and layouts</title>\n");
    text_printf(g->out, "<style>%s%s</style></head>\n<body>\n", svg_style, page_style);
    add(g, "<h1>", m->name, "</h1>\n");
    text_printf(g->out, "<p class=\"dim\">%d layer%s, hidden %d, %d head%s of %d (%d for keys); %s tokens",
                m->layers, plural(m->layers), m->hidden, m->heads, plural(m->heads), m->head_dim, m->kv_heads,
                tokens_text(g->arena, p->sequence));
    if (g->found->plan)
        add(g, "; cluster ", p->cluster.name,
            arena_printf(g->arena, ": %d rank%s on %d node%s. Times are predicted.</p>\n", p->cluster.world,
                         plural(p->cluster.world), p->cluster.nodes, plural(p->cluster.nodes)));
    else
        text_add(g->out, ". No cluster was given, so times and memory are not predicted.</p>\n");
}

void explore_page(Arena *a, Diags *d, const Program *p, const Found *f, Text *out)
{
    const Program all = with_all_masks(p);
    MaskMap **maps = NEW_ARRAY(a, MaskMap *, all.mask_count);
    for (int m = 0; m < all.mask_count && (m < MASKS || m < p->mask_count); m++)
        maps[m] = mask_map(a, &all, m, BURST_TILE, BURST_TILE); /* one for all that is counted */
    const Page g = {a, d, p, f, maps, out};
    add_head(&g);
    add_masks(&g);
    if (f->plan)
        add_candidates(&g);
    add_partitions(&g);
    if (f->plan)
        add_layouts(&g);
    text_add(out, "</body></html>\n");
}
