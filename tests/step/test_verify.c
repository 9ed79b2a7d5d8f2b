/* test_verify.c: the step's verifier against the executor: it accepts every right step, and rejects every
 * mutant of the unrolled step, or of the places, that computes wrong numbers in either order of the
 * streams.
 *
 * The verifier also rejects what the executor takes for right, for these reasons (STEP_VERIFY_LIST prints
 * each):
 * - an operation writes where it reads, and does not work element by element (the executor copies operands
 *   out);
 * - an item lies on parameters or moments that the executor never reads again, or the optimizer runs twice;
 * - `adds` is flipped, and the executor's definition of the operation does not look at it;
 * - a race of the streams that shows in neither order of the executor, or a stream that nobody waits for at
 *   the end;
 * - an operation reads something wrong, and nobody reads what it makes; or it belongs to another visit's
 *   unit;
 * - the right content lies there by chance, under another value's name.
 */
#include "case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static bool accepted(Case *c, const Flow *f, char **why)
{
    Arena *a = arena_new();
    Diags *d = diags_new(a);
    const bool ok = step_verify(a, d, f);
    assert_int_equal(ok, diags_errors(d) == 0);
    *why = arena_printf(c->arena, "%s", diags_first(d));
    arena_free(a);
    return ok;
}

static void right_steps_are_accepted(void **state)
{
    (void)state;
    for (int i = 0; i < 120; i++) {
        Case *c = make_split_case(i % 2, i / 2, i % 8 == 3);
        char *why;
        Flow *f = step_flow(c->arena, c->step);
        step_pack(c->arena, f, 1 + draw(16),
                  (MemoryBudget){i % 3 ? 0 : 1 << i % 24, i % 4 ? 0 : 1 << i % 24});
        if (!accepted(c, c->flow, &why) || !accepted(c, f, &why) ||
            !accepted(c, flow_evaluation(c->arena, f), &why) || !accepted(c, placed_by_layer(c), &why))
            fail_msg("case %d: %s", i, why);
        arena_free(c->arena);
    }
}

static Op *forward_op(Case *c, OpKind k, const char *reads)
{
    Block *b = &c->step->block[BLOCK_FORWARD];
    for (int i = 0; i < b->ops.n; i++)
        if (b->ops.at[i].kind == k && b->ops.at[i].read[0].value == step_value(c->step, reads))
            return &b->ops.at[i];
    fail_msg("no %s of %s", op_name(k), reads);
    return NULL;
}

/* Forward itself, from which all else follows, with a gather left out, a part read, parts added up twice,
 * or not at all. */
static void parts_must_be_added_once(void **state)
{
    (void)state;
    for (int how = 0; how < 4; how++) {
        Case *c = make_split_case(false, 0, true);
        const Operand part = {step_value(c->step, "x_mid_part"), 0}, own = {step_value(c->step, "h1"), 0};
        char *why;
        assert_true(accepted(c, c->flow, &why));
        if (how == 0)
            forward_op(c, OP_LINEAR, "h1_all")->read[0] = own;
        else if (how == 1)
            forward_op(c, OP_NORM, "x_mid")->read[0] = part;
        else if (how == 2)
            forward_op(c, OP_TENSOR_SCATTER, "x_part")->read[0] = part;
        else
            forward_op(c, OP_LINEAR, "o_flat")->write[0] = (Operand){step_value(c->step, "x_mid"), 0};
        assert_false(accepted(c, c->flow, &why));
        if (!strstr(why, "forward of a layer"))
            fail_msg("%d: %s", how, why);
        arena_free(c->arena);
    }
}

/* A norm of rows that ranks share reads the sum of all ranks' squares of these rows, and no other. */
static void squares_must_be_summed(void **state)
{
    (void)state;
    int found = 0;
    for (int i = 0; i < 60; i++) {
        Case *c = make_split_case(i % 2, i / 2, true);
        const Operand part = {step_value(c->step, "square_q_raw_part"), 0},
                      other = {step_value(c->step, "square_k_raw"), 0};
        char *why;
        assert_int_equal(part.value >= 0, c->program.model.layer.qk_norm_all);
        assert_true(accepted(c, c->flow, &why));
        if (part.value >= 0) {
            Op *norm = forward_op(c, OP_NORM, "q_raw");
            const Operand square = norm->read[1];
            const int how = found++ % 4;
            if (how == 0)
                norm->read[1] = part;
            else if (how == 1)
                norm->read[1] = other;
            else if (how == 2)
                norm->read[1] = norm->read[2], norm->read[2].value = -1;
            else
                forward_op(c, OP_TENSOR_ALL_REDUCE, "square_q_raw_part")->read[0] = square;
            assert_false(accepted(c, c->flow, &why));
            if (!strstr(why, "forward of a layer"))
                fail_msg("%d: %s", how, why);
        }
        arena_free(c->arena);
    }
    assert_true(found >= 4);
}

