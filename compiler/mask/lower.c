/* mask/lower.c: lowers masks for fast evaluation: affine parts become single nodes, comparisons become `x <
 * 0` and `x == 0`. Verdicts equal those of emitted programs. */
#include "mask/internal.h"

#include "data/lengths.h"

#include <string.h>

_Static_assert((int)COVER_EMPTY == BURST_EMPTY && (int)COVER_PARTIAL == BURST_PARTIAL &&
                   (int)COVER_FULL == BURST_FULL,
               "one numbering of verdicts");

BurstSide mask_side(int64_t lo, int64_t last)
{
    BurstSide s = {.lo = lo, .hi = last};
    for (int t = 0; t < BURST_MAX_TABLES; t++)
        s.table_lo[t] = INT32_MIN, s.table_hi[t] = INT32_MAX;
    return s;
}

enum { HINT = 64 }; /* tokens per index entry of drawn documents */

typedef struct Lowering {
    Arena *arena;
    const MaskDocuments *const *documents;
    bool drawn; /* what is chosen at run time is drawn; else open */
} Lowering;

/* Plain operations of one node: divisions are slow, a hash looks at several cells, and pattern lookups miss
 * the cache. */
static int64_t own_work(MaskNodeOp op)
{
    switch (op) {
    case MN_DIV:
    case MN_MOD: return 3;
    case MN_HASH: return 8;
    case MN_PATTERN: return 16;
    default: return 1;
    }
}

static MaskNode *node(Lowering *l, MaskNodeOp op, int64_t value, const MaskNode *x, const MaskNode *y)
{
    MaskNode *n = NEW(l->arena, MaskNode);
    *n = (MaskNode){.op = op,
                    .value = value,
                    .x = x,
                    .y = y,
                    .work = own_work(op) + (x ? x->work : 0) + (y ? y->work : 0),
                    .open = (x && x->open) || (y && y->open)};
    return n;
}

static const MaskNode *affine_node(Lowering *l, BurstForm f)
{
    MaskNode *n = node(l, MN_AFFINE, 0, NULL, NULL);
    n->affine = f;
    return n;
}

/* The position in a drawn document is the token's position minus the document's first: affine inside a
 * document, and the rest increases from document to document like all other tables. */
static const MaskNode *table_node(Lowering *l, const Expr *e)
{
    const bool of_q = e->op == E_TABLE_Q;
    const MaskDocuments *d = l->documents ? l->documents[e->value] : NULL;
    MaskNode *n = node(l, of_q ? MN_TABLE_Q : MN_TABLE_K, e->value, NULL, NULL);
    n->documents = d;
    n->open = !d;
    if (!d || d->kind != BURST_TABLE_POSITION)
        return n;
    MaskDocuments *first = NEW(l->arena, MaskDocuments);
    *first = *d;
    first->kind = BURST_TABLE_FIRST;
    n->documents = first;
    return node(l, MN_SUB, 0, affine_node(l, burst_affine(of_q, !of_q, 0)), n);
}

/* ---- expressions that are affine in q and k ---- */

static bool affine_product(const Expr *e, int64_t s, BurstForm *f)
{
    BurstForm x = {0}, y = {0};
    if (!mask_affine(e->a, 1, &x) || !mask_affine(e->b, 1, &y))
        return false;
    if (y.a || y.b) {
        const BurstForm other = x;
        x = y, y = other;
    }
    if (y.a || y.b)
        return false;
    *f = burst_form_add(*f, burst_form_scale(x, burst_times(s, y.lo)));
    return true;
}

bool mask_affine(const Expr *e, int64_t s, BurstForm *f)
{
    switch (e->op) {
    case E_CONST: *f = burst_form_add(*f, burst_affine(0, 0, burst_times(s, e->value))); return true;
    case E_Q: *f = burst_form_add(*f, burst_affine(s, 0, 0)); return true;
    case E_K: *f = burst_form_add(*f, burst_affine(0, s, 0)); return true;
    case E_ADD: return mask_affine(e->a, s, f) && mask_affine(e->b, s, f);
    case E_SUB: return mask_affine(e->a, s, f) && mask_affine(e->b, burst_minus(0, s), f);
    case E_MUL: return affine_product(e, s, f);
    default: return false;
    }
}

/* ---- nodes ---- */

static const MaskNode *value_node(Lowering *l, const Expr *e);

static const MaskNode *max_node(Lowering *l, const Expr *e)
{
    const MaskNode *x = node(l, MN_SCALE, -1, value_node(l, e->a), NULL),
                   *y = node(l, MN_SCALE, -1, value_node(l, e->b), NULL);
    return node(l, MN_SCALE, -1, node(l, MN_MIN, 0, x, y), NULL);
}

