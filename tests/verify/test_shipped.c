/* What burstc ships is accepted, on every shape, whole and as masks leave it; and the executor agrees. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tools/tools.h"
#include "cases.h"
#include "executor.h"

#include <glob.h>
#include <string.h>

static void must(Arena *a, Diags *d, bool fine, const Schedule *s, const char *what)
{
    if (!fine)
        fail_msg("%s, %s, %d ranks (%d, then %d): %s\n%s", s->choice->schedule->name,
                 s->backward ? "backward" : "forward", s->choice->ranks, s->choice->size[0],
                 s->choice->size[1], what, printed(a, d));
}

static void must_run(Arena *a, Diags *d, const Schedule *s, const Live *live, const uint8_t *pair)
{
    Outcome o = execute(a, s, live, pair);
    must(a, d, o.right, s, o.why);
}

/* A random fraction of pairs: none, few, half, most, all; queries or keys that nobody reads. */
static void fill_pairs(Random *r, uint8_t *pair, int ranks, int keys)
{
    uint32_t keep = random_below(r, 6),
             row = random_below(r, 2) ? random_below(r, (uint32_t)ranks) : UINT32_MAX;
    for (int i = 0; i < ranks * keys; i++)
        pair[i] = random_below(r, 5) < keep && (uint32_t)(i / keys) != row && (uint32_t)(i % keys) != row;
}

static void check_pruned(Arena *a, Diags *d, const Schedule *s, const uint8_t *pair)
{
    must(a, d, verify_pruned(a, d, s, pair, "random"), s, "pruned by a mask");
    Live live = prune(a, s, choice_pairs(a, s->choice, s->backward, pair), NULL);
    must_run(a, d, s, &live, pair);
}

static void check_phase(const SchedText *t, RankShape shape, int phase, Random *r)
{
    Arena *a = arena_new();
    Diags *d = diags_new(a);
    Schedule *s = plan_phase(a, d, t, shape, phase);
    if (!s)
        fail_msg("%s", printed(a, d));
    must(a, d, verify_schedule(a, d, s), s, "as planned");
    if (s->choice->ranks <= 12) /* the executor keeps what must come before each task of each rank */
        must_run(a, d, s, NULL, NULL);
    const int keys = choice_chunks(s->choice);
    uint8_t *pair = NEW_ARRAY(a, uint8_t, s->choice->ranks * keys);
    for (int sample = 0; sample < 6 && s->choice->ranks <= 12; sample++) {
        fill_pairs(r, pair, s->choice->ranks, keys);
        check_pruned(a, d, s, pair);
    }
    fill_pairs(r, pair, s->choice->ranks, keys);
    must(a, d, verify_pruned(a, d, s, pair, "random"), s, "pruned by a mask");
    arena_free(a);
}

static void check_text(const SchedText *t, RankShape shape, Random *r)
{
    for (int phase = 0; phase < PHASES; phase++) {
        if (has_phase(t, phase))
            check_phase(t, shape, phase, r);
    }
}

static void check_shape(const char *name, RankShape shape, Random *r)
{
    Arena *a = arena_new();
    const SchedText *t = stock_schedule(a, name);
    assert_non_null(t);
    check_text(t, shape, r);
    arena_free(a);
}

static void all_shapes(void **state)
{
    (void)state;
    Random r = {1};
    glob_t files = {0};
    assert_int_equal(glob(STOCK_DIR "/schedules/*.sched", 0, NULL, &files), 0);
    assert_true(files.gl_pathc >= 14);
    for (size_t i = 0; i < files.gl_pathc; i++) {
        Arena *a = arena_new();
        const SchedText *t = schedule_file(a, files.gl_pathv[i]);
        assert_non_null(t);
        for (int ranks = 1; ranks <= 9; ranks++)
            check_text(t, (RankShape){1, ranks}, &r);
        const bool exchanges_alone = t->coords == 1 && t->exchanged >= 0; /* as ulysses: of one coordinate */
        for (int nodes = 2; nodes <= 5 && !exchanges_alone; nodes++)
            for (int lanes = 1; lanes <= 4; lanes++)
                check_text(t, (RankShape){nodes, lanes}, &r);
        arena_free(a);
    }
    globfree(&files);
    for (int ranks = 0; ranks < 27; ranks++)
        check_shape("three_level", (RankShape){1 + ranks / 9, 1 + ranks / 3 % 3, 1 + ranks % 3}, &r);
}

