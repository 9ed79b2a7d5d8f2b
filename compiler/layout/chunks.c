/* layout/chunks.c: the rows `ffn chunks` and `token chunks` of layout/table.c: 1, 2, 4, ... of at least so
 * many tokens. Chunks of the tokens cut the feed-forward network too, which then has none of its own. The
 * row `loss tile`: tokens whose logits are there at once.
 */
#include "layout/layout.h"

enum {
    LEAST_CHUNK = 1024,
    MOST_FFN_CHUNKS = 8,
    MOST_TOKEN_CHUNKS = 64,
    OTHER_TOKEN_CHUNKS = 4,
    LOSS_HALVINGS = 3
};

/* How many of 1, 2, 4, ... most. */
static int doublings(const Program *p, int most)
{
    /* of the rank that has least */
    const int64_t tokens = p->sequence / (p->cluster.world / program_tensor(p));
    int n = 1;
    while (1 << n <= most && tokens >> n >= LEAST_CHUNK)
        n++;
    return n;
}

bool ffn_chunks_open(const Program *p)
{
    return p->layout.ffn_chunks.is_auto && p->layout.token_chunks.value < 2;
}

int ffn_chunks_count(const Program *p)
{
    return ffn_chunks_open(p) ? doublings(p, MOST_FFN_CHUNKS) : 1;
}

bool ffn_chunks_take(const Program *p, Choice *c, int n)
{
    c->ffn_chunks = ffn_chunks_open(p)             ? 1 << n
                    : p->layout.ffn_chunks.is_auto ? 1
                                                   : (int)p->layout.ffn_chunks.value;
    return true;
}

bool ffn_chunks_other(const Program *p, Choice *c, int n)
{
    (void)p;
    c->ffn_chunks = 1 << n;
    return c->ffn_chunks <= MOST_FFN_CHUNKS && c->token_chunks < 2;
}

const char *ffn_chunks_text(Arena *a, const Choice *c)
{
    return c->ffn_chunks > 1 ? arena_printf(a, "%d", c->ffn_chunks) : NULL;
}

bool token_chunks_open(const Program *p)
{
    return p->layout.token_chunks.is_auto;
}

/* Without attention; behind these, with it. */
int token_chunks_other_way(const Program *p)
{
    return token_chunks_open(p) && !p->layout.chunk_queries ? doublings(p, MOST_TOKEN_CHUNKS) : 0;
}

int token_chunks_count(const Program *p)
{
    const int chunked = doublings(p, MOST_TOKEN_CHUNKS) - 1;
    return !token_chunks_open(p)       ? 1
           : token_chunks_other_way(p) ? token_chunks_other_way(p) + chunked + (chunked > 0)
           : chunked > 1               ? chunked
                                       : 1;
}

static bool moves_queries(const Choice *c)
{
    return choice_moves_queries(c, false) || choice_moves_queries(c, true);
}

static const char *chunked_word(const Choice *c) { return c->chunk_keys ? "keys" : "attention"; }

/* Why attention can't go through chunks of queries, with chunked_word where %1$s stands: a schedule runs
 * once for each, so queries and what is summed for them stay at home. */
static const char *queries_why_not(const Program *p, const Choice *c)
{
    return choice_by_heads(c, false) != choice_by_heads(c, true)
               ? "`token chunks` with `%1$s` requires that both directions of the schedule exchange heads or "
                 "neither does; use a schedule such as usp or ring, or remove `%1$s`"
           : moves_queries(c) ? "`token chunks` with `%1$s` requires a schedule that passes only KV; use "
                                "`travel keys` and a schedule such as ring, or remove `%1$s`"
           : p->tensor        ? "`token chunks` with `%1$s` cannot be combined with tensor parallelism; use "
                                "`tensor 1` or remove `%1$s`"
           : c->chunk_keys && choice_pieces(c) > 1
               ? "`token chunks` with `keys` cannot be combined with a schedule that has `pieces`; use a "
                 "schedule such as ring, or `token chunks` with `attention`"
           : c->head_chunks > 1 ? "`token chunks` with `%1$s` cannot be combined with `head chunks`; use "
                                  "`head chunks 1` or remove `%1$s`"
                                : saving_why_no_chunks(c, false);
}

const char *token_chunks_why_not(Arena *a, const Program *p, const Choice *c)
{
    const char *why = choice_chunks_queries(c) ? queries_why_not(p, c) : NULL;
    return why ? arena_printf(a, why, chunked_word(c)) : NULL;
}

/* None; then from as many as the feed-forward network alone was cut into, so that each needs less than
 * those before: with attention, and last of all the most of them with keys in the host's memory. */
