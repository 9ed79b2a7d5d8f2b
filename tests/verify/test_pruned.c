/* What a mask leaves of a schedule, with one bit flipped at one rank, or both ends of a transfer, or one
 * tile cut from what a transfer carries: where the executor finds that the result changes, the verifier
 * must refuse; and it refuses computing that no pair needs, and tiles that nothing reads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tools/tools.h"
#include "cases.h"
#include "executor.h"
#include "proof/internal.h"

#include <string.h>

typedef struct Counts { int mutants, harmful, accepted, faults; } Counts;
typedef struct Pruned {
    Arena *arena;
    const Schedule *s;
    Live live;
    const uint8_t *pair;
    const BurstPairTiles *tiles;
    Counts *counts;
} Pruned;
enum { TILES = 9 }; /* of a chunk, where transfers carry ranges */

/* needless: nothing that it carries is used. */
static void judge(const Pruned *p, int op, int rank, unsigned bits, bool needless)
{
    Arena *a = arena_new();
    Diags *d = diags_new(a);
    Outcome o = p->tiles ? execute_ranges(a, p->s, &p->live, p->pair, p->tiles, TILES)
                         : execute(a, p->s, &p->live, p->pair);
    const uint8_t *rows = choice_pairs(a, p->s->choice, p->s->backward, p->pair);
    bool accepted = verify_live(a, d, p->s, p->live, rows, p->tiles, "mutant");
    const char *text = printed(a, d);
    p->counts->mutants++;
    p->counts->harmful += !o.right;
    p->counts->accepted += accepted;
    bool named = accepted ? !*text : strstr(text, "error: proof 3 (") && error_line(text) > 0;
    if ((accepted && (!o.right || needless)) || !named) {
        if (p->counts->faults++ < 20)
            print_message("%s, %s, bits %u of rank %d: %s: %s\n%s", p->s->choice->schedule->name,
                          instance_text(a, p->s, &p->s->trace.at[op]), bits, rank,
                          accepted ? "accepted" : "refused", o.why, text);
    }
    arena_free(a);
}

static uint8_t *bits_at(const Pruned *p, int op, int rank)
{
    return &p->live.op[(size_t)op * (size_t)p->live.ranks + (size_t)rank];
}

static void flip(const Pruned *p, int op, int rank)
{
    const Instance *i = &p->s->trace.at[op];
    if (i->node->kind == N_EXCHANGE)
        return; /* whatever the mask leaves */
    unsigned one[2] = {BURST_LIVE_SEND, BURST_LIVE_RECV};
    if (i->node->kind == N_COMPUTE)
        one[0] = one[1] = BURST_LIVE_COMPUTE;
    for (int j = 0; j < (one[0] == one[1] ? 1 : 2); j++) {
        *bits_at(p, op, rank) ^= (uint8_t)one[j];
        judge(p, op, rank, one[j], false);
        *bits_at(p, op, rank) ^= (uint8_t)one[j];
    }
    if (i->node->kind == N_COMPUTE)
        return;
    int to = rel_add(p->s->choice, rank, i->hop); /* both ends */
    *bits_at(p, op, rank) ^= BURST_LIVE_SEND;
    *bits_at(p, op, to) ^= BURST_LIVE_RECV;
    judge(p, op, rank, BURST_LIVE_SEND | BURST_LIVE_RECV, false);
    *bits_at(p, op, rank) ^= BURST_LIVE_SEND;
    *bits_at(p, op, to) ^= BURST_LIVE_RECV;
}

/* Of a run of what arrives: with one more tile at either end, or of a chunk of which some arrives all: more
 * than is needed, which changes no result. */
static void widen(const Pruned *p, int op, int rank)
{
    BurstTileRanges *tiles = &p->live.tiles[(size_t)op * (size_t)p->live.ranks + (size_t)rank],
                    right = *tiles;
    for (int i = 0; i < burst_ranges_count(&right) && p->s->trace.at[op].node->kind != N_COMPUTE; i++) {
        const BurstTileRange run = right.at[i], before = i ? right.at[i - 1] : (BurstTileRange){-1, -1},
                             after = i + 1 < burst_ranges_count(&right) ? right.at[i + 1]
                                                                        : (BurstTileRange){TILES + 1, 0};
        if (run.lo - 1 > before.hi)
            tiles->at[i].lo = run.lo - 1, judge(p, op, rank, 0, true);
        tiles->at[i] = run;
        if (run.hi + 1 < after.lo)
            tiles->at[i].hi = run.hi + 1, judge(p, op, rank, 0, true);
        tiles->at[i] = run;
    }
    const int last = burst_ranges_count(&right) - 1;
    *tiles = burst_tiles_from(0, TILES);
    if (last >= 0 && (right.at[0].lo > 0 || right.at[last].hi < TILES))
        judge(p, op, rank, 0, true);
    *tiles = right;
}

