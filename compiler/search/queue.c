/* search/queue.c: the search: a priority queue of sets of candidates, each with a lower bound on the step of
 * all its members. The set with the lowest bound is split, or gets a better bound; a set that cannot win any
 * more is dropped, with all its members. So the order decides how much is simulated, but not what is chosen:
 * that is the first, in the order of the settings' values, within a tie of the fastest. */
#include "search/internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What a branch stands for, from the largest set to one candidate. */
typedef enum Stage {
    STAGE_GROUPS,    /* all candidates of a number of groups, not listed yet; in `of`, only its number */
    STAGE_LISTED,    /* candidates that differ only in weights; with the bound of the groups */
    STAGE_COMPUTING, /* the same, bounded by computing alone */
    STAGE_MOVING,    /* by the bytes that attention moves, too */
    STAGE_BOUNDED,   /* by simulated attention, and by the escalation that is needed with any weights */
    STAGE_OTHERS,    /* the same without the first, which was tried */
    STAGE_ALONE,     /* one candidate with its escalation */
    STAGES
} Stage;

/* The candidates of one number of groups and one kind of schedules, in an arena of their own: all of them, or
 * those with the first weights. */
typedef struct Listed {
    Arena *arena;
    ScheduleKind kind;
    Candidates open;
    int heads, tails; /* see order_of */
    bool many, cuts, hopeless; /* as in Searcher */
    Rivals *rivals;
} Listed;

typedef struct Branch {
    double least; /* seconds */
    int64_t turn; /* among branches with the same bound */
    Stage stage;
    int at; /* index in of->open; STAGE_GROUPS: in s->data */
    bool levels; /* STAGE_GROUPS: of schedules with levels, which are most */
    Listed *of;
} Branch;

typedef struct Queue {
    Arena *arena;
    Vec(Branch) heap; /* branch i is not after branches 2 i + 1 and 2 i + 2 */
    Vec(Listed *) lists;
    Rivals *rivals; /* [s->data.n] */
    bool many, cuts; /* of any list whose candidates are compared in --explain's table */
} Queue;

static bool is_before(const Branch *x, const Branch *y)
{
    return x->least < y->least || (x->least == y->least && x->turn < y->turn);
}

static void push(Queue *q, Branch x)
{
    int at = q->heap.n;
    vec_push(q->arena, &q->heap);
    for (; at > 0 && is_before(&x, &q->heap.at[(at - 1) / 2]); at = (at - 1) / 2)
        q->heap.at[at] = q->heap.at[(at - 1) / 2];
    q->heap.at[at] = x;
}

static Branch pop(Queue *q)
{
    const Branch first = q->heap.at[0], x = q->heap.at[--q->heap.n];
    int at = 0;
    for (int below = 1; below < q->heap.n; at = below, below = 2 * at + 1) {
        below += below + 1 < q->heap.n && is_before(&q->heap.at[below + 1], &q->heap.at[below]);
        if (!is_before(&q->heap.at[below], &x))
            break;
        q->heap.at[at] = q->heap.at[below];
    }
    if (q->heap.n)
        q->heap.at[at] = x;
    return first;
}

/* Among branches with the same bound the nearest to a candidate come first, then simpler ones. Where
 * all are tried, those with the first weights come first. */
static void push_set(Queue *q, Listed *of, int at, Stage stage, double least)
{
    const Candidate *x = &of->open.at[at];
    const int64_t later = of->cuts ? STAGES - stage : x->order != x->first;
    push(q, (Branch){least, (later << 48) + x->order, stage, at, false, of});
}

/* ---- listing: all combinations of the values that settings (layout/) try ---- */

/* Whether other shares came to the same numbers of tokens, as in short sequences: then it is the same
 * layout. */
static bool same_tokens(const Listed *l, const Candidate *x)
{
    const int shares = SETTING_SHARES;
    for (int i = 0; i < l->open.n && x->choice.shares != SHARES_GIVEN; i++) {
        Candidate y = l->open.at[i];
        y.value[shares] = x->value[shares];
        if (memcmp(y.value, x->value, sizeof y.value) == 0 && choice_same(&y.choice, &x->choice, KEY_COUNTS))
            return true;
    }
    return false;
}

/* Schedules with levels that the layout does not name, such as usp and double_ring, are listed separately. */
static ScheduleKind schedule_kind_of(const Program *p, const SchedText *t)
{
    if (coords_asked(p, t))
        return SCHEDULES_SIMPLE;
    return t->exchanged >= 0 ? SCHEDULES_SHARING : SCHEDULES_LEVELS;
}

