/* test_step.c: the step as data, executed in its packed memory, against the dense float64 model; and
 * mutants of it. */
#include "case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void steps_are_right(void **state)
{
    (void)state;
    int uneven = 0;
    for (int i = 0; i < 60; i++) {
        Case *c = make_case(i % 2, i / 2);
        const double error = error_of(c, c->flow);
        if (!(error < 1e-9))
            fail_msg("case %d: gradients are off by %g", i, error);
        uneven += c->step->shape.short_chunks > 0; /* chunks of heads */
        const double by_layer = error_of(c, placed_by_layer(c));
        if (!(by_layer < 1e-9))
            fail_msg("case %d: with places by layer, gradients are off by %g", i, by_layer);
        arena_free(c->arena);
    }
    assert_true(uneven >= 5);
}

/* Several ranks, one operation after the other together, each with its part of the layers and of the
 * tokens. */
static void split_steps_are_right(void **state)
{
    (void)state;
    for (int i = 0; i < 24; i++) {
        Case *c = make_split_case(i % 2, i / 2, true);
        const double error = error_of(c, c->flow);
        if (!(error < 1e-9))
            fail_msg("case %d: gradients of %d ranks are off by %g", i, c->step->shape.tensor, error);
        arena_free(c->arena);
    }
}

/* Forward with the loss alone, in the places of the whole step, whatever the layout. */
static void evaluations_are_right(void **state)
{
    (void)state;
    for (int i = 0; i < 60; i++) {
        Case *c = make_split_case(i % 2, i / 2, i % 8 == 3);
        const Flow *f = flow_evaluation(c->arena, i % 3 ? c->flow : placed_by_layer(c));
        const double error = evaluation_error(c, f);
        if (!(error < 1e-9))
            fail_msg("case %d: the loss is off by %g", i, error);
        arena_free(c->arena);
    }
}

/* Every rule of recomputation, sharding and number of chunks computes what `none` computes. */
static void layouts_agree(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        Case *c = make_case(i % 2, i / 2);
        const int heads = c->choice.head_chunks;
        set_layout(c, (Choice){.data = c->choice.data, .ranks = 1, .head_chunks = heads});
        assert_true(error_of(c, c->flow) < 1e-9);
        want_last(c);
        for (int r = 0; r < RECOMPUTES; r++)
            for (int s = 0; s < SHARDINGS; s++)
                for (int chunks = 1; chunks <= 4 && !(heads > 1 && r == RECOMPUTE_TAIL); chunks++) {
                    set_layout(c,
                               (Choice){.data = c->choice.data,
                                        .ranks = 1,
                                        .head_chunks = heads,
                                        .saving = saving_by((Recompute)r, 0),
                                        .sharding = (Sharding)s,
                                        .ffn_chunks = chunks,
                                        .offload = chunks % 2 ? saved_most() : NULL,
                                        .optimizer = chunks > 2 ? OPTIMIZER_ON_HOST : OPTIMIZER_ON_DEVICE});
                    const double error = error_of(c, c->flow);
                    if (!(error < 1e-12))
                        fail_msg("case %d: recompute %d, sharding %d, %d chunks: off by %g", i, r, s, chunks,
                                 error);
                }
        arena_free(c->arena);
    }
}

/* What --emit=memory sums up from when uses begin and end: every item looked at, at every operation. */
static void uses_are_what_is_alive(void **state)
{
    (void)state;
    for (int i = 0; i < 24; i++) {
        Case *c = make_case(i % 2, i / 2);
        const Flow *f = i / 2 % 2 ? placed_by_layer(c) : c->flow;
        const int64_t *uses = step_uses(c->arena, f);
        int64_t most = 0;
        for (int t = 0; t < f->ops; t++) {
            int64_t alive[USES] = {0};
            for (int j = 0; j < f->items; j++) {
                const Value *v = &f->step->values.at[f->item[j].value];
                const bool saved = v->saved && f->item[j].index >= v->saved_from;
                alive[v->saved && !saved ? USE_ACTIVE : value_use(v)] += item_live(&f->item[j], t) && !v->host
                                                                             ? f->item[j].bytes
                                                                             : 0;
            }
            assert_memory_equal(alive, uses + t * USES, sizeof alive);
            most = uses_sum(uses, t) > most ? uses_sum(uses, t) : most;
        }
        assert_int_equal(most, f->live_peak);
        assert_int_equal(uses_sum(uses, f->peak_at), most);
        arena_free(c->arena);
    }
}

