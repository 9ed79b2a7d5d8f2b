/* emit/streams.c: prints operations on the streams of weights and copies, operations on whole units, and
 * listed waits. */
#include "emit/emit_step.h"

#include <string.h>

/* ---- units ---- */

/* The arrival of a gathered unit: two alternate between visits, and a third is for a tied embedding. */
static const char *arrival_text(const Printer *p, const Op *o, Operand x)
{
    const char *visit = visit_of(p, o, x.next ? 1 : 0);
    if (p->step->values.at[x.value].index == INDEX_NONE)
        return "&s->arrival[2]";
    return arena_printf(p->emit->arena,
                        strchr(visit, ' ') ? "&s->arrival[(%s) %% 2]" : "&s->arrival[%s %% 2]", visit);
}

static void emit_gather(Printer *p, const Op *o)
{
    Emit *e = p->emit;
    const char *unit = o->embedding ? "PLAN_EMBED" : unit_at_text(p, o, o->write[0].next);
    const char *shard = o->read[0].value >= 0 ? place_text(p, o, o->read[0])
                                              : arena_printf(e->arena, "s->weights.param[%s]", unit);
    const char *item[] = {unit, shard, arena_printf(e->arena, "plan_shard(%s)", unit),
                          place_text(p, o, o->write[0]), arrival_text(p, o, o->write[0])};
    if (p->block->repeat == REPEAT_DOWN && o->write[0].next) {
        emit_line(e, "if (%s < PLAN_VISITS)", visit_of(p, o, 1));
        e->indent++;
    }
    if (!p->step->units.slices) {
        emit_list(e, "BURST_TRY(burst_op_gather(e, ", item, countof(item), "));");
        return;
    }
    const char *sliced[] = {"&burst_plan", item[0], item[1], item[3], item[4]};
    emit_line(e, "if (!s->infer.sliced)");
    e->indent++;
    emit_list(e, "BURST_TRY(burst_op_gather_slices(e, ", sliced, countof(sliced), "));");
}

static void emit_reduce(Printer *p, const Op *o)
{
    Emit *e = p->emit;
    const char *unit = o->embedding ? "PLAN_EMBED" : unit_at_text(p, o, 0);
    const char *adds = o->when == WHEN_ALWAYS ? "s->sequence > 0" : "false";
    const char *item[] = {unit,
                          variable(p, o, o->read[0]),
                          arena_printf(e->arena, "plan_shard(%s)", unit),
                          place_text(p, o, o->write[0]),
                          o->adds[0] ? "true" : adds,
                          "&s->reduction"};
    const bool rounded = p->step->values.at[o->write[0].value].element == EL_ACTIVATION;
    emit_list(e, rounded ? "BURST_TRY(burst_op_reduce_bf16(e, " : "BURST_TRY(burst_op_reduce(e, ", item,
              countof(item), "));");
    p->said = false;
}

/* With shards in bf16, the unit's sum is in its fp32 memory. */
static void emit_sum(Printer *p, const Op *o, const char *name)
{
    const bool rounded = o->write[1].value >= 0;
    const char *unit = unit_at_text(p, o, 0);
    const char *item[] = {unit, place_text(p, o, o->write[0]),
                          arena_printf(p->emit->arena, "plan_shard(%s)", unit), "&s->reduction",
                          rounded ? variable(p, o, o->write[1]) : NULL};
    emit_list(p->emit,
              arena_printf(p->emit->arena, "BURST_TRY(burst_op_%s%s(e, ", name, rounded ? "_bf16" : ""), item,
              countof(item) - !rounded, "));");
    p->said = false;
}

