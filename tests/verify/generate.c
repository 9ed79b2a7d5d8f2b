/* generate.c: random schedules, as texts.
 *
 * A direction is blocks of statements: a walk (statements one after the other, each legal where it
 * stands), or a ring or a ring of rings in loops. Often one block does it all; now and then several follow
 * each other, and compute pairs twice. Some are between exchanges over one coordinate, which is then of
 * size one within. Then statements are dropped, doubled, swapped, moved, put in and changed.
 *
 * Indices are `coordinate + base + a * o + b * i`: o and i are the loops of the statement's block.
 */
#include "generate.h"

#include <string.h>

enum { ALL = -1, AXES = MOST_SIZES, MAX_ITEMS = 40, MAX_BLOCKS = 6, NO_GUARD = 1000 };
typedef enum ItemKind { PAIR, PASS, RETURN, EXCHANGE } ItemKind;
typedef struct Index {
    int base[AXES], by[AXES][AXES] /* [loop][axis] */, piece /* ALL: no piece is named */;
} Index;
typedef struct Guard { int from, to; } Guard; /* of a loop's variable */
typedef struct Item {
    ItemKind kind;
    TensorId tensor;
    bool to_heads;
    Index q, chunk, to; /* PAIR: Q[q] with KV[chunk] */
    Guard guard[AXES];
    int level;          /* loops around it */
} Item;
typedef struct Block { int loops, count[AXES], n; Item item[MAX_ITEMS]; } Block;
typedef struct Direction {
    bool backward;
    int axis /* exchanged, or -1 */, n;
    Block block[MAX_BLOCKS];
} Direction;
typedef struct Maker {
    Random *r;
    int pieces, coords, size[AXES], ranks, axis /* that directions may exchange over, or -1 */;
    Direction *d;
} Maker;

static int below(Maker *m, int n)
{
    return (int)random_below(m->r, (uint32_t)n);
}

static bool chance(Maker *m, int percent)
{
    return below(m, 100) < percent;
}

/* ---- items ---- */

static Block *add_block(Maker *m)
{
    Block *b = &m->d->block[m->d->n < MAX_BLOCKS ? m->d->n++ : MAX_BLOCKS - 1];
    *b = (Block){.n = 0};
    return b;
}

static Item *add_item(Block *b, ItemKind kind, TensorId t, int level)
{
    Item *i = &b->item[b->n < MAX_ITEMS ? b->n++ : MAX_ITEMS - 1];
    *i = (Item){.kind = kind, .tensor = t, .level = level, .chunk = {.piece = ALL}};
    for (int l = 0; l < AXES; l++)
        i->guard[l] = (Guard){-NO_GUARD, NO_GUARD};
    return i;
}

/* Relative chunk c as an index, of keys with its piece. */
static Index at_chunk(const Maker *m, int c)
{
    Index index = {.piece = m->pieces > 1 ? c / m->ranks : ALL};
    c %= m->ranks;
    for (int i = m->coords - 1; i >= 0; i--) {
        index.base[i] = c % m->size[i];
        c /= m->size[i];
    }
    return index;
}

static int difference(const Maker *m, int a, int b)
{
    Index x = at_chunk(m, a), y = at_chunk(m, b);
    int c = a / m->ranks;
    for (int i = 0; i < m->coords; i++)
        c = c * m->size[i] + (x.base[i] - y.base[i] + m->size[i]) % m->size[i];
    return c;
}

/* What a pair adds to for its queries (side 0) or its keys. */
static TensorId result(const Maker *m, int side)
{
    if (!m->d->backward)
        return T_O;
    return side ? T_DKV : T_DQ;
}

/* ---- a walk: what is legal at each point ---- */

enum { MOST_CHUNKS = 48 };
typedef struct Walk {
    bool copy[2][MOST_CHUNKS], unread[2][MOST_CHUNKS], sum[2][MOST_CHUNKS], done[MOST_CHUNKS];
    int passes;
} Walk;

/* Chunks of queries (side 0) or keys. */
static int chunks_of(const Maker *m, int side)
{
    return side ? m->ranks * m->pieces : m->ranks;
}

