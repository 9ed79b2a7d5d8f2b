/* test_schedules.c: checked schedules: their variables, trees and indices. */
#include "text.h"

#define RING                                                        \
    "schedule ring over (r of G) {\n"                               \
    "  forward {\n"                                                 \
    "    for s in 0 .. G - 1 {\n"                                   \
    "      attend Q[r] with KV[r - s];\n"                           \
    "      if s < G - 1 { pass KV[r - s] to (r + 1); }\n"           \
    "    }\n"                                                       \
    "  }\n"                                                         \
    "  backward queries {\n"                                        \
    "    for t in 0 .. G - 1 {\n"                                   \
    "      grad Q[r - t] with KV[r];\n"                             \
    "      if t < G - 1 { pass Q[r - t], dQ[r - t] to (r + 1); }\n" \
    "    }\n"                                                       \
    "    for s in 1 .. 1 { }\n"                                     \
    "    return dQ;\n"                                              \
    "  }\n"                                                         \
    "}\n"

enum { R = 0, G = MAX_COORDS, S = 2 * MAX_COORDS };

static int64_t at(const Expr *e, int64_t r, int64_t g, int64_t s)
{
    const int64_t var[MAX_SCHED_VARS] = {[R] = r, [G] = g, [S] = s, [S + 1] = s};
    return expr_eval(e, 0, 0, var, NULL);
}

static void ring_as_written(void **state)
{
    (void)state;
    Arena *a = arena_new();
    const SchedText *t = schedule_of(a, RING);
    assert_string_equal(t->name, "ring");
    assert_int_equal(t->coords, 1);
    assert_string_equal(t->coord_name[0], "r");
    assert_string_equal(t->size_name[0], "G");
    assert_int_equal(t->vars, S + 2); /* s is shared by the loops of both phases */
    assert_string_equal(t->var_name[R], "r");
    assert_string_equal(t->var_name[G], "G");
    assert_string_equal(t->var_name[S], "s");
    assert_string_equal(t->var_name[S + 1], "t");
    assert_false(t->forward->exchanges);
    assert_null(t->backward[TRAVEL_KEYS]);
    assert_non_null(t->backward[TRAVEL_QUERIES]);
    arena_free(a);
}

static void forward_tree(void **state)
{
    (void)state;
    Arena *a = arena_new();
    const Stmt *loop = schedule_of(a, RING)->forward->body;
    assert_true(loop->kind == S_FOR && !loop->next && loop->var == S);
    assert_true(at(loop->lo, 3, 8, 0) == 0 && at(loop->hi, 3, 8, 0) == 7);
    const Stmt *attend = loop->body, *test = attend->next, *pass = test->body;
    assert_true(attend->kind == S_ATTEND && attend->nrefs == 2);
    assert_true(attend->refs[0].tensor == T_Q && attend->refs[1].tensor == T_KV && !attend->refs[1].heads);
    assert_true(at(attend->refs[0].index[0], 3, 8, 5) == 3 && at(attend->refs[1].index[0], 3, 8, 5) == -2);
    assert_true(test->kind == S_IF && at(test->cond, 0, 8, 6) && !at(test->cond, 0, 8, 7) && !test->next);
    assert_true(pass->kind == S_PASS && pass->nrefs == 1 && pass->refs[0].tensor == T_KV &&
                at(pass->to[0], 3, 8, 5) == 4);
    arena_free(a);
}

static void backward_tree(void **state)
{
    (void)state;
    Arena *a = arena_new();
    const Stmt *loop = schedule_of(a, RING)->backward[TRAVEL_QUERIES]->body;
    const Stmt *grad = loop->body, *pass = grad->next->body, *last = loop->next->next;
    assert_int_equal(loop->var, S + 1);
    assert_int_equal(loop->next->var, S);
    assert_true(grad->kind == S_GRAD && at(grad->refs[0].index[0], 3, 8, 5) == -2 &&
                at(grad->refs[1].index[0], 3, 8, 5) == 3);
    assert_true(pass->nrefs == 2 && pass->refs[0].tensor == T_Q && pass->refs[1].tensor == T_DQ);
    assert_true(last->kind == S_RETURN && last->nrefs == 1 && last->refs[0].tensor == T_DQ && last->refs[0].all &&
                !last->next);
    arena_free(a);
}

