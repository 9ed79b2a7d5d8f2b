/* test_cell.c: what a picture shows of a cell, against every pair and every tile, where counts are estimates.
 *   test_mask_cell [CASES [SEED]]
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>

#include "cover.h"
#include "positions.h"
#include "random_expr.h"

static int cases = 3000;
static uint64_t seed = 1;

/* Of tiles (of one pair: pairs) how many are not empty, and how many are full. */
typedef struct Truth { int64_t some, full, tiles; } Truth;

static Truth truth_of(const Expr *e, const PosSet *q, const PosSet *k, int64_t tile)
{
    Truth t = {0};
    for (int64_t i = 0; i < q->tokens; i += tile)
        for (int64_t j = 0; j < k->tokens; j += tile, t.tiles++) {
            int64_t box[4];
            pos_hull(q, i, burst_min(tile, q->tokens - i), &box[0], &box[1]);
            pos_hull(k, j, burst_min(tile, k->tokens - j), &box[2], &box[3]);
            const Cover cover = mask_cover(e, box[0], box[1], box[2], box[3]);
            t.some += cover != COVER_EMPTY;
            t.full += cover == COVER_FULL || (cover == COVER_PARTIAL && tile == 1); /* kept by some tables */
        }
    return t;
}

/* Half of them keep few pairs, here and there. */
static const Expr *random_mask(Rx *r)
{
    const Expr *e = rx_bool(r, 3);
    if (rx_one_in(r, 2))
        return e;
    const Expr *q = rx_make(r->arena, E_Q, NULL, NULL), *k = rx_make(r->arena, E_K, NULL, NULL);
    const Expr *rest = rx_make(r->arena, E_MOD, rx_make(r->arena, E_HASH, q, k),
                               rx_number(r->arena, E_CONST, rx_between(r, 2, 3000)));
    return rx_make(r->arena, E_AND, e, rx_make(r->arena, E_EQ, rest, rx_number(r->arena, E_CONST, 0)));
}

static PosSet random_run(Rx *r, Piece *piece)
{
    const int64_t begin = rx_between(r, 0, r->sequence - 1);
    return pos_run(piece, begin, rx_between(r, begin + 1, r->sequence));
}

static void assert_shown(MaskShare s, Truth t, const Expr *e)
{
    if ((s.share == 0) != (t.some == 0) || (s.share == 1) != (t.full == t.tiles)) {
        Text text = {0};
        rx_print_burst(e, &text);
        print_message("%s\n", text.at);
        text_free(&text);
    }
    assert_true((s.share == 0) == (t.some == 0));
    assert_true((s.share == 1) == (t.full == t.tiles));
    assert_true(s.share >= 0 && s.share <= 1);
}

static void cells_are_blank_only_where_nothing_is_kept(void **state)
{
    static const Table any[1] = {{.name = "t0"}};
    (void)state;
    int estimated = 0, unsure = 0;
    for (int i = 0; i < cases; i++) {
        Rx r = {.arena = arena_new(), .state = seed * 1000003 + (uint64_t)i, .hash = true};
        r.sequence = rx_between(&r, 1, 150);
        r.pattern = rx_pattern_random(&r, 40, 40);
        r.tables = i % 4 == 0;
        const Expr *e = random_mask(&r);
        const int64_t tile = rx_one_in(&r, 2) ? 1 : rx_between(&r, 2, 9);
        MaskMap *m = mask_map(r.arena, rx_program(r.arena, e, r.sequence, any, 1), 0, (int)tile, (int)tile);
        m->effort = (MaskEffort){.sampling = rx_one_in(&r, 4) ? 0 : 1e12, .draws = 40};
        const bool starved = rx_one_in(&r, 8);
        m->cells = starved ? 0 : m->cells;
        Piece piece[2];
        const PosSet q = random_run(&r, &piece[0]), k = random_run(&r, &piece[1]);
        const MaskShare s = mask_share(m, &q, &k, tile);
        const Truth t = truth_of(e, &q, &k, tile);
        const PairWork w = mask_work(m, &q, &k);
        estimated += tile == 1 ? w.pairs_error > 0 : w.tiles_estimated;
        unsure += !s.sure;
        assert_true(s.sure || starved);
        if (s.sure)
            assert_shown(s, t, e);
        else
            assert_true(s.share > 0);
        arena_free(r.arena);
    }
    print_message("%d cells, %d estimated, %d not sure\n", cases, estimated, unsure);
    assert_true(estimated > cases / 4 && unsure > 0);
}

int main(int argc, char **argv)
{
    cases = argc > 1 ? atoi(argv[1]) : cases;
    seed = argc > 2 ? strtoull(argv[2], NULL, 10) : seed;
    const struct CMUnitTest tests[] = {cmocka_unit_test(cells_are_blank_only_where_nothing_is_kept)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
