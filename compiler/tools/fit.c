/* fit.c: `burstc fit`: the longest sequence that fits the devices with each way to save memory, and the time
 * of its step.
 *
 * The layout is the search's for the sequence as written, or for its largest half, quarter, ... that fits.
 * It has a row for each combination of values of the settings (layout/) that save memory. Memory grows
 * almost linearly with the tokens: the next length is where the line between one that fits and one that does
 * not meets the devices' memory, until they are one step apart. Every length goes through the front end and
 * all passes up to the packing. A line below the rows has the longest sequence of the text as written, whose
 * open settings are searched for each length. */
#include "tools/output.h"

#include "base/progress.h"
#include "burst_int.h"

#include <math.h>
#include <string.h>

typedef struct Row {
    Choice choice;
    int64_t tokens; /* 0: none fits */
    Evaluation evaluation;
    const char *largest;
} Row;
typedef struct Fit {
    Arena *arena;
    FrontEnd in;
    const Program *program; /* for the sequence of the layout's search */
    Choice base;
    int64_t step;
    Vec(Row) rows;
    int64_t longest;    /* tokens of the text as written, with `chosen`; 0: none fits */
    bool at_least;      /* longer ones were not searched */
    int evaluations;    /* candidates of the searches of the text as written */
    const char *chosen; /* the layout */
} Fit;

/* With the choice's `tensor`. */
static const Program *program_open(Arena *a, Diags *d, const Fit *f, const Choice *c, int64_t tokens)
{
    FrontEnd at = f->in;
    at.sequence = tokens;
    const Program *p = front_end(a, d, &at);
    return p && p->layout.tensor.is_auto ? program_with_tensor(a, d, p, choice_tensor(c)) : p;
}

/* And with its `ranges`. */
static const Program *program_of(Arena *a, Diags *d, const Fit *f, const Choice *c, int64_t tokens)
{
    const Program *p = program_open(a, d, f, c, tokens);
    if (!p || !p->layout.ranges.is_auto)
        return p;
    Program *with = NEW(a,
                        Program); /* deciding ranges anew for each length would take longer than all else */
    *with = *p;
    with->layout.ranges = (Setting){.value = c->ranges};
    return with;
}

/* ---- the layout ---- */

/* Rows are for the device alone where the layout does not mention `offload` and anything fits so. */
static Found search_rows(Arena *a, const Program *p)
{
    Program *on_device = NEW(a, Program);
    *on_device = *p;
    on_device->layout.offload.given = !p->infer.lengths; /* such programs have no offload */
    const Found f = search_open(a, diags_new(a), on_device);
    return f.too_large ? search_open(a, diags_new(a), p) : f;
}

/* Errors are reported for the sequence as written. */
static bool find_layout(Fit *f, Diags *d)
{
    FrontEnd in = f->in;
    Found found = search_rows(f->arena, f->program);
    const Program *p = f->program;
    for (int64_t tokens = p->sequence / 2; !found.plan && p && tokens >= p->cluster.world; tokens /= 2) {
        in.sequence = tokens;
        p = front_end(f->arena, diags_new(f->arena), &in);
        if (p)
            found = search_rows(f->arena, p);
    }
    if (!found.plan) {
        search_open(f->arena, d, f->program);
        return false;
    }
    f->program = plan_draft(found.plan)->program;
    f->base = plan_draft(found.plan)->choice;
    f->base.spared = 0;
    return true;
}

/* ---- one length ---- */

static double memory_of(const Fit *f) { return cluster_least_memory(&f->program->cluster)->memory; }

static double needs_of(const Program *p, const Choice *c)
{
    Arena *a = arena_new();
    const Draft t = draft_make(a, diags_new(a), p, c);
    const double bytes = t.attention.n && host_fits(&t) ? (double)(t.memory.total + t.memory.beside)
                                                        : INFINITY;
    arena_free(a);
    return bytes;
}

/* Whether the compiler may take another value of the setting to save memory, which has no rows here: the tile
 * of the loss, where the layout does not give it. */
static bool is_spared(const Program *p, int setting)
{
    const SettingRecord *s = settings[setting];
    return s->escalates && !setting_fits_each(setting, p) && s->count && s->count(p) > 1;
}