/* Sections follow each other over the whole step, and name an operation where most of theirs is alive. */
static void sections_are_the_step(void **state)
{
    (void)state;
    for (int i = 0; i < 24; i++) {
        Case *c = make_case(i % 2, i / 2);
        const int64_t *uses = step_uses(c->arena, c->flow);
        Section *s;
        const int n = step_sections(c->arena, c->flow, uses, 1 + i % 4, &s);
        for (int k = 0; k < n; k++) {
            assert_int_equal(s[k].first, k ? s[k - 1].last + 1 : 0);
            assert_int_equal(c->flow->op[s[k].first].block, c->flow->op[s[k].last].block);
            assert_in_range(s[k].at, s[k].first, s[k].last);
            for (int t = s[k].first; t <= s[k].last; t++)
                assert_true(uses_sum(uses, t) <= uses_sum(uses, s[k].at));
        }
        assert_int_equal(s[n - 1].last, c->flow->ops - 1);
        arena_free(c->arena);
    }
}

/* ---- what is saved by need ---- */

static void on_device(Case *c)
{
    static Device d = {.target = &targets[TARGET_C],
                       .matmul = 100,
                       .hbm = 10,
                       .passes = 10,
                       .norms = 10,
                       .attention_forward = 50};
    static const NodeGroup group = {.nodes = 1, .gpus = 4, .device = &d};
    c->program.cluster.groups = &group;
    c->program.cluster.group_count = 1;
    c->program.cluster.target = &targets[TARGET_C];
}

static double saved_bytes(const Case *c, Saving v)
{
    double bytes = 0;
    for (int i = 0; i < c->step->values.n; i++) {
        const Value *x = &c->step->values.at[i];
        int layers = 0;
        if (saves(v.lower, x->name))
            layers = c->shape.layers;
        else if (saves(v.upper, x->name))
            layers = c->shape.layers - v.from;
        assert_true(!saves(v.lower, x->name) || saves(v.upper, x->name));
        bytes += x->kind != VALUE_ACTIVATION || strcmp(x->name, "x") == 0
                     ? 0
                     : (double)layers * (double)step_bytes(c->step, x, 1);
    }
    return bytes;
}

static int made_again(Case *c, Saving v)
{
    Choice k = c->choice;
    int n = 0;
    k.saving = v;
    k.ffn_chunks = 1;
    set_layout(c, k);
    for (int t = 0; t < c->flow->ops; t++)
        n += c->flow->op[t].op->again;
    return n;
}

/* Of a rank and head, in full tiles. */
static AttentionWork attended_pairs(double pairs) { return (AttentionWork){.pairs = pairs}; }

/* More bytes save more, up to what none saves, and never more than the bytes; what they save is a step
 * that verifies. */
