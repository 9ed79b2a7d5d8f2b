/* A whole step, from texts: closed forms, sums that must hold, all-to-all, and groups that are simulated
 * in part. */
#include "case.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* a100: 200 and 170 TFLOP/s. Nothing masked: a step of the ring is 4 s^2 d H operations, its chunk s Hk d
 * of K and of V. */
static void ring_in_figures(void **state)
{
    (void)state;
    Arena *a = arena_new();
    Draft d = make(a, &usual);
    StepParts p = step_parts(a, &d);
    double s = 65536.0 / 4, comp = 4 * s * s * 128 * 8 / 200e12, p2p = 2e-6 + s * 8 * 128 * 2 * 2 / 300e9;
    close_to(p.kind[0].time[0].seconds, fmax(comp, p2p) * 3 + comp, 1e-9);
    double back = 10 * s * s * 128 * 8 / 170e12, home = 2e-6 + s * 8 * 128 * 2 * 4 / 300e9;
    /* and its merge */
    close_to(p.kind[0].time[1].seconds, 4 * back + home + 3 * s * 8 * 128 * 2 * 4 / 2.0e12, 1e-9);
    close_to(p.kind[0].time[0].link_bytes, 4 * 3 * s * 8 * 128 * 4, 1e-12);
    arena_free(a);
}

/* The same draft on other devices: so many cores a node, and devices and links at a share of their rates. */
static Draft on_cores(Arena *a, const Case *k, int cores, double rate)
{
    Draft d = make(a, k);
    Program *p = memcpy(NEW(a, Program), d.program, sizeof *p);
    NodeGroup *g = memcpy(NEW(a, NodeGroup), p->cluster.groups, sizeof *g);
    Device *device = memcpy(NEW(a, Device), g->device, sizeof *device);
    assert_int_equal(p->cluster.group_count, 1);
    double *const rates[] = {&device->matmul,
                             &device->attention_forward,
                             &device->attention_backward,
                             &device->hbm,
                             &device->passes,
                             &device->norms,
                             &p->cluster.link_bandwidth};
    for (int i = 0; i < countof(rates); i++)
        *rates[i] *= rate;
    g->device = device;
    p->cluster.groups = g;
    p->cluster.host_cores = cores;
    d.program = p;
    return d;
}

/* Four ranks on one core: all that they compute, read, write and copy takes as long as at a quarter of the
 * rates on four cores. */
static void ranks_share_cores(void **state)
{
    (void)state;
    static const struct {
        int nodes;
        const char *schedule, *mask;
    } of[] = {{1, "ring", "full"}, {1, "ulysses", "causal"}, {2, "burst", "causal"}};
    for (int i = 0; i < countof(of); i++)
        for (int travel = 0; travel < 2; travel++) {
            Case k = usual;
            k.device = "cpu", k.sequence = "4Ki", k.nodes = of[i].nodes, k.schedule = of[i].schedule,
            k.mask = of[i].mask;
            k.travel = travel && i != 1 ? TRAVEL_QUERIES : TRAVEL_KEYS;
            Arena *a = arena_new();
            const Draft one = on_cores(a, &k, 1, 1), four = on_cores(a, &k, 4, 0.25),
                        more = on_cores(a, &k, 64, 0.25), idle = on_cores(a, &k, 4, 1);
            const double step = cost_draft(a, &one, INFINITY).step;
            close_to(step, cost_draft(a, &four, INFINITY).step, 1e-12);
            close_to(step, cost_draft(a, &more, INFINITY).step, 1e-12);
            assert_true(step > 3 * cost_draft(a, &idle, INFINITY).step);
            arena_free(a);
        }
}

/* No step takes less than the least, whether the head_dim's rate is above that of long rows or below. */
static void least_of_head_dim(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        Arena *a = arena_new();
        Draft d = on_cores(a, &usual, 64, 1);
        Device *device = (Device *)d.program->cluster.groups->device;
        const double base = device->attention_forward;
        const AttentionRate row[] = {{ATTENTION_HEAD_DIM, false, 128, base * (0.5 + i), {0}},
                                     {ATTENTION_HEAD_DIM, true, 128, base * (0.5 + i), {0}}};
        device->rate = row, device->rates = countof(row);
        const double pairs = (double)pair_whole(d.counts[0]).pairs;
        assert_true(data_least(d.program, &pairs, 1) <= cost_draft(a, &d, INFINITY).step);
        arena_free(a);
    }
}