static void walk_pair(Maker *m, Walk *w, Block *b, int q, int kv)
{
    Item *i = add_item(b, PAIR, T_Q, 0);
    i->q = at_chunk(m, q);
    i->chunk = at_chunk(m, kv);
    w->done[difference(m, kv, q)] = true;
    w->unread[0][q] = w->unread[1][kv] = false;
    w->sum[0][q] = w->sum[1][kv] = true;
}

static bool walk_pairs(Maker *m, Walk *w, Block *b, bool any)
{
    bool found = false;
    for (int tries = 0; tries < 30 && !(found && any); tries++) {
        int q = m->d->backward || chance(m, 50) ? below(m, m->ranks) : 0, kv = below(m, chunks_of(m, 1));
        if (!w->copy[0][q] || !w->copy[1][kv] || w->done[difference(m, kv, q)])
            continue;
        walk_pair(m, w, b, q, kv);
        found = true;
    }
    return found;
}

static void walk_copy(Maker *m, Walk *w, Block *b)
{
    int side = m->d->backward || chance(m, 30) ? below(m, 2) : 1, from = below(m, chunks_of(m, side)),
        hop = below(m, m->ranks);
    int there = difference(m, from, hop);
    if (!w->copy[side][from] || w->copy[side][there] || !hop || w->passes > 9)
        return;
    Item *i = add_item(b, PASS, side ? T_KV : T_Q, 0);
    i->chunk = at_chunk(m, from);
    i->to = at_chunk(m, hop);
    w->passes++;
    w->unread[side][from] = false;
    w->copy[side][there] = w->unread[side][there] = true;
}

static void walk_sum(Maker *m, Walk *w, Block *b)
{
    int side = m->d->backward ? below(m, 2) : 0, from = below(m, chunks_of(m, side)),
        hop = chance(m, 50) ? from % m->ranks : below(m, m->ranks);
    if (from % m->ranks == 0 || !hop || !w->sum[side][from] || w->passes > 9)
        return;
    Item *i = add_item(b, PASS, result(m, side), 0);
    i->chunk = at_chunk(m, from);
    i->to = at_chunk(m, hop);
    w->passes++;
    w->sum[side][from] = false;
    w->sum[side][difference(m, from, hop)] = true;
}

static void walk_home(Maker *m, const Walk *w, Block *b)
{
    for (int side = 0; side <= m->d->backward; side++)
        for (int c = 1; c < chunks_of(m, side); c++)
            if (w->sum[side][c] && c % m->ranks) {
                add_item(b, RETURN, result(m, side), 0);
                break;
            }
}

static void walk(Maker *m)
{
    Walk w = {.copy = {{true}}};
    for (int p = 0; p < m->pieces; p++)
        w.copy[1][p * m->ranks] = true;
    Block *b = add_block(m);
    for (int step = 0, pairs = 0; step < 400 && pairs < chunks_of(m, 1) && b->n < MAX_ITEMS - 4; step++) {
        if (!walk_pairs(m, &w, b, chance(m, 70)))
            walk_copy(m, &w, b);
        if (chance(m, 8))
            walk_sum(m, &w, b);
        pairs = 0;
        for (int d = 0; d < chunks_of(m, 1); d++)
            pairs += w.done[d];
    }
    walk_home(m, &w, b);
}

/* ---- rings ---- */

/* One travelling tensor of a loop: passed on from iteration to iteration along one axis, with its sum
 * behind it. */
static Item *add_ring_pass(Block *b, TensorId t, int loop, int axis, int step, int level, Guard g,
                           bool straight_home)
{
    Item *i = add_item(b, PASS, t, level);
    for (int l = 0; l < b->loops; l++)
        i->chunk.by[l][b->loops == 1 ? axis : l] = l <= loop ? -step : 0;
    i->guard[loop] = g;
    if (straight_home)
        i->to = i->chunk;
    else
        i->to.base[axis] = step;
    return i;
}

