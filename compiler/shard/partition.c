/* partition.c: which rank of a group has which tokens of a sequence.
 *
 * Every partition gives a rank a few affine pieces, whatever the sequence: contiguous and striped one,
 * zigzag two, blocks two (the last block may be short). The same closed forms are emitted as C for the
 * program.
 *
 * Ranks of different speed have shares. Equal cuts become cuts in proportion to them, and striped deals each
 * rank as many tokens in turn as its share. The block size is rounded up to a multiple of all shares, so
 * that each rank has its share of every block; only the end of the sequence is cut with a remainder. */
#include "burst_int.h"
#include "shard/shard.h"

#include <inttypes.h>
#include <limits.h>

/* The begin of part i if n tokens are cut into parts that differ by at most one. */
static int64_t cut(int64_t n, int64_t i, int64_t parts)
{
    return n / parts * i + n % parts * i / parts;
}

/* The sum of the shares of the ranks before this one; rank `ranks` gives the sum of all. */
static int64_t shares_before(const Partition *p, int rank)
{
    return p->before ? p->before[rank] : rank;
}

/* The block size rounded up to a multiple of the sum of all shares. Striped with shares uses blocks of that
 * sum. */
static int64_t block_of(const Partition *p)
{
    const int64_t shares = shares_before(p, p->ranks);
    if (p->kind == PART_BALANCED)
        return p->block * shares;
    return p->kind == PART_BLOCKS ? (p->block + shares - 1) / shares * shares : shares;
}

static void add_blocks(PosSet *s, Piece *pieces, int64_t block, int64_t n, int64_t first, int64_t end,
                       int64_t shares)
{
    const int64_t lo = cut(block, first, shares), hi = cut(block, end, shares), rest = n % block,
                  tail = n - rest;
    pos_add_piece(s, pieces, (Piece){.start = lo, .run = hi - lo, .stride = block, .count = n / block});
    pos_add_run(s, pieces, tail + cut(rest, first, shares), tail + cut(rest, end, shares));
}

static PosSet rank_set(Arena *a, const Partition *p, int rank)
{
    PosSet s = {0};
    Piece *pieces = NEW_ARRAY(a, Piece, 2);
    const int64_t n = p->sequence, shares = shares_before(p, p->ranks), parts = 2 * shares;
    const int64_t first = shares_before(p, rank), end = shares_before(p, rank + 1);
    if (p->kind == PART_ZIGZAG) {
        pos_add_run(&s, pieces, cut(n, first, parts), cut(n, end, parts));
        pos_add_run(&s, pieces, cut(n, parts - end, parts), cut(n, parts - first, parts));
    } else if (p->kind == PART_STRIPED && !p->before) {
        pos_add_piece(&s, pieces,
                      (Piece){.start = rank,
                              .run = 1,
                              .stride = p->ranks,
                              .count = (n - rank + p->ranks - 1) / p->ranks});
    } else if (p->kind != PART_CONTIGUOUS) {
        add_blocks(&s, pieces, block_of(p), n, first, end, shares);
    } else {
        pos_add_run(&s, pieces, cut(n, first, shares), cut(n, end, shares));
    }
    s.pieces = pieces;
    return s;
}

static const int64_t *sum_shares(Arena *a, const int *share, int ranks)
{
    int64_t *before = share ? NEW_ARRAY(a, int64_t, ranks + 1) : NULL;
    for (int r = 0; share && r < ranks; r++)
        before[r + 1] = before[r] + share[r];
    return before;
}

const Partition *partition_shared(Arena *a, PartitionKind kind, int64_t block, int64_t sequence, int ranks,
                                  const int *share)
{
    Partition *p = NEW(a, Partition);
    *p = (Partition){.kind = kind,
                     .block = block > 0 ? block : 1,
                     .ranks = ranks,
                     .sequence = sequence,
                     .before = sum_shares(a, share, ranks)};
    PosSet *of = NEW_ARRAY(a, PosSet, ranks);
    for (int r = 0; r < ranks; r++) {
        of[r] = rank_set(a, p, r);
        if (of[r].tokens > p->max_tokens)
            p->max_tokens = of[r].tokens;
    }
    p->of = of;
    return p;
}

int64_t selection_unit(const Program *p)
{
    int64_t unit = 1;
    for (int i = 0; i < p->selection_count; i++) {
        const int64_t of[] = {p->selections[i].queries, p->selections[i].block};
        for (int j = 0; j < countof(of); j++) {
            int64_t more = unit;
            while (more % of[j])
                more += unit;
            unit = more;
        }
    }
    return unit;
}

