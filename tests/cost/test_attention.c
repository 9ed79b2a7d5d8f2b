/* Simulated attention against closed forms (Ring Attention; LoongTrain, section 4; BurstAttention, section
 * 3.2), laws that any schedule keeps, and the published order of LoongTrain's inner ring sizes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "traces.h"

#include <math.h>

static void close_to(double got, double expected)
{
    if (!(fabs(got - expected) <= 1e-9 * fabs(expected)))
        fail_msg("got %.12g, expected %.12g", got, expected);
}

/* G ranks of one node: max(comp, p2p) (G - 1) + comp. */
static void ring_forward(void **state)
{
    (void)state;
    const double comp = 1e-3, latency = 1e-5;
    for (int ranks = 2; ranks <= 8; ranks++)
        for (int k = 0; k < 4; k++) {
            double bytes[TENSOR_COUNT] = {[T_KV] = (double[]){1e5, 9e5, 2e6, 1e7}[k]};
            Arena *a = arena_new();
            TestCluster c;
            cluster_fill(&c, 1, ranks, 0, false);
            c.cluster.link_latency = latency * 1e9;
            double p2p = latency + bytes[T_KV] / 1e9;
            close_to(even_time(&c.cluster, ring_trace(a, ranks, 0, FORWARD), comp, bytes),
                     fmax(comp, p2p) * (ranks - 1) + comp);
            arena_free(a);
        }
}

/* A cpu rank copies with its own hands: nothing overlaps. */
static void ring_on_cpu(void **state)
{
    (void)state;
    const double bytes[TENSOR_COUNT] = {[T_KV] = 5e5};
    for (int ranks = 2; ranks <= 6; ranks++) {
        Arena *a = arena_new();
        TestCluster c;
        cluster_fill(&c, 1, ranks, 0, true);
        close_to(even_time(&c.cluster, ring_trace(a, ranks, 0, FORWARD), 1e-3, bytes),
                 ranks * 1e-3 + (ranks - 1) * 5e-4);
        arena_free(a);
    }
}

/* Backward, keys travel: K, V and the sums share a link. The sum of a chunk follows its computing. Bound
 * by computing, the last return home is the only exposed transfer; bound by the link, every byte after the
 * first step shows. */
static void ring_backward(void **state)
{
    (void)state;
    const int ranks = 6;
    const double kv = 1e5, sum = 2e5, comp = 1e-3;
    Arena *a = arena_new();
    TestCluster c;
    cluster_fill(&c, 1, ranks, 0, false);
    Schedule *s = ring_trace(a, ranks, 0, BACKWARD_KEYS);
    double fast = even_time(&c.cluster, s, comp, (double[TENSOR_COUNT]){[T_KV] = kv, [T_DKV] = sum});
    close_to(fast, ranks * comp + sum / 1e9);
    double slow = even_time(&c.cluster, s, 1e-9, (double[TENSOR_COUNT]){[T_KV] = 1e7, [T_DKV] = 2e7});
    double wire = (ranks - 1) * (1e7 + 2e7) / 1e9; /* bytes that each link carries */
    assert_true(slow >= wire);
    assert_true(slow <= wire + 1e7 / 1e9 + 2e7 / 1e9 + 1e-6);
    arena_free(a);
}

/* Two levels. Outer transfers of the window's first chunk run beside its lanes' steps: bound by the NICs,
 * the time is (N - 1) p2p_outer and the last window; bound by computing, all of it. */
static void double_ring_forward(void **state)
{
    (void)state;
    const int nodes = 4, lanes = 4, nics = 2;
    Arena *a = arena_new();
    TestCluster c;
    cluster_fill(&c, nodes, lanes, nics, false);
    Schedule *s = ring_trace(a, nodes, lanes, FORWARD);
    const double bytes[TENSOR_COUNT] = {[T_KV] = 1e6};
    double inner = 1e-3, outer = 1e6 * lanes / (nics * 1e8); /* lanes share the NICs */
    close_to(even_time(&c.cluster, s, 1e-2, bytes), nodes * lanes * 1e-2);
    close_to(even_time(&c.cluster, s, 1e-4, bytes), (nodes - 1) * outer + inner * (lanes - 1) + 1e-4);
    arena_free(a);
}

