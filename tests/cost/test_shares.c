/* Work of ranks: what `partition auto` balances, and shares of ranks on devices of different speed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "burst_int.h"
#include "tools/tools.h"
#include "../mask/positions.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct Case { const char *nodes, *mask, *sequence, *layout; } Case;

static const char even[] = "nodes 4 { gpus 8 of h100; nics 8 of ndr; }",
                  mixed[] =
                      "nodes 2 { gpus 8 of a100; nics 4 of hdr; } nodes 2 { gpus 8 of h100; nics 4 of ndr; }";

static const Program *program(Arena *a, const Case *k)
{
    Text topo = {0}, model = {0};
    /* the same rate in rows of any length */
    text_printf(&topo, "device slow { arch sm_90a; memory 80 GB; matmul bf16 100 TFLOP/s; hbm 1 TB/s;\n"
                       "  attention forward 75 TFLOP/s; attention forward partial 75 TFLOP/s; }\n"
                       "device fast { arch sm_90a; memory 80 GB; matmul bf16 300 TFLOP/s; hbm 3 TB/s;\n"
                       "  attention forward 225 TFLOP/s; attention forward partial 225 TFLOP/s; }\n"
                       "nic wire { bandwidth 100000 Gb/s; latency 0 ns; }\n"
                       "cluster c { %s link nvlink { bandwidth 10 TB/s; latency 0 ns; } }\n", k->nodes);
    text_printf(&model,
                "model m { layers 8; hidden 4096; heads 32; kv_heads 8; head_dim 128; ffn swiglu 14336; "
                "vocab 128256; }\n"
                "attention { default %s; }\nsequence %s;\nlayout { data 1; %s }\n",
                k->mask, k->sequence, k->layout);
    assert_int_equal(text_write_file(&topo, "shares_case.topo"), 0);
    assert_int_equal(text_write_file(&model, "shares_case.burst"), 0);
    text_free(&topo);
    text_free(&model);
    Diags *d = diags_new(a);
    const FrontEnd in = {.topo_path = "shares_case.topo",
                         .model_path = "shares_case.burst",
                         .stock_dir = STOCK_DIR};
    const Program *p = front_end(a, d, &in);
    if (!p)
        diags_print(d, stdout);
    assert_non_null(p);
    return p;
}

static Found found(Arena *a, const Case *k)
{
    Diags *d = diags_new(a);
    const Found f = search(a, d, program(a, k));
    diags_print(d, stdout);
    assert_non_null(f.plan);
    return f;
}

static double step_of(const Case *k)
{
    Arena *a = arena_new();
    const double step = found(a, k).cost.step;
    arena_free(a);
    return step;
}

/* ---- balance ---- */

/* Keys of each query, from the masks' definitions. */
typedef void Rows(int64_t n, int64_t *keys);

static void causal(int64_t n, int64_t *keys)
{
    for (int64_t q = 0; q < n; q++)
        keys[q] = q + 1;
}

static void window(int64_t n, int64_t *keys)
{
    for (int64_t q = 0; q < n; q++)
        keys[q] = q < 8192 ? q + 1 : 8192;
}

static void bigbird(int64_t n, int64_t *keys)
{
    for (int64_t q = 0; q < n; q += 64) {
        int64_t before = 0;
        for (int64_t k = 0; k < q / 64; k++)
            before += k < 1 || q / 64 - k < 3 || burst_hash(q / 64, k) % 16 == 0;
        for (int64_t i = 0; i < 64; i++)
            keys[q + i] = 64 * before + i + 1;
    }
}

/* Pairs of the rank with the most over the mean; of an all-to-all every rank has its heads of all. */
static double balance(const Draft *d, const int64_t *keys)
{
    double most = 0, all = 0;
    for (int r = 0; r < d->choice.ranks; r++) {
        double pairs = 0;
        for (int64_t i = 0; i < d->partition->of[r].tokens; i++)
            pairs += (double)keys[pos_at(&d->partition->of[r], i)];
        most = fmax(most, pairs);
        all += pairs;
    }
    return choice_exchanges(&d->choice) ? 1 : most / (all / d->choice.ranks);
}

/* Documents of unknown length are planned for the worst case, which is one. */
static void ranks_have_equal_work(void **state)
{
    (void)state;
    static const struct { const char *mask; Rows *rows;
    } masks[] = {{"causal", causal},
                 {"window(8Ki)", window},
                 {"document", causal},
                 {"bigbird(64, 1, 3, 16)", bigbird}};
    const int64_t n = 1 << 20;
    int64_t *keys = xmalloc(sizeof *keys * (size_t)n);
    for (int i = 0; i < countof(masks); i++) {
        Arena *a = arena_new();
        const Found f = found(a, &(Case){even, masks[i].mask, "1Mi", ""});
        masks[i].rows(n, keys);
        const double apart = balance(plan_draft(f.plan), keys);
        printf("%s: %s balance %.4f\n", masks[i].mask, choice_text(a, &plan_draft(f.plan)->choice), apart);
        assert_int_equal(plan_draft(f.plan)->choice.ranks, 32);
        assert_true(apart <= 1.02);
        arena_free(a);
    }
    free(keys);
}