/* Of a run of what arrives: one tile less at either end, the same one tile on, nothing. */
static void cut(const Pruned *p, int op, int rank)
{
    BurstTileRanges *tiles = &p->live.tiles[(size_t)op * (size_t)p->live.ranks + (size_t)rank],
                    right = *tiles;
    if (p->s->trace.at[op].node->kind == N_COMPUTE)
        return;
    for (int i = 0; i < burst_ranges_count(&right); i++) {
        const BurstTileRange run = right.at[i];
        const BurstTileRange wrong[] = {{run.lo + 1, run.hi},
                                        {run.lo, run.hi - 1},
                                        {run.lo + 1, run.hi + 1},
                                        {0, 0}};
        for (int n = 0; n < countof(wrong); n++) {
            *tiles = burst_tiles_from(wrong[n].lo, wrong[n].hi);
            for (int other = 0; other < BURST_RANGES; other++)
                *tiles = other == i
                             ? *tiles
                             : burst_join(*tiles, burst_tiles_from(right.at[other].lo, right.at[other].hi));
            judge(p, op, rank, 0, false);
        }
    }
    *tiles = right;
}

/* Some of the tiles, up to more runs than a transfer may have. */
static BurstTileRanges random_tiles(Random *r)
{
    const uint32_t dense = 1 + random_below(r, 3);
    BurstTileRanges some = burst_tiles_from(0, 0);
    for (int tile = 0; tile < TILES; tile++)
        if (random_below(r, 4) < dense || (tile == TILES - 1 && !burst_has_tiles(some)))
            some = burst_join(some, burst_tiles_from(tile, tile + 1));
    return some;
}

static BurstPairTiles *random_pairs(Arena *a, int pairs, Random *r)
{
    BurstPairTiles *tiles = NEW_ARRAY(a, BurstPairTiles, pairs);
    for (int i = 0; i < BURST_SIDES * pairs; i++)
        tiles[i / BURST_SIDES].side[i % BURST_SIDES] = random_tiles(r);
    return tiles;
}

static void check_mask(const SchedText *t, RankShape shape, int phase, Random *r, Counts *n, bool ranges)
{
    Arena *a = arena_new();
    Schedule *s = plan_phase(a, diags_new(a), t, shape, phase);
    int ranks = s->choice->ranks, pairs = ranks * choice_chunks(s->choice);
    uint8_t *pair = NEW_ARRAY(a, uint8_t, pairs);
    uint32_t keep = 1 + random_below(r, 3);
    for (int i = 0; i < pairs; i++)
        pair[i] = random_below(r, 4) < keep;
    const BurstPairTiles *tiles = ranges ? random_pairs(a, pairs, r) : NULL;
    Pruned p = {a, s, prune(a, s, choice_pairs(a, s->choice, s->backward, pair), tiles), pair, tiles, n};
    if (ranges)
        assert_string_equal(execute_ranges(a, s, &p.live, pair, tiles, TILES).why, "");
    assert_true(verify_live(a, diags_new(a), s, p.live, choice_pairs(a, s->choice, s->backward, pair), tiles,
                            "random"));
    for (int op = 0; op < s->trace.n; op++)
        for (int rank = 0; rank < ranks; rank++)
            if (ranges)
                cut(&p, op, rank), widen(&p, op, rank);
            else
                flip(&p, op, rank);
    arena_free(a);
}

static void check_schedule(const char *name, const RankShape *shapes, int count, bool ranges)
{
    Arena *a = arena_new();
    Counts n = {0};
    Random r = {3};
    const SchedText *t = stock_schedule(a, name);
    for (int i = 0; i < count; i++)
        for (int phase = 0; phase < PHASES; phase++)
            for (int sample = 0; sample < 3 && has_phase(t, phase); sample++)
                check_mask(t, shapes[i], phase, &r, &n, ranges);
    print_message("  %-8s %d mutants, %d harmful, %d accepted\n", name, n.mutants, n.harmful, n.accepted);
    arena_free(a);
    assert_int_equal(n.faults, 0);
    assert_true(n.harmful > n.mutants / 3);
}

static void ring(void **state)
{
    (void)state;
    static const RankShape shapes[] = {{1, 3}, {1, 4}, {1, 5}};
    check_schedule("ring", shapes, countof(shapes), false);
}

static void burst(void **state)
{
    (void)state;
    static const RankShape shapes[] = {{2, 2}, {2, 3}, {3, 2}};
    check_schedule("burst", shapes, countof(shapes), false);
}

static void bidirectional(void **state)
{
    (void)state;
    static const RankShape shapes[] = {{1, 3}, {1, 4}, {1, 5}};
    check_schedule("bidirectional", shapes, countof(shapes), false);
}

static void usp(void **state)
{
    (void)state;
    static const RankShape shapes[] = {{3, 2}, {2, 3}, {4, 2}};
    check_schedule("usp", shapes, countof(shapes), false);
}

static void ranges(void **state)
{
    (void)state;
    static const RankShape flat[] = {{1, 3}, {1, 4}}, two[] = {{2, 2}, {3, 2}};
    static const char *const names[] = {"ring", "near", "bidirectional", "biring", "gather", "doubling"};
    for (int i = 0; i < countof(names); i++)
        check_schedule(names[i], flat, countof(flat), true);
    check_schedule("burst", two, countof(two), true);
    check_schedule("double_ring", two, countof(two), true);
    check_schedule("mesh", two, countof(two), true);
    check_schedule("stride", two, countof(two), true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ring),
        cmocka_unit_test(burst),
        cmocka_unit_test(bidirectional),
        cmocka_unit_test(usp),
        cmocka_unit_test(ranges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