/* The sum of a unit's gradients in a place that tensor ranks may still be reading, or writing, when it is
 * zeroed. */
static void what_tensor_ranks_use_is_left_alone(void **state)
{
    (void)state;
    int found = 0;
    for (int i = 0; i < 60; i++) {
        Case *c = make_split_case(i % 2, i / 2, true);
        int t = 0;
        char *why;
        while (t < c->flow->ops &&
               (c->flow->op[t].op->kind != OP_TENSOR_GATHER_BACK || c->flow->op[t + 1].op->kind != OP_ZERO))
            t++;
        if (t < c->flow->ops) {
            const Op *o = c->flow->op[t].op;
            Item *sum = (Item *)flow_item(c->flow, c->flow->op[t + 1].op->write[0].value,
                                          operand_index(c->step, &c->flow->op[t + 1],
                                                        c->flow->op[t + 1].op->write[0]));
            sum->offset = flow_item(c->flow, i % 3 ? o->read[0].value : o->write[0].value,
                                    c->flow->op[t].layer)
                              ->offset;
            assert_true(!accepted(c, c->flow, &why));
            found += strstr(why, "where gather_back") && strstr(why, "may still be");
        }
        arena_free(c->arena);
    }
    assert_true(found > 3);
}

/* The lifetimes of one sequence do not do for two: shards and rounded parameters must last. */
static void two_sequences_need_their_own_places(void **state)
{
    (void)state;
    int refused = 0;
    for (int i = 0; i < 24; i++) {
        Case *c = make_case(i % 2, i / 2);
        char *why;
        c->step->sequences = 3 - c->sequences;
        refused += c->sequences == 1 && !accepted(c, c->flow, &why);
        arena_free(c->arena);
    }
    assert_true(refused > 0);
}

static void wrong_packings_are_rejected(void **state)
{
    (void)state;
    for (int i = 0; i < 12; i++) {
        Case *c = make_case(i % 2, i / 2);
        Flow f = *c->flow;
        char *why;
        f.packed += i % 3 == 0 ? f.align : -f.align;
        assert_false(accepted(c, &f, &why));
        f = *c->flow;
        f.item[draw(f.items)].bytes += 4;
        assert_false(accepted(c, &f, &why));
        arena_free(c->arena);
    }
}

static Item *item_named(const Flow *f, const char *name)
{
    for (int i = 0; i < f->items; i++)
        if (f->item[i].value == step_value(f->step, name))
            return &f->item[i];
    return NULL;
}

/* The executor copies operands out, and cannot see it. Of one layer, so that nothing else is in the way. */
static void rotation_in_place_is_rejected_on_the_host(void **state)
{
    (void)state;
    for (int found = 0; found < 3;) {
        Case *c = make_case(false, 0);
        if (c->shape.layers == 1) {
            char *why;
            item_named(c->flow, "q_flat")->offset = item_named(c->flow, "q")->offset;
            assert_false(accepted(c, c->flow, &why));
            assert_non_null(strstr(why, "it writes q[0] where it reads q_flat[0]"));
            found++;
        }
        arena_free(c->arena);
    }
}

/* Whether the step ever does it: a kind may have no layer that it is for. */
static bool is_done(const Case *c, const Op *o)
{
    for (int t = 0; t < c->flow->ops; t++)
        if (c->flow->op[t].op == o && op_follows(c->step, &c->flow->op[t]))
            return true;
    return false;
}

/* A wait moved into the loop behind it. On the rank that the executor is, which has tokens, it is done all
 * the same: a rank without any never waits. Chunks of queries and of heads are as many on all ranks. */
static void waits_in_loops_over_own_tokens_are_rejected(void **state)
{
    (void)state;
    int found = 0;
    for (int i = 0; i < 40; i++) {
        Case *c = make_case(i % 2, i / 2);
        for (int b = 0; b < STEP_BLOCKS && !c->step->by_queries; b++)
            for (int j = 0; j + 1 < c->step->block[b].ops.n; j++) {
                Op *o = &c->step->block[b].ops.at[j];
                char *why;
                if (o->kind != OP_WAIT || op_dim(c->step, &o[1]) != LOOP_TOKENS || c->step->chunks == 1 ||
                    !is_done(c, o))
                    continue;
                o->scope = o[1].scope;
                assert_false(accepted(c, c->flow, &why));
                assert_non_null(strstr(why, "a rank without tokens does not enter the loop"));
                o->scope = 0;
                assert_true(accepted(c, c->flow, &why));
                found++;
            }
        arena_free(c->arena);
    }
    assert_true(found > 5);
}

/* ---- mutants ---- */

typedef struct Mutant { Flow flow; StepOp *op; const char *what; bool made; } Mutant;

/* Operations as they are, with room for one more; all items are in use throughout, so that memory is worth
 * what was last written to it: lifetimes are those of the right step. */
