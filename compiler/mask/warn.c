/* mask/warn.c: warns about masks that are legal but most likely not meant: no pair at all, a query without a
 * key, or documents that nothing ends. Warnings about pairs are certain for all values of the tables; a mask
 * that needs more verdicts than the budget gets none. */
#include "mask/internal.h"

#include "data/listed.h"

enum { VERDICTS = 1 << 17, BOX_VERDICTS = 256, COUNTED_CELLS = 1 << 15, SAME_NODES = 64 };

typedef struct Rows {
    /* mask: for all values of the tables. own: a query's own key, as a function of q */
    const MaskNode *mask, *own;
    int64_t sequence, left;
} Rows;

/* ---- the mask on the diagonal ---- */

static bool same(const Expr *x, const Expr *y, int *nodes)
{
    if (x == y)
        return true;
    if (!x || !y || --*nodes < 0 || x->op != y->op || x->value != y->value || x->pattern != y->pattern)
        return false;
    return same(x->a, y->a, nodes) && same(x->b, y->b, nodes);
}

/* The expression with k = q. Intervals do not see that x and x are equal, so q / b == q / b is decided
 * here. */
static const Expr *on_diagonal(Arena *a, const Expr *e, int64_t *size)
{
    int nodes = SAME_NODES;
    Expr *x = NEW(a, Expr);
    ++*size;
    *x = *e;
    if (e->op == E_K || e->op == E_TABLE_K)
        x->op = e->op == E_K ? E_Q : E_TABLE_Q;
    x->a = e->a ? on_diagonal(a, e->a, size) : NULL;
    x->b = e->b ? on_diagonal(a, e->b, size) : NULL;
    if ((!expr_compares(e->op) && e->op != E_SUB) || !same(x->a, x->b, &nodes))
        return x;
    bool holds = e->op == E_EQ || e->op == E_LE || e->op == E_GE;
    *x = (Expr){.op = holds ? E_TRUE : E_FALSE, .span = e->span};
    if (e->op == E_SUB)
        x->op = E_CONST;
    return x;
}

/* ---- boxes of queries and keys ---- */

static int verdict(Rows *r, const MaskNode *n, int64_t q, int64_t q_last, int64_t k, int64_t k_last)
{
    const BurstSide a = mask_side(q, q_last), b = mask_side(k, k_last);
    r->left--;
    return mask_node_cover(n, &a, &b);
}

/* Whether halving the keys shows that the mask is empty on the box. */
static bool is_empty(Rows *r, int64_t q, int64_t q_last, int64_t k, int64_t k_last, int *verdicts)
{
    if (r->left < 0 || --*verdicts < 0)
        return false;
    const int cover = verdict(r, r->mask, q, q_last, k, k_last);
    if (cover != BURST_PARTIAL || k == k_last)
        return cover == BURST_EMPTY;
    const int64_t middle = k + (k_last - k) / 2;
    return is_empty(r, q, q_last, k, middle, verdicts) &&
           is_empty(r, q, q_last, middle + 1, k_last, verdicts);
}

/* Whether each query keeps its own key, or all of them keep one common key. */
static bool keep_some(Rows *r, int64_t q, int64_t last)
{
    const int64_t key[] = {0, q, last, r->sequence - 1};
    bool keep = verdict(r, r->own, q, last, 0, 0) == BURST_FULL;
    for (int i = 0; i < countof(key); i++)
        keep = keep || verdict(r, r->mask, q, last, key[i], key[i]) == BURST_FULL;
    return keep;
}

/* The first query found without a key; -1: none. */
static int64_t find_row(Rows *r, int64_t q, int64_t last)
{
    int verdicts = BOX_VERDICTS;
    if (r->left < 0 || keep_some(r, q, last))
        return -1;
    if (is_empty(r, q, last, 0, r->sequence - 1, &verdicts))
        return q;
    if (q == last)
        return -1;
    const int64_t middle = q + (last - q) / 2, found = find_row(r, q, middle);
    return found >= 0 ? found : find_row(r, middle + 1, last);
}

