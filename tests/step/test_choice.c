/* test_choice.c: two choices that differ in one field have the same step, and need the same memory, wherever
 * choice_same says that they do; and each field that it reads for a step makes a difference somewhere. */
#include "case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

typedef struct FieldOf { const char *name; size_t offset, size; unsigned keys; } FieldOf;

static const FieldOf fields[] = {
#define X(type, name, dimension, kind, keys) {#name, offsetof(Choice, name), sizeof (Choice){0}.name, keys},
    CHOICE_FIELDS(X)
#undef X
};

/* What steps do not depend on differs too. */
static Choice other_choice(const Program *p, Choice c)
{
    c.data = draw(2) ? (int)p->train.batch : (int)p->layout.data.value;
    c.loss_tile = 16 * draw(3);
    c.head_chunks = draw(2) ? 2 : 0;
    c.tensor = 0;
    c.ranks = 3;
    choice_set_sizes(&c, 1, &c.ranks);
    c.partition = PART_STRIPED;
    c.block = 3;
    c.shares = SHARES_REST;
    c.placed = c.ranges = c.whole = true;
    c.place[0] = c.data_stride = 2;
    c.travel = TRAVEL_QUERIES;
    c.spared = c.offload_values = 3;
    return c;
}

/* What no layout may combine. */
static bool is_planned(const Program *p, const Choice *c)
{
    const bool queries = choice_chunks_queries(c), heads = c->head_chunks > 1;
    return (!queries || (!c->tensor && !heads)) && (!choice_keeps_tail(c) || (!queries && !heads)) &&
           (!c->fetch_chunks || (queries && c->offload && !c->offload_layers)) &&
           (!c->overlap || c->tensor) && (c->expert_groups < 2 || p->model.experts.experts) &&
           (!heads || shape_of(p, c).rank.kv_heads >= c->head_chunks);
}

/* The list, and what its values take. */
static const char *step_text(Arena *a, const Program *p, const Choice *c)
{
    const Shape shape = shape_of(p, c);
    const Partition *part = partition_make(a, PART_CONTIGUOUS, 0, p->sequence, 1);
    Step *step = step_make(a, p, c, part, units_make(a, p, &shape, c->within, false), NULL, 64, 0);
    Flow *f = step_flow(a, step);
    Text t = {0};
    step_pack(a, f, 4, (MemoryBudget){0});
    print_step(step, &t);
    text_printf(&t, "%lld %lld %lld %lld\n", (long long)f->packed, (long long)f->host, (long long)f->state,
                (long long)f->host_state);
    return text_keep(a, &t);
}

/* Each field taken from the other; shown[field]: how often that made another step. */
static void compare_fields(const Case *c, const Choice *x, const Choice *y, int *shown)
{
    const char *text = step_text(c->arena, &c->program, x);
    for (int i = 0; i < countof(fields); i++) {
        Choice z = *x;
        memcpy((char *)&z + fields[i].offset, (const char *)y + fields[i].offset, fields[i].size);
        if (!is_planned(&c->program, &z))
            continue;
        const bool same = choice_same(x, &z, choice_step_keys(x) | choice_step_keys(&z)),
                   shows = strcmp(text, step_text(c->arena, &c->program, &z)) != 0;
        if (same && shows)
            fail_msg("choices that differ in %s are the same by their keys, and have other steps",
                     fields[i].name);
        shown[i] += shows;
    }
}

static void fields_that_make_a_step_are_compared(void **state)
{
    (void)state;
    int shown[countof(fields)] = {0};
    for (int i = 0; i < 160; i++) {
        Case *c = make_split_case(i % 2, i / 2, i % 5 == 4), *o = make_split_case(i % 2, i / 2 + 1, false);
        const Choice x = c->choice;
        Choice y = other_choice(&c->program, o->choice);
        if (i % 3 == 0 && c->program.model.kinds < 2)
            c->program.model.experts = (BurstExperts){.experts = 8, .top = 2, .width = 8, .scale = 1};
        y.expert_groups = 4;
        y.overlap = x.tensor && !x.overlap;
        const bool shards = !x.within && c->program.cluster.world > 1;
        y.within = shards ? choice_tensor(&x) : 0;
        if (is_planned(&c->program, &x))
            compare_fields(c, &x, &y, shown);
        arena_free(o->arena);
        arena_free(c->arena);
    }
    for (int i = 0; i < countof(fields); i++)
        if (!shown[i] != !(fields[i].keys & KEY_STEP))
            fail_msg("CHOICE_FIELDS has %s %s KEY_STEP, and %d steps differ by it; random_choice (case.c) "
                     "draws it",
                     fields[i].name, fields[i].keys & KEY_STEP ? "with" : "without", shown[i]);
}

