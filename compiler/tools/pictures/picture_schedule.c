/* picture_schedule.c: what each rank computes at each step of one attention in the simulation. */
#include "tools/pictures/pictures.h"

#include <math.h>

enum { LEFT = 64, TOP = 46, SIDE = 576, WIDTH = 680, ROW = 20, NAMED = 8 };

/* Uses the simulated ranks; without simulation, more nodes of a group of which few ranks are simulated. */
Attended attended(Arena *a, const Draft *d, int mask, bool backward, bool simulate)
{
    const int simulated = cost_simulated_ranks(d),
              more = simulate || simulated == d->choice.ranks ? 1 : fmax(1, SVG_CELLS / simulated);
    Attended t = {.draft = d, .mask = mask};
    t.in = cost_load(a, d, more * simulated, mask, backward, NULL);
    t.schedule = t.in.schedule; /* of the pieces of heads, if ranks exchange these */
    if (simulate)
        t.time = attention_simulate(a, &t.in);
    return t;
}

const char *attended_title(Arena *a, const Attended *t, const char *what)
{
    const Choice *c = t->schedule->choice;
    return arena_printf(a, "%s, attention %s: %s, %s, mask %s", what,
                        t->schedule->backward ? "backward" : "forward", c->schedule->name,
                        partition_text(a, c->partition, c->block),
                        svg_short(a, t->draft->program->masks[t->mask].text, 32));
}

/* The computing of a trace in order, and how many ranks and steps share a row and a column of the
 * picture. */
typedef struct Steps { int n, *at, per_row, per_column, rows, columns; } Steps;

static Steps steps_of(Arena *a, const Attended *t)
{
    const Trace *trace = &t->schedule->trace;
    Steps s = {.at = NEW_ARRAY(a, int, trace->n)};
    for (int i = 0; i < trace->n; i++)
        if (trace->at[i].node->kind == N_COMPUTE)
            s.at[s.n++] = i;
    s.per_row = (t->in.ranks + SVG_CELLS - 1) / SVG_CELLS;
    s.per_column = (s.n + SVG_CELLS - 1) / SVG_CELLS;
    s.rows = (t->in.ranks + s.per_row - 1) / s.per_row;
    s.columns = (s.n + s.per_column - 1) / s.per_column;
    return s;
}

/* The mean seconds of the ranks and steps in a cell. */
static double cell_seconds(const Attended *t, const Steps *s, int row, int column)
{
    double sum = 0;
    int n = 0;
    for (int r = row * s->per_row; r < (row + 1) * s->per_row && r < t->in.ranks; r++)
        for (int i = column * s->per_column; i < (column + 1) * s->per_column && i < s->n; i++, n++)
            sum += t->in.seconds[(size_t)s->at[i] * (size_t)t->in.ranks + (size_t)r];
    return sum / n;
}

/* The other side's chunk that a rank attends with. */
static const char *partner_text(Arena *a, const Attended *t, int rank, int at)
{
    const Instance *i = &t->schedule->trace.at[at];
    const int q = rel_add(&t->draft->choice, rank, i->chunk[0]),
              k = rel_add(&t->draft->choice, rank, i->chunk[1]);
    if (choice_rows(&t->draft->choice, t->schedule->backward) == 1)
        return "all";
    if (q == rank)
        return arena_printf(a, "k%d", k);
    return k == rank ? arena_printf(a, "q%d", q) : arena_printf(a, "q%d k%d", q, k);
}

/* Adds a title with the figure and the chunk to each cell that is large enough. */
static void name_cells(Panel *p, Arena *a, const Attended *t, const Steps *s, const double *share,
                       double most)
{
    const double w = (double)SIDE / s->columns;
    for (int c = 0; c < s->rows * s->columns; c++) {
        const int r = c / s->columns, i = c % s->columns, rank = t->in.rank[r];
        const double x = LEFT + i * w, y = TOP + r * ROW;
        const char *partner = partner_text(a, t, rank, s->at[i]);
        svg_rect(p, x, y, w, ROW, "frame",
                 arena_printf(a, "rank %d, step %d, %s: %.6f ms", rank, i, partner, 1e3 * most * share[c]));
        if (share[c] > 0)
            svg_text(p, x + w / 2, y + ROW / 2 + 4, arena_printf(a, "s m o%d", svg_level(share[c])), "%s",
                     partner);
    }
}

Panel *picture_work(Arena *a, const Attended *t)
{
    static const Key keys[] = {{"ex", "nothing"}, {"h1", "to 1/4"}, {"h2", "to 1/2"},
                               {"h3", "to 3/4"},  {"h4", "less"},   {"h5", "the most"}};
    const Steps s = steps_of(a, t);
    const bool named = s.rows <= NAMED && s.columns <= NAMED;
    const double height = ROW * fmin(s.rows, 2 * NAMED);
    Panel *p = panel_new(a, attended_title(a, t, "work"), WIDTH, TOP + height + 60);
    double *share = NEW_ARRAY(a, double, s.rows * s.columns), most = 0;
    for (int i = 0; i < s.rows * s.columns; i++)
        most = fmax(most, share[i] = cell_seconds(t, &s, i / s.columns, i % s.columns));
    for (int i = 0; most > 0 && i < s.rows * s.columns; i++)
        share[i] /= most;
    svg_grid(p, a, (Grid){LEFT, TOP, SIDE, height, s.rows, s.columns, share, "h"});
    if (named)
        name_cells(p, a, t, &s, share, most);
    svg_axis(p, a, (Axis){LEFT, TOP, height, true, s.rows, AXIS_ROWS, "rank", t->in.rank, s.per_row});
    svg_axis(p, a,
             (Axis){LEFT, TOP + height, SIDE, .most = s.n, AXIS_COUNT,
                    "step (pairs of chunks, in the order they are computed)"});
    svg_keys(p, LEFT, TOP + height + 50, 96, keys, countof(keys));
    svg_text(p, 0, 34, "s d", "the most: %.6g ms computing; %d of %d ranks; %s", 1e3 * most, t->in.ranks,
             t->draft->choice.ranks,
             named
                 ? "k3: a rank's own queries with the keys of chunk 3"
                 : arena_printf(a, "a cell is the mean of %d x %d (ranks x steps)", s.per_row, s.per_column));
    return p;
}
