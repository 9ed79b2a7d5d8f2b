/* emit/places.c: constants of the emitted program: offsets of the step's values in a rank's arena
 * (step_pack) and of tensors in their units. */
#include "emit/internal.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

const char *constant_name(Arena *a, const char *text)
{
    char *copy = arena_printf(a, "%s", text);
    for (char *c = copy; *c; c++)
        *c = isalnum((unsigned char)*c) ? (char)toupper((unsigned char)*c) : '_';
    return copy;
}

/* "PLAN_W_MLP_GATE_PROJ" for mlp.gate_proj.weight. */
const char *weight_constant(Arena *a, const char *tensor)
{
    const char *suffix = strstr(tensor, ".weight");
    return arena_printf(a, "PLAN_W_%s",
                        constant_name(a, suffix ? arena_copy(a, tensor, (size_t)(suffix - tensor)) : tensor));
}

static bool used_by_program(const Flow *f, int value)
{
    for (int b = 0; b < STEP_BLOCKS; b++)
        for (int i = 0; i < f->step->block[b].ops.n; i++) {
            const Op *o = &f->step->block[b].ops.at[i];
            for (int j = 0; j < OP_READS; j++)
                if (o->read[j].value == value || (j < OP_WRITES && o->write[j].value == value))
                    return true;
        }
    return false;
}

/* The separator before item i of a list with so many items per line. */
static const char *between(int i, int on_line, const char *before_line, const char *before_first)
{
    if (i % on_line)
        return ", ";
    return i ? before_line : before_first;
}

/* The offset at an index; before the first index with an offset, that one's. */
static int64_t offset_at(const Flow *f, int value, int index)
{
    const int n = value_indices(f->step, &f->step->values.at[value]);
    const Item *i = flow_item(f, value, index);
    for (int k = index; !i && k < n; k++)
        i = flow_item(f, value, k);
    for (int k = index; !i && k >= 0; k--)
        i = flow_item(f, value, k);
    if (!i)
        return 0;
    return i->offset - (item_on_host(f, i) ? f->host_state : f->state);
}

static bool a_stride_apart(const Flow *f, int value, int n)
{
    const int64_t stride = offset_at(f, value, n > 1) - offset_at(f, value, 0);
    for (int i = 1; i < n; i++)
        if (offset_at(f, value, i) - offset_at(f, value, i - 1) != stride)
            return false;
    return true;
}

/* "(INT64_C(0) + (i) * INT64_C(4096))": of a value per layer, visit or unit a stride, or a table in units of
 * the alignment, which is emitted. */
static const char *indexed_place(Emit *e, const Flow *f, const char *prefix, int value, int n)
{
    const char *name = f->step->values.at[value].name;
    const int64_t first = offset_at(f, value, 0), stride = offset_at(f, value, n > 1) - first;
    if (a_stride_apart(f, value, n))
        return arena_printf(e->arena, "(INT64_C(%" PRId64 ") + (i) * INT64_C(%" PRId64 "))", first, stride);
    text_printf(e->out, "static const int64_t %s_%s[] = {", prefix, name);
    for (int i = 0; i < n; i++)
        text_printf(e->out, "%s%" PRId64, between(i, 16, ",\n    ", "\n    "),
                    offset_at(f, value, i) / f->align);
    text_add(e->out, "};\n");
    return arena_printf(e->arena, "(%s_%s[i] * PLAN_ALIGN)", prefix, name);
}

static bool has_places(const Flow *f, int value);

static const char *place_of(Emit *e, const Flow *f, const char *prefix, int value)
{
    const Value *v = &f->step->values.at[value];
    return has_places(f, value) ? indexed_place(e, f, prefix, value, value_indices(f->step, v))
                                : arena_printf(e->arena, "INT64_C(%" PRId64 ")", offset_at(f, value, 0));
}

/* A run that only evaluates has other offsets. */
static void emit_place(Emit *e, const Flow *f, int value)
{
    const Value *v = &f->step->values.at[value];
    const Flow *alone = e->alone.flow && used_by_program(e->alone.flow, value) ? e->alone.flow : NULL;
    const char *at = place_of(e, f, "plan_at", value),
               *other = alone ? place_of(e, alone, "plan_alone", value) : at;
    if (strcmp(at, other) != 0)
        at = arena_printf(e->arena, "(s->alone ? %s : %s)", other, at);
    text_printf(e->out, "#define PLAN_AT_%s%s %s\n", constant_name(e->arena, v->name),
                v->index == INDEX_NONE ? "" : "(i)", at);
}

static bool has_places(const Flow *f, int value)
{
    const Value *v = &f->step->values.at[f->same[value]];
    return value_has_place(f->step, v, value_indices(f->step, v) - 1);
}

