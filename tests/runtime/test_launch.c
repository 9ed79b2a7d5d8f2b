/* test_launch.c: starting ranks, ending them, and what is said when one of them fails. */
#include "check.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

static BurstGroup everyone(const BurstPlan *p)
{
    return (BurstGroup){0, 1, p->world};
}

static int occurrences(const char *text, const char *what)
{
    int n = 0;
    for (; (text = strstr(text, what)) != NULL; text++)
        n++;
    return n;
}

/* One line, and this is in it; at once, not at the time-out that ranks have where the test sets none. */
static void expect_failure(Outcome o, int code, const char *text)
{
    const double seconds = scaled_timeout(3);
    if (!strstr(o.text, text))
        print_error("expected '%s' in: %s\n", text, o.text);
    assert_non_null(strstr(o.text, text));
    assert_int_equal(occurrences(o.text, "\n"), 1);
    assert_int_equal(o.code, code);
    if (o.seconds > seconds)
        print_error("took %.2f s\n", o.seconds);
    assert_true(o.seconds <= seconds);
}

/* ---- what a rank gets ---- */
static int note_rank(BurstCtx *c, const BurstPlan *p, void *arg)
{
    int *seen = arg;
    CHECK(c, burst_world(c) == p->world);
    seen[burst_rank(c)]++;
    unsigned char *a = burst_take(c, 100), *b = burst_take(c, 1);
    CHECK(c, a && b && (uintptr_t)a % 64 == 0 && (uintptr_t)b % 64 == 0 && b - a == 128);
    for (int i = 0; i < 100; i++)
        CHECK(c, a[i] == 0);
    CHECK(c, burst_arena_used(c) == 192);
    return BURST_OK;
}

static void every_rank_runs_once(void **unused)
{
    (void)unused;
    for (int world = 1; world <= 8; world++) {
        int *seen = shared_memory(8 * sizeof *seen);
        BurstPlan p = bare_plan(world, 192);
        Outcome o = run_job(&p, NULL, note_rank, seen);
        assert_string_equal(o.text, "");
        assert_int_equal(o.code, 0);
        for (int i = 0; i < 8; i++)
            assert_int_equal(seen[i], i < world);
    }
}

static int take_too_much(BurstCtx *c, const BurstPlan *p, void *arg)
{
    (void)p, (void)arg;
    CHECK(c, burst_take(c, SIZE_MAX) == NULL);
    CHECK(c, burst_take(c, 128) != NULL);
    return burst_take(c, 65) ? BURST_OK : BURST_E_MEMORY;
}

static void arena_has_an_end(void **unused)
{
    (void)unused;
    BurstPlan p = bare_plan(2, 192);
    expect_failure(run_job(&p, NULL, take_too_much, NULL), 1,
                   "the plan reserved 192 bytes for buffers, but 65 more");
}

static void plans_that_cannot_run(void **unused)
{
    (void)unused;
    BurstPlan p = bare_plan(2, 192);
    p.abi++;
    expect_failure(run_job(&p, NULL, note_rank, NULL), 1, "regenerate it with burstc");
    p = bare_plan(6, 192);
    p.data = 2;
    expect_failure(run_job(&p, NULL, note_rank, NULL), 1,
                   "2 data groups of 6 ranks do not match the world size of 6");
    p = bare_plan(4, (size_t)1 << 46);
    expect_failure(run_job(&p, NULL, note_rank, NULL), 1, "this machine has");
    p = bare_plan(2, 192);
    expect_failure(run_job(&p, "never", note_rank, NULL), 2, "--timeout requires a number of seconds");
}

/* ---- failures: rank 2 of 4 does something, the others meet at a barrier ---- */
typedef enum Mishap { FAIL, USAGE, KILLED, ENDS_EARLY, RETURNS, STOPPED, BUSY_OTHERS } Mishap;

static int mishap(BurstCtx *c, const BurstPlan *p, void *arg)
{
    const Mishap *what = arg;
    if (burst_rank(c) != 2) {
        burst_doing(c, "meeting");
        while (*what == BUSY_OTHERS)
            ; /* in a long kernel: notices nothing */
        return burst_barrier(c, everyone(p));
    }
    burst_doing(c, "something special");
    switch (*what) {
    case FAIL:
        return burst_fail(c, BURST_E_IO, "no more %s", "paper");
    case USAGE:
        return burst_fail(c, BURST_E_USAGE, "not like this");
    case ENDS_EARLY:
        _exit(0);
    case STOPPED:
        raise(SIGSTOP);
        return BURST_OK;
    case RETURNS:
        return BURST_OK;
    default:
        raise(SIGKILL);
        return BURST_OK;
    }
}