/* Takes the first values of such settings that fit, as the compiler does, else the last ones. Returns the
 * bytes that a rank needs then; infinite if it is refused for another reason. */
static double spare(const Fit *f, const Program *p, Choice *c)
{
    double bytes = needs_of(p, c);
    for (int i = 0; i < SETTING_COUNT; i++)
        for (int n = 1; is_spared(p, i) && bytes > memory_of(f) && n < settings[i]->count(p); n++)
            if (settings[i]->take(p, c, n))
                bytes = needs_of(p, c);
    return bytes;
}

/* Bytes that a rank needs with so many tokens; infinite if they are refused for another reason. */
static double needs(const Fit *f, const Choice *c, int64_t tokens)
{
    Arena *a = arena_new();
    const Program *p = program_of(a, diags_new(a), f, c, tokens);
    double bytes = INFINITY;
    if (p) {
        const Choice at = choice_on(p, c);
        bytes = needs_of(p, &at);
    }
    arena_free(a);
    return bytes;
}

/* ---- the longest ---- */

/* Steps of the sequence: the most known to fit, and the fewest known not to. */
typedef struct Bracket {
    int64_t fits, fails;
    double fits_bytes, fails_bytes;
} Bracket;

/* Steps between lengths: lengths have eight significant bits, so that they are readable and pairs are
 * counted quickly. */
static int64_t apart(int64_t steps)
{
    int64_t power = 1;
    while (256 * power <= steps)
        power *= 2;
    return power;
}

static int64_t rounded(int64_t steps) { return steps / apart(steps) * apart(steps); }

static const char *length_text(Arena *a, int64_t tokens)
{
    const bool mi = tokens % (1 << 20) == 0;
    return arena_printf(a, "%lld%s", (long long)(tokens >> (mi ? 20 : 10)), mi ? "Mi" : "Ki");
}

static bool try_steps(const Fit *f, const Choice *c, double memory, int64_t steps, Bracket *b)
{
    progress_say("fit: row %d, trying %s tokens", f->rows.n + 1, length_text(f->arena, steps * f->step));
    const double bytes = needs(f, c, steps * f->step);
    const bool fits = bytes <= memory;
    *(fits ? &b->fits : &b->fails) = steps;
    *(fits ? &b->fits_bytes : &b->fails_bytes) = bytes;
    return fits;
}

/* Interpolates between both ends; bisects every third round, and if there is no line. */
static int64_t next_guess(const Bracket *b, double memory, int round)
{
    const int64_t between = b->fails - b->fits, next = b->fits + apart(b->fits);
    const double share = (memory - b->fits_bytes) / (b->fails_bytes - b->fits_bytes);
    const bool middle = round % 3 == 2 || !isfinite(b->fails_bytes);
    const int64_t guess = rounded(b->fits + (middle ? between / 2 : (int64_t)(share * (double)between)));
    if (guess < next)
        return next;
    return guess >= b->fails ? rounded(b->fails - 1) : guess;
}

enum { DOUBLINGS = 40 }; /* the language allows no longer sequence */

static int64_t longest_of(const Fit *f, const Choice *c, int64_t first)
{
    const double memory = memory_of(f);
    Bracket b = {0};
    bool fits = try_steps(f, c, memory, rounded(first), &b);
    for (int i = 0; i < DOUBLINGS && fits; i++)
        fits = try_steps(f, c, memory, 2 * b.fits, &b);
    while (!fits && !b.fits && b.fails > 1)
        fits = try_steps(f, c, memory, rounded(b.fails / 2), &b);
    for (int round = 0; b.fits && b.fails > b.fits + apart(b.fits); round++)
        try_steps(f, c, memory, next_guess(&b, memory, round), &b);
    return b.fits;
}

/* With the last values of settings that the compiler spares memory with, from what fits without them on. */
static int64_t longest(const Fit *f, const Choice *c, int64_t first)
{
    const int64_t fits = longest_of(f, c, first), next = fits ? fits + apart(fits) : 1;
    Choice least = *c;
    bool any = false;
    for (int i = 0; i < SETTING_COUNT; i++)
        any |= is_spared(f->program, i) &&
               settings[i]->take(f->program, &least, settings[i]->count(f->program) - 1);
    return any && needs(f, &least, next * f->step) <= memory_of(f) ? longest_of(f, &least, next) : fits;
}