static Mutant copy_of(Case *c, const Flow *f)
{
    Mutant m = {.flow = *f};
    m.op = NEW_ARRAY(c->arena, StepOp, m.flow.ops + 1);
    memcpy(m.op, f->op, sizeof(StepOp) * (size_t)m.flow.ops);
    m.flow.op = m.op;
    m.flow.item = NEW_ARRAY(c->arena, Item, m.flow.items);
    memcpy(m.flow.item, f->item, sizeof(Item) * (size_t)m.flow.items);
    Range *always = NEW(c->arena, Range);
    *always = (Range){0, m.flow.ops};
    for (int i = 0; i < m.flow.items; i++)
        m.flow.item[i].live.at = always, m.flow.item[i].live.n = 1;
    return m;
}

/* Evaluation without one of its operations, or with one twice: the verifier refuses what the executor finds
 * wrong. */
static void wrong_evaluations_are_rejected(void **state)
{
    (void)state;
    int refused = 0;
    for (int i = 0; i < 40; i++) {
        Case *c = make_split_case(i % 2, i / 2, i % 8 == 3);
        const Flow *right = flow_evaluation(c->arena, c->flow);
        for (int n = 0; n < 12; n++) {
            Mutant m = copy_of(c, right);
            const int at = draw(right->ops), twice = n % 4 == 3;
            char *why;
            memcpy(m.op + at + twice, right->op + at + !twice,
                   sizeof *m.op * (size_t)(right->ops - at - !twice));
            m.flow.ops += twice ? 1 : -1;
            const bool wrong = evaluation_error(c, &m.flow) >= 1e-9, accepts = accepted(c, &m.flow, &why);
            refused += !accepts;
            if (wrong && accepts)
                fail_msg("case %d: %s %s is not noticed", i, op_name(right->op[at].op->kind),
                         twice ? "twice" : "left out");
        }
        arena_free(c->arena);
    }
    assert_true(refused > 100);
}

/* Layers of the first of two kinds become recurrent ones. */
static void make_recurrent(Case *c)
{
    enum { KEY = 2, VALUE = 3 };
    Model *m = &c->program.model;
    const int heads = 2 * c->step->shape.tensor;
    if (m->kinds != 2)
        return;
    m->kind[0].scan = true;
    m->scan = (BurstScan){.heads = heads,
                          .key_heads = heads,
                          .key_dim = KEY,
                          .value_dim = VALUE,
                          .read = m->hidden % 2,
                          .scale = 1,
                          .columns = heads * (2 * KEY + VALUE),
                          .k = heads * KEY,
                          .v = heads * 2 * KEY};
    m->scan_kernel = 2 + m->vocab % 3;
}

/* Its step, of a program that infers: weights whole from the first prompt on, and no settings of backward. */
static void infer(Case *c)
{
    Choice x = c->choice;
    c->program.infer = (Infer){.lengths = 1, .length = {c->program.sequence}, .tokens = 1 + draw(9)};
    make_recurrent(c);
    x.sharding = SHARDING_ZERO1;
    x.saving = saving_by(RECOMPUTE_FULL, 0);
    x.optimizer = OPTIMIZER_ON_DEVICE;
    x.offload = NULL;
    x.head_chunks = x.offload_layers = 0;
    x.chunk_keys = x.fetch_chunks = x.latents = x.overlap = x.bf16_gradients = false;
    set_layout(c, x);
}

/* Without the operation at t. */
static bool accepted_without(Case *c, int t, char **why)
{
    Mutant m = copy_of(c, c->flow);
    memmove(m.op + t, m.op + t + 1, sizeof *m.op * (size_t)(--m.flow.ops - t));
    return accepted(c, &m.flow, why);
}

/* A program that infers keeps each layer's keys and values to its end, or its rows and state, and computes
 * one next token. */
static void inference_is_proved(void **state)
{
    (void)state;
    int lost = 0, overwritten = 0, states = 0;
    for (int i = 0; i < 40; i++) {
        Case *c = make_split_case(i % 2, i / 2, i % 8 == 3);
        char *why;
        infer(c);
        if (!accepted(c, c->flow, &why) || !accepted(c, placed_by_layer(c), &why))
            fail_msg("case %d: %s", i, why);
        infer(c);
        for (int t = 0; t < c->flow->ops; t++) {
            const OpKind k = c->flow->op[t].op->kind;
            if (k != OP_CACHE && k != OP_CACHE_CONV && k != OP_CACHE_SCAN && k != OP_LAST_TOKEN &&
                k != OP_NEXT && k != OP_ATTENTION && k != OP_EMBED && k != OP_LINEAR)
                continue;
            if (accepted_without(c, t, &why))
                fail_msg("case %d: it is accepted without %s", i, op_name(k));
            lost++;
            states += k == OP_CACHE_SCAN;
        }
        const Item *x = flow_item(c->flow, step_value(c->step, "x"), 0);
        for (int j = 0; j < c->flow->items; j++) {
            const Item *kept = &c->flow->item[j];
            if (c->step->values.at[kept->value].kind != VALUE_CACHE)
                continue;
            Mutant m = copy_of(c, c->flow);
            m.flow.item[j].offset = x->offset;
            if (accepted(c, &m.flow, &why))
                fail_msg("case %d: %s[%d] is accepted in the place of x", i,
                         c->step->values.at[kept->value].name, kept->index);
            overwritten++;
        }
        arena_free(c->arena);
    }
    assert_true(lost > 100 && overwritten > 50 && states > 5);
}

