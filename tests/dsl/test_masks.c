/* test_masks.c: masks after inlining, pair by pair, against predicates written here from their
 * definitions; and what inlining folds away. */
#include "text.h"
#include "ir/expr.h"

enum { SEQUENCE = 200 };
static int32_t documents[SEQUENCE];

static int64_t floored(int64_t a, int64_t b) { return a >= 0 ? a / b : -((-a + b - 1) / b); }
static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t smallest(int64_t a, int64_t b, int64_t c) { return smaller(smaller(a, b), c); }
static bool drawn(int64_t q, int64_t k) { return q < 30 && k < 20 && "011001"[q / 10 * 2 + k / 10] == '1'; }

/* id, as a layer names it, predicate */
#define MASKS(X) \
    X(full, "full", true) \
    X(causal, "causal", k <= q) \
    X(window, "window(17)", k <= q && k > q - 17) \
    X(sink, "window_sink(9, 4)", k <= q && (k > q - 9 || k < 4)) \
    X(dilated, "dilated(5, 3)", k <= q && k > q - 15 && (q - k) % 3 == 0) \
    X(strided, "strided(8, 10)", k <= q && (k > q - 8 || (q - k) % 10 == 0)) \
    X(local, "block_local(16)", q >> 4 == k >> 4) \
    X(blocks, "block_causal(16)", k >> 4 <= q >> 4) \
    X(prefix, "prefix_lm(50)", k <= q || k < 50) \
    X(document, "document", k <= q && documents[q] == documents[k]) \
    X(shared, "shared_question(20, 30)", k <= q && (k < 20 || (q >= 20 && (q - 20) / 30 == (k - 20) / 30))) \
    X(longnet, "longnet(8, 2)", k <= q && (q / 8 == k / 8 || (q / 16 == k / 16 && (q - k) % 2 == 0) || \
                                           (q / 32 == k / 32 && (q - k) % 4 == 0))) \
    X(chunked, "chunked(32)", k <= q && q >> 5 == k >> 5) \
    X(negative, "negative(7)", floored(k - q, 7) < -2) \
    X(remainder, "remainder(7)", ((k - q) % 7 + 7) % 7 == 3) \
    X(nested, "nested(6)", k <= q && (q - k < 13 || (q - k < 7 && k > 100))) \
    X(functions, "functions(40)", smallest(q, k, 40) < (q > k ? q - k : k - q)) \
    X(swapped, "swapped(3, 90)", q - k >= 3 && k < 90 && q + k >= 3) \
    X(logic, "logic(10)", q >= 10 && (q != k || q == 11)) \
    X(sixteen, "sixteen", q - 2 * k > 16 || q == -(-k)) \
    X(pattern, "pattern(10)", drawn(q, k))

#define X(id, text, predicate) \
    static bool keeps_##id(int64_t q, int64_t k) { (void)q; (void)k; return predicate; }
MASKS(X)
#undef X

static const struct { const char *text; bool (*keeps)(int64_t, int64_t); } cases[] = {
#define X(id, text, predicate) {text, keeps_##id},
    MASKS(X)
#undef X
};

static const char own_masks[] =
    "table doc per token;\n"
    "mask negative(a) = (k - q) / a < -2;\n"
    "mask remainder(a) = (k - q) mod a == 3;\n"
    "mask nested(a) = window(a * 2 + 1) or window(a + 1) and k > 100;\n"
    "mask functions(a) = min(q, k, a) < abs(q - k);\n"
    "mask at_least(k_, s) = s - k_ >= 0;\n"
    "mask swapped(s, w) = q - k >= s and k < w and at_least(s, q + k);\n"
    "mask logic(a) = not q < a and (q != k or q == a + 1);\n"
    "mask sixteen = q - 2 * k > max(2, 4 * 4, -7) or q == - -k;\n";

static const Program *compile_all(Arena *a)
{
    Text t = {0};
    text_printf(&t, "model m { layers %d; hidden 64; heads 4; ffn swiglu 128; vocab 256; }\nsequence %d;\n%s",
                countof(cases), SEQUENCE, own_masks);
    text_printf(&t, "mask pattern(b) = file \"%s\" at (q / b, k / b);\nattention {\n",
                memory_file(a, "01\n1 0\n\n0\t1\n"));
    for (int i = 0; i < countof(cases); i++)
        text_printf(&t, "layers %d: %s;\n", i, cases[i].text);
    text_add(&t, "}\n");
    const Program *p = program_of(a, TOPO, t.at);
    text_free(&t);
    return p;
}