static void need_decides(void **state)
{
    (void)state;
    for (int i = 0; i < 12; i++) {
        Case *c = make_case(i % 2, 0);
        on_device(c);
        const Partition *part = partition_make(c->arena, PART_CONTIGUOUS, 0, c->n, 1);
        const Shape shape = program_shape(&c->program);
        const Units units = units_make(c->arena, &c->program, &shape, 0, false);
        set_layout(c, (Choice){.data = c->choice.data, .ranks = 1});
        const Saving none = saving_of(&c->choice),
                     all = saving_at(c->arena, &c->program, &shape, part, units, attended_pairs(50), 1);
        const double most = saved_bytes(c, all);
        const int least = made_again(c, none);
        double last = 0;
        int last_again = 1 << 30;
        for (int eighth = 0; eighth <= 8; eighth++) {
            const Saving v = saving_at(c->arena, &c->program, &shape, part, units, attended_pairs(50),
                                       eighth / 8.0);
            const double bytes = saved_bytes(c, v);
            const int again = made_again(c, v);
            const double error = error_of(c, c->flow);
            if (bytes < last || bytes > most * eighth / 8 + 0.5 || again > last_again || !(error < 1e-9))
                fail_msg("case %d, %d/8: saves %s, from layer %d on%s, %g bytes (before: %g, of %g), %d made "
                         "again (before: %d), off by %g",
                         i, eighth, v.lower, v.from, v.upper, bytes, last, most, again, last_again, error);
            last = bytes;
            last_again = again;
        }
        assert_int_equal(last_again, least);
        arena_free(c->arena);
    }
}

/* All that is spared by saving all is: of models with any parts, attention that takes any share of the
 * time. */
static void all_saved_spares_all(void **state)
{
    (void)state;
    for (int i = 0; i < 200; i++) {
        Case *c = make_split_case(i % 2, 0, i % 3 == 0);
        on_device(c);
        const Partition *part = partition_make(c->arena, PART_CONTIGUOUS, 0, c->n, 1);
        const Shape shape = program_shape(&c->program);
        const Units units = units_make(c->arena, &c->program, &shape, 0, false);
        set_layout(c, (Choice){.data = c->choice.data,
                               .tensor = c->choice.tensor,
                               .ranks = 1,
                               .head_chunks = c->choice.head_chunks});
        const Saving all = saving_at(c->arena, &c->program, &shape, part, units,
                                     attended_pairs(1 + i % 5 * 50), 1);
        const int least = made_again(c, saving_of(&c->choice)), again = made_again(c, all);
        if (again != least)
            fail_msg("case %d: saves%s, and %d operations are made again, not %d", i, all.upper, again,
                     least);
        arena_free(c->arena);
    }
}

/* Where attention takes all the time its outputs are saved first; where it takes none, last. */
static void time_a_byte_decides(void **state)
{
    (void)state;
    Case *c = make_case(true, 0);
    on_device(c);
    const Partition *part = partition_make(c->arena, PART_CONTIGUOUS, 0, c->n, 1);
    const Shape shape = program_shape(&c->program);
    const Units units = units_make(c->arena, &c->program, &shape, 0, false);
    for (int sixteenth = 1; sixteenth < 16; sixteenth++) {
        const Saving slow = saving_at(c->arena, &c->program, &shape, part, units, attended_pairs(1e9),
                                      sixteenth / 16.0);
        const Saving fast = saving_at(c->arena, &c->program, &shape, part, units, attended_pairs(0),
                                      sixteenth / 16.0);
        assert_true(saves(slow.upper, "lse") || strcmp(slow.upper, " x ") == 0);
        assert_false(saves(fast.upper, "lse"));
    }
    arena_free(c->arena);
}

static bool used_at_once(const Item *x, const Item *y)
{
    for (int i = 0; i < x->live.n; i++)
        for (int j = 0; j < y->live.n; j++)
            if (x->live.at[i].first <= y->live.at[j].last && y->live.at[j].first <= x->live.at[i].last)
                return true;
    return false;
}

