/* pack.c: see pack.h. Pieces, longest first, go to the sequence with the least sufficient room; then
 * sequences with room take from those with most. */
#include "data/pack.h"

#include <stdlib.h>
#include <string.h>

enum { NONE = -1, WORD = 64, LEVELS = 6 };

/* A piece in its sequence's list, or not yet placed. */
typedef struct Item {
    Piece piece;
    int64_t next;
} Item;
/* A sequence: its list of items, and the next one with equal room. */
typedef struct Bin {
    int64_t head, last, room, next;
} Bin;

/* Which amounts of room exist: a bit each, and a bit for each nonzero word of the level below. */
typedef struct Rooms {
    uint64_t *level[LEVELS];
    int levels;
} Rooms;

typedef struct Pack {
    int64_t sequence;
    Item *item;
    int64_t items, item_room;
    Bin *bin;
    int64_t bins, bin_room;
    int64_t *open; /* [sequence + 1]: the first bin with so much room */
    Rooms rooms;
} Pack;

static bool grow(void **at, int64_t *room, int64_t needed, size_t bytes)
{
    if (needed <= *room)
        return true;
    const int64_t more = 2 * needed + 64;
    void *grown = realloc(*at, (size_t)more * bytes);
    if (!grown)
        return false;
    *at = grown;
    *room = more;
    return true;
}

/* ---- amounts of room ---- */

static bool rooms_make(Rooms *r, int64_t most)
{
    for (int64_t n = most + 1; r->levels < LEVELS; n = (n + WORD - 1) / WORD) {
        r->level[r->levels] = calloc((size_t)((n + WORD - 1) / WORD), sizeof(uint64_t));
        if (!r->level[r->levels++])
            return false;
        if (n <= WORD)
            return true;
    }
    return false; /* a sequence of more than 2^36 tokens */
}

static void rooms_set(Rooms *r, int64_t room)
{
    for (int l = 0; l < r->levels; l++, room /= WORD)
        r->level[l][room / WORD] |= UINT64_C(1) << room % WORD;
}

static void rooms_clear(Rooms *r, int64_t room)
{
    for (int l = 0; l < r->levels; l++, room /= WORD) {
        r->level[l][room / WORD] &= ~(UINT64_C(1) << room % WORD);
        if (r->level[l][room / WORD])
            return;
    }
}

/* The least existing amount from `room` to `most`; NONE: there is none. */
static int64_t rooms_least(const Rooms *r, int64_t room, int64_t most)
{
    for (int l = 0; l < r->levels; l++) {
        const int64_t words = (most / WORD) + 1;
        if (room / WORD >= words)
            return NONE;
        uint64_t bits = r->level[l][room / WORD] & (~UINT64_C(0) << room % WORD);
        if (bits) {
            room = room / WORD * WORD + __builtin_ctzll(bits);
            while (l-- > 0)
                room = room * WORD + __builtin_ctzll(r->level[l][room]);
            return room;
        }
        room = room / WORD + 1;
        most /= WORD;
    }
    return NONE;
}

/* ---- sequences ---- */

static void bin_open(Pack *p, int64_t b)
{
    Bin *bin = &p->bin[b];
    bin->next = p->open[bin->room];
    p->open[bin->room] = b;
    rooms_set(&p->rooms, bin->room);
}

/* Removes from the lists the sequence with the least room of at least `length`, or adds a new one. */
static int64_t bin_take(Pack *p, int64_t length)
{
    const int64_t room = rooms_least(&p->rooms, length, p->sequence);
    if (room == NONE) {
        if (!grow((void **)&p->bin, &p->bin_room, p->bins + 1, sizeof *p->bin))
            return NONE;
        p->bin[p->bins] = (Bin){.head = NONE, .last = NONE, .room = p->sequence};
        return p->bins++;
    }
    const int64_t b = p->open[room];
    p->open[room] = p->bin[b].next;
    if (p->open[room] == NONE)
        rooms_clear(&p->rooms, room);
    return b;
}

static void bin_add(Pack *p, int64_t b, int64_t item)
{
    Bin *bin = &p->bin[b];
    p->item[item].next = NONE;
    if (bin->last == NONE)
        bin->head = item;
    else
        p->item[bin->last].next = item;
    bin->last = item;
    bin->room -= p->item[item].piece.length;
}

static bool place(Pack *p, int64_t item)
{
    const int64_t b = bin_take(p, p->item[item].piece.length);
    if (b == NONE)
        return false;
    bin_add(p, b, item);
    if (p->bin[b].room > 0)
        bin_open(p, b);
    return true;
}

/* ---- best fit ---- */

