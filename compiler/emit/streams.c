/* emit/streams.c: the step's operations of the streams of weights and of copies as calls, those of whole
 * units, and what computing waits for.
 */
#include "emit/emit_step.h"

/* ---- units ---- */

/* Which arrival is a gathered unit's: two for those of visits, which alternate, then one for a tied
 * embedding. */
static const char *arrival_text(const Printer *p, Operand x)
{
    if (p->step->values.at[x.value].index == INDEX_NONE)
        return "&s->arrival[2]";
    return x.next ? "&s->arrival[(visit + 1) % 2]" : "&s->arrival[visit % 2]";
}

static void emit_gather(Printer *p, const Op *o)
{
    Emit *e = p->emit;
    const char *unit = o->embedding       ? "PLAN_EMBED"
                       : o->write[0].next ? "plan_unit_at(visit + 1)"
                                          : "plan_unit_at(visit)";
    const char *shard = o->read[0].value >= 0 ? place_text(p, o, o->read[0])
                                              : arena_printf(e->arena, "s->weights.param[%s]", unit);
    const char *item[] = {unit, shard, arena_printf(e->arena, "plan_shard(%s)", unit),
                          place_text(p, o, o->write[0]), arrival_text(p, o->write[0])};
    if (p->block->repeat == REPEAT_DOWN && o->write[0].next) {
        emit_line(e, "if (visit + 1 < PLAN_VISITS)");
        e->indent++;
    }
    emit_list(e, "BURST_TRY(burst_op_gather(e, ", item, countof(item), "));");
}

static void emit_reduce(Printer *p, const Op *o)
{
    Emit *e = p->emit;
    const char *unit = o->embedding ? "PLAN_EMBED" : "plan_unit_at(visit)";
    const char *item[] = {unit,
                          variable(p, o, o->read[0]),
                          arena_printf(e->arena, "plan_shard(%s)", unit),
                          place_text(p, o, o->write[0]),
                          o->adds[0]               ? "true"
                          : o->when == WHEN_ALWAYS ? "s->sequence > 0"
                                                   : "false",
                          "&s->reduction"};
    const bool rounded = p->step->values.at[o->write[0].value].element == EL_ACTIVATION;
    emit_list(e, rounded ? "BURST_TRY(burst_op_reduce_bf16(e, " : "BURST_TRY(burst_op_reduce(e, ", item,
              countof(item), "));");
    p->part = -1;
    p->said = false;
}

/* Of shards that are kept in bf16, in the fp32 memory of the unit's sum. */
static void emit_sum(Printer *p, const Op *o, const char *name)
{
    const bool rounded = o->write[1].value >= 0;
    const char *item[] = {"plan_unit_at(visit)", place_text(p, o, o->write[0]),
                          "plan_shard(plan_unit_at(visit))", "&s->reduction",
                          rounded ? variable(p, o, o->write[1]) : NULL};
    emit_list(p->emit,
              arena_printf(p->emit->arena, "BURST_TRY(burst_op_%s%s(e, ", name, rounded ? "_bf16" : ""), item,
              countof(item) - !rounded, "));");
    p->part = -1;
    p->said = false;
}

/* Sums of a whole unit; or, of one rank alone, the shard itself. */
static void emit_zero(Printer *p, const Op *o)
{
    const char *unit = o->embedding ? "PLAN_EMBED" : "plan_unit_at(visit)";
    const bool shard = p->step->values.at[o->write[0].value].kind == VALUE_SHARD;
    const char *ranks = step_replicates(p->step) ? "PLAN_SHARD_RANKS" : "PLAN_WORLD";
    const bool split = p->step->program->tensor && p->block->unit == 1;
    emit_line(p->emit, "BURST_TRY(burst_op_zero(e, %s, %s%s%splan_shard(%s)));", variable(p, o, o->write[0]),
              shard ? "" : ranks, split ? " / PLAN_TENSOR" : "", shard ? "" : " * ", unit);
}

/* The host's update of a unit in its memory, and the parameters that come of it; or the device's of what
 * came of it. */
