/* emit/step.c: the step's operations as the emitted program: each block a function, each operation a call
 * of the runtime's names for both targets (burst_step.h), each operand the place
 * that step_pack gave it.
 */
#include "emit/emit_step.h"

#include <ctype.h>
#include <inttypes.h>
#include <string.h>

/* ---- names ---- */

static const char *step_function(Arena *a, const char *of)
{
    char *name = arena_printf(a, "plan_step_%s", of);
    for (char *c = name; *c; c++)
        *c = *c == ' ' ? '_' : *c;
    return name;
}

static const char *block_function(Arena *a, const Block *b) { return step_function(a, b->name); }

/* Of layers of several kinds. */
static const char *phase_function(Arena *a, int phase)
{
    static const char *const name[] = {[BLOCK_FORWARD] = "forward",
                                       [BLOCK_FORWARD_AGAIN] = "forward_again",
                                       [BLOCK_BACKWARD] = "backward",
                                       [BLOCK_BACKWARD_LOWER] = "backward_lower"};
    return step_function(a, name[phase]);
}

const char *type_of(const Value *v)
{
    static const char *const type[] = {
        [EL_ACTIVATION] = "BurstAct", [EL_FLOAT] = "float", [EL_INT] = "int32_t", [EL_BYTE] = "char"};
    return type[v->element];
}

const char *turn_text(const Printer *p, const Op *o)
{
    const bool keys = op_in_loop(p->step, o, LOOP_KEYS);
    if (op_is_ahead(p->step, o, keys ? LOOP_KEYS : LOOP_TOKENS))
        return keys ? "at" : "next";
    return keys ? "turn" : "chunk";
}

/* "visit + 2": of the operation's unit, or of so many visits later. */
const char *visit_of(const Printer *p, const Op *o, int next)
{
    const StepOp first = {.op = o, .block = (int)(p->block - p->step->block)};
    const int visit = op_visit(p->step, &first) + next;
    return visit ? arena_printf(p->emit->arena, "visit + %d", visit) : "visit";
}

/* "plan_unit_at(visit)"; of updates units come one after the other. */
const char *unit_at_text(const Printer *p, const Op *o, int next)
{
    if (p->step->units.groups && p->block >= &p->step->block[BLOCK_MOMENTUM])
        return visit_of(p, o, next);
    return arena_printf(p->emit->arena, "plan_unit_at(%s)", visit_of(p, o, next));
}

static const char *index_text(const Printer *p, const Op *o, Operand x)
{
    const char *layer = x.next ? "layer + 1" : "layer";
    switch (p->step->values.at[x.value].index) {
    case INDEX_LAYER:
    case INDEX_BOUNDARY: return x.next < 0 ? "layer - 1" : layer;
    case INDEX_VISIT: return visit_of(p, o, x.next ? 1 : 0);
    case INDEX_CHUNK: return op_is_ahead(p->step, o, LOOP_TOKENS) ? "next" : "chunk";
    case INDEX_SLOT: return arena_printf(p->emit->arena, "%s %% 2", turn_text(p, o));
    case INDEX_UNIT: return o->embedding ? "PLAN_EMBED" : unit_at_text(p, o, x.next ? 1 : 0);
    default: return "";
    }
}

/* "plan_act(s, PLAN_AT_X(layer))" */
const char *place_text(const Printer *p, const Op *o, Operand x)
{
    static const char *const at[] = {[EL_ACTIVATION] = "plan_act",
                                     [EL_FLOAT] = "plan_floats",
                                     [EL_INT] = "plan_ints",
                                     [EL_BYTE] = "plan_bytes"};
    const Value *v = &p->step->values.at[x.value];
    Arena *a = p->emit->arena;
    if (v->kind == VALUE_STATE)
        return arena_printf(a, "s->weights.%s[%s]", v->name, index_text(p, o, x));
    const char *index = v->index != INDEX_NONE ? arena_printf(a, "(%s)", index_text(p, o, x)) : "";
    return arena_printf(a, "%s(s, PLAN_AT_%s%s)", v->host ? "plan_staged" : at[v->element],
                        constant_name(a, v->name), index);
}

