/* test_schedules.c: checked schedules: their variables, trees and indices. */
#include "text.h"
#include "ir/expr.h"

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
    assert_true(last->kind == S_RETURN && last->nrefs == 1 && last->refs[0].tensor == T_DQ &&
                last->refs[0].all && !last->next);
    arena_free(a);
}

static void two_levels(void **state)
{
    (void)state;
    Arena *a = arena_new();
    const SchedText *t =
        schedule_of(a, "schedule x over (node n of N, lane l of W) {\n"
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
    const SchedText *t = schedule_of(
        a,
        "schedule x over (r of G) {\n"
        "  forward { exchange Q, KV tokens -> heads over r; attend Q with KV; exchange O heads -> tokens; }\n"
        "  backward { exchange Q KV tokens -> heads; grad Q with KV; exchange dQ, dKV heads -> tokens over "
        "r; } }\n");
    const Stmt *in = t->forward->body, *attend = in->next, *out = attend->next;
    assert_true(t->forward->exchanges && t->backward[TRAVEL_KEYS]->exchanges && in->kind == S_EXCHANGE &&
                in->tokens_to_heads && in->nrefs == 2);
    assert_true(in->refs[0].tensor == T_Q && in->refs[1].tensor == T_KV && in->refs[1].all);
    assert_true(attend->kind == S_ATTEND && attend->refs[0].heads && attend->refs[1].heads);
    assert_true(out->kind == S_EXCHANGE && !out->tokens_to_heads && out->nrefs == 1 &&
                out->refs[0].tensor == T_O && !out->next);
    arena_free(a);
}

#define DERIVED                                                    \
    "schedule derived over (o of O, i of I) {\n"                   \
    "  forward mirrors queries;\n"                                 \
    "  backward queries mirrors keys;\n"                           \
    "  backward keys {\n"                                          \
    "    for s in 0 .. O - 1 { use ring over (i) with KV[o - s, i + 1]; }\n" \
    "    return dKV;\n"                                            \
    "  }\n"                                                        \
    "}\n"

/* ring's `for s ... { if ... { pass KV[r - s] to (r + 1); } grad Q[r] with KV[r - s]; if ... { pass dKV
 * ... } }`, along i of [o - s, i + 1]. */
static void a_schedule_that_is_used(void **state)
{
    (void)state;
    enum { O = 0, I = 1 };
    Arena *a = arena_new();
    const SchedText *t = schedule_of(a, DERIVED);
    const Stmt *own = t->backward[TRAVEL_KEYS]->body, *loop = own->body, *pass = loop->body->body,
               *grad = loop->body->next;
    /* s, s2 */
    const int64_t var[MAX_SCHED_VARS] = {
        [O] = 5, [I] = 2, [MAX_COORDS + O] = 7, [MAX_COORDS + I] = 4, [FIRST_LOOP] = 3, 1};
    assert_string_equal(t->var_name[FIRST_LOOP + 1], "s2");
    assert_true(loop->kind == S_FOR && loop->var == FIRST_LOOP + 1 && !loop->next);
    assert_int_equal(expr_eval(loop->hi, 0, 0, var, NULL), 3);
    assert_true(pass->kind == S_PASS && expr_eval(pass->to[O], 0, 0, var, NULL) == 5 &&
                expr_eval(pass->to[I], 0, 0, var, NULL) == 3);
    assert_true(expr_eval(pass->refs[0].index[O], 0, 0, var, NULL) == 2 &&
                expr_eval(pass->refs[0].index[I], 0, 0, var, NULL) == 2);
    assert_true(grad->kind == S_GRAD && expr_eval(grad->refs[0].index[O], 0, 0, var, NULL) == 5 &&
                grad->refs[1].tensor == T_KV);
    /* ring's is left out */
    assert_true(own->next->kind == S_RETURN && !own->next->next && !own->next->by.src);
    assert_memory_equal(t->source->text + grad->by.begin, "use ring", 8);
    assert_true(grad->span.src != t->source && strstr(grad->span.src->name, "ring.sched"));
    arena_free(a);
}

static void directions_that_mirror(void **state)
{
    (void)state;
    Arena *a = arena_new();
    const SchedText *t = schedule_of(a, DERIVED);
    const Stmt *queries = t->backward[TRAVEL_QUERIES]->body, *forward = t->forward->body;
    const Stmt *grad = queries->body->body->next, *sums = grad->next->body,
               *attend = forward->body->body->next;
    assert_true(grad->kind == S_GRAD && grad->refs[0].tensor == T_Q && grad->refs[1].tensor == T_KV);
    const int64_t var[MAX_SCHED_VARS] = {5, 2, [FIRST_LOOP] = 3, 1};
    assert_true(expr_eval(grad->refs[0].index[0], 0, 0, var, NULL) == 2 &&
                expr_eval(grad->refs[1].index[0], 0, 0, var, NULL) == 5);
    assert_true(queries->body->body->body->refs[0].tensor == T_Q && sums->refs[0].tensor == T_DQ &&
                queries->next->refs[0].tensor == T_DQ);
    assert_true(attend->kind == S_ATTEND && attend->refs[0].tensor == T_Q &&
                attend->next->body->refs[0].tensor == T_O);
    assert_true(forward->next->kind == S_RETURN && forward->next->refs[0].tensor == T_O);
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
        cmocka_unit_test(ring_as_written),
        cmocka_unit_test(forward_tree),
        cmocka_unit_test(backward_tree),
        cmocka_unit_test(two_levels),
        cmocka_unit_test(exchanges),
        cmocka_unit_test(spans_of_statements),
        cmocka_unit_test(a_schedule_that_is_used),
        cmocka_unit_test(directions_that_mirror),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