/* Host memory, and the bytes that a sequence copies in each direction. */
static void emit_copied(Emit *e, const Flow *f)
{
    static const struct { const char *name; OpKind kind; Dim tokens; const char *what;
    } row[] = {{"STAGED", OP_STAGE, DIM_TOKENS, "a sequence stages for each of the rank's own tokens"},
               {"FETCHED", OP_FETCH, DIM_TOKENS,
                "it fetches; values in chunks count once for each loop that reads them"},
               {"STAGED_ALL", OP_STAGE, DIM_ALL_TOKENS,
                "a sequence stages for each of all tensor ranks' tokens"},
               {"FETCHED_ALL", OP_FETCH, DIM_ALL_TOKENS, "it fetches for these"}};
    text_printf(e->out,
                "#define PLAN_HOST_ARENA_BYTES ((size_t)%" PRId64 ") /* staged values in host memory */\n",
                f->host - f->host_state);
    if (e->alone.flow && e->alone.flow->host > e->alone.flow->host_state)
        text_printf(e->out, "#define PLAN_ALONE_HOST_BYTES ((size_t)%" PRId64 ")\n",
                    e->alone.flow->host - e->alone.flow->host_state);
    for (int i = 0; i < countof(row); i++)
        text_printf(e->out, "#define PLAN_%s INT64_C(%" PRId64 ") /* bytes that %s */\n", row[i].name,
                    step_copied_bytes(f->step, row[i].kind, row[i].tokens), row[i].what);
}

bool emit_stages(const Emit *e)
{
    return e->draft->memory.flow->host > e->draft->memory.flow->host_state;
}

void emit_places(Emit *e)
{
    const Flow *f = e->draft->memory.flow;
    text_printf(e->out,
                "\n/* Offsets of the step's values in a rank's arena, in bytes; i is a layer, a visit of a "
                "unit, or a unit. */\n"
                "#define PLAN_ARENA_BYTES ((size_t)%" PRId64 ")\n",
                f->packed - f->state);
    if (e->alone.flow)
        text_printf(e->out,
                    "#define PLAN_ALONE_BYTES ((size_t)%" PRId64 ") /* of a run that only evaluates */\n",
                    e->alone.flow->packed - e->alone.flow->state);
    if (emit_stages(e))
        emit_copied(e, f);
    if (f->step->chunk && !f->step->by_queries) /* a single chunk is a loop too */
        text_printf(e->out, "#define PLAN_CHUNK %" PRId64 " /* tokens of a chunk of %s */\n", f->step->chunk,
                    f->step->by_tokens ? "a layer" : "the feed-forward network");
    if (f->step->tail)
        text_printf(e->out,
                    "#define PLAN_TAIL %" PRId64
                    " /* last tokens of a rank, whose attention output layers keep */\n",
                    f->step->tail);
    for (int v = 0; v < f->step->values.n; v++) {
        const Value *x = &f->step->values.at[v];
        if (x->kind != VALUE_INPUT && x->kind != VALUE_STATE && used_by_program(f, v))
            emit_place(e, f, v);
    }
}

/* ---- attention's scratch ---- */

bool emit_scratch_moves(const Emit *e)
{
    return e->draft->memory.flow->step->by_layer;
}

/* In forward, queries travel without dO and the rows' statistics. */
static bool queries_alone(const Emit *e, const Pool *pool)
{
    for (int i = 0; i < e->draft->attention.n; i++)
        for (int p = 0; p < e->draft->attention.at[i].way[0]->pools; p++)
            if (pool == &e->draft->attention.at[i].way[0]->pool[p])
                return pool->tensor == T_Q;
    return false;
}

void emit_in_scratch(Emit *e, const Buffer *b)
{
    const char *place = arena_printf(e->arena, "plan_bytes(s, PLAN_AT_ATTENTION_%s%s + %" PRId64 ")",
                                     b->keys ? "KEYS" : "SCRATCH", emit_scratch_moves(e) ? "(layer)" : "",
                                     b->at);
    if (e->draft->program->library)
        place = arena_printf(e->arena, b->pool ? "at + %" PRId64 : "(void *)(at + %" PRId64 ")", b->at);
    if (b->pool)
        emit_line(e, "plan_pool_make(s, PLAN_POOL_%s, BURST_T_%s, %s, %d, %s);", b->name,
                  (const char *[]){"Q", "KV", "O", "DQ", "DKV"}[b->pool->tensor],
                  queries_alone(e, b->pool) ? "1" : "PLAN_PARTS", b->pool->slots, place);
    else
        emit_line(e, "s->buffer.%s = (%s *)%s;", b->name, b->type, place);
}

