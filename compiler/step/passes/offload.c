/* step/passes/offload.c: activations that wait for backward in the host's memory (as FPDT's chunks do,
 * arXiv 2408.16978).
 *
 * A value that is staged has a copy in the host's memory for each layer. Forward of a layer begins with
 * the stage of the layer before; that has arrived before the layer writes the next one's, or at its end.
 * Backward begins with the fetch of the layer that follows it there. Both run on the stream of copies, one
 * after the other. So two layers' values are on the device at once, in the places that their lifetimes
 * leave them, and the last layer's stay, or the last few layers' where the first ones alone are staged:
 * backward begins with them.
 *
 * Where attention goes through chunks of queries, what the loops of backward read by rows may come a chunk
 * at a time (`fetch chunks`): a loop begins with the fetch of its first chunk, and each chunk with that of
 * the next, so that two chunks of it are on the device, of no layer all. The last layer's is staged as
 * well, as the head begins.
 *
 * Layers of some kinds may lack a value. Blocks of all kinds copy it, since the layer before may be of any,
 * and op_follows leaves out copies of layers that lack it.
 */
#include "step/step.h"

#include <string.h>

/* Whether the block reads it, as forward left it: a norm that is made again writes its statistics too. */
static bool reads_saved(const Block *b, int value)
{
    bool reads = false, again = false;
    for (int i = 0; i < b->ops.n; i++) {
        for (int j = 0; j < OP_READS; j++)
            reads |= b->ops.at[i].read[j].value == value && b->ops.at[i].read[j].next == 0;
        for (int j = 0; j < OP_WRITES; j++)
            again |= b->ops.at[i].again && b->ops.at[i].write[j].value == value;
    }
    return reads && !again;
}

static bool has_dim(const Value *v, Dim d) { return v->dim[0] == d || v->dim[1] == d; }

/* Whether backward of the kinds of layers that have it reads it. */
static bool backward_reads(const Step *s, int value, int phase)
{
    bool reads = true;
    for (int k = 0; k < step_kinds(s); k++)
        reads &= !step_has_value(s, k, value) || reads_saved(&s->block[phase + k], value);
    return reads;
}

/* Whether a layer that stages saves it, and backward of each that saves it reads it. */
static bool can_stage(const Step *s, int value)
{
    const Value *v = &s->values.at[value];
    const Block *lower = &s->block[BLOCK_BACKWARD_LOWER];
    const bool rows = has_dim(v, DIM_TOKENS) || has_dim(v, DIM_ALL_TOKENS); /* not of a chunk of them */
    if (v->kind != VALUE_ACTIVATION || !rows || !v->saved || v->host || v->saved_from >= s->offload_layers ||
        (s->group > 1 && v->index != INDEX_BOUNDARY))
        return false;
    return backward_reads(s, value, BLOCK_BACKWARD) &&
           (v->saved_from > 0 || !lower->ops.n || backward_reads(s, value, BLOCK_BACKWARD_LOWER));
}

/* Of the layer before: forward's, and in backward the one that follows. */
static Op copy_of(OpKind k, int from, int to)
{
    Op o = op_make(k);
    op_read(&o, from, -1);
    op_write(&o, to, -1, false);
    return o;
}

static bool is_staged(const Block *b, int value)
{
    bool staged = false;
    for (int i = 0; i < b->ops.n && b->ops.at[i].kind == OP_STAGE; i++)
        staged |= b->ops.at[i].read[0].value == value;
    return staged;
}

/* Before what writes a staged value of the next layer, with the loop around it: as it begins, the places
 * of the layer before are free. */
static int before_next(const Step *s, const Block *b)
{
    for (int i = 0; i < b->ops.n; i++)
        for (int j = 0; j < OP_WRITES && b->ops.at[i].write[j].value >= 0; j++)
            if (b->ops.at[i].write[j].next == 1 && is_staged(b, b->ops.at[i].write[j].value))
                return loop_begin(s, b, i);
    return b->ops.n;
}

static bool kind_copies(const Step *s, int kind, int host)
{
    return s->values.at[host].index == INDEX_BOUNDARY || step_has_value(s, kind, s->values.at[host].original);
}

/* The copies are in order: with the last of a layer all of it are there. Layers of some kinds may lack that
 * one, and wait for the last that they have. */