bool partition_has_whole(const Partition *p, int64_t unit)
{
    bool whole = true;
    for (int r = 0; r < p->ranks; r++)
        for (int i = 0; i < p->of[r].npieces; i++) {
            const Piece *x = &p->of[r].pieces[i];
            const bool last = x->count == 1 && x->start + x->run == p->sequence;
            whole &= x->start % unit == 0 && (last || x->run % unit == 0) &&
                     (x->count == 1 || x->stride % unit == 0);
        }
    return whole;
}

const Partition *partition_make(Arena *a, PartitionKind kind, int64_t block, int64_t sequence, int ranks)
{
    return partition_shared(a, kind, block, sequence, ranks, NULL);
}

/* A piece whose runs follow each other is one run. */
static int64_t runs_of(const Piece *p) { return p->run == p->stride ? 1 : p->count; }

int partition_most_runs(const Partition *p)
{
    int64_t most = 0;
    for (int r = 0; r < p->ranks; r++) {
        int64_t runs = 0, end = -1;
        for (const Piece *x = p->of[r].pieces; x < p->of[r].pieces + p->of[r].npieces; x++) {
            runs += runs_of(x) - (x->start == end);
            end = x->start + (x->count - 1) * x->stride + x->run;
        }
        most = runs > most ? runs : most;
    }
    return (int)burst_min(most, INT_MAX);
}

int64_t partition_least_run(const Partition *p)
{
    int64_t least = p->sequence;
    for (int r = 0; r < p->ranks; r++)
        for (const Piece *x = p->of[r].pieces; x < p->of[r].pieces + p->of[r].npieces; x++)
            least = burst_min(least, x->run);
    return least;
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
        text_printf(out, "(%" PRId64 ")", block_of(p)); /* as dealt out, not as given */
    if (p->kind == PART_BALANCED)
        text_printf(out, "(%" PRId64 ")", p->block);
    if (p->before)
        text_printf(out, "\nshares %" PRId64, shares_before(p, p->ranks));
    text_printf(out, "\nranks %d\nsequence %" PRId64 "\nmax_tokens %" PRId64 "\n", p->ranks, p->sequence,
                p->max_tokens);
    for (int r = 0; r < p->ranks; r++)
        print_rank(&p->of[r], r, out);
}

/* ---- the same as C: one text per kind, with marks for what differs between plans ---- */
static const char cut_text[] =
    "/* Where part i begins when n tokens are cut into parts that differ by at most one. */\n"
    "static inline int64_t plan_cut(int64_t n, int64_t i, int64_t parts)\n"
    "{\n"
    "    return n / parts * i + n % parts * i / parts;\n"
    "}\n\n";
#define TOKENS "static __attribute__((unused)) int64_t plan_tokens(int chunk)\n{\n"
#define POSITION "static __attribute__((unused)) int64_t plan_position(int chunk, int64_t i)\n{\n"

/* Marks of the texts, for equal chunks and for chunks with shares. Numbers: $N tokens, $G chunks, $P parts
 * (chunks, or all shares), $B block. */
static const struct Mark { char mark; const char *equal, *shared; } marks[] = {
    {'p', "chunks", "shares"},
    {'c', "chunk", "plan_shares(chunk)"},
    {'e', "chunk + 1", "plan_shares(chunk + 1)"},
    {'m', "parts - 1 - chunk", "parts - plan_shares(chunk + 1)"},
    {'n', "mirror + 1", "parts - plan_shares(chunk)"},
};