/* Items of any sizes and times, many of them nested as layers' are: no two that are used at once overlap. */
static void places_are_apart(void **state)
{
    (void)state;
    Case *c = make_case(0, 0);
    for (int round = 0; round < 200; round++) {
        Arena *a = arena_new();
        Flow f = *c->flow;
        f.items = 20 + draw(100);
        f.item = NEW_ARRAY(a, Item, f.items);
        for (int i = 0; i < f.items; i++) {
            f.item[i] = (Item){.value = draw(c->step->values.n), .index = i, .bytes = 64 * (1 + draw(4))};
            const int nested = i % 3 ? i : 0;
            for (int r = draw(3); r >= 0; r--)
                item_add_range(a, &f.item[i],
                               nested ? (Range){nested, 300 - nested} : (Range){draw(200), 200 + draw(100)});
        }
        step_pack(a, &f, 64, (MemoryBudget){0});
        for (int i = 0; i < f.items; i++)
            for (int j = 0; j < i; j++) {
                const Item *x = &f.item[i], *y = &f.item[j];
                assert_true(x->offset + x->bytes <= (item_on_host(&f, x) ? f.host : f.packed));
                assert_true(x->offset >= y->offset + y->bytes || y->offset >= x->offset + x->bytes ||
                            !used_at_once(x, y) || item_on_host(&f, x) != item_on_host(&f, y));
            }
        arena_free(a);
    }
    arena_free(c->arena);
}

/* Of every packing: what is in use at once lies apart, and little is lost. The lower bound is the live
 * bytes' peak. */
static void packing_is_tight(void **state)
{
    (void)state;
    for (int i = 0; i < 60; i++) {
        Case *c = make_case(i % 2, i / 2);
        const Flow *f = c->flow;
        for (int x = 0; x < f->items; x++)
            for (int y = 0; y < x; y++)
                for (int t = 0; t < f->ops; t++)
                    if (item_live(&f->item[x], t) && item_live(&f->item[y], t) &&
                        item_on_host(f, &f->item[x]) == item_on_host(f, &f->item[y]))
                        assert_true(f->item[x].offset + f->item[x].bytes <= f->item[y].offset ||
                                    f->item[y].offset + f->item[y].bytes <= f->item[x].offset);
        assert_true(f->packed >= f->live_peak && f->host >= f->host_peak);
        arena_free(c->arena);
    }
}

/* ---- mutants ---- */

/* Where the first chunk of queries is one token, it sees one key and no sink: whatever its query is, its
 * output is the same, and the gradient of its query is 0, which an operation adds in vain. */
static bool adds_zeros(const Case *c, const StepOp *o)
{
    const Step *s = c->step;
    if (!s->by_queries || s->chunk > 1 || op_dim(s, o->op) != LOOP_TOKENS || o->index[LOOP_TOKENS] > 0 ||
        c->program.model.sinks)
        return false;
    for (int i = 0; i < OP_READS && o->op->read[i].value >= 0; i++) {
        const char *name = s->values.at[o->op->read[i].value].name;
        if (strncmp(name, "d_q", 3) == 0 || strcmp(name, "d_h1_q") == 0)
            return true;
    }
    return false;
}

/* One operation less of the unrolled step; the places stay. */
static void lost_operations_show(void **state)
{
    (void)state;
    int mutants = 0;
    for (int i = 0; i < 6; i++) {
        Case *c = make_case(i % 2, i / 2);
        const bool cuda = c->program.target == &targets[TARGET_CUDA];
        for (int t = 0; t < c->flow->ops; t++, mutants++) {
            Op nothing = *c->flow->op[t].op;
            StepOp *ops = NEW_ARRAY(c->arena, StepOp, c->flow->ops);
            memcpy(ops, c->flow->op, sizeof(StepOp) * (size_t)c->flow->ops);
            const bool in_place = cuda && (nothing.kind == OP_LAYOUT ||
                                           (nothing.kind == OP_LAYOUT_BACK && ops[t].op->read[0].value >= 0));
            nothing.kind = OP_ZERO; /* without operands: nothing */
            for (int j = 0; j < OP_READS; j++)
                nothing.read[j].value = -1;
            for (int j = 0; j < OP_WRITES; j++)
                nothing.write[j].value = -1;
            ops[t].op = &nothing;
            Flow f = *c->flow;
            f.op = ops;
            if (!in_place && op_follows(c->step, &c->flow->op[t]) && c->flow->op[t].op->kind != OP_WAIT &&
                !adds_zeros(c, &c->flow->op[t]) && !is_wrong(c, &f))
                fail_msg("case %d: without operation %d (%s) nothing changes", i, t,
                         op_name(c->flow->op[t].op->kind));
        }
        arena_free(c->arena);
    }
    assert_true(mutants > 500);
}