/* Causal, closed: N (N + 1) / 2 pairs a layer; every matrix product 2 operations a weight and token;
 * backward twice. */
static void operations(void **state)
{
    (void)state;
    static const PartitionKind kinds[] = {PART_CONTIGUOUS, PART_ZIGZAG, PART_STRIPED};
    for (int i = 0; i < countof(kinds); i++) {
        Case k = usual;
        k.mask = "causal";
        k.partition = kinds[i];
        Arena *a = arena_new();
        Draft d = make(a, &k);
        Cost c = cost_draft(a, &d, INFINITY);
        double n = 65536, weights = 4 * (4.0 * 1024 * 1024 + 3.0 * 1024 * 4096) + 1024.0 * 32000;
        close_to(c.flops, 3 * (4 * (4 * n * (n + 1) / 2 * 128 * 8) + 2 * n * weights), 1e-12);
        assert_true(k.partition == PART_CONTIGUOUS ? c.imbalance > 1.5 : c.imbalance < 1.001);
        arena_free(a);
    }
}

static void parts_add_up(const Case *k)
{
    Arena *a = arena_new();
    Draft d = make(a, k);
    Cost c = cost_draft(a, &d, INFINITY);
    StepParts p = step_parts(a, &d);
    double sum = p.weights, rows = p.rows[BURST_ROW_WAIT];
    for (int b = 0; b < STEP_BLOCKS; b++)
        sum += p.block[b].seconds + p.block[b].again;
    for (int b = 0; b < 2; b++)
        sum += p.kind[0].times[b] * p.kind[0].time[b].seconds;
    close_to(c.step, sum, 1e-9);
    for (int r = 0; r < BURST_ROW_WAIT; r++)
        rows += p.rows[r];
    close_to(c.step, rows, 1e-9);
    assert_true(c.compute > 0 && c.compute <= c.step && c.exposed >= 0);
    close_to(c.compute + c.exposed, c.step, 1e-9);
    assert_true(strlen(c.critical) > 0 && c.memory > 0);
    arena_free(a);
}

static void steps_add_up(void **state)
{
    (void)state;
    Case k = usual;
    parts_add_up(&k);
    k.recompute = "selective";
    parts_add_up(&k);
    k.recompute = "full";
    k.nodes = 2;
    k.schedule = "burst";
    k.partition = PART_ZIGZAG;
    k.mask = "causal";
    parts_add_up(&k);
    k.device = "cpu";
    k.sequence = "4Ki";
    k.travel = TRAVEL_QUERIES;
    parts_add_up(&k);
}

/* hidden 1024 = heads * head_dim, ffn 4096. Again: q, k, v, o, gate and up, not down; the residual sum
 * adds 1, rotation of q and k reads and writes 2 each, in units of 2 bytes a token and channel at 0.7 of
 * hbm; v's layout is what it is. Norms are made again in any case, once. Full: attention besides. */
static void recomputing_adds_what_it_repeats(void **state)
{
    (void)state;
    Case k = usual;
    k.gpus = 1;
    Arena *a = arena_new();
    Draft none = make(a, &k);
    Cost without = cost_draft(a, &none, INFINITY);
    k.recompute = "selective";
    Draft selective = make(a, &k);
    Cost some = cost_draft(a, &selective, INFINITY);
    k.recompute = "full";
    Draft full = make(a, &k);
    Cost all = cost_draft(a, &full, INFINITY);
    const Device *d = none.program->cluster.groups[0].device;
    double n = 65536, products = 2 * n * (4.0 * 1024 * 1024 + 2.0 * 1024 * 4096) / d->matmul,
           channel = 2 * n * 1024 / (0.7 * d->hbm);
    close_to(some.step - without.step, 4 * (products + 5 * channel), 1e-9);
    close_to(all.step - without.step, 4 * (without.attention_forward + products + 5 * channel), 1e-9);
    assert_true(some.flops == without.flops && all.flops == without.flops);
    arena_free(a);
}