/* Whether the value is tried: of a variant only some settings may differ. If the partition may and the
 * schedule may not, the partition must: it would be the same candidate. */
static bool is_tried(const Searcher *s, int setting, int value)
{
    const Variants *v = &s->variants;
    const bool varies = v->vary >> setting & 1, same = v->of && v->of->value[setting] == value;
    if (setting == SETTING_PARTITION && varies && !(v->vary >> SETTING_SCHEDULE & 1) && !v->in_form)
        return !same;
    return !v->of || varies || same;
}

/* Position among all candidates: values of the settings before weights, of weights, and of those after. */
static int64_t order_of(const Listed *l, const Candidate *x)
{
    enum {
        KINDS = SCHEDULES_LEVELS + 1,
        MOST_DATA = 1 << 16,
        MOST_HEADS = 1 << 24,
        MOST_WEIGHTS = 1 << 6,
        MOST_TAILS = 1 << 8
    };
    const int64_t of = ((int64_t)x->value[SETTING_TENSOR] * MOST_DATA + x->value[SETTING_DATA]) * KINDS +
                       l->kind;
    return ((of * MOST_HEADS + l->heads) * MOST_WEIGHTS + x->value[SETTING_WEIGHTS]) * MOST_TAILS + l->tails;
}

static void add_listed(Searcher *s, Listed *l, Candidate *x)
{
    l->tails++;
    shares_take(s->arena, s->program, x->choice.shares == SHARES_EQUAL ? NULL : search_speeds(s), &x->choice);
    if (x->choice.shares != SHARES_EQUAL && same_tokens(l, x))
        return;
    if (s->program->layout.of_mask)
        x->why_not = search_choose_layers(s, &x->choice);
    x->why_not = x->why_not ? x->why_not : choice_why_not(s->arena, s->program, &x->choice);
    x->order = x->first = order_of(l, x);
    *vec_append(l->arena, &l->open) = *x;
}

/* Lists combinations with the first values of escalating settings and of weights. */
static void list_from(Searcher *s, Listed *l, Candidate x, int setting)
{
    if (setting == SETTING_COUNT) {
        add_listed(s, l, &x);
        return;
    }
    const int values = search_values(s, setting);
    if (!settings[setting]->count)
        list_from(s, l, x, setting + 1);
    for (int n = 0; n < values; n++) {
        if (!is_tried(s, setting, n) || !search_take(s, &x, setting, n) ||
            (setting == SETTING_SCHEDULE && schedule_kind_of(s->program, x.choice.schedule) != l->kind))
            continue;
        if (setting == SETTING_WEIGHTS)
            l->heads++, l->tails = 0;
        list_from(s, l, x, setting + 1);
        if (settings[setting]->escalates || setting == SETTING_WEIGHTS)
            break;
    }
}

/* Sets the n-th value of weights. Returns false if it is not tried. */
static bool take_weights(const Searcher *s, Candidate *x, int n)
{
    return is_tried(s, SETTING_WEIGHTS, n) && search_take(s, x, SETTING_WEIGHTS, n);
}

static int count_weights(const Searcher *s, const Candidate *x)
{
    int count = 1;
    for (int n = x->value[SETTING_WEIGHTS] + 1; n < search_values(s, SETTING_WEIGHTS); n++) {
        Candidate y = {.choice = x->choice};
        count += take_weights(s, &y, n);
    }
    return count;
}

/* Appends the candidate with its other weights. */
static void list_weights(Searcher *s, Listed *l, int at)
{
    const Candidate x = l->open.at[at];
    const int64_t each = order_of(l, &(Candidate){.value[SETTING_WEIGHTS] = 1}) -
                         order_of(l, &(Candidate){0});
    for (int n = x.value[SETTING_WEIGHTS] + 1; n < search_values(s, SETTING_WEIGHTS); n++) {
        Candidate y = search_untried(&x);
        bool takes = take_weights(s, &y, n);
        for (int later = SETTING_WEIGHTS + 1; later < SETTING_COUNT && takes; later++)
            takes = !settings[later]->count || search_take(s, &y, later, x.value[later]);
        if (!takes)
            continue;
        y.why_not = choice_why_not(s->arena, s->program, &y.choice);
        y.order = x.order + (n - x.value[SETTING_WEIGHTS]) * each;
        *vec_append(l->arena, &l->open) = y;
    }
}

/* With at most FEW candidates on FEW_RANKS ranks, all are tried, so that the table is complete. It shows only
 * one number of groups, so with several numbers all ranks count. */
