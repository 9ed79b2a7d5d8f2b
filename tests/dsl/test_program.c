/* test_program.c: what the checker makes of clusters, models, layouts and training, in base units. */
#include "text.h"

#include <math.h>

static void design_cluster(void **state)
{
    (void)state;
    Arena *a = arena_new();
    const Program *p =
        program_of(a,
                   "cluster lab { nodes 2 { gpus 4 of h200; nics 4 of hdr; } nodes 1 { gpus 8 of a100; nics "
                   "2 of ndr; }\n"
                   "  link nvlink { bandwidth 400 GB/s; latency 3 us; } fabric { oversubscription 2; } }\n"
                   "device h200 { arch sm_90a; memory 100 GB; hbm 4 TB/s; matmul bf16 700 TFLOP/s; attention "
                   "forward 600 TFLOP/s; "
                   "}\n"
                   "host { memory 512 GiB; pcie 55 GB/s; cores 32; }\n",
                   MODEL "sequence 64Ki;\n");
    const Cluster *c = &p->cluster;
    assert_string_equal(c->name, "lab");
    assert_int_equal(c->world, 16);
    assert_int_equal(c->nodes, 3);
    assert_int_equal(c->group_count, 2);
    assert_int_equal(c->groups[1].nics, 2);
    assert_true(c->groups[1].nic->bandwidth == 50e9 && c->groups[1].nic->latency == 5000);
    assert_true(c->link_bandwidth == 400e9 && c->link_latency == 3000 && c->oversubscription == 2);
    assert_true(c->host_memory == 512.0 * (1 << 30) && c->pcie == 55e9 && c->host_cores == 32);
    const Device *own = c->groups[0].device;
    assert_true(own->memory == 100e9 && own->matmul == 700e12 &&
                own->attention_forward == 600e12); /* hides the stock one */
    assert_true(own->attention_backward == 0.65 * 700e12);
    assert_ptr_equal(own->target, &targets[TARGET_CUDA]);
    arena_free(a);
}

static void model_and_defaults(void **state)
{
    (void)state;
    Arena *a = arena_new();
    const Program *p = program_of(a, TOPO, MODEL "sequence 1Ki;\n");
    const Model *m = &p->model;
    assert_int_equal(m->layers, 4);
    assert_int_equal(m->kv_heads, 4);
    assert_int_equal(m->head_dim, 16);
    assert_true(m->norm_eps == 1e-5 && m->rope.theta == 10000 && !m->tied);
    assert_int_equal(p->sequence, 1024);
    assert_true(p->cluster.link_bandwidth == 450e9); /* of the stock h100 */
    assert_non_null(p->cluster.groups[0].nic);
    const Layout *l = &p->layout;
    assert_true(l->data.value == 1 && l->data.is_auto && l->context.is_auto && l->heads.is_auto &&
                l->tensor.value == 1);
    assert_true(l->partition.is_auto && l->travel.is_auto && !l->saving.upper && !l->schedule);
    const Train *t = &p->train;
    assert_true(!t->data_files && t->separator == -1 && t->steps == 1000 && t->batch == 1 && t->seed == 1 &&
                !t->checkpoint);
    assert_true(!t->weights && !t->export_dir && !t->export_f32);
    assert_true(t->lr == 3e-4 && t->lr_end == 3e-4 && t->beta1 == 0.9 && t->beta2 == 0.95 && t->decay == 0.1);
    assert_true(t->clip == 1 && t->adam_eps == 1e-8 && t->warmup == 0 &&
                t->schedule == BURST_SCHEDULE_CONSTANT);
    assert_int_equal(p->mask_count, 1);
    assert_string_equal(p->masks[0].text, "causal");
    arena_free(a);
}

