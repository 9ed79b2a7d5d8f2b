/* Random schedules, judged by the verifier and by the executor: what one accepts the other finds right,
 * and what it refuses is wrong, or one of the restrictions below. What random masks leave of those it
 * accepts is judged as well.
 *
 * test_verify_random [SCHEDULES [SEED]] judges so many. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tools/tools.h"
#include "executor.h"
#include "generate.h"

#include <stdlib.h>
#include <string.h>

/* Right, and refused. docs/schedules.md says why. */
static const struct { const char *message, *why; } restrictions[] = {
    {"sends a chunk to the rank that holds it", "a pass without a hop"},
    {"streams for its transfers", "more streams than the runtime has"},
    {"is already there", "a copy that the receiver has"},
    {"nothing reads", "a copy that nothing reads"},
    {"nothing to send", "a pass or return of sums that are at home"},
};
enum { RESTRICTIONS = countof(restrictions) };
typedef struct Counts {
    int schedules, texts, no_schedule, accepted, exchanged, pieced, wrong, masks, faults,
        restricted[RESTRICTIONS];
} Counts;
static int wanted = 20000;
static uint64_t seed = 1;

static void fault(Counts *n, const Schedule *s, int phase, const char *what, const char *why,
                  const char *messages)
{
    const Choice *c = s->choice;
    if (n->faults++ < 10)
        print_message("%d ranks, %d coordinates, the last of %d, %s: %s: %s\n%s\n%s\n", c->ranks, c->coords,
                      c->size[c->coords - 1], phase_name(phase), what, why, messages,
                      c->schedule->source->text);
}

/* A schedule that is right is right under any mask. */
static void judge_mask(Arena *a, const Schedule *s, int phase, Random *r, Counts *n)
{
    int pairs = s->choice->ranks * choice_chunks(s->choice);
    uint8_t *pair = NEW_ARRAY(a, uint8_t, pairs);
    uint32_t keep = 1 + random_below(r, 3);
    for (int i = 0; i < pairs; i++)
        pair[i] = random_below(r, 4) < keep;
    Live live = prune(a, s, choice_pairs(a, s->choice, s->backward, pair), NULL);
    Diags *d = diags_new(a);
    Outcome o = execute(a, s, &live, pair);
    n->masks++;
    if (!verify_pruned(a, d, s, pair, "random"))
        fault(n, s, phase, "refused under a mask", o.why, printed(a, d));
    else if (!o.right)
        fault(n, s, phase, "accepted under a mask, but", o.why, "");
}

static void judge_refused(Arena *a, const Schedule *s, int phase, const char *messages, Counts *n)
{
    Outcome o = execute(a, s, NULL, NULL);
    n->wrong += !o.right;
    for (int i = 0; i < RESTRICTIONS && o.right; i++)
        if (strstr(messages, restrictions[i].message)) {
            n->restricted[i]++;
            return;
        }
    if (o.right)
        fault(n, s, phase, "refused, but", "right", messages);
}

static bool has_exchange(const Schedule *s)
{
    for (int i = 0; i < s->trace.n; i++)
        if (s->trace.at[i].node->kind == N_EXCHANGE)
            return true;
    return false;
}

static void judge(const SchedText *t, RankShape shape, int phase, Random *r, Counts *n)
{
    Arena *a = arena_new();
    Diags *d = diags_new(a);
    Schedule *s = plan_phase(a, d, t, shape, phase);
    bool accepted = s && verify_schedule(a, d, s);
    n->schedules++;
    if (accepted) {
        Outcome o = execute(a, s, NULL, NULL);
        n->accepted++;
        n->exchanged += has_exchange(s);
        n->pieced += t->pieces > 1;
        if (!o.right)
            fault(n, s, phase, "accepted, but", o.why, "");
        else
            judge_mask(a, s, phase, r, n);
    } else {
        const char *messages = printed(a, d);
        if (error_line(messages) == 0 && n->faults++ < 10)
            print_message("refused without a line: %s\n", messages);
        if (s)
            judge_refused(a, s, phase, messages, n);
        else
            for (int i = 0; i < RESTRICTIONS; i++)
                n->restricted[i] += strstr(messages, restrictions[i].message) != NULL;
    }
    arena_free(a);
}

static void judge_text(RankShape shape, Random *r, Counts *n)
{
    Arena *a = arena_new();
    Diags *d = diags_new(a);
    Text text = {0};
    generate_schedule(r, shape, &text);
    remove("random.sched");
    FILE *f = fopen("random.sched", "w"); /* text_write_file makes sure of the disk, each time */
    assert_true(f && fputs(text.at, f) >= 0 && fclose(f) == 0);
    text_free(&text);
    const SchedText *t = parse_schedule(a, d, NULL, "random.sched");
    n->texts++;
    n->no_schedule += !t;
    for (int phase = 0; t && phase < 2; phase++) /* one backward for both travels */
        judge(t, shape, phase, r, n);
    arena_free(a);
}

static void random_schedules(void **state)
{
    (void)state;
    static const RankShape shapes[] = {{1},          {2},          {3},          {4},         {5},
                                       {6},          {2, 2},       {2, 3},       {3, 2},      {2, 4},
                                       {1, 4},       {2, 2, 2},    {3, 1, 2},    {2, 3, 2},   {1, 2, 3},
                                       {2, 2, 1, 2}, {1, 3, 2, 2}, {2, 1, 4, 1}, {2, 2, 2, 2}};
    Random r = {seed};
    Counts n = {0};
    while (n.schedules < wanted)
        judge_text(shapes[random_below(&r, countof(shapes))], &r, &n);
    print_message("  %d schedules of %d texts, %d of them no schedule: %d accepted (%d with exchanges, %d "
                  "with pieces), and %d of them under a mask; %d wrong and refused;"
                  " right and refused:\n",
                  n.schedules, n.texts, n.no_schedule, n.accepted, n.exchanged, n.pieced, n.masks, n.wrong);
    for (int i = 0; i < RESTRICTIONS; i++)
        print_message("    %5d %s\n", n.restricted[i], restrictions[i].why);
    assert_int_equal(n.faults, 0);
    assert_true(n.accepted > n.schedules / 4 && n.exchanged > n.schedules / 50 &&
                n.pieced > n.schedules / 50 && n.wrong > n.schedules / 4);
}

int main(int argc, char **argv)
{
    wanted = argc > 1 ? atoi(argv[1]) : wanted;
    seed = argc > 2 ? strtoull(argv[2], NULL, 10) : seed;
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_schedules)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