static const MaskNode *hash_node(Lowering *l, const Expr *hash, int64_t modulus)
{
    const MaskNode *x = value_node(l, hash->a), *y = value_node(l, hash->b);
    return node(l, MN_HASH, modulus, x, y);
}

static const MaskNode *binary_node(Lowering *l, MaskNodeOp op, const Expr *e)
{
    const MaskNode *x = value_node(l, e->a), *y = value_node(l, e->b);
    return node(l, op, 0, x, y);
}

static const MaskNode *function_node(Lowering *l, const Expr *e)
{
    const MaskNode *x = value_node(l, e->a), *y = value_node(l, e->b);
    MaskNode *n = node(l, MN_FUNCTION, e->op, x, y);
    n->function = expr_function(e->op);
    return n;
}

static const MaskNode *value_node(Lowering *l, const Expr *e)
{
    BurstForm f = {0};
    if (mask_affine(e, 1, &f))
        return affine_node(l, f);
    switch (e->op) {
    case E_TABLE_Q:
    case E_TABLE_K: return table_node(l, e);
    case E_ADD: return binary_node(l, MN_ADD, e);
    case E_SUB: return binary_node(l, MN_SUB, e);
    case E_MUL: return binary_node(l, MN_MUL, e);
    case E_MIN: return binary_node(l, MN_MIN, e);
    case E_MAX: return max_node(l, e);
    case E_DIV: return node(l, MN_DIV, e->b->value, value_node(l, e->a), NULL);
    case E_MOD:
        if (e->a->op == E_HASH)
            return hash_node(l, e->a, e->b->value);
        return node(l, MN_MOD, e->b->value, value_node(l, e->a), NULL);
    case E_ABS: return node(l, MN_ABS, 0, value_node(l, e->a), NULL);
    case E_HASH: return hash_node(l, e, 0);
    default: return function_node(l, e);
    }
}

/* left - right + shift */
static const MaskNode *difference(Lowering *l, const Expr *left, const Expr *right, int64_t shift)
{
    BurstForm f = burst_affine(0, 0, shift);
    if (mask_affine(left, 1, &f) && mask_affine(right, -1, &f))
        return affine_node(l, f);
    const BurstForm none = burst_affine(0, 0, 0);
    BurstForm y = burst_affine(0, 0, shift);
    const MaskNode *x = value_node(l, left);
    if (mask_affine(right, -1, &y)) /* added to x in one step, or not at all */
        return memcmp(&y, &none, sizeof y) ? node(l, MN_ADD, 0, x, affine_node(l, y)) : x;
    const MaskNode *d = node(l, MN_SUB, 0, x, value_node(l, right));
    return shift ? node(l, MN_ADD, 0, d, affine_node(l, burst_affine(0, 0, shift))) : d;
}

static const MaskNode *comparison(Lowering *l, const Expr *e)
{
    const bool swap = e->op == E_GT || e->op == E_GE;
    const int64_t shift = e->op == E_LE || e->op == E_GE ? -1 : 0;
    const MaskNode *d = difference(l, swap ? e->b : e->a, swap ? e->a : e->b, shift);
    if (e->op == E_EQ)
        return node(l, MN_ZERO, 0, d, NULL);
    return e->op == E_NE ? node(l, MN_NOT, 0, node(l, MN_ZERO, 0, d, NULL), NULL)
                         : node(l, MN_NEGATIVE, 0, d, NULL);
}

static const MaskNode *pattern_node(Lowering *l, const Expr *e)
{
    const MaskNode *x = value_node(l, e->a), *y = value_node(l, e->b);
    MaskNode *n = node(l, MN_PATTERN, 0, x, y);
    n->pattern = e->pattern;
    return n;
}

/* What is chosen at run time is a table of keys whose values are not known. */
static const MaskNode *selected_node(Lowering *l)
{
    MaskNode *n = node(l, MN_TABLE_K, BURST_SELECT_TABLE, NULL, NULL);
    n->open = true;
    return node(l, MN_ZERO, 0, n, NULL);
}