/* Splits a document into whole sequences and the rest. */
static bool cut(Pack *p, int64_t begin, int64_t end)
{
    for (int64_t at = begin; at < end; at += p->sequence) {
        const int64_t length = end - at < p->sequence ? end - at : p->sequence;
        if (!grow((void **)&p->item, &p->item_room, p->items + 1, sizeof *p->item))
            return false;
        p->item[p->items++] = (Item){.piece = {at, length}};
    }
    return true;
}

/* Places pieces from the longest to the shortest, equal ones in the file's order; by_length: [sequence + 1]
 * of NONE. */
static bool place_all(Pack *p, int64_t *by_length)
{
    for (int64_t i = p->items; i-- > 0;) {
        const int64_t length = p->item[i].piece.length;
        p->item[i].next = by_length[length];
        by_length[length] = i;
    }
    for (int64_t length = p->sequence; length > 0; length--)
        for (int64_t i = by_length[length], next; i != NONE; i = next) {
            next = p->item[i].next;
            if (!place(p, i))
                return false;
        }
    return true;
}

/* ---- room only in the last sequence ---- */

/* Removes an item from its sequence's list; before: the previous item, NONE: it is the first. */
static void bin_remove(Pack *p, int64_t b, int64_t before, int64_t item)
{
    Bin *bin = &p->bin[b];
    if (before == NONE)
        bin->head = p->item[item].next;
    else
        p->item[before].next = p->item[item].next;
    if (bin->last == item)
        bin->last = before;
    bin->room += p->item[item].piece.length;
}

/* Moves the longest piece of a sequence for which another has room; if there is none, the end of its
 * longest. */
static bool give(Pack *p, int64_t from, int64_t to)
{
    const int64_t room = p->bin[to].room;
    int64_t before = NONE, item = p->bin[from].head;
    for (; item != NONE && p->item[item].piece.length > room; item = p->item[item].next)
        before = item;
    if (item != NONE) {
        bin_remove(p, from, before, item);
        bin_add(p, to, item);
        return true;
    }
    if (!grow((void **)&p->item, &p->item_room, p->items + 1, sizeof *p->item))
        return false;
    Piece *longest = &p->item[p->bin[from].head].piece;
    longest->length -= room;
    p->bin[from].room += room;
    p->item[p->items] = (Item){.piece = {longest->begin + longest->length, room}};
    bin_add(p, to, p->items++);
    return true;
}

static int more_room(const void *a, const void *b)
{
    const Bin *x = a, *y = b;
    const int64_t i = x->room != y->room ? x->room : x->next, j = x->room != y->room ? y->room : y->next;
    return (i > j) - (i < j);
}

/* Sorted by room, the first sequences take from the last, until all but one are full. */
static bool fill_gaps(Pack *p)
{
    for (int64_t b = 0; b < p->bins; b++)
        p->bin[b].next = b; /* equal room: the earlier sequence first */
    qsort(p->bin, (size_t)p->bins, sizeof *p->bin, more_room);
    for (int64_t to = 0, from = p->bins - 1; to < from;) {
        if (p->bin[to].room == 0) {
            to++;
            continue;
        }
        if (!give(p, from, to))
            return false;
        if (p->bin[from].head == NONE)
            p->bins = from--;
    }
    return true;
}

/* ---- the result ---- */

static bool list(Packed *out, const Pack *p)
{
    int64_t n = 0;
    out->first = malloc(((size_t)p->bins + 1) * sizeof *out->first);
    out->piece = malloc(((size_t)p->items + 1) * sizeof *out->piece);
    if (!out->first || !out->piece)
        return false;
    for (int64_t b = 0; b < p->bins; b++) {
        out->first[b] = n;
        for (int64_t i = p->bin[b].head; i != NONE; i = p->item[i].next)
            out->piece[n++] = p->item[i].piece;
    }
    out->first[p->bins] = n;
    out->sequences = p->bins;
    return true;
}

static int64_t *numbers(int64_t n)
{
    int64_t *at = malloc((size_t)n * sizeof *at);
    for (int64_t i = 0; at && i < n; i++)
        at[i] = NONE;
    return at;
}

bool packed_make(Packed *out, const int64_t *first, int64_t documents, int64_t sequence)
{
    Pack p = {.sequence = sequence, .open = numbers(sequence + 1)};
    int64_t *by_length = numbers(sequence + 1);
    bool made = p.open && by_length && rooms_make(&p.rooms, sequence);
    for (int64_t d = 0; made && d < documents; d++)
        made = cut(&p, first[d], first[d + 1]);
    made = made && place_all(&p, by_length) && fill_gaps(&p) && list(out, &p);
    for (int l = 0; l < p.rooms.levels; l++)
        free(p.rooms.level[l]);
    free(by_length);
    free(p.open);
    free(p.item);
    free(p.bin);
    return made;
}

void packed_free(Packed *p)
{
    free(p->first);
    free(p->piece);
    *p = (Packed){0};
}
