/* picture_time.c: where time goes: the simulated timeline of one attention on all ranks, and the parts of a
 * step. */
#include "tools/pictures/pictures.h"

#include "burst_parts.h"

#include <math.h>

enum { LEFT = 64, TOP = 46, SIDE = 576, WIDTH = 680, LANE = 10, THIN = 4, GAP = 4 };
enum { FEW_SPANS = 1000, FEW_RANKS = 16, BINS = 80, ROWS = 16, GRID = 128, BAR = 350 };

/* The class of an interval's bars: 0: computing, then one for each received tensor. */
static int class_of(const Attended *t, const Busy *b)
{
    return b->channel < 0 ? 0 : 1 + (int)t->schedule->trace.at[b->at].node->ref[0].tensor;
}

/* ---- every interval, if there are few ---- */

/* A rank has a lane for computing and a thin one for each channel; channels are numbered through both
 * directions. */
typedef struct Lanes { int first; double high; } Lanes;

static Lanes lanes_of(const Attended *t)
{
    int first = t->schedule->channels;
    for (int i = 0; i < t->time.intervals; i++)
        if (t->time.interval[i].channel >= 0 && t->time.interval[i].channel < first)
            first = t->time.interval[i].channel;
    return (Lanes){first, LANE + GAP + THIN * (t->schedule->channels - first)};
}

/* Draws all spans of one class as one path; returns whether there are any. */
static bool add_spans(Panel *p, const Attended *t, const Lanes *l, int class)
{
    const double scale = SIDE / t->time.seconds;
    int n = 0;
    text_printf(&p->body, class ? "<path class=\"t%d\" d=\"" : "<path class=\"p5\" d=\"", class - 1);
    for (int i = 0; i < t->time.intervals; i++) {
        const Busy *b = &t->time.interval[i];
        const double w = (b->end - b->begin) * scale, shown = fmax(0.7, w > 2 ? w - 0.5 : w);
        const double y = TOP + b->rank * l->high + (class ? LANE + THIN * (b->channel - l->first) : 0);
        if (class_of(t, b) != class)
            continue;
        text_printf(&p->body, "M%.1f %.6gh%.1fv%dh-%.1fz", LEFT + b->begin * scale, y, shown,
                    class ? THIN - 1 : LANE, shown);
        n++;
    }
    text_add(&p->body, "\"/>\n");
    return n > 0;
}

static double draw_spans(Panel *p, Arena *a, const Attended *t)
{
    static const char *const class[] = {"p5", "t0", "t1", "t2", "t3", "t4"};
    const Lanes l = lanes_of(t);
    const double height = t->in.ranks * l.high;
    Key keys[1 + TENSOR_COUNT];
    int n = 0;
    for (int r = 0; r < t->in.ranks; r++)
        svg_rect(p, LEFT, TOP + r * l.high - GAP / 2, SIDE, l.high, "ex",
                 arena_printf(a, "rank %d: computes %.6f ms, done at %.6f ms", t->in.rank[r],
                              1e3 * t->time.busy[r], 1e3 * t->time.end[r]));
    for (int i = 0; i <= TENSOR_COUNT; i++)
        if (add_spans(p, t, &l, i))
            keys[n++] = (Key){class[i], i ? arena_printf(a, "receives %s", tensor_name((TensorId)(i - 1)))
                                          : "computes"};
    svg_axis(p, a, (Axis){LEFT, TOP - GAP / 2, height, true, t->in.ranks, AXIS_ROWS, "rank", t->in.rank, 1});
    svg_keys(p, LEFT, TOP + height + 48, 110, keys, n);
    svg_text(p, 0, 34, "s d", "takes %.3f ms; every rank's computing and what it receives",
             1e3 * t->time.seconds);
    return height;
}

/* ---- shares of time, if there are many intervals ---- */

static int ranks_of_row(const Attended *t)
{
    return (t->in.ranks + ROWS - 1) / ROWS;
}