static Listed *list(Searcher *s, Queue *q, const Candidate *data, ScheduleKind kind, Rivals *rivals)
{
    enum { FEW = 64, FEW_RANKS = 32 };
    const int ranks = s->data.n > 1 ? s->program->cluster.world : data->choice.ranks;
    Listed *l = NEW(q->arena, Listed);
    *l = (Listed){.arena = arena_new(), .kind = kind, .rivals = rivals};
    *vec_push(q->arena, &q->lists) = l;
    list_from(s, l, *data, SETTING_DATA + 1);
    const int firsts = l->open.n;
    bool few = ranks <= FEW_RANKS && kind == SCHEDULES_SIMPLE;
    for (int i = 0, all = 0; i < firsts && few; i++) {
        all += count_weights(s, &l->open.at[i]);
        few = all <= FEW;
    }
    l->many = s->effort == SEARCH_CUT || !few;
    l->cuts = l->many && s->effort != SEARCH_WHOLE;
    if (kind != SCHEDULES_SHARING || s->variants.of) {
        q->many |= l->many;
        q->cuts |= l->cuts;
    }
    for (int i = 0; i < firsts; i++)
        if (!l->cuts || l->open.at[i].why_not)
            list_weights(s, l, i);
    return l;
}

static void push_listed(const Searcher *s, Queue *q, Listed *l, double least)
{
    for (int i = 0; i < l->open.n; i++) {
        const Candidate *x = &l->open.at[i];
        const bool alone = !l->cuts || x->why_not;
        double bound = alone ? 0 : least;
        if (!l->cuts && !s->variants.of)
            bound = INFINITY; /* other lists come first: these are all tried, but not to their end */
        push_set(q, l, i, alone ? STAGE_ALONE : STAGE_LISTED, bound);
    }
}

static void push_kind(Searcher *s, Queue *q, int data, ScheduleKind kind, double least)
{
    if (search_tries_kind(s, &s->data.at[data], kind))
        push_listed(s, q, list(s, q, &s->data.at[data], kind, &q->rivals[data]), least);
}

/* ---- one branch ---- */

/* Records a candidate that was pruned with this lower bound. */
static void note_cut(Searcher *s, const Candidate *x, double least)
{
    Pruned *t = &s->pruned;
    int i = 0;
    while (i < t->slow.n && t->slow.at[i].schedule != x->choice.schedule)
        i++;
    if (i == t->slow.n)
        *vec_push(s->arena, &t->slow) = (Slow){x->choice.schedule, least};
    t->slow.at[i].least = fmin(t->slow.at[i].least, least);
    if (!t->cut || least < t->least) {
        t->nearest = *x;
        t->least = least;
    }
    t->cut++;
}

/* Whether all that was tried since is refused for another reason than memory. */
static bool refused_since(const Searcher *s, int from)
{
    bool refused = true;
    for (int i = from; i < s->all.n; i++)
        refused &= !search_works(&s->all.at[i]) && !s->all.at[i].too_large;
    return refused;
}

/* Returns whether the candidate was tried and simulated to its end. */
static bool is_known(const Searcher *s, const Candidate *x)
{
    for (int i = 0; i < s->all.n; i++) {
        const Candidate *y = &s->all.at[i];
        if (search_works(y) && !y->cost.at_least && search_same_but_escalation(x, y))
            return true;
    }
    return false;
}

/* Tries it with the escalated settings of the layout that it is a variant of, and as much saved as fits.
 * Returns false if that does not fit, or does not work. */
static bool try_alike(Searcher *s, const Candidate *x)
{
    if (x->why_not)
        return false;
    const Candidate y = search_with_escalation(x, s->variants.of);
    bool slow;
    Candidate found = search_save_alike(s, &y, &slow);
    found.alike = true;
    if (search_works(&found))
        *vec_push(s->arena, &s->all) = found;
    return slow || search_works(&found);
}

/* The value of weights that needs the least memory. */
static bool shards_most(const Candidate *x)
{
    return x->choice.sharding == SHARDING_ZERO3 && !x->choice.within;
}

/* A lower bound for other values of weights, from what was tried since: they need more memory, so that they
 * save no more. 0: nothing works. */
static double least_since(const Searcher *s, int from)
{
    double least = INFINITY;
    for (int i = from; i < s->all.n; i++)
        if (search_works(&s->all.at[i]))
            least = fmin(least, s->all.at[i].cost.any_weights);
    return isfinite(least) ? sequence_seconds(s->program, least) : 0;
}

static bool is_bounded(const Searcher *s, const Candidate *x) { return s->cuts && !x->why_not; }

/* Whether masks cannot get schedules of their own, by which what attends with more strain may win. */
static bool compares(const Searcher *s, const Candidate *x)
{
    return is_bounded(s, x) && !search_layers_may_differ(s);
}