/* ---- the text as written ---- */

/* With more ranks each of some ten searches takes seconds, and up to 1 GiB. After so many evaluated
 * candidates no further length is searched. */
enum { MOST_SEARCHED = 64, MOST_EVALUATIONS = 2000 };

/* Searches what the layout leaves open with so many tokens, and takes the choice as far as it fits. */
static bool try_as_written(Fit *f, int64_t steps, Bracket *b)
{
    Arena *a = arena_new();
    FrontEnd at = f->in;
    at.sequence = steps * f->step;
    progress_say("fit: as written, trying %s tokens", length_text(a, at.sequence));
    const Program *p = front_end(a, diags_new(a), &at);
    const Found found = p ? search_open(a, diags_new(a), p) : (Found){0};
    const Plan *plan = found.plan;
    f->evaluations += found.evaluations;
    if (plan) {
        const Choice *c = &plan_draft(plan)->choice;
        b->fits = burst_max(steps, longest_of(f, c, steps));
        p = program_of(a, diags_new(a), f, c, b->fits * f->step);
        const Choice on = choice_on(p, c);
        Draft t = draft_make(a, diags_new(a), p, &on);
        t.choice.whole = c->whole; /* ranges are given here, but need not be as written */
        f->chosen = arena_printf(f->arena, "%s", choice_text(a, &t.choice));
    } else {
        b->fails = steps;
    }
    arena_free(a);
    return plan != NULL;
}

/* The longest row, or more with the last value of each setting that the compiler may take to save memory. */
static int64_t first_as_written(const Fit *f)
{
    Program *open = memcpy(NEW(f->arena, Program), f->program, sizeof *f->program);
    open->layout.offload.is_auto |= !open->layout.offload.given;
    Choice least = f->base;
    int64_t first = 1;
    for (int i = 0; i < f->rows.n; i++)
        first = burst_max(first, f->rows.at[i].tokens / f->step);
    for (int i = 0; i < SETTING_COUNT; i++)
        for (int n = settings[i]->escalates && settings[i]->count ? settings[i]->count(open) - 1 : 0; n > 0;
             n--)
            if (settings[i]->take(open, &least, n))
                break;
    const Program *p = program_of(f->arena, diags_new(f->arena), f, &least, f->step);
    return p && !choice_why_not(f->arena, p, &least) ? burst_max(first, longest_of(f, &least, first)) : first;
}

static bool may_search(const Fit *f) { return f->evaluations < MOST_EVALUATIONS; }

/* Few lengths are tried, since each takes a search. Sets at_least if it ended before it found a length that
 * does not fit and is next to the longest that does. */
static int64_t longest_as_written(Fit *f)
{
    Bracket b = {0};
    int64_t further = 0;
    bool fits = try_as_written(f, rounded(first_as_written(f)), &b);
    for (int i = 0; i < DOUBLINGS && fits && may_search(f); i++) {
        further = further ? 4 * further : apart(b.fits);
        fits = try_as_written(f, rounded(b.fits + further), &b);
    }
    while (!b.fits && b.fails > 1 && may_search(f))
        try_as_written(f, rounded(b.fails / 2), &b);
    while (b.fits && b.fails > b.fits + apart(b.fits) && may_search(f))
        try_as_written(f, burst_max(rounded((b.fits + b.fails) / 2), b.fits + apart(b.fits)), &b);
    f->at_least = !may_search(f) && (!b.fails || b.fails > b.fits + apart(b.fits));
    return b.fits * f->step;
}

/* ---- rows ---- */

static const char *largest_text(Arena *a, const Flow *f)
{
    Alive *alive = NEW_ARRAY(a, Alive, f->items);
    step_alive(f, alive);
    const char *times = alive[0].count > 1 ? arena_printf(a, " (%d)", alive[0].count) : "";
    return arena_printf(a, "%s%s %s", f->step->values.at[alive[0].value].name, times,
                        bytes_text(a, (double)alive[0].bytes, 2));
}

/* Number of settings (layout/) that differ; *last: the last of them. */
static int rows_apart(Arena *a, const Choice *x, const Choice *y, int *last)
{
    int rows = 0;
    for (int i = 0; i < SETTING_COUNT; i++)
        if (strcmp(setting_text(a, i, x), setting_text(a, i, y)) != 0)
            *last = i, rows++;
    return rows;
}

