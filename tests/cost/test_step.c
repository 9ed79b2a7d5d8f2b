/* A whole step, from texts: closed forms, sums that must hold, all-to-all, and groups that are simulated in part. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "cost.h"

#include <math.h>
#include <string.h>
#include <time.h>

typedef struct Case {
    int nodes, gpus, layers, heads, kv_heads;
    const char *sequence, *mask, *device, *schedule, *recompute;
    PartitionKind partition;
    Travel travel;
    bool cuda;
} Case;
static const Case usual = {1, 4, 4, 8, 8, "64Ki", "full", "a100", "ring", "none", PART_CONTIGUOUS, TRAVEL_KEYS, false};

static void write_texts(const Case *k)
{
    Text topo = {0}, model = {0};
    text_printf(&topo, "cluster c {\n  nodes %d { gpus %d of %s; nics %d of hdr; }\n"
                       "  link nvlink { bandwidth 300 GB/s; latency 2 us; }\n}\n"
                       "host { memory 512 GiB; pcie 32 GB/s; cores 64; }\n", k->nodes, k->gpus, k->device, k->gpus);
    text_printf(&model, "import \"masks\";\nmodel m {\n  layers %d; hidden 1024; heads %d; kv_heads %d; head_dim 128;\n"
                        "  ffn swiglu 4096; norm rmsnorm 1e-5; rope 10000; vocab 32000; tied no;\n}\n"
                        "attention { default %s; }\nsequence %s;\nlayout { data 1; }\n",
                k->layers, k->heads, k->kv_heads, k->mask, k->sequence);
    assert_int_equal(text_write_file(&topo, "cost_case.topo"), 0);
    assert_int_equal(text_write_file(&model, "cost_case.burst"), 0);
    text_free(&topo);
    text_free(&model);
}

static void two_levels(Choice *c, const Case *k)
{
    c->coords = c->schedule->coords;
    c->size[0] = c->coords == 2 ? k->nodes : c->ranks;
    c->size[1] = c->coords == 2 ? k->gpus : 0;
}

static Recompute recompute_named(const char *name)
{
    int r = 0;
    while (strcmp(recompute_names[r], name) != 0)
        assert_true(++r < RECOMPUTES);
    return (Recompute)r;
}

static Draft make(Arena *a, const Case *k)
{
    write_texts(k);
    Diags *d = diags_new(a);
    FrontEnd in = {.topo_path = "cost_case.topo", .model_path = "cost_case.burst", .stock_dir = STOCK_DIR, .target = k->cuda ? TARGET_CUDA : TARGET_C};
    const Program *p = front_end(a, d, &in);
    if (!p)
        diags_print(d, stdout);
    assert_non_null(p);
    Choice c = {.data = 1, .ranks = p->cluster.world, .partition = k->partition, .travel = k->travel,
                .recompute = recompute_named(k->recompute)};
    for (int i = 0; i < p->schedule_count; i++)
        if (strcmp(p->schedules[i]->name, k->schedule) == 0)
            c.schedule = p->schedules[i];
    assert_non_null(c.schedule);
    two_levels(&c, k);
    Draft t = draft_make(a, d, p, &c);
    diags_print(d, stdout);
    assert_non_null(t.forward);
    return t;
}

static void close_to(double got, double expected, double tolerance)
{
    if (!(fabs(got - expected) <= tolerance * fabs(expected)))
        fail_msg("got %.12g, expected %.12g", got, expected);
}

/* a100: 200 and 170 TFLOP/s. Nothing masked: a step of the ring is 4 s^2 d H operations, its chunk s Hk d of K and of V. */
static void ring_in_figures(void **state)
{
    (void)state;
    Arena *a = arena_new();
    Draft d = make(a, &usual);
    StepParts p = step_parts(a, &d);
    double s = 65536.0 / 4, comp = 4 * s * s * 128 * 8 / 200e12, p2p = 2e-6 + s * 8 * 128 * 2 * 2 / 300e9;
    close_to(p.kind[0].forward.seconds, fmax(comp, p2p) * 3 + comp, 1e-9);
    double back = 10 * s * s * 128 * 8 / 170e12, home = 2e-6 + s * 8 * 128 * 2 * 4 / 300e9;
    close_to(p.kind[0].backward.seconds, 4 * back + home + 3 * s * 8 * 128 * 2 * 4 / 2.0e12, 1e-9); /* and its merge */
    close_to(p.kind[0].forward.link_bytes, 4 * 3 * s * 8 * 128 * 4, 1e-12);
    arena_free(a);
}

/* Causal, closed: N (N + 1) / 2 pairs a layer; every matrix product 2 operations a weight and token; backward twice. */
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
        Cost c = cost_draft(a, &d);
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
    Cost c = cost_draft(a, &d);
    StepParts p = step_parts(a, &d);
    double layer = (1 + p.attention_again) * c.attention_forward + p.dense_forward + p.dense_again + c.attention_backward +
                   p.dense_backward;
    close_to(c.step, k->layers * layer + p.loss + p.embedding + p.weights + p.optimizer, 1e-9);
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

