/* partition.c: which token lives on which rank of the group that shares a sequence.
 *
 * Every partition is a few affine pieces a rank, whatever the sequence: contiguous and striped one, zigzag two, blocks
 * two (the last block may be short). The same closed forms are emitted as C for the program.
 */
#include "burst.h"

#include <inttypes.h>

const char *const partition_names[PART_KINDS] = {
    [PART_CONTIGUOUS] = "contiguous",
    [PART_ZIGZAG] = "zigzag",
    [PART_STRIPED] = "striped",
    [PART_BLOCKS] = "blocks",
};

/* The begin of part i when n tokens are cut in parts that differ by at most one. */
static int64_t cut(int64_t n, int64_t i, int64_t parts)
{
    return n / parts * i + n % parts * i / parts;
}

static int64_t piece_tokens(const Piece *p)
{
    return p->run * p->count;
}

static int64_t piece_at(const Piece *p, int64_t i)
{
    return p->count == 1 ? p->start + i : p->start + i / p->run * p->stride + i % p->run;
}

/* Leaves out empty pieces; writes contiguous ones as one run, and joins them to the one before where they touch. */
static void add_piece(PosSet *s, Piece *pieces, Piece p)
{
    if (p.run <= 0 || p.count <= 0)
        return;
    if (p.run == p.stride || p.count == 1)
        p.run = p.stride = piece_tokens(&p), p.count = 1;
    s->tokens += piece_tokens(&p);
    Piece *last = s->npieces ? &pieces[s->npieces - 1] : NULL;
    if (last && last->count == 1 && p.count == 1 && last->start + last->run == p.start)
        last->run = last->stride = last->run + p.run;
    else
        pieces[s->npieces++] = p;
}

static void add_run(PosSet *s, Piece *pieces, int64_t begin, int64_t end)
{
    add_piece(s, pieces, (Piece){.start = begin, .run = end - begin, .stride = end - begin, .count = 1});
}

static void add_blocks(PosSet *s, Piece *pieces, int64_t block, int64_t n, int rank, int ranks)
{
    const int64_t lo = cut(block, rank, ranks), hi = cut(block, rank + 1, ranks), rest = n % block, tail = n - rest;
    add_piece(s, pieces, (Piece){.start = lo, .run = hi - lo, .stride = block, .count = n / block});
    add_run(s, pieces, tail + cut(rest, rank, ranks), tail + cut(rest, rank + 1, ranks));
}

static PosSet rank_set(Arena *a, const Partition *p, int rank)
{
    PosSet s = {0};
    Piece *pieces = NEW_ARRAY(a, Piece, 2);
    const int64_t n = p->sequence, parts = 2 * (int64_t)p->ranks;
    switch (p->kind) {
    case PART_ZIGZAG:
        add_run(&s, pieces, cut(n, rank, parts), cut(n, rank + 1, parts));
        add_run(&s, pieces, cut(n, parts - 1 - rank, parts), cut(n, parts - rank, parts));
        break;
    case PART_STRIPED:
        add_piece(&s, pieces, (Piece){.start = rank, .run = 1, .stride = p->ranks, .count = (n - rank + p->ranks - 1) / p->ranks});
        break;
    case PART_BLOCKS:
        add_blocks(&s, pieces, p->block, n, rank, p->ranks);
        break;
    default:
        add_run(&s, pieces, cut(n, rank, p->ranks), cut(n, rank + 1, p->ranks));
    }
    s.pieces = pieces;
    return s;
}

const Partition *partition_make(Arena *a, PartitionKind kind, int64_t block, int64_t sequence, int ranks)
{
    Partition *p = NEW(a, Partition);
    *p = (Partition){.kind = kind, .block = block > 0 ? block : 1, .ranks = ranks, .sequence = sequence};
    PosSet *of = NEW_ARRAY(a, PosSet, ranks);
    for (int r = 0; r < ranks; r++) {
        of[r] = rank_set(a, p, r);
        if (of[r].tokens > p->max_tokens)
            p->max_tokens = of[r].tokens;
    }
    p->of = of;
    return p;
}