/* An oversubscribed fabric halves what the NICs of a node carry together. */
static void oversubscribed(void **state)
{
    (void)state;
    const double bytes[TENSOR_COUNT] = {[T_KV] = 1e6};
    Arena *a = arena_new();
    TestCluster c;
    cluster_fill(&c, 4, 4, 4, false);
    c.cluster.oversubscription = 2;
    close_to(even_time(&c.cluster, ring_trace(a, 4, 4, FORWARD), 1e-4, bytes),
             3 * 2 * 1e6 / 1e8 + 3 * 1e-3 + 1e-4);
    arena_free(a);
}

/* With one slot for partial sums, the next is computed only once the one before has left. */
static void partial_sums_have_slots(void **state)
{
    (void)state;
    const double comp = 1e-3, bytes[TENSOR_COUNT] = {[T_KV] = 1e-3, [T_DKV] = 4e5};
    for (int ranks = 3; ranks < 7; ranks++) {
        Arena *a = arena_new();
        TestCluster c;
        cluster_fill(&c, 1, ranks, 0, false);
        Schedule *s = ring_trace(a, ranks, 0, BACKWARD_KEYS);
        s->pool[s->partial_pool[T_DKV]].slots = 1;
        double time = even_time(&c.cluster, s, comp, bytes);
        assert_true(fabs(time - (ranks * comp + (ranks - 1) * 4e-4)) <= 1e-9);
        arena_free(a);
    }
}

/* A cpu rank offers even its own chunk only when its program comes to the pass; a device offers it at
 * once. Two ranks compute first (the sender 5 ms, the receiver 1 ms), then pass: the copy takes 0.1 ms,
 * then 1 ms of computing. */
static void cpu_offers_in_program_order(void **state)
{
    (void)state;
    for (int cpu = 0; cpu < 2; cpu++) {
        Arena *a = arena_new();
        TestCluster c;
        cluster_fill(&c, 1, 2, 0, cpu);
        Schedule *ring = ring_trace(a, 2, 0, FORWARD);
        const Instance *i = ring->trace.at; /* pass, compute, compute */
        Instance order[3] = {i[1], i[0], i[2]};
        ring->trace.at = order;
        AttentionInput in = even_input(a, &c.cluster, ring, 1e-3, (double[TENSOR_COUNT]){[T_KV] = 1e5});
        in.seconds[0] = 5e-3;
        AttentionTime t = attention_simulate(a, &in);
        close_to(t.end[1], cpu ? 6.1e-3 : 2e-3);
        close_to(t.end[0], cpu ? 6.1e-3 : 6e-3);
        arena_free(a);
    }
}

/* A flat ring crosses each node's border with one transfer at a time, over one NIC; the double ring uses
 * all. */
static void double_ring_beats_flat_ring(void **state)
{
    (void)state;
    const double bytes[TENSOR_COUNT] = {[T_KV] = 1e6};
    Arena *a = arena_new();
    TestCluster c;
    cluster_fill(&c, 4, 4, 4, false);
    double flat = even_time(&c.cluster, ring_trace(a, 16, 0, FORWARD), 1e-3, bytes);
    double two = even_time(&c.cluster, ring_trace(a, 4, 4, FORWARD), 1e-3, bytes);
    close_to(flat, 15 * 1e6 / 1e8 + 1e-3);
    close_to(two, 3 * 1e6 / 1e8 + 3 * 1e-3 + 1e-3);
    arena_free(a);
}

/* Bound by computing, a transfer into a slot starts when the computing that read the slot's last content
 * ends. */
