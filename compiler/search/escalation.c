/* search/escalation.c: memory escalation finds what fits first: if memory is too small, settings (layout/)
 * advance one by one to values that need less memory and more time. search/refine.c searches the same
 * settings for what is fastest. */
#include "search/internal.h"

#include "burst_int.h"

#include <math.h>
#include <string.h>

/* The values of one ladder of a setting, by falling memory. */
typedef struct Way {
    int first, last;
} Way;

/* Index of the first value of the setting's second ladder; 0: there is one ladder. */
static int second_of(const Searcher *s, int setting)
{
    return settings[setting]->second_ladder ? settings[setting]->second_ladder(s->program) : 0;
}

static Way way_from(const Searcher *s, const Candidate *from, int setting)
{
    const int other = second_of(s, setting);
    return (Way){from->value[setting] + 1, (other ? other : search_values(s, setting)) - 1};
}

/* Leaves out values that do not work here, which come last. */
static Way second_ladder(const Searcher *s, const Candidate *from, int setting)
{
    Way w = {way_from(s, from, setting).last + 1, search_values(s, setting) - 1};
    Candidate x = {.choice = from->choice};
    while (w.last >= w.first && !search_take(s, &x, setting, w.last))
        w.last--;
    return w;
}

/* Whether the layout leaves the setting open to values that need less. */
static bool may_need_less(const Searcher *s, const Candidate *x, int setting)
{
    Candidate least = {.choice = x->choice};
    const Way w = way_from(s, x, setting);
    return settings[setting]->escalates && !(s->closed & (1u << setting)) && w.first <= w.last &&
           search_take(s, &least, setting, w.last);
}

/* Tries another value of a setting. */
static Candidate try_value(Searcher *s, const Candidate *from, int setting, int n)
{
    Candidate x = search_untried(from);
    search_take(s, &x, setting, n);
    search_try(s, &x);
    return x;
}

/* Whether it fits the device and the host. A setting that moves data to the host needs to fit only the
 * device. */
static bool has_room(const Candidate *x, int setting)
{
    return x->fits_device && (settings[setting]->takes_host || !x->too_large);
}

/* Where a ladder last ended with the same values of the other settings: candidates that follow end near
 * it. */
static Near *near_of(Searcher *s, const Candidate *from, int setting, Way w)
{
    Near key = {.setting = setting, .last = w.last, .judged = s->judged};
    for (int i = 0; i < SETTING_COUNT; i++)
        key.value[i] = settings[i]->escalates && i != setting ? from->value[i] : 0;
    for (int i = 0; i < s->nears.n; i++) {
        Near *n = &s->nears.at[i];
        if (n->setting == setting && n->last == w.last && n->judged == s->judged &&
            memcmp(n->value, key.value, sizeof key.value) == 0)
            return n;
    }
    key.found = w.last;
    Near *n = vec_push(s->arena, &s->nears);
    *n = key;
    return n;
}

Walk search_walk(int first, int last, int at)
{
    return (Walk){first, last, (int)burst_min(burst_max(at, first), last), 1, first - 1, last + 1};
}

bool search_walk_ends(const Walk *k) { return k->large + 1 >= k->fits; }

void search_walk_on(Walk *k, bool room)
{
    if (room)
        k->fits = k->at;
    else
        k->large = k->at;
    if (k->fits > k->last)
        k->at = (int)burst_min(k->large + k->step, k->last);
    else if (k->large < k->first)
        k->at = (int)burst_max(k->fits - k->step, k->first);
    else
        k->at = (k->large + k->fits) / 2;
    k->step *= 2;
}

/* Finds the first value that fits, else the last. */
static Candidate least_memory(Searcher *s, const Candidate *from, int setting, Way w)
{
    Near *near = near_of(s, from, setting, w);
    Candidate found = {0};
    Walk k = search_walk(w.first, w.last, near->found);
    while (!search_walk_ends(&k)) {
        const Candidate x = try_value(s, from, setting, k.at);
        const bool room = has_room(&x, setting);
        if (room || k.at == w.last)
            found = x;
        if (x.too_slow && !room)
            return x;
        search_walk_on(&k, room);
    }
    near->found = (int)burst_min(k.fits, w.last);
    return found;
}

