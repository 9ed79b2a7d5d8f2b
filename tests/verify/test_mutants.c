/* Every mutant of a planned schedule that can change the result, under some timing, is refused: by a
 * message that names the proof and a place in the .sched. What the verifier accepts, the executor finds
 * right. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tools/tools.h"
#include "cases.h"
#include "executor.h"
#include "mutate.h"

#include <stdlib.h>
#include <string.h>

enum { PROOFS = 7 };
typedef struct Counts { int mutants, harmful, accepted, rejected[PROOFS]; } Counts;
typedef struct Tally {
    const char *phase;
    Counts of[MUTATION_COUNT];
    int faults;
    bool twice; /* mutants of mutants: the message may point at either change */
} Tally;

static void fault(Tally *t, const Mutant *m, const char *what, const char *text)
{
    const Choice *c = m->schedule->choice;
    if (t->faults++ < 40)
        print_message("%s %s, %d x %d, %s: `%s`: %s\n%s\n", c->schedule->name, t->phase, c->size[0],
                      c->size[1], mutation_names[m->kind], m->text, what, text);
}

static int proof_of(const char *text)
{
    const char *at = strstr(text, "error: proof ");
    return at && strstr(at, " (") == at + strlen("error: proof ") + 1 ? atoi(at + strlen("error: proof "))
                                                                      : 0;
}

static int line_of(Span s)
{
    int line, column;
    span_line(s, &line, &column);
    return line;
}

/* In the schedule's own file, and where one statement was changed by itself, at that statement. */
static bool place_is_right(const Tally *tally, const Mutant *m, const char *text)
{
    const SchedText *t = m->schedule->choice->schedule;
    int line = error_line(text), first = line_of(t->span), lines = 1;
    for (const char *c = t->source->text; *c; c++)
        lines += *c == '\n';
    bool named = strncmp(text, t->source->name, strlen(t->source->name)) == 0;
    bool exact = tally->twice || !mutation_exact[m->kind] || line == line_of(stmt_place(m->at));
    return named && line >= first && line <= lines && exact;
}

static void try_mutant(const Mutant *m, void *arg)
{
    Tally *t = arg;
    Arena *a = arena_new();
    Diags *d = diags_new(a);
    bool accepted = verify_schedule(a, d, m->schedule);
    const char *text = printed(a, d);
    Outcome o = execute(a, m->schedule, NULL, NULL);
    Counts *c = &t->of[m->kind];
    int proof = proof_of(text);
    c->mutants++;
    c->accepted += accepted;
    c->harmful += !o.right;
    if (accepted && !o.right)
        fault(t, m, "accepted, but", o.why);
    if (accepted)
        accepted = !*text || (fault(t, m, "accepted with a message", text), true);
    else if (proof < 1 || proof >= PROOFS)
        fault(t, m, "refused without a proof's number", text);
    else if (!place_is_right(t, m, text))
        fault(t, m, "refused at the wrong place", text);
    else
        c->rejected[proof]++;
    arena_free(a);
}

static void print_tally(const char *name, const Tally *t)
{
    for (int k = 0; k < MUTATION_COUNT; k++) {
        const Counts *c = &t->of[k];
        if (!c->mutants)
            continue;
        print_message("  %-8s %-38s %5d mutants, %5d harmful, %4d accepted; by proof", name,
                      mutation_names[k], c->mutants, c->harmful, c->accepted);
        for (int p = 1; p < PROOFS; p++)
            print_message(" %d", c->rejected[p]);
        print_message("\n");
    }
}

/* Schedules that a test here names. */
static const char *checked[32];
static int checked_count;

static void check_schedule(const char *name, const RankShape *shapes, int n)
{
    assert_true(checked_count < countof(checked));
    checked[checked_count++] = name;
    Tally t = {0};
    Arena *a = arena_new();
    const SchedText *text = case_schedule(a, name);
    assert_non_null(text);
    for (int i = 0; i < n; i++) {
        for (int phase = 0; phase < PHASES; phase++) {
            if (!has_phase(text, phase))
                continue;
            t.phase = phase_name(phase);
            each_mutant(plan_phase(a, diags_new(a), text, shapes[i], phase), try_mutant, &t);
        }
    }
    print_tally(name, &t);
    /* double_ring's last passes of sums may be left out: its `return` then brings home what they would */
    const int returned = strcmp(name, "double_ring") == 0 ? t.of[MUTATE_DROP].accepted : 0;
    int harmful = 0;
    for (int k = 0; k < MUTATION_COUNT; k++)
        harmful += t.of[k].harmful;
    arena_free(a);
    assert_int_equal(t.faults, 0);
    assert_true(harmful > 10); /* an executor that finds everything right would prove nothing */
    /* the executor knows no streams: none may be shared */
    assert_int_equal(t.of[MUTATE_CHANNEL].accepted, 0);
    assert_int_equal(t.of[MUTATE_MORE].accepted, t.of[MUTATE_MORE].mutants);
    assert_int_equal(t.of[MUTATE_EXTRA_WAIT].accepted, t.of[MUTATE_EXTRA_WAIT].mutants);
    assert_int_equal(t.of[MUTATE_DROP].harmful + returned, t.of[MUTATE_DROP].mutants);
}