static void slots_limit_running_ahead(void **state)
{
    (void)state;
    const int ranks = 8;
    const double comp = 1e-3, bytes[TENSOR_COUNT] = {[T_KV] = 1e4};
    Arena *a = arena_new();
    TestCluster c;
    cluster_fill(&c, 1, ranks, 0, false);
    for (int slots = 2; slots <= 4; slots++) {
        Schedule *s = ring_trace(a, ranks, 0, FORWARD);
        for (int p = 0; p < s->pools; p++)
            s->pool[p].slots = slots;
        AttentionInput in = even_input(a, &c.cluster, s, comp, bytes);
        AttentionTime t = attention_simulate(a, &in);
        int arrivals = 0;
        for (int i = 0; i < t.intervals; i++) {
            const Busy *b = &t.interval[i];
            if (b->rank != 3 || b->channel < 0)
                continue;
            /* computing 0 is of home */
            double expected = arrivals < slots ? arrivals * 1e-5 : (arrivals - slots + 2) * comp;
            assert_true(fabs(b->begin - expected) <= 1e-12);
            arrivals++;
        }
        assert_int_equal(arrivals, ranks - 1);
    }
    arena_free(a);
}

/* ---- laws ---- */

static uint64_t random_state = 1;
static double uniform(void)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (double)(random_state >> 11) / 9007199254740992.0;
}

typedef struct Case { Arena *arena; TestCluster c; AttentionInput in; double bytes[TENSOR_COUNT]; } Case;
static void random_case(Case *k)
{
    int nodes = 1 + (int)(uniform() * 4), lanes = 1 + (int)(uniform() * 4);
    bool flat = uniform() < 0.3;
    k->arena = arena_new();
    cluster_fill(&k->c, nodes, lanes, 1 + (int)(uniform() * lanes), uniform() < 0.3);
    k->c.cluster.link_latency = uniform() * 1e4;
    for (int t = 0; t < TENSOR_COUNT; t++)
        k->bytes[t] = 1e4 + uniform() * 1e6;
    Schedule *s = flat ? ring_trace(k->arena, nodes * lanes, 0, (Direction)(int)(uniform() * 3))
                       : ring_trace(k->arena, nodes, lanes, (Direction)(int)(uniform() * 3));
    k->in = even_input(k->arena, &k->c.cluster, s, 1e-6 + uniform() * 2e-3, k->bytes);
}

static void bytes_are_conserved(void **state)
{
    (void)state;
    for (int n = 0; n < 100; n++) {
        Case k;
        random_case(&k);
        AttentionTime t = attention_simulate(k.arena, &k.in);
        double sent = 0, received = 0, expected = 0;
        for (int r = 0; r < k.in.ranks; r++) {
            sent += t.sent[r];
            received += t.received[r];
        }
        for (int i = 0; i < k.in.schedule->trace.n * k.in.ranks; i++)
            expected += k.in.bytes[i];
        assert_true(isfinite(t.seconds));
        assert_true(fabs(sent - expected) <= 1e-9 * expected && fabs(received - expected) <= 1e-9 * expected);
        assert_true(fabs(t.link_bytes + t.nic_bytes - expected) <= 1e-9 * expected);
        arena_free(k.arena);
    }
}

/* Nothing is faster than its own computing or than the bytes over its link; the critical path is the whole
 * time. */
static void bounds_hold(void **state)
{
    (void)state;
    for (int n = 0; n < 100; n++) {
        Case k;
        random_case(&k);
        AttentionTime t = attention_simulate(k.arena, &k.in);
        double path = 0;
        for (int c = 0; c < COST_CLASS_COUNT; c++)
            path += t.path[c];
        assert_true(fabs(path - t.seconds) <= 1e-9 * t.seconds);
        for (int r = 0; r < k.in.ranks; r++) {
            double computing = 0;
            for (int i = 0; i < k.in.schedule->trace.n; i++)
                computing += k.in.seconds[i * k.in.ranks + r];
            assert_true(fabs(t.busy[r] - computing) <= 1e-9 * computing);
            assert_true(t.seconds >= computing * (1 - 1e-9));
        }
        assert_true(t.seconds >= t.link_bytes / k.in.ranks / k.c.cluster.link_bandwidth * (1 - 1e-9));
        arena_free(k.arena);
    }
}