static Op *own_op(Case *c, Mutant *m, int t)
{
    Op *o = NEW(c->arena, Op);
    *o = *m->op[t].op;
    m->op[t].op = o;
    return o;
}

static void drop(Case *c, Mutant *m, int t)
{
    (void)c;
    memmove(&m->op[t], &m->op[t + 1], sizeof(StepOp) * (size_t)(m->flow.ops-- - t - 1));
    m->made = true;
}

static void insert_at(Mutant *m, int t, StepOp o)
{
    memmove(&m->op[t + 1], &m->op[t], sizeof(StepOp) * (size_t)(m->flow.ops++ - t));
    m->op[t] = o;
    m->made = true;
}

static void twice(Case *c, Mutant *m, int t)
{
    (void)c;
    insert_at(m, t + 1 + (draw(2) ? draw(m->flow.ops - t) : 0), m->op[t]);
}

static void swap(Case *c, Mutant *m, int t)
{
    (void)c;
    const int u = draw(2) ? t + 1 : draw(m->flow.ops);
    if (u == t || u >= m->flow.ops)
        return;
    const StepOp o = m->op[t];
    m->op[t] = m->op[u], m->op[u] = o;
    m->made = true;
}

static void move(Case *c, Mutant *m, int t)
{
    const StepOp o = m->op[t];
    drop(c, m, t);
    insert_at(m, draw(m->flow.ops + 1), o);
}

static bool alike(const Case *c, int a, int b)
{
    const Value *x = &c->step->values.at[a], *y = &c->step->values.at[b];
    return a != b && x->kind != VALUE_INPUT && y->kind != VALUE_INPUT && x->dim[0] == y->dim[0] &&
           x->dim[1] == y->dim[1] && x->element == y->element && x->index == y->index;
}

static void other_value(Case *c, Mutant *m, int t)
{
    Op *o = own_op(c, m, t);
    Operand *x = draw(2) ? &o->read[draw(4)] : &o->write[draw(3)];
    const int value = draw(c->step->values.n);
    if (x->value < 0 || !alike(c, x->value, value))
        return;
    x->value = value;
    m->made = true;
}

static void other_layer(Case *c, Mutant *m, int t)
{
    const int layer = draw(c->shape.layers + 1);
    m->made = layer != m->op[t].layer;
    m->op[t].layer = layer;
}

static void next_layer(Case *c, Mutant *m, int t)
{
    Op *o = own_op(c, m, t);
    Operand *x = draw(2) ? &o->read[draw(4)] : &o->write[draw(3)];
    m->made = x->value >= 0;
    x->next = !x->next;
}

static void flip_adds(Case *c, Mutant *m, int t)
{
    Op *o = own_op(c, m, t);
    const int i = draw(3);
    m->made = o->write[i].value >= 0;
    o->adds[i] = !o->adds[i];
}

static void other_chunk(Case *c, Mutant *m, int t)
{
    while (t < m->flow.ops && op_dim(c->step, m->op[t].op) == LOOP_DIMS)
        t++;
    if (t == m->flow.ops || op_chunks(c->step, m->op[t].op) == 1)
        return;
    int *chunk = &m->op[t].index[op_dim(c->step, m->op[t].op)];
    *chunk = (*chunk + 1 + draw(op_chunks(c->step, m->op[t].op) - 1)) % op_chunks(c->step, m->op[t].op);
    m->made = true;
}

static bool is_of_keys(const Case *c, const Mutant *m, int t)
{
    return op_in_loop(c->step, m->op[t].op, LOOP_KEYS);
}

/* A copy of keys, or attention of them: of another chunk, or in the other slot. */
static void other_key(Case *c, Mutant *m, int t)
{
    for (int i = 0; i < m->flow.ops && !is_of_keys(c, m, t); i++)
        t = (t + 1) % m->flow.ops;
    if (!is_of_keys(c, m, t))
        return;
    if (draw(3))
        m->op[t].index[LOOP_KEYS] = (m->op[t].index[LOOP_KEYS] + 1 + draw(c->step->chunks - 1)) %
                                    c->step->chunks;
    else
        m->op[t].turn[LOOP_KEYS]++;
    m->made = true;
}

