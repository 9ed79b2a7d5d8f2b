/* cost_print.c: --emit=cost: the simulated step as a table, bytes, and a timeline of one attention. */
#include "cost.h"

#include <string.h>

enum { TIMELINE_RANKS = 4, TIMELINE_COLUMNS = 72 };

static double ms(double seconds)
{
    return seconds * 1e3;
}

static const char *size_text(Arena *a, double bytes)
{
    static const char *const unit[] = {"B", "kB", "MB", "GB", "TB"};
    int u = 0;
    for (; bytes >= 1000 && u + 1 < countof(unit); u++)
        bytes /= 1000;
    return arena_printf(a, "%.2f %s", bytes, unit[u]);
}

/* ---- table ---- */

static double most(const double *x, int n)
{
    double m = 0;
    for (int i = 0; i < n; i++)
        m = x[i] > m ? x[i] : m;
    return m;
}

static void print_row(const char *what, double times, double seconds, double compute, Text *out)
{
    text_printf(out, "  %-34.34s %6.0f %12.3f %12.3f %12.3f\n", what, times, ms(seconds), ms(compute),
                ms(seconds > compute ? seconds - compute : 0));
}

static void print_kind(Arena *a, const StepParts *p, const char *mask, const LayerKind *l, Text *out)
{
    double times = p->sequences * l->layers;
    print_row(arena_printf(a, "attention forward, %s", mask), times * (1 + p->attention_again), l->forward.seconds,
              most(l->forward.busy, p->ranks), out);
    print_row(arena_printf(a, "attention backward, %s", mask), times, l->backward.seconds,
              most(l->backward.busy, p->ranks), out);
}

static void print_table(Arena *a, const Draft *d, const StepParts *p, Text *out)
{
    double layers = p->sequences * d->program->model.layers;
    text_printf(out, "  %-34s %6s %12s %12s %12s\n", "milliseconds, each", "times", "takes", "compute", "exposed");
    for (int k = 0; k < p->kinds; k++)
        if (p->kind[k].layers)
            print_kind(a, p, d->program->masks[k].text, &p->kind[k], out);
    print_row("rest of a layer, forward", layers, p->dense_forward, p->dense_forward, out);
    if (p->dense_again > 0)
        print_row("rest of a layer, recomputed", layers, p->dense_again, p->dense_again, out);
    print_row("rest of a layer, backward", layers, p->dense_backward, p->dense_backward, out);
    print_row("embedding", p->sequences, p->embedding, p->embedding, out);
    print_row("loss", p->sequences, p->loss, p->loss, out);
    print_row("weights that nothing hides", p->sequences, p->weights, 0, out);
    print_row("optimizer", 1, p->optimizer, p->optimizer, out);
    print_row("step", 1, p->step, p->slowest_compute, out);
    text_printf(out, "on the wire: weights of a layer %.3f ms, their gradients %.3f ms\n", ms(p->gather), ms(p->reduce));
}

/* ---- timeline ---- */

static void draw(char *line, const Busy *b, double whole, char mark)
{
    int first = (int)(b->begin / whole * TIMELINE_COLUMNS), last = (int)(b->end / whole * TIMELINE_COLUMNS);
    for (int i = first; i < TIMELINE_COLUMNS && (i < last || i == first); i++)
        line[i] = mark;
}

static const char *stream_name(const Schedule *s, int channel)
{
    for (int i = 0; i < s->trace.n; i++)
        if (s->trace.at[i].node->channel == channel && s->trace.at[i].node->kind != N_COMPUTE)
            return tensor_name(s->trace.at[i].node->ref[0].tensor);
    return "";
}

/* One row a rank and stream: '#' computes, '=' receives, '.' neither. Empty rows are left out. */
static void print_stream(const Schedule *s, const AttentionTime *t, int rank, int channel, Text *out)
{
    char line[TIMELINE_COLUMNS + 1];
    memset(line, '.', TIMELINE_COLUMNS);
    line[TIMELINE_COLUMNS] = 0;
    bool any = false;
    for (int i = 0; i < t->intervals; i++) {
        const Busy *b = &t->interval[i];
        if (b->rank != rank || b->channel != channel)
            continue;
        any = true;
        draw(line, b, t->seconds, channel < 0 ? '#' : '=');
    }
    if (!any)
        return;
    if (channel < 0)
        text_printf(out, "  rank %-3d %-7s |%s|\n", rank, "compute", line);
    else
        text_printf(out, "  %8s %3d %-3s |%s|\n", "", channel, stream_name(s, channel), line);
}

static void print_timeline(const Schedule *s, const StepParts *p, const AttentionTime *t, Text *out)
{
    text_printf(out, "timeline %s, first layer: %.3f ms, a column is %.4f ms\n", s->backward ? "backward" : "forward",
                ms(t->seconds), ms(t->seconds) / TIMELINE_COLUMNS);
    for (int r = 0; r < p->ranks && r < TIMELINE_RANKS; r++)
        for (int channel = -1; channel < s->channels; channel++)
            print_stream(s, t, r, channel, out);
}

/* ---- all ---- */

static void print_sums(Arena *a, const Cost *c, Text *out)
{
    text_printf(out, "step %.3f ms: compute %.3f ms, exposed %.3f ms; most waited for: %s\n", ms(c->step), ms(c->compute),
                ms(c->exposed), c->critical);
    text_printf(out, "sent by a rank: %s inside nodes, %s between nodes\n", size_text(a, c->bytes_link),
                size_text(a, c->bytes_nic));
    text_printf(out, "%.4g FLOP on all ranks, imbalance %.3f, memory %s a rank\n", c->flops, c->imbalance,
                size_text(a, (double)c->memory));
}

void print_cost_draft(const Draft *d, const Cost *c, Text *out)
{
    Arena *a = arena_new();
    StepParts p = step_parts(a, d);
    const Choice *choice = d->forward->choice;
    text_printf(out, "burst-cost 1\nschedule %s, partition %s, travel %s, %d ranks", choice->schedule->name,
                partition_names[choice->partition], travel_names[choice->travel], choice->ranks);
    text_printf(out, p.ranks < choice->ranks ? ", %d of them simulated\n" : "\n", p.ranks);
    print_sums(a, c, out);
    print_table(a, d, &p, out);
    const LayerKind *first = &p.kind[d->program->layer_mask[0]];
    print_timeline(d->forward, &p, &first->forward, out);
    print_timeline(d->backward, &p, &first->backward, out);
    arena_free(a);
}

void print_cost(const Plan *p, const Cost *c, Text *out)
{
    print_cost_draft(plan_draft(p), c, out);
}
