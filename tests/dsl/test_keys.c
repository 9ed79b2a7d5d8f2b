/* test_keys.c: which key tiles masks take (compiler/mask/keys.c): those that an H100 was faster with where
 * both were measured (docs/performance.md), and what follows from how blocks lie in tiles.
 */
#include "text.h"

#include "mask/mask.h"

#include "burst_kernels.h"

enum { U = BURST_KEYS_USUAL, L = BURST_KEYS_LONG, B = BURST_KEYS_BLOCKS };

static const struct { const char *mask; int forward, backward; } cases[] = {
    {"causal", L, U},
    {"window(4096)", U, U},
    {"document", U, U},
    {"prefix_lm(4096)", L, U},
    {"bigbird(64, 1, 3, 5)", B, B},
    {"landmarks(0, 512, 64)", B, B},     /* halves of tiles */
    {"landmarks(32, 512, 64)", B, B},    /* in two tiles, of either kind */
    {"landmarks(0, 1024, 128)", U, U},   /* whole tiles */
    {"bigbird(128, 1, 3, 5)", U, U},     /* whole tiles */
    {"bigbird(16, 1, 3, 5)", U, U},      /* parts of tiles of 64 */
    {"block_causal(64)", L, U},          /* few tiles have an edge */
    {"dilated(500, 4)", U, U},           /* all tiles are partial, of either kind */
};

static const Program *compile_all(Arena *a, const char *sequence)
{
    Text t = {0};
    text_printf(&t,
                "model m { layers %d; hidden 64; heads 4; ffn swiglu 128; vocab 256; }\nsequence %s;\n"
                "mask landmarks(off, every, n) = causal and (q - k < 1024 or (k + off) mod every < "
                "n);\nattention {\n",
                countof(cases), sequence);
    for (int i = 0; i < countof(cases); i++)
        text_printf(&t, "layers %d: %s;\n", i, cases[i].mask);
    text_add(&t, "}\n");
    const Program *p = program_of(a, TOPO, t.at);
    text_free(&t);
    return p;
}

static void masks_take_the_faster_tiles(void **state)
{
    (void)state;
    Arena *a = arena_new();
    const Program *p = compile_all(a, "32Ki");
    for (int i = 0; i < countof(cases); i++)
        for (int again = 0; again < 2; again++) { /* found, then remembered */
            const int found[2] = {mask_keys(p, p->layer_mask[i], false),
                                  mask_keys(p, p->layer_mask[i], true)};
            if (found[0] != cases[i].forward || found[1] != cases[i].backward)
                fail_msg("%s: forward %d, backward %d", cases[i].mask, found[0], found[1]);
        }
    arena_free(a);
}

/* A choice does not change with the sequence where the mask's tiles do not: counts that became estimates
 * would show here. */
static void long_sequences_take_the_same(void **state)
{
    (void)state;
    Arena *a = arena_new();
    const Program *p = compile_all(a, "1Mi");
    for (int i = 0; i < countof(cases); i++) {
        assert_int_equal(mask_keys(p, p->layer_mask[i], false) == B, cases[i].forward == B);
        assert_int_equal(mask_keys(p, p->layer_mask[i], true) == B, cases[i].backward == B);
    }
    arena_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(masks_take_the_faster_tiles),
                                       cmocka_unit_test(long_sequences_take_the_same)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
