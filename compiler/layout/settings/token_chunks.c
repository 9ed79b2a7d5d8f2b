/* settings/token_chunks.c: `token chunks`: all operations on separate tokens over 1, 2, 4, ... chunks of
 * them. `attention` adds attention with a chunk of queries at a time, and `keys` with a chunk of keys
 * too. */
#include "layout/layout.h"

enum { MOST = 64, OTHERS = 4 };

static bool is_open(const Program *p)
{
    return p->layout.token_chunks.is_auto;
}

/* First ladder: without attention; second: with it. */
static int second_ladder(const Program *p)
{
    return is_open(p) && !p->layout.chunk_queries ? chunk_doublings(p, MOST) : 0;
}

static int count(const Program *p)
{
    const int chunked = chunk_doublings(p, MOST) - 1;
    if (!is_open(p))
        return 1;
    if (second_ladder(p))
        return second_ladder(p) + chunked + (chunked > 0);
    return chunked > 1 ? chunked : 1;
}

static bool moves_queries(const Choice *c)
{
    return choice_moves_queries(c, false) || choice_moves_queries(c, true);
}

static const char *chunked_word(const Choice *c) { return c->chunk_keys ? "keys" : "attention"; }

/* Why attention cannot run over chunks of queries; %1$s: chunked_word. A schedule runs once for each chunk,
 * so queries and their sums must not travel. */
static const char *queries_why_not(const Program *p, const Choice *c)
{
    if (c->chunk_keys && p->infer.lengths)
        return "`token chunks` with `keys` is not supported by this version of burstc in a program that "
               "infers; use `attention`";
    if (p->model.selects && c->chunk_keys)
        return "`token chunks` with `keys` cannot be combined with a selection, whose tiles choose among all "
               "keys of a rank; use `attention`";
    if (choice_by_heads(c, false) != choice_by_heads(c, true))
        return "`token chunks` with `%1$s` requires that both directions of the schedule exchange heads or "
               "neither does; use a schedule such as usp or ring, or remove `%1$s`";
    if (moves_queries(c))
        return "`token chunks` with `%1$s` requires a schedule that passes only KV; use `travel keys` and a "
               "schedule such as ring, or remove `%1$s`";
    if (c->chunk_keys && choice_pieces(c) > 1)
        return "`token chunks` with `keys` cannot be combined with a schedule that has `pieces`; use a "
               "schedule such as ring, or `token chunks` with `attention`";
    if (c->head_chunks > 1)
        return "`token chunks` with `%1$s` cannot be combined with `head chunks`; use `head chunks 1` or "
               "remove `%1$s`";
    return saving_why_no_chunks(c, false);
}

/* Whether each rank's chunks of queries are whole tiles of so many. */
static bool has_whole_tiles(const Partition *part, int chunks, int64_t tile)
{
    bool whole = true;
    for (int r = 0; r < part->ranks; r++)
        for (int i = 1; i < chunks; i++)
            whole &= part->of[r].tokens * i / chunks % tile == 0;
    return whole;
}

/* A chunk chooses alone: its tiles are whole, and none is scored by another chunk's queries. */
static const char *selection_why_not(Arena *a, const Program *p, const Choice *c)
{
    const int64_t unit = selection_unit(p);
    for (int i = 0; i < p->selection_count; i++)
        if (p->selections[i].query_rows > 1)
            return arena_printf(
                a,
                "`token chunks` with `attention` cannot be combined with selection '%s', whose "
                "`previous mean Q` may be of another chunk's queries; use `first Q` or remove "
                "`attention`",
                p->selections[i].text);
    const Partition *part = partition_shared(a, c->partition, c->block, p->sequence, c->ranks, c->share);
    if (has_whole_tiles(part, chunk_count(part->max_tokens, c->token_chunks), unit))
        return NULL;
    return arena_printf(
        a,
        "`token chunks %d, attention` cuts the tiles of %lld tokens of a selection; use a number "
        "of chunks that divides the tiles of each rank, or remove `attention`",
        c->token_chunks, (long long)unit);
}

