/* test_masks.c: masks emitted as CUDA against expr_eval, compiled by the host's C++ compiler with
 * __device__ as nothing: stock and random masks on a short sequence (32 bits) and on one so long that
 * products leave 32 bits.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "tools/tools.h"
#include "burst_mask.h"
#include "compile_text.h"
#include "random_expr.h"
#include "ir/expr.h"

enum { MASKS = 60, TABLES = 2, PAIRS = 400 };
typedef int Keep(int64_t q, int64_t k, const int32_t *tq, const int32_t *tk);
typedef int Tile(const BurstSide *q, const BurstSide *k);

static const Expr *mask_of(Rx *r, int i)
{
    return i < RX_STOCKS ? rx_stock(r->arena, (RxStock)i, 8) : rx_bool(r, 4);
}

static void check_mask(Rx *r, const Expr *e, Keep *keep, Tile *tile, const int32_t *const *table)
{
    for (int i = 0; i < PAIRS; i++) {
        const int64_t q = rx_between(r, 0, r->sequence - 1), last = rx_one_in(r, 2) ? q : r->sequence - 1;
        const int64_t k = rx_between(r, 0, last);
        int32_t tq[TABLES], tk[TABLES];
        BurstSide sq = {.lo = q, .hi = q}, sk = {.lo = k, .hi = k};
        for (int t = 0; t < TABLES; t++) {
            sq.table_lo[t] = sq.table_hi[t] = tq[t] = table[t][q];
            sk.table_lo[t] = sk.table_hi[t] = tk[t] = table[t][k];
        }
        const int truth = expr_eval(e, q, k, NULL, table) != 0, verdict = tile(&sq, &sk);
        assert_int_equal(keep(q, k, tq, tk) != 0, truth);
        assert_true(verdict == BURST_PARTIAL || verdict == (truth ? BURST_FULL : BURST_EMPTY));
    }
}

/* q * q mod 97 < 40: 32 bits do up to 46340. */
static const Expr *square_rule(Arena *a)
{
    const Expr *q = rx_make(a, E_Q, NULL, NULL), *square = rx_make(a, E_MUL, q, q);
    return rx_make(a, E_LT, rx_make(a, E_MOD, square, rx_number(a, E_CONST, 97)), rx_number(a, E_CONST, 40));
}

/* A name that C can look up for each mask. */
static void put_names(Text *c, int i)
{
    text_printf(c, "extern \"C\" int keep%d(int64_t q, int64_t k, const int32_t *tq, const int32_t *tk);\n",
                i);
    text_printf(c, "int keep%d(int64_t q, int64_t k, const int32_t *tq, const int32_t *tk)\n"
                   "{\n    return PlanMask%d::keep((int32_t)q, (int32_t)k, tq, tk);\n}\n", i, i);
    text_printf(c,
                "extern \"C\" int tile%d(const BurstSide *q, const BurstSide *k);\n"
                "int tile%d(const BurstSide *q, const BurstSide *k) { return PlanMask%d::tile(q, k); }\n",
                i, i, i);
}

static void check_sequence(int64_t sequence, const char *name, const char *integer)
{
    Rx r = {.arena = arena_new(), .state = 7, .sequence = sequence, .tables = TABLES, .hash = true};
    r.pattern = rx_pattern_random(&r, 5, 6);
    static const Table tables[TABLES] = {{.name = "doc"}, {.name = "kind"}};
    const int32_t *table[BURST_MAX_TABLES] = {0};
    for (int t = 0; t < TABLES; t++) {
        int32_t *values = NEW_ARRAY(r.arena, int32_t, sequence);
        for (int64_t i = 0; i < sequence; i++)
            values[i] = (int32_t)rx_between(&r, -3, 5);
        table[t] = values;
    }
    Mask *masks = NEW_ARRAY(r.arena, Mask, MASKS);
    for (int i = 0; i < MASKS; i++)
        masks[i] = (Mask){.text = "mask", .expr = mask_of(&r, i)};
    Arena *a = r.arena;
    masks[MASKS - 1].expr = square_rule(a);
    const Program p = {
        .masks = masks, .mask_count = MASKS, .tables = tables, .table_count = TABLES, .sequence = sequence};
    Text c = {0};
    text_add(&c, "#define __device__\n#include \"burst_mask.h\"\n");
    for (int i = 0; i < MASKS; i++) {
        mask_emit_cuda(&p, i, &c);
        put_names(&c, i);
    }
    assert_non_null(strstr(c.at, arena_printf(a, "plan_mask%d_keep(%s q", MASKS - 1, integer)));
    void *so = compile_text(c.at, name, "-x c++ -std=gnu++17 -O1 -Wall -Wextra");
    for (int i = 0; i < MASKS; i++) {
        Keep *keep = (Keep *)(uintptr_t)dlsym(so, arena_printf(a, "keep%d", i));
        Tile *tile = (Tile *)(uintptr_t)dlsym(so, arena_printf(a, "tile%d", i));
        assert_true(keep && tile);
        check_mask(&r, masks[i].expr, keep, tile, table);
    }
    dlclose(so);
    text_free(&c);
    arena_free(a);
}

static void narrow_masks_agree(void **state)
{
    (void)state;
    check_sequence(96, "cuda_narrow", "int32_t");
}

static void wide_masks_agree(void **state)
{
    (void)state;
    check_sequence(100000, "cuda_wide", "int64_t");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(narrow_masks_agree),
                                       cmocka_unit_test(wide_masks_agree)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
