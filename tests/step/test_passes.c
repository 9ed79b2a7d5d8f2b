/* test_passes.c: what --verify-each checks: it accepts the list after every pass of random layouts, and
 * refuses lists with an operand, a loop, a tensor or an order of operations that cannot be. */
#include "case.h"

#include "step/verify/verify.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

typedef struct Seen { Diags *diags; int passes; const char *last; } Seen;

static void see(void *to, const char *pass, const Step *s)
{
    Seen *seen = to;
    assert_string_equal(pass, step_pass_name(seen->passes++));
    step_check(seen->diags, s, pass);
    seen->last = pass;
}

static void every_pass_leaves_a_list_that_holds(void **state)
{
    (void)state;
    for (int i = 0; i < 240; i++) {
        Case *c = make_split_case(i % 2, i / 2, i % 8 == 3);
        Seen seen = {.diags = diags_new(c->arena)};
        const StepInput in = step_input(c);
        step_make_watched(c->arena, &in, see, &seen);
        if (diags_errors(seen.diags))
            fail_msg("case %d: %s", i, diags_first(seen.diags));
        assert_string_equal(seen.last, "waits");
        assert_null(step_pass_name(seen.passes));
        arena_free(c->arena);
    }
}

/* ---- mutants ---- */

/* Of the list's i-th operation; false: it has none such. */
typedef bool Mutation(Step *s, Block *b, int i);

static bool reads_no_value(Step *s, Block *b, int i)
{
    b->ops.at[i].read[0].value = s->values.n;
    return true;
}

static bool leaves_a_gap(Step *s, Block *b, int i)
{
    (void)s;
    Op *o = &b->ops.at[i];
    const int n = o->write[0].value >= 0 && o->write[1].value >= 0;
    o->write[0].value = n ? -1 : o->write[0].value;
    return n;
}

static bool leaves_the_loop(Step *s, Block *b, int i)
{
    Op *o = &b->ops.at[i];
    const bool inside = i > 0 && i + 1 < b->ops.n && op_same_loop(s, o, o - 1) && op_same_loop(s, o, o + 1);
    o->scope = inside ? 0 : o->scope;
    return inside;
}

static bool is_in_no_scope(Step *s, Block *b, int i)
{
    b->ops.at[i].scope = i % 2 ? s->scopes.n : -1;
    return true;
}

static bool enters(Step *s, Block *b, int i, Scope scope)
{
    b->ops.at[i].scope = scope_add(s, scope);
    return true;
}

static bool is_of_keys_outside(Step *s, Block *b, int i)
{
    return !b->ops.at[i].scope && enters(s, b, i, (Scope){SCOPE_LOOP, LOOP_KEYS});
}

static bool reads_sums_outside(Step *s, Block *b, int i)
{
    return enters(s, b, i, (Scope){SCOPE_BEGUN, LOOP_KEYS, b->ops.at[i].scope}) &&
           !op_in_loop(s, &b->ops.at[i], LOOP_KEYS);
}

static bool is_ahead_outside(Step *s, Block *b, int i)
{
    return !b->ops.at[i].scope && enters(s, b, i, (Scope){SCOPE_AHEAD, LOOP_TOKENS, .turns = 1});
}

static bool lacks_the_first_turns(Step *s, Block *b, int i)
{
    const int loop = b->ops.at[i].scope;
    return loop && s->scopes.at[loop].kind == SCOPE_LOOP &&
           enters(s, b, i, (Scope){SCOPE_AHEAD, s->scopes.at[loop].dim, loop, 1});
}

static bool is_around_itself(Step *s, Block *b, int i)
{
    return enters(s, b, i, (Scope){SCOPE_LOOP, LOOP_TOKENS, s->scopes.n});
}

static bool has_another_units_tensor(Step *s, Block *b, int i)
{
    (void)s;
    Op *o = &b->ops.at[i];
    const bool has = o->weight != NULL;
    o->weight = has ? "nothing.weight" : NULL;
    return has;
}

/* Of the last layer: the one after it has no such value. */
static bool means_the_next_layer(Step *s, Block *b, int i)
{
    Op *o = &b->ops.at[i];
    const bool of_layer = b == &s->block[BLOCK_FORWARD] && o->read[0].value >= 0 && o->kind != OP_WAIT &&
                          s->values.at[o->read[0].value].index == INDEX_LAYER &&
                          !s->values.at[o->read[0].value].host && !op_copies(o->kind);
    o->read[0].next += of_layer ? 1 : 0;
    return of_layer;
}

static bool waits_for_computing(Step *s, Block *b, int i)
{
    (void)s;
    Op *o = &b->ops.at[i];
    o->awaits = o->kind == OP_WAIT ? OP_NORM : o->awaits;
    return o->kind == OP_WAIT;
}

/* How many operations of the whole step write it. */
static int writers(const Step *s, int value)
{
    int n = 0;
    for (int b = 0; b < STEP_BLOCKS; b++)
        for (int i = 0; i < s->block[b].ops.n; i++)
            for (int j = 0; j < OP_WRITES; j++)
                n += s->block[b].ops.at[i].write[j].value == value;
    return n;
}

static bool is_read_after(const Block *b, int i, int value)
{
    for (int k = i + 1; k < b->ops.n; k++)
        for (int j = 0; j < OP_READS && b->ops.at[k].kind != OP_WAIT; j++)
            if (b->ops.at[k].read[j].value == value)
                return true;
    return false;
}