/* The first candidate of a list that the layout does not exclude. */
static const Candidate *first_of(const Listed *l)
{
    int first = 0;
    while (first < l->open.n - 1 && l->open.at[first].why_not)
        first++;
    return &l->open.at[first];
}

/* Tries the candidate with its escalation. If it fits with no schedule, with the weights that need least, no
 * candidate of the list fits, unless other escalating settings work with the first one, as with a schedule
 * that moves queries. */
static void try_alone(Searcher *s, Listed *l, const Candidate *x)
{
    const int from = s->all.n;
    const bool bounded = is_bounded(s, x);
    double least = INFINITY;
    if (s->variants.alike && is_known(s, x))
        return;
    if (!(s->variants.alike && try_alike(s, x)) && !(bounded && search_escalate_from_points(s, x, &least)))
        search_escalate(s, *x);
    if (bounded && s->all.n == from && isfinite(least))
        note_cut(s, x, least);
    if (!s->variants.alike && !s->might_fit && x->order == x->first &&
        search_escalates_alike(s, x, first_of(l)))
        l->hopeless = true;
}

static bool is_outdone(Searcher *s, const Candidate *x)
{
    const bool outdone = compares(s, x) && search_outdone(s, x);
    s->pruned.outdone += outdone;
    return outdone;
}

static void try_first(Searcher *s, Queue *q, const Branch *n)
{
    const Candidate *x = &n->of->open.at[n->at];
    const int from = s->all.n;
    double least = n->least;
    if (compares(s, x))
        search_add_rival(s, x);
    if (!is_outdone(s, x)) {
        try_alone(s, n->of, x);
        if (shards_most(x))
            least = fmax(least, least_since(s, from));
        if (compares(s, x) && refused_since(s, from))
            search_drop_rival(s, x);
    }
    push_set(q, n->of, n->at, STAGE_OTHERS, least);
}

static void split_others(Searcher *s, Queue *q, const Branch *n)
{
    const int from = n->of->open.n;
    list_weights(s, n->of, n->at);
    for (int i = from; i < n->of->open.n; i++) {
        const Candidate *x = &n->of->open.at[i];
        if (!is_outdone(s, x))
            push_set(q, n->of, i, STAGE_ALONE, x->why_not ? 0 : fmax(n->least, search_least_own(s, x)));
    }
}

static void split_groups(Searcher *s, Queue *q, const Branch *n)
{
    if (n->levels) {
        push_kind(s, q, n->at, SCHEDULES_LEVELS, n->least);
        return;
    }
    push_kind(s, q, n->at, SCHEDULES_SHARING, n->least);
    push_kind(s, q, n->at, SCHEDULES_SIMPLE, n->least);
}

static void split(Searcher *s, Queue *q, const Branch *n)
{
    const Candidate *x = n->stage == STAGE_GROUPS ? NULL : &n->of->open.at[n->at];
    switch (n->stage) {
    case STAGE_GROUPS: split_groups(s, q, n); return;
    case STAGE_LISTED:
        if (s->single) { /* nothing to compare it with */
            push_set(q, n->of, n->at, STAGE_BOUNDED, n->least);
            return;
        }
        push_set(q, n->of, n->at, STAGE_COMPUTING, fmax(n->least, search_least_computing(s, x)));
        return;
    case STAGE_COMPUTING: /* with a time to undercut, both bounds at once share attention's loads */
        if (!isfinite(search_fastest(s))) {
            push_set(q, n->of, n->at, STAGE_MOVING, fmax(n->least, search_least_moving(s, x)));
            return;
        }
        push_set(q, n->of, n->at, STAGE_BOUNDED, fmax(n->least, search_least(s, x)));
        return;
    case STAGE_MOVING: push_set(q, n->of, n->at, STAGE_BOUNDED, fmax(n->least, search_least(s, x))); return;
    case STAGE_BOUNDED: try_first(s, q, n); return;
    case STAGE_OTHERS: split_others(s, q, n); return;
    case STAGE_ALONE:
    case STAGES: try_alone(s, n->of, x); return;
    }
}

/* Candidates that the branch stands for. */
static int members(const Searcher *s, const Branch *n)
{
    return n->stage == STAGE_ALONE ? 1
                                   : count_weights(s, &n->of->open.at[n->at]) - (n->stage == STAGE_OTHERS);
}