static void ring(Maker *m)
{
    Block *b = add_block(m);
    int axis = below(m, m->coords);
    int n = m->size[axis], step = 1;
    if (!chance(m, 70))
        step = chance(m, 50) ? -1 : 1 + below(m, n);
    bool keys = chance(m, m->d->backward ? 50 : 75), near = chance(m, 25), early = chance(m, 20),
         sums = m->d->backward || !keys;
    b->loops = 1;
    b->count[0] = n;
    TensorId t = keys ? T_KV : T_Q, sum = result(m, keys);
    /* each by itself, one way or the other */
    const int pieces = keys && m->pieces > 1 && chance(m, 70) ? m->pieces : 0;
    for (int p = pieces ? 0 : ALL; p < pieces; p++, step = pieces && chance(m, 50) ? -step : step) {
        add_ring_pass(b, t, 0, axis, step, 1, (Guard){-NO_GUARD, n - 2}, false)->chunk.piece = p;
        const Index moving = b->item[b->n - 1].chunk;
        Item *pair = add_item(b, PAIR, T_Q, 1);
        *(keys ? &pair->chunk : &pair->q) = moving;
        if (sums)
            add_ring_pass(b, sum, 0, axis, step, 1, (Guard){early ? -NO_GUARD : 1, near ? NO_GUARD : n - 2},
                          near)
                ->chunk.piece = p;
    }
    if (sums && !near && n > 1)
        add_item(add_block(m), RETURN, sum, 0);
}

/* A ring over each axis inside one over the axis before, as in burst.sched. */
static void nested_rings(Maker *m)
{
    Block *b = add_block(m);
    int last = m->coords - 1, step = chance(m, 70) ? 1 : -1;
    bool keys = chance(m, m->d->backward ? 50 : 75), sums = m->d->backward || !keys;
    TensorId t = keys ? T_KV : T_Q, sum = result(m, keys);
    b->loops = m->coords;
    for (int i = 0; i < m->coords; i++) {
        b->count[i] = m->size[i];
        add_ring_pass(b, t, i, i, step, i + 1, (Guard){-NO_GUARD, m->size[i] - 2}, false);
    }
    Item *pair = add_item(b, PAIR, T_Q, b->loops);
    *(keys ? &pair->chunk : &pair->q) = b->item[last].chunk;
    if (sums && chance(m, 60))
        add_ring_pass(b, sum, last, last, step, b->loops, (Guard){-NO_GUARD, m->size[last] - 2}, false);
    if (sums && m->ranks > 1)
        add_item(add_block(m), RETURN, sum, 0);
}

/* Of Q and KV, or of the results. */
static void exchanges(Maker *m, bool to_heads)
{
    Block *b = add_block(m);
    static const TensorId copies[] = {T_Q, T_KV}, sums[] = {T_DQ, T_DKV};
    int first = below(m, 2);
    for (int i = 0; i < 2 && (to_heads || m->d->backward); i++)
        add_item(b, EXCHANGE, (to_heads ? copies : sums)[(first + i) % 2], 0)->to_heads = to_heads;
    if (!to_heads && !m->d->backward)
        add_item(b, EXCHANGE, T_O, 0);
}

static void some_block(Maker *m)
{
    int kind = below(m, 100);
    if (kind < 50)
        walk(m);
    else if (m->coords > 1 && chance(m, 90))
        nested_rings(m);
    else
        ring(m); /* over one of several coordinates it leaves pairs out */
}

/* ---- changes ---- */

static TensorId some_tensor(Maker *m)
{
    static const TensorId all[2][4] = {{T_Q, T_KV, T_KV, T_O}, {T_Q, T_KV, T_DQ, T_DKV}};
    return all[m->d->backward][below(m, 4)];
}

/* What the grammar knows: exchanges outside of loops, returns of sums. */
static void keep_grammar(Maker *m, Item *i)
{
    if (i->kind == EXCHANGE && (m->d->axis < 0 || i->level))
        i->kind = PASS;
    if (i->kind == RETURN && i->tensor != T_DKV)
        i->tensor = result(m, 0);
    i->to_heads = i->tensor == T_Q || i->tensor == T_KV;
}

static Item some_item(Maker *m, int level)
{
    Block one = {0};
    Item *i = add_item(&one, (ItemKind)below(m, 4), some_tensor(m), level);
    i->q = at_chunk(m, m->d->backward || chance(m, 30) ? below(m, m->ranks) : 0);
    i->chunk = at_chunk(m, below(m, chunks_of(m, 1)));
    i->to = at_chunk(m, below(m, m->ranks));
    keep_grammar(m, i);
    return *i;
}

