/* mask/walk.c: interval evaluation that also describes what it leaves open by a key.
 *
 * The key is the residual mask in postfix order, relative to the corner of the box: decided comparisons and
 * branches are removed, affine parts are rebased to the corner, constants under / and mod are reduced. So
 * all boxes on the diagonal of a causal mask have one key, as have all boxes at the same offset in a
 * periodic mask, and each kind is counted once. */
#include "mask/internal.h"

#include <string.h>

/* a*q + b*k + c + atoms: f is its interval form (c included); the key from begin on describes the atoms. */
typedef struct Value {
    BurstForm f;
    int64_t c;
    int begin;
    bool atoms;
    bool same;    /* the atoms have the same interval on every tile of the range */
    int depends;  /* of the atoms */
} Value;

static void put(MaskWalk *w, int64_t word)
{
    *(int64_t *)vec_push(w->arena, &w->key) = word;
}

static int64_t rebased(const MaskWalk *w, const Value *x)
{
    return burst_plus(x->c, burst_plus(burst_times(x->f.a, w->q.lo), burst_times(x->f.b, w->k.lo)));
}

static int depends_of(const Value *x)
{
    return x->depends | (x->f.a ? DEPENDS_Q : 0) | (x->f.b ? DEPENDS_K : 0);
}

static bool same_everywhere(const Value *x)
{
    return !x->f.a && !x->f.b && x->same;
}

static Value plain(MaskWalk *w, BurstForm f)
{
    return (Value){.f = f, .c = f.lo, .begin = w->key.n, .same = true};
}

/* A decided value. Removes its operands from the key. */
static Value decided(MaskWalk *w, int begin, int64_t value)
{
    w->key.n = begin;
    return plain(w, burst_affine(0, 0, value));
}

static Value atom(BurstForm f, int64_t c, int begin, bool same, int depends)
{
    return (
        Value){.f = f, .c = c, .begin = begin, .atoms = true, .same = same, .depends = same ? 0 : depends};
}

static void put_tag(MaskWalk *w, int op, bool x_atoms, bool y_atoms)
{
    put(w, op | x_atoms << 8 | y_atoms << 9);
}

static void put_affine(MaskWalk *w, const Value *x, int64_t c)
{
    put(w, x->f.a);
    put(w, x->f.b);
    put(w, c);
}

static void add_unit(MaskUnits *u, int64_t period, int64_t coefficient)
{
    const int64_t unit = coefficient ? period / mask_divisor(period, coefficient) : 1;
    for (int i = 0; i < u->n; i++)
        if (u->of[i] == unit)
            return;
    if (unit > 1 && u->n < WALK_UNITS)
        u->of[u->n++] = unit;
}

static Value walk_value(MaskWalk *w, const MaskNode *n);

static Value walk_table(MaskWalk *w, const MaskNode *n)
{
    const bool of_q = n->op == MN_TABLE_Q;
    const BurstSide *side = of_q ? &w->q : &w->k;
    const BurstForm f = mask_node_table(n, side);
    const int begin = w->key.n;
    if (f.lo == f.hi)
        return decided(w, begin, f.lo);
    if (!n->documents) {
        put(w, n->op);
        put(w, n->value);
        return atom(f, 0, begin, true, 0);
    }
    w->absolute = true;
    (of_q ? &w->units_q : &w->units_k)->end = mask_documents_begin_near(n->documents, side->lo, side->hi);
    return atom(f, 0, begin, false, of_q ? DEPENDS_Q : DEPENDS_K);
}

static Value negated(MaskWalk *w, Value x, int64_t by)
{
    if (x.atoms) {
        put(w, MN_SCALE);
        put(w, by);
    }
    x.f = burst_form_scale(x.f, by);
    x.c = burst_times(x.c, by);
    return x;
}

