/* test_interval.c: verdicts on rectangles and emitted C, against brute force over every point. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dlfcn.h>
#include <stdlib.h>

#include "cover.h"
#include "burst_mask.h"
#include "compile_text.h"
#include "random_expr.h"

enum { SEQUENCE = 96, TABLES = 2, MASKS = 300, RECTANGLES = 100000, WIDEST = 12 };
typedef struct World { Rx r; const int32_t *table[BURST_MAX_TABLES]; } World;

static World world_new(uint64_t seed)
{
    World w = {
        .r = {.arena = arena_new(), .state = seed, .sequence = SEQUENCE, .tables = TABLES, .hash = true}};
    w.r.pattern = rx_pattern_random(&w.r, 7, 9);
    for (int t = 0; t < TABLES; t++) {
        int32_t *values = NEW_ARRAY(w.r.arena, int32_t, SEQUENCE);
        for (int i = 0, v = -3; i < SEQUENCE; i++) {
            const bool same = (t == 0 && !rx_one_in(&w.r, 9)) || i == 0;
            if (!same)
                v = t ? (int)rx_between(&w.r, -5, 5) : v + 1;
            values[i] = v;
        }
        w.table[t] = values;
    }
    return w;
}

static BurstSide random_side(Rx *r)
{
    const int64_t lo = rx_between(r, 0, SEQUENCE - 1), last = lo + rx_between(r, 0, WIDEST - 1);
    return (BurstSide){.lo = lo, .hi = last < SEQUENCE ? last : SEQUENCE - 1};
}

/* BURST_EMPTY or BURST_FULL as every point says; BURST_PARTIAL where they differ. */
static int brute_cover(const Expr *e, const BurstSide *q, const BurstSide *k, const int32_t *const *table)
{
    bool seen[2] = {false, false};
    for (int64_t i = q->lo; i <= q->hi; i++)
        for (int64_t j = k->lo; j <= k->hi; j++)
            seen[expr_eval(e, i, j, NULL, table)] = true;
    if (!seen[1])
        return BURST_EMPTY;
    return seen[0] ? BURST_PARTIAL : BURST_FULL;
}

static void assert_sound(int verdict, int truth)
{
    assert_true(verdict == BURST_PARTIAL || verdict == truth);
}

static void verdicts_are_sound(void **state)
{
    (void)state;
    World w = world_new(1);
    int64_t decided = 0, decidable = 0;
    for (int i = 0; i < RECTANGLES; i++) {
        const Expr *e = rx_bool(&w.r, 3);
        const BurstSide q = random_side(&w.r), k = random_side(&w.r);
        const int verdict = (int)mask_cover(e, q.lo, q.hi, k.lo, k.hi),
                  truth = brute_cover(e, &q, &k, w.table);
        assert_sound(verdict, truth);
        decided += verdict != BURST_PARTIAL;
        decidable += truth != BURST_PARTIAL;
    }
    /* Sound would be easy by never deciding: most of what is uniform must be seen to be so. */
    assert_true(decided * 10 > decidable * 7);
    arena_free(w.r.arena);
}

/* One comparison of two affine values is decided whenever it is uniform. */
static void affine_comparisons_are_exact(void **state)
{
    (void)state;
    World w = world_new(2);
    Arena *a = w.r.arena;
    static const ExprOp order[] = {E_LT, E_LE, E_GT, E_GE};
    for (int i = 0; i < RECTANGLES / 4; i++) {
        const Expr *q = rx_make(a, E_Q, NULL, NULL), *k = rx_make(a, E_K, NULL, NULL);
        const Expr *u = rx_make(a, E_MUL, q, rx_number(a, E_CONST, rx_between(&w.r, -4, 4)));
        const Expr *v = rx_make(a, E_MUL, rx_number(a, E_CONST, rx_between(&w.r, -4, 4)), k);
        const Expr *x = rx_make(a, rx_one_in(&w.r, 2) ? E_ADD : E_SUB, u, rx_one_in(&w.r, 2) ? q : k);
        const Expr *y = rx_make(a, E_ADD, v, rx_number(a, E_CONST, rx_between(&w.r, -200, 200)));
        const Expr *e = rx_make(a, order[rx_between(&w.r, 0, 3)], x, y);
        const BurstSide qs = random_side(&w.r), ks = random_side(&w.r);
        assert_int_equal(mask_cover(e, qs.lo, qs.hi, ks.lo, ks.hi), brute_cover(e, &qs, &ks, w.table));
    }
    arena_free(a);
}

/* ---- emitted C ---- */
static void uses(const Expr *e, ExprOp op, bool *found)
{
    if (!e)
        return;
    *found |= e->op == op;
    uses(e->a, op, found);
    uses(e->b, op, found);
}