/* The same lost, early, late, twice or beside another. */
static void key_op(Case *c, Mutant *m, int t)
{
    static void (*const how[])(Case *, Mutant *, int) = {drop, twice, swap, move, other_value, next_layer};
    for (int i = 0; i < m->flow.ops && !is_of_keys(c, m, t); i++)
        t = (t + 1) % m->flow.ops;
    if (is_of_keys(c, m, t))
        how[draw(countof(how))](c, m, t);
}

/* Of what runs in one sequence alone, or of what then does. */
static void other_sequence(Case *c, Mutant *m, int t)
{
    while (c->sequences > 1 && t < m->flow.ops && m->op[t].op->when == WHEN_ALWAYS &&
           op_stream(m->op[t].op->kind) != STREAM_WEIGHTS)
        t++;
    if (c->sequences == 1 || t == m->flow.ops)
        return;
    Op *o = own_op(c, m, t);
    o->when = (When)((o->when + 1 + draw(2)) % 3);
    m->made = true;
}

/* Of a unit as large, so that the executor's operands stay as they are. */
static void other_visit(Case *c, Mutant *m, int t)
{
    int units[VISITS];
    const int visit = draw(visit_units(c->shape.layers, c->step->group, units)), head = c->shape.layers + 1;
    const OpKind k = m->op[t].op->kind;
    const int at = m->op[t].visit, unit = units[visit];
    if (visit == at || (m->op[t].block == BLOCK_OPTIMIZER && k != OP_UPLOAD && k != OP_WRITE_BACK) ||
        (k != OP_GATHER && unit != m->op[t].unit &&
         (unit < 1 || unit >= head || m->op[t].unit < 1 || m->op[t].unit >= head)))
        return;
    m->op[t].visit = visit;
    if (k != OP_GATHER && draw(2))
        m->op[t].unit = unit;
    m->made = true;
}

static void stream_op(Case *c, Mutant *m, int t)
{
    static void (*const how[])(Case *, Mutant *, int) = {drop, twice, swap, move, other_visit, next_layer};
    while (t < m->flow.ops && op_stream(m->op[t].op->kind) != STREAM_WEIGHTS)
        t++;
    if (t < m->flow.ops)
        how[draw(countof(how))](c, m, t);
}

/* A copy between the memories, or the wait for one: dropped, early, late, of another layer or unit, or of
 * another value. */
static void copy_op(Case *c, Mutant *m, int t)
{
    static void (*const how[])(Case *, Mutant *, int) = {drop,        twice,      swap,        move,
                                                         other_layer, next_layer, other_value, other_visit};
    for (int i = 0; i < m->flow.ops; i++, t = (t + 1) % m->flow.ops) {
        const Op *o = m->op[t].op;
        if (op_copies(o->kind) || (o->kind == OP_WAIT && c->step->values.at[o->read[0].value].host)) {
            how[draw(countof(how))](c, m, t);
            return;
        }
    }
}

/* A wait lost, one operation early or late, for the other of two marks, or for another stream. */
static void wait_op(Case *c, Mutant *m, int t)
{
    for (int i = 0; i < m->flow.ops && m->op[t].op->kind != OP_WAIT; i++)
        t = (t + 1) % m->flow.ops;
    if (m->op[t].op->kind != OP_WAIT)
        return;
    const int how = draw(4), with = how == 1 ? t + 1 : t - 1;
    if (how == 0) {
        drop(c, m, t);
    } else if (how < 3 && with >= 0 && with < m->flow.ops) {
        const StepOp o = m->op[t];
        m->op[t] = m->op[with], m->op[with] = o;
        m->made = true;
    } else if (how == 3) {
        static const OpKind kinds[] = {OP_GATHER, OP_REDUCE,   OP_STAGE,
                                       OP_FETCH,  OP_DOWNLOAD, OP_TENSOR_GATHER};
        Op *o = own_op(c, m, t);
        const OpKind other = kinds[draw(countof(kinds))];
        m->made = other != o->awaits;
        o->awaits = other;
    }
}

/* A sum over replicas, of which many steps have none. */
static void over_replicas(Case *c, Mutant *m, int t)
{
    static void (*const how[])(Case *, Mutant *, int) = {drop, twice, other_visit, other_sequence};
    for (int i = 0; i < m->flow.ops && m->op[t].op->kind != OP_ALL_REDUCE; i++)
        t = (t + 1) % m->flow.ops;
    if (m->op[t].op->kind == OP_ALL_REDUCE)
        how[draw(countof(how))](c, m, t);
}

