/* ir/choice.c: properties of a choice: ranks, chunks and directions.
 *
 * Chunks and hops are relative to the rank that acts: sums of coordinate * stride, which wrap in each
 * coordinate.
 */
#include "ir/choice.h"

#include <string.h>

const char *const travel_names[TRAVEL_WORDS] = {"keys", "queries", "latents"};

typedef struct Tensor { const char *name; bool accumulator; } Tensor;

static const Tensor tensors[TENSOR_COUNT] = {
#define X(id, text, acc) {text, acc},
    TENSORS(X)
#undef X
};

const char *tensor_name(TensorId t)
{
    return tensors[t].name;
}

const char *choice_travel_name(const Choice *c)
{
    return travel_names[c->latents ? TRAVEL_LATENTS : (int)c->travel];
}

bool tensor_accumulates(TensorId t)
{
    return tensors[t].accumulator;
}

int result_tensor(bool backward, int side)
{
    static const int results[2][2] = {{T_O, -1}, {T_DQ, T_DKV}};
    return results[backward][side];
}

/* ---- comparison of two choices, by the table of fields ---- */

static bool same_saving(const Choice *x, const Choice *y)
{
    return saving_same(saving_of(x), saving_of(y));
}

static bool same_share(const Choice *x, const Choice *y)
{
    return !x->share == !y->share && x->ranks == y->ranks &&
           (!x->share || memcmp(x->share, y->share, sizeof *x->share * (size_t)x->ranks) == 0);
}

#define SAME_VALUE(name) (x->name == y->name)
#define SAME_ARRAY(name) (memcmp(x->name, y->name, sizeof x->name) == 0)
#define SAME_TEXT(name) names_same(x->name, y->name)
#define SAME_SAVING(name) same_saving(x, y)
#define SAME_SHARE(name) same_share(x, y)