/* Whether the layout leaves open how many layers offload. */
static bool may_keep_layers(const Searcher *s, const Candidate *x)
{
    return s->program->layout.offload.is_auto && x->choice.offload_values && !x->choice.offload_layers &&
           !x->choice.fetch_chunks;
}

/* Whether a candidate fits in which all layers offload, or none. */
static bool fits_otherwise(const Searcher *s)
{
    for (int i = 0; i < s->all.n; i++)
        if (search_works(&s->all.at[i]) && !s->all.at[i].choice.offload_layers)
            return true;
    return isfinite(s->other);
}

/* If the candidate fits the device but not the host, and nothing else fits yet, offloads as many of the
 * first layers as the host holds. */
static void try_fewer_layers(Searcher *s, const Candidate *from)
{
    const bool host_alone = from->too_large && from->fits_device;
    int fits = 0, large = s->program->model.layers;
    if (!host_alone || s->judged || fits_otherwise(s) || !may_keep_layers(s, from))
        return;
    Candidate found = {0};
    while (fits + 1 < large) {
        Candidate x = search_untried(from);
        x.choice.offload_layers = (fits + large) / 2;
        if (x.choice.optimizer == OPTIMIZER_ON_HOST && s->program->layout.update.is_auto)
            x.choice.optimizer = OPTIMIZER_FETCHED; /* without the host's copies of gradients */
        search_try(s, &x);
        if (x.host <= s->program->cluster.host_memory)
            fits = x.choice.offload_layers, found = x;
        else
            large = x.choice.offload_layers;
    }
    if (search_works(&found))
        *vec_push(s->arena, &s->all) = found;
}

static void try_second_ladder(Searcher *s, const Candidate *from, int setting)
{
    const Way w = second_ladder(s, from, setting);
    if (w.first > w.last)
        return;
    const Candidate x = least_memory(s, from, setting, w);
    try_fewer_layers(s, &x);
    if (search_works(&x))
        *vec_push(s->arena, &s->all) = x;
}

static void try_less(Searcher *s, Candidate *x, int setting)
{
    if (!x->too_large || x->too_slow || !may_need_less(s, x, setting))
        return;
    s->all.at[s->all.n - 1].less_evaluated = true;
    const Candidate from = *x;
    *x = least_memory(s, &from, setting, way_from(s, &from, setting));
    try_fewer_layers(s, x);
    *vec_push(s->arena, &s->all) = *x;
    /* The first ladder may become too slow before a value fits; that says nothing about the second. */
    if (!x->too_large || x->too_slow || settings[setting]->second_needs_less)
        try_second_ladder(s, &from, setting);
}

/* The value of an escalating setting that needs the least device memory. */
static int smallest(const Searcher *s, const Candidate *x, int setting)
{
    const Way first = way_from(s, x, setting),
              second = settings[setting]->second_needs_less ? second_ladder(s, x, setting) : (Way){1, 0};
    return second.first <= second.last ? second.last : first.last;
}

/* Takes these values of all escalating settings. Returns false if they do not work together. */
static bool take_smallest(const Searcher *s, Candidate *x)
{
    for (int setting = 0; setting < SETTING_COUNT; setting++)
        if (settings[setting]->escalates && may_need_less(s, x, setting) &&
            !search_take(s, x, setting, smallest(s, x, setting)))
            return false;
    return !choice_why_not(s->arena, s->program, &x->choice);
}

/* Whether the same escalating settings can save memory for both candidates. */
bool search_escalates_alike(const Searcher *s, const Candidate *x, const Candidate *y)
{
    for (int setting = 0; setting < SETTING_COUNT; setting++) {
        if (!settings[setting]->escalates)
            continue;
        const bool first = may_need_less(s, x, setting), second = may_need_less(s, y, setting);
        if (first != second || (first && smallest(s, x, setting) != smallest(s, y, setting)))
            return false;
    }
    return true;
}

