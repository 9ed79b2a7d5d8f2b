/* `burstc probe`: the figures of its file are those that the program printed, and with them the simulation
 * takes what was measured; for processors it says where times spread. attention_rate against its formula. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "burst_measure_times.h"
#include "tools/measure.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- rates of attention ---- */

/* a + b keys seconds an operation and row, for what a device with one row of keys is told. */
static void rates(void **state)
{
    (void)state;
    const double fast = 700e12, slow = 500e12;
    const AttentionRate row[] = {{ATTENTION_KEYS, true, 1000, 1e12, {0}},
                                 {ATTENTION_KEYS, false, 1000, slow, {0}},
                                 {ATTENTION_HEAD_DIM, false, 64, 350e12, {0}},
                                 {ATTENTION_PARTIAL, false, 0, 350e12, {0}}};
    Device d = {.attention_forward = fast, .attention_backward = 600e12, .rate = row, .rates = countof(row)};
    for (double keys = 10; keys < 1e6; keys *= 3) {
        const double start = 1000 / slow - 1000 / fast; /* of a row */
        const AttentionWork w = {.pairs = 5000 * keys, .rows = 5000};
        assert_true(fabs(attention_rate(&d, false, 128, w) * (start + keys / fast) / keys - 1) < 1e-12);
        assert_true(fabs(attention_rate(&d, false, 64, w) / attention_rate(&d, false, 128, w) - 0.5) < 1e-12);
        const AttentionWork all = {w.pairs, w.pairs, 0}, half = {w.pairs, w.pairs / 2, 0};
        assert_true(fabs(attention_rate(&d, false, 128, all) - 350e12) < 1);
        assert_true(fabs(attention_rate(&d, false, 128, half) - 2 / (1 / fast + 1 / 350e12)) < 1);
    }
    assert_true(fabs(attention_rate(&d, true, 128, (AttentionWork){1000e3, 0, 1e3}) - 1e12) < 1);
    d.rates = 0;
    assert_true(attention_rate(&d, false, 64, (AttentionWork){10, 10, 10}) == fast);
}

/* Between two rows of keys the time of a row is on the line through both, below the shorter on the same
 * line. */
static void rows_of_keys(void **state)
{
    (void)state;
    const AttentionRate row[] = {{ATTENTION_KEYS, false, 4000, 600, {0}},
                                 {ATTENTION_KEYS, false, 500, 300, {0}}};
    const Device d = {.attention_forward = 700, .rate = row, .rates = countof(row)};
    const double long_row = 4000.0 / 600, short_row = 500.0 / 300;
    for (int keys = 50; keys <= 4000; keys += 50) {
        const double time = short_row + (long_row - short_row) * (keys - 500) / 3500;
        assert_true(
            fabs(keys / attention_rate(&d, false, 128, (AttentionWork){3.0 * keys, 0, 3}) / time - 1) < 1e-9);
    }
    /* long rows slower than short ones */
    const Device odd = {.attention_forward = 200, .rate = row, .rates = countof(row)};
    for (double keys = 1; keys < 1e6; keys *= 2) {
        const double rate = attention_rate(&odd, false, 128, (AttentionWork){keys, 0, 1});
        assert_true(rate > 0 && rate <= 600 * (1 + 1e-9));
    }
}

/* ---- what was measured ---- */

static double drawn(unsigned *seed, double lo, double hi)
{
    *seed = *seed * 1664525u + 1013904223u;
    return lo + (hi - lo) * (*seed >> 8) / (1 << 24);
}

/* Seconds of made-up kernels: each tile takes something, each row too. */
static void make_attention(Arena *a, const Program *p, const MeasureJob *j, double rate, double start,
                           Text *out)
{
    for (int i = 0; i < j->cases; i++) {
        Piece piece;
        const PosSet all = pos_run(&piece, 0, p->sequence);
        const PairWork w = mask_work(mask_map(a, p, j->at[i].mask, 64, 64), &all, &all);
        text_printf(out, "attention %d %lld", i, (long long)w.pairs);
        for (int b = 0; b < 2; b++) {
            AttentionWork x = attention_work(p, b, w, p->sequence, p->sequence);
            x.partial *= attention_predicate(p, j->at[i].mask, j->at[i].head_dim);
            const double slower = (b ? 1.2 : 1) * (j->at[i].head_dim == 64 ? 1.3 : 1);
            const double flops = (b ? 10.0 : 4.0) * j->at[i].head_dim * j->at[i].heads *
                                 (x.pairs + 0.2 * x.partial + start * x.rows);
            text_printf(out, " %.9g 1000 %d", slower * flops / rate, i * 1000);
        }
        text_add(out, "\n");
    }
}