/* Attention that was simulated for a draft that saves something else serves: a step takes the same, part by
 * part, as with its own. */
static void attention_of_other_savings_serves(void **state)
{
    (void)state;
    static const struct { const char *recompute; double tail; } rules[] = {
        {"none", 0}, {"tail", 0.75}, {"tail", 0.25}, {"full", 0}};
    for (int i = 0; i < countof(rules) * countof(rules) * 2; i++) {
        Case k = usual;
        k.partition = i % 2 ? PART_ZIGZAG : PART_CONTIGUOUS;
        k.mask = "causal";
        Arena *a = arena_new();
        k.recompute = rules[i / 2 % countof(rules)].recompute;
        k.tail = rules[i / 2 % countof(rules)].tail;
        const Draft other = make(a, &k);
        const StepParts attended = cost_attended(a, &other);
        k.recompute = rules[i / 2 / countof(rules)].recompute;
        k.tail = rules[i / 2 / countof(rules)].tail;
        Draft d = make(a, &k);
        const Cost own = cost_draft(a, &d, INFINITY);
        const Bound bound = cost_bound(a, &d);
        d.attended = &attended;
        const Cost again = cost_draft(a, &d, INFINITY);
        assert_true(again.step == own.step && again.compute == own.compute);
        assert_true(again.attention == own.attention && again.tile_flops == own.tile_flops);
        assert_true(again.bytes_link == own.bytes_link);
        for (int row = 0; row < BURST_ROW_COUNT; row++)
            assert_true(again.rows[row] == own.rows[row]);
        assert_true(cost_bound(a, &d).step == bound.step);
        arena_free(a);
    }
}

/* Selective keeps x, o and lse of a layer and has the rest once; full has o and lse once too. What else is
 * alive at the peak differs, by less than a layer has. e: bytes of an activation. */
static void kept_bytes(bool cuda, double e)
{
    static const char *const names[] = {"none", "selective", "full"};
    double bytes[3], n = 65536.0 / 4;
    Arena *a = arena_new();
    for (int i = 0; i < 3; i++) {
        Case k = usual;
        k.recompute = names[i];
        k.cuda = cuda;
        bytes[i] = (double)make(a, &k).memory.total / n;
    }
    /* q, k, v, x_mid; gate, up; two rstd. o; lse */
    const double rest = e * (4.0 * 1024 + 2 * 4096) + 2 * 4, attention = e * 1024 + 8 * 4;
    assert_true(bytes[0] - bytes[1] > 2 * rest && bytes[0] - bytes[1] < 4 * rest);
    assert_true(bytes[1] - bytes[2] > 2 * attention && bytes[1] - bytes[2] < 4 * attention);
    arena_free(a);
}

static void keeping_less_takes_less_memory(void **state)
{
    (void)state;
    kept_bytes(false, 4);
    kept_bytes(true, 2);
}

/* Attention of all of a rank's queries, in chunks or at once. */
static double attends(Arena *a, Draft *d, int chunks, int rank)
{
    d->choice.token_chunks = chunks;
    d->choice.chunk_queries = chunks > 1;
    const AttentionInput in = step_parts(a, d).kind[0].input[0];
    double sum = 0;
    for (int at = 0; at < in.schedule->trace.n; at++)
        sum += chunks * in.seconds[at * in.ranks + rank];
    return sum;
}

/* Causal, two ranks: quarters of the sequence have 1, 3, 5 and 7 of 16 parts of the pairs. Zigzag ranks
 * have the first and the last, or those between; where they meet in both halves these take 3 and 7 instead
 * of 8 of 16. */
static void chunks_of_queries_meet(void **state)
{
    (void)state;
    Case k = usual;
    k.gpus = 2;
    k.mask = "causal";
    for (int striped = 0; striped < 2; striped++) {
        Arena *a = arena_new();
        k.partition = striped ? PART_STRIPED : PART_ZIGZAG;
        Draft d = make(a, &k);
        for (int rank = 0; rank < 2; rank++)
            for (int chunks = 2; chunks <= 32; chunks *= 4)
                close_to(attends(a, &d, chunks, rank) / attends(a, &d, 1, rank), striped ? 1 : 1.25, 1e-3);
        arena_free(a);
    }
}