bool token_chunks_take(const Program *p, Choice *c, int n)
{
    const int other = token_chunks_other_way(p);
    const bool keys = other && n >= other && n == token_chunks_count(p) - 1;
    n -= keys; /* as many as the last without */
    const int doubled = p->layout.chunk_queries || n >= other ? n - other + 1 : n;
    const int first = c->ffn_chunks > 1 ? c->ffn_chunks : 2, chunks = doubled ? first << (doubled - 1) : 1;
    c->token_chunks = !token_chunks_open(p)        ? (int)p->layout.token_chunks.value
                      : chunks < MOST_TOKEN_CHUNKS ? chunks
                                                   : MOST_TOKEN_CHUNKS;
    c->chunk_queries = p->layout.chunk_queries || (other && n >= other);
    c->chunk_keys = p->layout.chunk_keys || keys;
    c->ffn_chunks = c->token_chunks > 1 ? 1 : c->ffn_chunks;
    return p->layout.chunk_queries || !c->chunk_queries || !queries_why_not(p, c);
}

/* Without attention, then with it, then with keys. */
bool token_chunks_other(const Program *p, Choice *c, int n)
{
    const int chunked = OTHER_TOKEN_CHUNKS - 1, more = n - OTHER_TOKEN_CHUNKS;
    c->chunk_queries = more >= 0;
    c->chunk_keys = more >= chunked;
    c->token_chunks = 1 << (more < 0 ? n : more % chunked + 1);
    c->ffn_chunks = n ? 1 : c->ffn_chunks;
    return c->chunk_queries ? more < 2 * chunked && !queries_why_not(p, c) : true;
}

const char *token_chunks_text(Arena *a, const Choice *c)
{
    return c->token_chunks > 1
               ? arena_printf(a, "%d%s", c->token_chunks,
                              c->chunk_queries ? arena_printf(a, ", %s", chunked_word(c)) : "")
               : NULL;
}

/* ---- fetch: how much of what layers staged comes back at a time ---- */

bool fetch_open(const Program *p)
{
    return p->layout.fetch.is_auto;
}

int fetch_count(const Program *p)
{
    return fetch_open(p) ? countof(fetch_names) : 1;
}

/* Chunks, for a loop that attends one at a time, of what is staged. */
static bool can_fetch_chunks(const Choice *c)
{
    return choice_chunks_queries(c) && (c->staged || c->offload) && !c->staged_layers;
}

bool fetch_take(const Program *p, Choice *c, int n)
{
    const bool stages = c->staged || c->offload;
    c->fetch_chunks = fetch_open(p) ? n : stages ? p->layout.fetch.value : 0;
    return !fetch_open(p) || !n || can_fetch_chunks(c);
}

bool fetch_other(const Program *p, Choice *c, int n)
{
    (void)p;
    c->fetch_chunks = n;
    return n < countof(fetch_names) && can_fetch_chunks(c);
}

const char *fetch_why_not(Arena *a, const Program *p, const Choice *c)
{
    (void)a, (void)p;
    return !c->fetch_chunks || can_fetch_chunks(c) ? NULL
           : c->staged_layers ? "`fetch chunks` cannot be combined with `layers` in `offload`; remove "
                                "`layers` or use `fetch layers`"
                              : "`fetch chunks` requires `token chunks` with `attention` and offloaded "
                                "activations; use `token chunks auto, attention` or `fetch layers`";
}

const char *fetch_text(Arena *a, const Choice *c)
{
    (void)a;
    return can_fetch_chunks(c) ? fetch_names[c->fetch_chunks] : NULL;
}

/* ---- loss tile: as many tokens as suit the vocabulary; by need a half, a quarter, an eighth of them ---- */

bool loss_tile_open(const Program *p)
{
    return p->layout.loss_tile.is_auto;
}

int loss_tile_count(const Program *p)
{
    return loss_tile_open(p) ? LOSS_HALVINGS + 1 : 1;
}

static int64_t tile_at(const Program *p, int halvings)
{
    const int64_t tile = choice_loss_tile(p, &(Choice){0}) >> halvings;
    return halvings == 0 ? 0 : tile < LEAST_LOSS_TILE ? LEAST_LOSS_TILE : tile;
}

bool loss_tile_take(const Program *p, Choice *c, int n)
{
    c->loss_tile = loss_tile_open(p) ? tile_at(p, n) : p->layout.loss_tile.value;
    return true;
}

bool loss_tile_other(const Program *p, Choice *c, int n)
{
    c->loss_tile = tile_at(p, n);
    return n <= LOSS_HALVINGS;
}

const char *loss_tile_text(Arena *a, const Choice *c)
{
    return c->loss_tile ? arena_printf(a, "%lld", (long long)c->loss_tile) : NULL;
}