static bool keeps_nothing(Arena *a, const Rows *r, int64_t cells)
{
    const Piece piece = {.start = 0, .run = r->sequence, .stride = r->sequence, .count = 1};
    const PosSet all = {.tokens = r->sequence, .npieces = 1, .pieces = &piece};
    const MaskRange range = mask_range_make(&all, 1, 0, r->sequence);
    MaskEffort effort = {.left = (double)(cells * r->mask->work)};
    const MaskCount n = mask_counter_count(mask_counter_new(a, r->mask, &effort), range, range, 1);
    return !n.estimated && n.full == 0 && n.partial == 0;
}

static void warn_of(Arena *a, Diags *d, const Program *p, const Mask *mask)
{
    int64_t size = 0;
    const Expr *own = on_diagonal(a, mask->expr, &size);
    Rows r = {.sequence = p->sequence, .left = VERDICTS / (1 + size / 16)};
    r.own = mask_lower(a, own, NULL);
    r.mask = mask_lower(a, mask->expr, NULL);
    if (keep_some(&r, 0, r.sequence - 1))
        return;
    if (keeps_nothing(a, &r, COUNTED_CELLS / (1 + size / 16))) {
        diag_warn(d, WARN_EMPTY_MASK, mask->span, "mask '%s' keeps no pair: no query sees a key", mask->text);
        return;
    }
    const int64_t row = find_row(&r, 0, r.sequence - 1);
    if (row >= 0)
        diag_warn(d, WARN_EMPTY_ROWS, mask->span,
                  "mask '%s' leaves query %lld without a key; its output is zero", mask->text,
                  (long long)row);
}

/* ---- tables ---- */

/* A table of documents that the mask reads; NULL: none. */
static const Table *documents_read(const Program *p, const Expr *e)
{
    if (!e)
        return NULL;
    const bool reads = e->op == E_TABLE_Q || e->op == E_TABLE_K;
    if (reads && p->tables[e->value].kind != BURST_TABLE_GIVEN)
        return &p->tables[e->value];
    const Table *left = documents_read(p, e->a);
    return left ? left : documents_read(p, e->b);
}

/* A data file of the plan that lists no documents; NULL: all list them, or one cannot be read here
 * (*unknown). */
static const BurstDataFile *without_documents(const Program *p, bool *unknown)
{
    const Train *t = &p->train;
    *unknown = t->data_files == 0;
    for (int i = 0; i < t->data_files + (t->evaluate != NULL); i++) {
        const BurstDataFile *f = i < t->data_files ? &t->data[i] : t->evaluate;
        const Listed listed = data_listed(f->path, f->raw);
        if (listed == LISTED_NOT)
            return f;
        *unknown |= listed == LISTED_UNKNOWN;
    }
    return NULL;
}

/* Warns if neither separators nor the data file end documents. A library's caller passes them. */
static void warn_of_tables(Diags *d, const Program *p, const Mask *mask)
{
    bool unknown = false;
    const Table *table = documents_read(p, mask->expr);
    if (p->train.separator >= 0 || p->library || !table)
        return;
    const BurstDataFile *f = without_documents(p, &unknown);
    if (f)
        diag_warn(d, WARN_ONE_DOCUMENT, mask->span,
                  "mask '%s' reads '%s', but '%s' lists no documents and no separator ends one, so that each "
                  "sequence is one; name the token that does: train { separator N; }",
                  mask->text, table->name, f->path);
    else if (unknown && !table->len_max)
        diag_warn(d, WARN_ONE_DOCUMENT, mask->span,
                  "mask '%s' reads '%s', but no separator ends a document, so that each sequence is one "
                  "unless the data file lists its documents; name the token that does: train { separator N; "
                  "}",
                  mask->text, table->name);
}

static bool is_used(const Program *p, int mask)
{
    for (int i = 0; i < p->model.layers; i++)
        if (p->layer_mask[i] == mask)
            return true;
    return false;
}

void mask_warn(Diags *d, const Program *p)
{
    for (int i = 0; i < p->mask_count; i++) {
        if (is_used(p, i))
            warn_of_tables(d, p, &p->masks[i]);
        Arena *scratch = arena_new();
        warn_of(scratch, d, p, &p->masks[i]);
        arena_free(scratch);
    }
}

/* ---- later keys ---- */