/* hidden 1024 = heads * head_dim, ffn 4096. Again: q, k, v, o, gate and up, not down; the
 * residual sum 3, rotation and layout of q and o 4, of k and v 2 each, in units of 2 bytes a token and channel; with full
 * one norm more, and attention. */
static void recomputing_adds_what_it_repeats(void **state)
{
    (void)state;
    Case k = usual;
    k.gpus = 1;
    Arena *a = arena_new();
    Draft none = make(a, &k);
    Cost without = cost_draft(a, &none);
    k.recompute = "selective";
    Draft selective = make(a, &k);
    Cost some = cost_draft(a, &selective);
    k.recompute = "full";
    Draft full = make(a, &k);
    Cost all = cost_draft(a, &full);
    const Device *d = none.program->cluster.groups[0].device;
    double n = 65536, products = 2 * n * (4.0 * 1024 * 1024 + 2.0 * 1024 * 4096) / d->matmul, channel = 2 * n * 1024 / d->hbm;
    close_to(some.step - without.step, 4 * (products + 11 * channel), 1e-9);
    close_to(all.step - without.step, 4 * (without.attention_forward + products + 13 * channel), 1e-9);
    assert_true(some.flops == without.flops && all.flops == without.flops);
    arena_free(a);
}

/* Selective keeps x, o and lse of a layer and has the rest once; full has o and lse once too. e: bytes of an activation. */
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
    double rest = e * (4.0 * 1024 + 2 * 4096) + 2 * 4, attention = e * 1024 + 8 * 4;
    close_to(bytes[0] - bytes[1], 3 * rest, 1e-12);
    close_to(bytes[1] - bytes[2], 3 * attention, 1e-12);
    arena_free(a);
}

static void keeping_less_takes_less_memory(void **state)
{
    (void)state;
    kept_bytes(false, 4);
    kept_bytes(true, 2);
}

static void one_rank_sends_nothing(void **state)
{
    (void)state;
    Case k = usual;
    k.gpus = 1;
    Arena *a = arena_new();
    Draft d = make(a, &k);
    Cost c = cost_draft(a, &d);
    assert_true(c.bytes_link == 0 && c.bytes_nic == 0);
    assert_true(c.exposed <= 1e-12 * c.step && c.imbalance == 1);
    arena_free(a);
}

/* All-to-all inside a node: Q, K and V leave over one link, 3/4 of each; then the whole sequence for 2 of 8 heads; O and lse come
 * back. */
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
    close_to(p.kind[0].forward.seconds, 2e-6 + 3 * moved / 300e9 + comp + 2e-6 + (moved + lse) / 300e9, 1e-9);
    close_to(p.kind[0].forward.link_bytes, 4 * (4 * moved + lse), 1e-12);
    /* Q, dO, K and V; dQ, dK and dV in fp32 */
    close_to(p.kind[0].backward.link_bytes, 4 * (4 * moved + 2 * lse + 3 * 2 * moved), 1e-12);
    arena_free(a);
}

/* Every weight is gathered twice and its gradient reduced once; of R ranks each sends (R - 1) / R of it. */
static void weight_bytes(void **state)
{
    (void)state;
    Arena *a = arena_new();
    Draft d = make(a, &usual);
    StepParts p = step_parts(a, &d);
    double weights = 4 * (4.0 * 1024 * 1024 + 3.0 * 1024 * 4096 + 2 * 1024) + 2 * 1024.0 * 32000 + 1024;
    close_to(p.weight_link, weights * (2 + 2 + 4) * 3 / 4, 1e-12);
    assert_true(p.weight_nic == 0);
    arena_free(a);
}

/* Rings over 4 ranks, 3 hops. */
static double ring_seconds(double bytes)
{
    return bytes * 3 / 4 / 300e9 + 3 * 2e-6;
}

/* Short sequence, so that weights take longer than the work beside them: what shows is what goes over the wire, attention's
 * own bytes included, less that work; for a cpu all of it shows. */
