/* test_slices.c: units in slices (step/passes/model.c), of random models over 2 to 5 ranks: each element of a
 * unit is on each rank, or in exactly one rank's slice, counted element by element; the verifier accepts
 * their steps, and rejects every number of a layout that is wrong. */
#include "case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { CASES = 60, ALIGN_OF_SLICES = 64 };

static Units slice(Case *c, int ranks)
{
    const Shape shape = program_shape(&c->program);
    c->program.cluster.world = ranks;
    c->program.infer = (Infer){.lengths = 1, .length = {c->n}, .tokens = 9};
    return units_make(c->arena, &c->program, &shape, 0, true);
}

/* Elements of each rank's shard, in the order of the gathered unit. */
static void count_elements(const Unit *u, const char *where)
{
    uint8_t *times = calloc((size_t)unit_gathered(u) + 1, 1);
    int64_t at = u->whole, slices = 0;
    memset(times, 1, (size_t)u->whole);
    for (const UnitTensor *t = u->tensor; t < u->tensor + u->tensors; t++) {
        if (t->slice <= 0)
            continue;
        for (int rank = 0; rank < u->ranks; rank++)
            for (int64_t i = 0; i < t->slice; i++)
                times[at + rank * t->slice + i]++;
        assert_int_equal(t->slice_at, u->whole + slices);
        at += u->ranks * t->slice, slices += t->slice;
    }
    assert_int_equal(at, unit_gathered(u));
    assert_int_equal(u->shard, u->whole + slices);
    uint8_t *used = calloc((size_t)unit_gathered(u) + 1, 1);
    for (const UnitTensor *t = u->tensor; t < u->tensor + u->tensors; t++)
        for (int64_t i = t->offset; i < t->offset + t->rows * t->cols; i++) {
            if (times[i] != 1 || used[i]++)
                fail_msg("%s, %s: element %lld of %s is held %d times", where, u->name, (long long)i, t->name,
                         times[i]);
            assert_true(t->slice != 0 || i < u->whole);
        }
    free(times);
    free(used);
}

static void each_element_is_there_once(void **state)
{
    (void)state;
    int sliced = 0;
    for (int i = 0; i < CASES; i++) {
        Case *c = make_case(i % 2, 0);
        const Units u = slice(c, 2 + i % 4);
        for (int k = 0; k < u.n; k++) {
            count_elements(&u.at[k], i % 2 ? "device" : "host");
            sliced += u.at[k].shard < u.at[k].elements;
        }
        arena_free(c->arena);
    }
    assert_true(sliced > CASES);
}

static bool accepted(Case *c, Units units)
{
    StepInput in = step_input(c);
    in.units = units;
    Step *s = step_make_watched(c->arena, &in, NULL, NULL);
    Flow *f = step_flow(c->arena, s);
    step_pack(c->arena, f, 4, (MemoryBudget){0});
    Diags *d = diags_new(c->arena);
    const bool ok = step_verify(c->arena, d, f);
    assert_int_equal(ok, diags_errors(d) == 0);
    return ok;
}

/* A copy in which unit k's tensor t can be changed. */
static Units copied(Case *c, Units u, int k, UnitTensor **tensor, Unit **unit)
{
    Unit *at = NEW_ARRAY(c->arena, Unit, u.n);
    memcpy(at, u.at, sizeof *at * (size_t)u.n);
    *tensor = NEW_ARRAY(c->arena, UnitTensor, at[k].tensors);
    memcpy(*tensor, at[k].tensor, sizeof **tensor * (size_t)at[k].tensors);
    at[k].tensor = *tensor;
    *unit = &at[k];
    u.at = at;
    return u;
}

/* One number that is wrong; false: it does not apply to the tensor. */
static bool break_it(int how, UnitTensor *t, Unit *u)
{
    switch (how) {
    case 0: t->offset += t->cols; return true;
    case 1: t->slice_at += t->cols; return t->slice > 0;
    case 2: t->slice += t->cols; return t->slice - t->cols > 0;
    case 3: t->slice -= t->cols; return t->slice + t->cols > 0;
    case 4: t->slice = 0; return t->slice_at > 0;
    case 5: t->slice = t->cols; return t->slice_at == 0 && u->whole > 0;
    case 6: u->shard -= ALIGN_OF_SLICES; return true;
    default: u->whole -= ALIGN_OF_SLICES; return u->whole >= 0;
    }
}

static void wrong_numbers_are_rejected(void **state)
{
    (void)state;
    int wrong = 0;
    for (int i = 0; i < CASES; i++) {
        Case *c = make_case(i % 2, 0);
        const Units u = slice(c, 2 + i % 4);
        c->choice = (Choice){.data = 1, .ranks = 1};
        c->program.layer_mask = NEW_ARRAY(c->arena, int, c->program.model.layers);
        if (!accepted(c, u))
            fail_msg("case %d is rejected", i);
        for (int how = 0; how < 8; how++) {
            const int k = draw(u.n);
            UnitTensor *t;
            Unit *unit;
            Units x = copied(c, u, k, &t, &unit);
            if (!unit->tensors || !break_it(how, &t[draw(unit->tensors)], unit))
                continue;
            wrong++;
            if (accepted(c, x))
                fail_msg("case %d, %s: change %d is accepted", i, unit->name, how);
        }
        arena_free(c->arena);
    }
    assert_true(wrong > 2 * CASES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_element_is_there_once),
        cmocka_unit_test(wrong_numbers_are_rejected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