static bool later_in(Rows *r, int64_t q, int64_t q_last, int64_t k, int64_t k_last)
{
    const int cover = r->left < 0 ? BURST_FULL : verdict(r, r->mask, q, q_last, k, k_last);
    if (cover != BURST_PARTIAL || (q == q_last && k == k_last))
        return cover != BURST_EMPTY;
    if (q_last - q > k_last - k) {
        const int64_t middle = q + (q_last - q) / 2;
        return later_in(r, q, middle, k, k_last) || later_in(r, middle + 1, q_last, k, k_last);
    }
    const int64_t middle = k + (k_last - k) / 2;
    return later_in(r, q, q_last, k, middle) || later_in(r, q, q_last, middle + 1, k_last);
}

/* Of the tokens first to last. */
static bool later_among(Rows *r, int64_t first, int64_t last)
{
    const int64_t middle = first + (last - first) / 2;
    if (first == last)
        return false;
    return later_in(r, first, middle, middle + 1, last) || later_among(r, first, middle) ||
           later_among(r, middle + 1, last);
}

/* Whether some query may keep a key after it, or it takes too long to find out. */
static bool may_show_later(const Program *p, const Expr *e)
{
    Arena *scratch = arena_new();
    Rows r = {.mask = mask_lower(scratch, e, NULL),
              .sequence = p->sequence,
              .left = 16 * p->sequence + VERDICTS};
    const bool later = later_among(&r, 0, p->sequence - 1);
    arena_free(scratch);
    return later;
}

/* ---- keys that no token sees any more ---- */

enum { REACH_STEP = 16 };

/* Whether no query of so many tokens keeps a key `distance` or more before it; false too if it takes too
 * long. Queries are looked at REACH_STEP at a time, so that it holds for a distance that much larger. */
static bool none_beyond(const Program *p, const MaskNode *mask, int64_t tokens, int64_t distance)
{
    Rows r = {.mask = mask, .sequence = tokens, .left = 16 * p->sequence + VERDICTS};
    bool some = false;
    for (int64_t q = 0; q < tokens && !some; q += REACH_STEP) {
        const int64_t last = q + REACH_STEP < tokens ? q + REACH_STEP - 1 : tokens - 1;
        some = last >= distance && later_in(&r, q, last, 0, last - distance);
    }
    return !some;
}

static int64_t find_reach(const Program *p, int mask)
{
    Arena *scratch = arena_new();
    const MaskNode *lowered = mask_lower(scratch, p->masks[mask].expr, NULL);
    const int64_t tokens = p->sequence + p->infer.tokens;
    int64_t reach = REACH_STEP;
    while (reach < tokens && !none_beyond(p, lowered, tokens, reach))
        reach *= 2;
    for (int64_t less = reach / 2; reach < tokens && less >= REACH_STEP; less /= 2)
        if (reach - less >= REACH_STEP && none_beyond(p, lowered, tokens, reach - less))
            reach -= less;
    arena_free(scratch);
    return reach < p->sequence ? reach : 0;
}

int64_t mask_reach(const Program *p, int mask)
{
    int64_t *cached = p->masks[mask].reach;
    if (!cached)
        return find_reach(p, mask);
    if (*cached < 0)
        *cached = find_reach(p, mask);
    return *cached;
}

bool mask_check_selections(Diags *d, const Program *p)
{
    bool good = true;
    for (int i = 0; i < p->selection_count; i++) {
        const Selection *s = &p->selections[i];
        if (s->noncausal || !may_show_later(p, s->where))
            continue;
        diag_error(
            d, s->span,
            "the `where` of selection '%s' may show a query keys after it, so that later tokens would "
            "decide what earlier ones read; write `where causal and ...`, or `noncausal` after the score",
            s->text);
        good = false;
    }
    return good;
}

bool mask_check_later(Diags *d, const Program *p)
{
    bool none = true;
    for (int i = 0; i < p->mask_count && p->infer.lengths; i++) {
        if (!may_show_later(p, p->masks[i].expr))
            continue;
        diag_error(d, p->masks[i].span,
                   "mask '%s' may show a query keys after it, which are not there yet when a prompt is "
                   "continued; `--evaluate` of a program that trains computes its loss",
                   p->masks[i].text);
        none = false;
    }
    return none;
}
