/* step/passes/recompute.c: what forward saves for backward, and what backward recomputes.
 *
 * A rule of recomputation is the set of values that it saves. What backward reads and nothing saved is
 * recomputed just before the operation that reads it: by the operation of forward that wrote it, and before
 * that its own inputs if necessary. So a new rule is one row. A set may have o_tail and lse_tail, rows of
 * attention's outputs: those of a rank's last tokens, whose attention costs most under a causal mask
 * (sequence-level selective checkpointing: BurstEngine, arXiv 2509.19836, section 3.3). */
#include "step/step.h"

#include <string.h>

typedef struct Saver {
    Step *step;
    const Block *forward;
    const char *set;
    Vec(Op) out;
    bool *here; /* [values] */
} Saver;

static const Op *writer_of(const Saver *s, int value)
{
    for (int i = 0; i < s->forward->ops.n; i++)
        for (int j = 0; j < OP_WRITES; j++)
            if (s->forward->ops.at[i].write[j].value == value && !s->forward->ops.at[i].write[j].next)
                return &s->forward->ops.at[i];
    return NULL;
}

/* Attention whose last rows are kept recomputes the others. */
static Op again_of(const Saver *s, const Op *w)
{
    Op o = *w;
    o.again = true;
    if (o.kind != OP_ATTENTION || !saves(s->set, "o_tail"))
        return o;
    o.kind = OP_ATTENTION_REST;
    op_read(&o, step_value(s->step, "o_tail"), 0);
    op_read(&o, step_value(s->step, "lse_tail"), 0);
    return o;
}

static bool is_saved(const char *set, const Value *v) { return v->kept || saves(set, v->name); }

/* After a sum over chunks of heads nothing of them is left but attention's outputs, which cost most: what
 * later operations read, and the norm before, is recomputed. */
static void leave_loop(Saver *s, const Op *w)
{
    const Step *step = s->step;
    if (step->shape.head_chunks < 2 || !is_of_heads(&step->values.at[w->read[0].value]) ||
        is_of_heads(&step->values.at[w->write[0].value]))
        return;
    for (int i = 0; i < s->forward->ops.n && &s->forward->ops.at[i] < w; i++) {
        const Op *o = &s->forward->ops.at[i];
        for (int j = 0; j < OP_WRITES && o->write[j].value >= 0 && o->kind != OP_ATTENTION; j++)
            s->here[o->write[j].value] = is_saved(s->set, &step->values.at[o->write[j].value]);
    }
}

/* Chunks of tokens leave no norm's output: it is recomputed for gradients of weights. What was computed for
 * queries next to attention is still there, and so is a norm that a loop over heads reads. */
static void leave_chunks(Saver *s, const Op *w)
{
    for (int i = 0; i < s->forward->ops.n && s->step->by_tokens && s->step->shape.head_chunks < 2 &&
                    op_work_kind(w->kind) == WORK_ATTENTION;
         i++) {
        const Op *o = &s->forward->ops.at[i];
        if (s->step->by_queries && o->write[0].value == step_value(s->step, "h1_q"))
            return;
        if (o->kind == OP_NORM)
            s->here[o->write[0].value] = saves(s->set, s->step->values.at[o->write[0].value].name);
    }
}

/* Rows of experts are numbered within a chunk of the tokens: after a token's sum, which a norm reads, nothing
 * of them is left. */
static void leave_experts(Saver *s, const Op *w)
{
    const Choice *c = &s->step->choice;
    const bool chunks = c->ffn_chunks > 1 || c->token_chunks > 1;
    for (int i = 0; i < s->forward->ops.n && w->kind == OP_COMBINE && chunks; i++) {
        const Op *o = &s->forward->ops.at[i];
        for (int j = 0; j < OP_WRITES && o->write[j].value >= 0 && o->group == w->group &&
                        o->kind >= OP_ARRANGE && o->kind < OP_COMBINE;
             j++)
            s->here[o->write[j].value] = saves(s->set, s->step->values.at[o->write[j].value].name);
    }
}