static Value walk_sum(MaskWalk *w, const MaskNode *n)
{
    const Value x = walk_value(w, n->x), y = walk_value(w, n->y);
    const bool minus = n->op == MN_SUB;
    if (y.atoms && (x.atoms || minus))
        put_tag(w, n->op, x.atoms, true);
    return (Value){.f = minus ? burst_form_sub(x.f, y.f) : burst_form_add(x.f, y.f),
                   .c = minus ? burst_minus(x.c, y.c) : burst_plus(x.c, y.c),
                   .begin = x.begin, .atoms = x.atoms || y.atoms, .same = x.same && y.same,
                   .depends = x.depends | y.depends};
}

/* Keeps one of two operands that are adjacent in the key. */
static Value keep_first(MaskWalk *w, Value x, Value y)
{
    w->key.n = y.begin;
    return x;
}

static Value keep_second(MaskWalk *w, Value x, Value y)
{
    const int words = w->key.n - y.begin;
    if (words && x.begin != y.begin)
        memmove(w->key.at + x.begin, w->key.at + y.begin, sizeof(int64_t) * (size_t)words);
    w->key.n = x.begin + words;
    y.begin = x.begin;
    return y;
}

static void put_pair(MaskWalk *w, int op, const Value *x, const Value *y, int64_t x_c, int64_t y_c)
{
    put_tag(w, op, x->atoms, y->atoms);
    put_affine(w, x, x_c);
    put_affine(w, y, y_c);
}

static Value walk_product(MaskWalk *w, const MaskNode *n)
{
    const Value x = walk_value(w, n->x), y = walk_value(w, n->y);
    const BurstForm u = burst_range(x.f, &w->q, &w->k), v = burst_range(y.f, &w->q, &w->k);
    if (v.lo == v.hi)
        return negated(w, keep_first(w, x, y), v.lo);
    if (u.lo == u.hi)
        return negated(w, keep_second(w, x, y), u.lo);
    put_pair(w, MN_MUL, &x, &y, rebased(w, &x), rebased(w, &y));
    return atom(burst_form_mul(x.f, y.f, &w->q, &w->k), 0, x.begin,
                same_everywhere(&x) && same_everywhere(&y), depends_of(&x) | depends_of(&y));
}

static void note_period(MaskWalk *w, const Value *x, int64_t period)
{
    if (x->f.a)
        add_unit(&w->units_q, period, x->f.a);
    if (x->f.b)
        add_unit(&w->units_k, period, x->f.b);
}

static Value walk_quotient(MaskWalk *w, const MaskNode *n)
{
    const Value x = walk_value(w, n->x);
    const int64_t d = n->value, c = rebased(w, &x);
    if (d == 1)
        return x;
    const BurstForm f = burst_form_div(x.f, d, &w->q, &w->k);
    if (f.lo == f.hi)
        return decided(w, x.begin, f.lo);
    put_tag(w, MN_DIV, x.atoms, false);
    put(w, d);
    put_affine(w, &x, burst_floor_mod(c, d));
    note_period(w, &x, d);
    return atom(f, burst_floor_div(c, d), x.begin, same_everywhere(&x), depends_of(&x));
}

static Value walk_remainder(MaskWalk *w, const MaskNode *n)
{
    Value x = walk_value(w, n->x);
    const int64_t d = n->value;
    const BurstForm u = burst_range(x.f, &w->q, &w->k), f = burst_form_mod(x.f, d, &w->q, &w->k);
    if (burst_floor_div(u.lo, d) == burst_floor_div(u.hi, d)) {
        x.c -= burst_floor_div(u.lo, d) * d;
        x.f = f;
        return x;
    }
    const int64_t width = burst_plus(burst_times(burst_abs(x.f.a), w->width_q),
                                     burst_times(burst_abs(x.f.b), w->width_k));
    if (width >= d || same_everywhere(&x)) { /* every tile spans more than one period: any value in [0, d) */
        w->key.n = x.begin;
        put(w, MN_MOD);
        put(w, d);
        return atom(f, 0, x.begin, true, 0);
    }
    put_tag(w, MN_MOD, x.atoms, true);
    put(w, d);
    put_affine(w, &x, burst_floor_mod(rebased(w, &x), d));
    note_period(w, &x, d);
    return atom(f, 0, x.begin, false, depends_of(&x));
}