static void make_figures(Arena *a, const Program *p, const MeasureJob *j, unsigned seed, Text *out)
{
    const int gpus = seed % 2 ? 4 : 1;
    const double rate = drawn(&seed, 2e14, 9e14), start = drawn(&seed, 0, 500);
    text_printf(out, "burst-measure 1\ngpus %d\ndevice 85899345920 NVIDIA A100-SXM4-80GB\nproduct 2.7e14\n",
                gpus);
    make_attention(a, p, j, rate, start, out);
    if (gpus > 1)
        text_add(out, "apart 1.021 1.013 1.034\n");
    text_add(out, "passes 1.5e12\nnorms 1.4e12\ncopy 1.7e12\nexperts 2.3e14\n"
                  "pcie 2.5e10 2.4e10 2.3e10 1.5e10\n");
    if (gpus > 1)
        text_add(out, "reduction 2.1e11 1.2e11 1.25\n"
                      "link auto 2.5e11 2.4e11 1.5e-05\nlink nccl 2.3e11 9e10 2.5e-05\n");
    text_add(out, "end\n");
}

static const Program *read_cluster(Arena *a, const Text *topo)
{
    Text text = {0};
    text_add(&text, "model m { layers 1; hidden 64; heads 32; kv_heads 8; head_dim 128; ffn swiglu 128; "
                    "vocab 256; }\nsequence 32Ki;\n");
    assert_int_equal(text_write_file(topo, "probe_case.topo"), 0);
    assert_int_equal(text_write_file(&text, "probe_case.burst"), 0);
    text_free(&text);
    Diags *d = diags_new(a);
    const FrontEnd in = {.topo_path = "probe_case.topo",
                         .model_path = "probe_case.burst",
                         .stock_dir = STOCK_DIR};
    const Program *p = front_end(a, d, &in);
    diags_print(d, stdout);
    assert_non_null(p);
    return p;
}

/* With the file's rates each case takes what it took, but for the digits that the file has. */
static void assert_takes(Arena *a, const Device *d, const Program *p, const MeasureJob *j, const Measured *m,
                         double tolerance)
{
    for (int i = 0; i < j->cases; i++)
        for (int b = 0; b < 2; b++) {
            Piece piece;
            const PosSet all = pos_run(&piece, 0, p->sequence);
            const PairWork w = mask_work(mask_map(a, p, j->at[i].mask, 64, 64), &all, &all);
            AttentionWork x = attention_work(p, b, w, p->sequence, p->sequence);
            x.partial *= attention_predicate(p, j->at[i].mask, j->at[i].head_dim);
            const double seconds = (b ? 10 : 4) * x.pairs * j->at[i].head_dim * j->at[i].heads /
                                   attention_rate(d, b, j->at[i].head_dim, x);
            assert_true(fabs(seconds / m->attention[i].seconds[b] - 1) < tolerance);
        }
}