static const char *why_not(Arena *a, const Program *p, const Choice *c)
{
    const char *why = choice_chunks_queries(c) ? queries_why_not(p, c) : NULL;
    if (!why && choice_chunks_queries(c) && p->model.selects)
        return selection_why_not(a, p, c);
    return why ? arena_printf(a, why, chunked_word(c)) : NULL;
}

static bool works(const Program *p, const Choice *c)
{
    Arena *scratch = arena_new();
    const bool works = !why_not(scratch, p, c);
    arena_free(scratch);
    return works;
}

/* One chunk; then at least as many as the feed-forward network alone has, so that each value needs less
 * memory than those before; then with attention; last, the most chunks with keys in host memory. */
static bool take(const Program *p, Choice *c, int n)
{
    const int other_from = second_ladder(p);
    const bool keys = other_from && n >= other_from && n == count(p) - 1 && !p->infer.lengths;
    n -= keys; /* as many chunks as the last value without keys */
    const int doubled = p->layout.chunk_queries || n >= other_from ? n - other_from + 1 : n;
    const int first = c->ffn_chunks > 1 ? c->ffn_chunks : 2, chunks = doubled ? first << (doubled - 1) : 1;
    c->token_chunks = chunks < MOST ? chunks : MOST;
    if (!is_open(p))
        c->token_chunks = (int)p->layout.token_chunks.value;
    c->chunk_queries = p->layout.chunk_queries || (other_from && n >= other_from);
    c->chunk_keys = p->layout.chunk_keys || keys;
    c->ffn_chunks = c->token_chunks > 1 ? 1 : c->ffn_chunks;
    return (p->layout.chunk_queries && !is_open(p)) || works(p, c);
}

/* Without attention, then with it, then with keys. */
static bool other(const Program *p, Choice *c, int n)
{
    const int chunked = OTHERS - 1, more = n - OTHERS;
    c->chunk_queries = more >= 0;
    c->chunk_keys = more >= chunked;
    c->token_chunks = 1 << (more < 0 ? n : more % chunked + 1);
    c->ffn_chunks = n ? 1 : c->ffn_chunks;
    return c->chunk_queries ? more < 2 * chunked && works(p, c) : true;
}

static const char *text(Arena *a, const Choice *c)
{
    return c->token_chunks > 1
               ? arena_printf(a, "%d%s", c->token_chunks,
                              c->chunk_queries ? arena_printf(a, ", %s", chunked_word(c)) : "")
               : NULL;
}

static const char *idle(Arena *a, const Program *p, const Choice *c)
{
    return p->layout.chunk_queries && c->token_chunks == 1
               ? arena_printf(a, "one chunk holds all tokens; use `token chunks 2, %s` or remove it",
                              p->layout.chunk_keys ? "keys" : "attention")
               : NULL;
}

/* `fetch chunks` requires chunks of queries. */
static bool leave_open(Layout *l)
{
    const bool queries = l->chunk_queries && !l->fetch.is_auto && l->fetch.value,
               given = !l->token_chunks.is_auto || l->chunk_queries != queries || l->chunk_keys;
    l->token_chunks = (Setting){.value = 1, .is_auto = true};
    l->chunk_queries = queries;
    l->chunk_keys = false;
    return given;
}

const SettingRecord setting_token_chunks = {
    .form = &(const SettingForm){.name = "token chunks", .at = offsetof(Layout, token_chunks)},
    .column = 13,
    .if_several = true,
    .escalates = true,
    .spares = true,
    .second_ladder = second_ladder,
    .second_needs_less = true,
    .count = count,
    .take = take,
    .other = other,
    .leave_open = leave_open,
    .why_not = why_not,
    .text = text,
    .idle = {{offsetof(Layout, token_chunks), idle}},
};