void emit_scratch(Emit *e)
{
    text_add(e->out, "/* Sets the buffers in attention's scratch, whose offset differs between layers. */\n");
    emit_line(e, "static void plan_scratch(PlanState *s, int layer)");
    emit_line(e, "{");
    for (int i = 0; i < e->draft->memory.n; i++)
        if (e->draft->memory.at[i].at >= 0)
            emit_in_scratch(e, &e->draft->memory.at[i]);
    emit_line(e, "}");
    emit_line(e, "%s", "");
}

/* Of a unit's experts the first's: those of the others follow it. */
static bool is_named(const Unit *u, const UnitTensor *t)
{
    static const char experts[] = "mlp.experts.";
    const size_t n = sizeof experts - 1;
    const UnitTensor *first = u->tensor;
    while (first < t && strncmp(first->name, experts, n) != 0)
        first++;
    return strncmp(t->name, experts, n) != 0 || atoi(t->name + n) == atoi(first->name + n);
}

/* Whether a unit before this one, of another kind of layers, has the tensor at the same place. */
static bool placed_before(const Units *u, int unit, const UnitTensor *t, bool elsewhere)
{
    bool found = false;
    for (int i = 0; i < (elsewhere ? u->n : unit) && t; i++) {
        const UnitTensor *same = unit_tensor(&u->at[i], t->name);
        found |= same && (same->offset != t->offset) == elsewhere;
    }
    return found;
}

/* Where layers of several kinds have it in different places, with the name of the kind. */
const char *tensor_at_constant(const Emit *e, int unit, const UnitTensor *t)
{
    const char *name = weight_constant(e->arena, t->name);
    return placed_before(&e->draft->units, unit, t, true)
               ? arena_printf(e->arena, "%s_%s", name, constant_name(e->arena, e->draft->units.at[unit].name))
               : name;
}

const char *slice_at_constant(const Emit *e, int unit, const UnitTensor *t)
{
    const char *at = tensor_at_constant(e, unit, t); /* "PLAN_W_..." */
    return arena_printf(e->arena, "PLAN_SLICE_%s", at + strlen("PLAN_W_"));
}

static void emit_slices(Emit *e)
{
    const Units *all = &e->draft->units;
    if (!all->slices)
        return;
    text_add(e->out, "\n/* Offsets of a rank's slices in its shard of a unit. */\n");
    for (int u = 0; u < all->n; u++)
        for (int t = 0; t < all->at[u].tensors; t++) {
            const UnitTensor *x = &all->at[u].tensor[t];
            if (x->slice > 0 && (!placed_before(all, u, x, false) || placed_before(all, u, x, true)))
                text_printf(e->out, "#define %s INT64_C(%" PRId64 ")\n", slice_at_constant(e, u, x),
                            x->slice_at);
        }
}

void emit_tensors(Emit *e)
{
    const Units *all = &e->draft->units;
    text_add(e->out, "\n/* Offsets of tensors in their unit of weights, in elements. */\n");
    for (int u = 0; u < all->n; u++)
        for (int t = 0; t < all->at[u].tensors; t++) {
            const UnitTensor *x = &all->at[u].tensor[t];
            if (is_named(&all->at[u], x) &&
                (!placed_before(all, u, x, false) || placed_before(all, u, x, true)))
                text_printf(e->out, "#define %s INT64_C(%" PRId64 ")\n", tensor_at_constant(e, u, x),
                            x->offset);
        }
    emit_slices(e);
}

/* Whether attention's output and statistics have all rows, or those of one chunk of queries. */
void emit_output_rows(Emit *e)
{
    const Step *s = e->draft->memory.flow->step;
    const Value *o = &s->values.at[step_value(s, "o")], *lse = &s->values.at[step_value(s, "lse")];
    const bool heads = s->shape.head_chunks > 1;
    if (s->by_queries || heads)
        text_printf(e->out,
                    "#define PLAN_O_ROWS %d /* 1: attention's output has all chunks of %s "
                    "*/\n#define PLAN_LSE_ROWS %d\n",
                    heads ? o->all_heads : o->dim[0] != DIM_CHUNK, heads ? "heads" : "queries",
                    heads ? lse->all_heads : lse->dim[1] != DIM_CHUNK);
}

/* For each chunk of queries, a bit per chunk of keys that it attends; and the bytes that this copies per
 * token. */