static void takes_what_it_took(void **state)
{
    (void)state;
    for (unsigned seed = 0; seed < 6; seed++) {
        Arena *a = arena_new();
        Text figures = {0}, topo = {0}, again = {0};
        Measured m;
        const Program *p = probe_program(a, diags_new(a), STOCK_DIR, &probe_gpu_cases, "sm_80", 4);
        assert_non_null(p);
        const MeasureJob j = probe_job(a, p, STOCK_DIR, &probe_gpu_cases);
        const ProbedHost h = {2, 96, 1e12, {200, 4}};
        make_figures(a, p, &j, seed, &figures);
        assert_null(measure_read(a, figures.at, &j, &m));
        probe_gpu_print(a, p, &m, &h, &topo);
        probe_gpu_print(a, p, &m, &h, &again);
        assert_string_equal(topo.at, again.at);
        assert_int_equal(strstr(topo.at, " 1.021 times ") && strstr(topo.at, " 1.013 forward and 1.034 "),
                         m.gpus > 1);
        const Cluster *c = &read_cluster(a, &topo)->cluster;
        const Device *d = c->groups[0].device;
        assert_string_equal(d->name, "a100_sxm4_80gb");
        assert_true(c->nodes == 2 && c->world == 2 * m.gpus && c->groups[0].nics == 4 &&
                    c->groups[0].nic->bandwidth == 25e9);
        assert_true(d->passes == 1.5e12 && d->norms == 1.4e12 && d->hbm == 1.7e12 && d->matmul == 2.7e14 &&
                    d->experts == 2.3e14);
        assert_true(c->pcie == 2.3e10 && c->pcie_both == 1.5e10 && c->host_cores == 96);
        assert_true(m.gpus == 1 || (c->link_bandwidth == 2.4e11 && fabs(c->link_latency - 15e3) < 1e-6 &&
                               c->link_sums == 1.2e11 && c->link_sums_alone == 2.1e11 &&
                               fabs(c->link_sums_taking - 0.2) < 1e-9));
        assert_takes(a, d, p, &j, &m, 2e-3);
        text_free(&figures), text_free(&topo), text_free(&again);
        arena_free(a);
    }
}

/* ---- processors ---- */

static void make_cpu_figures(Arena *a, const Program *p, const MeasureJob *j, unsigned seed, double spread,
                             Text *out)
{
    const double rate = drawn(&seed, 2e10, 9e10), start = drawn(&seed, 0, 30);
    text_add(out, "burst-measure 1\ngpus 1\ndevice 16000000000 A processor\nproduct 9.57e10\n");
    make_attention(a, p, j, rate, start, out);
    text_printf(out, "passes 3.31e10\nnorms 2.99e10\ncopy 2.06e10\nexperts 8.88e10\nspread %.9g\nend\n",
                spread);
}

/* So many nodes of so many ranks on so many cores: their file has what the program printed. */
static void processors(void **state)
{
    (void)state;
    static const struct {
        int nodes, devices, cores, node_cores, cards;
    } shape[] = {{1, 1, 2, 2, 0},   {1, 4, 2, 2, 0}, {2, 4, 2, 1, 1},
                 {2, 4, 64, 32, 4}, {3, 1, 2, 1, 1}, {2, 8, 8, 4, 4}};
    for (int i = 0; i < countof(shape); i++) {
        Arena *a = arena_new();
        Text figures = {0}, topo = {0};
        Measured m;
        const Program *p = probe_program(a, diags_new(a), STOCK_DIR, &probe_cpu_cases, "cpu", 1);
        assert_non_null(p);
        const MeasureJob j = probe_job(a, p, STOCK_DIR, &probe_cpu_cases);
        const ProbedHost h = {.nodes = shape[i].nodes, .cores = shape[i].cores, .memory = 48.0 * (1 << 30)};
        make_cpu_figures(a, p, &j, (unsigned)i, 1, &figures);
        assert_null(measure_read(a, figures.at, &j, &m));
        probe_cpu_print(a, p, &m, &h, shape[i].devices, &topo);
        const Cluster *c = &read_cluster(a, &topo)->cluster;
        const Device *d = c->groups[0].device;
        assert_ptr_equal(d->target, &targets[TARGET_C]);
        assert_true(c->nodes == shape[i].nodes && c->world == shape[i].nodes * shape[i].devices &&
                    c->host_cores == shape[i].node_cores);
        assert_true(c->nodes == 1 || (c->groups[0].nics == shape[i].cards &&
                                      fabs(c->groups[0].nic->bandwidth / 1.03e10 - 1) < 1e-12));
        assert_true(d->experts == 8.88e10);
        assert_true(d->matmul == 9.57e10 && d->passes == 3.31e10 && d->norms == 2.99e10 && d->hbm == 2.06e10);
        assert_true(c->link_bandwidth == 1.03e10 && c->pcie == 1.03e10);
        assert_true(fabs(d->memory * c->world / h.memory - 1) < 1e-3 &&
                    fabs(c->host_memory * c->nodes / h.memory - 1) < 1e-3);
        assert_takes(a, d, p, &j, &m, 1e-2);
        text_free(&figures), text_free(&topo);
        arena_free(a);
    }
}

