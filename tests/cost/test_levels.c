/* Levels above the node: what leaves a rack shares its uplinks, by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "case.h"
#include "traces.h"

#include <math.h>
#include <string.h>

static void exactly(double got, double expected)
{
    close_to(got, expected, 1e-9);
}

static void add_level(Cluster *c, int nodes, double uplink, double oversubscription, double latency)
{
    c->level[c->levels++] = (Level){.name = "rack",
                                    .nodes = nodes,
                                    .uplink = uplink,
                                    .oversubscription = oversubscription,
                                    .latency = latency};
}

/* Four nodes of four ranks, each with its own card of 0.1 GB/s. In each of three outer hops the four lanes
 * of a node cross to the next rack at once; node by node they would take 10 ms, over the uplink four times
 * its share. */
static void lanes_share_the_uplink(void **state)
{
    (void)state;
    static const struct { int inner, outer; double uplink[2], over[2], rate; } cases[] = {
        {2, 0, {2e8}, {1}, 2e8},           {2, 0, {4e8}, {4}, 1e8},             /* oversubscribed */
        /* the narrower of two levels */
        {1, 2, {3e8, 1e8}, {1, 1}, 1e8},   {1, 2, {1e8, 3e8}, {1, 1}, 1e8},
        /* what the cards carry, divided */
        {2, 0, {0}, {8}, 2 * 4e8 / 8},     {1, 2, {0, 0}, {1, 16}, 2 * 4e8 / 16},
        /* wide enough; all nodes in one rack */
        {2, 0, {1e9}, {1}, 4e8},           {4, 0, {1e6}, {1}, 4e8},
    };
    const double bytes[TENSOR_COUNT] = {[T_KV] = 1e6};
    for (int i = 0; i < countof(cases); i++) {
        Arena *a = arena_new();
        TestCluster c;
        cluster_fill(&c, 4, 4, 4, false);
        add_level(&c.cluster, cases[i].inner, cases[i].uplink[0], cases[i].over[0], 0);
        if (cases[i].outer)
            add_level(&c.cluster, cases[i].outer, cases[i].uplink[1], cases[i].over[1], 0);
        exactly(even_time(&c.cluster, ring_trace(a, 4, 4, FORWARD), 1e-3, bytes),
                3 * 4e6 / cases[i].rate + 3e-3 + 1e-3);
        arena_free(a);
    }
}

/* A flat ring crosses a rack's border with one rank's transfer at a time, and pays each level that it
 * leaves. */
static void each_level_has_its_latency(void **state)
{
    (void)state;
    const double bytes[TENSOR_COUNT] = {[T_KV] = 1e6};
    for (int levels = 0; levels <= 2; levels++) {
        Arena *a = arena_new();
        TestCluster c;
        cluster_fill(&c, 4, 4, 4, false);
        c.nic.latency = 1e6;
        if (levels > 0)
            add_level(&c.cluster, 1, 1e9, 1, 2e6);
        if (levels > 1)
            add_level(&c.cluster, 2, 1e9, 1, 4e6);
        const double hop = 1e6 / 1e8 + 1e-3 + (levels > 0 ? 2e-3 : 0) + (levels > 1 ? 4e-3 : 0);
        exactly(even_time(&c.cluster, ring_trace(a, 16, 0, FORWARD), 1e-4, bytes), 15 * hop + 1e-4);
        arena_free(a);
    }
}

/* Bytes by how far they go: of 16 flat hops four leave a node, of these two a rack of two nodes. */
static void bytes_by_level(void **state)
{
    (void)state;
    Arena *a = arena_new();
    TestCluster c;
    cluster_fill(&c, 4, 4, 4, false);
    add_level(&c.cluster, 2, 1e9, 1, 0);
    const AttentionInput in = even_input(a, &c.cluster, ring_trace(a, 16, 0, FORWARD), 1e-3,
                                         (double[TENSOR_COUNT]){[T_KV] = 1e6});
    const AttentionTime t = attention_simulate(a, &in);
    exactly(t.link_bytes, 15 * 12e6);
    exactly(t.nic_bytes, 15 * 4e6);
    exactly(t.uplink_bytes[0], 15 * 2e6);
    arena_free(a);
}

/* A ring over all ranks leaves each rack once, however many nodes it has: as fast as the narrowest of
 * cards and uplinks. */