PosSet pos_run(Piece *p, int64_t begin, int64_t end)
{
    *p = (Piece){.start = begin, .run = end - begin, .stride = end - begin, .count = 1};
    return (PosSet){.tokens = end - begin, .npieces = 1, .pieces = p};
}

/* Of a piece: whole runs before x, and what lies before x of the run that x is in. */
int64_t pos_before(const PosSet *s, int64_t x)
{
    int64_t n = 0;
    for (const Piece *p = s->pieces; p < s->pieces + s->npieces; p++) {
        const int64_t at = x - p->start, runs = at <= 0 ? 0 : at / p->stride;
        const int64_t rest = at <= 0 ? 0 : at - runs * p->stride;
        n += runs >= p->count ? piece_tokens(p) : runs * p->run + (rest < p->run ? rest : p->run);
    }
    return n;
}

int64_t pos_at(const PosSet *s, int64_t i)
{
    const Piece *p = s->pieces;
    for (; i >= piece_tokens(p); p++)
        i -= piece_tokens(p);
    return piece_at(p, i);
}

/* Within a piece positions rise with the local index (run <= stride), so its ends are its extremes. */
void pos_hull(const PosSet *s, int64_t first, int64_t count, int64_t *lo, int64_t *hi_last)
{
    int64_t begin = 0;
    *lo = INT64_MAX, *hi_last = INT64_MIN;
    for (const Piece *p = s->pieces; p < s->pieces + s->npieces && begin < first + count; p++) {
        const int64_t n = piece_tokens(p), from = first > begin ? first - begin : 0;
        const int64_t to = first + count - begin < n ? first + count - begin : n;
        begin += n;
        if (from >= to)
            continue;
        const int64_t least = piece_at(p, from), most = piece_at(p, to - 1);
        *lo = least < *lo ? least : *lo;
        *hi_last = most > *hi_last ? most : *hi_last;
    }
}

static void print_rank(const PosSet *s, int rank, Text *out)
{
    text_printf(out, "rank %d tokens %" PRId64, rank, s->tokens);
    for (int i = 0; i < s->npieces; i++) {
        const Piece *p = &s->pieces[i];
        text_printf(out, " [start %" PRId64 " run %" PRId64, p->start, p->run);
        if (p->count > 1)
            text_printf(out, " stride %" PRId64 " count %" PRId64, p->stride, p->count);
        text_add(out, "]");
    }
    text_add(out, "\n");
}

void print_partition(const Partition *p, Text *out)
{
    text_add(out, "burst-partition 1\n");
    text_printf(out, "kind %s", partition_names[p->kind]);
    if (p->kind == PART_BLOCKS)
        text_printf(out, "(%" PRId64 ")", p->block);
    text_printf(out, "\nranks %d\nsequence %" PRId64 "\nmax_tokens %" PRId64 "\n", p->ranks, p->sequence, p->max_tokens);
    for (int r = 0; r < p->ranks; r++)
        print_rank(&p->of[r], r, out);
}

/* ---- the same as C: one text a kind; $N, $G and $B stand for the tokens, chunks and block of this plan ---- */
static const char cut_text[] =
    "/* The begin of part i when n tokens are cut in parts that differ by at most one. */\n"
    "static inline int64_t plan_cut(int64_t n, int64_t i, int64_t parts)\n"
    "{\n"
    "    return n / parts * i + n % parts * i / parts;\n"
    "}\n\n";
#define TOKENS "static __attribute__((unused)) int64_t plan_tokens(int chunk)\n{\n"
#define POSITION "static __attribute__((unused)) int64_t plan_position(int chunk, int64_t i)\n{\n"