/* Any number of chunks of heads, of which some may have fewer: as many operations as of all heads at once,
 * and attention takes as long. */
static void chunks_of_heads_compute_no_more(void **state)
{
    (void)state;
    Case k = usual;
    k.gpus = 1;
    for (int chunks = 2; chunks <= 8; chunks++) {
        Arena *a = arena_new();
        Draft d = make(a, &k);
        const StepParts whole = step_parts(a, &d);
        d.choice.head_chunks = chunks;
        d.shape = shape_of(d.program, &d.choice);
        const StepParts p = step_parts(a, &d);
        assert_int_equal(d.shape.short_chunks, (chunks - 8 % chunks) % chunks);
        close_to(p.flops, whole.flops, 1e-12);
        close_to(p.attention_busy, whole.attention_busy, 1e-9);
        arena_free(a);
    }
}

static void one_rank_sends_nothing(void **state)
{
    (void)state;
    Case k = usual;
    k.gpus = 1;
    Arena *a = arena_new();
    Draft d = make(a, &k);
    Cost c = cost_draft(a, &d, INFINITY);
    assert_true(c.bytes_link == 0 && c.bytes_nic == 0);
    assert_true(c.exposed <= 1e-12 * c.step && c.imbalance == 1);
    arena_free(a);
}

/* All-to-all inside a node: Q, K and V leave over one link, 3/4 of each; then the whole sequence for 2 of
 * 8 heads; O and lse come back. The fourth quarter is copied, read and written, when the others have left:
 * that of Q while K and V still leave. */
static void all_to_all(void **state)
{
    (void)state;
    Case k = usual;
    k.schedule = "ulysses";
    Arena *a = arena_new();
    Draft d = make(a, &k);
    StepParts p = step_parts(a, &d);
    double n = 65536, s = n / 4, moved = s * 8 * 128 * 2 * 3 / 4, comp = 4 * n * n * 128 * 2 / 200e12;
    double lse = s * 8 * 4 * 3 / 4; /* fp32, and in backward delta */
    const double own = 2 * (2 * moved + moved + lse) / 3 / (0.36 * 2e12);
    close_to(p.kind[0].time[0].seconds, 2e-6 + 3 * moved / 300e9 + comp + 2e-6 + (moved + lse) / 300e9 + own,
             1e-9);
    close_to(p.kind[0].time[0].link_bytes, 4 * (4 * moved + lse), 1e-12);
    /* Q, dO, K and V; dQ, dK and dV in fp32 */
    close_to(p.kind[0].time[1].link_bytes, 4 * (4 * moved + 2 * lse + 3 * 2 * moved), 1e-12);
    arena_free(a);
}

/* Seconds of forward with computing that takes no time: exchanges alone. */
static double exchange_seconds(const Case *k, double *nic_bytes)
{
    Arena *a = arena_new();
    Draft d = make(a, k);
    AttentionInput in = cost_load(a, &d, d.choice.ranks, 0, false, NULL);
    for (int i = 0; i < in.schedule->trace.n * in.ranks; i++)
        in.seconds[i] = fmin(in.seconds[i], 1e-12);
    AttentionTime t = attention_simulate(a, &in);
    *nic_bytes = t.nic_bytes;
    arena_free(a);
    return t.seconds;
}

/* Where links take no time, exchanges of query heads in two pieces take as long as without pieces: a rank
 * copies what it keeps of K and V, and meanwhile of Q, before it computes the first piece, and what it keeps
 * of O and lse after the last. */
static void keeps_all_at_once(void **state)
{
    (void)state;
    Case k = usual;
    k.schedule = "ulysses", k.link = 1000000, k.sequence = "4Mi";
    for (int pieces = 1; pieces <= 2; pieces++) {
        Arena *a = arena_new();
        Draft d = make(a, &k);
        d.choice.head_pieces = pieces;
        AttentionInput in = cost_load(a, &d, d.choice.ranks, 0, false, NULL);
        for (int i = 0; i < in.schedule->trace.n * in.ranks; i++)
            in.seconds[i] = fmin(in.seconds[i], 1e-12);
        const double q = 1048576.0 / 4 * 8 * 128 * 2, lse = 1048576.0 / 4 * 8 * 4;
        close_to(attention_simulate(a, &in).seconds, 2 * (3 * q + lse) / (0.36 * 2e12), 0.01);
        arena_free(a);
    }
}