/* A sum over the ranks that split a layer, or what they do among them, of which many steps have none. */
static void over_tensor(Case *c, Mutant *m, int t)
{
    static void (*const how[])(Case *, Mutant *, int) = {drop, twice, other_visit, other_sequence};
    const OpKind k[] =
        {OP_TENSOR_SUM,          OP_TENSOR_GATHER,     OP_TENSOR_SCATTER,        OP_TENSOR_GATHER_BACK,
         OP_TENSOR_SCATTER_BACK, OP_TENSOR_ALL_REDUCE, OP_TENSOR_ALL_REDUCE_BACK},
                 wanted = k[draw(countof(k))];
    for (int i = 0; i < m->flow.ops && m->op[t].op->kind != wanted; i++)
        t = (t + 1) % m->flow.ops;
    if (m->op[t].op->kind == wanted)
        how[draw(wanted == OP_TENSOR_SUM ? countof(how) : 2)](c, m, t);
}

/* An item at the begin or at the end of another, and lifetimes as they are. */
static void overlap(Case *c, Mutant *m, int t)
{
    Item *x = &m->flow.item[draw(m->flow.items)], *y = &m->flow.item[draw(m->flow.items)];
    const int64_t end = y->offset + y->bytes - x->bytes;
    (void)t;
    for (int i = 0; i < m->flow.items; i++)
        m->flow.item[i].live = c->flow->item[i].live;
    m->made = x != y && x->offset != y->offset;
    x->offset = draw(2) && end >= 0 ? end : y->offset;
}

static const struct { const char *name; void (*make)(Case *, Mutant *, int); int times;
} kinds[] = {
    {"dropped", drop, 4},
    {"swapped", swap, 6},
    {"moved", move, 6},
    {"done twice", twice, 6},
    {"other value", other_value, 60},
    {"other layer", other_layer, 4},
    {"next layer", next_layer, 8},
    {"adds flipped", flip_adds, 24},
    {"other visit", other_visit, 4},
    {"other sequence", other_sequence, 12},
    {"other chunk", other_chunk, 8},
    {"stream", stream_op, 20},
    {"overlap", overlap, 12},
    {"waits", wait_op, 40},
    {"over replicas", over_replicas, 40},
    {"over tensor", over_tensor, 60},
    {"copies", copy_op, 16},
    {"other key", other_key, 40},
    {"of keys", key_op, 60},
};

typedef struct Count { int made, wrong, rejected, strict, accepted; } Count;

static int by_proof[16]; /* rejected mutants */

static void judge(Case *c, Mutant *m, int kind, int i, int t, Count *n)
{
    char *why;
    const bool right = !is_wrong(c, &m->flow), ok = accepted(c, &m->flow, &why);
    n->made++;
    n->wrong += !right;
    n->rejected += !ok;
    by_proof[ok ? 0 : atoi(why + strlen("proof ")) % countof(by_proof)]++;
    n->strict += right && !ok;
    n->accepted += ok;
    if (right && !ok && getenv("STEP_VERIFY_LIST"))
        print_message("right: %s %d.%d: %s\n", kinds[kind].name, i, t, why);
    if (!right && ok)
        fail_msg("case %d: %s at operation %d (%s) is wrong, and accepted", i, kinds[kind].name, t,
                 op_name(c->flow->op[t].op->kind));
}

static void wrong_mutants_are_rejected(void **state)
{
    (void)state;
    Count n[countof(kinds)] = {0};
    const int cases = getenv("STEP_VERIFY_CASES") ? atoi(getenv("STEP_VERIFY_CASES")) : 24;
    for (int i = 0; i < cases; i++) {
        Case *c = make_split_case(i % 2, i / 2, i % 8 == 2);
        for (int k = 0; k < countof(kinds); k++)
            for (int j = 0; j < kinds[k].times; j++) {
                const int t = draw(c->flow->ops);
                Mutant m = copy_of(c, c->flow);
                kinds[k].make(c, &m, t);
                if (m.made)
                    judge(c, &m, k, i, t, &n[k]);
            }
        arena_free(c->arena);
    }
    for (int k = 0; k < countof(kinds); k++) {
        print_message("%-14s %5d mutants, %5d wrong, %5d rejected, %4d of these right; %4d accepted\n",
                      kinds[k].name, n[k].made, n[k].wrong, n[k].rejected, n[k].strict, n[k].accepted);
        assert_true(n[k].wrong > cases / 4);
    }
#define X(id, number, name) \
    print_message("proof %d: %d mutants\n", number, by_proof[number]); \
    assert_true(by_proof[number] > 0);
    STEP_PROOFS(X)
#undef X
}

/* Each wait of the list lost, wherever the step has it: where the verifier accepts that, the executor finds
 * the numbers right, however late streams are. */