/* Of this index, of the next, or of the embedding's unit where that is not the block's; of units, each
 * group's of a layer's experts. */
static int which(const Printer *p, const Op *o, Operand x)
{
    const Index i = p->step->values.at[x.value].index;
    if (o->group && (i == INDEX_UNIT || i == INDEX_VISIT))
        return 2 + o->group;
    return o->embedding && p->step->values.at[x.value].index == INDEX_UNIT ? 2 : x.next;
}

const char *variable(const Printer *p, const Op *o, Operand x)
{
    static const char *const form[] = {"%s", "%s_next", "embed_%s"};
    const int of = which(p, o, x);
    const Value *v = &p->step->values.at[x.value];
    if (v->index == INDEX_CHUNK || v->index == INDEX_SLOT)
        return place_text(p, o, x);
    if (of > 2)
        return arena_printf(p->emit->arena, "%s_%d", v->name, of - 2);
    return arena_printf(p->emit->arena, v->kind == VALUE_INPUT ? "s->%s" : form[of], v->name);
}

/* ---- lines ---- */

enum { WIDTH = 132 };

/* begin, then items with commas, broken where a line is full. */
void emit_list(Emit *e, const char *begin, const char *const *item, int n, const char *end)
{
    const char *open = strrchr(begin, '(');
    const int column = 4 * e->indent + (int)(open ? (size_t)(open + 1 - begin) : strlen(begin));
    Text t = {0};
    text_printf(&t, "%*s%s", 4 * e->indent, "", begin);
    for (int i = 0, at = 4 * e->indent + (int)strlen(begin); i < n; i++) {
        const int length = (int)strlen(item[i]) + 2;
        if (i && at + length + (i == n - 1 ? (int)strlen(end) : 0) > WIDTH) {
            text_printf(&t, ",\n%*s", column, "");
            at = column;
        } else {
            text_add(&t, i ? ", " : "");
        }
        text_add(&t, item[i]);
        at += length;
    }
    text_printf(&t, "%s\n", end);
    text_add_n(e->out, t.at, t.n);
    text_free(&t);
}

/* ---- operations ---- */

const char *const part_name[] = {
#define X(id, row, name) #id,
    BURST_PARTS(X)
#undef X
};

const char *call_begin(const Printer *p, const Op *o, const char *function)
{
    Arena *a = p->emit->arena;
    return op_follows_compute(o->kind) ? arena_printf(a, "BURST_OP(%s, %s, ", part_name[op_part(o)], function)
                                       : arena_printf(a, "BURST_TRY(%s, ", function);
}

static void emit_call(Printer *p, const Op *o)
{
    const char *function, *item[CALL_WORDS];
    const int n = call_words(p, o, &function, item);
    emit_list(p->emit, call_begin(p, o, function), item, n, "));");
}

/* Only in the first sequence of a step, or the last; the optimizer comes after it. */
static bool emit_when(Printer *p, const Op *o)
{
    if (o->when == WHEN_ALWAYS || p->block >= &p->step->block[BLOCK_MOMENTUM])
        return false;
    emit_line(p->emit,
              o->when == WHEN_FIRST ? "if (s->sequence == 0)" : "if (s->sequence == PLAN_SEQUENCES - 1)");
    return true;
}