static void layout_and_training_as_given(void **state)
{
    (void)state;
    Arena *a = arena_new();
    const Program *p = program_of(a, TOPO,
                                  MODEL "sequence 1Ki;\n"
                                        "layout { data 2; context 1; heads 2; partition blocks(32); schedule "
                                        "ulysses; travel queries; recompute full; "
                                        "}\n"
                                        "train { data \"t.bin\"; separator 3; steps 50; batch 6; seed 9; "
                                        "checkpoint \"c\" every 7; weights \"w\"; export \"x\" f32;\n"
                                        "  optimizer adamw { lr 1e-2; betas 0.5 0.75; eps 1e-6; decay 0; "
                                        "clip 2; warmup 5; cosine to 1e-3; } }\n");
    const Layout *l = &p->layout;
    assert_true(l->data.value == 2 && l->data.given && l->context.value == 1 && l->heads.value == 2);
    assert_true(l->partition.value == PART_BLOCKS && l->block.value == 32 && l->block.given);
    assert_string_equal(l->schedule, "ulysses");
    assert_true(l->travel.value == TRAVEL_QUERIES && !l->travel.is_auto && l->saving.lower == saved_least() &&
                l->saving.upper == saved_least());
    const Train *t = &p->train;
    assert_int_equal(t->data_files, 1);
    assert_string_equal(t->data->path, "t.bin");
    assert_string_equal(t->checkpoint, "c");
    assert_string_equal(t->weights, "w");
    assert_string_equal(t->export_dir, "x");
    assert_true(t->export_f32);
    assert_true(t->separator == 3 && t->steps == 50 && t->batch == 6 && t->seed == 9 &&
                t->checkpoint_every == 7);
    assert_true(t->lr == 1e-2 && t->lr_end == 1e-3 && t->schedule == BURST_SCHEDULE_COSINE &&
                t->beta1 == 0.5 && t->beta2 == 0.75 && t->warmup == 5);
    assert_true(t->adam_eps == 1e-6 && t->decay == 0 && t->clip == 2);
    arena_free(a);
}

static void batch_follows_data(void **state)
{
    (void)state;
    Arena *a = arena_new();
    assert_int_equal(program_of(a, TOPO, MODEL "sequence 1Ki; layout { data 4; }\n")->train.batch, 4);
    arena_free(a);
}

static void slowest_link_of_a_mixed_cluster(void **state)
{
    (void)state;
    Arena *a = arena_new();
    const Program *p = program_of(a,
                                  "cluster c { nodes 1 { gpus 1 of h200; nics 1 of edr; } nodes 1 { gpus 3 "
                                  "of a800; nics 1 of edr; } }\n",
                                  MODEL "sequence 1Ki;\n");
    assert_true(p->cluster.link_bandwidth == 200e9 && p->cluster.groups[0].nic->bandwidth == 12.5e9);
    arena_free(a);
}

static void masks_by_layer(void **state)
{
    (void)state;
    Arena *a = arena_new();
    const Program *p =
        program_of(a, TOPO,
                   MODEL "sequence 1Ki; attention { layers 1, 3: window(2 * 8); layers 2: full; }\n");
    static const char *const wanted[] = {"causal", "window(16)", "full", "window(16)"};
    assert_int_equal(p->mask_count, 3);
    for (int i = 0; i < 4; i++)
        assert_string_equal(p->masks[p->layer_mask[i]].text, wanted[i]);
    arena_free(a);
}

static void tables_in_use_only(void **state)
{
    (void)state;
    Arena *a = arena_new();
    assert_int_equal(
        program_of(a, TOPO, MODEL "sequence 1Ki; table doc per token lengths 8 .. 64;\n")->table_count, 0);
    const Program *p =
        program_of(a, TOPO,
                   MODEL
                   "sequence 1Ki; table doc per token lengths 8 .. 64; attention { default document; }\n");
    assert_int_equal(p->table_count, 1);
    assert_string_equal(p->tables[0].name, "doc");
    assert_true(p->tables[0].len_min == 8 && p->tables[0].len_max == 64);
    arena_free(a);
}

static void stock_schedules_in_order(void **state)
{
    (void)state;
    Arena *a = arena_new();
    const Program *p = program_of(a, TOPO, MODEL "sequence 1Ki;\n");
    assert_true(p->schedule_count >= 3);
    for (int i = 1; i < p->schedule_count; i++)
        assert_true(strcmp(p->schedules[i - 1]->source->name, p->schedules[i]->source->name) < 0);
    arena_free(a);
}

