/* picture_memory.c: live bytes over the step, stacked by use; what is alive at the peak; other choices. */
#include "tools/pictures/pictures.h"

#include <math.h>

enum {
    LEFT = 64,
    TOP = 60,
    SIDE = 560,
    HIGH = 260,
    WIDTH = 720,
    COLUMNS = 280,
    BARS = 24,
    BAR = 300,
    ROW = 18,
    LABEL = 220
};

static const char *const use_class[USES] = {
    [USE_STATE] = "p5",  [USE_WEIGHT] = "h2",   [USE_SUM] = "t2",      [USE_SAVED] = "t1",
    [USE_ACTIVE] = "t0", [USE_GRADIENT] = "t4", [USE_SCRATCH] = "tick"};

static const char *size(Arena *a, double bytes)
{
    return bytes_text(a, bytes, 2);
}

/* ---- over the step ---- */

/* The operation of a column with most live bytes. */
static int op_of_column(const Flow *f, const int64_t *uses, int column, int columns)
{
    const int end = (int)((int64_t)f->ops * (column + 1) / columns);
    int most = (int)((int64_t)f->ops * column / columns);
    for (int t = most; t < end; t++)
        most = uses_sum(uses, t) > uses_sum(uses, most) ? t : most;
    return most;
}

static double below(const int64_t *uses, int op, int end)
{
    double sum = 0;
    for (int u = 0; u < end; u++)
        sum += (double)uses[op * USES + u];
    return sum;
}

/* One use over all columns: its upper edge to the right, its lower edge back, without empty columns. */
static void add_use(Panel *p, const int64_t *uses, const int *op, int columns, int use, double scale)
{
    const double wide = (double)SIDE / columns;
    text_printf(&p->body, "<path class=\"%s\" d=\"", use_class[use]);
    for (int c = 0, end; c < columns; c = end) {
        const double low = below(uses, op[c], use) * scale, high = below(uses, op[c], use + 1) * scale;
        for (end = c + 1; end < columns && below(uses, op[end], use) * scale == low &&
                          below(uses, op[end], use + 1) * scale == high;)
            end++;
        if (high > low)
            text_printf(&p->body, "M%.1f %.1fh%.1fv%.1fh-%.1fz", LEFT + c * wide, TOP + HIGH - high,
                        (end - c) * wide, high - low, (end - c) * wide);
    }
    text_printf(&p->body, "\"><title>%s</title></path>\n", use_text[use].what);
}

/* A line with its figure, if it lies within the picture. */
static void add_line(Panel *p, Arena *a, double bytes, double most, const char *what)
{
    const double y = TOP + HIGH - bytes / most * HIGH;
    if (bytes > most)
        return;
    svg_rect(p, LEFT, y, SIDE, 1, "o1", arena_printf(a, "%s: %s", what, size(a, bytes)));
    svg_text(p, LEFT + SIDE + 4, y + 4, "s", "%s", what);
}

static void name_blocks(Panel *p, Arena *a, const Flow *f, const int64_t *uses)
{
    Section *s;
    const int n = step_sections(a, f, uses, 1, &s);
    for (int i = 0; i < n; i++) {
        const double x = LEFT + (double)SIDE * s[i].first / f->ops,
                     w = (double)SIDE * (s[i].last + 1 - s[i].first) / f->ops;
        svg_rect(p, x, TOP + HIGH, fmax(0.5, w - 1), 4, "tick",
                 arena_printf(a, "%s: %s at most", section_text(a, f, &s[i]),
                              size(a, (double)uses_sum(uses, s[i].at))));
        if (w > 48)
            svg_text(p, x + w / 2, TOP + HIGH + 16, "s d m", "%s",
                     f->step->block[f->op[s[i].first].block].name);
    }
}