/* A file says so where half of the repetitions took more than a fifth longer than the best. */
static void spread_is_said(void **state)
{
    (void)state;
    static const double spread[] = {1, 1.199, 1.201, 30};
    Arena *a = arena_new();
    const Program *p = probe_program(a, diags_new(a), STOCK_DIR, &probe_cpu_cases, "cpu", 1);
    const MeasureJob j = probe_job(a, p, STOCK_DIR, &probe_cpu_cases);
    const ProbedHost h = {.nodes = 1, .cores = 2, .memory = 1e10};
    for (int i = 0; i < countof(spread); i++) {
        Text figures = {0}, topo = {0};
        Measured m;
        make_cpu_figures(a, p, &j, 3, spread[i], &figures);
        assert_null(measure_read(a, figures.at, &j, &m));
        probe_cpu_print(a, p, &m, &h, 1, &topo);
        assert_int_equal(strstr(topo.at, "\n# the figures are uncertain: ") != NULL, i >= 2);
        assert_int_equal(probe_uncertain(&m), i >= 2);
        read_cluster(a, &topo);
        text_free(&figures), text_free(&topo);
    }
    arena_free(a);
}

/* Nanoseconds a pair of emitted predicates on a Xeon (Sapphire Rapids), gcc 12 -O2 -march=x86-64-v3, and 0.33
 * of packing and applying what they keep. */
static const struct {
    const char *mask;
    double measured;
} predicate[] = {{PROBED_MASK, 1.35},
                 {"causal", 0.71},
                 {"causal and q - k < 100", 1.02},
                 {"window_sink(256, 4)", 1.13},
                 {"causal and hash(q, k) mod 16 == 0", 2.0},
                 {"bigbird(32, 1, 3, 5)", 3.89},
                 {"bigbird(48, 1, 3, 5)", 4.09},
                 {"hash(q / 32, k / 32) mod 5 == 0", 2.9},
                 {"q / 48 - k / 48 < 3", 1.55},
                 {"causal and (q - k) mod 3 == 0", 1.58},
                 {"dilated(100, 3)", 1.77},
                 {"strided(100, 7)", 1.88},
                 {"longnet(64, 4)", 4.91},
                 {"document", 1.03},
                 {"block_causal(48)", 1.45}};

static const Program *program_of_predicates(Arena *a, int heads, int kv_heads, const char *arch)
{
    const char *masks[countof(predicate)];
    for (int i = 0; i < countof(predicate); i++)
        masks[i] = predicate[i].mask;
    const MeasureModel m = {masks, countof(predicate), heads, kv_heads, 128, 1, 1 << 10, arch};
    return measure_program(a, diags_new(a), STOCK_DIR, &m);
}

/* Within a sixth of what was measured. The predicate takes as long for any head_dim, and once for the heads
 * of a walk; on devices it is part of each head's tile. */
static void predicates(void **state)
{
    (void)state;
    Arena *a = arena_new();
    const Program *two = program_of_predicates(a, 2, 1, "cpu"),
                  *eight = program_of_predicates(a, 8, 1, "cpu"),
                  *one = program_of_predicates(a, 2, 2, "cpu"),
                  *gpu = program_of_predicates(a, 2, 1, "sm_80");
    for (int i = 0; i < countof(predicate); i++) {
        const int mask = two->layer_mask[i];
        const double time = attention_predicate(two, mask, 128);
        assert_true(fabs(1.2 * mask_row_time(two->masks[mask].expr) / predicate[i].measured - 1) < 1.0 / 6);
        assert_true(time == mask_row_time(two->masks[mask].expr));
        assert_true(fabs(attention_predicate(two, mask, 32) / (4 * time) - 1) < 1e-12);
        assert_true(fabs(attention_predicate(one, mask, 128) / (2 * time) - 1) < 1e-12);
        assert_true(fabs(attention_predicate(eight, mask, 128) / (time / 2) - 1) < 1e-12); /* four at once */
        assert_true(attention_predicate(gpu, mask, 64) == 1);
    }
    assert_true(fabs(attention_predicate(two, two->layer_mask[0], 128) - 1) < 1e-12);
    arena_free(a);
}