static void mutate_again(const Mutant *m, void *arg)
{
    each_mutant(m->schedule, try_mutant, arg);
}

/* Two changes: one may hide the other from the verifier, or make up for it. */
static void check_twice(const char *name, RankShape shape, int phase)
{
    Tally t = {.phase = phase_name(phase), .twice = true};
    Arena *a = arena_new();
    each_mutant(plan_phase(a, diags_new(a), stock_schedule(a, name), shape, phase), mutate_again, &t);
    print_tally(name, &t);
    arena_free(a);
    assert_int_equal(t.faults, 0);
    assert_true(t.of[MUTATE_SWAP].accepted > 10);
}

static void mutants_of_mutants(void **state)
{
    (void)state;
    for (int phase = 0; phase < PHASES; phase++)
        check_twice("ring", (RankShape){1, 3}, phase);
    check_twice("burst", (RankShape){2, 2}, 1);
    check_twice("burst", (RankShape){2, 2}, 2);
    check_twice("ulysses", (RankShape){1, 3}, 1);
}

static void ring(void **state)
{
    (void)state;
    static const RankShape shapes[] = {{1, 2}, {1, 3}, {1, 4}, {1, 5}};
    check_schedule("ring", shapes, countof(shapes));
}

static void burst(void **state)
{
    (void)state;
    static const RankShape shapes[] = {{2, 2}, {2, 3}, {3, 2}, {3, 1}, {1, 3}, {3, 3}};
    check_schedule("burst", shapes, countof(shapes));
}

/* Passes after computing, in an order that cannot be overlapped: a slot is sent and refilled by one
 * operation. */
static void late(void **state)
{
    (void)state;
    static const RankShape shapes[] = {{1, 3}, {1, 4}, {1, 5}};
    check_schedule("late", shapes, countof(shapes));
}

static void derived(void **state)
{
    (void)state;
    static const RankShape shapes[] = {{2, 2}, {2, 3}};
    check_schedule("derived", shapes, countof(shapes));
}

static void ulysses(void **state)
{
    (void)state;
    static const RankShape shapes[] = {{1, 4}};
    check_schedule("ulysses", shapes, countof(shapes));
}

static void usp(void **state)
{
    (void)state;
    static const RankShape shapes[] = {{2, 2}, {3, 2}, {2, 3}, {3, 1}, {1, 3}};
    check_schedule("usp", shapes, countof(shapes));
}

static void other_rings(void **state)
{
    (void)state;
    static const char *const names[] = {"near", "doubling", "biring", "gather"};
    static const RankShape shapes[] = {{1, 3}, {1, 4}, {1, 5}};
    for (int i = 0; i < countof(names); i++)
        check_schedule(names[i], shapes, countof(shapes));
}

static void pieces(void **state)
{
    (void)state;
    static const RankShape shapes[] = {{1, 2}, {1, 3}, {1, 4}};
    check_schedule("bidirectional", shapes, countof(shapes));
    check_schedule("halo", shapes, 1);
}

static void mesh(void **state)
{
    (void)state;
    static const RankShape shapes[] = {{2, 2}, {2, 3}, {3, 2}};
    check_schedule("mesh", shapes, countof(shapes));
}

static void stride(void **state)
{
    (void)state;
    static const RankShape shapes[] = {{2, 2}, {2, 3}, {3, 2}};
    check_schedule("stride", shapes, countof(shapes));
}

static void three_level(void **state)
{
    (void)state;
    static const RankShape shapes[] = {{2, 2, 2}, {2, 1, 3}};
    check_schedule("three_level", shapes, countof(shapes));
}

/* The last: those that no test above names. */
static void all_others(void **state)
{
    (void)state;
    each_shipped(checked, checked_count, check_schedule);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ring),
        cmocka_unit_test(burst),
        cmocka_unit_test(late),
        cmocka_unit_test(derived),
        cmocka_unit_test(ulysses), cmocka_unit_test(usp),
        cmocka_unit_test(other_rings),
        cmocka_unit_test(pieces),
        cmocka_unit_test(mesh),
        cmocka_unit_test(stride),
        cmocka_unit_test(three_level),
        cmocka_unit_test(all_others),
        cmocka_unit_test(mutants_of_mutants),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
