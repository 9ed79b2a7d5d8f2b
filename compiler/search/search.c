/* search.c: chooses what the layout leaves open. Every candidate goes through all passes; the fastest by
 * simulation that the verifier accepts wins. A layout that leaves nothing open has one candidate, whose
 * errors are the user's.
 *
 * A candidate's data is freed after its evaluation, and the winner is made once more; what candidates share
 * (partitions, counted pairs) is kept. Numbers of data-parallel groups are tried from the most groups on,
 * since small groups are judged quickly, and skipped if even perfect balance and overlap would be slower
 * than the best so far. */
#include "base/progress.h"
#include "search/internal.h"

#include <math.h>
#include <string.h>

Searcher search_new(Arena *a, Diags *d, const Program *p, Counted *counted)
{
    return (Searcher){.arena = a,
                      .diags = d,
                      .program = p,
                      .remarks = "",
                      .effort = SEARCH_WHOLE,
                      .other = INFINITY,
                      .counted = counted};
}

const double *search_pairs(Searcher *s)
{
    const Choice one = choice_on(s->program, &(Choice){.data = s->program->cluster.world, .ranks = 1});
    double *pairs = NEW_ARRAY(s->arena, double, s->program->mask_count);
    for (int m = 0; m < s->program->mask_count; m++)
        pairs[m] = (double)pair_whole(search_parted(s, &one)->counts[m]).pairs;
    return pairs;
}

Speeds *search_speeds(Searcher *s)
{
    if (!s->speeds)
        s->speeds = shares_speeds(s->arena, s->program, search_pairs(s));
    return s->speeds;
}

/* MOST_LEVELS: ranks up to which all schedules with levels are tried; MOST_DRAWN: if batches are drawn */
enum { MOST_LEVELS = 64, MOST_DRAWN = 8 };

bool search_take(const Searcher *s, Candidate *x, int setting, int value)
{
    x->value[setting] = value;
    const bool takes = settings[setting]->take(s->program, &x->choice, value);
    /* `offload` moves the optimizer's state, `update` decides where it is updated */
    if (setting == SETTING_OFFLOAD)
        settings[SETTING_UPDATE]->take(s->program, &x->choice, x->value[SETTING_UPDATE]);
    return takes;
}

int search_values(const Searcher *s, int setting)
{
    return settings[setting]->count ? settings[setting]->count(s->program) : 0;
}

/* Whether layers can be split over so many ranks of one node: tensor ranks wait for each other several times
 * per layer, so they are neighbours. */
static bool may_split(const Program *p, int tensor)
{
    bool may = tensor_divides(&p->model, p->cluster.world, tensor);
    for (int g = 0; g < p->cluster.group_count; g++)
        may &= p->cluster.groups[g].gpus % tensor == 0;
    return may;
}

/* Each number of tensor ranks determines how many ranks share sequences, and so what the layout's other
 * numbers mean: it is checked like a layout that has it. Returns whether there is any. */
static bool choose_programs(Searcher *s)
{
    const Program *p = s->program;
    for (int tensor = 1; tensor <= p->cluster.world && p->layout.tensor.is_auto; tensor++) {
        Diags *d = diags_new(s->arena);
        const Program *with = may_split(p, tensor) ? program_with_tensor(s->arena, d, p, tensor) : NULL;
        if (with)
            *vec_push(s->arena, &s->programs) = with;
        else if (diags_errors(d))
            s->remarks = arena_printf(s->arena, "%stensor %d: %s\n", s->remarks, tensor, diags_first(d));
    }
    if (!p->layout.tensor.is_auto)
        *vec_push(s->arena, &s->programs) = p;
    return s->programs.n > 0;
}

void search_enter(Searcher *s, const Choice *c)
{
    for (int i = 0; i < s->programs.n; i++)
        if (program_tensor(s->programs.at[i]) == choice_tensor(c))
            s->program = s->programs.at[i];
}