static Outcome run_mishap(Mishap what, const char *timeout)
{
    BurstPlan p = bare_plan(4, 4096);
    return run_job(&p, timeout, mishap, &what);
}

static void first_error_is_told_once(void **unused)
{
    (void)unused;
    expect_failure(run_mishap(FAIL, NULL), 1, "burst: rank 2, step 0 (something special): no more paper");
    expect_failure(run_mishap(USAGE, NULL), 2, "burst: not like this");
}

static void a_lost_rank_ends_all(void **unused)
{
    (void)unused;
    expect_failure(run_mishap(KILLED, NULL), 1,
                   "lost rank 2, step 0 (something special): killed by signal 9");
    expect_failure(run_mishap(ENDS_EARLY, NULL), 1,
                   "lost rank 2, step 0 (something special): ended early with exit code 0");
    expect_failure(run_mishap(BUSY_OTHERS, NULL), 1,
                   "lost rank 2, step 0 (something special): killed by signal 9");
}

static void waiting_for_one_that_ended(void **unused)
{
    (void)unused;
    expect_failure(run_mishap(RETURNS, NULL), 1, "rank 2, step 0 (ending), which has already exited");
}

static void watchdog_names_the_peer(void **unused)
{
    (void)unused;
    Outcome o = run_mishap(STOPPED, "0.5"); /* whoever notices first: 0 waits for 2, 1 and 3 wait for 0 */
    expect_failure(o, 1, "all wait for rank 2, step 0 (something special)");
    assert_non_null(strstr(o.text, "step 0 (meeting): timed out after 0.5 s (see --timeout)"));
    assert_non_null(strstr(o.text, "8 bytes (channel 14, message 0)"));
    assert_true(o.seconds >= 0.5);
}

static int wait_in_a_circle(BurstCtx *c, const BurstPlan *p, void *arg)
{
    BurstReq req;
    (void)arg;
    BURST_TRY(burst_recv(c, 0, (burst_rank(c) + 1) % p->world, burst_take(c, 8), 8, &req));
    return burst_wait(c, &req);
}

static void watchdog_sees_circles(void **unused)
{
    (void)unused;
    BurstPlan p = bare_plan(3, 4096);
    expect_failure(run_job(&p, "0.3", wait_in_a_circle, NULL), 1, "the ranks wait for each other in a cycle");
}

/* ---- no orphans: the launcher itself is killed ---- */
static int note_and_wait(BurstCtx *c, const BurstPlan *p, void *arg)
{
    pid_t *pids = arg;
    pids[burst_rank(c)] = getpid();
    BURST_TRY(burst_barrier(c, everyone(p)));
    for (;;)
        pause();
}

static bool runs(pid_t pid)
{
    char path[64], state = 'X';
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *f = fopen(path, "r");
    if (!f)
        return false;
    if (fscanf(f, "%*d (%*[^)]) %c", &state) != 1)
        state = 'X';
    fclose(f);
    return state != 'Z' && state != 'X';
}

static int running(const pid_t *pids, int count)
{
    int n = 0;
    for (int i = 0; i < count; i++)
        n += pids[i] && runs(pids[i]);
    return n;
}

static bool come_to(const pid_t *pids, int count, int wanted)
{
    double deadline = burst_seconds() + scaled_timeout(5);
    while (running(pids, count) != wanted && burst_seconds() < deadline)
        usleep(10000);
    return running(pids, count) == wanted;
}

static void launcher_takes_its_ranks_along(void **unused)
{
    (void)unused;
    pid_t *pids = shared_memory(4 * sizeof *pids), launcher = fork();
    BurstPlan p = bare_plan(4, 4096);
    assert_true(launcher >= 0);
    if (launcher == 0)
        _exit(burst_launch(&p, 0, NULL, note_and_wait, pids));
    assert_true(come_to(pids, 4, 4));
    kill(launcher, SIGKILL);
    waitpid(launcher, NULL, 0);
    bool ended = come_to(pids, 4, 0);
    for (int i = 0; i < 4; i++)
        if (pids[i] && runs(pids[i]))
            kill(pids[i], SIGKILL); /* a failed test leaves nothing behind */
    assert_true(ended);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_rank_runs_once),       cmocka_unit_test(arena_has_an_end),
        cmocka_unit_test(plans_that_cannot_run),      cmocka_unit_test(first_error_is_told_once),
        cmocka_unit_test(a_lost_rank_ends_all),       cmocka_unit_test(waiting_for_one_that_ended),
        cmocka_unit_test(watchdog_names_the_peer),    cmocka_unit_test(launcher_takes_its_ranks_along),
        cmocka_unit_test(watchdog_sees_circles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