static void faster_links_are_never_slower(void **state)
{
    (void)state;
    for (int n = 0; n < 100; n++) {
        Case k;
        random_case(&k);
        double before = attention_simulate(k.arena, &k.in).seconds;
        k.c.cluster.link_bandwidth *= 1 + 3 * uniform();
        double link = attention_simulate(k.arena, &k.in).seconds;
        k.c.nic.bandwidth *= 1 + 3 * uniform();
        double nic = attention_simulate(k.arena, &k.in).seconds;
        k.c.cluster.link_latency = 0;
        double latency = attention_simulate(k.arena, &k.in).seconds;
        assert_true(link <= before * (1 + 1e-9) && nic <= link * (1 + 1e-9) && latency <= nic * (1 + 1e-9));
        arena_free(k.arena);
    }
}

/* ---- empty pairs ---- */

static void fill_seconds(const AttentionInput *in, const uint8_t *pair)
{
    const Choice *c = in->schedule->choice;
    for (int at = 0; at < in->schedule->trace.n; at++) {
        const Instance *i = &in->schedule->trace.at[at];
        for (int r = 0; i->node->kind == N_COMPUTE && r < in->ranks; r++)
            in->seconds[at * in->ranks + r] =
                pair[rel_add(c, r, i->chunk[0]) * in->ranks + rel_add(c, r, i->chunk[1])] ? 1e-3 : 0;
    }
}

/* As of a pair: some tiles of eight, or whole chunks. */
static BurstTileRanges random_tiles(void)
{
    const int lo = (int)(8 * uniform());
    return burst_join(burst_tiles_from(lo, lo + 1 + (int)((8 - lo) * uniform())),
                      burst_tiles_from(3 * lo, 3 * lo + 2));
}

static void fill_tiles(AttentionInput *in, Arena *a, const BurstPairTiles *tiles)
{
    const Choice *c = in->schedule->choice;
    in->tiles = NEW_ARRAY(a, BurstPairTiles, in->schedule->trace.n * in->ranks);
    for (int at = 0; at < in->schedule->trace.n; at++) {
        const Instance *i = &in->schedule->trace.at[at];
        for (int r = 0; i->node->kind == N_COMPUTE && r < in->ranks; r++)
            in->tiles[at * in->ranks + r] =
                tiles[rel_add(c, r, i->chunk[0]) * in->ranks + rel_add(c, r, i->chunk[1])];
    }
}

/* What is left of a schedule is what prune.c leaves, and of each transfer the same tiles. */
static void live_is_what_prune_says(void **state)
{
    (void)state;
    for (int n = 0; n < 200; n++) {
        Case k;
        random_case(&k);
        uint8_t *pair = arena_alloc(k.arena, (size_t)(k.in.ranks * k.in.ranks));
        double density = uniform();
        for (int i = 0; i < k.in.ranks * k.in.ranks; i++)
            pair[i] = uniform() < density;
        fill_seconds(&k.in, pair);
        BurstPairTiles *tiles = n % 2 ? NEW_ARRAY(k.arena, BurstPairTiles, k.in.ranks * k.in.ranks) : NULL;
        for (int i = 0; tiles && i < BURST_SIDES * k.in.ranks * k.in.ranks; i++)
            tiles[i / BURST_SIDES].side[i % BURST_SIDES] = random_tiles();
        if (tiles)
            fill_tiles(&k.in, k.arena, tiles);
        Live expected = prune(k.arena, k.in.schedule, pair, tiles);
        const BurstTileRanges *live = cost_live(k.arena, &k.in);
        for (int i = 0; i < k.in.schedule->trace.n * k.in.ranks; i++) {
            assert_int_equal(burst_has_tiles(live[i]), (expected.op[i] & BURST_LIVE_RECV) != 0);
            assert_memory_equal(&live[i], &expected.tiles[i], sizeof live[i]);
            k.in.bytes[i] = burst_has_tiles(live[i]) ? k.in.bytes[i] : 0;
        }
        AttentionTime t = attention_simulate(k.arena, &k.in);
        assert_true(isfinite(t.seconds));
        arena_free(k.arena);
    }
}

/* ---- published ---- */

/* LoongTrain (arXiv 2406.18485): 64 GPUs, nodes of 8 with 4 NICs in turn, 32 heads of 128, forward and
 * backward, keys travel, 2-byte gradients, causal zigzag. Milliseconds by inner ring size 1, 2, 4, 8. */