enum { EVALUATION = STEP_BLOCKS }; /* after the blocks: the head of evaluation */
static const struct {
    const char *doing, *comment;
} block_texts[STEP_BLOCKS + 1] = {
    [BLOCK_EMBED] = {"embedding", "The embeddings of a rank's tokens."},
    [BLOCK_FORWARD] = {"layer forward", "A layer's forward."},
    [BLOCK_HEAD] = {"head and loss", "The last norm, the head and the loss, with their gradients."},
    [BLOCK_FORWARD_AGAIN] = {"layer forward again", "A layer's forward again, for what it did not save."},
    [BLOCK_BACKWARD] = {"layer backward", "A layer's backward: recomputed values, then gradients."},
    [BLOCK_BACKWARD_LOWER] = {"layer backward", "The backward of lower layers, which save less."},
    [BLOCK_EMBED_BACK] = {"embedding backward", "The embedding's gradients."},
    [BLOCK_MOMENTUM] = {"momentum", "Muon: updates from momentum, and whole matrices at their owners."},
    [BLOCK_ORTHOGONALIZE] = {"orthogonalization", "Muon: the owners' matrices, orthogonalized."},
    [BLOCK_MATRICES] = {"matrices", "Muon: the matrices' shards at their ranks, added to the parameters."},
    [BLOCK_OPTIMIZER] = {"optimizer", "A unit's update."},
    [BLOCK_DONE] = {NULL, "The end of the updates."},
    [EVALUATION] = {"head and loss", "The last norm and the head with the loss alone, for evaluation."}};

static int number_of(const Printer *p) { return (int)(p->block - p->step->block); }

static void emit_doing(Printer *p)
{
    if (!p->said)
        emit_line(p->emit, "burst_doing(c, \"%s\");", block_texts[block_phase(number_of(p))].doing);
    p->said = true;
}

/* A change of layout where both ends are one place. */
static bool is_nothing(const Printer *p, const Op *o)
{
    return (o->kind == OP_LAYOUT || o->kind == OP_LAYOUT_BACK) &&
           p->flow->same[o->read[0].value] == p->flow->same[o->write[0].value];
}

static void emit_op(Printer *p, const Op *o)
{
    const bool attention = op_work_kind(o->kind) == WORK_ATTENTION;
    const int indent = p->emit->indent;
    if (is_nothing(p, o))
        return;
    if (emit_wait(p, o))
        return;
    if (op_follows_compute(o->kind))
        emit_doing(p);
    p->emit->indent += emit_when(p, o);
    if (attention && emit_scratch_moves(p->emit))
        emit_line(p->emit, "plan_scratch(s, layer);");
    if (!emit_stream_op(p, o))
        emit_call(p, o);
    p->emit->indent = indent;
    if (attention)
        p->said = false;
}

/* ---- blocks ---- */

/* Units in slices: a later token is multiplied by the rank's shard. */
static const char *weights_text(const Printer *p, const Op *o, Operand x)
{
    Arena *a = p->emit->arena;
    const char *unit = o->embedding ? "PLAN_EMBED" : unit_at_text(p, o, 0);
    const char *shard = step_copies_params(p->step)
                            ? arena_printf(a, "plan_act(s, PLAN_AT_%s(%s))",
                                           constant_name(a, step_param(p->step)), unit)
                            : arena_printf(a, "s->weights.param[%s]", unit);
    return arena_printf(a, "plan_weights(s, %s, %s)", shard, place_text(p, o, x));
}

/* Of what is read inline there is no variable: shards, and what gathers write. */
static void note_variable(Printer *p, const Op *o, Operand x, const char **item, int *n, int type)
{
    const Value *v = &p->step->values.at[x.value];
    bool *known = &p->known[(3 + p->step->units.groups) * x.value + which(p, o, x)];
    if (v->kind == VALUE_INPUT || v->index == INDEX_CHUNK || v->index == INDEX_SLOT ||
        (int)v->element != type || *known ||
        (v->kind == VALUE_SCRATCH && op_work_kind(o->kind) == WORK_ATTENTION))
        return;
    *known = true;
    item[(*n)++] = arena_printf(p->emit->arena, "*%s = %s", variable(p, o, x),
                                v->kind == VALUE_WEIGHT && p->step->units.slices ? weights_text(p, o, x)
                                                                                 : place_text(p, o, x));
}

