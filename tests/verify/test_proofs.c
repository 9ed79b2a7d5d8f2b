/* Proofs about the cluster: links (5), memory (6); all six of a draft that burstc makes itself. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "cases.h"
#include "proof/internal.h"
#include "tools/tools.h"

#include <string.h>

typedef struct Case { Arena *arena; Diags *diags; Program program; NodeGroup group[2]; Choice choice; } Case;

/* The driver tests' small cluster and model: 2 nodes of 2 ranks. Its program may be changed before it is
 * verified. */
static Case *small_case(const char *schedule)
{
    Arena *a = arena_new();
    Case *k = NEW(a, Case);
    k->arena = a;
    k->diags = diags_new(a);
    FrontEnd in = {.target = &targets[TARGET_C],
                   .topo_path = SOURCE_DIR "/../driver/small.topo",
                   .model_path = SOURCE_DIR "/../driver/small.burst",
                   .stock_dir = STOCK_DIR};
    const Program *p = front_end(a, k->diags, &in);
    if (!p)
        fail_msg("%s", printed(a, k->diags));
    k->program = *p;
    k->group[0] = p->cluster.groups[0];
    k->program.cluster.groups = k->group;
    k->choice = (Choice){.data = 1,
                         .ranks = 4,
                         .schedule = stock_schedule(a, schedule),
                         .partition = PART_ZIGZAG,
                         .travel = TRAVEL_QUERIES};
    const int coords = k->choice.schedule->coords;
    choice_set_sizes(&k->choice, coords, (const int[]){coords == 2 ? 2 : 4, 2});
    return k;
}

static const Plan *verify_case(Case *k)
{
    Draft *t = NEW(k->arena, Draft);
    *t = draft_make(k->arena, k->diags, &k->program, &k->choice);
    assert_int_not_equal(t->attention.n, 0);
    return verify(k->arena, k->diags, t);
}

/* No plan, one error, which begins so and stands in a file whose name ends so. */
static void refused(Case *k, const char *message, const char *file)
{
    assert_null(verify_case(k));
    assert_int_equal(diags_errors(k->diags), 1);
    const char *text = printed(k->arena, k->diags), *error = strstr(text, ": error: ");
    if (!error || strncmp(error + strlen(": error: "), message, strlen(message)) != 0)
        fail_msg("not '%s':\n%s", message, text);
    assert_true(error_line(text) > 0);
    const char *named = strstr(text, file);
    assert_true(named && named < error);
    arena_free(k->arena);
}

static void all_hold(void **state)
{
    (void)state;
    static const char *const schedules[] = {"ring", "burst", "ulysses"};
    for (int i = 0; i < countof(schedules); i++) {
        Case *k = small_case(schedules[i]);
        assert_non_null(verify_case(k));
        assert_int_equal(diags_errors(k->diags), 0);
        arena_free(k->arena);
    }
}

static void no_nics(void **state)
{
    (void)state;
    static const struct { const char *schedule, *message;
    } cases[] = {
        {"ring", "proof 5 (links and streams) fails: rank 1 sends to rank 2 on another node, but its node "
                 "has no nics"},
        {"burst", "proof 5 (links and streams) fails: rank 0 sends to rank 2 on another node, but its node "
                  "has no nics"},
        {"ulysses", "proof 5 (links and streams) fails: rank 1 sends to rank 2 on another node, but its node "
                    "has no nics"},
    };
    for (int i = 0; i < countof(cases); i++) {
        Case *k = small_case(cases[i].schedule);
        k->group[0].nics = 0;
        refused(k, cases[i].message, ".sched:");
    }
}

/* The other end has none. */
static void no_nics_there(void **state)
{
    (void)state;
    Case *k = small_case("ring");
    k->group[1] = k->group[0];
    k->group[0].nodes = k->group[1].nodes = 1;
    k->group[1].nics = 0;
    k->program.cluster.group_count = 2;
    refused(k,
            "proof 5 (links and streams) fails: rank 1 sends to rank 2 on another node, but that node has no "
            "nics",
            ".sched:");
}

/* The layers of its first mask by ring, those of the second by near. */
static Case *layered_case(void)
{
    Case *k = small_case("ring");
    MaskChoice *of = NEW_ARRAY(k->arena, MaskChoice, 2);
    assert_int_equal(k->program.mask_count, 2);
    for (int m = 0; m < 2; m++)
        of[m] = (MaskChoice){k->program.masks[m].text,
                             m ? stock_schedule(k->arena, "near") : k->choice.schedule,
                             m ? TRAVEL_KEYS : TRAVEL_QUERIES,
                             1,
                             {4},
                             {1}};
    k->choice.masks = 2;
    k->choice.of_mask = of;
    return k;
}