typedef struct KindText { const char *comment; bool cuts; const char *code; } KindText;
static const KindText kind_text[PART_KINDS] = {
    [PART_CONTIGUOUS] = {"chunk c holds one run of consecutive tokens", true,
                         TOKENS "    const int64_t tokens = $N, $p = $P;\n"
                                "    return plan_cut(tokens, $e, $p) - plan_cut(tokens, $c, $p);\n"
                                "}\n\n" POSITION "    const int64_t tokens = $N, $p = $P;\n"
                                "    return plan_cut(tokens, $c, $p) + i;\n"
                                "}\n\n"},
    [PART_ZIGZAG] = {"twice as many runs as chunks; chunk c holds run c, then the run as far from the end",
                     true,
                     TOKENS "    const int64_t tokens = $N, $p = $P;\n"
                            "    const int64_t parts = 2 * $p, mirror = $m;\n"
                            "    return plan_cut(tokens, $e, parts) - plan_cut(tokens, $c, parts) +\n"
                            "           plan_cut(tokens, $n, parts) - plan_cut(tokens, mirror, parts);\n"
                            "}\n\n" POSITION "    const int64_t tokens = $N, $p = $P;\n"
                            "    const int64_t parts = 2 * $p;\n"
                            "    const int64_t begin = plan_cut(tokens, $c, parts), first = plan_cut(tokens, "
                            "$e, parts) - begin;\n"
                            "    return i < first ? begin + i : plan_cut(tokens, $m, parts) + i - first;\n"
                            "}\n\n"},
    [PART_STRIPED] = {"tokens are dealt one by one: chunk c holds c, c + $G and so on", false,
                      TOKENS "    const int64_t tokens = $N, chunks = $G;\n"
                             "    return (tokens - chunk + chunks - 1) / chunks;\n"
                             "}\n\n" POSITION "    const int64_t chunks = $G;\n"
                             "    return chunk + i * chunks;\n"
                             "}\n\n"},
    [PART_BLOCKS] =
        {"of every $B consecutive tokens chunk c holds the c-th part; the last block may be short", true,
         TOKENS "    const int64_t tokens = $N, $p = $P, block = $B;\n"
                "    const int64_t rest = tokens % block;\n"
                "    const int64_t run = plan_cut(block, $e, $p) - plan_cut(block, $c, $p);\n"
                "    return tokens / block * run + plan_cut(rest, $e, $p) - plan_cut(rest, $c, $p);\n"
                "}\n\n" POSITION "    const int64_t tokens = $N, $p = $P, block = $B;\n"
                "    const int64_t blocks = tokens / block, rest = tokens % block;\n"
                "    const int64_t begin = plan_cut(block, $c, $p), run = plan_cut(block, $e, $p) - begin;\n"
                "    if (i < blocks * run)\n"
                "        return i / run * block + begin + i % run;\n"
                "    return blocks * block + plan_cut(rest, $c, $p) + i - blocks * run;\n"
                "}\n\n"},
};

static int64_t marked_number(const Partition *p, char mark)
{
    switch (mark) {
    case 'N': return p->sequence;
    case 'G': return p->ranks;
    case 'P': return shares_before(p, p->ranks);
    default: return block_of(p);
    }
}

static void put_mark(const Partition *p, char mark, bool comment, const char *sequence, Text *out)
{
    for (int i = 0; i < countof(marks); i++)
        if (marks[i].mark == mark) {
            text_add(out, p->before ? marks[i].shared : marks[i].equal);
            return;
        }
    if (mark == 'N' && sequence)
        text_add(out, sequence);
    else
        text_printf(out, comment ? "%" PRId64 : "INT64_C(%" PRId64 ")", marked_number(p, mark));
}

static void put_filled(const Partition *p, const char *text, bool comment, const char *sequence, Text *out)
{
    for (const char *s = text; *s; s++)
        if (s[0] == '$')
            put_mark(p, *++s, comment, sequence, out);
        else
            text_add_n(out, s, 1);
}

/* Consecutive chunks with equal shares are one run, so the text grows only with the kinds of ranks. */
static void emit_shares(const Partition *p, Text *out)
{
    Text first = {0}, share = {0};
    int runs = 0;
    for (int r = 0; r < p->ranks; r++) {
        const int64_t mine = p->before[r + 1] - p->before[r];
        if (r && mine == p->before[r] - p->before[r - 1])
            continue;
        text_printf(&first, "%d, ", r);
        text_printf(&share, runs++ ? ", %" PRId64 : "%" PRId64, mine);
    }
    text_printf(out,
                "/* Shares of the chunks before this one; chunk first[i] and those up to the next of them "
                "have share[i] each. */\n"
                "static int64_t plan_shares(int chunk)\n{\n"
                "    static const int first[] = {%s%d}, share[] = {%s};\n",
                first.at, p->ranks, share.at);
    text_printf(
        out,
        "    int64_t before = 0;\n"
        "    for (int i = 0; i < %d && chunk > first[i]; i++)\n"
        "        before += (int64_t)share[i] * ((chunk < first[i + 1] ? chunk : first[i + 1]) - first[i]);\n"
        "    return before;\n}\n\n",
        runs);
    text_free(&first);
    text_free(&share);
}

void partition_emit_c(const Partition *p, const char *sequence, Text *out)
{
    const bool deals = p->kind == PART_BALANCED || (p->kind == PART_STRIPED && p->before);
    const KindText *k = &kind_text[deals ? PART_BLOCKS : p->kind];
    text_printf(out, "/* partition %s of %" PRId64 " tokens over %d chunk%s: ", partition_names[p->kind],
                p->sequence, p->ranks, plural(p->ranks));
    put_filled(p, k->comment, true, NULL, out);
    text_add(out, p->before ? ", in proportion to shares" : "");
    text_add(out, p->kind == PART_BALANCED ? ", before the first batch; each batch deals its runs anew. */\n"
                                           : ". */\n");
    if (k->cuts)
        text_add(out, cut_text);
    if (p->before)
        emit_shares(p, out);
    put_filled(p, k->code, false, sequence, out);
}
