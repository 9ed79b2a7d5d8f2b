/* mask_lower.c: masks with affine parts folded into single nodes and comparisons turned into `x < 0` and `x == 0`, for
 * the many evaluations that counting needs. Verdicts are those of mask_cover.
 */
#include "mask.h"

typedef struct Lowering {
    Arena *arena;
    TableReading reading;
    const MaskDocuments *const *documents;
    bool table; /* met a table that may be anything */
} Lowering;

static const MaskNode *lower(Lowering *l, const Expr *e, bool most);

const MaskNode *mask_lower(Arena *a, const Expr *e, TableReading reading, const MaskDocuments *const *documents)
{
    Lowering l = {.arena = a, .reading = reading, .documents = documents};
    return lower(&l, e, true);
}

static MaskNode *node(Lowering *l, MaskNodeOp op, int64_t value, const MaskNode *x, const MaskNode *y)
{
    MaskNode *n = NEW(l->arena, MaskNode);
    *n = (MaskNode){.op = op, .value = value, .x = x, .y = y};
    return n;
}

static const MaskNode *affine_node(Lowering *l, BurstForm f)
{
    MaskNode *n = node(l, MN_AFFINE, 0, NULL, NULL);
    n->affine = f;
    return n;
}

static const MaskNode *table_node(Lowering *l, const Expr *e)
{
    MaskNode *n = node(l, e->op == E_TABLE_Q ? MN_TABLE_Q : MN_TABLE_K, e->value, NULL, NULL);
    if (l->reading != TABLES_UNKNOWN)
        n->documents = l->documents[e->value];
    l->table |= !n->documents;
    return n;
}

static const MaskNode *value_node(Lowering *l, const Expr *e);