static void emit_update(Printer *p, const Op *o)
{
    if (p->step->optimizer == OPTIMIZER_FETCHED) {
        emit_line(p->emit, "BURST_TRY(burst_op_unit_fetched(e, &s->copies));");
        const char *item[] = {"c",           "&burst_plan",
                              "&s->fetched", "plan_unit_at(visit)",
                              "s->adamw",    place_text(p, o, o->write[0])};
        emit_list(p->emit, "BURST_TRY(burst_op_adamw_fetched(e, ", item, countof(item), "));");
        return;
    }
    const char *item[] = {"&burst_plan", "&s->weights", "plan_unit_at(visit)", "s->adamw",
                          place_text(p, o, o->write[0])};
    emit_list(p->emit, "BURST_TRY(burst_op_adamw(c, ", item, countof(item), "));");
}

/* ---- copies between the memories ---- */

static void emit_unit_copy(Printer *p, const Op *o)
{
    const char *bytes = arena_printf(p->emit->arena, "(size_t)plan_shard(plan_unit_at(visit)) * sizeof(%s)",
                                     type_of(&p->step->values.at[o->read[0].value]));
    const char *item[] = {"plan_unit_at(visit)", place_text(p, o, o->read[0]), place_text(p, o, o->write[0]),
                          bytes, "&s->copies"};
    emit_list(p->emit, arena_printf(p->emit->arena, "BURST_TRY(burst_op_%s(e, ", op_name(o->kind)), item,
              countof(item), "));");
    p->part = -1;
    p->said = false;
}

/* Of this rank's tokens, or all of those that it has with the ranks that split a layer. */
static void emit_copy(Printer *p, const Op *o)
{
    const bool stage = o->kind == OP_STAGE;
    const Value *v = &p->step->values.at[o->read[0].value];
    const bool heads = v->dim[0] == DIM_HEADS; /* [heads][tokens] */
    const char *n = v->dim[heads] == DIM_ALL_TOKENS ? "all" : "n";
    const char *rows = heads ? arena_printf(p->emit->arena, "%s * %s", width_text(p, o, v, true), n) : n,
               *pair = v->dim[1] == DIM_PAIR ? "2 * " : "";
    const char *bytes = arena_printf(p->emit->arena, "(size_t)(%s%s%s%s) * sizeof(%s)", rows,
                                     heads || v->dim[1] == DIM_ONE ? "" : " * ", pair,
                                     heads || v->dim[1] == DIM_ONE ? "" : width_text(p, o, v, false),
                                     type_of(v));
    const char *item[] = {"layer - 1", place_text(p, o, o->read[0]), place_text(p, o, o->write[0]), bytes,
                          "&s->copies"};
    emit_list(p->emit, stage ? "BURST_TRY(burst_op_stage(e, " : "BURST_TRY(burst_op_fetch(e, ", item,
              countof(item), "));");
    p->part = -1;
    p->said = false;
}

/* A chunk of the copied value's rows: where the host has it, and its bytes; begin and rows: as the loop
 * names them. */
static const char *rows_at(const Printer *p, const Op *o, Operand host, const char *begin)
{
    const Value *v = &p->step->values.at[host.value];
    return arena_printf(p->emit->arena, "%s + (size_t)(%s * %s%s) * sizeof(%s)", place_text(p, o, host),
                        begin, v->dim[1] == DIM_PAIR ? "2 * " : "", width_text(p, o, v, false), type_of(v));
}

static const char *rows_bytes(const Printer *p, const Op *o, Operand host, const char *rows)
{
    const Value *v = &p->step->values.at[host.value];
    return arena_printf(p->emit->arena, "(size_t)(%s * %s%s) * sizeof(%s)", rows,
                        v->dim[1] == DIM_PAIR ? "2 * " : "", width_text(p, o, v, false), type_of(v));
}

/* Of a chunk that a loop has made, of its tokens or of keys; or of the chunk of keys that the loop around
 * it fetches. */