static void add_waits(Step *s, Block *b, int at, const int *host, int n)
{
    bool waits[LAYER_KINDS] = {0};
    for (int i = n - 1; i >= 0; i--) {
        Op o = op_wait(OP_STAGE);
        bool needed = false;
        for (int k = 0; k < step_kinds(s); k++) {
            const bool copies = kind_copies(s, k, host[i]);
            needed |= copies && !waits[k];
            waits[k] |= copies;
        }
        op_read(&o, host[i], -1);
        if (needed)
            op_insert(s, b, at, o);
    }
}

static int add_copy(Step *s, int value, bool by_chunks)
{
    Value v = s->values.at[value];
    v.name = arena_printf(s->arena, "%s_host", v.name);
    v.host = true;
    v.of_last = by_chunks;
    v.original = value;
    v.gradient = -1;
    return step_add_value(s, v);
}

/* ---- by chunks ---- */

static bool reads_own(const Op *o, int value)
{
    bool reads = false;
    for (int i = 0; i < OP_READS && o->read[i].value >= 0; i++)
        reads |= o->read[i].value == value && o->read[i].next == 0;
    return reads;
}

/* Whether a chunk of it is a stretch of it, and backward reads it so. */
static bool read_by_chunks(const Step *s, int value)
{
    const Value *v = &s->values.at[value];
    bool rows = s->choice.fetch_chunks && (v->dim[0] == DIM_TOKENS || v->dim[0] == DIM_ALL_TOKENS) &&
                (!v->by_heads || dim_of_queries(v->dim[1]));
    for (int b = BLOCK_BACKWARD; b < BLOCK_EMBED_BACK; b++)
        for (int i = 0; i < s->block[b].ops.n; i++)
            rows &= !reads_own(&s->block[b].ops.at[i], value) ||
                    op_takes_rows(s, &s->block[b].ops.at[i], value);
    return rows;
}

/* Two of them at a time, whatever the layer. */
static int add_chunk(Step *s, int value)
{
    Value v = s->values.at[value];
    v.name = arena_printf(s->arena, "%s_chunk", v.name);
    v.dim[0] = DIM_CHUNK;
    v.index = INDEX_CHUNK;
    v.saved = false;
    v.gradient = -1;
    return step_add_value(s, v);
}

static bool loop_reads(const Step *s, const Block *b, int first, int value)
{
    bool reads = false;
    for (int i = first; i < b->ops.n && op_same_loop(s, &b->ops.at[first], &b->ops.at[i]); i++)
        reads |= reads_own(&b->ops.at[i], value);
    return reads;
}

/* A layout that moves nothing, of a chunk: what reads the other value in that loop reads the chunk. */
static void skip_layout(const Step *s, Block *b, int at, int chunk)
{
    const int moved = b->ops.at[at].write[0].value;
    for (int i = at + 1; i < b->ops.n && op_same_loop(s, &b->ops.at[at], &b->ops.at[i]); i++)
        for (int j = 0; j < OP_READS; j++)
            if (b->ops.at[i].read[j].value == moved)
                b->ops.at[i].read[j].value = chunk;
    memmove(&b->ops.at[at], &b->ops.at[at + 1], sizeof *b->ops.at * (size_t)(--b->ops.n - at));
}

/* Each loop that reads the value has it fetched, and reads that. */
static void fetch_in_loops(Step *s, Block *b, int value, int host, int chunk)
{
    for (int i = 0; i < b->ops.n; i++) {
        if ((i == 0 || !op_same_loop(s, &b->ops.at[i], &b->ops.at[i - 1])) && loop_reads(s, b, i, value)) {
            Op o = op_make(OP_FETCH);
            op_read(&o, host, 0);
            op_write(&o, chunk, 0, false);
            i = step_prefetch(s, b, i, o);
        }
        for (int j = 0; j < OP_READS; j++)
            if (b->ops.at[i].read[j].value == value && b->ops.at[i].read[j].next == 0)
                b->ops.at[i].read[j].value = chunk;
        if (b->ops.at[i].kind == OP_LAYOUT && b->ops.at[i].read[0].value == chunk &&
            op_in_place(s, OP_LAYOUT))
            skip_layout(s, b, i--, chunk);
    }
}

static void fetch(Step *s, Block *b, int at, int value, int host, int chunk)
{
    if (b->ops.n && chunk < 0)
        op_insert(s, b, at, copy_of(OP_FETCH, host, value));
    else
        fetch_in_loops(s, b, value, host, chunk);
}

/* ---- all of it ---- */

