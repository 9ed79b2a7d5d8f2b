/* picture_forms.c: forms of --emit that can be pictures. */
#include "tools/pictures/pictures.h"


enum { MOST_MASKS = 4, MOST_PICTURES = 12 }; /* with several panels per mask; with one */

static void draw_panels(Arena *a, const Program *p, const char *form, Panel *const *panel, int n, Text *out)
{
    svg_file(arena_printf(a, "%s of %s, %s tokens", form, p->model.name, tokens_text(a, p->sequence)), panel,
             n, out);
}

/* The number of masks drawn; after their n panels, a line about the others. */
static int drawn_masks(const Program *p, int most)
{
    return p->mask_count < most ? p->mask_count : most;
}

static int add_rest(Arena *a, const Program *p, int drawn, Panel **panel, int n)
{
    if (p->mask_count > drawn)
        panel[n++] = panel_new(a, arena_printf(a, "%d more masks are not drawn", p->mask_count - drawn), 400,
                               20);
    return n;
}

void draw_masks(Arena *a, const Found *f, Text *out)
{
    const Program *p = plan_draft(f->plan)->program;
    Panel *panel[MOST_PICTURES + 1];
    const int drawn = drawn_masks(p, MOST_PICTURES);
    for (int m = 0; m < drawn; m++)
        panel[m] = picture_mask(a, p, m, mask_map(a, p, m, BURST_TILE, BURST_TILE));
    draw_panels(a, p, "masks", panel, add_rest(a, p, drawn, panel, drawn), out);
}

void draw_partition(Arena *a, const Found *f, Text *out)
{
    const Draft *d = plan_draft(f->plan);
    Panel *panel[2] = {picture_partition(a, d->partition)};
    if (!choice_exchanges(&d->choice))
        panel[1] = picture_balance(a, d->program, d->partition, d->counts);
    draw_panels(a, d->program, "partition", panel, panel[1] ? 2 : 1, out);
}

/* After `first`, draws each direction under the first masks that layers use, then lists the rest. */
static void draw_attentions(Arena *a, const Draft *d, const char *form, Panel *first,
                            Panel *(*picture)(Arena *a, const Attended *t), Text *out)
{
    const int drawn = drawn_masks(d->program, MOST_MASKS);
    Panel *panel[2 * MOST_MASKS + 2] = {first};
    int n = first ? 1 : 0;
    for (int i = 0; i < 2 * drawn; i++) {
        const Attended t = attended(a, d, i / 2, i % 2, picture == picture_timeline);
        panel[n++] = picture(a, &t);
    }
    draw_panels(a, d->program, form, panel, add_rest(a, d->program, drawn, panel, n), out);
}

void draw_schedule(Arena *a, const Found *f, Text *out)
{
    draw_attentions(a, plan_draft(f->plan), "schedule", NULL, picture_work, out);
}

void draw_cost(Arena *a, const Found *f, Text *out)
{
    draw_attentions(a, plan_draft(f->plan), "cost", picture_step(a, &f->cost), picture_timeline, out);
}

void draw_memory(Arena *a, const Found *f, Text *out)
{
    const Draft *d = plan_draft(f->plan);
    Space space[MOST_SPACES];
    Panel *panel[2 * MOST_SPACES + 1];
    int n = 0;
    for (int i = 0, spaces = memory_spaces(d, space); i < spaces; i++)
        if (space[i].flow) {
            panel[n++] = picture_memory(a, &space[i]);
            panel[n++] = picture_alive(a, space[i].flow);
        }
    panel[n++] = picture_others(a, d, &f->cost);
    draw_panels(a, d->program, "memory", panel, n, out);
}