static void add_shares(Panel *p, Arena *a, const Attended *t, bool computing, double y)
{
    const int per_row = ranks_of_row(t), rows = (t->in.ranks + per_row - 1) / per_row;
    const double scale = BINS / t->time.seconds;
    double *share = NEW_ARRAY(a, double, rows * BINS);
    for (int i = 0; i < t->time.intervals; i++) {
        const Busy *b = &t->time.interval[i];
        const int row = b->rank / per_row, left = t->in.ranks - row * per_row;
        const double begin = b->begin * scale, end = b->end * scale;
        for (int x = (int)begin; (b->channel < 0) == computing && x < BINS && x < end; x++)
            share[row * BINS + x] += (fmin(end, x + 1) - fmax(begin, x)) / (left < per_row ? left : per_row);
    }
    /* drops negligible shares; concurrent transfers must not exceed the whole */
    for (int i = 0; i < rows * BINS; i++)
        share[i] = share[i] < 1e-3 ? 0 : fmin(computing ? 1 : 1 - 1e-9, share[i] + 1e-6);
    svg_text(p, LEFT, y - 4, "s", computing ? "computing" : "receiving");
    svg_grid(p, a, (Grid){LEFT, y, SIDE, GRID, rows, BINS, share, computing ? "h" : "p"});
    svg_axis(p, a, (Axis){LEFT, y, GRID, true, rows, AXIS_ROWS, "rank", t->in.rank, per_row});
}

static double draw_shares(Panel *p, Arena *a, const Attended *t)
{
    add_shares(p, a, t, true, TOP + 10);
    add_shares(p, a, t, false, TOP + GRID + 30);
    svg_text(p, 0, 34, "s d",
             "takes %.3f ms; %d of %d ranks simulated; a row is %d, darker where more of the time is taken",
             1e3 * t->time.seconds, t->in.ranks, t->draft->choice.ranks, ranks_of_row(t));
    return 2 * GRID + 30;
}

Panel *picture_timeline(Arena *a, const Attended *t)
{
    const bool few = t->in.ranks <= FEW_RANKS && t->time.intervals <= FEW_SPANS;
    Panel *p = panel_new(a, attended_title(a, t, "timeline"), WIDTH, 0);
    const double height = few ? draw_spans(p, a, t) : draw_shares(p, a, t);
    p->height = TOP + height + (few ? 60 : 36);
    svg_axis(p, a,
             (Axis){LEFT, TOP + height, SIDE, .most = 1e3 * t->time.seconds, AXIS_DECIMAL, "time (ms)"});
    return p;
}

/* ---- the step ---- */

Panel *picture_step(Arena *a, const Cost *c)
{
    static const struct { const char *text; bool computing; } row[BURST_ROW_COUNT] = {
#define X(id, text, computing) {text, computing},
        BURST_ROWS(X)
#undef X
    };
    Panel *p = panel_new(a, arena_printf(a, "step %s", time_text(a, c->step, 6)), WIDTH, 0);
    svg_text(p, 0, 34, "s d", "compute %s, exposed %s; most waited for: %s", time_text(a, c->compute, 6),
             time_text(a, c->exposed, 6), cost_waits_text(c));
    double y = TOP + 10, most = c->step;
    for (int i = 0; i < BURST_ROW_COUNT; i++)
        most = fmax(most, c->rows[i]);
    for (int i = 0; i < BURST_ROW_COUNT; i++) {
        if (c->rows[i] <= 0)
            continue;
        const double w = fmax(0.5, BAR * c->rows[i] / most);
        svg_text(p, 190, y, "s e", "%s%s", row[i].text, row[i].computing ? "" : " (overlapped)");
        const char *computing = row[i].computing ? "p5" : "t1";
        svg_rect(p, 200, y - 9, w, 11, i == BURST_ROW_WAIT ? "t4" : computing, NULL);
        svg_text(p, 206 + w, y, "s", "%.3f ms, %.1f %%", 1e3 * c->rows[i], 100 * c->rows[i] / c->step);
        y += 18;
    }
    p->height = y;
    return p;
}