Panel *picture_memory(Arena *a, const Space *s)
{
    const Flow *f = s->flow;
    const int64_t *uses = step_uses(a, f);
    const int columns = f->ops < COLUMNS ? f->ops : COLUMNS;
    const double most = (double)f->packed * 1.06, gib = 1 << 30;
    int op[COLUMNS];
    Panel *p =
        panel_new(a, arena_printf(a, "%s: a rank needs %s", s->name, size(a, (double)(s->total + s->beside))),
                  WIDTH, TOP + HIGH + 60);
    svg_text(p, 0, 34, "s d", "of %s; arena of the step's values %s, live bytes %s at most, in %s",
             size(a, s->capacity), size(a, (double)f->packed), size(a, (double)f->live_peak),
             step_op_text(a, f, f->peak_at));
    for (int c = 0; c < columns; c++)
        op[c] = op_of_column(f, uses, c, columns);
    for (int u = 0; u < USES; u++)
        add_use(p, uses, op, columns, u, HIGH / most);
    add_line(p, a, (double)f->packed, most, "arena");
    svg_rect(p, LEFT + (double)SIDE * f->peak_at / f->ops - 1, TOP - 6, 3, 5, "t4", "the peak");
    name_blocks(p, a, f, uses);
    svg_axis(p, a,
             (Axis){LEFT, TOP, HIGH, .up = true, .most = most / (most < gib ? 1 << 20 : gib),
                    .unit = AXIS_DECIMAL, .what = most < gib ? "live bytes (MiB)" : "live bytes (GiB)"});
    Key keys[USES];
    for (int u = 0; u < USES; u++)
        keys[u] = (Key){use_class[u], use_text[u].column};
    svg_keys(p, LEFT, TOP + HIGH + 42, 80, keys, USES);
    return p;
}

/* ---- bars ---- */

static void add_bar(Panel *p, double y, const char *what, const char *class, double share, const char *figure)
{
    const double w = fmax(0.5, BAR * share);
    svg_text(p, LABEL - 10, y, "s e", "%s", what);
    svg_rect(p, LABEL, y - 9, w, 11, class, NULL);
    svg_text(p, LABEL + 6 + w, y, "s", "%s", figure);
}

Panel *picture_alive(Arena *a, const Flow *f)
{
    Alive *alive = NEW_ARRAY(a, Alive, f->items);
    const int n = step_alive(f, alive), shown = n < BARS ? n : BARS;
    Panel *p = panel_new(a, "alive at the peak", WIDTH, 40 + ROW * shown);
    svg_text(p, 0, 34, "s d", shown < n ? "the largest %d of %d values" : "%d values", shown, n);
    for (int i = 0; i < shown; i++) {
        const Value *v = &f->step->values.at[alive[i].value];
        const char *times = alive[i].count > 1 ? arena_printf(a, " (%d)", alive[i].count) : "";
        add_bar(p, 52 + ROW * i, step_value_text(a, f->step, alive[i].value), use_class[value_use(v)],
                (double)alive[i].bytes / (double)alive[0].bytes,
                arena_printf(a, "%s%s", size(a, (double)alive[i].bytes), times));
    }
    return p;
}

Panel *picture_others(Arena *a, const Draft *d, const Cost *c)
{
    Alternative *other;
    const int n = alternatives_of(a, d, &other);
    double most = (double)c->memory;
    for (int i = 0; i < n; i++)
        most = fmax(most, (double)other[i].needs);
    Panel *p = panel_new(a, "with one setting changed", WIDTH, 40 + ROW * (n + 1));
    svg_text(p, 0, 34, "s d", "memory that a rank needs, predicted step");
    add_bar(p, 52, "as chosen", "p5", (double)c->memory / most,
            arena_printf(a, "%s, %s", size(a, (double)c->memory), time_text(a, c->step, 3)));
    for (int i = 0; i < n; i++) {
        const Alternative *o = &other[i];
        const char *figure = arena_printf(a, "%s, %s%s", size(a, (double)o->needs),
                                          time_text(a, o->step, 3), o->fits ? "" : ", does not fit");
        add_bar(p, 52 + ROW * (i + 1), svg_short(a, o->what, 30), o->fits ? "t1" : "t4",
                o->why_not ? 0 : (double)o->needs / most, o->why_not ? svg_short(a, o->why_not, 60) : figure);
    }
    return p;
}