static void emit_variables(Printer *p, int type)
{
    const char **item = NEW_ARRAY(p->emit->arena, const char *,
                                  (3 + p->step->units.groups) * p->step->values.n);
    int n = 0;
    for (int i = 0; i < p->block->ops.n; i++) {
        const Op *o = &p->block->ops.at[i];
        const bool stream = o->kind == OP_REDUCE;
        const bool none = o->kind == OP_GATHER || o->kind == OP_WAIT || o->kind == OP_ALL_REDUCE ||
                          o->kind == OP_TENSOR_SUM || op_copies(o->kind) ||
                          p->block >= &p->step->block[BLOCK_MOMENTUM];
        for (int j = 0; j < OP_READS && o->read[j].value >= 0 && !none && !is_nothing(p, o); j++)
            note_variable(p, o, o->read[j], item, &n, type);
        for (int j = 0; j < OP_WRITES && o->write[j].value >= 0 && !none && !stream && !is_nothing(p, o); j++)
            note_variable(p, o, o->write[j], item, &n, type);
    }
    const Value v = {.element = (Element)type};
    if (n)
        emit_list(p->emit, arena_printf(p->emit->arena, "%s ", type_of(&v)), item, n, ";");
}

/* ---- scopes ---- */

/* If queries are in it, all ranks have as many chunks, since their transfers meet. */
static void open_tokens(Printer *p, const Scope *n)
{
    const char *all = all_text(p);
    if (p->step->by_queries) {
        emit_line(p->emit, "for (int chunk = 0; chunk < %s; chunk++) {",
                  n->turns ? arena_printf(p->emit->arena, "%d", n->turns) : "PLAN_QUERY_CHUNKS");
        emit_line(p->emit,
                  "const int64_t first = %s * chunk / PLAN_QUERY_CHUNKS, rows = %s * (chunk + 1) / "
                  "PLAN_QUERY_CHUNKS - first;",
                  all, all);
        return;
    }
    emit_line(p->emit, "for (int64_t first = 0; first < %s; first += PLAN_CHUNK) {", all);
    emit_line(p->emit, "const int64_t rows = %s - first < PLAN_CHUNK ? %s - first : PLAN_CHUNK;", all, all);
}

static void open_loop(Printer *p, const Scope *n)
{
    if (n->dim == LOOP_TOKENS) {
        open_tokens(p, n);
        return;
    }
    if (n->dim == LOOP_HEADS) {
        emit_line(p->emit, "for (int chunk = 0; chunk < PLAN_HEAD_CHUNKS; chunk++) {");
        emit_line(p->emit, "s->heads = plan_chunk_heads(chunk);");
        return;
    }
    emit_line(p->emit,
              "for (int key = plan_key_from(plan_layer_mask[layer], chunk, 0), turn = 0; key < "
              "PLAN_QUERY_CHUNKS%s;",
              n->turns ? arena_printf(p->emit->arena, " && turn < %d", n->turns) : "");
    emit_line(p->emit, "     key = plan_key_from(plan_layer_mask[layer], chunk, key + 1), turn++) {");
}

static void open_ahead(Printer *p, const Scope *n)
{
    if (n->dim == LOOP_KEYS) {
        emit_line(p->emit,
                  "const int next = plan_key_from(plan_layer_mask[layer], chunk, key + 1), at = turn + 1;");
        emit_line(p->emit, "if (at >= %d && next < PLAN_QUERY_CHUNKS) {", n->turns);
        return;
    }
    emit_line(p->emit, "const int next = chunk + 1;");
    emit_line(p->emit, "if (next < PLAN_QUERY_CHUNKS) {");
    emit_line(p->emit,
              "const int64_t start = %s * next / PLAN_QUERY_CHUNKS, end = %s * (next + 1) / "
              "PLAN_QUERY_CHUNKS;",
              all_text(p), all_text(p));
}

static void open_scope(Printer *p, const Scope *n)
{
    const bool ahead = p->step->scopes.at[n->around].kind == SCOPE_AHEAD;
    if (n->kind == SCOPE_LOOP)
        open_loop(p, n);
    else if (n->kind == SCOPE_AHEAD)
        open_ahead(p, n);
    else
        emit_line(p->emit, "if (plan_key_begun(plan_layer_mask[layer], chunk, %s)) {",
                  ahead ? "next" : "key");
}