static void choose_data(Searcher *s)
{
    for (int i = 0; i < s->programs.n; i++) {
        s->program = s->programs.at[i];
        for (int n = 0; n < search_values(s, SETTING_DATA); n++) {
            Candidate x = {.value[SETTING_TENSOR] = i};
            if (search_take(s, &x, SETTING_DATA, n))
                *vec_push(s->arena, &s->data) = x;
        }
    }
}

const char *search_choose_layers(Searcher *s, Choice *c)
{
    const Parted *part = search_parted(s, c);
    return layers_choose(s->arena, s->program, part->partition, part->counts, c);
}

/* ---- trying candidates ---- */

bool search_works(const Candidate *x) { return x->evaluated && !x->why_not; }

double search_seconds(const Candidate *x) { return x->cost.step / (double)x->sequences; }

/* Whether layers may have the schedules of both (layout/layers.c): over one coordinate, over nodes and their
 * lanes, or of the same sizes. */
static bool can_combine(const Choice *x, const Choice *y)
{
    const bool simple = !sched_has_levels(x->schedule) && !sched_has_levels(y->schedule);
    return sizes_equal(x, y) || (simple && !x->placed && !y->placed);
}

/* Whether it is a ring with all layers alike, at whose positions each mask may get its own. */
static bool may_be_base(const Searcher *s, const Choice *c)
{
    return search_layers_may_differ(s) && !c->of_mask && !choice_exchanges(c);
}

static bool same_base(const Choice *x, const Choice *y)
{
    return x->data == y->data && same_tensor(x, y) && choice_same(x, y, KEY_COUNTS);
}

static bool same_ring(const Choice *x, const Choice *y)
{
    return same_base(x, y) && sizes_equal(x, y) && x->placed == y->placed;
}

static void add_ring(Searcher *s, const Candidate *x)
{
    const Choice *c = &x->choice;
    Tried *t = &s->tried;
    int i = 0;
    while (i < t->rings.n && !same_ring(&t->rings.at[i].choice, c))
        i++;
    if (i == t->rings.n)
        *vec_push(s->arena, &t->rings) = (Form){*c, INFINITY};
    t->rings.at[i].seconds = fmin(t->rings.at[i].seconds, search_seconds(x));
}

/* Seconds of the fastest ring that it can be combined with at the same positions. */
static double fastest_ring(const Searcher *s, const Choice *c)
{
    double seconds = INFINITY;
    for (int i = 0; i < s->tried.rings.n; i++) {
        const Form *f = &s->tried.rings.at[i];
        if (same_base(&f->choice, c) && can_combine(&f->choice, c))
            seconds = fmin(seconds, f->seconds);
    }
    return seconds;
}

double search_fastest_tried(Searcher *s)
{
    Tried *t = &s->tried;
    for (; t->n < s->all.n; t->n++) {
        const Candidate *x = &s->all.at[t->n];
        if (!search_works(x))
            continue;
        t->fastest = t->fastest ? fmin(t->fastest, search_seconds(x)) : search_seconds(x);
        if (mask_draws(s->program))
            search_add_form(s, x);
        if (may_be_base(s, &x->choice))
            add_ring(s, x);
    }
    return t->fastest ? t->fastest : INFINITY;
}

void search_forget_tried(Searcher *s) { s->tried = (Tried){0}; }

/* Another program's is to be undercut too; but a table of few candidates tries them all. */
double search_fastest(Searcher *s) { return fmin(search_fastest_tried(s), s->cuts ? s->other : INFINITY); }

static const double tie = SEARCH_TIE;
/* Plans up to this factor slower than the fastest are compared over drawn batches. */
#define MOST_COMPARED 1.5
#define MOST_SPREAD 1.15

bool search_layers_may_differ(const Searcher *s)
{
    return s->program->mask_count > 1 && !s->program->layout.of_mask;
}

/* A simpler one wins within the tie. Sums in another order differ by less. What is slower as a plan for all
 * batches may be faster over drawn ones, and the fastest ring at its positions with another for some
 * layers. */
