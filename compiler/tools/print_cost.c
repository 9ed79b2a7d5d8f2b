/* tools/print_cost.c: --emit=cost: the simulated step as a table, bytes, and a timeline of one attention. */
#include "tools/tools.h"

#include <string.h>

enum { TIMELINE_RANKS = 4, TIMELINE_COLUMNS = 72 };

static double ms(double seconds)
{
    return seconds * 1e3;
}

const char *size_text(Arena *a, double bytes)
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
    static const char *const name[ATTENDS] = {"forward", "backward", "of the rest"};
    for (int b = 0; b < p->attends; b++)
        if (l->times[b] > 0)
            print_row(arena_printf(a, "attention %s, %s", name[b], mask), l->times[b], l->time[b].seconds,
                      most(l->time[b].busy, p->ranks), out);
}

/* seconds: total over all times. */
static void print_block(const char *what, double times, double seconds, Text *out)
{
    if (times > 0 && seconds > 0)
        print_row(what, times, seconds / times, seconds / times, out);
}

static void print_table(Arena *a, const Draft *d, const StepParts *p, const Cost *c, Text *out)
{
    const int masks = d->program->mask_count;
    text_printf(out, "  %-34s %6s %12s %12s %12s\n", "milliseconds, each", "times", "takes", "compute",
                "exposed");
    for (int k = 0; k < p->kinds; k++)
        if (p->kind[k].layers)
            print_kind(a, p,
                       k < masks ? d->program->masks[k].text
                                 : arena_printf(a, "short chunks, %s", d->program->masks[k - masks].text),
                       &p->kind[k], out);
    for (int b = 0; b < STEP_BLOCKS; b++) {
        const BlockTime *t = &p->block[b];
        print_block(arena_printf(a, "rest of %s", p->block_name[b]), t->times, t->seconds, out);
        print_block(arena_printf(a, "rest of %s, recomputed", p->block_name[b]), t->times, t->again, out);
    }
    print_row("exposed gathers and reductions", 1, p->weights, 0, out);
    if (p->tensor > 0)
        print_row("tensor-parallel transfers", 1, p->tensor, 0, out);
    if (d->memory.offloaded)
        print_row("exposed host copies", 1, p->copies, 0, out);
    print_row("step", 1, p->step, c->compute, out);
    text_printf(out,
                "overlapped with computing: attention transfers %.3f ms, gathers of weights %.3f ms, "
                "reductions of gradients %.3f ms\n",
                ms(p->rows[BURST_ROW_PASS]), ms(p->rows[BURST_ROW_GATHER]), ms(p->rows[BURST_ROW_REDUCE]));
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

/* One row per rank and stream: '#' computes, '=' receives, '.' idle. Empty rows are left out. */
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
    text_printf(out, "timeline %s, first layer: %.3f ms, a column is %.4f ms\n",
                s->backward ? "backward" : "forward", ms(t->seconds), ms(t->seconds) / TIMELINE_COLUMNS);
    for (int r = 0; r < p->ranks && r < TIMELINE_RANKS; r++)
        for (int channel = -1; channel < s->channels; channel++)
            print_stream(s, t, r, channel, out);
}

/* Masks of layers without attention have no schedule. */
static int first_attending(const Model *m)
{
    int layer = 0;
    while (layer < m->layers - 1 && !model_attends(m, layer))
        layer++;
    return layer;
}

/* ---- the whole form ---- */

/* Of a program that infers: until the first token of each length, and of each further one. */
static void print_lengths(Arena *a, const Plan *plan, const Cost *c, Text *out)
{
    const Infer *n = &plan_draft(plan)->program->infer;
    double first[MOST_LENGTHS] = {0};
    if (!n->lengths || !search_lengths(a, diags_new(a), plan, first))
        return;
    first[n->lengths - 1] = c->step;
    for (int i = 0; i < n->lengths; i++)
        text_printf(out, "prompts of %lld tokens: first token after %s\n", (long long)n->length[i],
                    time_text(a, first[i], 6));
    if (n->tokens == 1)
        return; /* there are none */
    const Draft *d = plan_draft(plan);
    const char *how = cost_token_splits(d) ? ", its products split over the ranks that share a prompt" : "";
    if (d->units.slices)
        how = ", multiplied by each rank's slices of the weights";
    text_printf(out, "each further token: %s%s\n", time_text(a, cost_continued(d), 6), how);
}

static void print_sums(Arena *a, const Program *p, const Cost *c, Text *out)
{
    const Cluster *cluster = &p->cluster;
    const char *too_fast = cost_mfu_text(a, cost_mfu(p, c));
    text_printf(out, "step %.3f ms: compute %.3f ms, exposed %.3f ms; most waited for: %s\n", ms(c->step),
                ms(c->compute), ms(c->exposed), cost_waits_text(c));
    text_printf(out, "sent by a rank: %s inside nodes, %s between nodes", size_text(a, c->bytes_link),
                size_text(a, c->bytes_nic));
    for (int l = 0; l < cluster->levels; l++)
        text_printf(out, ", %s out of a %s", size_text(a, c->bytes_uplink[l]), cluster->level[l].name);
    text_add(out, "\n");
    text_printf(out, "%.4g FLOP on all ranks, imbalance %.3f, memory %s a rank\n", c->flops, c->imbalance,
                bytes_text(a, (double)c->memory, 2));
    if (*cost_speed_text(a, p, c))
        text_printf(out, "%s\n", cost_speed_text(a, p, c));
    if (c->batches.n)
        text_printf(out, "%s\n", cost_batches_text(a, c));
    if (memory_uncounted(p))
        text_printf(out, "%s\n", memory_uncounted(p));
    if (too_fast)
        text_printf(out, "%s\n", too_fast);
}

void print_cost_draft(const Draft *d, const Cost *c, Text *out)
{
    Arena *a = arena_new();
    StepParts p = step_parts(a, d);
    const Choice *choice = &d->choice;
    text_printf(out, "burst-cost 1\n%s\n", choice_text(a, choice));
    if (p.ranks < choice->ranks)
        text_printf(out, "%d of a group's %d ranks simulated\n", p.ranks, choice->ranks);
    print_sums(a, d->program, c, out);
    print_table(a, d, &p, c, out);
    const LayerKind *first = &p.kind[d->program->layer_mask[first_attending(&d->program->model)]];
    for (int backward = 0; backward < (d->program->infer.lengths ? 1 : 2); backward++)
        print_timeline(first->input[backward].schedule, &p, &first->time[backward], out);
    arena_free(a);
}

void print_cost(const Plan *p, const Cost *c, Text *out)
{
    Arena *a = arena_new();
    print_cost_draft(plan_draft(p), c, out);
    print_lengths(a, p, c, out);
    text_add(out, memory_alone_text(a, plan_draft(p)));
    arena_free(a);
}