/* One that alone writes what its block reads. */
static bool is_lost(Step *s, Block *b, int i)
{
    const int value = b->ops.at[i].write[0].value;
    const ValueKind k = value >= 0 ? s->values.at[value].kind : VALUE_SCRATCH;
    const bool needed = (k == VALUE_ACTIVATION || k == VALUE_GRADIENT) && writers(s, value) == 1 &&
                        is_read_after(b, i, value);
    if (needed)
        b->ops.at[i].write[0].value = s->values.n, step_add_value(s, s->values.at[value]);
    return needed;
}

static void lists_that_cannot_be_are_refused(void **state)
{
    (void)state;
    static const struct { const char *what; Mutation *mutate; const char *says; } mutants[] = {
        {"reads no value", reads_no_value, "has an operand 0 that is no value"},
        {"leaves a gap", leaves_a_gap, "has an operand 1 behind the last"},
        {"leaves the loop", leaves_the_loop, "is apart from the other operations of its loop"},
        {"no scope", is_in_no_scope, "is in a scope"},
        {"keys outside", is_of_keys_outside, "is a loop over key chunks outside of one over query chunks"},
        {"sums outside", reads_sums_outside, "reads sums outside of a loop over key chunks"},
        {"ahead outside", is_ahead_outside, "is a turn ahead outside of its loop"},
        {"no first turns", lacks_the_first_turns, "is a turn ahead of a loop whose first turns are missing"},
        {"around itself", is_around_itself, "is not inside a scope before it"},
        {"another's tensor", has_another_units_tensor, "has a tensor nothing.weight, which its unit lacks"},
        {"next layer", means_the_next_layer, ""},
        {"waits for computing", waits_for_computing, "waits for rmsnorm, which computing does itself"},
        {"is lost", is_lost, "which no operation before it writes"},
    };
    int made[countof(mutants)] = {0};
    for (int i = 0; i < 16 * countof(mutants); i++) {
        const int m = i % countof(mutants);
        Case *c = make_split_case(i % 2, i / 2, i % 3 == 2);
        Diags *d = diags_new(c->arena);
        Block *b = &c->step->block[i % 3 ? BLOCK_FORWARD : BLOCK_BACKWARD];
        bool mutated = false;
        for (int n = b->ops.n, at = draw(b->ops.n); n > 0 && !mutated; n--, at = (at + 1) % b->ops.n) {
            const Op before = b->ops.at[at];
            mutated = mutants[m].mutate(c->step, b, at);
            if (!mutated)
                b->ops.at[at] = before;
        }
        made[m] += mutated;
        if (mutated && step_check(d, c->step, "some"))
            fail_msg("case %d: %s: accepted", i, mutants[m].what);
        if (mutated && (!strstr(diags_first(d), "after pass `some`: ") ||
                        !strstr(diags_first(d), mutants[m].says)))
            fail_msg("case %d: %s: %s", i, mutants[m].what, diags_first(d));
        arena_free(c->arena);
    }
    for (int m = 0; m < countof(mutants); m++)
        if (made[m] < 2)
            fail_msg("%s: only %d", mutants[m].what, made[m]);
}

/* The formula that the compiler, the runtime and emitted programs share. */
static void visits_are_in_their_order(void **state)
{
    (void)state;
    for (int layers = 1; layers <= 16; layers++)
        for (int group = 1; group <= layers; group++) {
            int unit[VISITS];
            const int visits = visit_units(layers, group, unit);
            assert_int_equal(burst_visits(layers, group, 0), visits);
            for (int v = 0; v < visits; v++)
                assert_int_equal(burst_unit_at(layers, group, 0, v), unit[v]);
        }
}

/* A layer's visit, and those of its experts' units: upwards from the first, or downwards from the last. */
static int visit_layer(int layers, int apart, int layer, bool down, int *unit)
{
    *unit++ = layer;
    for (int g = 0; g < apart; g++)
        *unit++ = layers + 1 + (down ? apart - 1 - g : g) * layers + layer;
    return 1 + apart;
}

/* The same with experts in units of their own. */
static void visits_of_experts_follow_their_layers(void **state)
{
    enum { LAYERS = 9, APART = 4 };
    (void)state;
    for (int layers = 1; layers <= LAYERS; layers++)
        for (int group = 1, apart = 1 + layers % APART; group <= layers; group++) {
            int unit[3 * LAYERS * (1 + APART) + 3] = {0}, n = 1;
            for (int l = 1; l <= layers; l++)
                n += visit_layer(layers, apart, l, false, unit + n);
            unit[n++] = layers + 1;
            for (int l = layers; l >= 1; l--) {
                const bool last_of_group = l % group == 0 && l < layers;
                for (int again = l - group + 1; last_of_group && again < l; again++)
                    n += visit_layer(layers, apart, again, false, unit + n);
                n += visit_layer(layers, apart, l, true, unit + n);
            }
            unit[n++] = 0;
            assert_int_equal(burst_visits(layers, group, apart), n);
            for (int v = 0; v < n; v++)
                assert_int_equal(burst_unit_at(layers, group, apart, v), unit[v]);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_pass_leaves_a_list_that_holds),
        cmocka_unit_test(lists_that_cannot_be_are_refused),
        cmocka_unit_test(visits_are_in_their_order),
        cmocka_unit_test(visits_of_experts_follow_their_layers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