/* Layers with the passes of another mask's, or with one direction of them, whatever they compute. */
static void passes_of_other_layers(void **state)
{
    (void)state;
    enum { RIGHT, EXCHANGED, ALL_ALIKE, BACKWARD_ALONE, CASES };
    for (int i = 0; i < CASES; i++) {
        Case *k = layered_case();
        Draft t = draft_make(k->arena, k->diags, &k->program, &k->choice);
        assert_int_equal(t.attention.n, 2);
        Attention mixed[2] = {t.attention.at[0], t.attention.at[1]};
        mixed[1].way[1] = t.attention.at[0].way[1];
        static const int exchanged[] = {1, 0}, alike[] = {0, 0};
        if (i == EXCHANGED || i == ALL_ALIKE)
            t.attention.of_mask = i == EXCHANGED ? exchanged : alike;
        t.attention.at = i == BACKWARD_ALONE ? mixed : t.attention.at;
        assert_int_equal(verify(k->arena, k->diags, &t) != NULL, i == RIGHT);
        assert_int_equal(diags_errors(k->diags), i != RIGHT);
        assert_int_equal(verify_attention(k->arena, diags_new(k->arena), &t), i == RIGHT);
        assert_int_equal(verify_rest(k->arena, diags_new(k->arena), &t) != NULL, i == RIGHT);
        const char *text = printed(k->arena, k->diags);
        assert_true(i == RIGHT || strstr(text, "proof 1 (every pair once) fails: "));
        assert_true(i != BACKWARD_ALONE || strstr(text, "backward of layers with mask `window_sink(64, 4)` "
                                                        "uses ring_queries instead of near_keys"));
        arena_free(k->arena);
    }
}

/* Groups of two ranks inside the nodes: no transfer leaves one. */
static void inside_nodes(void **state)
{
    (void)state;
    Case *k = small_case("ring");
    k->group[0].nics = 0;
    k->choice.data = 2;
    k->choice.ranks = 2;
    choice_set_sizes(&k->choice, 1, (const int[]){2});
    assert_non_null(verify_case(k));
    arena_free(k->arena);
}

/* Bytes decide: what a rank needs fits, a byte less does not. */
static void memory_to_the_byte(void **state)
{
    (void)state;
    Case *k = small_case("ring");
    const Plan *p = verify_case(k);
    assert_non_null(p);
    Device d = *k->group[0].device;
    k->group[0].device = &d;
    d.memory = (double)plan_draft(p)->memory.total;
    assert_non_null(verify_case(k));
    d.memory -= 1;
    refused(k, "proof 6 (memory) fails: a rank needs ", ".burst:");
}

/* The total is what the step's arena takes, with the rows that lie outside of it. */
static void memory_adds_up(void **state)
{
    (void)state;
    static const char *const schedules[] = {"ring", "burst", "ulysses"};
    for (int i = 0; i < countof(schedules); i++) {
        Case *k = small_case(schedules[i]);
        const Plan *p = verify_case(k);
        const Memory *m = &plan_draft(p)->memory;
        size_t sum = (size_t)m->flow->packed;
        for (int j = 0; j < m->n; j++)
            sum += m->at[j].at < 0 ? m->at[j].bytes : 0;
        assert_int_equal(sum, m->total);
        arena_free(k->arena);
    }
}

static bool rest_holds(Case *k, const Draft *t, Buffer *changed, Buffer as)
{
    const Buffer right = *changed;
    Diags *d = diags_new(k->arena);
    *changed = as;
    const bool holds = verify_rest(k->arena, d, t);
    assert_true(holds || strstr(diags_first(d), "proof 6 (memory) fails: "));
    assert_true(holds || strstr(diags_first(d), "attention's scratch") || strstr(diags_first(d), "pool ") ||
                strstr(diags_first(d), " bytes for "));
    *changed = right;
    return holds;
}

/* A buffer of attention's scratch where another lies that the same call uses, beyond the end, between two
 * alignments; a pool with a slot less, or slots that are too small. */
