/* test_host_side.c: what the CUDA runtime asks of the host runtime, as far as it needs no device. */
#include "check.h"
#include "cuda/device/host_side.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

enum { MOST = 8 };
typedef struct Note { uint8_t byte[HOST_SHARED_BYTES]; } Note;

static Note note_of(int rank, int round, size_t bytes)
{
    Note n;
    for (size_t i = 0; i < sizeof n; i++)
        n.byte[i] = i < bytes ? (uint8_t)(rank * 31 + round * 7 + (int)i * 3 + 1) : 0xee;
    return n;
}

/* Again and again with other sizes: what a round sends is not what the next has put in its place. */
static int share_and_collect(BurstCtx *c, const BurstPlan *p, void *arg)
{
    (void)arg;
    const int me = burst_rank(c);
    for (int round = 0; round < 20; round++) {
        const size_t bytes = round == 19 ? HOST_SHARED_BYTES : 8 + (size_t)round * 8;
        const Note mine = note_of(me, round, bytes);
        uint8_t all[MOST * HOST_SHARED_BYTES], root[MOST * HOST_SHARED_BYTES];
        BURST_TRY(host_share(c, &mine, bytes, all));
        BURST_TRY(host_collect(c, &mine, bytes, root));
        for (int i = 0; i < p->world; i++) {
            const Note theirs = note_of(i, round, bytes);
            CHECK(c, memcmp(all + (size_t)i * bytes, theirs.byte, bytes) == 0);
            CHECK(c, me != 0 || memcmp(root + (size_t)i * bytes, theirs.byte, bytes) == 0);
        }
    }
    CHECK(c, host_plan(c)->world == p->world && host_locals(c) == p->world && host_local(c) == me);
    return BURST_OK;
}

static void all_ranks_hear_of_each_other(void **unused)
{
    (void)unused;
    for (int world = 1; world <= MOST; world++) {
        BurstPlan p = bare_plan(world, 64);
        Outcome o = run_job(&p, "20", share_and_collect, NULL);
        assert_string_equal(o.text, "");
        assert_int_equal(o.code, 0);
    }
}

/* Pages of odd sizes are zero from end to end, can be written, and go back. */
static int take_pages(BurstCtx *c, const BurstPlan *p, void *arg)
{
    (void)p, (void)arg;
    static const size_t sizes[] = {1, 4095, 4096, 4097, (6 << 20) + 12345};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        char *at = host_pages(c, sizes[i]);
        CHECK(c, at != NULL);
        for (size_t x = 0; x < sizes[i]; x++)
            CHECK(c, at[x] == 0);
        memset(at, 1, sizes[i]);
        host_pages_free(at, sizes[i]);
    }
    CHECK(c, host_pages(c, (size_t)1 << 62) == NULL);
    return BURST_OK;
}

static void pages_are_zero_and_whole(void **unused)
{
    (void)unused;
    for (int world = 1; world <= 3; world++) {
        BurstPlan p = bare_plan(world, 64);
        Outcome o = run_job(&p, "20", take_pages, NULL);
        assert_string_equal(o.text, "");
        assert_int_equal(o.code, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(all_ranks_hear_of_each_other),
                                       cmocka_unit_test(pages_are_zero_and_whole)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
