/* `burstc probe`: the file parses, describes this machine, and its figures are of the right size. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "burst.h"

#include <unistd.h>

static const char model[] = "import \"masks\";\nmodel m { layers 1; hidden 64; heads 4; kv_heads 4; head_dim 16; ffn swiglu 128;\n"
                            "  norm rmsnorm 1e-5; rope 10000; vocab 256; tied no; }\nattention { default causal; }\n"
                            "sequence 1Ki;\n";

static const Cluster *probed(Arena *a, int nodes, int devices)
{
    Text topo = {0}, text = {0};
    assert_int_equal(probe(&topo, nodes, devices), 0);
    text_add(&text, model);
    assert_int_equal(text_write_file(&topo, "probe_case.topo"), 0);
    assert_int_equal(text_write_file(&text, "probe_case.burst"), 0);
    text_free(&topo);
    text_free(&text);
    Diags *d = diags_new(a);
    FrontEnd in = {.target = &targets[TARGET_C], .topo_path = "probe_case.topo", .model_path = "probe_case.burst", .stock_dir = STOCK_DIR};
    const Program *p = front_end(a, d, &in);
    diags_print(d, stdout);
    assert_non_null(p);
    return &p->cluster;
}

static void parses(void **state)
{
    (void)state;
    static const int shapes[][2] = {{1, 1}, {1, 4}, {2, 4}, {3, 1}};
    double physical = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    for (int i = 0; i < countof(shapes); i++) {
        Arena *a = arena_new();
        const Cluster *c = probed(a, shapes[i][0], shapes[i][1]);
        const Device *d = c->groups[0].device;
        assert_int_equal(c->nodes, shapes[i][0]);
        assert_int_equal(c->world, shapes[i][0] * shapes[i][1]);
        assert_ptr_equal(d->target, &targets[TARGET_C]);
        assert_true(c->host_cores >= 1 && c->host_cores <= sysconf(_SC_NPROCESSORS_ONLN));
        assert_true(d->memory * c->world <= physical * 1.001 && d->memory * c->world >= physical * 0.9);
        assert_true(d->matmul > 1e8 && d->matmul < 1e13); /* sanitizers slow it, no core reaches 10 TFLOP/s */
        assert_true(d->attention_forward < d->matmul && d->attention_backward < d->matmul);
        assert_true(c->link_bandwidth > 1e8 && c->link_bandwidth < 1e12 && d->hbm > c->link_bandwidth);
        arena_free(a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(parses)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