static void weights_that_show(void **state)
{
    (void)state;
    Case k = usual;
    k.sequence = "1Ki";
    k.recompute = "full";
    Arena *a = arena_new();
    Draft d = make(a, &k);
    StepParts p = step_parts(a, &d);
    const LayerKind *l = &p.kind[0];
    double layer = 4.0 * 1024 * 1024 + 3.0 * 1024 * 4096 + 2 * 1024, table = 1024.0 * 32000, head = table + 1024;
    double gather = ring_seconds(2 * layer), reduce = ring_seconds(4 * layer);
    double f = l->forward.seconds + p.dense_forward, again = l->forward.seconds + p.dense_again;
    double b = l->backward.seconds + p.dense_backward + again;
    double wire_f = l->forward.link_bytes / 4 / 300e9, wire_b = l->backward.link_bytes / 4 / 300e9;
    double first = fmax(0, gather + wire_f - f), second = fmax(0, gather + reduce + wire_b + wire_f - b);
    assert_true(second > 0); /* or the case shows nothing */
    double ends = ring_seconds(2 * table) + ring_seconds(4 * table) + fmax(0, ring_seconds(6 * head) - p.loss);
    close_to(p.weights, 4 * (first + second) + ends, 1e-9);
    k.device = "cpu";
    Draft host = make(a, &k);
    double host_gather = ring_seconds(4 * layer);
    close_to(step_parts(a, &host).weights, 4 * 3 * host_gather + 2 * ring_seconds(4 * table) + ring_seconds(8 * head), 1e-9);
    arena_free(a);
}

/* Partial tiles cost as much as full ones: causal over 64 x 64 tiles of 64 tokens computes the diagonal whole. */
static void whole_tiles(void **state)
{
    (void)state;
    Case k = usual;
    k.gpus = 1;
    k.sequence = "4Ki";
    k.mask = "causal";
    Arena *a = arena_new();
    Draft d = make(a, &k);
    double pairs = 64 * 65 / 2 * 64 * 64.0;
    close_to(step_parts(a, &d).kind[0].forward.seconds, 4 * pairs * 128 * 8 / 200e12, 1e-9);
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
    const AttentionTime *f = &full.kind[0].forward, *w = &window.kind[0].forward;
    close_to(w->link_bytes + w->nic_bytes, (f->link_bytes + f->nic_bytes) / 8, 1e-9); /* 15 chunks of 120 */
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
    AttentionInput whole = cost_load(a, &d, d.forward->choice->ranks, 0, backward, NULL);
    double ratio = attention_simulate(a, &part).seconds / attention_simulate(a, &whole).seconds;
    arena_free(a);
    return ratio;
}

static void parts_stand_for_the_whole(void **state)
{
    (void)state;
    static const char *const masks[] = {"causal", "window(4Ki)", "full"};
    static const char *const schedules[] = {"ring", "burst"};
    for (int m = 0; m < countof(masks); m++)
        for (int s = 0; s < countof(schedules); s++)
            for (int i = 0; i < 4; i += 3) { /* forward with keys, backward with queries */
                Case k = {24, 8, 1, 8, 8, "384Ki", masks[m], "a100", schedules[s], "none",
                          i & 1 ? PART_ZIGZAG : PART_CONTIGUOUS, i & 1 ? TRAVEL_QUERIES : TRAVEL_KEYS, false};
                int ranks;
                double ratio = part_against_whole(&k, i & 2, &ranks);
                assert_true(ranks < 192);
                if (!(ratio > 0.85 && ratio < 1.15))
                    fail_msg("%s %s %d: %d ranks give %.3f of the time of 192", masks[m], schedules[s], i, ranks, ratio);
            }
}

/* Processor time, so that a busy machine matters little: about 0.05 s, many times that with sanitizers and at -O0. */
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
        Case k = {128, 8, 32, 32, 8, "4Mi", "causal", "h100", schedules[s], "none", PART_ZIGZAG, TRAVEL_QUERIES, false};
        Arena *a = arena_new();
        Draft d = make(a, &k);
        clock_t start = clock();
        Cost c = cost_draft(a, &d);
        double seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
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
    Cost c = cost_draft(a, &d);
    Text once = {0}, again = {0};
    print_cost_draft(&d, &c, &once);
    print_cost_draft(&d, &c, &again);
    assert_string_equal(once.at, again.at);
    assert_memory_equal(once.at, "burst-cost 1\n", 13);
    const char *const parts[] = {"schedule ring, partition contiguous, travel keys, 4 ranks\n", "attention forward, full",
                                 "attention backward, full", "rest of a layer, forward", "optimizer", "timeline forward",
                                 "timeline backward", "rank 3 ", "imbalance 1.000"};
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
        cmocka_unit_test(ring_in_figures),   cmocka_unit_test(operations),
        cmocka_unit_test(steps_add_up),      cmocka_unit_test(recomputing_adds_what_it_repeats),
        cmocka_unit_test(keeping_less_takes_less_memory),
        cmocka_unit_test(one_rank_sends_nothing), cmocka_unit_test(all_to_all),
        cmocka_unit_test(weight_bytes),      cmocka_unit_test(weights_that_show),
        cmocka_unit_test(whole_tiles),       cmocka_unit_test(windows_send_less),
        cmocka_unit_test(parts_stand_for_the_whole), cmocka_unit_test(thousand_ranks_are_quick),
        cmocka_unit_test(printed_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