/* Operations between which both are in use: of one operation alone, one may be read before the other is
 * written. */
static int together(const Flow *f, const Item *x, const Item *y)
{
    int n = 0;
    for (int t = 0; t + 1 < f->ops; t++)
        n += item_live(x, t) && item_live(y, t) && item_live(x, t + 1) && item_live(y, t + 1);
    return n;
}

/* x at a place that y needs at the same time: over its beginning, or over its end. Of a unit's tensors
 * some are read early and some late, so that one of the two may be harmless. */
static bool overlap_shows(Case *c, int x, int y)
{
    Flow f = *c->flow;
    bool shows = false;
    for (int end = 0; end < 2 && !shows; end++) {
        f.item = NEW_ARRAY(c->arena, Item, f.items);
        memcpy(f.item, c->flow->item, sizeof(Item) * (size_t)f.items);
        const int64_t shift = end ? f.item[y].bytes - f.item[x].bytes : 0;
        f.item[x].offset = f.item[y].offset + (f.item[y].offset + shift < 0 ? 0 : shift);
        /* what evaluation leaves for the next step shows in no other */
        shows = is_wrong(c, &f) || evaluation_error(c, flow_evaluation(c->arena, &f)) >= 1e-9;
    }
    return shows;
}

/* The weights' stream does one thing after the other: what a gather reads may be where a later one writes,
 * and a shard where its sum was. What the optimizer rounds last, no operation of this step reads. */
static bool in_order(ValueKind a, ValueKind b)
{
    return (a == VALUE_ROUNDED && (b == VALUE_WEIGHT || b == VALUE_SUM)) ||
           (a == VALUE_SUM && b == VALUE_SHARD) || (a == VALUE_ROUNDED && b == VALUE_SHARD);
}

/* Of a chunk some rows of one may be read before rows of the other are written in their place. */
static bool row_by_row(const Case *c, const Value *a, const Value *b)
{
    return c->step->chunks > 1 && a->dim[0] == DIM_TOKENS && b->dim[0] == DIM_TOKENS;
}

/* Norms that are made again write their statistics anew, a chunk's rows just before those are read. */
static bool of_norms(const Case *c, const Value *a, const Value *b)
{
    return c->step->by_queries && (!strncmp(a->name, "rstd", 4) || !strncmp(b->name, "rstd", 4));
}

/* Of what other ranks may be copying no operation of this one needs all that time. */
static bool stays(const Case *c, const Value *v)
{
    return v->kind == VALUE_ROUNDED && c->program.target->copies_at_wait;
}

/* Of the embedding some rows are read alone, those of the batch's tokens; one rank alone reads what was
 * rounded. */
static bool of_embedding(const Item *i, const Value *v)
{
    return (v->kind == VALUE_WEIGHT || v->kind == VALUE_ROUNDED) && i->index == 0;
}

/* Weights that last the step are gathered in its first sequence and, where gradients last too, shards are
 * made in the last one: lifetimes are those of any sequence. */
static bool of_other_sequences(const Case *c, ValueKind a, ValueKind b)
{
    return c->choice.sharding == SHARDING_ZERO1 &&
           ((a == VALUE_WEIGHT && b == VALUE_SHARD) || (a == VALUE_SHARD && b == VALUE_WEIGHT));
}

/* A sum that its visit reduces, and a unit that is gathered in a later one: the same stream, one after the
 * other. */
static bool of_later_visit(const Case *c, const Item *sum, const Item *weight)
{
    const Value *a = &c->step->values.at[sum->value], *b = &c->step->values.at[weight->value];
    /* whose is a tied sum */
    const int head = c->shape.layers + 1;
    int units[VISITS], visit = sum->index;
    if (sum->index < 0)
        visit = head;
    const int visits = visit_units(c->shape.layers, c->step->group, units);
    for (int i = head; i < visits && a->index == INDEX_UNIT; i++)
        visit = units[i] == sum->index ? i : visit; /* backward's is the unit's last */
    const bool lasts = a->index == INDEX_UNIT && c->step->sequences > 1;
    return a->kind == VALUE_SUM && b->kind == VALUE_WEIGHT && !lasts && b->index == INDEX_VISIT &&
           weight->index >= visit + 2;
}