double search_to_win(Searcher *s, const Choice *c)
{
    const bool draws = mask_draws(s->program), forms = draws && (s->variants.in_form || !s->cuts);
    const double fastest = search_fastest(s),
                 of_groups = draws ? fmax(search_to_be_of_groups(s, c), fastest) : fastest,
                 most = forms ? fmin(search_to_be_compared(s, c), MOST_COMPARED * fastest) : of_groups;
    return (may_be_base(s, c) ? fmax(most, fastest_ring(s, c)) : most) / (1 - tie) * (1 + 1e-9);
}

static void say_progress(Searcher *s, const Candidate *x)
{
    const double fastest = step_seconds(s->program, search_fastest_tried(s));
    const char *schedule = x->choice.schedule ? x->choice.schedule->name : "";
    if (isfinite(fastest))
        progress_say("searching: %d layouts simulated, now of %s; the fastest takes %.3f %s", s->evaluations,
                     schedule, fastest < 1 ? fastest * 1e3 : fastest, fastest < 1 ? "ms" : "s");
    else
        progress_say("searching: %d layouts simulated, now of %s; none works yet", s->evaluations, schedule);
}

/* Keeps only the figures, but all of a single candidate. */
void search_try(Searcher *s, Candidate *x)
{
    if (x->why_not)
        return;
    s->evaluations++;
    search_enter(s, &x->choice);
    say_progress(s, x);
    if (s->single && !s->judged) {
        search_evaluate(s, s->arena, x, diags_new(s->arena));
        return;
    }
    Arena *a = arena_new();
    (s->judged ? search_evaluate_activations : search_evaluate)(s, a, x, diags_new(a));
    x->plan = NULL;
    x->cost.rows = NULL;
    if (x->cost.critical)
        x->cost.critical = arena_printf(s->arena, "%s", x->cost.critical);
    arena_free(a);
}

bool search_leads(const Candidate *x, const Candidate *other)
{
    return !search_works(other) || (search_works(x) && search_seconds(x) < search_seconds(other));
}

static bool is_of(const Candidate *x, int tensor, int data)
{
    return (!tensor || choice_tensor(&x->choice) == tensor) && (!data || x->choice.data == data);
}

const Candidate *search_fastest_of(const Searcher *s, int tensor, int data)
{
    const Candidate *best = NULL;
    for (int i = 0; i < s->all.n; i++) {
        const Candidate *x = &s->all.at[i];
        if (is_of(x, tensor, data) && (!best || search_leads(x, best)))
            best = x;
    }
    return best;
}

/* The first within a tie of the fastest with so many tensor ranks (0: any): simpler ones come first. */
static Candidate *best_of(const Searcher *s, int tensor)
{
    const Candidate *fastest = search_fastest_of(s, tensor, 0);
    const double most = fastest && search_works(fastest) ? search_seconds(fastest) / (1 - tie) : 0;
    for (int i = 0; i < s->all.n && most; i++) {
        Candidate *x = &s->all.at[i];
        if (search_works(x) && is_of(x, tensor, 0) && search_seconds(x) <= most)
            return x;
    }
    return NULL;
}

/* ---- the whole search ---- */

Candidate search_with_escalation(const Candidate *x, const Candidate *like)
{
    Candidate y = search_untried(x);
    for (int setting = 0; setting < SETTING_COUNT; setting++)
        if (settings[setting]->escalates)
            y.value[setting] = like->value[setting];
    choice_copy(&y.choice, &like->choice, KEY_ESCALATION);
    return y;
}

bool search_same_but_escalation(const Candidate *x, const Candidate *y)
{
    for (int setting = 0; setting < SETTING_COUNT; setting++)
        if (!settings[setting]->escalates && x->value[setting] != y->value[setting])
            return false;
    return true;
}

static bool may_have_levels(const Searcher *s) { return !s->single && !s->program->layout.schedule; }

static int ranks_of(const Searcher *s, const Candidate *data)
{
    return s->program->cluster.world / choice_tensor(&data->choice) / data->choice.data;
}

/* On few ranks all schedules are tried. On many each takes long to simulate, and with drawn batches twice. */
bool search_tries_kind(const Searcher *s, const Candidate *data, ScheduleKind kind)
{
    const int ranks = ranks_of(s, data),
              most = kind == SCHEDULES_LEVELS && mask_draws(s->program) ? MOST_DRAWN : MOST_LEVELS;
    return kind == SCHEDULES_SIMPLE ||
           (may_have_levels(s) && ranks >= 4 && ranks <= most);
}