/* Key heads that the queries first .. first + n - 1 of a model read. */
static int kv_heads_of(const Model *m, int first, int n)
{
    const int group = m->heads / m->kv_heads;
    return (first + n - 1) / group - first / group + 1;
}

/* Every rank has whole heads, and what its queries read; every chunk too, and together they are the rank's.
 */
static void check_shape(const Program *p, const Choice *c)
{
    const Shape s = shape_of(p, c);
    const Model *m = &p->model;
    const int tensor = choice_tensor(c);
    int heads = 0, kv_heads = 0, copies = 0;
    assert_int_equal(s.rank.heads * tensor, m->heads);
    assert_int_equal(s.ffn * tensor, m->ffn);
    for (int r = 0; r < tensor; r++) {
        assert_int_equal(kv_heads_of(m, r * s.rank.heads, s.rank.heads), s.rank.kv_heads);
        copies += r * s.rank.heads / (m->heads / m->kv_heads) == 0;
    }
    assert_int_equal(s.key_copies, copies);
    for (int chunk = 0; chunk < s.head_chunks; chunk++) {
        const Heads of = shape_chunk(&s, chunk >= s.head_chunks - s.short_chunks);
        assert_true(of.kv_heads > 0 && of.kv_heads <= s.chunk.kv_heads);
        assert_int_equal(of.heads * s.rank.kv_heads, of.kv_heads * s.rank.heads);
        heads += of.heads, kv_heads += of.kv_heads;
    }
    assert_int_equal(heads, s.rank.heads);
    assert_int_equal(kv_heads, s.rank.kv_heads);
    const Shape whole = shape_unchunked(s);
    assert_int_equal(whole.chunk.heads, s.rank.heads);
}

/* copied, uneven: how many of these there are, counted apart. */
static void shapes_share_out_all_heads(void **state)
{
    (void)state;
    int copied = 0, uneven = 0;
    for (int kv_heads = 1; kv_heads <= 12; kv_heads++)
        for (int tensor = 1; tensor <= 12; tensor++)
            for (int group = 1; group <= 8; group++) {
                const Program p = {
                    .model = {.heads = group * kv_heads, .kv_heads = kv_heads, .ffn = 5 * tensor}};
                if ((kv_heads % tensor && tensor % kv_heads) || p.model.heads % tensor)
                    continue; /* refused by the front end */
                Choice c = {.tensor = tensor > 1 ? tensor : 0};
                const int most = shape_of(&p, &c).rank.kv_heads;
                for (c.head_chunks = 0; c.head_chunks <= most; c.head_chunks++) {
                    check_shape(&p, &c);
                    uneven += shape_of(&p, &c).short_chunks > 0;
                }
                copied += shape_of(&p, &c).key_copies > 1;
            }
    assert_int_equal(copied, 44);
    assert_int_equal(uneven, 424);
}

/* What the search finds of attention for the one, it takes for all that have the same KEY_RANGES: a field may
 * change attention only if it is among those, the tail apart, which is no field. */
static void what_changes_attention_changes_ranges(void **state)
{
    (void)state;
    int found = 0;
    for (int i = 0; i < countof(fields); i++) {
        if (fields[i].keys & KEY_ATTENTION && !(fields[i].keys & KEY_RANGES))
            fail_msg("'%s' has KEY_ATTENTION and not KEY_RANGES", fields[i].name);
        found += (fields[i].keys & KEY_ATTENTION) != 0;
    }
    assert_true(found > 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(shapes_share_out_all_heads),
                                       cmocka_unit_test(fields_that_make_a_step_are_compared),
                                       cmocka_unit_test(what_changes_attention_changes_ranges)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