static const MaskNode *lower(Lowering *l, const Expr *e)
{
    switch (e->op) {
    case E_TRUE:
    case E_FALSE: return node(l, MN_CONSTANT, e->op == E_TRUE ? BURST_FULL : BURST_EMPTY, NULL, NULL);
    case E_NOT: return node(l, MN_NOT, 0, lower(l, e->a), NULL);
    case E_AND:
    case E_OR: {
        const MaskNode *x = lower(l, e->a), *y = lower(l, e->b);
        return node(l, e->op == E_AND ? MN_AND : MN_OR, 0, x, y);
    }
    case E_PATTERN: return pattern_node(l, e);
    case E_SELECTED: return l->drawn ? lower(l, e->a) : selected_node(l);
    default: return comparison(l, e);
    }
}

const MaskNode *mask_lower(Arena *a, const Expr *e, const MaskDocuments *const *documents)
{
    Lowering l = {a, documents, false};
    return lower(&l, e);
}

const MaskNode *mask_lower_drawn(Arena *a, const Expr *e, const MaskDocuments *const *documents)
{
    Lowering l = {a, documents, true};
    return lower(&l, e);
}

/* ---- plain evaluation ---- */
int32_t mask_documents_index(const MaskDocuments *d, int64_t position)
{
    int32_t i = d->hint[position / HINT];
    while (i + 1 < d->count && d->begin[i + 1] <= position)
        i++;
    return i;
}

BurstForm mask_node_table(const MaskNode *n, const BurstSide *side)
{
    if (!n->documents)
        return burst_interval(INT32_MIN, INT32_MAX);
    return burst_interval(mask_documents_at(n->documents, side->lo),
                          mask_documents_at(n->documents, side->hi));
}

static void node_form(const MaskNode *n, const BurstSide *q, const BurstSide *k, BurstForm *out);

/* Returns affine nodes in place, without a call or a copy: they are half of all nodes. */
static const BurstForm *operand(const MaskNode *n, const BurstSide *q, const BurstSide *k, BurstForm *own)
{
    if (n->op == MN_AFFINE)
        return &n->affine;
    node_form(n, q, k, own);
    return own;
}

static void node_form(const MaskNode *n, const BurstSide *q, const BurstSide *k, BurstForm *out)
{
    BurstForm own_x, own_y;
    const BurstForm *x = n->x ? operand(n->x, q, k, &own_x) : NULL,
                    *y = n->y ? operand(n->y, q, k, &own_y) : NULL;
    switch (n->op) {
    case MN_AFFINE: *out = n->affine; break;
    case MN_TABLE_Q: *out = mask_node_table(n, q); break;
    case MN_TABLE_K: *out = mask_node_table(n, k); break;
    case MN_ADD: *out = burst_form_add(*x, *y); break;
    case MN_SUB: *out = burst_form_sub(*x, *y); break;
    case MN_SCALE: *out = burst_form_scale(*x, n->value); break;
    case MN_MUL: *out = burst_form_mul(*x, *y, q, k); break;
    case MN_DIV: *out = burst_form_div(*x, n->value, q, k); break;
    case MN_MOD: *out = burst_form_mod(*x, n->value, q, k); break;
    case MN_MIN: *out = burst_form_min(*x, *y, q, k); break;
    case MN_ABS: *out = burst_form_abs(*x, q, k); break;
    case MN_FUNCTION: *out = n->function->form(*x, *y, q, k); break;
    default: *out = burst_form_hash(*x, *y, n->value, q, k);
    }
}

/* Ones in rows [r0, r1] and columns [c0, c1]. */
static int64_t ones_of(const Pattern *p, int64_t r0, int64_t r1, int64_t c0, int64_t c1)
{
    const uint32_t *above = p->sums + r0 * (p->cols + 1), *last = p->sums + (r1 + 1) * (p->cols + 1);
    return (int64_t)last[c1 + 1] - last[c0] - above[c1 + 1] + above[c0];
}

int mask_pattern_cover(const Pattern *p, BurstForm row, BurstForm col, const BurstSide *q, const BurstSide *k)
{
    if (!p->sums)
        return burst_pattern_cover(p->bits, p->rows, p->cols, row, col, q, k);
    const BurstForm u = burst_range(row, q, k), v = burst_range(col, q, k);
    const int64_t r0 = burst_max(u.lo, 0), r1 = burst_min(u.hi, p->rows - 1);
    const int64_t c0 = burst_max(v.lo, 0), c1 = burst_min(v.hi, p->cols - 1);
    const int64_t ones = r0 > r1 || c0 > c1 ? 0 : ones_of(p, r0, r1, c0, c1);
    if (!ones)
        return BURST_EMPTY;
    const bool inside = r0 == u.lo && r1 == u.hi && c0 == v.lo && c1 == v.hi;
    return inside && ones == (r1 - r0 + 1) * (c1 - c0 + 1) ? BURST_FULL : BURST_PARTIAL;
}