/* A user's schedule of a stock name takes its place. */
static void own_schedule_hides_a_stock_one(void **state)
{
    (void)state;
    Arena *a = arena_new();
    Diags *d = diags_new(a);
    const char *own =
        memory_file(a, "schedule ring over (me of All) { forward { attend Q[me] with KV[me]; } backward "
                       "{ grad Q[me] with KV[me]; } }");
    FrontEnd in = {.target = &targets[TARGET_C], .topo_path = memory_file(a, TOPO),
                   .model_path = memory_file(a, MODEL "sequence 1Ki; layout { schedule ring; }"),
                   .stock_dir = DSL_STOCK,
                   .schedule_paths = &own,
                   .schedule_path_count = 1};
    const Program *p = front_end(a, d, &in);
    close_files();
    assert_non_null(p);
    int rings = 0;
    for (int i = 0; i < p->schedule_count; i++)
        if (strcmp(p->schedules[i]->name, "ring") == 0) {
            rings++;
            assert_string_equal(p->schedules[i]->coord_name[0], "me");
        }
    assert_int_equal(rings, 1);
    arena_free(a);
}

static void missing_stock_is_diagnosed(void **state)
{
    (void)state;
    Arena *a = arena_new();
    Diags *d = diags_new(a);
    FrontEnd in = {.target = &targets[TARGET_C], .topo_path = memory_file(a, TOPO),
                   .model_path = memory_file(a, MODEL "sequence 1Ki;"),
                   .stock_dir = "/nowhere"};
    assert_null(front_end(a, d, &in));
    close_files();
    assert_int_equal(diags_errors(d), 3);
    in.model_path = "/nowhere/model.burst";
    Diags *other = diags_new(a);
    assert_null(front_end(a, other, &in));
    assert_true(diags_errors(other) >= 4);
    arena_free(a);
}

static double rate_of(const Device *d, AttentionKind kind, bool backward, int64_t value)
{
    for (int i = 0; i < d->rates; i++)
        if (d->rate[i].kind == kind && d->rate[i].backward == backward && d->rate[i].value == value)
            return d->rate[i].rate;
    return 0;
}

/* Those of sm_80 have the shape that was measured on an h200, in whole TFLOP/s. */
static void rates_of_short_rows(void **state)
{
    (void)state;
    Arena *a = arena_new();
    const Program *p = program_of(a,
                                  "cluster lab { nodes 1 { gpus 2 of h200; nics 1 of hdr; }\n"
                                  "  nodes 1 { gpus 2 of a100; nics 1 of hdr; }\n"
                                  "  nodes 1 { gpus 2 of a800; nics 1 of hdr; } }\n",
                                  MODEL "sequence 64Ki;\n");
    enum { H200, A100, A800, DEVICES };
    static const int64_t keys[2][4] = {{3960, 2108, 1134, 635}, {3930, 2077, 1102, 603}};
    static const double long_rows[2] = {200.0 / 718, 170.0 / 575};
    for (int i = 0; i < 8; i++) {
        double rate[DEVICES];
        for (int d = 0; d < DEVICES; d++)
            rate[d] = rate_of(p->cluster.groups[d].device, ATTENTION_KEYS, i / 4, keys[i / 4][i % 4]);
        assert_true(rate[H200] > 0 && fabs(rate[A100] - long_rows[i / 4] * rate[H200]) <= 0.6e12);
        assert_true(rate[A800] == rate[A100]);
    }
    arena_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(design_cluster),              cmocka_unit_test(model_and_defaults),
        cmocka_unit_test(layout_and_training_as_given), cmocka_unit_test(batch_follows_data),
        cmocka_unit_test(slowest_link_of_a_mixed_cluster), cmocka_unit_test(masks_by_layer),
        cmocka_unit_test(tables_in_use_only),          cmocka_unit_test(stock_schedules_in_order),
        cmocka_unit_test(own_schedule_hides_a_stock_one), cmocka_unit_test(missing_stock_is_diagnosed),
        cmocka_unit_test(rates_of_short_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