typedef struct Published { int kv_heads, kilotokens; double ms[4]; } Published;
static const Published loongtrain[] = {
    {32, 128, {295.9, 184.5, 140.6, 214.9}}, {32, 256, {597.7, 401.3, 316.3, 415.1}},
    {32, 512, {1214, 917.1, 842.7, 869.9}},  {32, 1024, {2913, 2823, 2754, 2815}},
    {8, 128, {86.3, 72.6, 69.1, 77.4}},      {8, 256, {213.8, 205.7, 199.4, 198.7}},
    {8, 512, {697.9, 710.7, 704.4, 705.3}},  {8, 1024, {2621, 2611, 2610, 2621}},
};

static double predict(const Published *p, int window)
{
    Arena *a = arena_new();
    TestCluster c;
    cluster_fill(&c, 8, 8, 4, false);
    c.group.nics_in_turn = true;
    c.cluster.link_bandwidth = 300e9;
    c.cluster.link_latency = 2e3;
    c.nic = (Nic){.bandwidth = 25e9, .latency = 5e3};
    c.device.hbm = 2e12;
    double tokens = p->kilotokens * 1024.0 / 64, flops = 4 * tokens * tokens / 2 * 128 * 32;
    double kv = tokens * p->kv_heads * 128 * 2 * 2, bytes[TENSOR_COUNT] = {[T_KV] = kv, [T_DKV] = kv};
    double ms = 1e3 *
                (even_time(&c.cluster, ring_trace(a, 64 / window, window, FORWARD), flops / 200e12, bytes) +
                 even_time(&c.cluster, ring_trace(a, 64 / window, window, BACKWARD_KEYS),
                           2.5 * flops / 170e12, bytes));
    arena_free(a);
    return ms;
}

/* Where inner ring sizes differ by more than 5 % as published, ours puts the same one last, and the
 * published best within 5 % of its own best: what two ranks lose that share a NIC (size 8) is not
 * modelled, so 4 and 8 come out alike. */
static void loongtrain_table(void **state)
{
    (void)state;
    printf("LoongTrain, ms predicted (published), inner ring 1, 2, 4, 8\n");
    for (int i = 0; i < countof(loongtrain); i++) {
        const Published *p = &loongtrain[i];
        double ms[4], least = INFINITY, most = 0;
        int best = 0, worst = 0;
        printf("  %2d key heads %4dK:", p->kv_heads, p->kilotokens);
        for (int w = 0; w < 4; w++) {
            ms[w] = predict(p, 1 << w);
            printf(" %7.1f (%6.1f)", ms[w], p->ms[w]);
            least = fmin(least, ms[w]);
            most = fmax(most, ms[w]);
            best = p->ms[w] < p->ms[best] ? w : best;
            worst = p->ms[w] > p->ms[worst] ? w : worst;
        }
        printf("\n");
        if (p->ms[worst] > 1.05 * p->ms[best]) {
            assert_true(ms[best] <= 1.05 * least);
            assert_true(ms[worst] >= most * 0.99);
        }
        for (int w = 0; w < 4; w++) /* their schedule overlaps less than ours */
            assert_true(ms[w] < 1.08 * p->ms[w]);
        assert_true(ms[0] > 0.7 * p->ms[0]); /* a flat ring is the same schedule in both */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ring_forward),         cmocka_unit_test(ring_on_cpu),
        cmocka_unit_test(ring_backward),        cmocka_unit_test(double_ring_forward),
        cmocka_unit_test(double_ring_beats_flat_ring), cmocka_unit_test(slots_limit_running_ahead),
        cmocka_unit_test(oversubscribed),       cmocka_unit_test(partial_sums_have_slots),
        cmocka_unit_test(cpu_offers_in_program_order),
        cmocka_unit_test(bytes_are_conserved),
        cmocka_unit_test(bounds_hold),          cmocka_unit_test(faster_links_are_never_slower),
        cmocka_unit_test(live_is_what_prune_says), cmocka_unit_test(loongtrain_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