static void fill_tables(const World *w, BurstSide *s)
{
    for (int t = 0; t < TABLES; t++) {
        s->table_lo[t] = INT32_MAX, s->table_hi[t] = INT32_MIN;
        for (int64_t i = s->lo; i <= s->hi; i++) {
            s->table_lo[t] = w->table[t][i] < s->table_lo[t] ? w->table[t][i] : s->table_lo[t];
            s->table_hi[t] = w->table[t][i] > s->table_hi[t] ? w->table[t][i] : s->table_hi[t];
        }
    }
}

static void check_tiles(World *w, const Expr *e, const BurstMask *m)
{
    bool tables = false;
    uses(e, E_TABLE_Q, &tables);
    uses(e, E_TABLE_K, &tables);
    for (int i = 0; i < 60; i++) {
        BurstSide q = random_side(&w->r), k = random_side(&w->r);
        fill_tables(w, &q);
        fill_tables(w, &k);
        const int verdict = m->tile(&q, &k);
        assert_sound(verdict, brute_cover(e, &q, &k, w->table));
        if (!tables)
            assert_int_equal(verdict, mask_cover(e, q.lo, q.hi, k.lo, k.hi));
    }
}

static void check_rows(World *w, const Expr *e, const BurstMask *m)
{
    BurstTables t = {0};
    int64_t key[BURST_TILE];
    uint8_t keep[BURST_TILE];
    for (int i = 0; i < TABLES; i++)
        t.table[i] = w->table[i];
    for (int64_t q = 0; q < SEQUENCE; q += 5) {
        const int n = (int)rx_between(&w->r, 1, BURST_TILE);
        for (int j = 0; j < n; j++)
            key[j] = rx_between(&w->r, 0, SEQUENCE - 1);
        m->row(q, key, n, &t, keep);
        for (int j = 0; j < n; j++)
            assert_int_equal(keep[j], expr_eval(e, q, key[j], NULL, w->table));
    }
}

static void emitted_c_agrees(void **state)
{
    (void)state;
    World w = world_new(3);
    static const Table tables[TABLES] = {{.name = "doc"}, {.name = "kind"}};
    Mask *masks = NEW_ARRAY(w.r.arena, Mask, MASKS);
    for (int i = 0; i < MASKS; i++)
        masks[i] = (Mask){.text = i % 7 ? "random" : "odd \"text\" \\ */ /*",
                          .expr = i < RX_STOCKS ? rx_stock(w.r.arena, (RxStock)i, 8) : rx_bool(&w.r, 4)};
    const Program p = {
        .masks = masks, .mask_count = MASKS, .tables = tables, .table_count = TABLES, .sequence = SEQUENCE};
    Text c = {0};
    text_add(&c, "#include \"burst_mask.h\"\n");
    for (int i = 0; i < MASKS; i++)
        mask_emit_c(&p, i, &c);
    text_add(&c, "extern const BurstMask *const all[];\nconst BurstMask *const all[] = {\n");
    for (int i = 0; i < MASKS; i++)
        text_printf(&c, "&plan_mask%d,\n", i);
    text_add(&c, "};\n");
    void *so = compile_text(c.at, "emitted_masks", "-O1 -Wall -Wextra -Werror");
    const BurstMask *const *all = dlsym(so, "all");
    assert_non_null(all);
    for (int i = 0; i < MASKS; i++) {
        assert_string_equal(all[i]->text, masks[i].text);
        check_tiles(&w, masks[i].expr, all[i]);
        check_rows(&w, masks[i].expr, all[i]);
    }
    dlclose(so);
    text_free(&c);
    arena_free(w.r.arena);
}

/* The printer for other tests' oracles: the same predicate by other code. */
static void printed_c_agrees(void **state)
{
    (void)state;
    World w = world_new(4);
    w.r.pattern = NULL;
    enum { N = 60 };
    const Expr *e[N];
    Text c = {0};
    text_add(&c, rx_c_prelude);
    for (int i = 0; i < N; i++) {
        e[i] = rx_bool(&w.r, 3);
        text_printf(&c,
                    "int m%d(int64_t q, int64_t k, const int32_t *const *table);\n"
                    "int m%d(int64_t q, int64_t k, const int32_t *const *table) { (void)q; (void)k; "
                    "(void)table; return ",
                    i, i);
        rx_print_c(e[i], &c);
        text_add(&c, "; }\n");
    }
    void *so = compile_text(c.at, "printed_masks", "-O0");
    for (int i = 0; i < N; i++) {
        char name[16];
        snprintf(name, sizeof name, "m%d", i);
        int (*f)(int64_t, int64_t, const int32_t *const *);
        *(void **)&f = dlsym(so, name);
        for (int64_t q = 0; q < SEQUENCE; q += 3)
            for (int64_t k = 0; k < SEQUENCE; k++)
                assert_int_equal(f(q, k, w.table), expr_eval(e[i], q, k, NULL, w.table));
    }
    dlclose(so);
    text_free(&c);
    arena_free(w.r.arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(verdicts_are_sound),
        cmocka_unit_test(affine_comparisons_are_exact),
        cmocka_unit_test(emitted_c_agrees),
        cmocka_unit_test(printed_c_agrees),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