static const MaskNode *max_node(Lowering *l, const Expr *e)
{
    const MaskNode *x = node(l, MN_SCALE, -1, value_node(l, e->a), NULL), *y = node(l, MN_SCALE, -1, value_node(l, e->b), NULL);
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

static const MaskNode *value_node(Lowering *l, const Expr *e)
{
    BurstForm f = {0};
    if (mask_affine(e, 1, &f))
        return affine_node(l, f);
    switch (e->op) {
    case E_TABLE_Q: case E_TABLE_K: return table_node(l, e);
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
    default: return hash_node(l, e, 0);
    }
}

/* left - right + shift */
static const MaskNode *difference(Lowering *l, const Expr *left, const Expr *right, int64_t shift)
{
    BurstForm f = burst_affine(0, 0, shift);
    if (mask_affine(left, 1, &f) && mask_affine(right, -1, &f))
        return affine_node(l, f);
    const MaskNode *x = value_node(l, left), *y = value_node(l, right), *d = node(l, MN_SUB, 0, x, y);
    return shift ? node(l, MN_ADD, 0, d, affine_node(l, burst_affine(0, 0, shift))) : d;
}

static const MaskNode *comparison(Lowering *l, const Expr *e)
{
    const bool swap = e->op == E_GT || e->op == E_GE;
    const int64_t shift = e->op == E_LE || e->op == E_GE ? -1 : 0;
    const MaskNode *d = difference(l, swap ? e->b : e->a, swap ? e->a : e->b, shift);
    if (e->op == E_EQ)
        return node(l, MN_ZERO, 0, d, NULL);
    return e->op == E_NE ? node(l, MN_NOT, 0, node(l, MN_ZERO, 0, d, NULL), NULL) : node(l, MN_NEGATIVE, 0, d, NULL);
}

static const MaskNode *pattern_node(Lowering *l, const Expr *e)
{
    const MaskNode *x = value_node(l, e->a), *y = value_node(l, e->b);
    MaskNode *n = node(l, MN_PATTERN, 0, x, y);
    n->pattern = e->pattern;
    return n;
}

/* A comparison or pattern; where a table that may be anything leaves it open, what keeps the most (least) pairs. */
static const MaskNode *leaf(Lowering *l, const Expr *e, bool most)
{
    l->table = false;
    const MaskNode *n = e->op == E_PATTERN ? pattern_node(l, e) : comparison(l, e);
    if (l->table && l->reading == TABLES_MOST_PAIRS)
        return node(l, MN_GUESS, most ? BURST_FULL : BURST_EMPTY, n, NULL);
    return n;
}

static const MaskNode *lower(Lowering *l, const Expr *e, bool most)
{
    switch (e->op) {
    case E_TRUE: case E_FALSE: return node(l, MN_CONSTANT, e->op == E_TRUE ? BURST_FULL : BURST_EMPTY, NULL, NULL);
    case E_NOT: return node(l, MN_NOT, 0, lower(l, e->a, !most), NULL);
    case E_AND: case E_OR: {
        const MaskNode *x = lower(l, e->a, most), *y = lower(l, e->b, most);
        return node(l, e->op == E_AND ? MN_AND : MN_OR, 0, x, y);
    }
    default: return leaf(l, e, most);
    }
}

/* ---- plain evaluation ---- */
BurstForm mask_node_table(const MaskNode *n, const BurstSide *side)
{
    if (!n->documents)
        return burst_interval(INT32_MIN, INT32_MAX);
    return burst_interval(mask_documents_at(n->documents, side->lo), mask_documents_at(n->documents, side->hi));
}

static BurstForm node_form(const MaskNode *n, const BurstSide *q, const BurstSide *k)
{
#define FORM(x) node_form((x), q, k)
    switch (n->op) {
    case MN_AFFINE: return n->affine;
    case MN_TABLE_Q: return mask_node_table(n, q);
    case MN_TABLE_K: return mask_node_table(n, k);
    case MN_ADD: return burst_form_add(FORM(n->x), FORM(n->y));
    case MN_SUB: return burst_form_sub(FORM(n->x), FORM(n->y));
    case MN_SCALE: return burst_form_scale(FORM(n->x), n->value);
    case MN_MUL: return burst_form_mul(FORM(n->x), FORM(n->y), q, k);
    case MN_DIV: return burst_form_div(FORM(n->x), n->value, q, k);
    case MN_MOD: return burst_form_mod(FORM(n->x), n->value, q, k);
    case MN_MIN: return burst_form_min(FORM(n->x), FORM(n->y), q, k);
    case MN_ABS: return burst_form_abs(FORM(n->x), q, k);
    default: return burst_form_hash(FORM(n->x), FORM(n->y), n->value, q, k);
    }
}

int mask_node_cover(const MaskNode *n, const BurstSide *q, const BurstSide *k)
{
    const Pattern *p = n->pattern;
    int x;
    switch (n->op) {
    case MN_CONSTANT: return (int)n->value;
    case MN_NEGATIVE: return burst_negative(FORM(n->x), q, k);
    case MN_ZERO: return burst_zero(FORM(n->x), q, k);
    case MN_PATTERN: return burst_pattern_cover(p->bits, p->rows, p->cols, FORM(n->x), FORM(n->y), q, k);
    case MN_AND:
        x = mask_node_cover(n->x, q, k);
        return x == BURST_EMPTY ? x : burst_and(x, mask_node_cover(n->y, q, k));
    case MN_OR:
        x = mask_node_cover(n->x, q, k);
        return x == BURST_FULL ? x : burst_or(x, mask_node_cover(n->y, q, k));
    case MN_NOT: return burst_not(mask_node_cover(n->x, q, k));
    default: /* MN_GUESS */
        x = mask_node_cover(n->x, q, k);
        return x == BURST_PARTIAL ? (int)n->value : x;
    }
#undef FORM
}

/* ---- documents of random lengths, for tables with a length distribution ---- */
enum { HINT = 64 }; /* tokens to one entry of the index */

static uint64_t random_bits(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

const MaskDocuments *mask_documents_draw(Arena *a, const Table *t, int index, int64_t sequence)
{
    MaskDocuments *d = NEW(a, MaskDocuments);
    uint64_t state = 1 + (uint64_t)index;
    Vec(int64_t) begin = {0};
    const int64_t least = t->len_min > 0 ? t->len_min : 1;
    const uint64_t spread = (uint64_t)(t->len_max > least ? t->len_max - least : 0) + 1;
    for (int64_t at = 0; at < sequence; at += least + (int64_t)(random_bits(&state) % spread))
        *(int64_t *)vec_push(a, &begin) = at;
    int32_t *hint = NEW_ARRAY(a, int32_t, sequence / HINT + 1);
    for (int64_t i = 0, document = 0; i <= sequence / HINT; i++) {
        while (document + 1 < begin.n && begin.at[document + 1] <= i * HINT)
            document++;
        hint[i] = (int32_t)document;
    }
    *d = (MaskDocuments){.count = begin.n, .begin = begin.at, .hint = hint};
    return d;
}

int32_t mask_documents_at(const MaskDocuments *d, int64_t position)
{
    int32_t i = d->hint[position / HINT];
    while (i + 1 < d->count && d->begin[i + 1] <= position)
        i++;
    return i;
}

int64_t mask_documents_begin_near(const MaskDocuments *d, int64_t lo, int64_t last)
{
    const int32_t middle = mask_documents_at(d, lo + (last - lo) / 2);
    return d->begin[middle] > lo ? d->begin[middle] : d->begin[middle + 1];
}