typedef Vec(Choice) Choices;

/* Appends the choice with all values of the settings, of which NULL is the last. */
static void add_values(const Program *p, const SettingRecord *const *of, Choice c, Arena *a, Choices *all)
{
    if (!*of) {
        *vec_push(a, all) = c;
        return;
    }
    for (int i = 0; i < (*of)->count(p); i++)
        if ((*of)->take(p, &c, i))
            add_values(p, of + 1, c, a, all);
}

double data_least(const Program *p, const double *pairs, int data)
{
    static const SettingRecord *const open[] = {&setting_weights, &setting_overlap, &setting_gradients, NULL};
    Arena *a = arena_new();
    Choices each = {0};
    add_values(p, open,
               (Choice){.data = data,
                        .tensor = program_tensor(p),
                        .ranks = p->cluster.world / program_tensor(p) / data,
                        .saving = p->layout.saving},
               a, &each);
    const double least = cost_least(p, pairs, each.at, each.n);
    arena_free(a);
    return least;
}

/* If usp and similar schedules were not tried: tries all sizes with the other settings of a layout, then the
 * fastest of them with other partitions. If ranks only shared heads, partitions made no difference before. */
static void try_sharing_like(Searcher *s, const Candidate *like)
{
    enum { MOST_RANKS = 512 }; /* memory grows with their square: 3.3 GB for 2048 */
    const unsigned order = (1u << SETTING_TRAVEL) | (1u << SETTING_PLACEMENT) | (1u << SETTING_WEIGHTS) |
                           (1u << SETTING_OVERLAP),
                   sizes = (1u << SETTING_SCHEDULE) | (1u << SETTING_CONTEXT),
                   sharing = 1u << SCHEDULES_SHARING;
    if (like->choice.of_mask || !may_have_levels(s) || like->choice.ranks < 4 ||
        like->choice.ranks > MOST_RANKS || search_tries_kind(s, like, SCHEDULES_SHARING))
        return;
    const bool alike = choice_rows(&like->choice, false) == 1;
    const Choice c = like->choice;
    Variants v = {.of = like, .vary = order | sizes | (alike ? (1u << SETTING_PARTITION) : 0)};
    search_variants(s, v, sharing);
    const Candidate *best = search_fastest_of(s, choice_tensor(&c), 0);
    if (!alike && search_works(best) && sched_has_levels(best->choice.schedule))
        search_variants(s, (Variants){.of = best, .vary = order | (1u << SETTING_PARTITION)}, sharing);
}

/* The same for the fastest layout of each number of tensor ranks, and if none works, for the one with the
 * lowest bound. */
static void try_sharing(Searcher *s)
{
    const bool any = best_of(s, 0);
    for (int i = 0; i < s->programs.n; i++) {
        const Candidate *x = search_fastest_of(s, program_tensor(s->programs.at[i]), 0);
        if (x && search_works(x))
            try_sharing_like(s, x);
    }
    if (!any && s->pruned.cut)
        try_sharing_like(s, &s->pruned.nearest);
}

/* Whether it is the fastest ring, with all layers alike, among those that it can be combined with at the
 * same positions. */
static bool is_fastest(const Searcher *s, int n)
{
    const Candidate *x = &s->all.at[n];
    for (int i = 0; i < s->all.n; i++) {
        const Candidate *y = &s->all.at[i];
        if (search_works(y) && !y->choice.of_mask && !choice_exchanges(&y->choice) &&
            same_base(&y->choice, &x->choice) && can_combine(&x->choice, &y->choice) &&
            (y->cost.step < x->cost.step || (y->cost.step == x->cost.step && i < n)))
            return false;
    }
    return search_works(x) && !choice_exchanges(&x->choice);
}