/* Between nodes a rank's bytes go to each other rank alike: of N nodes of g ranks, (N - 1) g of N g - 1
 * parts leave the node, and all its NICs carry them together, however many there are. Q, K and V go out, O
 * and lse come back. By hand: bytes over the sum of the NICs, with two latencies (Q with KV, O) of 5 us. */
static void exchange_between_nodes(void **state)
{
    (void)state;
    static const struct { int nodes, gpus; } worlds[] = {{2, 8}, {4, 8}, {8, 4}, {2, 4}};
    for (int w = 0; w < countof(worlds); w++)
        for (int nics = 1; nics <= 8; nics *= 2)
            for (int kv_heads = 8; kv_heads <= 32; kv_heads *= 4) {
                Case k = usual;
                k.nodes = worlds[w].nodes, k.gpus = worlds[w].gpus, k.nics = nics, k.gbps = 3200 / nics;
                k.heads = 32, k.kv_heads = kv_heads, k.sequence = "1Mi", k.device = "h100",
                k.schedule = "ulysses";
                k.recompute = "full", k.layers = 1;
                double ranks = k.nodes * k.gpus, tokens = 1048576 / ranks, got_bytes;
                /* each rank needs a key head, shared or not */
                double copies = kv_heads < ranks ? ranks : kv_heads;
                /* Q, K and V, O and lse; one more: its own */
                double bytes = tokens * 128 * 2 * (32 + 2 * copies + 32) + tokens * 32 * 4;
                double leaves = bytes * (ranks - k.gpus) / ranks;
                double seconds = exchange_seconds(&k, &got_bytes), hand = leaves * k.gpus / 400e9 + 2 * 5e-6;
                if (fabs(seconds / hand - 1) > 0.05 || fabs(got_bytes / (leaves * ranks) - 1) > 0.05)
                    fail_msg(
                        "%d x %d, %d NICs, %d key heads: %.3f ms, by hand %.3f; %.0f bytes, by hand %.0f",
                        k.nodes, k.gpus, nics, kv_heads, seconds * 1e3, hand * 1e3, got_bytes,
                        leaves * ranks);
            }
}

/* 12 heads on 8 ranks: some attend two heads, the others one. Each sends what is not for itself of its 1/8
 * of the tokens, but who has two heads gets twice as much, and is what all wait for: 7/8 of all tokens for
 * two heads of Q, K and V over its link. What it keeps of O is copied behind what it sends; what it keeps of
 * Q, K and V while it still receives. */
static void exchange_of_uneven_heads(void **state)
{
    (void)state;
    Case k = usual;
    k.gpus = 8, k.heads = k.kv_heads = 12, k.schedule = "ulysses";
    double n = 65536, none, seconds = exchange_seconds(&k, &none);
    double in = n * 7 / 8 * 2 * 128 * 2 * 3 / 300e9, out = n / 8 * 10 * (128 * 2 + 4) / 300e9;
    double back = n * 7 / 8 * 2 * (128 * 2 + 4) / 300e9; /* and sends twice as much */
    const double own = 2 * n / 8 * 2 * (128 * 2 + 4) / (0.36 * 2e12);
    assert_true(back > out && none == 0);
    close_to(seconds, in + back + own + 4e-6, 1e-3);
}

/* A layer's weights are gathered twice, the embedding's and the head's once, and every gradient is reduced
 * once, each in every sequence or once a step; of R ranks each sends (R - 1) / R of it. Units are padded
 * to whole shards. */
