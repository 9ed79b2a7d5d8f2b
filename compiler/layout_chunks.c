/* layout_chunks.c: the rows `ffn chunks` and `token chunks` of layout.c: 1, 2, 4, ... of at least so many tokens. Chunks of the tokens
 * cut the feed-forward network too, which then has none of its own.
 */
#include "burst.h"

enum { LEAST_CHUNK = 1024, MOST_FFN_CHUNKS = 8, MOST_TOKEN_CHUNKS = 64, OTHER_TOKEN_CHUNKS = 4 };

/* How many of 1, 2, 4, ... most. */
static int doublings(const Program *p, int most)
{
    const int64_t tokens = p->sequence / (p->cluster.world / program_tensor(p)); /* of the rank that has least */
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
    c->ffn_chunks = ffn_chunks_open(p) ? 1 << n : p->layout.ffn_chunks.is_auto ? 1 : (int)p->layout.ffn_chunks.value;
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

int token_chunks_count(const Program *p)
{
    return token_chunks_open(p) ? doublings(p, MOST_TOKEN_CHUNKS) : 1;
}

/* None; then from as many as the feed-forward network alone was cut into, so that each needs less than those before. */
bool token_chunks_take(const Program *p, Choice *c, int n)
{
    const int first = c->ffn_chunks > 1 ? c->ffn_chunks : 2, chunks = n ? first << (n - 1) : 1;
    c->token_chunks = !token_chunks_open(p) ? (int)p->layout.token_chunks.value : chunks < MOST_TOKEN_CHUNKS ? chunks : MOST_TOKEN_CHUNKS;
    c->ffn_chunks = c->token_chunks > 1 ? 1 : c->ffn_chunks;
    return true;
}

bool token_chunks_other(const Program *p, Choice *c, int n)
{
    (void)p;
    c->token_chunks = 1 << n;
    c->ffn_chunks = n ? 1 : c->ffn_chunks;
    return n < OTHER_TOKEN_CHUNKS;
}

const char *token_chunks_text(Arena *a, const Choice *c)
{
    return c->token_chunks > 1 ? arena_printf(a, "%d", c->token_chunks) : NULL;
}

const char *token_chunks_frees(const Choice *c)
{
    return c->token_chunks > 1 ? NULL : "`token chunks auto` computes all but attention for some of the tokens at a time";
}