static void scratch_is_proved(void **state)
{
    (void)state;
    static const char *const schedules[] = {"ring", "burst", "ulysses", "halo", "gather"};
    int overlaps = 0, pools = 0;
    for (int i = 0; i < countof(schedules); i++) {
        Case *k = small_case(schedules[i]);
        k->choice.travel = i < 3 ? TRAVEL_QUERIES : TRAVEL_KEYS;
        Draft t = draft_make(k->arena, k->diags, &k->program, &k->choice);
        Buffer *at = NEW_ARRAY(k->arena, Buffer, t.memory.n);
        memcpy(at, t.memory.at, sizeof *at * (size_t)t.memory.n);
        t.memory.at = at;
        assert_non_null(verify_rest(k->arena, k->diags, &t));
        for (Buffer *b = at; b < at + t.memory.n; b++) {
            Buffer wrong = *b;
            if (b->at < 0 || !b->bytes)
                continue;
            wrong.at = t.memory.scratch - (int64_t)b->bytes + k->program.target->align;
            assert_false(rest_holds(k, &t, b, wrong));
            wrong.at = b->at + k->program.target->align / 2;
            assert_false(rest_holds(k, &t, b, wrong));
            wrong = *b;
            wrong.copies--, wrong.bytes = b->bytes / (size_t)b->copies * (size_t)wrong.copies;
            assert_true(!b->pool || !rest_holds(k, &t, b, wrong));
            wrong = *b;
            wrong.bytes = (size_t)(b->copies * b->elements) * sizeof(float) - 1;
            assert_true(!b->type || strcmp(b->type, "float") != 0 || !rest_holds(k, &t, b, wrong));
            wrong = *b;
            wrong.elements /= 2;
            assert_true(!b->pool || !rest_holds(k, &t, b, wrong));
            pools += b->pool != NULL;
            for (const Buffer *other = at; other < b; other++) {
                wrong = *b;
                wrong.at = other->at;
                if (other->at < 0 || !other->bytes || !(other->directions & b->directions))
                    continue;
                assert_false(rest_holds(k, &t, b, wrong));
                overlaps++;
            }
        }
        arena_free(k->arena);
    }
    assert_true(overlaps > 50 && pools > 10);
}

/* An operation without its scratch, or with less than it takes. */
static void operations_have_scratch(void **state)
{
    (void)state;
    int found = 0;
    Case *k = small_case("ring");
    Draft t = draft_make(k->arena, k->diags, &k->program, &k->choice);
    Step *s = (Step *)t.memory.flow->step;
    assert_non_null(verify_rest(k->arena, k->diags, &t));
    for (int b = 0; b < STEP_BLOCKS; b++)
        for (Op *o = s->block[b].ops.at; o < s->block[b].ops.at + s->block[b].ops.n; o++)
            for (int i = 0; i < OP_WRITES && o->write[i].value >= 0; i++) {
                const Op right = *o;
                const int v = o->write[i].value;
                const int64_t bytes = s->values.at[v].bytes;
                if (s->values.at[v].kind != VALUE_SCRATCH)
                    continue;
                s->values.at[v].bytes--;
                assert_null(verify_rest(k->arena, diags_new(k->arena), &t));
                s->values.at[v].bytes = bytes;
                o->write[i].value = step_value(s, "x");
                Diags *d = diags_new(k->arena);
                assert_null(verify_rest(k->arena, d, &t));
                assert_non_null(strstr(diags_first(d), "proof 6 (memory) fails: "));
                *o = right;
                found++;
            }
    assert_non_null(verify_rest(k->arena, k->diags, &t));
    assert_true(found >= 4);
    arena_free(k->arena);
}

/* Judges the pieces; those that are not right are refused as recurrent layers'. */
static void expect_pieces(Case *k, const Draft *t, bool right)
{
    Diags *d = diags_new(k->arena);
    assert_int_equal(verify_pieces(k->arena, d, t), right);
    assert_true(right || strstr(diags_first(d), "proof 1 (every pair once) fails: recurrent layers: "));
}

/* Tiles that a partition deals for each batch: room for a piece each, as many on every rank, and rows for the
 * next one's convolution. */
static void dealt_tiles_have_room(void **state)
{
    (void)state;
    enum { RIGHT, FEW, UNEVEN, SHORT, CASES };
    for (int i = 0; i < CASES; i++) {
        Case *k = small_case("ring");
        k->choice.partition = PART_CONTIGUOUS;
        k->program.sequence = 512;
        Draft t = draft_make(k->arena, k->diags, &k->program, &k->choice);
        Partition p = *t.partition;
        p.kind = PART_BALANCED, p.block = BURST_TILE;
        const int tiles = (int)(p.max_tokens / BURST_TILE);
        assert_true(tiles > 1 && p.max_tokens % BURST_TILE == 0);
        ((Step *)t.memory.flow->step)->pieces = i == FEW ? tiles - 1 : tiles;
        k->program.model.scan.heads = 2, k->program.model.scan.columns = 16;
        k->program.model.scan_kernel = i == SHORT ? BURST_TILE + 2 : 4;
        p.max_tokens -= i == UNEVEN ? BURST_TILE : 0;
        t.partition = &p;
        expect_pieces(k, &t, i == RIGHT);
        arena_free(k->arena);
    }
}

