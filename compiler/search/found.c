/* search/found.c: what a search reports of the candidates that it tried: rows and columns of --explain's
 * table, and the remarks below it. */
#include "search/internal.h"

#include "ir/kernels.h"

#include <math.h>
#include <string.h>

/* ---- rows ---- */

static const char *verdict_on_batches(Arena *a, const Candidate *x, const Candidate *best)
{
    const CostBatches *b = &x->cost.batches, *least = &best->cost.batches;
    const double each = (double)best->sequences / (double)x->sequences;
    if (!b->n)
        return "slower by its plan than others in its partition";
    if (b->n < least->n)
        return arena_printf(a, "%.1f %% slower over %d typical drawn batches",
                            100 * fmax(0, b->typical * each / least->typical - 1), b->n);
    return arena_printf(a, "%.1f %% slower over drawn batches",
                        100 * fmax(0, b->mean * each / least->mean - 1));
}

const char *search_verdict(Arena *a, const Evaluated *x, const Program *p, const Cost *best)
{
    const double each = (double)p->train.batch / (double)x->program->train.batch,
                 more = x->cost.step * each / best->step - 1;
    if (more < SEARCH_TIE)
        return "equally fast";
    return arena_printf(a, "%.1f %% slower (%s)", 100 * more, cost_loses_text(a, &x->choice, &x->cost, best));
}

static Evaluated row_of(Searcher *s, const Candidate *x, const Candidate *best)
{
    search_enter(s, &x->choice);
    Evaluated t = {.program = s->program,
                   .choice = x->choice,
                   .cost = x->cost,
                   .why_not = x->why_not,
                   .chosen = x == best,
                   .verdict = x->why_not,
                   .counts = search_parted(s, &x->choice)->counts,
                   .too_large = x->too_large,
                   .less_evaluated = x->less_evaluated,
                   .too_slow = x->too_slow,
                   .needs = x->needs};
    memcpy(t.value, x->value, sizeof t.value);
    if (x == best)
        t.verdict = "chosen";
    else if (search_works(x) && best->cost.batches.n)
        t.verdict = verdict_on_batches(s->arena, x, best);
    else if (search_works(x))
        t.verdict = search_verdict(s->arena, &t, plan_draft(best->plan)->program, &best->cost);
    return t;
}

/* The fastest of each number of tensor ranks and, with as many as the winner, of each number of groups. */
typedef Vec(const Candidate *) Leaders;

static bool same_group(const Choice *x, const Choice *y, const Choice *best)
{
    return same_tensor(x, y) && (x->data == y->data || !same_tensor(x, best));
}

static Leaders leaders_of(Searcher *s, const Choice *best)
{
    Leaders all = {0};
    for (int n = 0; n < s->all.n; n++) {
        const Candidate *x = &s->all.at[n];
        int i = 0;
        while (i < all.n && !same_group(&all.at[i]->choice, &x->choice, best))
            i++;
        if (i == all.n)
            *vec_push(s->arena, &all) = x;
        else if (search_leads(x, all.at[i]))
            all.at[i] = x;
    }
    return all;
}

/* All candidates with as many groups as the winner have a row, and the best of every other number; of other
 * numbers of tensor ranks only the best. */
static bool has_row(const Leaders *leaders, const Candidate *x, const Choice *best)
{
    const bool as_split = same_tensor(&x->choice, best);
    bool leads = false;
    for (int i = 0; i < leaders->n; i++)
        leads |= leaders->at[i] == x;
    return (as_split && x->choice.data == best->data) || (leads && (as_split || search_works(x)));
}

static void add_rows(Searcher *s, const Candidate *best, Found *f)
{
    const Leaders leaders = leaders_of(s, &best->choice);
    Vec(Evaluated) rows = {0};
    for (int i = 0; i < s->all.n; i++)
        if (has_row(&leaders, &s->all.at[i], &best->choice))
            *vec_push(s->arena, &rows) = row_of(s, &s->all.at[i], best);
    f->evaluated = rows.at;
    f->evaluated_count = rows.n;
    search_enter(s, &best->choice);
}

/* ---- columns ---- */

/* Whether several values of the setting were tried with the chosen tensor ranks, or pruned, or a schedule has
 * sizes that neither its name nor the layout determines: the same value may be other sizes of another
 * schedule. */
static bool has_several(const Searcher *s, const Candidate *best, int setting)
{
    bool several = false;
    for (int i = 0; i < s->pruned.groups.n && setting == SETTING_DATA; i++)
        several |= s->pruned.groups.at[i].tensor == best->choice.tensor;
    for (int i = 0; i < s->all.n && !several; i++) {
        const Candidate *x = &s->all.at[i];
        several = same_tensor(&x->choice, &best->choice) &&
                  (x->value[setting] != best->value[setting] ||
                   (setting == SETTING_CONTEXT && coords_open(s->program, &x->choice)));
    }
    return several;
}

bool search_has_several(Arena *a, const Found *f, int setting)
{
    const char *first = settings[setting]->text(a, &f->evaluated[0].choice);
    for (int i = 1; i < f->evaluated_count; i++) {
        const char *text = settings[setting]->text(a, &f->evaluated[i].choice);
        if (!text != !first || (text && strcmp(text, first) != 0))
            return true;
    }
    return false;
}

static bool has_column(const Searcher *s, const Candidate *best, const Found *f, int setting)
{
    return settings[setting]->column > 0 &&
           (!settings[setting]->if_several || has_several(s, best, setting) ||
            search_has_several(s->arena, f, setting));
}

/* ---- remarks ---- */

/* The fastest whose layers all attend alike. */
static double fastest_alike(const Searcher *s)
{
    double least = INFINITY;
    for (int i = 0; i < s->all.n; i++)
        if (search_works(&s->all.at[i]) && !s->all.at[i].choice.of_mask)
            least = fmin(least, search_seconds(&s->all.at[i]));
    return least;
}

