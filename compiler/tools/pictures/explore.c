/* explore.c: a page that needs no network: the chosen layout first, then all that were tried, the model's
 * masks, and the ranks' tokens. Without its script (page.js) it shows everything; with it, tables can be
 * sorted and filtered, and two layouts or masks compared. */
#include "tools/pictures/pictures.h"

#include <math.h>
#include <string.h>


enum { MASKS = 12, TIMED_MASKS = 2, LAYOUTS = 3, ALONE_RANKS = 8, EXPRESSION = 2000 };

/* page.css and page.js */
extern const char page_style[], page_script[];

typedef struct Page {
    Arena *arena;
    Diags *diags;
    const Program *program;
    const Found *found; /* plan NULL: no cluster */
    MaskMap **maps;
    Text *out;
    const Program *written; /* from the front end */
    /* [LAYOUTS] rows of --explain with pictures, the chosen one first */
    const Evaluated *drawn[LAYOUTS];
} Page;

static void add(const Page *g, const char *before, const char *text, const char *after)
{
    text_add(g->out, before);
    svg_escape(text, g->out);
    text_add(g->out, after);
}

/* Adds several lines as they are; nothing if there are none. */
static void add_lines(const Page *g, const char *text)
{
    text_add(g->out, *text ? "<pre>" : "");
    for (const char *line = text; *line;) {
        const int n = (int)strcspn(line, "\n");
        add(g, "", arena_printf(g->arena, "%.*s", n, line), "\n");
        line += n + (line[n] != 0);
    }
    text_add(g->out, *text ? "</pre>\n" : "");
}

/* ---- masks ---- */

static const char *layers_text(Arena *a, const Program *p, int mask)
{
    int n = 0;
    for (int l = 0; l < p->model.layers; l++)
        n += p->layer_mask[l] == mask;
    return n ? arena_printf(a, "%d of %d layers", n, p->model.layers) : "no layer uses it";
}

/* Masks that no layer uses follow the others. */
static Program with_all_masks(const Program *p)
{
    Program all = *p;
    all.mask_count = p->all_masks;
    all.table_count = p->all_tables;
    return all;
}

/* A comparison that the script shows: two selectors and a place for each choice; `between` comes before
 * these. */
static void add_besides(const Page *g, const char *id, const char *what, const char *between)
{
    text_printf(g->out,
                "<section id=\"%s\" hidden><h3>Two %ss side by side</h3>\n<div class=\"two\"><label>one: "
                "<select></select></label><label>other: <select></select></label></div>%s<div "
                "class=\"two\"><div></div><div></div></div></section>\n",
                id, what, between);
}

/* Of a mask with a selection, the share of the pairs that it may choose among. */
static const char *chosen_text(const Page *g, const Program *all, int mask)
{
    if (!all->masks[mask].selection)
        return "";
    const MaskSum drawn = mask_sum(g->maps[mask]),
                  most = mask_sum(mask_map_of_all(g->arena, all, mask, BURST_TILE, BURST_TILE));
    return arena_printf(g->arena, "<br>a selection drawn at random: %.3g %% of %lld pairs that may be kept",
                        100.0 * (double)drawn.work.pairs / fmax(1, (double)most.work.pairs),
                        (long long)most.work.pairs);
}

/* What a layer's attention takes in the chosen layout if it has this mask, also one that no layer has. A mask
 * that the layout has no schedule for, as it chose one for each mask in use, has no time. */
static const char *time_of_mask(const Page *g, const Program *all, int mask)
{
    if (!g->found->plan)
        return "";
    const Draft *chosen = plan_draft(g->found->plan);
    if (chosen->choice.of_mask && mask >= chosen->program->mask_count)
        return "";
    Program alone = *all; /* the mask of all layers */
    alone.masks = &all->masks[mask];
    alone.mask_count = 1;
    alone.layer_mask = NEW_ARRAY(g->arena, int, alone.model.layers);
    const Choice choice = choice_of_mask(&chosen->choice, mask);
    const Draft d = draft_make(g->arena, g->diags, &alone, &choice);
    const AttentionTime *t = cost_attended(g->arena, &d).kind->time;
    const char *forward = time_text(g->arena, t[ATTEND_FORWARD].seconds, 3);
    return arena_printf(g->arena, "<br>a layer in the chosen layout: forward %s%s%s", forward,
                        alone.infer.lengths ? "" : ", backward ",
                        alone.infer.lengths ? "" : time_text(g->arena, t[ATTEND_BACKWARD].seconds, 3));
}