/* Attention alone chose the schedules: searches those of the fastest by the step. */
static void refine_layers(Searcher *s, int from)
{
    const Candidate *best = NULL;
    for (int i = from; i < s->all.n; i++)
        if (search_works(&s->all.at[i]) && (!best || search_leads(&s->all.at[i], best)))
            best = &s->all.at[i];
    if (!best)
        return;
    search_enter(s, &best->choice);
    const Candidate x = search_escalate_otherwise(s, best, false);
    if (x.cost.step < best->cost.step)
        *vec_push(s->arena, &s->all) = x;
}

/* With several masks: tries each partition's best with the best schedule for each mask's layers. */
static void try_layers(Searcher *s)
{
    const int tried = search_layers_may_differ(s) ? s->all.n : 0;
    for (int i = 0; i < tried; i++) {
        Candidate x = s->all.at[i];
        search_enter(s, &x.choice);
        if (x.choice.ranks < 2 || !is_fastest(s, i) || search_choose_layers(s, &x.choice) ||
            !x.choice.of_mask)
            continue;
        x.why_not = choice_why_not(s->arena, s->program, &x.choice);
        if (x.why_not || !s->cuts || search_least_alike(s, &x) <= search_to_win(s, &x.choice))
            search_escalate(s, x);
    }
    refine_layers(s, tried ? tried : s->all.n);
}

/* Tries variants of the winner. */
static void try_otherwise(Searcher *s, Candidate (*otherwise)(Searcher *, const Candidate *))
{
    const Candidate *best = best_of(s, 0);
    if (!best)
        return;
    search_enter(s, &best->choice);
    const Candidate x = otherwise(s, best);
    if (x.cost.step < best->cost.step * (1 - tie))
        *vec_push(s->arena, &s->all) = x;
}

/* Schedules that are the same on so few ranks: equal memory, time and lower bound. */
typedef struct Alike {
    size_t needs;
    double step, least; /* step: as tried; least: lower bound */
} Alike;
typedef Vec(Alike) Alikes;

static bool seen_alike(Searcher *s, Alikes *seen, Alike x)
{
    for (int i = 0; i < seen->n; i++)
        if (seen->at[i].needs == x.needs && seen->at[i].step == x.step && seen->at[i].least == x.least)
            return true;
    *vec_push(s->arena, seen) = x;
    return false;
}

/* Tries each other schedule and partition with as many tensor ranks that may be faster with a layout's
 * escalated settings and as much saved as fits: there, escalation stopped at the first value that fitted. */
static void try_escalation_elsewhere(Searcher *s, Candidate like)
{
    const int tried = s->all.n;
    Alikes seen = {0};
    for (int i = 0; i < tried; i++) {
        const Candidate *x = &s->all.at[i];
        const bool repeated = i > 0 && search_same_but_escalation(x, &s->all.at[i - 1]);
        if (!x->evaluated || repeated || x->choice.of_mask || !same_tensor(&x->choice, &like.choice) ||
            search_same_but_escalation(x, &like))
            continue;
        search_enter(s, &x->choice);
        const Candidate y = search_with_escalation(x, &like);
        const double least = s->cuts ? search_least_alike(s, &y) : 0;
        if (s->cuts && (least > search_fastest(s) * (1 - tie) ||
                        seen_alike(s, &seen, (Alike){x->needs, x->cost.step, least})))
            continue;
        const Candidate found = search_escalate_alike(s, &y);
        if (search_works(&found) && search_seconds(&found) < search_seconds(&like) * (1 - tie))
            *vec_push(s->arena, &s->all) = found;
    }
}

/* Prefers a layout with nothing in the host's memory within the tie: it comes before the winner. */
static void prefer_device(Searcher *s)
{
    const Candidate *best = best_of(s, 0);
    if (best)
        search_enter(s, &best->choice);
    const Candidate x = best ? search_without_host(s, best) : (Candidate){0};
    if (!best || search_seconds(&x) > search_fastest_tried(s) / (1 - tie))
        return;
    const int at = (int)(best - s->all.at);
    vec_push(s->arena, &s->all);
    memmove(&s->all.at[at + 1], &s->all.at[at], (size_t)(s->all.n - 1 - at) * sizeof *s->all.at);
    s->all.at[at] = x;
    search_forget_tried(s);
}