static void lost_waits_are_rejected_or_harmless(void **state)
{
    (void)state;
    int lost = 0, rejected = 0;
    for (int i = 0; i < 24; i++) {
        Case *c = make_split_case(i % 2, i / 2, i % 3 == 2);
        for (int b = 0; b < STEP_BLOCKS; b++)
            for (int j = 0; j < c->step->block[b].ops.n; j++) {
                const Op *wait = &c->step->block[b].ops.at[j];
                Mutant m = copy_of(c, c->flow);
                char *why;
                for (int t = m.flow.ops - 1; t >= 0 && wait->kind == OP_WAIT; t--)
                    if (m.op[t].op == wait)
                        drop(c, &m, t);
                if (!m.made)
                    continue;
                const bool ok = accepted(c, &m.flow, &why);
                lost++;
                rejected += !ok;
                if (ok && is_wrong(c, &m.flow))
                    fail_msg("case %d: without %s of block %d it is wrong, and accepted", i,
                             op_name(wait->awaits), b);
            }
        arena_free(c->arena);
    }
    print_message("%d waits lost, %d rejected\n", lost, rejected);
    assert_true(rejected > lost / 2);
}

/* A gather that begins before the one whose arrival it takes is awaited: the numbers are right, and the
 * program runs out of requests. */
static void gathers_are_awaited_one_by_one(void **state)
{
    (void)state;
    int found = 0;
    for (int i = 0; i < 24; i++) {
        Case *c = make_split_case(i % 2, i / 2, i % 3 == 2);
        for (int t = 0; t < c->flow->ops; t++) {
            if (c->flow->op[t].op->kind != OP_GATHER || !op_follows(c->step, &c->flow->op[t]))
                continue;
            Mutant m = copy_of(c, c->flow);
            char *why;
            insert_at(&m, t + 1, m.op[t]);
            assert_false(accepted(c, &m.flow, &why));
            if (!strstr(why, "proof 10") || !strstr(why, "is awaited"))
                fail_msg("case %d: gather %d twice: %s", i, t, why);
            found++;
        }
        arena_free(c->arena);
    }
    assert_true(found > 24);
}

/* Weights that stay there for all visits, gathered once more as the head ends: right, and for nothing. In the
 * place of those that are read no more something else may lie. */
static void weights_that_stay_are_gathered_once(void **state)
{
    (void)state;
    int found = 0;
    for (int i = 0; i < 36; i++) {
        Case *c = make_split_case(i % 2, i / 2, i % 3 == 2);
        const int weight = step_value(c->step, "weight");
        int head = c->flow->ops - 1;
        while (c->flow->op[head].block != BLOCK_HEAD)
            head--;
        for (int t = 0; t < head && weight >= 0 && c->step->values.at[weight].index == INDEX_UNIT; t++) {
            if (c->flow->op[t].op->kind != OP_GATHER)
                continue;
            Mutant m = copy_of(c, c->flow);
            char *why;
            insert_at(&m, head, m.op[t]);
            if (accepted(c, &m.flow, &why))
                fail_msg("case %d: gather %d once more, and accepted", i, t);
            found += strstr(why, "which is there already") != NULL;
        }
        arena_free(c->arena);
    }
    assert_true(found > 10);
}

/* A loop of all turns, in which the copy would be of the same chunk. */
static int in_step_with(const Step *s, const Op *o)
{
    for (int i = s->scopes.n - 1; i > 0; i--) {
        const Scope *x = &s->scopes.at[i];
        const LoopDim d = op_in_loop(s, o, LOOP_KEYS) ? LOOP_KEYS : LOOP_TOKENS;
        if (x->kind == SCOPE_AHEAD && x->dim == d)
            return x->around;
    }
    return 0;
}

/* A fetch of a loop that does not come ahead: the executor copies the same chunk, and the program the whole
 * value. */
static void chunks_are_fetched_ahead(void **state)
{
    (void)state;
    int found = 0;
    for (int i = 0; i < 60; i++) {
        Case *c = make_split_case(i % 2, i / 2, false);
        for (int t = 0; t < c->flow->ops; t++) {
            if (c->flow->op[t].op->kind != OP_FETCH || !c->flow->op[t].op->scope)
                continue;
            Mutant m = copy_of(c, c->flow);
            char *why;
            own_op(c, &m, t)->scope = in_step_with(c->step, c->flow->op[t].op);
            assert_false(accepted(c, &m.flow, &why));
            assert_non_null(strstr(why, "a chunk comes ahead of what reads it"));
            found++;
        }
        arena_free(c->arena);
    }
    assert_true(found > 10);
}