/* Ends the scopes that the operation is not in, of those around the one before it. */
static void close_scopes(Printer *p, int from, int to)
{
    for (; !scope_inside(p->step, to, from); from = p->step->scopes.at[from].around)
        emit_line(p->emit, "}");
}

/* Begins those that the one before it is not in, from the outside in. */
static void open_scopes(Printer *p, int from, int to)
{
    if (scope_inside(p->step, from, to))
        return;
    open_scopes(p, from, p->step->scopes.at[to].around);
    open_scope(p, &p->step->scopes.at[to]);
}

/* " && plan_layer_kind[layer - 1] == PLAN_KIND_MOE": of the layer before, if some kinds lack what is copied.
 */
static const char *copying_kinds(const Printer *p, const Op *o)
{
    Arena *a = p->emit->arena;
    const Model *m = &p->step->program->model;
    const char *kinds = "";
    bool all = true;
    int n = 0;
    for (int k = 0; k < step_kinds(p->step); k++) {
        const bool has = copied_kind(p->step, o, k);
        all &= has, n += has;
        if (has)
            kinds = arena_printf(a, "%s%splan_layer_kind[layer - 1] == PLAN_KIND_%s", kinds,
                                 *kinds ? " || " : "", constant_name(a, model_kind_name(m, k)));
    }
    if (all)
        return "";
    return arena_printf(a, n > 1 ? " && (%s)" : " && %s", kinds);
}

/* Which layers copy of the layer before, or wait for such a copy: "layer > 0". Of groups, the first layer's;
 * it comes back for the layer itself. */
const char *copying_layers(const Printer *p, const Op *o)
{
    Arena *a = p->emit->arena;
    const Range r = copied_layers(p->step, o);
    const bool to_last = r.last >= p->step->program->model.layers - 2;
    if (copied_group(p->step, o) > 1)
        return arena_printf(a, "layer %% PLAN_GROUP_LAYERS == %d && layer <= %d", -o->read[0].next,
                            r.last - o->read[0].next);
    return arena_printf(a, "layer > %d%s%s", r.first,
                        to_last ? "" : arena_printf(a, " && layer <= %d", r.last + 1), copying_kinds(p, o));
}

/* NULL: no such copy. */
static const char *copies_if(const Printer *p, const Op *o)
{
    return !o->scope && (o->kind == OP_STAGE || o->kind == OP_FETCH) ? copying_layers(p, o) : NULL;
}

static bool same_text(const char *a, const char *b) { return a && b && strcmp(a, b) == 0; }

static void emit_ops(Printer *p)
{
    const Block *b = p->block;
    int scope = 0;
    for (int i = 0; i < b->ops.n; i++) {
        const Op *o = &b->ops.at[i];
        const char *copies = copies_if(p, o);
        close_scopes(p, scope, o->scope);
        open_scopes(p, scope, o->scope);
        scope = o->scope;
        if (copies && (i == 0 || !same_text(copies_if(p, &o[-1]), copies)))
            emit_line(p->emit, "if (%s) {", copies);
        emit_op(p, o);
        if (copies && (i == b->ops.n - 1 || !same_text(copies_if(p, &o[1]), copies)))
            emit_line(p->emit, "}");
    }
    close_scopes(p, scope, 0);
}

/* Whether the name stands in the text as a word of its own, and not at the begin of a string. */
static bool mentions(const Text *t, const char *name)
{
    const size_t n = strlen(name);
    for (const char *at = t->at; (at = strstr(at, name)); at += n)
        if (!isalnum((unsigned char)at[-1]) && !strchr("_\"", at[-1]) && !isalnum((unsigned char)at[n]) &&
            at[n] != '_')
            return true;
    return false;
}