/* Searches the escalating settings of the best with so many tensor ranks, then tries others with its
 * settings, until none is faster. */
static void try_escalations_of(Searcher *s, int tensor, bool single)
{
    double before = INFINITY;
    for (const Candidate *best; (best = best_of(s, tensor)) && best->cost.step < before;) {
        search_enter(s, &best->choice);
        const Candidate x = search_escalate_otherwise(s, best, before == INFINITY);
        before = fmin(x.cost.step, best->cost.step);
        if (x.cost.step < best->cost.step * (1 - tie))
            *vec_push(s->arena, &s->all) = x;
        if (!single)
            try_escalation_elsewhere(s, *best_of(s, tensor));
    }
}

/* Chooses escalated settings by time, with each number of tensor ranks, the winner's first: what fits first
 * says little about which is fastest. Losers need no exact figures, and the winner is evaluated once more. */
static void try_escalations(Searcher *s)
{
    const bool single = s->single, many = s->many, cuts = s->cuts;
    s->many = true;
    s->cuts = s->effort != SEARCH_WHOLE;
    s->single = false;
    const Candidate *best = best_of(s, 0);
    const int first = best ? choice_tensor(&best->choice) : 0;
    if (best)
        try_escalations_of(s, first, single);
    for (int i = 0; i < s->programs.n; i++)
        if (best && program_tensor(s->programs.at[i]) != first)
            try_escalations_of(s, program_tensor(s->programs.at[i]), single);
    try_otherwise(s, search_offload_fewer);
    try_otherwise(s, search_save_more);
    prefer_device(s);
    s->single = single, s->many = many, s->cuts = cuts;
}

/* ---- drawn batches ---- */

/* Tries candidates of all kinds that differ from a layout in some settings. */
static void try_in_forms(Searcher *s, const Candidate *like, unsigned varies, bool alike)
{
    unsigned kinds = 0;
    for (int kind = 0; kind <= SCHEDULES_LEVELS; kind++)
        if (search_tries_kind(s, like, (ScheduleKind)kind) &&
            (!alike || kind != SCHEDULES_LEVELS || s->program->cluster.world <= MOST_DRAWN))
            kinds |= 1u << kind;
    search_variants(s, (Variants){like, varies, true, alike}, kinds);
}

/* The settings of how ranks attend. */
static const unsigned of_attending = 1u << SETTING_SCHEDULE | 1u << SETTING_CONTEXT | 1u << SETTING_HEADS |
                                     1u << SETTING_PLACEMENT | 1u << SETTING_TRAVEL | 1u << SETTING_PARTITION;

/* Drawn batches are compared between the fastest plans of several schedules and partitions, while the search
 * so far kept to what is fastest by its plan: tries every schedule and partition, with the other settings of
 * the fastest layout of so many groups. The slowest of few groups waits less, by up to MOST_SPREAD. */
static void try_forms(Searcher *s)
{
    for (int i = 0; i < s->data.n && best_of(s, 0); i++) {
        const Choice *c = &s->data.at[i].choice;
        const Candidate *of = search_fastest_of(s, choice_tensor(c), c->data);
        search_enter(s, c);
        if (of && search_works(of) && search_seconds(of) < MOST_SPREAD * search_fastest(s))
            try_in_forms(s, of, of_attending, true);
    }
}

/* All settings of the best form but schedule, sizes and partition. */
static void try_within_form(Searcher *s, const Candidate *best)
{
    try_in_forms(s, best, ~of_attending | 1u << SETTING_PLACEMENT | 1u << SETTING_TRAVEL, false);
}

static Candidate *best_on_batches(Searcher *s)
{
    if (s->single || !mask_draws(s->program) || (s->cuts && search_fastest_tried(s) > s->other))
        return NULL;
    if (s->cuts)
        try_forms(s);
    Candidate *best = search_best_on_batches(s);
    if (best && s->cuts && best->alike) {
        try_within_form(s, best);
        best = search_best_on_batches(s);
    }
    return best;
}

