/* step/passes/tile_kv.c: keys and values of chunks of the tokens wait in the host's memory, and with them
 * the sums of their gradients (FPDT: arXiv 2408.16978, section 3).
 *
 * The loop that makes keys stages each chunk of them. In the loop over chunks of queries attention becomes
 * a loop over chunks of keys, those that the mask leaves a pair with: the next one is fetched while one is
 * attended, into two slots that they take in turn, and the first two beside what comes before attention.
 * In backward sums of the chunk's gradients come with it, where chunks of queries before have begun any,
 * and go back; the loop behind it fetches each once more. So the device has two chunks of keys and of
 * their gradients, and no layer's whole. What layers save of keys and values is their copy in the host's
 * memory.
 *
 * FPDT has keys in the outer loop of backward, so that gradients of queries come and go. Here queries are
 * outside, as in forward: with fewer key heads than query heads that moves less, and attention's schedule
 * runs unchanged for a pair of chunks.
 */
#include "step/step.h"

enum { KV = 2 };
/* by the loop that makes it; in the host's memory; as attention reads it */
typedef struct KeyValue { int made, host, slots; } KeyValue;
/* gradients, of which two chunks are on the device */
typedef struct KeyValues { KeyValue of[KV]; int sum[KV], host_sum[KV]; } KeyValues;

static Op copy_op(OpKind k, int scope, int from, int to)
{
    Op o = op_make(k);
    o.scope = scope;
    op_read(&o, from, 0);
    op_write(&o, to, 0, false);
    return o;
}

static int add_host(Step *s, int value)
{
    Value v = s->values.at[value];
    v.name = arena_printf(s->arena, "%s_host", v.name);
    v.host = v.of_last = v.every = true;
    v.original = value;
    v.gradient = -1;
    return step_add_value(s, v);
}

static void of_slots(Value *v)
{
    v->dim[0] = DIM_CHUNK;
    v->index = INDEX_SLOT;
    v->saved = false;
}

static KeyValue split_value(Step *s, int made)
{
    KeyValue x = {.made = made, .host = add_host(s, made)};
    Value slots = s->values.at[made];
    slots.name = arena_printf(s->arena, "%s_chunk", slots.name);
    slots.gradient = -1;
    slots.copy = true;
    slots.original = made;
    of_slots(&slots);
    x.slots = step_add_value(s, slots);
    s->values.at[made].saved = false;
    s->values.at[made].saved_from = 0;
    return x;
}

/* The last operation that writes the value; -1: none does. */
static int last_writer(const Block *b, int value)
{
    int at = -1;
    for (int i = 0; i < b->ops.n; i++)
        at = b->ops.at[i].write[0].value == value ? i : at;
    return at;
}

/* The loop that makes keys or values stages them; the next chunk is written when these have gone. */
static void stage_keys(Step *s, Block *b, const KeyValues *k)
{
    int at = -1;
    Op wait = op_wait(OP_STAGE);
    for (int i = 0; i < KV; i++) {
        const int made = last_writer(b, k->of[i].made);
        if (made < 0)
            continue;
        wait.scope = b->ops.at[made].scope;
        at = loop_end(s, b, made);
        op_insert(s, b, at, copy_op(OP_STAGE, wait.scope, k->of[i].made, k->of[i].host));
        wait.read[0].value = k->of[i].host;
    }
    if (at >= 0)
        op_insert(s, b, at + 1, wait);
}

/* Into the scope, before the operation at `at`. Sums first: attention waits for keys, which follow them on
 * the stream of copies. Returns how many operations were added. */
static int fetch_keys(Step *s, Block *b, int at, const KeyValues *k, bool backward, int scope)
{
    const int begun = backward ? scope_add(s, (Scope){SCOPE_BEGUN, LOOP_KEYS, scope}) : 0;
    int added = 0;
    for (int i = 0; i < KV && backward; i++)
        op_insert(s, b, at + added++, copy_op(OP_FETCH, begun, k->host_sum[i], k->sum[i]));
    for (int i = 0; i < KV; i++)
        op_insert(s, b, at + added++, copy_op(OP_FETCH, scope, k->of[i].host, k->of[i].slots));
    return added;
}

/* Where copies of attention's first keys begin: behind attention before it in the loop, or the loop's
 * first operation, which may wait for other copies, unless attention is the first. */
static int early_place(const Step *s, const Block *b, int at)
{
    int i = at;
    while (i > 0 && b->ops.at[i - 1].scope == b->ops.at[at].scope)
        i--;
    return i == at || (i > 0 && op_in_loop(s, &b->ops.at[i - 1], LOOP_KEYS)) ? i : i + 1;
}

