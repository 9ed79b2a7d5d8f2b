/* step/passes/tile_tokens.c: operations of a layer that treat each token by itself over chunks of the
 * tokens, one after the other: those of the feed-forward network alone, or all of them, and those of the
 * head (FPDT: arXiv 2408.16978, section 3).
 *
 * They become loops over chunks, between what needs all tokens, as attention does. What is made and read
 * within one loop, and no layer saves, is there for one chunk at a time. Of all other values a chunk is a
 * range of rows. The first chunk begins a value or adds to it as the whole would; the others write beside
 * it, and add to gradients of weights.
 */
#include "step/step.h"

/* Rows of choices are numbered within a chunk, so that their order is made in the loop that has them. */
static bool wide(const Value *v)
{
    const Dim d = v->dim[1];
    return d == DIM_FFN || d == DIM_PAIR || d == DIM_SHARED_FFN || d == DIM_SHARED_PAIR ||
           d == DIM_TOP_PAIR || d == DIM_TOP_WIDTH || d == DIM_TOP_HIDDEN || v->dim[0] == DIM_BOUNDS;
}
static bool of_own_tokens(const Value *v) { return v->dim[0] == DIM_TOKENS; }
static bool of_rows_of_heads(const Value *v) { return v->dim[0] == DIM_HEADS; }

/* What stands among them goes along, so that there is one loop. */
static bool touches_wide(const Step *s, const Op *o)
{
    const bool among = o->kind == OP_EXPERTS_OUT_BIAS || o->kind == OP_EXPERTS_OUT_BIAS_BACK;
    return (among || op_touches(s, o, wide)) && !(s->shape.tensor > 1 && op_touches(s, o, of_own_tokens));
}

/* Where ranks split layers, of all their tokens: each has other own ones. */
static bool treats_tokens(const Step *s, const Op *o)
{
    const WorkKind k = op_work_kind(o->kind);
    const bool attends = k == WORK_ATTENTION || k == WORK_SELECT || o->kind == OP_DELTA;
    const bool keeps = o->kind == OP_CACHE || o->kind == OP_CACHE_CONV || o->kind == OP_CACHE_SCAN;
    return !o->scope && !keeps &&
           (k == WORK_MEMORY || k == WORK_PRODUCT || k == WORK_EXPERTS || k == WORK_LOSS ||
            (s->by_queries && attends)) &&
           (s->by_queries || !op_touches(s, o, of_rows_of_heads)) &&
           !(s->shape.tensor > 1 && op_touches(s, o, of_own_tokens));
}

/* Which dimension of it: of statistics of heads the second. */
static Dim *rows_of(Value *v) { return &v->dim[v->dim[0] == DIM_HEADS]; }

static bool has_rows(Value *v)
{
    const Dim d = *rows_of(v);
    return (v->kind == VALUE_ACTIVATION || v->kind == VALUE_GRADIENT) && !v->host &&
           (d == DIM_TOKENS || d == DIM_ALL_TOKENS);
}

/* Of a value: whether a loop touches it, and whether it is needed of all tokens at once. */
typedef struct Seen { bool in_loop, whole; } Seen;

static void see_operand(Seen *seen, bool tokens, bool beyond)
{
    seen->in_loop |= tokens;
    seen->whole |= !tokens || beyond;
}

/* Beyond a loop: what it reads, or adds to, and did not make itself; what is of the next layer. */
static void see(const Step *s, const Block *b, Seen *seen)
{
    /* [values]: the loop that wrote it last; 0: none */
    int *made = NEW_ARRAY(s->arena, int, s->values.n), loop = 1;
    for (int i = 0; i < b->ops.n; i++) {
        const Op *o = &b->ops.at[i];
        const bool tokens = op_dim(s, o) == LOOP_TOKENS;
        loop += i > 0 && !op_same_loop(s, o, o - 1);
        for (int j = 0; j < OP_READS && o->read[j].value >= 0; j++)
            see_operand(&seen[o->read[j].value], tokens, o->read[j].next || made[o->read[j].value] != loop);
        for (int j = 0; j < OP_WRITES && o->write[j].value >= 0; j++) {
            see_operand(&seen[o->write[j].value], tokens,
                        o->write[j].next || (o->adds[j] && made[o->write[j].value] != loop));
            made[o->write[j].value] = loop;
        }
    }
}

/* Where an operation may write where it reads, both have as many rows. */
static void see_alike(const Step *s, const Block *b, Seen *seen)
{
    for (int i = 0; i < b->ops.n; i++) {
        const Op *o = &b->ops.at[i];
        const int x = o->read[0].value, y = o->write[0].value;
        if (op_in_place(s, o->kind) && s->values.at[x].element == s->values.at[y].element)
            seen[x].whole = seen[y].whole = seen[x].whole | seen[y].whole;
    }
}

void step_chunks(Step *s, int64_t tokens, int chunks)
{
    int blocks[STEP_BLOCKS];
    const int n = step_layer_blocks(s, blocks);
    if (chunks <= 1)
        return;
    s->chunk = tokens_in_chunk(tokens, chunks);
    s->chunks = chunk_count(tokens, chunks);
    for (int i = 0; i < n; i++)
        step_tile(s, &s->block[blocks[i]], LOOP_TOKENS, s->by_tokens ? treats_tokens : touches_wide);
    if (s->by_tokens)
        step_tile(s, &s->block[BLOCK_HEAD], LOOP_TOKENS, treats_tokens);
    if (s->by_keys)
        step_keys(s);
    Seen *seen = NEW_ARRAY(s->arena, Seen, s->values.n);
    for (int i = 0; i < s->values.n; i++)
        seen[i].whole = s->values.at[i].saved || s->values.at[i].index == INDEX_BOUNDARY;
    for (int i = 0; i < STEP_BLOCKS; i++)
        see(s, &s->block[i], seen);
    for (int i = 0; i < 2 * n; i++) /* twice: what is alike with what is alike */
        see_alike(s, &s->block[blocks[i % n]], seen);
    for (int i = 0; i < s->values.n; i++)
        if (has_rows(&s->values.at[i]) && seen[i].in_loop && !seen[i].whole)
            *rows_of(&s->values.at[i]) = DIM_CHUNK;
}