static void add_masks(const Page *g)
{
    const Program all = with_all_masks(g->program);
    text_add(g->out, "<h2 id=\"mask-list\">Masks</h2>\n<div class=\"row\" id=\"masks\">\n");
    for (int m = 0; m < all.mask_count && m < MASKS; m++) {
        Text expression = {0};
        mask_text(all.masks[m].expr, all.tables, &expression);
        add(g, "<figure data-name=\"", all.masks[m].text, "\">\n");
        svg_inline(picture_mask(g->arena, &all, m, g->maps[m]), g->out);
        add(g, "<figcaption><code>", svg_short(g->arena, expression.at, EXPRESSION), "</code><br>");
        add(g, "", layers_text(g->arena, g->program, m), chosen_text(g, &all, m));
        text_add(g->out, time_of_mask(g, &all, m));
        text_add(g->out, "</figcaption></figure>\n");
        text_free(&expression);
    }
    text_add(g->out, "</div>\n");
    add_besides(g, "two-masks", "mask", "");
    if (all.mask_count > MASKS)
        text_printf(g->out, "<p class=\"dim\">%d more masks are not drawn.</p>\n", all.mask_count - MASKS);
    if (all.open_masks)
        add(g, "<p class=\"dim\">Not drawn, because they take parameters and no layer uses them: ",
            svg_short(g->arena, all.open_masks, 400), "</p>\n");
}

/* ---- partitions ---- */

/* Ranks that share a sequence: the chosen number; without a cluster, the layout's or a default. */
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

/* [mask] reuses the search's counts if there are any. */
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
                "<h2 id=\"ranks\">Tokens and work of each rank</h2>\n<p class=\"dim\">%d rank%s a "
                "sequence%s.</p>\n<div "
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

/* ---- the table of layouts ---- */

static void add_figures(const Page *g, const Evaluated *x)
{
    text_printf(g->out, "<td>%.3f<td>%.1f<td>%.2f<td>%.3f<td>%s<td>%s<td class=\"why\">%s</tr>\n",
                x->cost.step * 1e3, 100 * x->cost.exposed / x->cost.step, x->cost.imbalance,
                (double)x->cost.memory / (1 << 30), size_text(g->arena, x->cost.bytes_link),
                size_text(g->arena, x->cost.bytes_nic), x->verdict);
}

/* Omits end tags, which HTML allows: a search may have thousands of rows. */
static void add_settings(const Page *g, const Evaluated *x)
{
    for (int i = 0; i < SETTING_COUNT; i++)
        if (g->found->column[i]) {
            const char *text = settings[i]->text(g->arena, &x->choice);
            add(g, "<td>", text ? text : "-", "");
        }
}

static void add_row(const Page *g, const Evaluated *x)
{
    text_add(g->out, x->chosen ? "<tr class=\"best\"" : "<tr");
    for (int i = 0; i < LAYOUTS; i++)
        if (g->drawn[i] == x)
            text_printf(g->out, " data-drawn=\"layout-%d\"", i);
    text_add(g->out, ">");
    add_settings(g, x);
    if (x->why_not)
        add(g, "<td class=\"why\">", svg_short(g->arena, x->why_not, 400), "</tr>\n");
    else
        add_figures(g, x);
}

/* Columns of settings are as wide as their text; figures are numbers. */
static int add_table(const Page *g, const char *id, const char *figures, int figure_columns)
{
    int n = 0;
    for (int i = 0; i < SETTING_COUNT; i++)
        n += g->found->column[i];
    text_printf(g->out, "<table class=\"layouts\"%s data-settings=\"%d\" style=\"--columns:%d\"><thead><tr>",
                id, n, n + figure_columns);
    for (int i = 0; i < SETTING_COUNT; i++)
        if (g->found->column[i])
            add(g, "<th class=\"l\">", settings[i]->form->name, "</th>");
    text_printf(g->out, "%s</tr></thead>\n<tbody>\n", figures);
    return n;
}