static void need(Saver *s, int value)
{
    const Op *w = value < 0 || s->here[value] ? NULL : writer_of(s, value);
    if (!w)
        return;
    for (int i = 0; i < OP_READS; i++)
        need(s, w->read[i].value);
    *vec_push(s->step->arena, &s->out) = again_of(s, w);
    for (int i = 0; i < OP_WRITES; i++)
        if (w->write[i].value >= 0)
            s->here[w->write[i].value] = true;
    leave_loop(s, w);
    leave_chunks(s, w);
    leave_experts(s, w);
}

/* Before everything that attention processes chunk by chunk with all keys. */
static void need_keys(Saver *s)
{
    for (int i = 0; i < s->forward->ops.n && s->step->by_queries; i++)
        for (int j = 1; j < 3 && s->forward->ops.at[i].kind == OP_ATTENTION; j++)
            need(s, s->forward->ops.at[i].read[j].value);
}

static bool savable(const Value *v)
{
    return v->kind == VALUE_ACTIVATION && v->index != INDEX_NONE;
}

void make_again(Step *s, int kind, const Block *from, const char *set, Block *to)
{
    Saver v = {s, &s->block[BLOCK_FORWARD + kind], set, {0}, NEW_ARRAY(s->arena, bool, s->values.n)};
    for (int i = 0; i < s->values.n; i++)
        v.here[i] = !savable(&s->values.at[i]) || is_saved(set, &s->values.at[i]);
    need_keys(&v);
    for (int i = 0; i < from->ops.n; i++) {
        for (int j = 0; j < OP_READS; j++)
            need(&v, from->ops.at[i].read[j].value);
        *vec_push(s->arena, &v.out) = from->ops.at[i];
        leave_chunks(&v, &from->ops.at[i]);
    }
    to->ops.at = v.out.at, to->ops.n = v.out.n, to->ops.cap = v.out.cap;
}

static int add_tail(Step *s, const char *of)
{
    Value v = s->values.at[step_value(s, of)];
    for (int i = 0; i < countof(v.dim); i++)
        v.dim[i] = v.dim[i] == DIM_TOKENS || v.dim[i] == DIM_ALL_TOKENS ? DIM_TAIL : v.dim[i];
    v.name = arena_printf(s->arena, "%s_tail", of);
    v.gradient = -1;
    return step_add_value(s, v);
}

/* Directly after attention. */
static void keep_tail(Step *s, Block *b, int o_tail, int lse_tail)
{
    int at = 0;
    while (b->ops.at[at++].kind != OP_ATTENTION)
        ;
    Op keep = op_make(OP_KEEP);
    for (int i = 0; i < 2; i++)
        op_read(&keep, b->ops.at[at - 1].write[i].value, 0);
    op_write(&keep, o_tail, 0, false);
    op_write(&keep, lse_tail, 0, false);
    vec_push(s->arena, &b->ops);
    memmove(&b->ops.at[at + 1], &b->ops.at[at], sizeof(Op) * (size_t)(b->ops.n - 1 - at));
    b->ops.at[at] = keep;
}

static void keep_tails(Step *s, double share)
{
    const int o = add_tail(s, "o"), lse = add_tail(s, "lse");
    s->tail = tail_tokens(share, s->all_tokens);
    for (int k = 0; k < step_kinds(s); k++)
        if (op_in_block(&s->block[BLOCK_FORWARD + k], OP_ATTENTION))
            keep_tail(s, &s->block[BLOCK_FORWARD + k], o, lse);
}

static void save_of_kind(Step *s, Saving v, int kind)
{
    Block *upper = &s->block[BLOCK_BACKWARD + kind], *lower = &s->block[BLOCK_BACKWARD_LOWER + kind];
    upper->first = lower->end = v.from;
    if (v.from)
        make_again(s, kind, upper, v.lower, lower);
    make_again(s, kind, upper, v.upper, upper);
}

void step_save(Step *s, Saving v)
{
    s->saving = v;
    if (saves(v.upper, "o_tail"))
        keep_tails(s, v.tail);
    for (int i = 0; i < s->values.n; i++) {
        Value *x = &s->values.at[i];
        x->saved = savable(x) && is_saved(v.upper, x);
        x->saved_from = is_saved(v.lower, x) ? 0 : v.from;
    }
    for (int k = 0; k < step_kinds(s); k++)
        save_of_kind(s, v, k);
}