/* Too many for the executor; the verifier's own limit on what it replays rank by rank is 256. */
static void large_shapes(void **state)
{
    (void)state;
    Random r = {2};
    check_shape("ring", (RankShape){1, 64}, &r);
    check_shape("burst", (RankShape){16, 8}, &r);
    check_shape("three_level", (RankShape){4, 4, 8}, &r);
}

static const Program *masks_program(Arena *a, const char *mask)
{
    Text topo = {0}, model = {0};
    text_add(&topo,
             "cluster c { nodes 2 { gpus 4 of core; nics 1 of hdr; } }\ndevice core { arch cpu; memory 64 "
             "GiB; hbm 20 GB/s;\n"
             "  matmul fp32 50 GFLOP/s; attention forward 40 GFLOP/s; attention backward 35 GFLOP/s; }\n");
    text_printf(&model,
                "import \"masks\";\nmodel m { layers 1; hidden 64; heads 8; kv_heads 8; head_dim 8; ffn "
                "swiglu 64; vocab 64; }\n"
                "attention { default %s; }\nsequence 4Ki;\n",
                mask);
    assert_int_equal(text_write_file(&topo, "verify_masks.topo"), 0);
    assert_int_equal(text_write_file(&model, "verify_masks.burst"), 0);
    text_free(&topo);
    text_free(&model);
    Diags *d = diags_new(a);
    FrontEnd in = {.target = &targets[TARGET_C],
                   .topo_path = "verify_masks.topo",
                   .model_path = "verify_masks.burst",
                   .stock_dir = STOCK_DIR};
    const Program *p = front_end(a, d, &in);
    if (!p)
        fail_msg("%s", printed(a, d));
    return p;
}

/* Halves of keys under a real mask, by the counts that a plan has. */
static void check_halves(Arena *a, MaskMap *map, const Partition *part)
{
    const SchedText *t = stock_schedule(a, "bidirectional");
    const uint8_t *pair = pair_live(pair_counts(a, map, part, t->pieces));
    for (int phase = 0; phase < PHASES; phase++) {
        Diags *d = diags_new(a);
        if (has_phase(t, phase))
            check_pruned(a, d, plan_phase(a, d, t, (RankShape){8}, phase), pair);
    }
}

static void check_mask(const char *mask, int *empty)
{
    static const RankShape shapes[] = {{1, 8}, {2, 4}, {4, 2}};
    Arena *a = arena_new();
    MaskMap *map = mask_map(a, masks_program(a, mask), 0, 64, 64);
    for (int kind = 0; kind < PART_KINDS; kind++) {
        const Partition *part = partition_make(a, (PartitionKind)kind, 256, 4096, 8);
        const uint8_t *pair = pair_live(pair_counts(a, map, part, 1));
        check_halves(a, map, part);
        for (int i = 0; i < 64; i++)
            *empty += !pair[i];
        for (int j = 0; j < 2 * countof(shapes); j++) {
            const SchedText *t = stock_schedule(a, j % 2 ? "burst" : "ring");
            for (int phase = 0; phase < PHASES; phase++) {
                Diags *d = diags_new(a);
                check_pruned(a, d, plan_phase(a, d, t, shapes[j / 2], phase), pair);
            }
        }
    }
    arena_free(a);
}

static void real_masks(void **state)
{
    (void)state;
    static const char *const masks[] = {"causal", "window(512)", "window_sink(256, 4)", "block_local(1Ki)",
                                        "dilated(1Ki, 4)"};
    int empty = 0;
    for (int i = 0; i < countof(masks); i++)
        check_mask(masks[i], &empty);
    assert_true(empty > 200); /* otherwise nothing was pruned */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_shapes),
        cmocka_unit_test(large_shapes),
        cmocka_unit_test(real_masks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