/* So far: how many, of these fetched whole; their copies on the host, and of those that are fetched by
 * chunks. */
typedef struct Staging {
    int staged, whole;
    Vec(int) host, chunks;
} Staging;

static void fetch_in_kinds(Step *s, int phase, int at, int value, int host, int chunk)
{
    for (int k = 0; k < step_kinds(s); k++)
        fetch(s, &s->block[phase + k], at, value, host, chunk);
}

static void stage_value(Step *s, Staging *so_far, int value)
{
    const bool by_chunks = read_by_chunks(s, value), lower = s->values.at[value].saved_from == 0;
    const int chunk = by_chunks ? add_chunk(s, value) : -1, host = add_copy(s, value, by_chunks);
    *vec_push(s->arena, &so_far->host) = host;
    for (int k = 0; k < step_kinds(s); k++)
        op_insert(s, &s->block[BLOCK_FORWARD + k], so_far->staged, copy_of(OP_STAGE, value, host));
    if (by_chunks) {
        op_insert(s, &s->block[BLOCK_HEAD], so_far->staged - so_far->whole, copy_of(OP_STAGE, value, host));
        *vec_push(s->arena, &so_far->chunks) = host;
    }
    fetch_in_kinds(s, BLOCK_BACKWARD, so_far->whole, value, host, chunk);
    if (lower)
        fetch_in_kinds(s, BLOCK_BACKWARD_LOWER, 0, value, host, chunk);
    so_far->whole += !by_chunks;
    so_far->staged++;
}

/* What upper layers alone save comes first: the last one's copy is then of all layers that stage any. */
void step_space(Step *s, const char *set)
{
    Staging so_far = {0};
    for (int lower = 0, n = s->values.n; lower < 2 && set; lower++)
        for (int i = 0; i < n; i++)
            if (saves(set, s->values.at[i].name) && can_stage(s, i) &&
                (s->values.at[i].saved_from == 0) == lower)
                stage_value(s, &so_far, i);
    for (int k = 0; k < step_kinds(s) && so_far.staged; k++) {
        Block *b = &s->block[BLOCK_FORWARD + k];
        add_waits(s, b, before_next(s, b), so_far.host.at, so_far.host.n);
    }
    if (so_far.chunks.n)
        add_waits(s, &s->block[BLOCK_HEAD],
                  loop_begin(s, &s->block[BLOCK_HEAD], op_first(&s->block[BLOCK_HEAD], OP_LOSS)),
                  so_far.chunks.at, so_far.chunks.n);
}

/* The largest first: a byte that is staged frees as much and takes as long, whatever it is of. */
const char *offload_at(Arena *a, const Program *p, const Shape *shape, const Partition *part, Units units,
                       Saving v, int layers, int values)
{
    Arena *own = arena_new();
    Step *s = step_model(own, p, shape, part, units);
    s->offload_layers = layers ? layers : s->offload_layers;
    step_tensor(s);
    step_backward(s);
    step_save(s, v);
    const char *set = " ";
    for (int n = 0; n < values; n++) {
        const Value *most = NULL;
        for (int i = 0; i < s->values.n; i++) {
            const Value *x = &s->values.at[i];
            if (can_stage(s, i) && !saves(set, x->name) &&
                (!most || step_bytes(s, x, 1) > step_bytes(s, most, 1)))
                most = x;
        }
        set = most ? arena_printf(own, "%s%s ", set, most->name) : set;
    }
    set = arena_printf(a, "%s", set);
    arena_free(own);
    return set;
}

/* Of what a loop fetches, all chunks are as much as the value. */
int64_t step_copied_bytes(const Step *s, OpKind k, Dim tokens)
{
    Arena *a = arena_new();
    const StepOp *at = NULL;
    int64_t bytes = 0;
    for (int i = 0, n = step_unroll(a, s, &at); i < n; i++) {
        const Op *o = at[i].op;
        const Value *v = o->kind == k ? &s->values.at[(k == OP_STAGE ? o->write : o->read)[0].value] : NULL;
        const bool counts = v && !op_in_loop(s, o, LOOP_KEYS) && has_dim(v, tokens);
        bytes += counts && op_chunk(s, &at[i]) == 0 && op_follows(s, &at[i]) ? step_bytes(s, v, 1) : 0;
    }
    arena_free(a);
    return bytes / (tokens == DIM_TOKENS ? s->tokens : s->all_tokens);
}