/* Clears the sums of a whole unit or, on a single rank, the shard itself. */
static void emit_zero(Printer *p, const Op *o)
{
    const char *unit = o->embedding ? "PLAN_EMBED" : unit_at_text(p, o, 0);
    const bool shard = p->step->values.at[o->write[0].value].kind == VALUE_SHARD;
    const char *ranks = step_replicates(p->step) ? "PLAN_SHARD_RANKS" : "PLAN_WORLD";
    const bool split = p->step->shape.tensor > 1 && block_of_layer((int)(p->block - p->step->block));
    emit_line(p->emit, "%s%s, %s%s%splan_shard(%s)));", call_begin(p, o, "burst_op_zero(e"),
              variable(p, o, o->write[0]), shard ? "" : ranks, split ? " / PLAN_TENSOR" : "",
              shard ? "" : " * ", unit);
}

/* The host's update of a unit in its memory, and the upload of its parameters; or the device's update of a
 * fetched unit. */
static void emit_update(Printer *p, const Op *o)
{
    if (p->step->choice.optimizer == OPTIMIZER_FETCHED) {
        const char *item[] = {"c",           "&burst_plan",
                              "&s->fetched", unit_at_text(p, o, 0),
                              "s->adamw",    place_text(p, o, o->write[0])};
        emit_list(p->emit, call_begin(p, o, "burst_op_adamw_fetched(e"), item, countof(item), "));");
        return;
    }
    const char *item[] = {"&burst_plan", "&s->weights", unit_at_text(p, o, 0), "s->adamw",
                          place_text(p, o, o->write[0])};
    emit_list(p->emit, call_begin(p, o, "burst_op_adamw(c"), item, countof(item), "));");
}

/* Muon's update, and AdamW's for the rest, if parameters are separate from the copies that computing
 * uses. */
static void emit_muon(Printer *p, const Op *o)
{
    const bool weights = o->kind == OP_MOMENTUM || o->kind == OP_MUON || o->kind == OP_OPTIMIZER,
               unit = o->kind != OP_ORTHOGONALIZE;
    const char *item[6];
    int n = 0;
    if (o->kind == OP_OPTIMIZER)
        item[n++] = "&burst_plan";
    if (weights)
        item[n++] = "&s->weights";
    if (unit)
        item[n++] = unit_at_text(p, o, 0);
    if (weights)
        item[n++] = "s->adamw";
    if (o->kind == OP_TO_OWNERS || o->kind == OP_FROM_OWNERS || o->kind == OP_MUON)
        item[n++] = place_text(p, o, o->read[0]);
    if (o->kind != OP_MUON && o->kind != OP_OPTIMIZER)
        item[n++] = place_text(p, o, o->write[0]);
    if (o->kind == OP_ORTHOGONALIZE)
        item[n++] = place_text(p, o, o->write[1]);
    const char *name = o->kind == OP_OPTIMIZER ? "adamw_rest" : op_name(o->kind);
    emit_list(p->emit, call_begin(p, o, arena_printf(p->emit->arena, "burst_op_%s(e", name)), item, n, "));");
}

/* ---- copies between the memories ---- */

static void emit_unit_copy(Printer *p, const Op *o)
{
    const char *unit = unit_at_text(p, o, 0);
    const char *bytes = arena_printf(p->emit->arena, "(size_t)plan_shard(%s) * sizeof(%s)", unit,
                                     type_of(&p->step->values.at[o->read[0].value]));
    const char *item[] = {unit, place_text(p, o, o->read[0]), place_text(p, o, o->write[0]), bytes,
                          "&s->copies"};
    emit_list(p->emit, arena_printf(p->emit->arena, "BURST_TRY(burst_op_%s(e, ", op_name(o->kind)), item,
              countof(item), "));");
    p->said = false;
}