/* Remarks on schedules of which no candidate was tried. */
static void remark_slow(Searcher *s, Text *t)
{
    for (int i = 0; i < s->pruned.slow.n; i++) {
        const Slow *slow = &s->pruned.slow.at[i];
        bool tried = false;
        for (int j = 0; j < s->all.n; j++)
            tried |= s->all.at[j].choice.schedule == slow->schedule;
        if (!tried && slow->least > search_fastest_tried(s))
            text_printf(t, "%-13s not tried: at least %s, %.1f %% slower\n", slow->schedule->name,
                        time_text(s->arena, step_seconds(s->program, slow->least), 3),
                        100 * (slow->least / search_fastest_tried(s) - 1));
    }
}

static void remark_untried(Searcher *s, const Choice *best, Text *t)
{
    const Pruned *p = &s->pruned;
    for (int i = 0; i < p->groups.n; i++)
        if (p->groups.at[i].tensor == best->tensor)
            text_printf(t, "%-5d not tried: at least %s even with perfect balance and overlap\n",
                        p->groups.at[i].data,
                        time_text(s->arena, step_seconds(s->program, p->groups.at[i].least), 3));
    remark_slow(s, t);
    if (p->unfit)
        text_printf(t, "%d more not tried: they do not fit even without communication buffers\n", p->unfit);
    if (p->cut)
        text_printf(t,
                    "%d more not tried: they are slower with any setting of weights, even if gathers and "
                    "reductions took no time\n",
                    p->cut);
    if (p->outdone)
        text_printf(t,
                    "%d more not tried: another's attention takes no longer, sends no more and needs no more "
                    "memory\n",
                    p->outdone);
}

/* A plan that uses a host's memory which no cluster file gives. */
static void remark_host(Searcher *s, const Draft *d, Text *t)
{
    const Cluster *c = &d->program->cluster;
    if (c->host_assumed && d->memory.offloaded && d->program->layout.offload.is_auto)
        text_printf(t, "a host needs %s of memory; the cluster does not say what it has, so %s is assumed\n",
                    bytes_text(s->arena, host_needs(d), 0), bytes_text(s->arena, c->host_memory, 0));
}

/* Where attention runs kernels of another form than the devices' own. */
static void remark_kernels(const Program *p, Text *t)
{
    const Kernels k = kernels_of(p);
    if (!p->cluster.target->device_memory || !k.missed)
        return;
    text_printf(t,
                "attention uses the sm_%d kernels, because the %s kernels %s; predicted times assume %.2f of "
                "the devices' attention rate forward and %.2f backward, as measured on an H200\n",
                k.form, k.missed, k.unfit, k.share[0], k.share[1]);
}

static void remark_masks(Searcher *s, Text *t)
{
    const double alike = fastest_alike(s);
    if (isfinite(alike))
        text_printf(t,
                    "layers with different masks use different schedules: %.1f %% faster than the best "
                    "layout with one schedule\n",
                    100 * (alike / search_fastest_tried(s) - 1));
}

static void remark_ranges(Searcher *s, const Draft *d, Text *t)
{
    const AttentionLoads l = cost_loads(s->arena, d);
    text_printf(t,
                "attention transfers only the tiles that another rank reads or has added to: %.0f %% "
                "less than whole chunks\n",
                100 * loads_saved(d, &l));
}

static void remark_plan(Searcher *s, const Draft *d, const Cost *c, Text *t)
{
    const char *speed = cost_speed_text(s->arena, d->program, c),
               *too_fast = cost_mfu_text(s->arena, cost_mfu(d->program, c));
    if (*speed)
        text_printf(t, "predicted: %s\n", speed);
    remark_kernels(d->program, t);
    remark_host(s, d, t);
    if (too_fast)
        text_printf(t, "%s\n", too_fast);
    if (!cost_is_of_program(d->program))
        text_add(t, "the layout was chosen by predicted times of CUDA on the cluster's GPUs; no time is "
                    "predicted for C on CPUs\n");
    if (d->choice.of_mask)
        remark_masks(s, t);
    if (d->choice.ranges)
        remark_ranges(s, d, t);
}

/* Why numbers of tensor ranks have no row. */
static void remark_tensor(Searcher *s, Text *t)
{
    text_add(t, s->remarks);
    for (int i = 0; i < s->programs.n; i++) {
        const int tensor = program_tensor(s->programs.at[i]);
        const Candidate *x = search_fastest_of(s, tensor, 0);
        if (!x)
            text_printf(t, "tensor %d not tried: slower even with perfect balance and overlap\n", tensor);
        else if (!search_works(x))
            text_printf(t, "tensor %d: %s\n", tensor, x->why_not);
    }
}

/* ---- the whole ---- */

Found search_found(Searcher *s, const Candidate *best)
{
    const Draft *d = plan_draft(best->plan);
    Found f = {.plan = best->plan, .cost = best->cost, .evaluations = s->evaluations, .counted = s->counted};
    Text t = {0};
    if (!f.cost.batches.n && search_seconds(best) <= s->other)
        f.cost.batches = cost_batches(d);
    add_rows(s, best, &f);
    for (int i = 0; i < SETTING_COUNT; i++)
        f.column[i] = has_column(s, best, &f, i);
    for (int m = 0; m < s->program->mask_count; m++)
        f.counting += mask_taken(s->counted->maps[m]);
    remark_untried(s, &best->choice, &t);
    remark_plan(s, d, &best->cost, &t);
    remark_tensor(s, &t);
    f.remarks = text_keep(s->arena, &t);
    search_sort(s->arena, &f);
    return f;
}