static void two_levels(void **state)
{
    (void)state;
    Arena *a = arena_new();
    const SchedText *t = schedule_of(a, "schedule x over (node n of N, lane l of W) {\n"
                                        "  forward { for o in 0 .. N - 1 { pass KV[n - o, l] to (n + 1, l); attend "
                                        "Q[n, l] with KV[n - o, l + W - 1]; } }\n"
                                        "  backward { grad Q[n, l] with KV[n, l]; return dQ, dKV; } }\n");
    assert_int_equal(t->coords, 2);
    assert_string_equal(t->coord_name[0], "n");
    assert_string_equal(t->coord_name[1], "l");
    assert_string_equal(t->size_name[1], "W");
    assert_true(t->lanes);
    const Stmt *pass = t->forward->body->body, *attend = pass->next;
    const int64_t var[MAX_SCHED_VARS] = {2, 1, [MAX_COORDS] = 5, 4, [FIRST_LOOP] = 3}; /* n, l, N, W, o */
    assert_int_equal(expr_eval(pass->to[0], 0, 0, var, NULL), 3);
    assert_int_equal(expr_eval(pass->to[1], 0, 0, var, NULL), 1);
    assert_int_equal(expr_eval(attend->refs[1].index[0], 0, 0, var, NULL), -1);
    assert_int_equal(expr_eval(attend->refs[1].index[1], 0, 0, var, NULL), 4);
    assert_ptr_equal(t->backward[TRAVEL_KEYS], t->backward[TRAVEL_QUERIES]);
    assert_int_equal(t->backward[TRAVEL_KEYS]->body->next->nrefs, 2);
    arena_free(a);
}

static void exchanges(void **state)
{
    (void)state;
    Arena *a = arena_new();
    const SchedText *t = schedule_of(a, "schedule x over (r of G) {\n"
        "  forward { exchange Q, KV tokens -> heads over r; attend Q with KV; exchange O heads -> tokens; }\n"
        "  backward { exchange Q KV tokens -> heads; grad Q with KV; exchange dQ, dKV heads -> tokens over r; } }\n");
    const Stmt *in = t->forward->body, *attend = in->next, *out = attend->next;
    assert_true(t->forward->exchanges && t->backward[TRAVEL_KEYS]->exchanges && in->kind == S_EXCHANGE && in->tokens_to_heads && in->nrefs == 2);
    assert_true(in->refs[0].tensor == T_Q && in->refs[1].tensor == T_KV && in->refs[1].all);
    assert_true(attend->kind == S_ATTEND && attend->refs[0].heads && attend->refs[1].heads);
    assert_true(out->kind == S_EXCHANGE && !out->tokens_to_heads && out->nrefs == 1 && out->refs[0].tensor == T_O &&
                !out->next);
    arena_free(a);
}

/* A span of a statement reaches from its word to its ';' or to where its body begins. */
static void spans_of_statements(void **state)
{
    (void)state;
    Arena *a = arena_new();
    const SchedText *t = schedule_of(a, RING);
    const Stmt *loop = t->forward->body, *attend = loop->body;
    const char *text = t->source->text;
    assert_memory_equal(text + loop->span.begin, "for s in 0 .. G - 1", loop->span.end - loop->span.begin);
    assert_int_equal(loop->span.end - loop->span.begin, 19);
    assert_memory_equal(text + attend->span.begin, "attend Q[r] with KV[r - s];",
                        attend->span.end - attend->span.begin);
    int line, column;
    span_line(attend->span, &line, &column);
    assert_true(line == 4 && column == 7);
    arena_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ring_as_written), cmocka_unit_test(forward_tree), cmocka_unit_test(backward_tree),
        cmocka_unit_test(two_levels),      cmocka_unit_test(exchanges),    cmocka_unit_test(spans_of_statements),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