/* Copies this rank's tokens, or all tensor ranks' tokens. */
static void emit_copy(Printer *p, const Op *o)
{
    const bool stage = o->kind == OP_STAGE;
    const Value *v = &p->step->values.at[o->read[0].value];
    const bool heads = v->dim[0] == DIM_HEADS; /* [heads][tokens] */
    const char *n = v->dim[heads] == DIM_ALL_TOKENS ? "all" : "n";
    const char *rows = heads ? arena_printf(p->emit->arena, "%s * %s", width_text(p, o, v, true), n) : n,
               *pair = dim_of_pairs(v->dim[1]) ? "2 * " : "";
    const char *bytes = arena_printf(p->emit->arena, "(size_t)(%s%s%s%s) * sizeof(%s)", rows,
                                     heads || v->dim[1] == DIM_ONE ? "" : " * ", pair,
                                     heads || v->dim[1] == DIM_ONE ? "" : width_text(p, o, v, false),
                                     type_of(v));
    const char *item[] = {o->read[0].next ? "layer - 1" : "layer", place_text(p, o, o->read[0]),
                          place_text(p, o, o->write[0]), bytes, "&s->copies"};
    emit_list(p->emit, stage ? "BURST_TRY(burst_op_stage(e, " : "BURST_TRY(burst_op_fetch(e, ", item,
              countof(item), "));");
    p->said = false;
}

/* A chunk of the copied value's rows: its address on the host, and its bytes; begin and rows: the loop's
 * names. */
static const char *rows_at(const Printer *p, const Op *o, Operand host, const char *begin)
{
    const Value *v = &p->step->values.at[host.value];
    return arena_printf(p->emit->arena, "%s + (size_t)(%s * %s%s) * sizeof(%s)", place_text(p, o, host),
                        begin, dim_of_pairs(v->dim[1]) ? "2 * " : "", width_text(p, o, v, false), type_of(v));
}

static const char *rows_bytes(const Printer *p, const Op *o, Operand host, const char *rows)
{
    const Value *v = &p->step->values.at[host.value];
    return arena_printf(p->emit->arena, "(size_t)(%s * %s%s) * sizeof(%s)", rows,
                        dim_of_pairs(v->dim[1]) ? "2 * " : "", width_text(p, o, v, false), type_of(v));
}

/* A copy of a chunk, of the tokens or of keys, which a loop has made or reads next. */
static void emit_chunk_copy(Printer *p, const Op *o)
{
    Arena *a = p->emit->arena;
    const Step *s = p->step;
    const bool stage = o->kind == OP_STAGE, keys = op_in_loop(s, o, LOOP_KEYS),
               ahead = op_is_ahead(s, o, keys ? LOOP_KEYS : LOOP_TOKENS);
    const Operand host = stage ? o->write[0] : o->read[0];
    const char *key = ahead ? "next" : "key", *begin = ahead ? "start" : "first",
               *rows = ahead ? "(end - start)" : "rows";
    if (keys) {
        begin = arena_printf(a, "plan_query_begin(%s, %s)", all_text(p), key);
        rows = arena_printf(a, "plan_key_rows(%s, %s)", all_text(p), key);
    }
    const char *at = rows_at(p, o, host, begin);
    const char *from = stage ? place_text(p, o, o->read[0]) : at,
               *to = stage ? at : place_text(p, o, o->write[0]);
    const char *item[] = {stage ? "layer" : turn_text(p, o), from, to, rows_bytes(p, o, host, rows),
                          "&s->copies"};
    emit_list(p->emit, arena_printf(a, "BURST_TRY(burst_op_%s(e, ", op_name(o->kind)), item, countof(item),
              "));");
    p->said = false;
}

bool emit_stream_op(Printer *p, const Op *o)
{
    switch (o->kind) {
    case OP_GATHER: emit_gather(p, o); return true;
    case OP_REDUCE: emit_reduce(p, o); return true;
    case OP_ALL_REDUCE: emit_sum(p, o, "all_reduce"); return true;
    case OP_TENSOR_SUM: emit_sum(p, o, "tensor_sum"); return true;
    case OP_ZERO: emit_zero(p, o); return true;
    case OP_STAGE:
    case OP_FETCH: (o->scope ? emit_chunk_copy : emit_copy)(p, o); return true;
    case OP_DOWNLOAD:
    case OP_UPLOAD:
    case OP_WRITE_BACK: emit_unit_copy(p, o); return true;
    case OP_OPTIMIZER: (p->step->choice.optimizer ? emit_update : emit_muon)(p, o); return true;
    case OP_MOMENTUM:
    case OP_TO_OWNERS:
    case OP_ORTHOGONALIZE:
    case OP_FROM_OWNERS:
    case OP_MUON: emit_muon(p, o); return true;
    default: return false;
    }
}