/* As chunks of heads exclude chunks of queries. */
bool search_excludes(const Searcher *s, const Candidate *x, int setting)
{
    Candidate y = search_untried(x);
    if (!may_need_less(s, x, setting) || !search_take(s, &y, setting, smallest(s, x, setting)))
        return false;
    for (int later = setting + 1; later < SETTING_COUNT; later++)
        if (settings[later]->escalates && may_need_less(s, x, later) &&
            (!may_need_less(s, &y, later) || smallest(s, x, later) != smallest(s, &y, later)))
            return true;
    return false;
}

/* Whether the candidate is too large for the device even with all escalation. Then the smallest form is the
 * only one recorded. */
static bool too_large_anyhow(Searcher *s, const Candidate *from)
{
    Candidate x = search_untried(from);
    if (!s->cuts || s->judged || !from->too_large || from->fits_device || !take_smallest(s, &x) ||
        search_fits_device(s, &x.choice))
        return false;
    for (int setting = 0; setting < SETTING_COUNT; setting++) {
        Candidate y = search_untried(from);
        if (!search_excludes(s, from, setting))
            continue;
        s->closed = 1u << setting;
        const bool fits = !take_smallest(s, &y) || search_fits_device(s, &y.choice);
        s->closed = 0;
        if (fits)
            return false;
    }
    const bool first_might_fit = s->might_fit;
    search_try(s, &x);
    if (!x.too_large || x.fits_device)
        return false;
    /* nothing needs less, even if this one was found too slow */
    s->might_fit = first_might_fit || !x.large_with_any;
    s->all.at[s->all.n - 1].less_evaluated = true;
    *vec_push(s->arena, &s->all) = x;
    return true;
}

/* Settings advance from their first values, one after the other; and once more starting with each setting of
 * `escalates_first`. */
static void advance(Searcher *s, const Candidate *first)
{
    Candidate x = *first;
    for (int setting = 0; setting < SETTING_COUNT; setting++)
        try_less(s, &x, setting);
    for (int need = 0; need < SETTING_COUNT && first->too_large && !first->too_slow; need++) {
        if (!settings[need]->escalates_first || !may_need_less(s, first, need))
            continue;
        x = *first;
        try_less(s, &x, need);
        for (int setting = 0; setting < SETTING_COUNT; setting++)
            try_less(s, &x, setting);
    }
}

/* If memory is too small, settings advance; and once more without each setting that excludes others. */
void search_escalate(Searcher *s, Candidate first)
{
    s->might_fit = first.why_not;
    search_try(s, &first);
    *vec_push(s->arena, &s->all) = first;
    if (too_large_anyhow(s, &first))
        return;
    advance(s, &first);
    for (int setting = 0; setting < SETTING_COUNT && first.too_large && !first.too_slow; setting++)
        if (search_excludes(s, &first, setting)) {
            s->closed = 1u << setting;
            advance(s, &first);
            s->closed = 0;
        }
}

/* ---- fewer offloading layers ---- */

/* Whether the layout leaves open what layers save, and how many of them offload it. */
static bool may_offload_fewer(const Searcher *s, const Candidate *x)
{
    return x->choice.offload_values == OFFLOAD_ALL && !x->choice.offload_layers && !x->choice.fetch_chunks &&
           setting_recompute.second_ladder(s->program);
}

/* Offloading only the first layers frees host memory and takes device memory; if everything is saved, fewer
 * copies are better as long as the device has room. Tries every number of layers with the most saved values
 * that fit. */
Candidate search_offload_fewer(Searcher *s, const Candidate *best)
{
    const int setting = SETTING_RECOMPUTE, last = setting_recompute.second_ladder(s->program) - 1;
    const Way levels = {0, best->value[setting] < last ? best->value[setting] : last};
    Candidate found = *best;
    for (int layers = 1; may_offload_fewer(s, best) && layers < s->program->model.layers - 1; layers++) {
        Candidate from = *best;
        from.choice.offload_layers = layers;
        const Candidate x = least_memory(s, &from, setting, levels);
        if (search_works(&x) && x.cost.step < found.cost.step)
            found = x;
    }
    return found;
}