static Value walk_least(MaskWalk *w, const MaskNode *n)
{
    const Value x = walk_value(w, n->x), y = walk_value(w, n->y);
    const BurstForm d = burst_range(burst_form_sub(x.f, y.f), &w->q, &w->k);
    if (d.hi <= 0)
        return keep_first(w, x, y);
    if (d.lo >= 0)
        return keep_second(w, x, y);
    const int64_t c = rebased(w, &y);
    put_pair(w, MN_MIN, &x, &y, burst_minus(rebased(w, &x), c), 0);
    return atom(burst_form_min(x.f, y.f, &w->q, &w->k), c, x.begin,
                same_everywhere(&x) && same_everywhere(&y), depends_of(&x) | depends_of(&y));
}

static Value walk_absolute(MaskWalk *w, const MaskNode *n)
{
    const Value x = walk_value(w, n->x);
    const BurstForm u = burst_range(x.f, &w->q, &w->k);
    if (u.lo >= 0)
        return x;
    if (u.hi <= 0)
        return negated(w, x, -1);
    put_tag(w, MN_ABS, x.atoms, false);
    put_affine(w, &x, rebased(w, &x));
    return atom(burst_form_abs(x.f, &w->q, &w->k), 0, x.begin, same_everywhere(&x), depends_of(&x));
}

/* Only bounds are known of the result, so the key holds both operands at the corner. */
static Value walk_function(MaskWalk *w, const MaskNode *n)
{
    const Value x = walk_value(w, n->x), y = walk_value(w, n->y);
    const BurstForm f = n->function->form(x.f, y.f, &w->q, &w->k);
    if (f.lo == f.hi && !f.a && !f.b)
        return decided(w, x.begin, f.lo);
    put_pair(w, MN_FUNCTION, &x, &y, rebased(w, &x), rebased(w, &y));
    put(w, n->value);
    return atom(f, 0, x.begin, same_everywhere(&x) && same_everywhere(&y), depends_of(&x) | depends_of(&y));
}

static Value walk_hash(MaskWalk *w, const MaskNode *n)
{
    const Value x = walk_value(w, n->x), y = walk_value(w, n->y);
    const BurstForm f = burst_form_hash(x.f, y.f, n->value, &w->q, &w->k);
    if (f.lo == f.hi)
        return decided(w, x.begin, f.lo);
    w->absolute = true;
    return atom(f, 0, x.begin, same_everywhere(&x) && same_everywhere(&y), depends_of(&x) | depends_of(&y));
}

static Value walk_value(MaskWalk *w, const MaskNode *n)
{
    switch (n->op) {
    case MN_AFFINE: return plain(w, n->affine);
    case MN_TABLE_Q: case MN_TABLE_K: return walk_table(w, n);
    case MN_ADD: case MN_SUB: return walk_sum(w, n);
    case MN_SCALE: return negated(w, walk_value(w, n->x), n->value);
    case MN_MUL: return walk_product(w, n);
    case MN_DIV: return walk_quotient(w, n);
    case MN_MOD: return walk_remainder(w, n);
    case MN_MIN: return walk_least(w, n);
    case MN_ABS: return walk_absolute(w, n);
    case MN_FUNCTION: return walk_function(w, n);
    default: return walk_hash(w, n);
    }
}

/* ---- booleans ---- */
static MaskOpen open_decided(MaskWalk *w, int begin, int cover)
{
    w->key.n = begin;
    return (MaskOpen){.cover = cover, .same = true};
}

/* Divides affine comparisons by the common factor: 2q < 2k + 1 becomes q < k + 1. */
static void put_negative(MaskWalk *w, const Value *x)
{
    const int64_t g = mask_divisor(x->f.a, x->f.b), c = rebased(w, x);
    put(w, MN_NEGATIVE);
    put(w, x->f.a / g);
    put(w, x->f.b / g);
    put(w, burst_floor_div(c, g));
    if (x->f.a && x->f.b) {
        add_unit(&w->units_q, burst_abs(x->f.b), x->f.a);
        add_unit(&w->units_k, burst_abs(x->f.a), x->f.b);
    }
}