static int attend_chunks(Step *s, Block *b, int at, const KeyValues *k)
{
    const bool backward = b->ops.at[at].kind == OP_ATTENTION_BACK;
    const int loop = scope_add(s, (Scope){SCOPE_LOOP, LOOP_KEYS, b->ops.at[at].scope}),
              ahead = step_ahead(s, loop, 2);
    at += fetch_keys(s, b, early_place(s, b, at), k, backward, s->scopes.at[ahead].early);
    at += fetch_keys(s, b, at, k, backward, ahead);
    Op *o = &b->ops.at[at];
    o->scope = loop;
    for (int i = 0; i < KV; i++)
        o->read[1 + i].value = k->of[i].slots;
    for (int i = 0; i < KV && backward; i++)
        op_insert(s, b, ++at, copy_op(OP_STAGE, loop, k->sum[i], k->host_sum[i]));
    return at;
}

/* The loop that reads the sums, behind attention's. */
static void fetch_sums(Step *s, Block *b, int after, const KeyValues *k)
{
    int at = after + 1;
    while (b->ops.at[at].read[0].value != k->sum[0] && b->ops.at[at].read[0].value != k->sum[1])
        at++;
    for (int i = 0; i < KV; i++)
        at = step_prefetch(s, b, at, copy_op(OP_FETCH, 0, k->host_sum[i], k->sum[i]));
}

static void split_attention(Step *s, Block *b, const KeyValues *k)
{
    for (int i = 0; i < b->ops.n; i++) {
        const OpKind kind = b->ops.at[i].kind;
        if (op_work_kind(kind) != WORK_ATTENTION)
            continue;
        i = attend_chunks(s, b, i, k);
        if (kind == OP_ATTENTION_BACK)
            fetch_sums(s, b, i, k);
    }
}

void step_keys(Step *s)
{
    int blocks[STEP_BLOCKS];
    const int n = step_layer_blocks(s, blocks);
    int kind = 0;
    while (!op_in_block(&s->block[BLOCK_FORWARD + kind], OP_ATTENTION))
        kind++;
    const Block *forward = &s->block[BLOCK_FORWARD + kind], *backward = &s->block[BLOCK_BACKWARD + kind];
    const Op attention = forward->ops.at[op_first(forward, OP_ATTENTION)];
    const Op back = backward->ops.at[op_first(backward, OP_ATTENTION_BACK)];
    KeyValues k;
    for (int i = 0; i < KV; i++) {
        k.of[i] = split_value(s, attention.read[1 + i].value);
        k.sum[i] = back.write[1 + i].value;
        k.host_sum[i] = add_host(s, k.sum[i]);
        of_slots(&s->values.at[k.sum[i]]);
    }
    for (int i = 0; i < n; i++) {
        stage_keys(s, &s->block[blocks[i]], &k);
        split_attention(s, &s->block[blocks[i]], &k);
    }
}

static void count_copies(const Step *s, const Block *b, KeyCopies *sum)
{
    for (int i = 0; i < b->ops.n; i++) {
        const Op *o = &b->ops.at[i];
        const int loop = op_loop(s, o, LOOP_KEYS);
        if (!loop || s->scopes.at[loop].turns || !op_copies(o->kind))
            continue;
        const int64_t token =
            step_bytes(s, &s->values.at[(o->kind == OP_STAGE ? o->write : o->read)[0].value], 0) /
            s->all_tokens;
        int64_t *fetched = op_if_begun(s, o) ? &sum->begun : &sum->fetched;
        *(o->kind == OP_STAGE ? &sum->staged : fetched) += token;
    }
}

/* Whether backward of its group makes the layer's output again. */
static bool repeats_layer(const Step *s, int layer)
{
    const int last_group = (s->program->model.layers - 1) / s->group;
    return layer / s->group < last_group && (layer + 1) % s->group;
}

KeyCopies step_key_copies(const Step *s, int mask)
{
    KeyCopies sum = {0};
    for (int l = 0; l < s->program->model.layers; l++) {
        if (s->program->layer_mask[l] != mask)
            continue;
        const int kind = model_kind(&s->program->model, l);
        count_copies(s, &s->block[BLOCK_FORWARD + kind], &sum);
        if (repeats_layer(s, l))
            count_copies(s, &s->block[BLOCK_FORWARD_AGAIN + kind], &sum);
        count_copies(s, &s->block[(l < s->saving.from ? BLOCK_BACKWARD_LOWER : BLOCK_BACKWARD) + kind], &sum);
    }
    return sum;
}
