/* ir/positions.c: sets of positions as a few affine pieces. */
#include "ir/positions.h"
#include "ir/layout.h"

#include "burst_int.h"

const char *const partition_names[PART_KINDS] = {
    [PART_CONTIGUOUS] = "contiguous",
    [PART_ZIGZAG] = "zigzag",
    [PART_STRIPED] = "striped",
    [PART_BLOCKS] = "blocks",
    [PART_BALANCED] = "balanced",
};

int64_t pos_piece_tokens(const Piece *p)
{
    return p->run * p->count;
}

static int64_t piece_at(const Piece *p, int64_t i)
{
    return p->count == 1 ? p->start + i : p->start + i / p->run * p->stride + i % p->run;
}

/* Skips empty pieces; writes contiguous ones as one run, and joins them to the previous one if they
 * touch. */
void pos_add_piece(PosSet *s, Piece *pieces, Piece p)
{
    if (p.run <= 0 || p.count <= 0)
        return;
    if (p.run == p.stride || p.count == 1)
        p.run = p.stride = pos_piece_tokens(&p), p.count = 1;
    s->tokens += pos_piece_tokens(&p);
    Piece *last = s->npieces ? &pieces[s->npieces - 1] : NULL;
    if (last && last->count == 1 && p.count == 1 && last->start + last->run == p.start)
        last->run = last->stride = last->run + p.run;
    else
        pieces[s->npieces++] = p;
}

void pos_add_run(PosSet *s, Piece *pieces, int64_t begin, int64_t end)
{
    pos_add_piece(s, pieces, (Piece){.start = begin, .run = end - begin, .stride = end - begin, .count = 1});
}

PosSet pos_first(Arena *a, const PosSet *s, int64_t tokens)
{
    PosSet first = {0};
    Piece *pieces = NEW_ARRAY(a, Piece, s->npieces + 1);
    for (const Piece *p = s->pieces; p < s->pieces + s->npieces && first.tokens < tokens; p++) {
        const int64_t left = tokens - first.tokens,
                      n = left < pos_piece_tokens(p) ? left : pos_piece_tokens(p), runs = n / p->run;
        pos_add_piece(&first, pieces,
                      (Piece){.start = p->start, .run = p->run, .stride = p->stride, .count = runs});
        pos_add_run(&first, pieces, p->start + runs * p->stride, p->start + runs * p->stride + n % p->run);
    }
    first.pieces = pieces;
    return first;
}

PosSet pos_run(Piece *p, int64_t begin, int64_t end)
{
    *p = (Piece){.start = begin, .run = end - begin, .stride = end - begin, .count = 1};
    return (PosSet){.tokens = end - begin, .npieces = 1, .pieces = p};
}

/* Tokens of a piece before x: whole runs, and the part before x of the run that contains x. */
int64_t pos_before(const PosSet *s, int64_t x)
{
    int64_t n = 0;
    for (const Piece *p = s->pieces; p < s->pieces + s->npieces; p++) {
        const int64_t at = x - p->start, runs = at <= 0 ? 0 : at / p->stride;
        const int64_t rest = at <= 0 ? 0 : at - runs * p->stride;
        n += runs >= p->count ? pos_piece_tokens(p) : runs * p->run + burst_min(rest, p->run);
    }
    return n;
}

int64_t pos_cut(int64_t tokens, int i, int shares)
{
    return tokens * i / shares;
}

/* Tokens begin .. end of a piece, counted in it: the rest of the first run, whole runs, the begin of the
 * last. */
static void add_share(PosSet *s, Piece *pieces, const Piece *p, int64_t begin, int64_t end)
{
    while (begin < end) {
        const int64_t inside = p->count == 1 ? begin : begin % p->run, left = end - begin;
        const int64_t run = burst_min(left, p->run - inside);
        const int64_t count = run == p->run && p->count > 1 ? left / p->run : 1;
        pos_add_piece(s, pieces,
                      (Piece){.start = piece_at(p, begin),
                              .run = run,
                              .stride = count > 1 ? p->stride : run,
                              .count = count});
        begin += run * count;
    }
}

PosSet pos_share(Arena *a, const PosSet *s, int i, int shares)
{
    const int64_t begin = pos_cut(s->tokens, i, shares), end = pos_cut(s->tokens, i + 1, shares);
    Piece *pieces = NEW_ARRAY(a, Piece, 3 * s->npieces + 1);
    PosSet part = {.pieces = pieces};
    int64_t at = 0;
    for (const Piece *p = s->pieces; p < s->pieces + s->npieces; at += pos_piece_tokens(p), p++) {
        const int64_t n = pos_piece_tokens(p), from = begin > at ? begin - at : 0,
                      to = end - at < n ? end - at : n;
        add_share(&part, pieces, p, from, to);
    }
    return part;
}