static void collectives_leave_each_rack_once(void **state)
{
    (void)state;
    TestCluster c;
    cluster_fill(&c, 8, 4, 4, false);
    c.nic.latency = 1e3;
    add_level(&c.cluster, 2, 6e8, 2, 5e3);
    const Ring all = {32, 1, 1};
    const Collective x = collective_of(&c.cluster, all, 32e6);
    exactly(x.bytes, 31e6);
    exactly(collective_moving(&c.cluster, x), 31e6 / 3e8); /* cards of a node: 4e8 */
    exactly(x.seconds, 31e6 / 3e8 + 7 * 1e-6 + 3 * 5e-6);
    add_level(&c.cluster, 8, 1e3, 1, 1e9); /* all nodes: nothing leaves it */
    exactly(collective_of(&c.cluster, all, 32e6).seconds, x.seconds);
}

/* Rings inside a node or a rack, and between these: bytes on the narrowest of links, cards and uplinks,
 * each hop once a round. */
static void rings_use_what_lies_between_their_ranks(void **state)
{
    (void)state;
    static const struct { Ring ring; double full, bytes, link, nic, uplink, seconds; } cases[] = {
        {{4, 1, 1}, 32e6, 24e6, 24e6, 0, 0, 24e6 / 5e8},
        {{2, 1, 1}, 32e6, 16e6, 16e6, 0, 0, 16e6 / 5e8},
        {{8, 1, 1}, 32e6, 28e6, 28e6, 28e6, 0, 28e6 / 4e8 + 1e-6},
        {{8, 4, 2}, 8e6, 14e6, 0, 4 * 14e6, 4 * 14e6, 4 * 14e6 / 3e8 + 2 * (7e-6 + 3 * 5e-6)},
        {{16, 2, 2}, 16e6, 30e6, 30e6, 2 * 30e6, 2 * 30e6, 2 * 30e6 / 3e8 + 2 * (7e-6 + 3 * 5e-6)},
        {{4, 8, 2}, 4e6, 6e6, 0, 4 * 6e6, 8 * 6e6, 8 * 6e6 / 3e8 + 2 * (3e-6 + 3 * 5e-6)},
    };
    TestCluster c;
    cluster_fill(&c, 8, 4, 4, false);
    c.cluster.link_bandwidth = 5e8;
    c.nic.latency = 1e3;
    add_level(&c.cluster, 2, 6e8, 2, 5e3);
    for (int i = 0; i < countof(cases); i++) {
        const Collective x = collective_of(&c.cluster, cases[i].ring, cases[i].full);
        exactly(x.bytes, cases[i].bytes);
        exactly(x.link, cases[i].link);
        exactly(x.nic, cases[i].nic);
        exactly(x.uplink[0], cases[i].uplink);
        exactly(x.seconds, cases[i].seconds);
    }
}

/* An all-to-all: of 31 peers 16 are in another rack of two nodes, and what goes to them from both nodes
 * shares the uplink. Computing takes no time; Q, K and V go out, O and lse come back, each with the
 * latency of the farthest. */
static void exchanges_share_the_uplink(void **state)
{
    (void)state;
    Case k = usual;
    k.nodes = 4, k.gpus = 8, k.heads = k.kv_heads = 32, k.sequence = "1Mi", k.device = "h100",
    k.schedule = "ulysses", k.layers = 1;
    Arena *a = arena_new();
    const Draft d = make(a, &k);
    AttentionInput in = cost_load(a, &d, 32, 0, false, NULL);
    for (int i = 0; i < in.schedule->trace.n * in.ranks; i++)
        in.seconds[i] = fmin(in.seconds[i], 1e-12);
    Cluster c = *in.cluster;
    add_level(&c, 2, 50e9, 1, 3e3);
    in.cluster = &c;
    const AttentionTime t = attention_simulate(a, &in);
    /* of a rank, to the other rack */
    const double tokens = 1048576 / 32.0, bytes = (tokens * 32 * 128 * 2 * 4 + tokens * 32 * 4) / 32 * 16;
    close_to(t.uplink_bytes[0], 32 * bytes, 1e-9);
    close_to(t.seconds, 16 * bytes / 50e9 + 2 * 8e-6, 1e-3);
    arena_free(a);
}