/* Consecutive rows have similar lengths, so a row starts from the previous one. A value may change settings
 * before it, so a choice may already have a row. */
static void add_row(Fit *f, const Choice *c)
{
    int last;
    for (int i = 0; i < f->rows.n; i++)
        if (rows_apart(f->arena, &f->rows.at[i].choice, c, &last) == 0)
            return;
    const int64_t before = (f->rows.n ? f->rows.at[f->rows.n - 1].tokens : f->program->sequence) / f->step;
    const int64_t steps = longest(f, c, before > 0 ? before : 1);
    *vec_push(f->arena, &f->rows) = (Row){.choice = *c, .tokens = steps * f->step};
}

/* Whether a smaller memory-saving value gives as long a sequence. */
static bool gains_nothing(const Fit *f, int row)
{
    for (int i = 0; i < row; i++) {
        int apart;
        if (rows_apart(f->arena, &f->rows.at[i].choice, &f->rows.at[row].choice, &apart) == 1 &&
            settings[apart]->escalates && f->rows.at[i].tokens >= f->rows.at[row].tokens)
            return true;
    }
    return false;
}

/* Simulates the longest sequence; if none fits, finds what the shortest needs. Ranges are as the printed
 * layout has them: `ranges yes`, or open. */
static void judge_row(Fit *f, Row *r)
{
    const int64_t tokens = r->tokens ? r->tokens : f->step;
    Diags *d = diags_new(f->arena);
    const Program *p = r->choice.ranges ? program_of(f->arena, d, f, &r->choice, tokens)
                                        : program_open(f->arena, d, f, &r->choice, tokens);
    if (p) {
        r->choice = choice_on(p, &r->choice);
        spare(f, p, &r->choice);
        r->evaluation = evaluate_choice(f->arena, p, &r->choice);
    }
    r->largest = p && r->evaluation.draft.memory.flow
                     ? largest_text(f->arena, r->evaluation.draft.memory.flow)
                     : "";
}

static void keep_rows(Fit *f)
{
    Vec(Row) kept = {0};
    for (int i = 0; i < f->rows.n; i++)
        if (!gains_nothing(f, i))
            *vec_push(f->arena, &kept) = f->rows.at[i];
    for (int i = 0; i < kept.n; i++)
        judge_row(f, &kept.at[i]);
    f->rows.at = kept.at, f->rows.n = kept.n;
}

static bool varies(const Fit *f, int row) { return setting_fits_each(row, f->program); }

static void add_rows(Fit *f, Choice c, int row)
{
    int n = 0;
    if (row == SETTING_COUNT)
        add_row(f, &c);
    else if (!varies(f, row))
        add_rows(f, c, row + 1);
    else
        for (Choice x = c; settings[row]->other(f->program, &x, n); n++, x = c)
            add_rows(f, x, row + 1);
}

/* ---- the table ---- */

static int width_of(const Fit *f, int row)
{
    int width = (int)strlen(settings[row]->form->name);
    for (int i = 0; i < f->rows.n; i++) {
        const char *text = settings[row]->text(f->arena, &f->rows.at[i].choice);
        width = text && (int)strlen(text) > width ? (int)strlen(text) : width;
    }
    return width;
}

static void print_figures(const Fit *f, const Row *r, Text *out)
{
    const Evaluation *j = &r->evaluation;
    const Program *p = j->draft.program;
    const char *bytes = p ? bytes_text(f->arena, (double)(j->draft.memory.total + j->draft.memory.beside), 2)
                          : "";
    if (r->tokens && !j->why_not) {
        const double tokens = (double)r->tokens * (double)p->train.batch;
        const bool tile = r->choice.loss_tile != f->base.loss_tile && !varies(f, SETTING_LOSS_TILE);
        const AloneMemory alone = memory_alone(f->arena, &j->draft);
        const double evaluates = (double)(alone.total + alone.beside);
        text_printf(out, "%9s %12s %11s %11s %11s s %12s %6.1f %%  %s%s\n", length_text(f->arena, r->tokens),
                    grouped_text(f->arena, (double)j->draft.partition->max_tokens, 0), bytes,
                    alone.flow ? bytes_text(f->arena, evaluates, 2) : "-",
                    grouped_text(f->arena, j->cost.step, 3), grouped_text(f->arena, tokens / j->cost.step, 1),
                    100 * cost_mfu(p, &j->cost), r->largest,
                    tile ? arena_printf(f->arena, "; loss tile %lld", (long long)r->choice.loss_tile) : "");
    } else if (j->why_not || !p) {
        text_printf(out, "%9s  %s\n", "-", j->why_not ? j->why_not : "refused");
    } else {
        text_printf(out, "%9s  %s tokens need %s: %s\n", "-", length_text(f->arena, f->step), bytes,
                    r->largest);
    }
}