/* ---- shares ---- */

static void slow_nodes_get_less(void **state)
{
    (void)state;
    static const char *const masks[] = {"causal", "window(8Ki)", "full"};
    for (int i = 0; i < countof(masks); i++) {
        const double equal = step_of(&(Case){mixed, masks[i], "512Ki", "schedule burst; shares equal;"}),
                     open = step_of(&(Case){mixed, masks[i], "512Ki", "schedule burst;"});
        printf("%s: %.3f ms, with equal shares %.3f ms: %.2f\n", masks[i], open * 1e3, equal * 1e3,
               equal / open);
        assert_true(equal >= 1.25 * open);
    }
}

/* One device has three times all rates of the other: with shares 3 and 1 every operation is balanced, and
 * the step is half of that with equal shares, in which fast ranks wait. */
static void three_to_one(void **state)
{
    (void)state;
    static const char nodes[] =
        "nodes 1 { gpus 2 of fast; nics 1 of wire; } nodes 1 { gpus 2 of slow; nics 1 of wire; }";
    static const char *const partitions[] = {"zigzag", "striped", "blocks(512)"};
    for (int i = 0; i < countof(partitions); i++) {
        Arena *a = arena_new();
        const char *layout = arena_printf(a, "schedule ring; travel keys; recompute none; partition %s;",
                                          partitions[i]);
        const double equal = step_of(
            &(Case){nodes, "causal", "64Ki", arena_printf(a, "%s shares equal;", layout)});
        const Found open = found(a, &(Case){nodes, "causal", "64Ki", layout}),
                    hand = found(a, &(Case){nodes, "causal", "64Ki",
                                            arena_printf(a, "%s shares 3, 3, 1, 1;", layout)}),
                    device = found(a, &(Case){nodes, "causal", "64Ki",
                                              arena_printf(a, "%s shares slow 1, fast 3;", layout)});
        assert_string_equal(plan_draft(open.plan)->choice.shares_text, "fast 3, slow 1");
        assert_true(open.cost.step == hand.cost.step && open.cost.step == device.cost.step);
        printf("%s: %.3f ms, with equal shares %.3f ms; balance %.4f\n", partitions[i], hand.cost.step * 1e3,
               equal * 1e3, hand.cost.imbalance);
        assert_true(fabs(equal / hand.cost.step - 2) < 0.06);
        assert_true(hand.cost.imbalance < 1.01);
        arena_free(a);
    }
}

/* Without attention to speak of, what a step takes at least is what the best shares take. */
static void nothing_is_faster_than_the_least(void **state)
{
    (void)state;
    static const char *const masks[] = {"causal", "window(64)", "full"};
    for (int i = 0; i < countof(masks); i++) {
        Arena *a = arena_new();
        const Found f = found(a, &(Case){mixed, masks[i], "128Ki", ""});
        const Draft *d = plan_draft(f.plan);
        const double pairs = (double)pair_whole(d->counts[0]).pairs,
                     least = data_least(d->program, &pairs, 1);
        printf("%s: %.3f ms, at least %.3f ms\n", masks[i], f.cost.step * 1e3, least * 1e3);
        assert_true(least <= f.cost.step && least > 0.5 * f.cost.step);
        arena_free(a);
    }
}

static void printed_shares_choose_the_same(void **state)
{
    (void)state;
    static const char *const layouts[] = {"", "shares equal;", "shares h100 5, a100 2;", "schedule ulysses;"};
    for (int i = 0; i < countof(layouts); i++) {
        Arena *a = arena_new();
        const Found f = found(a, &(Case){mixed, "causal", "128Ki", layouts[i]});
        const char *text = choice_text(a, &plan_draft(f.plan)->choice);
        Case again = {mixed, "causal", "128Ki", arena_copy(a, text + 17, strlen(text) - 19)};
        assert_memory_equal(text, "layout { data 1; ", 17);
        const Found g = found(a, &again);
        printf("%s\n", text);
        assert_string_equal(choice_text(a, &plan_draft(g.plan)->choice), text);
        assert_true(g.cost.step == f.cost.step && g.cost.memory == f.cost.memory);
        arena_free(a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_have_equal_work),
        cmocka_unit_test(slow_nodes_get_less),
        cmocka_unit_test(three_to_one),
        cmocka_unit_test(nothing_is_faster_than_the_least),
        cmocka_unit_test(printed_shares_choose_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
