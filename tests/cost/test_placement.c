/* Placement: which axes lie inside a node, by hand, and as the search finds it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "case.h"

#include <math.h>
#include <string.h>

/* Four nodes of four; cards of 100 Gb/s. */
static const Program *program(Arena *a, int nics, const char *layout, const char *sequence)
{
    Text topo = {0}, model = {0};
    text_printf(&topo,
                "nic card { bandwidth 100 Gb/s; latency 0 ns; }\n"
                "cluster c { nodes 4 { gpus 4 of h100; nics %d of card; } link nvlink { bandwidth 400 GB/s; "
                "latency 0 ns; } }\n",
                nics);
    text_printf(&model,
                "model m { layers 1; hidden 1024; heads 8; kv_heads 8; head_dim 128; ffn swiglu 4096; vocab "
                "32000; }\n"
                "attention { default full; }\nsequence %s;\nlayout { recompute none; partition contiguous; "
                "travel keys; %s }\n",
                sequence, layout);
    assert_int_equal(text_write_file(&topo, "placement_case.topo"), 0);
    assert_int_equal(text_write_file(&model, "placement_case.burst"), 0);
    text_free(&topo);
    text_free(&model);
    Diags *d = diags_new(a);
    const Program *p = front_end(a, d,
                                 &(FrontEnd){.topo_path = "placement_case.topo",
                                             .model_path = "placement_case.burst",
                                             .stock_dir = STOCK_DIR});
    diags_print(d, stdout);
    assert_non_null(p);
    return p;
}

static Found found(Arena *a, int nics, const char *layout, const char *sequence)
{
    Diags *d = diags_new(a);
    const Found f = search(a, d, program(a, nics, layout, sequence));
    diags_print(d, stdout);
    assert_non_null(f.plan);
    return f;
}

/* Forward of the layer with computing that takes no time. */
static AttentionTime transfers(Arena *a, int nics, const char *layout)
{
    const Found f = found(a, nics, layout, "64Ki");
    const Draft *d = plan_draft(f.plan);
    AttentionInput in = cost_load(a, d, d->choice.ranks, 0, false, NULL);
    for (int i = 0; i < in.schedule->trace.n * in.ranks; i++)
        in.seconds[i] = fmin(in.seconds[i], 1e-12);
    return attention_simulate(a, &in);
}

/* Which world rank has which chunk: a bijection, as the placement says. */
static void every_rank_has_one_chunk(void **state)
{
    (void)state;
    static const struct { const char *layout; int rank_of_1, rank_of_4; int data; } cases[] = {
        {"data 1; context 4 x 4; schedule burst;", 1, 4, 1},
        {"data 1; context 4 x 4; schedule burst; placement node, lane;", 4, 1, 1},
        {"data 2; context 2 x 4; schedule burst; placement lane, data, node;", 1, 8, 2},
        {"data 2; context 2 x 4; schedule burst; placement data;", 2, 8, 2},
        {"data 4; context 4; schedule ring; placement data, context;", 4, -1, 4},
        {"data 4; context 4; schedule ring; placement context, data;", 1, -1, 4},
        {"data 2; heads 8; schedule ulysses; placement data, heads;", 2, 8, 2},
    };
    for (int i = 0; i < countof(cases); i++) {
        Arena *a = arena_new();
        const Choice *c = &plan_draft(found(a, 4, cases[i].layout, "16Ki").plan)->choice;
        bool seen[16] = {0};
        assert_int_equal(c->data, cases[i].data);
        assert_int_equal(choice_rank(c, 0, 1), cases[i].rank_of_1);
        assert_true(cases[i].rank_of_4 < 0 || choice_rank(c, 0, 4) == cases[i].rank_of_4);
        for (int g = 0; g < c->data; g++)
            for (int r = 0; r < c->ranks; r++)
                seen[choice_rank(c, g, r)] = true;
        for (int r = 0; r < 16; r++)
            assert_true(seen[r]);
        arena_free(a);
    }
}

/* Of the double ring each of 16 ranks sends its window 3 x 4 hops along lanes and 3 to the next node; the
 * other way round the lanes' hops leave the node. Chunks of 4Ki tokens of K and V. */
static void what_is_inside_a_node(void **state)
{
    (void)state;
    const double chunk = 4096.0 * 8 * 128 * 2 * 2;
    for (int swapped = 0; swapped < 2; swapped++) {
        Arena *a = arena_new();
        const AttentionTime t =
            transfers(a, 4,
                      swapped ? "data 1; context 4 x 4; schedule burst; placement node, lane;"
                              : "data 1; context 4 x 4; schedule burst; placement lane, node;");
        close_to(swapped ? t.nic_bytes : t.link_bytes, 16 * 12 * chunk, 1e-9);
        close_to(swapped ? t.link_bytes : t.nic_bytes, 16 * 3 * chunk, 1e-9);
        arena_free(a);
    }
}

/* Four groups of four: inside a node each nothing leaves it; with data inside, every hop does, and the
 * four groups share its cards: of one card a quarter each. */
static void groups_share_cards(void **state)
{
    (void)state;
    const double chunk = 16384.0 * 8 * 128 * 2 * 2;
    for (int nics = 1; nics <= 4; nics *= 2) {
        Arena *a = arena_new();
        const AttentionTime in = transfers(a, nics,
                                           "data 4; context 4; schedule ring; placement context, data;"),
                            out = transfers(a, nics,
                                            "data 4; context 4; schedule ring; placement data, context;");
        assert_true(in.nic_bytes == 0 && out.link_bytes == 0);
        close_to(in.seconds, 3 * chunk / 400e9, 1e-6);
        close_to(out.seconds, 3 * chunk / (nics * 12.5e9 / 4), 1e-6);
        arena_free(a);
    }
}

static void open_placement_is_the_best_order(void **state)
{
    (void)state;
    static const char *const orders[] = {"lane, node, data", "node, lane, data", "data, lane, node",
                                         "lane, data, node", "node, data, lane", "data, node, lane"};
    static const char layout[] = "data 2; context 2 x 4; schedule burst; placement %s;";
    double least = INFINITY;
    for (int i = 0; i < countof(orders); i++) {
        Arena *a = arena_new();
        const Found f = found(a, 1, arena_printf(a, layout, orders[i]), "128Ki");
        printf("%s: %.3f ms\n", orders[i], f.cost.step * 1e3);
        least = fmin(least, f.cost.step);
        if (i) /* what is printed chooses the same */
            assert_non_null(strstr(choice_text(a, &plan_draft(f.plan)->choice),
                                   arena_printf(a, "placement %s;", orders[i])));
        arena_free(a);
    }
    Arena *a = arena_new();
    const Found f = found(a, 1, arena_printf(a, layout, "auto"), "128Ki");
    assert_int_equal(f.evaluated_count, countof(orders));
    assert_true(f.cost.step <= least * 1.0011 && f.cost.step >= least);
    arena_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_rank_has_one_chunk), cmocka_unit_test(what_is_inside_a_node),
        cmocka_unit_test(groups_share_cards),       cmocka_unit_test(open_placement_is_the_best_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