/* Lists what works, and folded below it what does not, by reason. */
static void add_candidates(const Page *g)
{
    const Found *f = g->found;
    Failures *group;
    const int groups = search_failures(g->arena, f, &group);
    text_add(g->out,
             "<h2 id=\"candidates\">Layouts</h2>\n<p class=\"dim\">Every layout that was tried, with "
             "simulated times, as --explain prints them; bytes are those a rank sends in a step.</p>\n"
             "<p class=\"tools\" hidden><label>filter: <input type=\"search\" id=\"filter\" "
             "placeholder=\"ring zigzag\"></label><span id=\"shown\" role=\"status\"></span></p>\n");
    const int n = add_table(
        g, " id=\"layouts\"",
        "<th>step (ms)</th><th>exposed (%)</th><th>balance</th><th>memory (GiB)</th><th>inside nodes</th>"
        "<th>between nodes</th><th class=\"why\">verdict (what it waits for)</th>",
        6);
    for (int i = 0; i < f->evaluated_count && !f->evaluated[i].why_not; i++)
        add_row(g, &f->evaluated[i]);
    text_add(g->out, "</tbody></table>\n");
    text_printf(g->out, "<style>.layouts td:nth-child(-n+%d){text-align:left}</style>\n", n);
    for (int k = 0; k < groups; k++) {
        add(g, "<details class=\"failures\"><summary>", group[k].what, "</summary>\n");
        add_table(g, "", "<th class=\"why\">why not</th>", 0);
        for (int i = 0; i < group[k].n; i++)
            add_row(g, &f->evaluated[group[k].first + i]);
        text_add(g->out, "</tbody></table></details>\n");
    }
    add_lines(g, f->remarks);
    add_besides(g, "two-layouts", "layout", "<table><tbody id=\"differences\" class=\"l\"></tbody></table>");
}

/* ---- layouts that are drawn ---- */

/* Whether one of the n layouts with pictures is this one or, with `schedules`, has its schedule. */
static bool is_drawn(const Page *g, int n, const Evaluated *x, bool schedules)
{
    bool drawn = false;
    for (int k = 0; k < n; k++)
        drawn = drawn || g->drawn[k] == x ||
                (schedules && strcmp(schedule_text(g->arena, &g->drawn[k]->choice),
                                     schedule_text(g->arena, &x->choice)) == 0);
    return drawn;
}

/* Chooses the fastest candidate of each schedule, the chosen one first; if there are too few schedules, also
 * the fastest others. Rows are sorted by time. */
static void choose_drawn(Page *g)
{
    int n = 0;
    for (int schedules = 1; schedules >= 0; schedules--)
        for (int i = 0; i < g->found->evaluated_count && n < LAYOUTS; i++) {
            const Evaluated *x = &g->found->evaluated[i];
            if (!x->why_not && !is_drawn(g, n, x, schedules))
                g->drawn[n++] = x;
        }
}

/* Work and timelines of each mask's attention; unless all, of the first layer's only. */
static void add_attentions(const Page *g, const Draft *d, bool all)
{
    const Program *p = g->program;
    for (int m = 0; m < p->mask_count && m < TIMED_MASKS; m++)
        for (int backward = 0; backward < 2 && (all || m == p->layer_mask[0]); backward++) {
            const Attended loads = attended(g->arena, d, m, backward, false),
                           times = attended(g->arena, d, m, backward, true);
            svg_inline(picture_timeline(g->arena, &times), g->out);
            if (!backward)
                svg_inline(picture_work(g->arena, &loads), g->out);
        }
}