static void put_in(Block *b, int at, Item x)
{
    if (b->n == MAX_ITEMS)
        return;
    memmove(&b->item[at + 1], &b->item[at], (size_t)(b->n - at) * sizeof x);
    b->item[at] = x;
    b->n++;
}

static Item take_out(Block *b, int at)
{
    Item x = b->item[at];
    b->n--;
    memmove(&b->item[at], &b->item[at + 1], (size_t)(b->n - at) * sizeof x);
    return x;
}

static void change_item(Maker *m, Item *i)
{
    Index *index[] = {&i->q, &i->chunk, &i->to};
    int axis = below(m, m->coords);
    switch (below(m, m->pieces > 1 ? 5 : 4)) {
    case 0: i->tensor = some_tensor(m); break;
    case 1: i->guard[below(m, AXES)] = (Guard){below(m, 3) - 1, below(m, m->ranks + 1)}; break;
    case 4: i->chunk.piece = below(m, m->pieces + 1) - 1; break;
    default: index[below(m, 3)]->base[axis] += below(m, 2) ? 1 : -1;
    }
    keep_grammar(m, i);
}

static void change(Maker *m)
{
    Block *b = &m->d->block[below(m, m->d->n)];
    if (!b->n)
        return;
    int at = below(m, b->n), kind = below(m, 6);
    if (kind == 0) {
        take_out(b, at);
    } else if (kind == 1) {
        put_in(b, at, b->item[at]);
    } else if (kind == 2 && at + 1 < b->n && b->item[at].level == b->item[at + 1].level) {
        Item x = take_out(b, at);
        put_in(b, at + 1, x);
    } else if (kind == 3) {
        put_in(b, at, some_item(m, b->item[at].level));
    } else if (kind == 4) {
        Block *other = &m->d->block[below(m, m->d->n)];
        Item x = take_out(b, at);
        int to = below(m, other->n + 1);
        x.level = other->n ? other->item[to < other->n ? to : to - 1].level : 0;
        keep_grammar(m, &x);
        put_in(other, to, x);
    } else {
        change_item(m, &b->item[at]);
    }
}

static void make_direction(Maker *m)
{
    *m->d = (Direction){.backward = m->d->backward, .axis = m->axis >= 0 && chance(m, 80) ? m->axis : -1};
    const int axis = m->d->axis, shares = axis < 0 ? 1 : m->size[axis];
    int blocks = chance(m, 88) ? 1 : 2;
    if (axis >= 0) {
        exchanges(m, true);
        m->size[axis] = 1;
        m->ranks /= shares;
    }
    for (int i = 0; i < blocks; i++)
        some_block(m);
    if (axis >= 0) {
        exchanges(m, false);
        m->size[axis] = shares;
        m->ranks *= shares;
    }
    int changes = chance(m, 40) ? 0 : 1 + below(m, 2);
    for (int i = 0; i < changes; i++)
        change(m);
}

/* ---- text ---- */

static const char *const tensor[TENSOR_COUNT] = {
    [T_Q] = "Q", [T_KV] = "KV", [T_O] = "O", [T_DQ] = "dQ", [T_DKV] = "dKV"};

static void add_term(Text *t, int by, const char *name)
{
    if (by)
        text_printf(t, " %c %d * %s", by < 0 ? '-' : '+', by < 0 ? -by : by, name);
}

static const char *const loop_name[AXES] = {"o", "i", "u", "v"}, *const coord_name[AXES] = {"j", "k", "n",
                                                                                            "l"};

static void add_index(const Maker *m, const Index *i, int level, const char *exchanged, Text *t)
{
    for (int axis = 0; axis < m->coords; axis++) {
        const char *name = coord_name[AXES - m->coords + axis];
        text_printf(t, "%s%s", axis ? ", " : "", axis == m->d->axis && exchanged ? exchanged : name);
        if (axis == m->d->axis)
            continue;
        if (i->base[axis])
            text_printf(t, " %c %d", i->base[axis] < 0 ? '-' : '+',
                        i->base[axis] < 0 ? -i->base[axis] : i->base[axis]);
        for (int l = 0; l < level; l++)
            add_term(t, i->by[l][axis], loop_name[l]);
    }
}

static void add_chunk(const Maker *m, TensorId x, const Index *i, int level, Text *t)
{
    text_printf(t, "%s[", tensor[x]);
    add_index(m, i, level, "*", t);
    text_add(t, "]");
    if (i->piece != ALL && (x == T_KV || x == T_DKV))
        text_printf(t, ".%d", i->piece);
}