static Candidate *find_best(Searcher *s)
{
    choose_data(s);
    s->single = s->data.n == 1 && search_count_simple(s, 0) == 1;
    search_all(s);
    try_sharing(s);
    try_layers(s);
    try_escalations(s);
    Candidate *best = best_on_batches(s);
    best = best ? best : best_of(s, 0);
    while (best && !best->plan) { /* the next one, if what was judged in haste does not work after all */
        const CostBatches batches = best->cost.batches;
        search_evaluate(s, s->arena, best, diags_new(s->arena));
        search_forget_tried(s);
        best->cost.batches = batches;
        best = best->plan ? best : best_of(s, 0);
    }
    return best;
}

static bool any_too_large(const Searcher *s)
{
    bool any = false;
    for (int i = 0; i < s->all.n; i++)
        any |= s->all.at[i].too_large;
    return any;
}

/* Whether any candidate was pruned by its lower bound. */
static bool any_too_slow(const Searcher *s)
{
    bool any = s->pruned.cut || s->pruned.groups.n;
    for (int i = 0; i < s->all.n; i++)
        any |= s->all.at[i].too_slow;
    return any;
}

/* Settings whose values follow from the setting's, as bits. */
static unsigned with_setting(int setting)
{
    switch (setting) {
    case SETTING_SCHEDULE: return 1u << SETTING_CONTEXT;
    case SETTING_OFFLOAD: return 1u << SETTING_UPDATE;
    default: return 0;
    }
}

Found search_near(Arena *a, const Program *p, const Found *f, int setting, double most)
{
    Searcher s = search_new(a, diags_new(a), p, f->counted);
    const Evaluated *row = &f->evaluated[0];
    Candidate like = {.choice = row->choice};
    unsigned varies = 1u << setting | with_setting(setting);
    for (int i = 0; i < SETTING_COUNT; i++)
        varies |= (unsigned)settings[i]->escalates << i;
    memcpy(like.value, row->value, sizeof like.value);
    s.effort = SEARCH_CUT;
    s.other = most;
    s.drawn = drawn_new(a);
    search_variants(&s, (Variants){.of = &like, .vary = varies}, 1u << SCHEDULES_SIMPLE);
    try_escalations(&s);
    Candidate *best = best_of(&s, 0);
    if (best)
        search_evaluate(&s, a, best, s.diags);
    search_forget(&s);
    return best ? (Found){.plan = best->plan, .cost = best->cost} : (Found){0};
}

/* Reports why no number of tensor ranks works, by the one that needs least memory. */
static Found report_tensor(Searcher *s, const Program *p, Diags *d)
{
    const int n = s->programs.n, tensor = n ? program_tensor(s->programs.at[n - 1]) : 1;
    const Program *with = program_with_tensor(s->arena, d, p, tensor);
    return with ? search_counted(s->arena, d, with, s->effort, s->other, s->counted) : (Found){0};
}

Found search_counted(Arena *a, Diags *d, const Program *p, SearchEffort effort, double other,
                     Counted *counted)
{
    Searcher s = search_new(a, p->layout.tensor.is_auto ? diags_new(a) : d, p, counted);
    s.effort = effort;
    s.other = other;
    s.drawn = drawn_new(a);
    Candidate *best = choose_programs(&s) ? find_best(&s) : NULL;
    search_forget(&s);
    if (!best && any_too_slow(&s)) {
        diag_error(d, p->sequence_span, "no layout takes less than %s",
                   time_text(a, step_seconds(s.program, other), 3));
        return (Found){0};
    }
    if (!best && p->layout.tensor.is_auto)
        return report_tensor(&s, p, d);
    if (!best) {
        search_refuse(&s);
        search_forget(&s);
        return (
            Found){.too_large = any_too_large(&s), .group = s.group, .refused = s.single ? s.refused : NULL};
    }
    search_enter(&s, &best->choice);
    search_warn(d, s.program, &best->choice);
    return search_found(&s, best);
}

Found search_with(Arena *a, Diags *d, const Program *p, SearchEffort effort, double other)
{
    return search_counted(a, d, p, effort, other, counted_new(a, p));
}

Found search(Arena *a, Diags *d, const Program *p) { return search_with(a, d, p, SEARCH_USUAL, INFINITY); }