static bool of_all_tokens(const Value *v)
{
    return v->dim[0] == DIM_ALL_TOKENS || v->dim[1] == DIM_ALL_TOKENS;
}

/* Whether one of its operations names all tokens of the ranks that split layers. */
static bool has_all_tokens(const Step *s, const Block *b)
{
    bool has = b->unit > 0 && b->unit < s->units.head;
    for (int i = 0; i < b->ops.n && !has; i++)
        has = op_touches(s, &b->ops.at[i], of_all_tokens);
    return has;
}

/* at: where its function's arguments are noted. */
static const char *tokens_text(const Printer *p)
{
    if (p->step->shape.tensor > 1)
        return has_all_tokens(p->step, p->block) ? "s->own, all = s->n" : "s->own";
    return "s->n";
}

static void emit_block(Emit *e, const Flow *f, const Block *b, int at)
{
    Printer p = {e, f, f->step, b,
                 NEW_ARRAY(e->arena, bool, (3 + f->step->units.groups) * f->step->values.n)};
    Text body = {0}, *const out = e->out;
    e->out = &body;
    e->indent = 1;
    emit_line(e, "BurstExec *e = s->exec;");
    if (b < &f->step->block[BLOCK_MOMENTUM])
        emit_line(e, "%sint64_t n = %s;", op_in_block(b, OP_LAST_TOKEN) ? "" : "const ", tokens_text(&p));
    emit_variables(&p, EL_ACTIVATION);
    emit_variables(&p, EL_FLOAT);
    emit_variables(&p, EL_INT);
    emit_variables(&p, EL_BYTE);
    emit_ops(&p);
    if (f->step->program->infer.lengths && mentions(&body, "layer"))
        emit_line(e, "(void)layer; /* values without an offset of their own for each layer */");
    emit_line(e, "return BURST_OK;");
    e->out = out;
    e->indent = 0;
    const bool layer = mentions(&body, "layer"), visit = mentions(&body, "visit");
    e->takes[at] = layer | visit << 1;
    text_printf(out, "/* %s */\nstatic int %s(BurstCtx *c, PlanState *s%s%s)\n{\n",
                block_texts[at == EVALUATION ? at : block_phase(at)].comment, block_function(e->arena, b),
                layer ? ", int layer" : "", visit ? ", int visit" : "");
    text_add_n(out, body.at, body.n);
    text_add(out, "}\n\n");
    text_free(&body);
}

/* "PLAN_KIND_MOE" */
static const char *kind_constant(Emit *e, int kind)
{
    return arena_printf(e->arena, "PLAN_KIND_%s",
                        constant_name(e->arena, model_kind_name(&e->draft->program->model, kind)));
}

/* The kind of each layer, where there are several. */
void emit_layer_kinds(Emit *e)
{
    const Model *m = &e->draft->program->model;
    if (model_kinds(m) == 1)
        return;
    text_add(e->out, "/* Kinds of layers. */\nenum { ");
    for (int k = 0; k < model_kinds(m); k++)
        text_printf(e->out, "%s%s", k ? ", " : "", kind_constant(e, k));
    text_add(e->out, " };\nstatic const int plan_layer_kind[PLAN_LAYERS] = {");
    for (int l = 0; l < m->layers; l++)
        text_printf(e->out, "%s%s,", l % 8 ? " " : "\n    ", kind_constant(e, model_kind(m, l)));
    text_add(e->out, "\n};\n");
}

/* A layer's block, by its kind. */
static void emit_by_kind(Emit *e, const Step *s, int phase)
{
    const int kinds = step_kinds(s);
    unsigned takes = 1;
    for (int k = 0; k < kinds; k++)
        takes |= e->takes[phase + k];
    const char *visit = takes & 2 ? ", int visit" : "";
    emit_line(e, "static int %s(BurstCtx *c, PlanState *s, int layer%s)", phase_function(e->arena, phase),
              visit);
    emit_line(e, "{");
    for (int k = 0; k < kinds; k++) {
        if (k < kinds - 1)
            emit_line(e, "if (plan_layer_kind[layer] == %s)", kind_constant(e, k));
        emit_line(e, "%sreturn %s(c, s%s%s);", k < kinds - 1 ? "    " : "",
                  block_function(e->arena, &s->block[phase + k]), e->takes[phase + k] & 1 ? ", layer" : "",
                  e->takes[phase + k] & 2 ? ", visit" : "");
    }
    emit_line(e, "}");
    emit_line(e, "%s", "");
    e->takes[phase] = takes;
}