/* ---- escalated settings, chosen by time ---- */

/* Variants of a candidate that fits, or that would be faster than the best with the best's escalation. */
typedef struct Escalated {
    Searcher *s;
    /* value of `recompute` in the first ladder that last fitted; a good start for the next variant */
    int near;
    int rule; /* value in the second ladder that is tried too; 0: none */
    Candidate best;
    bool slow; /* a variant was too large, and would not win if it fitted */
} Escalated;

static int last_saving(const Searcher *s) { return second_of(s, SETTING_RECOMPUTE) - 1; }

static Escalated escalated_from(Searcher *s, const Candidate *x, const Candidate *best)
{
    const int value = x->value[SETTING_RECOMPUTE], last = last_saving(s);
    return (Escalated){s, value <= last ? value : last, value > last ? value : 0, *best, false};
}

/* The same with nothing to beat. */
static Escalated escalated_alone(Searcher *s, const Candidate *x)
{
    Candidate none = search_untried(x);
    none.cost.step = INFINITY;
    return escalated_from(s, x, &none);
}

static Candidate try_saving(Escalated *t, const Candidate *from, int value)
{
    Candidate x = search_untried(from);
    search_take(t->s, &x, SETTING_RECOMPUTE, value);
    x.why_not = choice_why_not(t->s->arena, t->s->program, &x.choice);
    search_try(t->s, &x);
    if (search_works(&x) && x.cost.step < t->best.cost.step)
        t->best = x;
    t->slow |= x.too_slow;
    return x;
}

/* As least_memory, over all savings of the first ladder, from where it ended before. Returns the value; -1:
 * none fits or can win. */
static int save_most(Escalated *t, const Candidate *from)
{
    const int last = last_saving(t->s);
    Walk k = search_walk(0, last, t->near);
    while (!search_walk_ends(&k)) {
        const Candidate x = try_saving(t, from, k.at);
        if (!x.evaluated || x.too_slow)
            return -1;
        search_walk_on(&k, has_room(&x, SETTING_RECOMPUTE));
    }
    t->near = k.fits <= last ? k.fits : t->near;
    return k.fits <= last ? k.fits : -1;
}

/* Tries as much saved as fits, and what the layout or a rule says. Returns the value; -1: more memory would
 * not help. */
static int try_savings(Escalated *t, const Candidate *from)
{
    if (t->rule || last_saving(t->s) < 0)
        try_saving(t, from, t->rule);
    return last_saving(t->s) < 0 ? -1 : save_most(t, from);
}

static int try_chunks(Escalated *t, const Candidate *from, int value)
{
    Candidate x = *from;
    search_take(t->s, &x, SETTING_FFN_CHUNKS, value);
    return try_savings(t, &x);
}

/* Tries the feed-forward network whole, and in more chunks as long as layers can then save more: memory
 * saved by chunks is available to them. */
static void try_ffn_chunks(Escalated *t, const Candidate *from)
{
    const int most = search_values(t->s, SETTING_FFN_CHUNKS) - 1;
    if (!ffn_chunks_open(t->s->program)) {
        try_savings(t, from);
        return;
    }
    const int whole = try_chunks(t, from, 0), least = whole && most ? try_chunks(t, from, most) : whole;
    for (int n = 1, saved = whole; n < most && least >= 0 && saved != least; n++)
        saved = try_chunks(t, from, n);
}

static bool offloads(const Candidate *x) { return x->choice.offload_values || x->choice.optimizer; }

Candidate search_save_more(Searcher *s, const Candidate *best)
{
    Escalated t = escalated_from(s, best, best);
    const int value = best->value[SETTING_RECOMPUTE];
    s->thorough = true;
    if (value > 0 && value <= last_saving(s))
        save_most(&t, best);
    s->thorough = false;
    return t.best;
}

/* ---- points: what fits without attention's buffers ---- */