/* At random: wide uplinks without latency change nothing, and narrower ones never help. */
static void laws_at_random(void **state)
{
    (void)state;
    uint64_t seed = 9;
    for (int n = 0; n < 60; n++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        const int nodes = 2 + (int)(seed >> 40) % 6, lanes = 1 + (int)(seed >> 50) % 4;
        const double bytes[TENSOR_COUNT] = {
            [T_KV] = 1e4 + (double)(seed >> 44), [T_Q] = 1e5, [T_DQ] = 2e5, [T_DKV] = 3e5};
        Arena *a = arena_new();
        TestCluster c;
        cluster_fill(&c, nodes, lanes, lanes, false);
        Schedule *s = ring_trace(a, nodes, lanes, (Direction)(n % 3));
        const double plain = even_time(&c.cluster, s, 1e-3, bytes);
        add_level(&c.cluster, 1 + n % nodes, 1e15, 1, 0);
        exactly(even_time(&c.cluster, s, 1e-3, bytes), plain);
        double before = plain;
        for (double uplink = 4e8; uplink > 1e7; uplink /= 3) {
            c.cluster.level[0].uplink = uplink;
            const double now = even_time(&c.cluster, s, 1e-3, bytes);
            assert_true(now >= before * (1 - 1e-9));
            before = now;
        }
        arena_free(a);
    }
}

/* ---- the text ---- */

static const Program *program(Arena *a, const char *levels)
{
    Text topo = {0}, model = {0};
    text_printf(&topo, "cluster c { nodes 8 { gpus 8 of h100; nics 8 of ndr; } %s }\n", levels);
    text_add(&model, "model m { layers 2; hidden 4096; heads 32; kv_heads 8; head_dim 128; ffn swiglu 14336; "
                     "vocab 128256; }\n"
                     "sequence 256Ki;\nlayout { data 1; }\n");
    assert_int_equal(text_write_file(&topo, "levels_case.topo"), 0);
    assert_int_equal(text_write_file(&model, "levels_case.burst"), 0);
    text_free(&topo);
    text_free(&model);
    Diags *d = diags_new(a);
    const Program *p = front_end(a, d,
                                 &(FrontEnd){.topo_path = "levels_case.topo",
                                             .model_path = "levels_case.burst",
                                             .stock_dir = STOCK_DIR});
    diags_print(d, stdout);
    assert_non_null(p);
    return p;
}

static void texts_and_defaults(void **state)
{
    (void)state;
    Arena *a = arena_new();
    const Cluster *c = &program(a, "level rack { nodes 2; uplink 400 Gb/s x 8; oversubscription 4; latency 2 "
                                   "us; } level pod { nodes 6; }")
                            ->cluster;
    assert_int_equal(c->levels, 2);
    assert_string_equal(c->level[0].name, "rack");
    exactly(cluster_uplink(c, 0, 3), 8 * 50e9 / 4);
    exactly(c->level[0].latency, 2e3);
    exactly(cluster_uplink(c, 1, 0), 6 * 8 * 50e9);
    exactly(cluster_uplink(c, 1, 1), 2 * 8 * 50e9); /* the last has two nodes */
    exactly(c->level[1].latency, 1e3);
    assert_int_equal(cluster_crossed(c, 0, 1), 0);
    assert_int_equal(cluster_crossed(c, 1, 2), 1);
    assert_int_equal(cluster_crossed(c, 5, 6), 2);
    arena_free(a);
}

/* The step of a whole plan, and what it is said to wait for. */
static void the_search_names_uplinks(void **state)
{
    (void)state;
    Arena *a = arena_new();
    const Program *p = program(a, "level rack { nodes 2; uplink 25 Gb/s; }"), *wide = program(a, "");
    const Found f = search(a, diags_new(a), p), g = search(a, diags_new(a), wide);
    printf("%s\n%s\n", f.cost.critical, g.cost.critical);
    assert_true(f.cost.step > 1.2 * g.cost.step);
    assert_non_null(strstr(search_table(a, p, &f), "uplinks of a rack"));
    Text t = {0};
    print_cost(f.plan, &f.cost, &t);
    assert_non_null(strstr(t.at, " out of a rack\n"));
    text_free(&t);
    arena_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lanes_share_the_uplink), cmocka_unit_test(each_level_has_its_latency),
        cmocka_unit_test(bytes_by_level),         cmocka_unit_test(collectives_leave_each_rack_once),
        cmocka_unit_test(rings_use_what_lies_between_their_ranks),
        cmocka_unit_test(exchanges_share_the_uplink), cmocka_unit_test(laws_at_random),
        cmocka_unit_test(texts_and_defaults),     cmocka_unit_test(the_search_names_uplinks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