void emit_step_blocks(Emit *e)
{
    const Flow *f = e->draft->memory.flow;
    const bool updates = f->step->choice.optimizer || f->step->block[BLOCK_MATRICES].ops.n;
    for (int b = 0; b < (updates ? STEP_BLOCKS : BLOCK_MOMENTUM); b++)
        if (f->step->block[b].ops.n)
            emit_block(e, f, &f->step->block[b], b);
    for (int b = 0; b < BLOCK_EMBED_BACK && step_kinds(f->step) > 1; b++)
        if (block_of_layer(b) && block_kind(b) == 0 && f->step->block[b].ops.n)
            emit_by_kind(e, f->step, b);
    if (f->step->forward)
        return;
    Flow evaluation = *f;
    evaluation.step = step_evaluation(e->arena, f->step);
    emit_block(e, &evaluation, &evaluation.step->block[BLOCK_HEAD], EVALUATION);
}

static const char *layer_text(Emit *e, int layer)
{
    return layer == e->draft->program->model.layers ? "PLAN_LAYERS" : arena_printf(e->arena, "%d", layer);
}

/* A block's visit of its unit's weights, by its layer: plan_unit_at counts them. */
static const char *visit_text(const Step *s, const Block *b, int at)
{
    const bool groups = s->units.groups;
    switch (b->repeat) {
    case REPEAT_UP: return groups ? "layer * (1 + PLAN_EXPERT_GROUPS) + 1" : "layer + 1";
    case REPEAT_DOWN:
        return groups ? "PLAN_HEAD_VISIT + 1 + (PLAN_LAYERS - 1 - layer) * (1 + PLAN_EXPERT_GROUPS)"
                      : "2 * PLAN_HEAD - 1 - layer";
    case REPEAT_UNITS:
    case REPEAT_LAYER_UNITS: return "visit";
    default: break;
    }
    if (at == BLOCK_EMBED)
        return "0";
    if (at == BLOCK_HEAD)
        return groups ? "PLAN_HEAD_VISIT" : "PLAN_HEAD";
    return "PLAN_VISITS";
}

/* What a block's function is told of its layer. */
static const char *layer_argument(const Block *b, int at)
{
    if (b->repeat != REPEAT_ONCE)
        return "layer";
    return at == BLOCK_HEAD ? "PLAN_LAYERS" : "0";
}

/* The step of an evaluation has a head of its own. */
static bool is_evaluation(const Step *s) { return s->forward && !s->program->infer.lengths; }

/* indent: of the body of a loop without braces. */
static void emit_block_call(Emit *e, const Step *s, int block, const char *indent, const char *layer,
                            const char *visit)
{
    const bool by_kind = step_kinds(s) > 1 && block_of_layer(block);
    const char *function = by_kind ? phase_function(e->arena, block)
                                   : block_function(e->arena, &s->block[block]);
    const unsigned takes = e->takes[block == BLOCK_HEAD && is_evaluation(s) ? EVALUATION : block];
    const bool of_layer = takes & 1, of_visit = takes & 2;
    emit_line(e, "%sBURST_TRY(%s(c, s%s%s%s%s));", indent, function, of_layer ? ", " : "",
              of_layer ? layer : "", of_visit ? ", " : "", of_visit ? visit : "");
}