static int pattern_cover(const MaskNode *n, const BurstSide *q, const BurstSide *k)
{
    BurstForm own_x, own_y;
    return mask_pattern_cover(n->pattern, *operand(n->x, q, k, &own_x), *operand(n->y, q, k, &own_y), q, k);
}

int mask_node_cover(const MaskNode *n, const BurstSide *q, const BurstSide *k)
{
    BurstForm own;
    int x;
    switch (n->op) {
    case MN_CONSTANT: return (int)n->value;
    case MN_NEGATIVE: return burst_negative(*operand(n->x, q, k, &own), q, k);
    case MN_ZERO: return burst_zero(*operand(n->x, q, k, &own), q, k);
    case MN_PATTERN: return pattern_cover(n, q, k);
    case MN_AND:
        x = mask_node_cover(n->x, q, k);
        return x == BURST_EMPTY ? x : burst_and(x, mask_node_cover(n->y, q, k));
    case MN_OR:
        x = mask_node_cover(n->x, q, k);
        return x == BURST_FULL ? x : burst_or(x, mask_node_cover(n->y, q, k));
    default: return burst_not(mask_node_cover(n->x, q, k));
    }
}

/* A copy of n with other operands. */
static const MaskNode *with(MaskSpare *spare, const MaskNode *n, const MaskNode *x, const MaskNode *y)
{
    if ((x == n->x && y == n->y) || spare->used == spare->size)
        return n;
    MaskNode *made = &spare->node[spare->used++];
    *made = *n;
    made->x = x, made->y = y;
    made->work = 1 + x->work + (y ? y->work : 0);
    return made;
}

int mask_node_within(MaskSpare *spare, const MaskNode **n, const BurstSide *q, const BurstSide *k)
{
    const MaskNode *whole = *n, *x = whole->x, *y = whole->y;
    if (whole->op == MN_NOT) {
        const int cover = burst_not(mask_node_within(spare, &x, q, k));
        *n = with(spare, whole, x, NULL);
        return cover;
    }
    if (whole->op != MN_AND && whole->op != MN_OR)
        return mask_node_cover(whole, q, k);
    const bool both = whole->op == MN_AND;
    const int neutral = both ? BURST_FULL : BURST_EMPTY, a = mask_node_within(spare, &x, q, k),
              b = mask_node_within(spare, &y, q, k);
    if (a == neutral)
        *n = y;
    else
        *n = b == neutral ? x : with(spare, whole, x, y);
    return both ? burst_and(a, b) : burst_or(a, b);
}

/* ---- documents of random lengths, for tables with a length distribution ---- */

static int64_t draw_length(const Table *t, uint64_t *state)
{
    if (t->lengths)
        return lengths_draw(t->lengths, state);
    const int64_t least = t->len_min > 0 ? t->len_min : 1;
    const uint64_t spread = (uint64_t)(t->len_max > least ? t->len_max - least : 0) + 1;
    return least + (int64_t)(lengths_random(state) % spread);
}

const MaskDocuments *mask_documents_draw(Arena *a, const Table *t, int64_t sequence, int batch)
{
    MaskDocuments *d = NEW(a, MaskDocuments);
    uint64_t state = 1 + (uint64_t)batch;
    Vec(int64_t) begin = {0};
    for (int64_t at = 0; at < sequence; at += draw_length(t, &state))
        *(int64_t *)vec_push(a, &begin) = at;
    *(int64_t *)vec_push(a, &begin) = sequence;
    int32_t *hint = NEW_ARRAY(a, int32_t, sequence / HINT + 1);
    for (int64_t i = 0, document = 0; i <= sequence / HINT; i++) {
        while (document + 2 < begin.n && begin.at[document + 1] <= i * HINT)
            document++;
        hint[i] = (int32_t)document;
    }
    *d = (MaskDocuments){.kind = t->kind, .count = begin.n - 1, .begin = begin.at, .hint = hint};
    return d;
}

int64_t mask_documents_at(const MaskDocuments *d, int64_t position)
{
    const int32_t i = mask_documents_index(d, position);
    const BurstDocument document = {i, d->begin[i], d->begin[i + 1]};
    return burst_document_value(d->kind, &document, position);
}

int64_t mask_documents_begin_near(const MaskDocuments *d, int64_t lo, int64_t last)
{
    const int32_t middle = mask_documents_index(d, lo + (last - lo) / 2);
    return d->begin[middle] > lo ? d->begin[middle] : d->begin[middle + 1];
}
