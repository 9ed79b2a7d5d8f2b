/* random_expr.h: masks for tests: a small builder, the stock masks, random masks, and two printers (the
 * language of .burst, and an independent C predicate). Include it after the compiler's headers. Everything
 * lives in the caller's arena; the same seed gives the same masks on every machine.
 */
#ifndef RANDOM_EXPR_H
#define RANDOM_EXPR_H

#include "tools/tools.h"
#include "ir/expr.h"

#include <inttypes.h>
#include <string.h>

#define RX static __attribute__((unused))

/* ---- random numbers: SplitMix64 ---- */
typedef struct Rx {
    Arena *arena;
    uint64_t state;
    int64_t sequence;
    int tables;
    const Pattern *pattern;
    bool hash;
} Rx;

RX uint64_t rx_bits(Rx *r)
{
    uint64_t z = r->state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

RX int64_t rx_between(Rx *r, int64_t lo, int64_t last) /* uniform on lo .. last */
{
    return lo + (int64_t)(rx_bits(r) % (uint64_t)(last - lo + 1));
}

RX bool rx_one_in(Rx *r, int n)
{
    return rx_between(r, 1, n) == 1;
}

/* ---- builder ---- */
RX const Expr *rx_make(Arena *a, ExprOp op, const Expr *x, const Expr *y)
{
    Expr *e = NEW(a, Expr);
    *e = (Expr){.op = op, .a = x, .b = y};
    return e;
}

RX const Expr *rx_number(Arena *a, ExprOp op, int64_t value) /* E_CONST, E_TABLE_Q, E_TABLE_K */
{
    Expr *e = NEW(a, Expr);
    *e = (Expr){.op = op, .value = value};
    return e;
}

RX const Expr *rx_pattern(Arena *a, const Pattern *p, const Expr *row, const Expr *col)
{
    Expr *e = NEW(a, Expr);
    *e = (Expr){.op = E_PATTERN, .a = row, .b = col, .pattern = p};
    return e;
}

RX const Pattern *rx_pattern_random(Rx *r, int64_t rows, int64_t cols)
{
    Pattern *p = NEW(r->arena, Pattern);
    uint8_t *bits = NEW_ARRAY(r->arena, uint8_t, rows * cols);
    for (int64_t i = 0; i < rows * cols; i++)
        bits[i] = (uint8_t)(rx_bits(r) & 1);
    *p = (Pattern){.path = "pattern.txt", .rows = rows, .cols = cols, .bits = bits};
    return p;
}

/* ---- stock masks as masks.burst defines them (and strided_fixed), with one scale w for their first
 * parameters ---- */
#define NUM(n) rx_number(a, E_CONST, (n))
#define Q_ rx_make(a, E_Q, NULL, NULL)
#define K_ rx_make(a, E_K, NULL, NULL)
#define OP(op, x, y) rx_make(a, E_##op, (x), (y))
#define CAUSAL OP(LE, K_, Q_)
#define BACK OP(SUB, Q_, K_)
#define IS_ZERO(x) OP(EQ, (x), NUM(0))

/* Both in one block of b, counted from `from`. */
RX const Expr *rx_same_block(Arena *a, int64_t b, int64_t from)
{
    const Expr *q = from ? OP(SUB, Q_, NUM(from)) : Q_, *k = from ? OP(SUB, K_, NUM(from)) : K_;
    return OP(EQ, OP(DIV, q, NUM(b)), OP(DIV, k, NUM(b)));
}

RX const Expr *rx_every(Arena *a, int64_t d)
{
    return IS_ZERO(OP(MOD, BACK, NUM(d)));
}

RX const Expr *rx_longnet(Arena *a, int64_t w, int64_t d)
{
    const Expr *middle = OP(AND, rx_same_block(a, w * d, 0), rx_every(a, d));
    const Expr *far = OP(AND, rx_same_block(a, w * d * d, 0), rx_every(a, d * d));
    return OP(AND, CAUSAL, OP(OR, OP(OR, rx_same_block(a, w, 0), middle), far));
}

RX const Expr *rx_bigbird(Arena *a, int64_t b, int64_t g, int64_t w, int64_t n)
{
    const Expr *qb = OP(DIV, Q_, NUM(b)), *kb = OP(DIV, K_, NUM(b));
    const Expr *near = OP(LT, OP(SUB, qb, kb), NUM(w));
    const Expr *random = IS_ZERO(OP(MOD, OP(HASH, qb, kb), NUM(n)));
    return OP(AND, CAUSAL, OP(OR, OP(OR, OP(LT, kb, NUM(g)), near), random));
}

#define RX_STOCK(X) /* id, text, expression */ \
    X(full, "full", OP(TRUE, NULL, NULL)) \
    X(causal, "causal", CAUSAL) \
    X(window, "window(w)", OP(AND, CAUSAL, OP(LT, BACK, NUM(w)))) \
    X(window_sink, "window_sink(w, 4)", OP(AND, CAUSAL, OP(OR, OP(LT, BACK, NUM(w)), OP(LT, K_, NUM(4))))) \
    X(dilated, "dilated(w, 4)", OP(AND, OP(AND, CAUSAL, OP(LT, BACK, NUM(w * 4))), rx_every(a, 4))) \
    X(strided, "strided(w, w)", OP(AND, CAUSAL, OP(OR, OP(LT, BACK, NUM(w)), rx_every(a, w)))) \
    X(strided_fixed, "strided_fixed(w)", OP(AND, CAUSAL, OP(OR, rx_same_block(a, w, 0), \
                                                  OP(GE, OP(MOD, K_, NUM(w)), NUM(w - w / 8))))) \
    X(block_local, "block_local(w)", rx_same_block(a, w, 0)) \
    X(block_causal, "block_causal(w)", OP(LE, OP(DIV, K_, NUM(w)), OP(DIV, Q_, NUM(w)))) \
    X(prefix_lm, "prefix_lm(w)", OP(OR, CAUSAL, OP(LT, K_, NUM(w)))) \
    X(document, "document", OP(AND, CAUSAL, OP(EQ, rx_number(a, E_TABLE_Q, 0), rx_number(a, E_TABLE_K, 0)))) \
    X(shared_question, "shared_question(w, 3w)", \
      OP(AND, CAUSAL, OP(OR, OP(LT, K_, NUM(w)), rx_same_block(a, 3 * w, w)))) \
    X(longnet, "longnet(w, 4)", rx_longnet(a, w, 4)) \
    X(bigbird, "bigbird(w, 2, 3, 16)", rx_bigbird(a, w, 2, 3, 16))

typedef enum RxStock {
#define X(id, text, expr) RX_##id,
    RX_STOCK(X)
#undef X
    RX_STOCKS
} RxStock;

RX const char *rx_stock_name(RxStock s)
{
    static const char *const name[] = {
#define X(id, text, expr) text,
        RX_STOCK(X)
#undef X
    };
    return name[s];
}

RX bool rx_stock_has_table(RxStock s)
{
    return s == RX_document;
}

RX const Expr *rx_stock(Arena *a, RxStock s, int64_t w)
{
    switch (s) {
#define X(id, text, expr) case RX_##id: return expr;
        RX_STOCK(X)
#undef X
    default: return NULL;
    }
}
#undef NUM
#undef Q_
#undef K_
#undef OP
#undef CAUSAL
#undef BACK
#undef IS_ZERO

/* ---- random masks: every sub-value stays far inside +-2^62 ---- */
RX const Expr *rx_constant(Rx *r, int64_t *bound)
{
    const int64_t scale[] = {4, 16, r->sequence};
    const int64_t v = rx_between(r, rx_one_in(r, 4) ? -8 : 0, scale[rx_between(r, 0, 2)]);
    *bound = v < 0 ? -v : v;
    return rx_number(r->arena, E_CONST, v);
}

RX const Expr *rx_leaf(Rx *r, int64_t *bound)
{
    const int64_t pick = rx_between(r, 0, 9);
    *bound = r->sequence;
    if (pick == 9 && r->tables) {
        const ExprOp side = rx_one_in(r, 2) ? E_TABLE_Q : E_TABLE_K;
        *bound = INT32_MAX;
        return rx_number(r->arena, side, rx_between(r, 0, r->tables - 1));
    }
    if (pick >= 8)
        return rx_constant(r, bound);
    return rx_make(r->arena, pick < 4 ? E_Q : E_K, NULL, NULL);
}

/* Of constants their value, as the front end folds them; but for hashes. y: may be NULL. */
RX const Expr *rx_folded(Rx *r, ExprOp op, const Expr *x, const Expr *y)
{
    const Expr *e = rx_make(r->arena, op, x, y);
    const bool constant = x->op == E_CONST && (!y || y->op == E_CONST) && op != E_HASH;
    return constant ? rx_number(r->arena, E_CONST, expr_eval(e, 0, 0, NULL, NULL)) : e;
}

RX const Expr *rx_value(Rx *r, int depth, int64_t *bound);

RX const Expr *rx_divided(Rx *r, ExprOp op, int depth, int64_t *bound)
{
    const Expr *x = rx_value(r, depth - 1, bound);
    const int64_t d = rx_between(r, 1, rx_one_in(r, 3) ? r->sequence : 12);
    *bound = op == E_MOD ? d : *bound / d + 1;
    return rx_folded(r, op, x, rx_number(r->arena, E_CONST, d));
}

RX const Expr *rx_value(Rx *r, int depth, int64_t *bound)
{
#define X(id, name) E_##id,
    static const ExprOp ops[] = {E_ADD, E_SUB, E_SUB, E_SUB, E_MUL, E_ABS, E_DIV,
                                 E_DIV, E_MOD, E_MOD, EXPR_FUNCTIONS(X) E_HASH};
#undef X
    if (depth <= 0 || rx_one_in(r, 3))
        return rx_leaf(r, bound);
    const ExprOp op = ops[rx_between(r, 0, countof(ops) - 1 - !r->hash)];
    if (op == E_DIV || op == E_MOD)
        return rx_divided(r, op, depth, bound);
    int64_t x_bound, y_bound = 0;
    const Expr *x = rx_value(r, depth - 1, &x_bound);
    if (op == E_ABS) {
        *bound = x_bound;
        return rx_folded(r, op, x, NULL);
    }
    const Expr *y = op == E_MUL && !rx_one_in(r, 4) ? rx_constant(r, &y_bound)
                                                    : rx_value(r, depth - 1, &y_bound);
    if (op == E_MUL && x_bound > (INT64_C(1) << 45) / (y_bound + 1))
        return x;
    *bound = op == E_MUL ? x_bound * y_bound : x_bound + y_bound;
    if (op == E_HASH)
        *bound = INT32_MAX;
    return rx_folded(r, op, x, y);
}

RX const Expr *rx_comparison(Rx *r, int depth)
{
    const ExprOp op = (ExprOp)rx_between(r, E_LT, E_NE);
    int64_t unused;
    const Expr *x = rx_value(r, depth, &unused);
    const Expr *y = rx_one_in(r, 2) ? rx_constant(r, &unused) : rx_value(r, depth, &unused);
    return rx_make(r->arena, op, x, y);
}

RX const Expr *rx_bool(Rx *r, int depth)
{
    const int64_t pick = rx_between(r, 0, 19);
    int64_t unused;
    if (pick == 0)
        return rx_make(r->arena, rx_one_in(r, 2) ? E_TRUE : E_FALSE, NULL, NULL);
    if (pick == 1 && r->pattern) {
        const Expr *row = rx_value(r, 1, &unused), *col = rx_value(r, 1, &unused);
        return rx_pattern(r->arena, r->pattern, row, col);
    }
    if (depth <= 0 || pick < 7)
        return rx_comparison(r, depth > 2 ? 2 : depth + 1);
    if (pick < 9)
        return rx_make(r->arena, E_NOT, rx_bool(r, depth - 1), NULL);
    const Expr *x = rx_bool(r, depth - 1), *y = rx_bool(r, depth - 1);
    return rx_make(r->arena, pick < 15 ? E_AND : E_OR, x, y);
}

/* ---- printers: everything in parentheses, no reading of precedence ---- */
/* C: expressions over q, k, `const int32_t *const *table`; put rx_c_prelude in front. Patterns:
 * extern-free arrays `pattern_cells` with RX_ROWS, RX_COLS (one pattern a program). */
static const char rx_c_prelude[] __attribute__((unused)) =
    "#include <stdint.h>\n"
    "static inline int64_t rx_div(int64_t a, int64_t b) { int64_t n = a / b; return n * b > a ? n - 1 : n; "
    "}\n"
    "static inline int64_t rx_mod(int64_t a, int64_t b) { return a - b * rx_div(a, b); }\n"
    "static inline int64_t rx_min(int64_t a, int64_t b) { return a < b ? a : b; }\n"
    "static inline int64_t rx_max(int64_t a, int64_t b) { return a > b ? a : b; }\n"
    "static inline int64_t rx_abs(int64_t a) { return a < 0 ? -a : a; }\n"
    "static inline uint32_t rx_mix(uint32_t h) {\n"
    "    h ^= h >> 16; h *= 2246822507u; h ^= h >> 13; h *= 3266489909u; h ^= h >> 16; return h; }\n"
    "static inline uint32_t rx_low(int64_t x) { return (uint32_t)(x & 0xffffffff) ^ (uint32_t)((uint64_t)x "
    ">> 32); }\n"
    "static inline int64_t rx_hash(int64_t a, int64_t b) {\n"
    "    return rx_mix(rx_mix(rx_low(a) + 2654435769u) ^ (rx_low(b) * 2654435761u)) / 2; }\n";

typedef struct RxWords {
    const char *call[E_FALSE + 1];
    const char *infix[E_FALSE + 1];
    const char *word[E_FALSE + 1];
    bool c;
} RxWords;

#define X(id, name) [E_##id] = #name,
static const RxWords rx_burst_words = {
    .call = {EXPR_FUNCTIONS(X) [E_ABS] = "abs", [E_HASH] = "hash"},
    .infix = {[E_ADD] = "+",
              [E_SUB] = "-",
              [E_MUL] = "*",
              [E_DIV] = "/",
              [E_MOD] = "mod",
              [E_LT] = "<",
              [E_LE] = "<=",
              [E_GT] = ">",
              [E_GE] = ">=",
              [E_EQ] = "==",
              [E_NE] = "!=",
              [E_AND] = "and",
              [E_OR] = "or"},
    .word = {[E_Q] = "q", [E_K] = "k", [E_TRUE] = "true", [E_FALSE] = "false", [E_NOT] = "not "},
};
#undef X
static const RxWords rx_c_words = {
    .call = {[E_MIN] = "rx_min",
             [E_MAX] = "rx_max",
             [E_ABS] = "rx_abs",
             [E_HASH] = "rx_hash",
             [E_DIV] = "rx_div",
             [E_MOD] = "rx_mod"},
    .infix = {[E_ADD] = "+",
              [E_SUB] = "-",
              [E_MUL] = "*",
              [E_BITAND] = "&",
              [E_BITOR] = "|",
              [E_BITXOR] = "^",
              [E_LT] = "<",
              [E_LE] = "<=",
              [E_GT] = ">",
              [E_GE] = ">=",
              [E_EQ] = "==",
              [E_NE] = "!=",
              [E_AND] = "&&",
              [E_OR] = "||"},
    .word = {[E_Q] = "q", [E_K] = "k", [E_TRUE] = "1", [E_FALSE] = "0", [E_NOT] = "!"},
    .c = true,
};

RX void rx_print(const Expr *e, const RxWords *w, Text *out);

RX void rx_print_special(const Expr *e, const RxWords *w, Text *out)
{
    if (e->op == E_CONST)
        text_printf(out, w->c ? "INT64_C(%" PRId64 ")" : "%" PRId64, e->value);
    else if (e->op == E_TABLE_Q || e->op == E_TABLE_K)
        text_printf(out, w->c ? "table[%d][%s]" : "t%d[%s]", (int)e->value, e->op == E_TABLE_Q ? "q" : "k");
    else if (e->op == E_PATTERN) {
        text_printf(out, w->c ? "rx_cell(" : "file \"%s\" at (", e->pattern->path);
        rx_print(e->a, w, out);
        text_add(out, ", ");
        rx_print(e->b, w, out);
        text_add(out, ")");
    } else {
        text_add(out, w->word[e->op]);
        if (e->a)
            rx_print(e->a, w, out);
    }
}

RX void rx_print(const Expr *e, const RxWords *w, Text *out)
{
    const char *call = w->call[e->op], *infix = w->infix[e->op];
    text_printf(out, "%s(", call ? call : "");
    if (!call && !infix) {
        rx_print_special(e, w, out);
    } else {
        rx_print(e->a, w, out);
        if (e->b) {
            text_printf(out, "%s%s%s", call ? "," : " ", call ? "" : infix, " ");
            rx_print(e->b, w, out);
        }
    }
    text_add(out, ")");
}

/* `mask name = ...;` without tables' or parameters' declarations: tables are t0, t1, ... */
RX void rx_print_burst(const Expr *e, Text *out)
{
    rx_print(e, &rx_burst_words, out);
}

RX void rx_print_c(const Expr *e, Text *out)
{
    rx_print(e, &rx_c_words, out);
}

/* A Program with this one mask and nothing else, for functions that take one. */
RX const Program *rx_program(Arena *a, const Expr *e, int64_t sequence, const Table *tables, int table_count)
{
    Program *p = NEW(a, Program);
    Mask *m = NEW(a, Mask);
    Text t = {0};
    rx_print_burst(e, &t);
    *m = (Mask){.text = arena_copy(a, t.at, t.n), .expr = e};
    text_free(&t);
    p->masks = m, p->mask_count = 1, p->sequence = sequence, p->tables = tables, p->table_count = table_count;
    return p;
}

#endif