static void emit_visits(Emit *e, const Step *s, const Block *b)
{
    static const char *const indent[] = {"", "    ", "    ", "    ", "        "};
    const char *first = layer_text(e, b->first), *end = layer_text(e, b->end);
    const int at = (int)(b - s->block);
    if (b->repeat == REPEAT_UP)
        emit_line(e, "for (int layer = %s; layer < %s; layer++)", first, end);
    else if (b->repeat == REPEAT_DOWN)
        emit_line(e, "for (int layer = %s - 1; layer >= %s; layer--)", end, first);
    else if (b->repeat == REPEAT_UNITS)
        emit_line(e, "for (int visit = 0; visit < PLAN_UNITS; visit++)");
    else if (b->repeat == REPEAT_LAYER_UNITS) {
        emit_line(e, "for (int visit = 1; visit < PLAN_UNITS; visit++)");
        emit_line(e, "    if (visit != PLAN_HEAD)");
    }
    emit_block_call(e, s, at, indent[b->repeat], layer_argument(b, at), visit_text(s, b, at));
}

/* Backward of groups of layers, from the last on, which forward has left its inputs. */
static void emit_groups(Emit *e, const Step *s)
{
    const bool visits = (e->takes[BLOCK_FORWARD_AGAIN] | e->takes[BLOCK_BACKWARD]) & 2;
    const char *next = s->units.groups ? "visit += 1 + PLAN_EXPERT_GROUPS" : "visit++";
    const char *step = visits ? arena_printf(e->arena, "layer++, %s", next) : "layer++",
               *back = visits ? arena_printf(e->arena, "layer--, %s", next) : "layer--";
    if (visits)
        emit_line(e, "int visit = %s + 1;", s->units.groups ? "PLAN_HEAD_VISIT" : "PLAN_HEAD");
    emit_line(e, "const int group = PLAN_GROUP_LAYERS;");
    emit_line(e, "for (int first = (PLAN_LAYERS - 1) / group * group; first >= 0; first -= group) {");
    emit_line(e, "const bool last = first + group >= PLAN_LAYERS;");
    emit_line(e, "const int end = last ? PLAN_LAYERS : first + group;");
    emit_line(e, "for (int layer = first; layer < end - 1 && !last; %s)", step);
    emit_block_call(e, s, BLOCK_FORWARD_AGAIN, "    ", "layer", "visit");
    emit_line(e, "for (int layer = end - 1; layer >= first; %s)", back);
    emit_block_call(e, s, BLOCK_BACKWARD, "    ", "layer", "visit");
    emit_line(e, "}");
}

/* Blocks in their order, once or for their layers or units. */
static void emit_blocks(Emit *e, const Step *s, const char *name, int first, int end)
{
    emit_line(e, "static int %s(BurstCtx *c, PlanState *s)", name);
    emit_line(e, "{");
    for (int b = first; b < end; b++) {
        if (b == BLOCK_HEAD && !s->forward && s->program->model.experts.balance > 0)
            emit_line(e, "BURST_TRY(plan_sum_balance(c, s));");
        const bool grouped = s->group > 1 && !s->forward && b >= BLOCK_FORWARD_AGAIN && b < BLOCK_EMBED_BACK;
        if (grouped && b == BLOCK_FORWARD_AGAIN)
            emit_groups(e, s);
        else if (!grouped && s->block[b].ops.n && block_kind(b) == 0)
            emit_visits(e, s, &s->block[b]);
    }
    emit_line(e, "return BURST_OK;");
    emit_line(e, "}");
    emit_line(e, "%s", "");
}

void emit_step_sequence(Emit *e)
{
    const Step *s = e->draft->memory.flow->step;
    emit_blocks(e, s, "plan_sequence", 0, BLOCK_MOMENTUM);
    if (!s->forward)
        emit_blocks(e, step_evaluation(e->arena, s), "plan_sequence_loss", 0, BLOCK_HEAD + 1);
    if (s->block[BLOCK_MATRICES].ops.n)
        emit_blocks(e, s, "plan_muon", BLOCK_MOMENTUM, BLOCK_DONE);
}