static void emit_chunk_copy(Printer *p, const Op *o)
{
    Emit *e = p->emit;
    const bool stage = o->kind == OP_STAGE;
    const Operand host = stage ? o->write[0] : o->read[0];
    const char *key = stage ? "key" : "next",
               *begin = o->keys ? arena_printf(e->arena, "plan_query_begin(n, %s)", key) : "first";
    const char *at = rows_at(p, o, host, begin),
               *bytes = rows_bytes(p, o, host,
                                   o->keys ? arena_printf(e->arena, "plan_key_rows(n, %s)", key) : "rows");
    const char *from = stage ? place_text(p, o, o->read[0]) : at,
               *to = stage ? at : place_text(p, o, o->write[0]);
    const char *item[] = {stage ? "layer" : "at", from, to, bytes, "&s->copies"};
    emit_list(e, arena_printf(e->arena, "BURST_TRY(burst_op_%s(e, ", op_name(o->kind)), item, countof(item),
              "));");
    p->part = -1;
    p->said = false;
}

/* The loop's first chunk as it begins, then the one after each, beside its computing. */
static void emit_fetch_ahead(Printer *p, const Op *o)
{
    Emit *e = p->emit;
    const char *from = rows_at(p, o, o->read[0], "start"),
               *bytes = rows_bytes(p, o, o->read[0], "(end - start)");
    const char *item[] = {"next", from, place_text(p, o, o->write[0]), bytes, "&s->copies"};
    emit_line(
        e, "for (int next = chunk + (chunk > 0); next < PLAN_QUERY_CHUNKS && next <= chunk + 1; next++) {");
    emit_line(
        e, "const int64_t start = n * next / PLAN_QUERY_CHUNKS, end = n * (next + 1) / PLAN_QUERY_CHUNKS;");
    emit_list(e, "BURST_TRY(burst_op_fetch(e, ", item, countof(item), "));");
    emit_line(e, "}");
    p->part = -1;
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
    case OP_STAGE: (o->chunked ? emit_chunk_copy : emit_copy)(p, o); return true;
    case OP_FETCH: (o->keys ? emit_chunk_copy : o->ahead ? emit_fetch_ahead : emit_copy)(p, o); return true;
    case OP_DOWNLOAD:
    case OP_UPLOAD:
    case OP_WRITE_BACK: emit_unit_copy(p, o); return true;
    case OP_OPTIMIZER: emit_update(p, o); return true;
    default: return false;
    }
}

/* ---- waits ---- */

/* Computing waits for a unit before the first operation that reads it; where units last the step, forward
 * does in its first sequence. */
void emit_arrival(Printer *p, const Op *o)
{
    const Operand *w = find_weight(p, o);
    if (!w || p->step->values.at[w->value].kind != VALUE_WEIGHT || p->arrived[w->value])
        return;
    p->arrived[w->value] = true;
    const bool lasts = p->step->values.at[w->value].index == INDEX_UNIT;
    if (lasts && (p->block > &p->step->block[BLOCK_HEAD] || o->embedding))
        return;
    if (lasts)
        emit_line(p->emit, "if (s->sequence == 0)");
    p->emit->indent += lasts;
    emit_line(p->emit, "BURST_TRY(burst_op_arrived(e, %s, %s));",
              o->embedding ? "PLAN_EMBED" : "plan_unit_at(visit)", arrival_text(p, *w));
    p->emit->indent -= lasts;
    p->part = -1;
    p->said = false;
}

/* Whether a layer finds it where the layer that follows it in backward had it fetched to. */
static bool is_fetched(const Printer *p, Operand x)
{
    for (int i = 0; i < p->block->ops.n; i++) {
        const Op *o = &p->block->ops.at[i];
        if (o->kind == OP_FETCH && !o->ahead && o->write[0].value == x.value && x.next == 0)
            return true;
    }
    return false;
}

static bool reads_slot(const Printer *p, Operand x)
{
    const Index i = p->step->values.at[x.value].index;
    return i == INDEX_CHUNK || i == INDEX_SLOT;
}