void emit_key_chunks(Emit *e)
{
    const Step *s = e->draft->memory.flow->step;
    const int masks = e->draft->program->mask_count;
    if (!s->by_keys)
        return;
    text_add(e->out, "static const uint64_t plan_key_pairs[PLAN_MASKS][PLAN_QUERY_CHUNKS] = {\n");
    for (int m = 0; m < masks; m++) {
        text_add(e->out, "    {");
        for (int q = 0; q < s->chunks; q++)
            text_printf(e->out, "%s0x%" PRIx64, between(q, 8, ",\n     ", ""),
                        s->pairs ? s->pairs[m * s->chunks + q] : UINT64_MAX >> (64 - s->chunks));
        text_add(e->out, "},\n");
    }
    text_add(e->out, "}; /* bit k: chunk k of keys has a live pair */\nstatic const int64_t "
                     "plan_key_copies[PLAN_MASKS][3] = {");
    for (int m = 0; m < masks; m++) {
        const KeyCopies k = step_key_copies(s, m);
        text_printf(e->out, "%s{%" PRId64 ", %" PRId64 ", %" PRId64 "}", m ? ", " : "", k.fetched, k.begun,
                    k.staged);
    }
    text_add(e->out, "}; /* bytes per token of each pair: fetched, fetched if earlier queries have begun the "
                     "sums, staged */\n");
}

/* Forward alone has parameters, which are the rank's memory for weights, or rounded ones. */
static void emit_forward_shards(Emit *e, const Step *s)
{
    if (step_value(s, "param_bf16") < 0)
        return;
    emit_line(e, "for (int unit = 0; unit < PLAN_UNITS; unit++)");
    emit_line(e, "    s->weights.bf16[unit] = plan_act(s, PLAN_AT_PARAM_BF16(unit));");
}

/* A run that only evaluates has parameters apart from the optimizer's: a device's are rounded once the
 * program is ready, the host's are copied. */
static void emit_alone_shards(Emit *e, const Step *s)
{
    const bool device = s->program->target->device_memory;
    const char *at = constant_name(e->arena, step_param(s));
    if (!step_copies_params(s))
        return;
    emit_line(e, "if (s->alone) {");
    if (device)
        emit_line(e, "BURST_TRY(burst_gpu_weights_tables(s->exec, &burst_plan, &s->rounded));");
    emit_line(e, "for (int unit = 0; unit < PLAN_UNITS; unit++)");
    if (device)
        emit_line(e, "    s->rounded.bf16[unit] = plan_act(s, PLAN_AT_%s(unit));", at);
    else
        emit_line(e,
                  "    memcpy(plan_act(s, PLAN_AT_%s(unit)), s->weights.param[unit], "
                  "(size_t)plan_shard(unit) * sizeof(float));",
                  at);
    emit_line(e, "}");
}

/* Where the optimizer finds gradients and stores rounded parameters. */
void emit_shards(Emit *e)
{
    const Step *s = e->draft->memory.flow->step;
    if (s->forward) {
        emit_forward_shards(e, s);
        return;
    }
    emit_alone_shards(e, s);
    const bool rounded = s->values.at[step_value(s, "grad_shard")].element == EL_ACTIVATION,
               bf16 = rounded && s->program->target->device_memory;
    const bool fetches = s->choice.optimizer == OPTIMIZER_FETCHED;
    emit_line(e, "if (!s->alone) {");
    if (fetches)
        emit_line(e, "BURST_TRY(plan_take_fetched(c, s));");
    emit_line(e, "for (int unit = 0; unit < PLAN_UNITS; unit++) {");
    const char *fetched[] = {"param", "m", "v"}, *weights = fetches ? "fetched" : "weights";
    for (int i = 0; i < countof(fetched) && fetches; i++)
        emit_line(e, "s->fetched.%s[unit] = plan_floats(s, PLAN_AT_%s_FETCHED(unit));", fetched[i],
                  constant_name(e->arena, fetched[i]));
    if (s->choice.optimizer == OPTIMIZER_ON_HOST)
        emit_line(e, "s->weights.%s[unit] = (%s *)(void *)plan_staged(s, PLAN_AT_GRAD_HOST(unit));",
                  bf16 ? "grad_bf16" : "grad", bf16 ? "uint16_t" : "float");
    else
        emit_line(e, "s->%s.%s[unit] = %s(s, PLAN_AT_GRAD_SHARD(unit));", weights,
                  bf16 ? "grad_bf16" : "grad", rounded ? "plan_act" : "plan_floats");
    if (step_value(s, "param_bf16") >= 0 && s->choice.optimizer != OPTIMIZER_ON_HOST)
        emit_line(e, "s->%s.bf16[unit] = plan_act(s, PLAN_AT_PARAM_BF16(unit));", weights);
    emit_line(e, "}");
    emit_line(e, "}");
}