/* A list of times in any order. */
static void times(void **state)
{
    (void)state;
    double few[] = {3, 1, 2}, half[] = {1.3, 1, 1.3, 1, 1.3}, less[] = {9, 1, 1, 9, 1}, even[] = {4, 2, 1, 3},
           one[] = {5};
    assert_true(measure_best(3, few) == 1 && measure_median(3, few) == 2 && measure_spread(3, few) == 2);
    assert_true(measure_spread(5, half) == 1.3 && measure_spread(5, less) == 1);
    assert_true(measure_spread(4, even) == 3 && measure_best(1, one) == 5 && measure_spread(1, one) == 1);
}

/* Cut anywhere, or with any byte another: refused, or figures that are numbers of machines. */
static void hostile(void **state)
{
    (void)state;
    Arena *a = arena_new();
    Text figures = {0};
    const Program *p = probe_program(a, diags_new(a), STOCK_DIR, &probe_gpu_cases, "sm_90a", 1);
    const MeasureJob j = probe_job(a, p, STOCK_DIR, &probe_gpu_cases);
    unsigned seed = 7;
    Measured m;
    make_figures(a, p, &j, seed, &figures);
    assert_null(measure_read(a, figures.at, &j, &m));
    for (size_t i = 0; i < figures.n; i++) {
        char *cut = arena_copy(a, figures.at, i), *other = arena_copy(a, figures.at, figures.n);
        assert_non_null(measure_read(a, cut, &j, &m));
        other[i] = (char)drawn(&seed, 1, 255);
        if (measure_read(a, other, &j, &m))
            continue;
        assert_true(m.gpus >= 1 && m.product > 0 && isfinite(m.product) && m.passes > 0 && m.norms > 0 &&
                    m.pcie[1] > 0 && strlen(m.device) < MEASURE_NAME);
        for (int k = 0; k < j.cases; k++)
            assert_true(m.attention[k].seconds[0] > 0 && isfinite(m.attention[k].seconds[1]));
    }
    text_free(&figures);
    arena_free(a);
}

static void write_number(const char *folder, const char *file, const char *text)
{
    char path[256], *slash;
    snprintf(path, sizeof path, "%s/%s", folder, file);
    for (slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        mkdir(path, 0777);
        *slash = '/';
    }
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void cards(void **state)
{
    (void)state;
    Arena *a = arena_new();
    assert_int_equal(probe_cards(a, "probe_sys/nothing").count, 0);
    write_number("probe_sys", "a/class/net/lo/speed", "99999999\n"); /* no device behind it */
    write_number("probe_sys", "a/class/net/eth0/speed", "25000\n");
    write_number("probe_sys", "a/class/net/eth0/device/x", "");
    write_number("probe_sys", "a/class/net/eth1/speed", "100000\n");
    write_number("probe_sys", "a/class/net/eth1/device/x", "");
    write_number("probe_sys", "a/class/net/eth2/speed", "-1\n"); /* down */
    write_number("probe_sys", "a/class/net/eth2/device/x", "");
    Cards c = probe_cards(a, "probe_sys/a");
    assert_true(c.count == 1 && c.gigabits == 100);
    for (int i = 0; i < 4; i++)
        write_number("probe_sys", arena_printf(a, "b/class/infiniband/mlx5_%d/ports/1/rate", i),
                     i ? "400 Gb/sec (4X NDR)\n" : "100 Gb/sec (4X EDR)\n");
    write_number("probe_sys", "b/class/net/eth0/speed", "800000\n"); /* a port of one of them */
    write_number("probe_sys", "b/class/net/eth0/device/x", "");
    c = probe_cards(a, "probe_sys/b");
    assert_true(c.count == 3 && c.gigabits == 400);
    arena_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rates),      cmocka_unit_test(rows_of_keys),   cmocka_unit_test(takes_what_it_took),
        cmocka_unit_test(processors), cmocka_unit_test(spread_is_said), cmocka_unit_test(times),
        cmocka_unit_test(predicates),
        cmocka_unit_test(hostile),    cmocka_unit_test(cards)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
