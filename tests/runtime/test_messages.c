/* test_messages.c: messages and collectives on one host, with 2 to 64 ranks. */
#include "exchange.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

static void expect_ok(Outcome o)
{
    assert_string_equal(o.text, "");
    assert_int_equal(o.code, 0);
}

static void run_exchange(int world, Exchange e, Body body)
{
    BurstPlan p = bare_plan(world, exchange_arena(world, &e));
    expect_ok(run_job(&p, "30", body, &e));
}

static void random_patterns(void **unused)
{
    (void)unused;
    for (uint64_t seed = 1; seed <= 6; seed++) {
        run_exchange(2, (Exchange){seed, 300, 3000}, exchange_messages);
        run_exchange(3 + (int)seed, (Exchange){seed, 400, 50000}, exchange_messages);
    }
}

static void collectives_match_serial_sums(void **unused)
{
    (void)unused;
    for (int world = 1; world <= 8; world++)
        run_exchange(world, (Exchange){(uint64_t)world, 0, 4000}, exchange_collectives);
}

static void many_ranks(void **unused)
{
    (void)unused;
    run_exchange(64, (Exchange){7, 1000, 200}, exchange_messages);
    run_exchange(64, (Exchange){8, 0, 40}, exchange_collectives);
}

/* ---- one barrier separates before from after ---- */
static int count_and_meet(BurstCtx *c, const BurstPlan *p, void *arg)
{
    int *count = arg;
    for (int round = 1; round <= 50; round++) {
        __atomic_add_fetch(count, 1, __ATOMIC_SEQ_CST);
        BURST_TRY(burst_barrier(c, (BurstGroup){0, 1, p->world}));
        CHECK(c, __atomic_load_n(count, __ATOMIC_SEQ_CST) >= round * p->world);
    }
    return BURST_OK;
}

static void barriers(void **unused)
{
    (void)unused;
    BurstPlan p = bare_plan(5, 4096);
    expect_ok(run_job(&p, NULL, count_and_meet, shared_memory(sizeof(int))));
}

/* ---- a gather's result does not wait for members that only come later ---- */
static int gather_early(BurstCtx *c, const BurstPlan *p, void *arg)
{
    int *seen = arg, me = burst_rank(c);
    float *shard = burst_take(c, 64), *full = burst_take(c, 64);
    BurstGather op;
    shard[0] = (float)me + 1;
    BURST_TRY(burst_gather_start(c, (BurstGroup){0, 1, p->world}, shard, 1, full, &op));
    if (me == 1) /* has started, and waits only when rank 0 has its result */
        while (!__atomic_load_n(seen, __ATOMIC_SEQ_CST))
            ;
    BURST_TRY(burst_gather_wait(c, &op));
    CHECK(c, full[0] == 1 && full[1] == 2);
    __atomic_store_n(seen, 1, __ATOMIC_SEQ_CST);
    return BURST_OK;
}

static void gather_needs_only_the_start(void **unused)
{
    (void)unused;
    BurstPlan p = bare_plan(2, 4096);
    expect_ok(run_job(&p, "10", gather_early, shared_memory(sizeof(int))));
}

/* ---- a last message, and its receiver ends: the sender must not take that for a loss ---- */
static int last_message(BurstCtx *c, const BurstPlan *p, void *arg)
{
    BurstReq req;
    float *data = burst_take(c, 4);
    (void)p, (void)arg;
    if (burst_rank(c) == 0)
        BURST_TRY(burst_send(c, 0, 1, data, 4, &req));
    else
        BURST_TRY(burst_recv(c, 0, 0, data, 4, &req));
    return burst_wait(c, &req);
}

static void ending_after_the_last_message(void **unused)
{
    (void)unused;
    BurstPlan p = bare_plan(2, 4096);
    for (int i = 0; i < 300; i++)
        expect_ok(run_job(&p, "10", last_message, NULL));
}