bool choice_same(const Choice *x, const Choice *y, unsigned keys)
{
#define X(type, name, dimension, kind, of) \
    if (keys & (of) && !SAME_##kind(name)) \
        return false;
    CHOICE_FIELDS(X)
#undef X
#define X(fact, of) \
    if (keys & (of) && fact(x) != fact(y)) \
        return false;
    CHOICE_FACTS(X)
#undef X
    return true;
}

static uint64_t mix(uint64_t hash, uint64_t x)
{
    hash = (hash ^ x) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ hash >> 29;
}

static uint64_t hash_bytes(uint64_t hash, const void *at, size_t n)
{
    for (size_t i = 0; i < n; i++)
        hash = mix(hash, ((const unsigned char *)at)[i]);
    return hash;
}

static uint64_t hash_text(uint64_t hash, const char *x)
{
    return x ? hash_bytes(hash, x, strlen(x)) : hash;
}

static uint64_t hash_share(uint64_t hash, const Choice *c)
{
    return mix(c->share ? hash_bytes(hash, c->share, sizeof *c->share * (size_t)c->ranks) : hash,
               (uint64_t)c->ranks);
}

/* Without the rules, which seldom differ alone. */
static uint64_t hash_saving(uint64_t hash, const Choice *c)
{
    const Saving v = saving_of(c);
    return hash_text(mix(hash, (uint64_t)v.from), v.lower);
}

#define HASH_VALUE(name) mix(hash, (uint64_t)(uintptr_t)c->name)
#define HASH_ARRAY(name) hash_bytes(hash, c->name, sizeof c->name)
#define HASH_TEXT(name) hash_text(hash, c->name)
#define HASH_SAVING(name) hash_saving(hash, c)
#define HASH_SHARE(name) hash_share(hash, c)

uint64_t choice_hash(const Choice *c, unsigned keys)
{
    uint64_t hash = 0;
#define X(type, name, dimension, kind, of) \
    if (keys & (of)) \
        hash = HASH_##kind(name);
    CHOICE_FIELDS(X)
#undef X
    return hash;
}

void choice_copy(Choice *to, const Choice *from, unsigned keys)
{
#define X(type, name, dimension, kind, of) \
    if (keys & (of)) \
        memcpy(&to->name, &from->name, sizeof to->name);
    CHOICE_FIELDS(X)
#undef X
}

/* The attended chunks of keys depend on the positions of chunks. */
unsigned choice_step_keys(const Choice *c)
{
    return KEY_STEP | (choice_chunks_keys(c) ? KEY_COUNTS : 0);
}

int choice_tensor(const Choice *c)
{
    return c->tensor ? c->tensor : 1;
}

void choice_set_sizes(Choice *c, int coords, const int *size)
{
    int stride = 1;
    c->coords = coords;
    for (int i = coords; i < MAX_COORDS; i++)
        c->size[i] = c->stride[i] = 0;
    for (int i = coords - 1; i >= 0; i--) {
        c->size[i] = size[i];
        c->stride[i] = stride;
        stride *= size[i];
    }
}

int coord_inside(const Choice *c, int before)
{
    int next = -1;
    for (int i = 0; i < c->coords; i++) {
        bool inside = before < 0 || c->stride[i] < c->stride[before] ||
                      (c->stride[i] == c->stride[before] && i > before);
        next = inside && (next < 0 || c->stride[i] > c->stride[next]) ? i : next;
    }
    return next;
}

int rel_coord(const Choice *c, int index, int i)
{
    return index / c->stride[i] % c->size[i];
}

int rel_hop(const Choice *c, int index, int i)
{
    int x = rel_coord(c, index, i);
    return 2 * x > c->size[i] ? x - c->size[i] : x;
}

int rel_add(const Choice *c, int x, int y)
{
    int sum = x + y;
    for (int i = 0; i < c->coords; i++)
        if (rel_coord(c, x, i) + rel_coord(c, y, i) >= c->size[i])
            sum -= c->size[i] * c->stride[i];
    return sum;
}

int rel_sub(const Choice *c, int x, int y)
{
    int difference = x - y;
    for (int i = 0; i < c->coords; i++)
        if (rel_coord(c, x, i) < rel_coord(c, y, i))
            difference += c->size[i] * c->stride[i];
    return difference;
}

int choice_pieces(const Choice *c)
{
    return c->schedule ? c->schedule->pieces : 1;
}

int choice_chunks(const Choice *c)
{
    return c->ranks * choice_pieces(c);
}

bool chunk_is_own(const Choice *c, int chunk)
{
    return chunk % c->ranks == 0;
}

int chunk_piece(const Choice *c, int chunk)
{
    return chunk / c->ranks;
}

int tensor_pieces(const Choice *c, TensorId t)
{
    return t == T_KV || t == T_DKV ? choice_pieces(c) : 1;
}

const Phase *phase_of(const Choice *c, bool backward)
{
    return backward ? c->schedule->backward[c->travel] : c->schedule->forward;
}

/* A single rank has all heads: its exchanges do nothing. */
bool choice_by_heads(const Choice *c, bool backward)
{
    const Phase *phase = phase_of(c, backward);
    /* without coordinates there are no sizes */
    return phase && phase->exchanges && (!c->coords || c->size[c->schedule->exchanged] > 1);
}

bool choice_exchanges(const Choice *c) { return choice_by_heads(c, false) || choice_by_heads(c, true); }

int choice_shares(const Choice *c, bool backward)
{
    return choice_by_heads(c, backward) && c->coords ? c->size[c->schedule->exchanged] : 1;
}

int choice_rows(const Choice *c, bool backward)
{
    return c->ranks / choice_shares(c, backward);
}

int choice_member(const Choice *c, int rank, int i)
{
    const int x = c->schedule->exchanged;
    return rank + (i - rel_coord(c, rank, x)) * c->stride[x];
}

/* Whether any chunk in row q has a live pair with any in row k; rows are ranks that share heads. */
static bool rows_meet(const Choice *c, int q, int k, const uint8_t *pair)
{
    const int shares = c->size[c->schedule->exchanged];
    for (int i = 0; i < shares * shares; i++)
        if (pair[choice_member(c, q, i / shares) * c->ranks + choice_member(c, k, i % shares)])
            return true;
    return false;
}

const uint8_t *choice_pairs(Arena *a, const Choice *c, bool backward, const uint8_t *pair)
{
    if (!choice_by_heads(c, backward))
        return pair;
    const int x = c->schedule->exchanged;
    uint8_t *rows = NEW_ARRAY(a, uint8_t, c->ranks * c->ranks);
    for (int q = 0; q < c->ranks; q++)
        for (int k = 0; k < c->ranks; k++)
            if (rel_coord(c, q, x) == rel_coord(c, k, x))
                rows[q * c->ranks + k] =
                    rel_coord(c, q, x) ? rows[choice_member(c, q, 0) * c->ranks + choice_member(c, k, 0)]
                                       : rows_meet(c, q, k, pair);
    return rows;
}

Span stmt_place(const Stmt *s)
{
    return s->by.src ? s->by : s->span;
}

bool choice_slices(const Program *p, const Choice *c)
{
    return p->infer.tokens > 1 && c->sharding == SHARDING_ZERO3 && p->cluster.world > 1;
}

bool choice_chunks_queries(const Choice *c) { return c->chunk_queries && c->token_chunks > 1; }

bool choice_chunks_keys(const Choice *c) { return c->chunk_keys && choice_chunks_queries(c); }

int64_t tokens_in_chunk(int64_t tokens, int chunks)
{
    return (tokens + chunks - 1) / chunks;
}

int chunk_count(int64_t tokens, int chunks)
{
    const int64_t chunk = tokens_in_chunk(tokens, chunks);
    return (int)((tokens + chunk - 1) / chunk);
}

bool sizes_equal(const Choice *x, const Choice *y)
{
    return x->coords == y->coords && memcmp(x->size, y->size, sizeof *x->size * (size_t)x->coords) == 0;
}

bool layers_share_sizes(const Choice *c)
{
    for (int m = 0; m < c->masks; m++) {
        const Choice x = choice_of_mask(c, m);
        if (!sizes_equal(c, &x))
            return false;
    }
    return true;
}

Choice choice_of_mask(const Choice *c, int mask)
{
    Choice x = *c;
    if (!c->of_mask)
        return x;
    const MaskChoice *m = &c->of_mask[mask];
    x.schedule = m->schedule;
    x.travel = m->travel;
    x.coords = m->coords;
    memcpy(x.size, m->size, sizeof x.size);
    memcpy(x.stride, m->stride, sizeof x.stride);
    x.masks = 0;
    x.of_mask = NULL;
    return x;
}