/* Queries lie chunk after chunk on the host, so that operations on all of them at once read other rows. */
static void queries_stay_in_their_loop(void **state)
{
    (void)state;
    int found = 0;
    for (int i = 0; i < 60; i++) {
        Case *c = make_split_case(false, i, false);
        Step *s = c->step;
        for (int b = 0; b < STEP_BLOCKS; b++)
            for (int j = 0; j < s->block[b].ops.n; j++)
                s->block[b].ops.at[j].scope = s->by_queries ? 0 : s->block[b].ops.at[j].scope;
        for (int v = 0; v < s->values.n && s->by_queries; v++)
            for (int d = 0; d < 2; d++)
                if (s->values.at[v].dim[d] == DIM_CHUNK)
                    s->values.at[v].dim[d] = DIM_TOKENS;
        if (s->by_queries) {
            char *why;
            Flow *f = step_flow(c->arena, s);
            step_pack(c->arena, f, 1, (MemoryBudget){0, 0});
            assert_false(accepted(c, f, &why));
            found += strstr(why, "queries lie chunk after chunk") != NULL;
        }
        arena_free(c->arena);
    }
    assert_true(found > 3);
}

/* ---- Muon ---- */

static Case *make_muon_case(int i)
{
    Case *c = make_split_case(i % 2, i / 2, i % 3 == 2);
    Choice choice = c->choice;
    choice.optimizer = OPTIMIZER_ON_DEVICE;
    c->program.train.optimizer = BURST_OPTIMIZER_MUON;
    set_layout(c, choice);
    return c;
}

static bool of_muon(OpKind k) { return k >= OP_MOMENTUM && k <= OP_MUON; }

static void must_be_rejected(Case *c, const Mutant *m, int i, int t, const char *how)
{
    char *why;
    if (accepted(c, &m->flow, &why))
        fail_msg("case %d: operation %d (%s) %s, and accepted", i, t, op_name(c->flow->op[t].op->kind), how);
}

/* What each operation needs comes from the one before it: from_owners alone may come twice. */
static void spoil_muon(Case *c, int i, int t)
{
    const OpKind k = c->flow->op[t].op->kind, next = c->flow->op[t + 1].op->kind;
    const int layers = c->program.model.layers;
    Mutant m = copy_of(c, c->flow);
    drop(c, &m, t);
    must_be_rejected(c, &m, i, t, "is left out");
    m = copy_of(c, c->flow);
    insert_at(&m, t + 1, m.op[t]);
    if (k != OP_FROM_OWNERS)
        must_be_rejected(c, &m, i, t, "comes twice");
    m = copy_of(c, c->flow);
    const StepOp o = m.op[t];
    m.op[t] = m.op[t + 1], m.op[t + 1] = o;
    if (of_muon(next) && next == k + 1)
        must_be_rejected(c, &m, i, t, "comes after what needs it");
    m = copy_of(c, c->flow);
    m.op[t].unit = m.op[t].unit % layers + 1;
    if (layers > 1 && k != OP_ORTHOGONALIZE)
        must_be_rejected(c, &m, i, t, "is another layer's");
}

/* All layers' matrices are at their owners until they are back; in a place of their own. */
static void share_place(Case *c, int i, int t)
{
    const StepOp *o = &c->flow->op[t];
    Mutant m = copy_of(c, c->flow);
    const Item *update = flow_item(&m.flow, step_value(c->step, "update"), c->program.model.layers);
    Item *matrices = (Item *)flow_item(&m.flow, step_value(c->step, "matrices"), 0);
    matrices->offset = update->offset;
    if (o->op->kind == OP_ORTHOGONALIZE)
        must_be_rejected(c, &m, i, t, "shares its matrices' place");
}

static void muon_is_proved(void **state)
{
    (void)state;
    int ops = 0;
    for (int i = 0; i < 24; i++) {
        Case *c = make_muon_case(i);
        char *why;
        if (!accepted(c, c->flow, &why) || !accepted(c, placed_by_layer(c), &why))
            fail_msg("case %d: %s", i, why);
        for (int t = 0; t < c->flow->ops; t++)
            if (of_muon(c->flow->op[t].op->kind)) {
                spoil_muon(c, i, t);
                share_place(c, i, t);
                ops++;
            }
        arena_free(c->arena);
    }
    assert_true(ops > 24 * 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_must_be_added_once),
        cmocka_unit_test(squares_must_be_summed),
        cmocka_unit_test(right_steps_are_accepted),
        cmocka_unit_test(what_tensor_ranks_use_is_left_alone),
        cmocka_unit_test(two_sequences_need_their_own_places),
        cmocka_unit_test(wrong_packings_are_rejected),
        cmocka_unit_test(rotation_in_place_is_rejected_on_the_host),
        cmocka_unit_test(waits_in_loops_over_own_tokens_are_rejected),
        cmocka_unit_test(lost_waits_are_rejected_or_harmless),
        cmocka_unit_test(wrong_mutants_are_rejected),
        cmocka_unit_test(wrong_evaluations_are_rejected),
        cmocka_unit_test(inference_is_proved),
        cmocka_unit_test(gathers_are_awaited_one_by_one),
        cmocka_unit_test(chunks_are_fetched_ahead),
        cmocka_unit_test(queries_stay_in_their_loop),
        cmocka_unit_test(weights_that_stay_are_gathered_once),
        cmocka_unit_test(muon_is_proved),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