static void weight_bytes(void **state)
{
    (void)state;
    static const struct { Sharding sharding; int batch, layer, end, reductions;
    } cases[] = {
        {SHARDING_ZERO3, 1, 2, 1, 1}, {SHARDING_ZERO3, 3, 6, 3, 3},   {SHARDING_ZERO2, 3, 1, 1, 3},
        {SHARDING_ZERO1, 3, 1, 1, 1}, {SHARDING_NO_SYNC, 3, 6, 3, 1},
    };
    const double layers = 4 * (4.0 * 1024 * 1024 + 3.0 * 1024 * 4096 + 2 * 1024),
                 ends = 2 * 1024.0 * 32000 + 1024;
    for (int i = 0; i < countof(cases); i++) {
        Arena *a = arena_new();
        Case k = usual;
        k.sharding = cases[i].sharding, k.batch = cases[i].batch;
        Draft d = make(a, &k);
        close_to(step_parts(a, &d).weight_bytes,
                 (2 * (layers * cases[i].layer + ends * cases[i].end) +
                  4 * (layers + ends) * cases[i].reductions) *
                     3 / 4,
                 1e-5);
        arena_free(a);
    }
}

/* A token's rows of the embedding are read and added to. Norms and rotation have a rate of their own: at
 * half of it they take twice as long, and nothing else does. */
static void passes_by_hand(void **state)
{
    (void)state;
    Arena *a = arena_new();
    Draft d = make(a, &usual);
    const double n = 65536.0 / 4, forward = 4 + 2 * 2 * 1024, back = 4 + 2 * 1024 + 2 * 4 * 1024;
    Device *device = (Device *)d.program->cluster.groups[0].device;
    const StepParts whole = step_parts(a, &d);
    close_to(whole.rows[BURST_ROW_EMBEDDING], n * (forward + back) / device->passes, 1e-9);
    assert_true(device->norms == device->passes);
    device->norms /= 2;
    const StepParts half = step_parts(a, &d);
    for (int r = 0; r < BURST_ROW_COUNT; r++)
        close_to(half.rows[r], (r == BURST_ROW_NORMS ? 2 : 1) * whole.rows[r],
                 r == BURST_ROW_WAIT ? 1 : 1e-9);
    arena_free(a);
}

/* Pairs of all tiles of so many queries and keys that a causal mask leaves any of. */
static double pairs_of_tiles(int64_t n, int64_t q, int64_t k)
{
    double pairs = 0;
    for (int64_t i = 0; i < n; i += q)
        for (int64_t j = 0; j < n && j < i + q; j += k)
            pairs += (double)(q * k);
    return pairs;
}

/* Partial tiles cost as much as full ones. sm_80 kernels, head_dim 128: tiles of 128 queries by 64 keys,
 * backward 64 by 128; the excess along the diagonal is estimated from tiles of 64, whose own would be 5 %
 * off. On cpu tiles are those. */
static void whole_tiles(void **state)
{
    (void)state;
    Case k = usual;
    k.gpus = 1;
    k.sequence = "1Ki";
    k.mask = "causal";
    Arena *a = arena_new();
    Draft d = make(a, &k);
    const double flop = 4.0 * 128 * 8;
    StepParts p = step_parts(a, &d);
    close_to(p.kind[0].time[0].seconds, flop * pairs_of_tiles(1024, 128, 64) / 200e12, 0.03);
    close_to(p.kind[0].time[1].seconds, 2.5 * flop * pairs_of_tiles(1024, 64, 128) / 170e12, 0.03);
    k.device = "cpu";
    d = make(a, &k);
    close_to(step_parts(a, &d).kind[0].time[0].seconds, flop * pairs_of_tiles(1024, 64, 64) / 50e9, 1e-9);
    arena_free(a);
}

/* A window leaves one neighbour: on 64 ranks it sends and computes a small part of what causal does. */
static void windows_send_less(void **state)
{
    (void)state;
    Case k = usual;
    k.nodes = 4;
    k.mask = "causal";
    Arena *a = arena_new();
    Draft all = make(a, &k);
    StepParts full = step_parts(a, &all);
    k.mask = "window(1Ki)";
    Draft few = make(a, &k);
    StepParts window = step_parts(a, &few);
    const AttentionTime *f = &full.kind[0].time[0], *w = &window.kind[0].time[0];
    /* 15 chunks of 120, of each 1024 tokens of 4096 */
    close_to(w->link_bytes + w->nic_bytes, (f->link_bytes + f->nic_bytes) / 8 / 4, 1e-9);
    assert_true(w->seconds < f->seconds / 4);
    arena_free(a);
}

