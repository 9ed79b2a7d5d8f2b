/* test_random.c: random masks written with as few parentheses as the language reference allows, against a
 * tree that is evaluated here: precedence, grouping, floored division, parameters and folding at once. */
#include "text.h"
#include "ir/expr.h"

enum { SEQUENCE = 97, MASKS = 250, POINTS = 300, DEPTH = 5, A = 5, B = 7 };

typedef enum Op {
    OR,
    AND,
    NOT,
    LT,
    LE,
    GT,
    GE,
    EQ,
    NE,
    ADD,
    SUB,
    MUL,
    DIV,
    MOD,
    NEG,
    MIN_,
    MAX_,
    ABS_,
    BITAND_,
    BITOR_,
    BITXOR_,
    LEAF
} Op;
/* level: how tightly it binds; text: the operator. */
static const struct { const char *text; int level; } ops[] = {
    [OR] = {" or ", 1},   [AND] = {" and ", 2}, [NOT] = {"not ", 3}, [LT] = {" < ", 4},   [LE] = {" <= ", 4},
    [GT] = {" > ", 4},    [GE] = {" >= ", 4},   [EQ] = {" == ", 4},  [NE] = {" != ", 4},  [ADD] = {" + ", 5},
    [SUB] = {" - ", 5},   [MUL] = {" * ", 6},   [DIV] = {" / ", 6},  [MOD] = {" mod ", 6}, [NEG] = {"-", 7},
    [MIN_] = {"min", 8},  [MAX_] = {"max", 8},  [ABS_] = {"abs", 8}, [BITAND_] = {"bitand", 8},
    [BITOR_] = {"bitor", 8}, [BITXOR_] = {"bitxor", 8}, [LEAF] = {"", 8},
};
/* leaf: text; q, k: value -1, -2 */
typedef struct Tree { Op op; struct Tree *a, *b; const char *text; int64_t value; } Tree;

static uint64_t state_ = 20240607;
static int below(int n)
{
    state_ = state_ * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (int)((state_ >> 33) % (uint64_t)n);
}

static Tree *tree(Arena *a, Op op, Tree *x, Tree *y)
{
    Tree *n = NEW(a, Tree);
    *n = (Tree){.op = op, .a = x, .b = y};
    return n;
}

static Tree *constant(Arena *a)
{
    Tree *n = tree(a, LEAF, NULL, NULL);
    int kind = below(4);
    if (kind < 2) {
        n->value = kind ? B : A;
        n->text = kind ? "b" : "a";
        return n;
    }
    n->value = 1 + below(9);
    n->text = arena_printf(a, "%d", (int)n->value);
    return n;
}

static Tree *number(Arena *a, int depth)
{
    static const Op inner[] = {ADD, ADD, SUB,  SUB,  MUL,     DIV,    MOD,
                               NEG, MIN_, MAX_, ABS_, BITAND_, BITOR_, BITXOR_};
    Op op = depth ? inner[below(countof(inner))] : LEAF;
    if (op == LEAF && below(3) == 0)
        return constant(a);
    if (op == LEAF) {
        Tree *n = tree(a, LEAF, NULL, NULL);
        n->value = -1 - below(2);
        n->text = n->value == -1 ? "q" : "k";
        return n;
    }
    Tree *x = number(a, depth - 1);
    if (op == NEG || op == ABS_)
        return tree(a, op, x, NULL);
    return tree(a, op, x, op == MUL || op == DIV || op == MOD ? constant(a) : number(a, below(depth)));
}

static Tree *condition(Arena *a, int depth)
{
    if (depth == 0 || below(3) == 0)
        return tree(a, (Op)(LT + below(6)), number(a, below(DEPTH)), number(a, below(3)));
    Op op = (Op)(OR + below(3));
    return tree(a, op, condition(a, depth - 1), op == NOT ? NULL : condition(a, below(depth)));
}

static int64_t floored(int64_t x, int64_t y) { return x / y - (x % y < 0); }

static int64_t evaluate(const Tree *n, int64_t q, int64_t k)
{
    if (n->op == LEAF && n->value < 0)
        return n->value == -1 ? q : k;
    if (n->op == LEAF)
        return n->value;
    int64_t x = evaluate(n->a, q, k), y = n->b ? evaluate(n->b, q, k) : 0;
    switch (n->op) {
    case OR: return x || y;
    case AND: return x && y;
    case NOT: return !x;
    case LT: return x < y;
    case LE: return x <= y;
    case GT: return x > y;
    case GE: return x >= y;
    case EQ: return x == y;
    case NE: return x != y;
    case ADD: return x + y;
    case SUB: return x - y;
    case MUL: return x * y;
    case DIV: return floored(x, y);
    case MOD: return x - y * floored(x, y);
    case NEG: return -x;
    case MIN_: return x < y ? x : y;
    case MAX_: return x > y ? x : y;
    case BITAND_: return x & y;
    case BITOR_: return x | y;
    case BITXOR_: return x ^ y;
    default: return x < 0 ? -x : x;
    }
}

/* Writes n where something that binds at least as tightly as `least` is needed. */
static void put(const Tree *n, int least, Text *out)
{
    int level = ops[n->op].level, unary = n->op == NOT || n->op == NEG;
    if (level < least)
        text_add(out, "(");
    if (n->op == LEAF) {
        text_add(out, n->text);
    } else if (level == 8) {
        text_printf(out, "%s(", ops[n->op].text);
        put(n->a, 0, out);
        text_add(out, n->b ? ", " : "");
        if (n->b)
            put(n->b, 0, out);
        text_add(out, ")");
    } else {
        if (!unary)
            put(n->a, level + (level == 4), out); /* comparisons do not chain, the others group to the left */
        text_add(out, ops[n->op].text);
        put(unary ? n->a : n->b, unary ? level : level + 1, out);
    }
    if (level < least)
        text_add(out, ")");
}

static void random_masks_mean_what_they_say(void **state)
{
    (void)state;
    Arena *a = arena_new();
    Tree *trees[MASKS];
    const char *written[MASKS];
    Text model = {0};
    text_printf(&model, "model m { layers %d; hidden 8; heads 1; ffn swiglu 8; vocab 8; }\nsequence %d;\n",
                MASKS, SEQUENCE);
    for (int i = 0; i < MASKS; i++) {
        Text t = {0};
        trees[i] = condition(a, 1 + below(3));
        put(trees[i], 0, &t);
        written[i] = arena_copy(a, t.at, t.n);
        text_printf(&model, "mask m%d(a, b) = %s;\n", i, t.at);
        text_free(&t);
    }
    text_add(&model, "attention {\n");
    for (int i = 0; i < MASKS; i++)
        text_printf(&model, "layers %d: m%d(%d, %d);\n", i, i, A, B);
    text_add(&model, "}\n");
    const Program *p = program_of(a, TOPO, model.at);
    int kept = 0;
    for (int i = 0; i < MASKS; i++)
        for (int point = 0; point < POINTS; point++) {
            int64_t q = below(SEQUENCE), k = below(SEQUENCE), wanted = evaluate(trees[i], q, k);
            if ((expr_eval(p->masks[p->layer_mask[i]].expr, q, k, NULL, NULL) != 0) != (wanted != 0))
                fail_msg("%s at q %d, k %d", written[i], (int)q, (int)k);
            kept += wanted != 0;
        }
    assert_in_range(kept, MASKS * POINTS / 10, MASKS * POINTS * 9 / 10); /* not all alike */
    text_free(&model);
    arena_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_masks_mean_what_they_say)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