/* Pieces that ranks scan in place: of another rank, in another order, too short, or more than the step has.
 */
static void pieces_follow_each_other(void **state)
{
    (void)state;
    enum { RIGHT, ALIKE, TURNED, LAST_MISSING, SHORT, FEW, CASES };
    for (int i = 0; i < CASES; i++) {
        Case *k = small_case("ring");
        k->choice.partition = PART_ZIGZAG;
        Draft t = draft_make(k->arena, k->diags, &k->program, &k->choice);
        Partition p = *t.partition;
        PosSet *of = NEW_ARRAY(k->arena, PosSet, p.ranks);
        memcpy(of, p.of, sizeof *of * (size_t)p.ranks);
        const Piece turned[] = {of[0].pieces[1], of[0].pieces[0]}, one = of[0].pieces[0];
        ((Step *)t.memory.flow->step)->pieces = i == FEW ? 1 : 2;
        k->program.model.scan.heads = 2, k->program.model.scan.columns = 16;
        k->program.model.scan_kernel = i == SHORT ? (int)p.sequence : 4;
        of[1] = i == ALIKE ? of[0] : of[1];
        of[0].pieces = i == TURNED ? turned : of[0].pieces;
        of[0] = i == LAST_MISSING ? (PosSet){one.run, 1, &one} : of[0];
        p.of = of;
        t.partition = &p;
        expect_pieces(k, &t, i == RIGHT);
        arena_free(k->arena);
    }
}

/* What the program refuses as it starts: 4 ranks in 2 nodes. */
static void groups_of_ranks(void **state)
{
    (void)state;
    static const struct {
        int data, within;
        bool right;
    } cases[] = {{1, 0, true}, {1, 1, true}, {1, 2, true}, {1, 3, false}, {2, 0, false}, {1, 8, false}};
    for (int i = 0; i < countof(cases); i++) {
        Case *k = small_case("ring");
        Draft t = draft_make(k->arena, k->diags, &k->program, &k->choice);
        t.choice.data = cases[i].data;
        t.choice.within = cases[i].within;
        assert_int_equal(verify(k->arena, k->diags, &t) != NULL, cases[i].right);
        assert_int_equal(diags_errors(k->diags), !cases[i].right);
        assert_int_equal(verify_rest(k->arena, diags_new(k->arena), &t) != NULL, cases[i].right);
        arena_free(k->arena);
    }
}

/* Groups that share weights hold whole groups of ranks that split layers, and are whole nodes or parts of
 * one. */
static void groups_that_share_weights(void **state)
{
    (void)state;
    static const struct { int nodes, gpus, tensor, ranks; bool right;
    } cases[] = {{2, 6, 1, 6, true}, {2, 6, 2, 6, true},  {2, 6, 4, 6, false}, {4, 2, 4, 2, false},
                 {4, 2, 4, 4, true}, {4, 2, 1, 3, false}, {2, 6, 1, 4, false}};
    for (int i = 0; i < countof(cases); i++) {
        const NodeGroup g = {.nodes = cases[i].nodes, .gpus = cases[i].gpus};
        const Cluster c = {.groups = &g, .group_count = 1, .nodes = g.nodes, .world = g.nodes * g.gpus};
        assert_int_equal(cluster_shards(&c, cases[i].tensor, cases[i].ranks), cases[i].right);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_hold),
        cmocka_unit_test(no_nics),
        cmocka_unit_test(no_nics_there),
        cmocka_unit_test(passes_of_other_layers),
        cmocka_unit_test(inside_nodes),
        cmocka_unit_test(memory_to_the_byte),
        cmocka_unit_test(memory_adds_up),
        cmocka_unit_test(scratch_is_proved),
        cmocka_unit_test(operations_have_scratch),
        cmocka_unit_test(pieces_follow_each_other),
        cmocka_unit_test(dealt_tiles_have_room),
        cmocka_unit_test(groups_of_ranks),
        cmocka_unit_test(groups_that_share_weights),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