/* Whether the comparison is open on every tile: the atoms' interval then includes zero for all q and k. */
static bool open_on_every_tile(const MaskWalk *w, const MaskNode *n, const Value *x)
{
    const BurstForm u = burst_range(x->f, &w->q, &w->k);
    const int64_t most_low = burst_plus(burst_minus(u.hi, x->f.hi), x->f.lo),
                  least_high = burst_plus(burst_minus(u.lo, x->f.lo), x->f.hi);
    return x->same && x->f.lo < x->f.hi && least_high >= 0 &&
           (n->op == MN_ZERO ? most_low <= 0 : most_low < 0);
}

static MaskOpen walk_comparison(MaskWalk *w, const MaskNode *n)
{
    const Value x = walk_value(w, n->x);
    const int cover = n->op == MN_ZERO ? burst_zero(x.f, &w->q, &w->k) : burst_negative(x.f, &w->q, &w->k);
    if (cover != BURST_PARTIAL || open_on_every_tile(w, n, &x))
        return open_decided(w, x.begin, cover);
    if (!x.atoms && n->op == MN_NEGATIVE) {
        put_negative(w, &x);
    } else {
        put_tag(w, n->op, x.atoms, true);
        put_affine(w, &x, rebased(w, &x));
    }
    return (MaskOpen){.cover = cover, .depends = depends_of(&x)};
}

static MaskOpen walk_pattern(MaskWalk *w, const MaskNode *n)
{
    const Value x = walk_value(w, n->x), y = walk_value(w, n->y);
    const int cover = mask_pattern_cover(n->pattern, x.f, y.f, &w->q, &w->k);
    if (cover != BURST_PARTIAL || (same_everywhere(&x) && same_everywhere(&y)))
        return open_decided(w, x.begin, cover);
    w->absolute = true;
    return (MaskOpen){.cover = cover, .depends = depends_of(&x) | depends_of(&y)};
}

static MaskOpen walk_both(MaskWalk *w, const MaskNode *n)
{
    const int begin = w->key.n, ends = n->op == MN_AND ? BURST_EMPTY : BURST_FULL;
    const MaskOpen x = mask_walk(w, n->x);
    if (x.cover == ends)
        return x;
    const MaskOpen y = mask_walk(w, n->y);
    if (y.cover == ends)
        return open_decided(w, begin, ends);
    if (x.cover != BURST_PARTIAL)
        return y;
    if (y.cover != BURST_PARTIAL || (x.same && y.same))
        return x;
    put_tag(w, n->op, !x.same, !y.same);
    return (MaskOpen){.cover = BURST_PARTIAL, .depends = x.depends | y.depends};
}

static MaskOpen walk_not(MaskWalk *w, const MaskNode *n)
{
    MaskOpen x = mask_walk(w, n->x);
    x.cover = burst_not(x.cover);
    if (!x.same)
        put(w, MN_NOT);
    return x;
}

MaskOpen mask_walk(MaskWalk *w, const MaskNode *n)
{
    switch (n->op) {
    case MN_CONSTANT: return open_decided(w, w->key.n, (int)n->value);
    case MN_PATTERN: return walk_pattern(w, n);
    case MN_AND: case MN_OR: return walk_both(w, n);
    case MN_NOT: return walk_not(w, n);
    default: return walk_comparison(w, n);
    }
}

MaskOpen mask_walk_box(MaskWalk *w, const MaskNode *n, const MaskRange *q, const MaskRange *k)
{
    w->q = (BurstSide){.lo = q->lo, .hi = q->hi};
    w->k = (BurstSide){.lo = k->lo, .hi = k->hi};
    w->width_q = mask_range_width(q);
    w->width_k = mask_range_width(k);
    w->absolute = false;
    w->units_q.n = w->units_k.n = 0;
    w->units_q.end = w->units_k.end = 0;
    return mask_walk(w, n);
}