/* Of one head, by heads and by tokens are the same bytes. */
static bool of_one_head(const Case *c, const Value *a, const Value *b)
{
    return c->shape.heads == 1 && a->by_heads != b->by_heads;
}

static void overlaps_show(void **state)
{
    (void)state;
    int mutants = 0;
    draw_from(11); /* what is right in other tests draws nothing here */
    for (int i = 0; i < 6; i++) {
        Case *c = make_case(i % 2, i / 2);
        for (int x = 0; x < c->flow->items; x++)
            for (int y = 0; y < c->flow->items; y++) {
                const Item *a = &c->flow->item[x], *b = &c->flow->item[y];
                const Value *va = &c->step->values.at[a->value], *vb = &c->step->values.at[b->value];
                if (x == y || va->host != vb->host || of_later_visit(c, a, b) || of_later_visit(c, b, a) ||
                    of_other_sequences(c, va->kind, vb->kind) || stays(c, va) || stays(c, vb) ||
                    of_embedding(a, va) || of_embedding(b, vb) || row_by_row(c, va, vb) ||
                    of_norms(c, va, vb) || of_one_head(c, va, vb) || in_order(va->kind, vb->kind) ||
                    in_order(vb->kind, va->kind) || together(c->flow, a, b) < 2 || va->kind == VALUE_STATE ||
                    vb->kind == VALUE_STATE || draw(16))
                    continue;
                mutants++;
                if (!overlap_shows(c, x, y))
                    fail_msg("case %d: %s[%d] in the place of %s[%d] changes nothing", i, va->name, a->index,
                             vb->name, b->index);
            }
        arena_free(c->arena);
    }
    assert_true(mutants > 50);
}

/* Where keys and values travel as latents, every rule of recomputation, also of ranks that split layers. */
static void latents_are_right(void **state)
{
    (void)state;
    int found[2] = {0};
    for (int i = 0; i < 400 && (found[0] < 3 || found[1] < 3); i++) {
        const bool split = i / 2 % 2;
        Case *c = make_split_case(i % 2, i / 4, split);
        const Choice was = c->choice;
        const bool fits = c->program.model.latent && was.head_chunks < 2;
        found[split] += fits;
        for (int r = 0; r < RECOMPUTES && fits; r++) {
            if (r == RECOMPUTE_TAIL)
                continue;
            set_layout(c, (Choice){.data = was.data,
                                   .tensor = was.tensor,
                                   .ranks = 1,
                                   .head_chunks = was.head_chunks,
                                   .latents = true,
                                   .sharding = (Sharding)((i + r) % SHARDINGS),
                                   .saving = saving_by((Recompute)r, 0),
                                   .token_chunks = 1 + (i + r) % 3});
            const double error = error_of(c, c->flow);
            if (!(error < 1e-9))
                fail_msg("case %d, recompute %s: gradients are off by %g", i, recompute_names[r], error);
        }
        arena_free(c->arena);
    }
    assert_true(found[0] >= 3 && found[1] >= 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_are_right),       cmocka_unit_test(split_steps_are_right),
        cmocka_unit_test(layouts_agree),         cmocka_unit_test(uses_are_what_is_alive),
        cmocka_unit_test(sections_are_the_step), cmocka_unit_test(need_decides),
        cmocka_unit_test(time_a_byte_decides),   cmocka_unit_test(places_are_apart),
        cmocka_unit_test(packing_is_tight),      cmocka_unit_test(lost_operations_show),
        cmocka_unit_test(overlaps_show),         cmocka_unit_test(all_saved_spares_all),
        cmocka_unit_test(latents_are_right),     cmocka_unit_test(evaluations_are_right),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