/* Returns whether the branch cannot win, or nothing of its list fits; counts its candidates then. */
static bool is_lost(Searcher *s, const Branch *n)
{
    if (n->stage == STAGE_GROUPS) {
        const bool slow = n->least >= search_fastest(s) * (1 - SEARCH_TIE);
        const Choice *c = &s->data.at[n->at].choice;
        if (slow && !n->levels)
            *vec_push(s->arena, &s->pruned.groups) = (Skipped){c->tensor, c->data, n->least};
        return slow;
    }
    const Candidate *x = &n->of->open.at[n->at];
    if (!s->cuts)
        return false;
    if (n->of->hopeless) {
        s->pruned.unfit += members(s, n);
        return true;
    }
    if (n->least <= search_to_win(s, &x->choice))
        return false;
    for (int i = members(s, n); i > 0; i--)
        note_cut(s, x, n->least);
    return true;
}

/* Sets what the searcher knows of the branch's list. */
static void enter(Searcher *s, const Branch *n)
{
    search_enter(s, n->of ? &n->of->open.at[n->at].choice : &s->data.at[n->at].choice);
    if (!n->of)
        return;
    s->rivals = n->of->rivals;
    s->many = n->of->many;
    s->cuts = n->of->cuts;
}

typedef struct Order {
    int64_t order;
    int at;
} Order;

static int compare_order(const void *x, const void *y)
{
    const Order *a = x, *b = y;
    const int by_order = (a->order > b->order) - (a->order < b->order);
    return by_order ? by_order : (a->at > b->at) - (a->at < b->at);
}

/* Sorts what was tried since `from` into the order of the candidates. */
static void set_in_order(Searcher *s, Arena *a, int from)
{
    const int n = s->all.n - from;
    Order *order = NEW_ARRAY(a, Order, n);
    Candidate *copy = NEW_ARRAY(a, Candidate, n);
    for (int i = 0; i < n; i++) {
        copy[i] = s->all.at[from + i];
        order[i] = (Order){copy[i].order, i};
    }
    if (n)
        qsort(order, (size_t)n, sizeof *order, compare_order);
    for (int i = 0; i < n; i++)
        s->all.at[from + i] = copy[order[i].at];
    search_forget_tried(s);
}

static void run(Searcher *s, Queue *q)
{
    const int from = s->all.n;
    while (q->heap.n) {
        const Branch n = pop(q);
        enter(s, &n);
        if (!is_lost(s, &n))
            split(s, q, &n);
    }
    set_in_order(s, q->arena, from);
    s->many = q->many;
    s->cuts = q->cuts;
    for (int i = 0; i < q->lists.n; i++)
        arena_free(q->lists.at[i]->arena);
    arena_free(q->arena);
}

static Queue queue_new(const Searcher *s)
{
    Arena *a = arena_new();
    return (Queue){.arena = a, .rivals = NEW_ARRAY(a, Rivals, s->data.n ? s->data.n : 1)};
}

int search_count_simple(Searcher *s, int data)
{
    Queue q = queue_new(s);
    const Listed *l = list(s, &q, &s->data.at[data], SCHEDULES_SIMPLE, &q.rivals[data]);
    int n = 0;
    for (int i = 0; i < l->open.n; i++)
        n += l->cuts && !l->open.at[i].why_not ? count_weights(s, &l->open.at[i]) : 1;
    s->many = q.many;
    s->cuts = q.cuts;
    arena_free(l->arena);
    arena_free(q.arena);
    return n;
}

void search_all(Searcher *s)
{
    const double *pairs = s->data.n > 1 ? search_pairs(s) : NULL;
    Queue q = queue_new(s);
    for (int levels = 0; levels < 2; levels++)
        for (int i = 0; i < s->data.n; i++) {
            search_enter(s, &s->data.at[i].choice);
            const double step = pairs ? data_least(s->program, pairs, s->data.at[i].choice.data) : 0;
            const double least = sequence_seconds(s->program, step);
            push(&q, (Branch){least, ((int64_t)levels << 32) + i, STAGE_GROUPS, i, levels, NULL});
        }
    run(s, &q);
}

void search_variants(Searcher *s, Variants v, unsigned kinds)
{
    const Candidate of = *v.of;
    Queue q = queue_new(s);
    Candidate data = {.value[SETTING_TENSOR] = of.value[SETTING_TENSOR]};
    search_enter(s, &of.choice);
    search_take(s, &data, SETTING_DATA, of.value[SETTING_DATA]);
    s->variants = v;
    s->variants.of = &of;
    for (int kind = 0; kind <= SCHEDULES_LEVELS; kind++)
        if (kinds >> kind & 1)
            push_listed(s, &q, list(s, &q, &data, (ScheduleKind)kind, q.rivals), 0);
    run(s, &q);
    s->variants = (Variants){0};
}