static void add_layout(const Page *g, int n, const Draft *d, const Cost *cost, bool all)
{
    text_printf(g->out, "<div id=\"layout-%d\">", n);
    add(g, "<p><code>", choice_text(g->arena, &d->choice), "</code></p>\n<div class=\"row\">\n");
    svg_inline(picture_step(g->arena, cost), g->out);
    if (all) {
        Space space[MOST_SPACES];
        const int spaces = memory_spaces(d, space);
        for (int i = 0; i < spaces; i++)
            if (space[i].flow)
                svg_inline(picture_memory(g->arena, &space[i]), g->out);
    }
    add_attentions(g, d, all);
    text_add(g->out, "</div></div>\n");
}

static void add_figure(const Page *g, const char *what, const char *value)
{
    add(g, "<div><dt>", what, "</dt>");
    add(g, "<dd>", value, "</dd></div>\n");
}

/* The chosen layout: reasons, time, and what other values of fixed settings would save. */
static void add_chosen(const Page *g)
{
    const Cost *c = &g->found->cost;
    const char *reason = search_reason(g->arena, g->found),
               *hints = search_hints(g->arena, g->written, g->found),
               *speed = cost_speed_text(g->arena, g->program, c);
    text_add(g->out, "<h2 id=\"chosen\">The chosen layout</h2>\n");
    if (reason)
        add(g, "<p>", reason, "</p>\n");
    text_add(g->out, "<dl>\n");
    add_figure(g, "step", time_text(g->arena, c->step, 3));
    if (*speed)
        add_figure(g, "speed", speed);
    add_figure(g, "memory of a rank",
               arena_printf(g->arena, "%s of %s", bytes_text(g->arena, (double)c->memory, 2),
                            bytes_text(g->arena, cluster_least_memory(&g->program->cluster)->memory, 2)));
    add_figure(g, "waits for transfers", arena_printf(g->arena, "%.1f %%", 100 * c->exposed / c->step));
    add_figure(g, "most waited for", cost_waits_text(c));
    text_add(g->out, "</dl>\n");
    add_lines(g, hints);
    add_layout(g, 0, plan_draft(g->found->plan), c, true);
}

static void add_others(const Page *g)
{
    text_add(g->out,
             "<h2 id=\"others\">Other layouts</h2>\n<p class=\"dim\">The fastest layout of each of two "
             "other schedules or, with fewer schedules, the fastest others.</p>\n");
    for (int n = 1; n < LAYOUTS && g->drawn[n]; n++) {
        const Evaluated *x = g->drawn[n];
        const Evaluation e = evaluate_choice(g->arena, g->program, &x->choice);
        add_layout(g, n, &e.draft, &e.cost, false);
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
    text_printf(g->out, "<style>%s\n%s</style></head>\n<body>\n", svg_style, page_style);
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

static void add_links(const Page *g)
{
    text_printf(g->out, "<nav>%s<a href=\"#mask-list\">Masks</a><a href=\"#ranks\">Ranks</a>%s</nav>\n",
                g->found->plan
                    ? "<a href=\"#chosen\">Chosen layout</a><a href=\"#candidates\">All layouts</a>"
                    : "",
                g->drawn[1] ? "<a href=\"#others\">Other layouts</a>" : "");
}

void explore_page(Arena *a, Diags *d, const Program *p, const Found *f, Text *out)
{
    const Program *planned = f->plan ? plan_draft(f->plan)->program : p;
    const Program all = with_all_masks(planned);
    MaskMap **maps = NEW_ARRAY(a, MaskMap *, all.mask_count);
    for (int m = 0; m < all.mask_count && (m < MASKS || m < planned->mask_count); m++)
        maps[m] = mask_map(a, &all, m, BURST_TILE, BURST_TILE); /* one map for all counts */
    Page g = {a, d, planned, f, maps, out, p, {0}};
    if (f->plan)
        choose_drawn(&g);
    add_head(&g);
    add_links(&g);
    if (f->plan) {
        add_chosen(&g);
        add_candidates(&g);
    }
    add_masks(&g);
    add_partitions(&g);
    if (g.drawn[1])
        add_others(&g);
    text_printf(out, "<script>%s</script></body></html>\n", page_script);
}