/* ---- groups simulated in part ---- */

static double part_against_whole(const Case *k, bool backward, int *ranks)
{
    Arena *a = arena_new();
    Draft d = make(a, k);
    *ranks = cost_simulated_ranks(&d);
    AttentionInput part = cost_load(a, &d, *ranks, 0, backward, NULL);
    AttentionInput whole = cost_load(a, &d, d.choice.ranks, 0, backward, NULL);
    double ratio = attention_simulate(a, &part).seconds / attention_simulate(a, &whole).seconds;
    arena_free(a);
    return ratio;
}

static void parts_stand_for_the_whole(void **state)
{
    (void)state;
    static const char *const masks[] = {"causal", "window(4Ki)", "full"};
    static const char *const schedules[] = {"ring", "burst", "near", "doubling"};
    for (int m = 0; m < countof(masks); m++)
        for (int s = 0; s < countof(schedules); s++)
            /* forward with keys, backward with queries, which doubling has not */
            for (int i = 0; i < 4; i += s < 3 ? 3 : 2) {
                Case k = {24,
                          8,
                          1,
                          8,
                          8,
                          "384Ki",
                          masks[m],
                          "a100",
                          schedules[s],
                          "none",
                          i & 1 ? PART_ZIGZAG : PART_CONTIGUOUS,
                          i & 1 ? TRAVEL_QUERIES : TRAVEL_KEYS,
                          false,
                          0,
                          0,
                          0,
                          0,
                          0};
                int ranks;
                double ratio = part_against_whole(&k, i & 2, &ranks);
                assert_true(ranks < 192);
                if (!(ratio > 0.7 && ratio < 1.15))
                    fail_msg("%s %s %d: %d ranks give %.3f of the time of 192", masks[m], schedules[s], i,
                             ranks, ratio);
            }
}

/* Pairs of the rank with the most over the mean: a query at q has min(q + 1, window) keys. */
static double window_balance(int64_t sequence, int64_t window, int ranks, bool zigzag)
{
    double *pairs = calloc((size_t)ranks, sizeof *pairs), most = 0, all = 0;
    for (int64_t q = 0; q < sequence; q++) {
        int64_t part = q * 2 * ranks / sequence;
        const int64_t folded = part < ranks ? part : 2 * ranks - 1 - part;
        pairs[zigzag ? folded : part / 2] += (double)(q + 1 < window ? q + 1 : window);
    }
    for (int r = 0; r < ranks; r++) {
        most = fmax(most, pairs[r]);
        all += pairs[r];
    }
    free(pairs);
    return most * ranks / all;
}

/* The mean is that of all ranks, not of the few that are simulated, of which half may be idle. */
static void balance_of_groups_in_part(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        bool zigzag = i & 1;
        Case k = {128, 8, 1, 8, 8, "128Ki", i & 2 ? "window(32Ki)" : "window(64Ki)", "a100", "burst", "none",
                  zigzag ? PART_ZIGZAG : PART_CONTIGUOUS, TRAVEL_KEYS, false, 0, 0, 0, 0, 0};
        Arena *a = arena_new();
        Draft d = make(a, &k);
        assert_true(cost_simulated_ranks(&d) < 1024);
        close_to(cost_draft(a, &d, INFINITY).imbalance,
                 window_balance(131072, i & 2 ? 32768 : 65536, 1024, zigzag), 0.02);
        arena_free(a);
    }
}

/* Of contiguous causal chunks the mean rank of R computes R / (2R - 1) of what the last does, and waits
 * for the rest of the time, though no transfer shows; zigzag leaves nothing to wait for. */