/* ---- what must be refused ---- */
static int different_sizes(BurstCtx *c, const BurstPlan *p, void *arg)
{
    BurstReq req;
    float *data = burst_take(c, 256);
    (void)p, (void)arg;
    if (burst_rank(c) == 1)
        BURST_TRY(burst_send(c, 3, 2, data, 100, &req));
    else if (burst_rank(c) == 2)
        BURST_TRY(burst_recv(c, 3, 1, data, 200, &req));
    else
        return BURST_OK;
    return burst_wait(c, &req);
}

static void size_mismatch_names_both(void **unused)
{
    (void)unused;
    BurstPlan p = bare_plan(3, 4096);
    Outcome o = run_job(&p, "300", different_sizes, NULL);
    assert_int_equal(o.code, 1);
    assert_non_null(
        strstr(o.text, "rank 1 sent 100 bytes to rank 2 on channel 3 (message 0), but it expects 200"));
    assert_true(o.seconds < scaled_timeout(5)); /* and not at the time-out */
}

typedef struct Wrong { int channel, peer; const char *text; } Wrong;

static int send_wrong(BurstCtx *c, const BurstPlan *p, void *arg)
{
    const Wrong *w = arg;
    static float elsewhere[4];
    BurstReq req;
    (void)p;
    if (burst_rank(c) != 0)
        return BURST_OK;
    int status = burst_send(c, w->channel, w->peer, elsewhere, sizeof elsewhere, &req);
    CHECK(c, status == BURST_E_PLAN);
    CHECK(c, strstr(burst_error(c), w->text));
    return BURST_OK;
}

static void wrong_sends_are_refused(void **unused)
{
    (void)unused;
    static Wrong wrong[] = {{0, 1, "from outside its arena"},     {0, 0, "addresses rank 0"},
                            {0, 2, "addresses rank 2"},           {0, -1, "addresses rank -1"},
                            {16, 1, "channel 16 does not exist"}, {-1, 1, "channel -1 does not exist"}};
    BurstPlan p = bare_plan(2, 4096);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        expect_ok(run_job(&p, NULL, send_wrong, &wrong[i]));
}

static int too_many_gathers(BurstCtx *c, const BurstPlan *p, void *arg)
{
    BurstGather op[5];
    float *shard = burst_take(c, 64), *full = burst_take(c, 512);
    BurstGroup all = {0, 1, p->world};
    (void)arg;
    for (int i = 0; i < 4; i++)
        BURST_TRY(burst_gather_start(c, all, shard, 1, full + i * p->world, &op[i]));
    CHECK(c, burst_gather_start(c, all, shard, 1, full, &op[4]) == BURST_E_PLAN);
    CHECK(c, strstr(burst_error(c), "more than 4 all-gathers"));
    CHECK(c, burst_allreduce(c, all, &(double){0}, 65) == BURST_E_PLAN);
    CHECK(c, burst_barrier(c, (BurstGroup){burst_rank(c) + 1, 2, 2}) == BURST_E_PLAN);
    CHECK(c, strstr(burst_error(c), "is not a member of the group"));
    for (int i = 0; i < 4; i++)
        BURST_TRY(burst_gather_wait(c, &op[i]));
    return BURST_OK;
}

static void collectives_refuse_misuse(void **unused)
{
    (void)unused;
    BurstPlan p = bare_plan(3, 4096);
    expect_ok(run_job(&p, NULL, too_many_gathers, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_patterns),           cmocka_unit_test(collectives_match_serial_sums),
        cmocka_unit_test(many_ranks),                cmocka_unit_test(barriers),
        cmocka_unit_test(gather_needs_only_the_start), cmocka_unit_test(ending_after_the_last_message),
        cmocka_unit_test(size_mismatch_names_both),
        cmocka_unit_test(wrong_sends_are_refused),   cmocka_unit_test(collectives_refuse_misuse),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