static void print_heading(const Fit *f, Text *out)
{
    const Program *p = f->program;
    const Device *least = cluster_least_memory(&p->cluster);
    text_printf(
        out, "burst-fit 4\n%s on %s: %d rank%s, %s each; sequences of multiples of %s tokens, within 1 %%\n",
        p->model.name, p->cluster.name, p->cluster.world, plural(p->cluster.world),
        bytes_text(f->arena, least->memory, 2), length_text(f->arena, f->step));
    if (memory_uncounted(p))
        text_printf(out, "%s\n", memory_uncounted(p));
    text_add(out, "layout {");
    for (int i = 0; i < SETTING_COUNT; i++) {
        const char *text = settings[i]->text(f->arena, &f->base);
        if (text && !varies(f, i))
            text_printf(out, " %s %s;", settings[i]->form->name, text);
    }
    text_add(out, " }, with\n");
    for (int i = 0; i < SETTING_COUNT; i++)
        if (varies(f, i))
            text_printf(out, "%-*s ", width_of(f, i), settings[i]->form->name);
    text_printf(out, "%9s %12s %11s %11s %13s %12s %8s  %s\n", "longest", "per rank", "memory", "evaluation",
                "step", "tokens/s", "MFU", "largest at the peak");
}

static double highest_mfu(const Fit *f)
{
    double most = 0;
    for (int r = 0; r < f->rows.n; r++) {
        const Evaluation *j = &f->rows.at[r].evaluation;
        if (f->rows.at[r].tokens && !j->why_not)
            most = fmax(most, cost_mfu(j->draft.program, &j->cost));
    }
    return most;
}

static void print_table(const Fit *f, Text *out)
{
    print_heading(f, out);
    for (int r = 0; r < f->rows.n; r++) {
        for (int i = 0; i < SETTING_COUNT; i++) {
            const char *text = varies(f, i) ? settings[i]->text(f->arena, &f->rows.at[r].choice) : "";
            if (varies(f, i))
                text_printf(out, "%-*s ", width_of(f, i), text ? text : "-");
        }
        print_figures(f, &f->rows.at[r], out);
    }
    if (f->longest)
        text_printf(out, "as written: %s%s, %s\n", f->at_least ? "at least " : "",
                    length_text(f->arena, f->longest), f->chosen);
    const char *too_fast = cost_mfu_text(f->arena, highest_mfu(f));
    if (too_fast)
        text_printf(out, "%s\n", too_fast);
}

/* A step of the sequence: whole kernel tiles of each rank, and a multiple of 1Ki. */
static int64_t step_of(const Choice *c)
{
    const int64_t tokens = (int64_t)BURST_TILE * c->ranks, unit = 1 << 10;
    return (tokens + unit - 1) / unit * unit;
}

/* Runs proofs 7 to 10 on each row that fits. */
static bool rows_proved(const Fit *f, Diags *d)
{
    for (int i = 0; i < f->rows.n; i++)
        if (f->rows.at[i].evaluation.fits && !verify_step(f->arena, d, &f->rows.at[i].evaluation.draft))
            return false;
    return true;
}

int fit(Arena *a, Diags *d, const FrontEnd *in, const Program *p, Text *out)
{
    Fit f = {.arena = a, .in = *in, .program = p};
    if (!find_layout(&f, d))
        return EXIT_DIAGNOSED;
    f.step = step_of(&f.base);
    add_rows(&f, f.base, 0);
    keep_rows(&f);
    if (p->cluster.world <= MOST_SEARCHED)
        f.longest = longest_as_written(&f);
    if (!rows_proved(&f, d))
        return EXIT_INTERNAL;
    print_table(&f, out);
    return 0;
}