/* Computing waits for all that was fetched for the layer before it first reads of it, and in a loop for
 * what was for the chunk, of its tokens or of keys. The last layer's was not, where layers' are: it waits
 * for nothing. */
void emit_fetched(Printer *p, const Op *o)
{
    if (o->keys)
        emit_line(p->emit, "BURST_TRY(burst_op_fetched(e, turn, &s->copies));");
    for (int i = 0; i < OP_READS && o->read[i].value >= 0 && !p->chunk_fetched && !o->keys; i++)
        if (reads_slot(p, o->read[i])) {
            emit_line(p->emit, "BURST_TRY(burst_op_fetched(e, chunk, &s->copies));");
            p->chunk_fetched = true;
            p->part = -1;
        }
    for (int i = 0; i < OP_READS && o->read[i].value >= 0 && !p->fetched; i++)
        if (is_fetched(p, o->read[i])) {
            emit_line(p->emit, "BURST_TRY(burst_op_fetched(e, layer, &s->copies));");
            p->fetched = true;
            p->part = -1;
        }
}

static bool writes_boundary(const Op *o, Operand x)
{
    return op_stream(o->kind) == STREAM_TENSOR && o->write[0].value == x.value &&
           o->write[0].next == x.next + 1;
}

/* Whether tensor ranks may still be making it: since the block's last wait for them, or, of the layer's
 * input, in the layer before. */
static bool tensor_ranks_make(const Printer *p, const Op *o, Operand x)
{
    const Block *forward = &p->step->block[BLOCK_FORWARD];
    bool makes = false;
    for (int i = 0; i < forward->ops.n && p->block >= forward && p->block <= &p->step->block[BLOCK_HEAD] &&
                    !p->tensor_waits;
         i++)
        makes |= writes_boundary(&forward->ops.at[i], x);
    for (const Op *at = p->tensor_from ? p->tensor_from : p->block->ops.at; at < o; at++)
        makes |= op_stream(at->kind) == STREAM_TENSOR && at->write[0].value == x.value &&
                 at->write[0].next == x.next;
    return makes;
}

/* Computing waits for all that tensor ranks were given to do, before it first reads what came of some of
 * it. */
void emit_tensor_wait(Printer *p, const Op *o)
{
    bool waits = false;
    for (int i = 0; i < OP_READS && o->read[i].value >= 0; i++)
        waits |= tensor_ranks_make(p, o, o->read[i]);
    if (!waits)
        return;
    emit_line(p->emit, "BURST_TRY(burst_op_tensor_done(e, &s->tensor));");
    p->tensor_from = o;
    p->tensor_waits = true;
}

/* For what was staged of the layer before, the gradients of the visit before, or all parameters. */
bool emit_copies_wait(Printer *p, const Op *o)
{
    const Value *v = &p->step->values.at[o->read[0].value];
    if (o->kind != OP_WAIT || !(v->host || v->kind == VALUE_ROUNDED))
        return false;
    const bool staged = v->kind == VALUE_ACTIVATION;
    if (o->chunked) {
        emit_line(p->emit, "BURST_TRY(burst_op_staged(e, &s->copies));");
        return true;
    }
    if (v->kind == VALUE_STATE) {
        emit_line(p->emit, o->read[0].next < 0 ? "if (visit > 0)"
                                               : "burst_doing(c, \"return of parameters and moments\");");
        emit_line(p->emit, "%sBURST_TRY(burst_op_written_back(e, &s->copies));",
                  o->read[0].next < 0 ? "    " : "");
        return true;
    }
    emit_line(p->emit, staged    ? arena_printf(p->emit->arena, "if (%s)", copying_layers(p, o))
                       : v->host ? "if (s->sequence == PLAN_SEQUENCES - 1)"
                                 : "burst_doing(c, \"upload of parameters\");");
    emit_line(p->emit, "%sBURST_TRY(burst_op_%s(e, &s->copies));", v->host ? "    " : "",
              staged    ? "staged"
              : v->host ? "downloaded"
                        : "uploaded");
    return true;
}
