/* Tasks on several cores: each runs once, also as a task of a task and where no thread can be created. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/base.h"
#include "base/parallel.h"

#include <errno.h>
#include <pthread.h>

enum { TASKS = 100, INNER = 10 };

static int most = TASKS, created; /* threads */

typedef void *Run(void *of);
int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, Run *run, void *of);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, Run *run, void *of);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, Run *run, void *of)
{
    if (created == most)
        return EAGAIN;
    created++;
    return __real_pthread_create(thread, attributes, run, of);
}

typedef struct Sums {
    Arena *arena[TASKS];
    int *inner[TASKS];
} Sums;

static void set(void *inner, int i) { ((int *)inner)[i] += i; }

static void fill(void *sums, int i)
{
    Sums *s = sums;
    s->arena[i] = arena_new();
    s->inner[i] = NEW_ARRAY(s->arena[i], int, INNER);
    parallel(INNER, set, s->inner[i]);
}

static void runs_each_once(int threads)
{
    Arena *a = arena_new();
    Sums s = {0};
    most = threads, created = 0;
    parallel(TASKS, fill, &s);
    assert_true(created <= threads);
    for (int i = 0; i < TASKS; i++) {
        arena_join(a, s.arena[i]);
        for (int k = 0; k < INNER; k++)
            assert_int_equal(s.inner[i][k], k);
    }
    assert_true(arena_bytes(a) >= TASKS * INNER * sizeof(int));
    arena_free(a);
}

static void with_threads(void **state)
{
    (void)state;
    runs_each_once(TASKS);
}

static void with_few_or_none(void **state)
{
    (void)state;
    runs_each_once(1);
    runs_each_once(0);
}

/* An array that moves as it grows keeps what it has, and what is beside it. */
static void grows_in_place(void **state)
{
    (void)state;
    enum { LARGE = 1 << 18 };
    Arena *a = arena_new();
    Vec(int64_t) x = {0}, y = {0};
    for (int64_t i = 0; i < LARGE; i++) {
        *vec_append(a, &x) = i;
        *vec_append(a, &y) = -i;
    }
    for (int64_t i = 0; i < LARGE; i++)
        assert_true(x.at[i] == i && y.at[i] == -i);
    assert_true(arena_bytes(a) < 2 * LARGE * sizeof(int64_t) + (2 << 20));
    arena_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(with_threads),
        cmocka_unit_test(with_few_or_none),
        cmocka_unit_test(grows_in_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