static const struct KindText { const char *comment; bool cuts; const char *code; } kind_text[PART_KINDS] = {
    [PART_CONTIGUOUS] = {
        "chunk c holds one run of consecutive tokens", true,
        TOKENS
        "    const int64_t tokens = $N, chunks = $G;\n"
        "    return plan_cut(tokens, chunk + 1, chunks) - plan_cut(tokens, chunk, chunks);\n"
        "}\n\n"
        POSITION
        "    const int64_t tokens = $N, chunks = $G;\n"
        "    return plan_cut(tokens, chunk, chunks) + i;\n"
        "}\n\n"},
    [PART_ZIGZAG] = {
        "twice as many runs as chunks; chunk c holds run c, then the run as far from the end", true,
        TOKENS
        "    const int64_t tokens = $N, chunks = $G;\n"
        "    const int64_t parts = 2 * chunks, mirror = parts - 1 - chunk;\n"
        "    return plan_cut(tokens, chunk + 1, parts) - plan_cut(tokens, chunk, parts) +\n"
        "           plan_cut(tokens, mirror + 1, parts) - plan_cut(tokens, mirror, parts);\n"
        "}\n\n"
        POSITION
        "    const int64_t tokens = $N, chunks = $G;\n"
        "    const int64_t parts = 2 * chunks;\n"
        "    const int64_t begin = plan_cut(tokens, chunk, parts), first = plan_cut(tokens, chunk + 1, parts) - begin;\n"
        "    return i < first ? begin + i : plan_cut(tokens, parts - 1 - chunk, parts) + i - first;\n"
        "}\n\n"},
    [PART_STRIPED] = {
        "tokens are dealt one by one: chunk c holds c, c + $G and so on", false,
        TOKENS
        "    const int64_t tokens = $N, chunks = $G;\n"
        "    return (tokens - chunk + chunks - 1) / chunks;\n"
        "}\n\n"
        POSITION
        "    const int64_t chunks = $G;\n"
        "    return chunk + i * chunks;\n"
        "}\n\n"},
    [PART_BLOCKS] = {
        "of every $B consecutive tokens chunk c holds the c-th part; the last block may be short", true,
        TOKENS
        "    const int64_t tokens = $N, chunks = $G, block = $B;\n"
        "    const int64_t rest = tokens % block;\n"
        "    const int64_t run = plan_cut(block, chunk + 1, chunks) - plan_cut(block, chunk, chunks);\n"
        "    return tokens / block * run + plan_cut(rest, chunk + 1, chunks) - plan_cut(rest, chunk, chunks);\n"
        "}\n\n"
        POSITION
        "    const int64_t tokens = $N, chunks = $G, block = $B;\n"
        "    const int64_t blocks = tokens / block, rest = tokens % block;\n"
        "    const int64_t begin = plan_cut(block, chunk, chunks), run = plan_cut(block, chunk + 1, chunks) - begin;\n"
        "    if (i < blocks * run)\n"
        "        return i / run * block + begin + i % run;\n"
        "    return blocks * block + plan_cut(rest, chunk, chunks) + i - blocks * run;\n"
        "}\n\n"},
};

static void put_filled(const Partition *p, const char *text, bool comment, Text *out)
{
    for (const char *s = text; *s; s++) {
        const int64_t v = s[0] != '$' ? 0 : s[1] == 'N' ? p->sequence : s[1] == 'G' ? p->ranks : p->block;
        if (s[0] != '$') {
            text_add_n(out, s, 1);
            continue;
        }
        text_printf(out, comment ? "%" PRId64 : "INT64_C(%" PRId64 ")", v);
        s++;
    }
}

void partition_emit_c(const Partition *p, Text *out)
{
    const struct KindText *k = &kind_text[p->kind];
    text_printf(out, "/* partition %s of %" PRId64 " tokens over %d chunks: ", partition_names[p->kind], p->sequence, p->ranks);
    put_filled(p, k->comment, true, out);
    text_add(out, ". */\n");
    if (k->cuts)
        text_add(out, cut_text);
    put_filled(p, k->code, false, out);
}