static void what_is_waited_for(void **state)
{
    (void)state;
    Case k = usual;
    k.gpus = 8, k.sequence = "512Ki", k.mask = "causal";
    Arena *a = arena_new();
    Draft d = make(a, &k);
    Cost c = cost_draft(a, &d, INFINITY);
    StepParts p = step_parts(a, &d);
    double idle = p.attention_busy * 7 / 15 / c.step, percent = 0;
    assert_true(c.exposed < 0.01 * c.step && idle > 0.3);
    assert_int_equal(sscanf(c.critical, "ranks with more work (%lf %% of the step)", &percent), 1);
    assert_true(fabs(percent - 100 * idle) <= 1);
    k.partition = PART_ZIGZAG;
    d = make(a, &k);
    assert_true(cost_draft(a, &d, INFINITY).hidden);
    arena_free(a);
}

/* Processor time, so that a busy machine matters little: about 0.05 s, many times that with sanitizers and
 * at -O0. */
#if defined(__SANITIZE_ADDRESS__) || !defined(__OPTIMIZE__)
static const double quick = 1.5;
#else
static const double quick = 0.15;
#endif
static void thousand_ranks_are_quick(void **state)
{
    (void)state;
    static const char *const schedules[] = {"ring", "burst"};
    for (int s = 0; s < countof(schedules); s++) {
        Case k = {
            128,   8, 32, 32, 8, "4Mi", "causal", "h100", schedules[s], "none", PART_ZIGZAG, TRAVEL_QUERIES,
            false, 0, 0,  0,  0, 0};
        Arena *a = arena_new();
        Draft d = make(a, &k);
        double seconds = INFINITY;
        Cost c = {0};
        for (int again = 0; again < 3; again++) { /* caches are another's, too, on a busy machine */
            clock_t start = clock();
            c = cost_draft(a, &d, INFINITY);
            seconds = fmin(seconds, (double)(clock() - start) / CLOCKS_PER_SEC);
        }
        printf("%s, 1024 ranks: costed in %.3f s; step %.3f s\n", schedules[s], seconds, c.step);
        assert_true(isfinite(c.step) && seconds < quick);
        arena_free(a);
    }
}

static void printed_text(void **state)
{
    (void)state;
    Arena *a = arena_new();
    Draft d = make(a, &usual);
    Cost c = cost_draft(a, &d, INFINITY);
    Text once = {0}, again = {0};
    print_cost_draft(&d, &c, &once);
    print_cost_draft(&d, &c, &again);
    assert_string_equal(once.at, again.at);
    assert_memory_equal(once.at, "burst-cost 1\n", 13);
    const char *const parts[] = {"schedule ring; context 4; heads 1; travel keys; partition contiguous;",
                                 "attention forward, full",
                                 "attention backward, full",
                                 "rest of forward",
                                 "rest of optimizer",
                                 "timeline forward",
                                 "timeline backward",
                                 "rank 3 ",
                                 "imbalance 1.000"};
    for (int i = 0; i < countof(parts); i++)
        if (!strstr(once.at, parts[i]))
            fail_msg("no '%s' in\n%s", parts[i], once.at);
    text_free(&once);
    text_free(&again);
    arena_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ring_in_figures),
        cmocka_unit_test(ranks_share_cores),
        cmocka_unit_test(least_of_head_dim),
        cmocka_unit_test(operations),
        cmocka_unit_test(steps_add_up),
        cmocka_unit_test(recomputing_adds_what_it_repeats),
        cmocka_unit_test(attention_of_other_savings_serves),
        cmocka_unit_test(keeping_less_takes_less_memory),
        cmocka_unit_test(chunks_of_queries_meet),
        cmocka_unit_test(chunks_of_heads_compute_no_more),
        cmocka_unit_test(one_rank_sends_nothing),
        cmocka_unit_test(all_to_all),
        cmocka_unit_test(keeps_all_at_once),
        cmocka_unit_test(exchange_between_nodes),
        cmocka_unit_test(exchange_of_uneven_heads),
        cmocka_unit_test(weight_bytes),
        cmocka_unit_test(passes_by_hand),
        cmocka_unit_test(whole_tiles),
        cmocka_unit_test(windows_send_less),
        cmocka_unit_test(parts_stand_for_the_whole),
        cmocka_unit_test(balance_of_groups_in_part),
        cmocka_unit_test(what_is_waited_for),
        cmocka_unit_test(thousand_ranks_are_quick),
        cmocka_unit_test(printed_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