static void masks_keep_what_they_say(void **state)
{
    (void)state;
    Arena *a = arena_new();
    for (int i = 0, left = 13; i < SEQUENCE; i++, left--) {
        if (left == 0)
            left = 7 + i % 31;
        documents[i] = (i ? documents[i - 1] : 0) + (left == 7);
    }
    const Program *p = compile_all(a);
    const int32_t *tables[] = {documents};
    for (int i = 0; i < countof(cases); i++) {
        const Mask *m = &p->masks[p->layer_mask[i]];
        assert_string_equal(m->text, cases[i].text);
        for (int64_t q = 0; q < SEQUENCE; q++)
            for (int64_t k = 0; k < SEQUENCE; k++)
                if ((expr_eval(m->expr, q, k, NULL, tables) != 0) != cases[i].keeps(q, k))
                    fail_msg("%s at q %d, k %d", cases[i].text, (int)q, (int)k);
    }
    arena_free(a);
}

/* bigbird against its words: the drawn blocks are about one in n, the others are kept for sure. */
static void bigbird_draws_blocks(void **state)
{
    (void)state;
    Arena *a = arena_new();
    const Program *p = program_of(a, TOPO,
                                  MODEL "sequence 16Ki; attention { default bigbird(16, 2, 3, 4); }\n");
    const Expr *e = p->masks[0].expr;
    int drawn_blocks = 0, blocks = 0;
    for (int64_t q = 0; q < 1024; q++)
        for (int64_t k = 0; k < q; k++) {
            bool keeps = expr_eval(e, q * 16 + 15, k * 16, NULL, NULL);
            if (k < 2 || q - k < 3) {
                assert_true(keeps);
                continue;
            }
            blocks++;
            drawn_blocks += keeps;
            assert_int_equal(keeps, expr_eval(e, q * 16, k * 16 + 15, NULL, NULL)); /* whole blocks */
        }
    assert_in_range(drawn_blocks, blocks / 4 * 0.98, blocks / 4 * 1.02);
    arena_free(a);
}

/* A file is read once: masks that share it share its Pattern. */
static void patterns_are_shared(void **state)
{
    (void)state;
    Arena *a = arena_new();
    const char *file = memory_file(a, "10\n11\n");
    const Program *p = program_of(a, TOPO,
                                  arena_printf(a,
                                               MODEL
                                               "sequence 1Ki; mask p(b) = file \"%s\" at (q / b, k / b);\n"
                                               "attention { layers 0: p(4); layers 1 .. 3: p(8); }\n",
                                               file));
    assert_int_equal(p->mask_count, 2);
    const Pattern *pattern = p->masks[0].expr->pattern;
    assert_ptr_equal(pattern, p->masks[1].expr->pattern);
    assert_true(pattern->rows == 2 && pattern->cols == 2);
    assert_memory_equal(pattern->bits, "\1\0\1\1", 4);
    arena_free(a);
}

static void own_masks_hide_stock_ones(void **state)
{
    (void)state;
    Arena *a = arena_new();
    const Program *p =
        program_of(a, TOPO,
                   MODEL "sequence 1Ki; mask causal = q < k; mask mine = causal and q > 3;\n"
                         "attention { layers 0: causal; layers 1: window(4); layers 2 .. 3: mine; }\n");
    const Expr *own = p->masks[p->layer_mask[0]].expr, *window = p->masks[p->layer_mask[1]].expr;
    const Expr *mine = p->masks[p->layer_mask[2]].expr;
    for (int64_t k = 0; k < 20; k++) {
        assert_int_equal(expr_eval(own, 10, k, NULL, NULL), k > 10);
        assert_int_equal(expr_eval(window, 10, k, NULL, NULL), k > 6 && k <= 10);
        assert_int_equal(expr_eval(mine, 10, k, NULL, NULL), k > 10);
    }
    arena_free(a);
}

static int nodes(const Expr *e)
{
    return e ? 1 + nodes(e->a) + nodes(e->b) : 0;
}

static const Expr *mask_of(Arena *a, const char *text)
{
    const char *model = arena_printf(a, MODEL "sequence 1Mi; mask m = %s; attention { default m; }\n", text);
    return program_of(a, TOPO, model)->masks[0].expr;
}