/* ---- waits ---- */

/* Waits for weights that stay until the step ends, in its first sequence. */
static void emit_arrival(Printer *p, const Op *o)
{
    const bool first = o->when == WHEN_FIRST;
    if (first)
        emit_line(p->emit, "if (s->sequence == 0)");
    if (p->step->units.slices)
        emit_line(p->emit, "if (!s->infer.sliced)");
    p->emit->indent += first || p->step->units.slices;
    emit_line(p->emit, "BURST_TRY(burst_op_arrived(e, %s, %s));",
              o->embedding ? "PLAN_EMBED" : unit_at_text(p, o, 0), arrival_text(p, o, o->read[0]));
    p->emit->indent -= first || p->step->units.slices;
    p->said = false;
}

static void emit_fetched(Printer *p, const Op *o)
{
    emit_line(p->emit, "BURST_TRY(burst_op_fetched(e, %s, &s->copies));",
              o->scope ? turn_text(p, o) : "layer");
}

static void emit_written_back(Printer *p, const Op *o)
{
    const bool before = o->read[0].next < 0;
    emit_line(p->emit, before ? "if (visit > 0)" : "burst_doing(c, \"return of parameters and moments\");");
    emit_line(p->emit, "%sBURST_TRY(burst_op_written_back(e, &s->copies));", before ? "    " : "");
}

static void emit_staged(Printer *p, const Op *o)
{
    if (!o->scope)
        emit_line(p->emit, "if (%s)", copying_layers(p, o));
    emit_line(p->emit, "%sBURST_TRY(burst_op_staged(e, &s->copies));", o->scope ? "" : "    ");
}

static void emit_uploaded(Printer *p)
{
    if (p->block == &p->step->block[BLOCK_DONE])
        emit_line(p->emit, "burst_doing(c, \"upload of parameters\");");
    emit_line(p->emit, "BURST_TRY(burst_op_%s(e, &s->copies));",
              p->block == &p->step->block[BLOCK_DONE] ? "uploaded" : "unit_fetched");
}

static void emit_downloaded(Printer *p)
{
    emit_line(p->emit, "if (s->sequence == PLAN_SEQUENCES - 1)");
    emit_line(p->emit, "    BURST_TRY(burst_op_downloaded(e, &s->copies));");
}

bool emit_wait(Printer *p, const Op *o)
{
    const bool updates = p->block >= &p->step->block[BLOCK_MOMENTUM] &&
                         p->block <= &p->step->block[BLOCK_OPTIMIZER];
    if (o->kind != OP_WAIT)
        return false;
    switch (o->awaits) {
    case OP_GATHER: emit_arrival(p, o); return true;
    case OP_FETCH: emit_fetched(p, o); return true;
    case OP_STAGE: emit_staged(p, o); return true;
    case OP_UPLOAD: emit_uploaded(p); return true;
    case OP_WRITE_BACK: emit_written_back(p, o); return true;
    /* burst_op_norm has waited for all of the gradients' downloads */
    case OP_DOWNLOAD:
        if (!updates)
            emit_downloaded(p);
        return true;
    case OP_REDUCE:
    case OP_ALL_REDUCE:
    case OP_TENSOR_SUM: return updates;
    default: emit_line(p->emit, "BURST_TRY(burst_op_tensor_done(e, &s->tensor));"); return true;
    }
}
