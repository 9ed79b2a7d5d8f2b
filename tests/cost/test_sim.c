/* The event simulation against times worked out by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tools/tools.h"

#include <math.h>

static void close_to(double got, double expected)
{
    if (!(fabs(got - expected) <= 1e-12 * fmax(1, fabs(expected))))
        fail_msg("got %.17g, expected %.17g", got, expected);
}

static Task moving(double bytes, int from, int to)
{
    return (Task){.bytes = bytes, .resources = 2, .resource = {from, to}};
}

static void chain(void **state)
{
    (void)state;
    Arena *a = arena_new();
    Sim *s = sim_new(a, 0, NULL);
    int x = sim_task(s, (Task){.seconds = 1}), y = sim_task(s, (Task){.seconds = 2}),
        z = sim_task(s, (Task){.seconds = 4});
    sim_after(s, z, x);
    sim_after(s, z, y);
    close_to(sim_run(s), 6);
    close_to(sim_at(s, z)->begin, 2);
    assert_int_equal(sim_at(s, z)->cause, y);
    arena_free(a);
}

/* 12 and 4 bytes over one resource of 2 bytes/s: equal shares until 4 s, then all to the longer: 12 = 4 +
 * 4 * 2 at 8 s. */
static void shared(void **state)
{
    (void)state;
    Arena *a = arena_new();
    const double capacity[] = {2, 100, 100};
    Sim *s = sim_new(a, 3, capacity);
    int x = sim_task(s, moving(12, 0, 1)), y = sim_task(s, moving(4, 0, 2));
    close_to(sim_run(s), 8);
    close_to(sim_at(s, y)->end, 4);
    close_to(sim_at(s, x)->end, 8);
    arena_free(a);
}

/* The second comes 1 s later and has 1 s latency, which takes no bandwidth: alone until 2 s with 4 bytes
 * done, then halves: 4 more bytes each by 6 s, the second is done; the first's last 4 bytes end at 8 s. */
static void latency_and_late_start(void **state)
{
    (void)state;
    Arena *a = arena_new();
    const double capacity[] = {2, 2};
    Sim *s = sim_new(a, 2, capacity);
    int first = sim_task(s, moving(12, 0, 1)), wait = sim_task(s, (Task){.seconds = 1});
    Task late = moving(4, 0, 1);
    late.seconds = 1;
    int second = sim_task(s, late);
    sim_after(s, second, wait);
    close_to(sim_run(s), 8);
    close_to(sim_at(s, second)->begin, 1);
    close_to(sim_at(s, second)->end, 6);
    close_to(sim_at(s, first)->end, 8);
    arena_free(a);
}

/* Three resources: the least share counts. Two transfers of 6 bytes, 3 bytes/s of their own each, 4
 * together. */
static void least_share(void **state)
{
    (void)state;
    Arena *a = arena_new();
    const double capacity[] = {3, 3, 4};
    Sim *s = sim_new(a, 3, capacity);
    sim_task(s, moving(6, 0, 2));
    sim_task(s, moving(6, 1, 2));
    close_to(sim_run(s), 3);
    arena_free(a);
}

static void circle(void **state)
{
    (void)state;
    Arena *a = arena_new();
    Sim *s = sim_new(a, 0, NULL);
    int x = sim_task(s, (Task){.seconds = 1}), y = sim_task(s, (Task){.seconds = 1});
    sim_after(s, x, y);
    sim_after(s, y, x);
    assert_true(isinf(sim_run(s)));
    arena_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chain),  cmocka_unit_test(shared), cmocka_unit_test(latency_and_late_start),
        cmocka_unit_test(least_share), cmocka_unit_test(circle),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