/* As search_evaluate, but asks only whether activations fit, or all values of a step. */
void search_evaluate_activations(Searcher *s, Arena *a, Candidate *x, Diags *d)
{
    Draft t = search_begin(s, a, d, &x->choice);
    x->evaluated = true;
    x->why_not = "activations alone do not fit in memory";
    if (!t.attention.n)
        return;
    const Active active = search_active(s, a, &t);
    t.memory = (Memory){.total = active.device, .offloaded = active.host};
    x->too_large = !memory_fits(&t);
    x->fits_device = device_fits(&t);
    x->why_not = x->too_large ? x->why_not : NULL;
}

/* Returns whether both escalate alike apart from attention's buffers: they have the same list of operations,
 * and the same values of escalating settings work. */
static bool need_alike(Searcher *s, const Candidate *x, const Candidate *y)
{
    const Choice *a = &x->choice, *b = &y->choice;
    bool same = choice_same(a, b, KEY_STEP) && a->ranks == b->ranks && a->shares == b->shares &&
                choice_heads(a) == choice_heads(b) && (choice_pieces(a) > 1) == (choice_pieces(b) > 1) &&
                choice_exchanges(a) == choice_exchanges(b);
    for (int back = 0; back < 2 && same; back++)
        same = choice_by_heads(a, back) == choice_by_heads(b, back) &&
               choice_moves_queries(a, back) == choice_moves_queries(b, back);
    return same && search_parted(s, a)->partition->max_tokens == search_parted(s, b)->partition->max_tokens;
}

static bool points_hold(Searcher *s, const Points *p, const Candidate *x, Judged judged)
{
    return p->judged == judged &&
           (judged == JUDGED_VALUES ? need_alike(s, &p->of, x)
                                    : choice_same(&p->of.choice, &x->choice, KEY_ACTIVATIONS));
}

/* Candidates with equal activation memory differ only in other memory. Without that memory, the settings
 * that fit are points, and no such candidate needs less than all of them. The memory of parameters, gradients
 * and moments, which JUDGED_VALUES counts, differs between values of `weights`. */
static Points points_of(Searcher *s, const Candidate *x, Judged judged)
{
    for (int i = 0; i < s->points.n; i++)
        if (points_hold(s, &s->points.at[i], x, judged))
            return s->points.at[i];
    const Candidates all = s->all;
    const Tried tried = s->tried;
    s->all = (Candidates){0};
    s->tried = (Tried){0};
    s->judged = judged;
    search_escalate(s, *x);
    const Points p = {*x, s->all, judged};
    s->all = all;
    s->tried = tried;
    s->judged = JUDGED_ALL;
    *vec_push(s->arena, &s->points) = p;
    return p;
}

/* Takes the point's values, one step back in each setting, since savings by levels are not quite the same
 * bytes for each. The feed-forward network stays whole: with fewer chunks than the point's it may be faster
 * even if less is saved. */
static bool take_point(const Searcher *s, Candidate *x, const Candidate *point)
{
    for (int setting = 0; setting < SETTING_COUNT; setting++) {
        const int n = point->value[setting];
        if (setting != SETTING_FFN_CHUNKS && settings[setting]->escalates && n > 0 &&
            !search_take(s, x, setting, n == second_of(s, setting) ? n : n - 1))
            return false;
    }
    return true;
}

/* With a point that may win at the step to undercut now, others may be lower: only the first bound holds
 * later. */
double search_least(Searcher *s, const Candidate *x)
{
    const double first = search_least_any(s, &x->choice);
    if (first > search_to_win(s, &x->choice))
        return first;
    const Points p = points_of(s, x, JUDGED_ACTIVATIONS);
    double least = search_works(&p.evaluated.at[0]) ? first : INFINITY;
    int i = 1;
    for (; i < p.evaluated.n && least > search_to_win(s, &x->choice); i++) {
        Candidate y = *x;
        if (search_works(&p.evaluated.at[i]))
            least = fmin(least, take_point(s, &y, &p.evaluated.at[i]) ? search_least_any(s, &y.choice) : 0);
    }
    return i == p.evaluated.n && isfinite(least) ? fmax(first, least) : first;
}