static void constants_fold(void **state)
{
    (void)state;
    Arena *a = arena_new();
    static const struct { const char *text; ExprOp op; int nodes; } folds[] = {
        {"k <= q and 3 < 4", E_LE, 3},
        {"window_sink(8, 0) or false", E_AND, 9},
        {"k <= q and 4 < 3", E_FALSE, 1},
        {"k <= q or not false", E_TRUE, 1},
        {"q < 2 * 3 + max(7, abs(-9)) / 2 - 10 mod 4", E_LT, 3},
        {"q < -1", E_FALSE, 1},
        {"k <= q and q - k < 2Mi", E_LE, 3},
        {"abs(q - k) >= 0", E_TRUE, 1},
        {"bitand(12, 10, 14) == 8", E_TRUE, 1},
        {"bitand(-3, -6) == -8", E_TRUE, 1},
        {"bitand(q, 12) <= 12", E_TRUE, 1},
        {"bitand(q, 12) < 12", E_LT, 5},
        {"bitand(k - q, 12) >= 0", E_TRUE, 1},
        {"bitor(12, 10, 1) == 15", E_TRUE, 1},
        {"bitor(-8, 3) == -5", E_TRUE, 1},
        {"bitor(q, 12) >= 12", E_TRUE, 1},
        {"bitor(q, 12) > 12", E_GT, 5},
        {"bitxor(12, 10, 1) == 7", E_TRUE, 1},
        {"bitxor(-8, 3) == -5", E_TRUE, 1},
        {"bitxor(q, 12) < 1Mi", E_TRUE, 1},
        {"bitxor(q, 12) < 1Mi - 1", E_LT, 5},
        {"q == k and q != 1Mi", E_EQ, 3},
    };
    for (int i = 0; i < countof(folds); i++) {
        const Expr *e = mask_of(a, folds[i].text);
        assert_int_equal(e->op, folds[i].op);
        assert_int_equal(nodes(e), folds[i].nodes);
    }
    const Expr *sum = mask_of(a, folds[4].text);
    assert_int_equal(sum->b->value, 2 * 3 + 9 / 2 - 10 % 4);
    assert_int_equal(mask_of(a, "q - k < (0 - 7) / 2")->b->value, -4);
    assert_int_equal(mask_of(a, "q - k < (0 - 7) mod 4")->b->value, 1);
    arena_free(a);
}

static bool refused(const char *mask)
{
    Arena *a = arena_new();
    Diags *d = diags_new(a);
    const char *model = arena_printf(a, MODEL "sequence 1Mi; mask m = %s; attention { default m; }\n", mask);
    FrontEnd in = {.target = &targets[TARGET_C],
                   .topo_path = memory_file(a, TOPO),
                   .model_path = memory_file(a, model),
                   .stock_dir = DSL_STOCK};
    bool none = front_end(a, d, &in) == NULL;
    close_files();
    assert_int_equal(none, diags_errors(d) > 0);
    arena_free(a);
    return none;
}

/* On 2^20 tokens q * q * q stays below 2^60; the bound is 2^62, reached exactly or not. */
static void overflow_is_proved(void **state)
{
    (void)state;
    assert_false(refused("q * q * q < 5"));
    assert_false(refused("q * q * q * 4 < 5"));
    assert_true(refused("q * q * q * 5 < 5"));
    assert_false(refused("4611686018427387904 > q"));
    assert_true(refused("4611686018427387904 + q > q"));
    assert_true(refused("0 - q * q * q * 5 < 5"));
    assert_false(refused("(q mod 8) * 288230376151711743 < 5"));
    assert_true(refused("(q mod 32) * 288230376151711743 < 5"));
    assert_false(refused("(q / 1024) * (k / 1024) * q * q < 5"));
    assert_true(refused("doc[q] * doc[q] * 2 > k"));
    assert_false(refused("doc[q] * doc[k] > k"));
    assert_false(refused("hash(q, k) * hash(k, q) > k"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(masks_keep_what_they_say),
        cmocka_unit_test(bigbird_draws_blocks),
        cmocka_unit_test(patterns_are_shared),
        cmocka_unit_test(own_masks_hide_stock_ones),
        cmocka_unit_test(constants_fold),
        cmocka_unit_test(overflow_is_proved),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
