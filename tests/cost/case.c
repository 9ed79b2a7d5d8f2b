/* case.c: see case.h. */
#include "case.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static char topo_path[64], model_path[64]; /* of this process */

/* An a100 that takes the same for every pair of a tile, in rows of any length. */
static const char flat[] =
    "device flat { arch sm_80; memory 80 GB; hbm 2.0 TB/s; matmul bf16 270 TFLOP/s; link 300 GB/s;\n"
    "  attention forward 200 TFLOP/s; attention backward 170 TFLOP/s;\n"
    "  attention forward keys 1 200 TFLOP/s; attention backward keys 1 170 TFLOP/s; }\n";

const Case usual = {1,
                    4,
                    4,
                    8,
                    8,
                    "64Ki",
                    "full",
                    "flat",
                    "ring",
                    "none",
                    PART_CONTIGUOUS,
                    TRAVEL_KEYS,
                    false,
                    0,
                    0,
                    0,
                    0,
                    0,
                    SHARDING_ZERO3,
                    OPTIMIZER_ON_DEVICE};

static void write_texts(Arena *a, const Case *k)
{
    const int groups = k->data ? k->data : 1, link = k->link ? k->link : 300,
              sums = k->sums ? k->sums : link;
    Text topo = {0}, model = {0};
    text_printf(&topo,
                "%snic card { bandwidth %d Gb/s; latency 5 us; }\ncluster c {\n  nodes %d { gpus %d of %s; "
                "nics %d of card; }\n"
                "  link nvlink { bandwidth %d GB/s; sums %d GB/s alone %d GB/s taking %g; "
                "latency 2 us; }\n}\n"
                "host { memory 512 GiB; pcie 32 GB/s%s; cores 64; }\n",
                flat, k->gbps ? k->gbps : 200, k->nodes, k->gpus, k->device, k->nics ? k->nics : k->gpus,
                link, sums, k->alone ? k->alone : sums, k->taking,
                k->both ? arena_printf(a, " both %d GB/s", k->both) : "");
    text_printf(
        &model,
        "import \"masks\";\nmodel m {\n  layers %d; hidden 1024; heads %d; kv_heads %d; head_dim 128;\n"
        "  ffn swiglu 4096; norm rmsnorm 1e-5; rope 10000; vocab 32000; tied no;\n}\n"
        "attention { default %s; }\nsequence %s;\nlayout { data %d; }\ntrain { batch %d; }\n",
        k->layers, k->heads, k->kv_heads, k->mask, k->sequence, groups, k->batch ? k->batch : groups);
    snprintf(topo_path, sizeof topo_path, "cost_case_%d.topo", (int)getpid());
    snprintf(model_path, sizeof model_path, "cost_case_%d.burst", (int)getpid());
    assert_int_equal(text_write_file(&topo, topo_path), 0);
    assert_int_equal(text_write_file(&model, model_path), 0);
    text_free(&topo);
    text_free(&model);
}

static void two_levels(Choice *c, const Case *k)
{
    bool two = c->schedule->coords == 2;
    choice_set_sizes(c, c->schedule->coords, (const int[]){two ? k->nodes : c->ranks, c->ranks / k->nodes});
}

static Recompute recompute_named(const char *name)
{
    int r = 0;
    while (strcmp(recompute_names[r], name) != 0)
        assert_true(++r < RECOMPUTES);
    return (Recompute)r;
}

Draft make(Arena *a, const Case *k)
{
    write_texts(a, k);
    Diags *d = diags_new(a);
    FrontEnd in = {.topo_path = topo_path,
                   .model_path = model_path,
                   .stock_dir = STOCK_DIR,
                   .target = &targets[k->cuda ? TARGET_CUDA : TARGET_C]};
    const Program *p = front_end(a, d, &in);
    if (!p)
        diags_print(d, stdout);
    assert_non_null(p);
    remove(topo_path);
    remove(model_path);
    const int groups = k->data ? k->data : 1;
    Choice c = {.data = groups,
                .ranks = p->cluster.world / groups,
                .partition = k->partition,
                .travel = k->travel,
                .saving = saving_by(recompute_named(k->recompute), k->tail),
                .sharding = k->sharding,
                .optimizer = k->optimizer};
    for (int i = 0; i < p->schedule_count; i++)
        if (strcmp(p->schedules[i]->name, k->schedule) == 0)
            c.schedule = p->schedules[i];
    assert_non_null(c.schedule);
    two_levels(&c, k);
    Draft t = draft_make(a, d, p, &c);
    diags_print(d, stdout);
    assert_int_not_equal(t.attention.n, 0);
    return t;
}

void close_to(double got, double expected, double tolerance)
{
    if (!(fabs(got - expected) <= tolerance * fabs(expected)))
        fail_msg("got %.12g, expected %.12g", got, expected);
}