/* A lower bound for what the candidate takes with at least the point's memory saved. */
static double least_at(Searcher *s, const Candidate *x, const Candidate *point)
{
    Candidate y = search_untried(x);
    return take_point(s, &y, point) ? search_least_own(s, &y) : 0;
}

/* The setting that advances from a point until attention's buffers fit too: what is saved, which has the
 * finest steps, or the last one that the point advanced. */
static int advanced_last(const Candidate *point)
{
    int last = SETTING_RECOMPUTE;
    for (int i = 0; i < SETTING_COUNT && !point->value[SETTING_RECOMPUTE]; i++)
        last = settings[i]->escalates && point->value[i] ? i : last;
    return last;
}

/* Returns false if a setting does not have the point's value here. */
static bool take_values(const Searcher *s, Candidate *x, const Candidate *point)
{
    for (int i = 0; i < SETTING_COUNT; i++)
        if (settings[i]->escalates && !search_take(s, x, i, point->value[i]))
            return false;
    return !choice_why_not(s->arena, s->program, &x->choice);
}

/* Tries the first values from the point on, of one setting, that fit. Returns false if none does. */
static bool advance_from(Searcher *s, const Candidate *first, const Candidate *point)
{
    Candidate from = search_untried(first);
    const int setting = advanced_last(point), value = point->value[setting], other = second_of(s, setting);
    if (!take_values(s, &from, point))
        return false;
    if (value == 0) {
        search_try(s, &from);
        *vec_push(s->arena, &s->all) = from;
        return search_works(&from) || from.too_slow;
    }
    from.value[setting] = 0;
    const Way w = {
        value,
        (value < other || !other ? way_from(s, &from, setting) : second_ladder(s, &from, setting)).last};
    Near *near = near_of(s, &from, setting, w);
    near->found = near->found == w.last ? w.first : near->found;
    const Candidate x = least_memory(s, &from, setting, w);
    if (x.evaluated)
        *vec_push(s->arena, &s->all) = x;
    return search_works(&x) || x.too_slow;
}

static bool is_unescalated(const Candidate *point)
{
    bool first = true;
    for (int i = 0; i < SETTING_COUNT; i++)
        first &= !settings[i]->escalates || point->value[i] == 0;
    return first;
}

/* Escalation alone takes as long for each value of the other settings; what fits without attention's buffers
 * is known for all with the same list of operations, and most of that is too slow by its lower bound. */
bool search_escalate_from_points(Searcher *s, const Candidate *x, double *least)
{
    const Points p = points_of(s, x, JUDGED_VALUES);
    bool any = false, all = true;
    for (int i = 0; i < p.evaluated.n && all; i++) {
        const Candidate *point = &p.evaluated.at[i];
        if (!search_works(point))
            continue;
        any = true;
        const double bound = least_at(s, x, point);
        if (bound <= search_to_win(s, &x->choice) || (!mask_draws(s->program) && is_unescalated(point)))
            all = advance_from(s, x, point);
        else
            *least = fmin(*least, bound);
    }
    s->might_fit |= any;
    return any && all;
}

/* ---- another candidate's escalation ---- */

double search_least_alike(Searcher *s, const Candidate *x)
{
    Choice c = x->choice;
    if (setting_recompute.second_ladder(s->program))
        setting_recompute.take(s->program, &c, 0);
    return search_least_any(s, &c);
}

Candidate search_save_alike(Searcher *s, const Candidate *x, bool *slow)
{
    Escalated t = escalated_alone(s, x);
    try_savings(&t, x);
    *slow = t.slow;
    return t.best;
}

Candidate search_escalate_alike(Searcher *s, const Candidate *x)
{
    Escalated t = escalated_alone(s, x);
    try_ffn_chunks(&t, x);
    return t.best;
}

Candidate search_without_host(Searcher *s, const Candidate *best)
{
    Candidate x = search_untried(best);
    bool slow, open = s->program->layout.offload.is_auto && offloads(best);
    x.cost.step = INFINITY;
    return open && search_take(s, &x, SETTING_OFFLOAD, 0) && search_take(s, &x, SETTING_FETCH, 0)
               ? search_save_alike(s, &x, &slow)
               : x;
}