static void add_statement(const Maker *m, const Item *i, Text *t)
{
    const char *verb = m->d->backward ? "grad" : "attend";
    switch (i->kind) {
    case RETURN: text_printf(t, "return %s;", tensor[i->tensor]); break;
    case EXCHANGE:
        text_printf(t, "exchange %s %s over %s;", tensor[i->tensor],
                    i->to_heads ? "tokens -> heads" : "heads -> tokens",
                    coord_name[AXES - m->coords + m->d->axis]);
        break;
    case PAIR:
        text_printf(t, "%s ", verb);
        add_chunk(m, T_Q, &i->q, i->level, t);
        text_add(t, " with ");
        add_chunk(m, T_KV, &i->chunk, i->level, t);
        text_add(t, ";");
        break;
    case PASS:
        text_add(t, "pass ");
        add_chunk(m, i->tensor, &i->chunk, i->level, t);
        text_add(t, " to (");
        add_index(m, &i->to, i->level, NULL, t);
        text_add(t, ");");
    }
}

static void add_item_text(const Maker *m, const Item *i, Text *t)
{
    int guards = 0;
    for (int l = 0; l < i->level; l++) {
        const Guard *g = &i->guard[l];
        if (g->from > -NO_GUARD)
            text_printf(t, "%s%s >= %d", guards++ ? " and " : "if ", loop_name[l], g->from);
        if (g->to < NO_GUARD)
            text_printf(t, "%s%s <= %d", guards++ ? " and " : "if ", loop_name[l], g->to);
    }
    text_add(t, guards ? " { " : "");
    add_statement(m, i, t);
    text_add(t, guards ? " }\n" : "\n");
}

static void add_block_text(const Maker *m, const Block *b, Text *t)
{
    int depth = 0;
    for (int j = 0; j < b->n; j++) {
        const Item *i = &b->item[j];
        if (i->kind == RETURN)
            continue;
        while (depth < i->level)
            text_printf(t, "for %s in 0 .. %d {\n", loop_name[depth], b->count[depth] - 1), depth++;
        while (depth > i->level)
            text_add(t, "}\n"), depth--;
        add_item_text(m, i, t);
    }
    while (depth-- > 0)
        text_add(t, "}\n");
}

/* Returns stand at the end, before exchanges of what they bring. */
static void add_returns(const Maker *m, const Block *b, Text *t)
{
    for (int j = 0; j < b->n; j++)
        if (b->item[j].kind == RETURN)
            add_statement(m, &b->item[j], t), text_add(t, "\n");
}

static void add_direction(const Maker *m, Text *t)
{
    text_add(t, m->d->backward ? "backward {\n" : "forward {\n");
    const int last = m->d->n - (m->d->axis >= 0); /* block of exchanges of results */
    for (int b = 0; b < last; b++)
        add_block_text(m, &m->d->block[b], t);
    for (int b = 0; b < m->d->n; b++)
        add_returns(m, &m->d->block[b], t);
    for (int b = last; b < m->d->n; b++)
        add_block_text(m, &m->d->block[b], t);
    text_add(t, "}\n");
}

void generate_schedule(Random *r, RankShape shape, Text *out)
{
    static Direction d;
    Maker m = {.r = r, .ranks = 1, .d = &d};
    m.coords = shape_sizes(shape, m.size);
    text_add(out, "schedule random over (");
    for (int i = 0; i < m.coords; i++) {
        m.ranks *= m.size[i];
        text_printf(out, "%s%s of S%d", i ? ", " : "", coord_name[AXES - m.coords + i], i);
    }
    m.axis = chance(&m, 30) ? below(&m, m.coords) : -1;
    m.pieces = m.axis < 0 && m.ranks <= 6 && chance(&m, 30) ? 2 + below(&m, 2) : 1;
    text_add(out, ")");
    if (m.pieces > 1)
        text_printf(out, " pieces %d", m.pieces);
    text_add(out, " {\n");
    for (int backward = 0; backward < 2; backward++) {
        d.backward = backward;
        make_direction(&m);
        add_direction(&m, out);
    }
    text_add(out, "}\n");
}
