/* settings/ffn_chunks.c: `ffn chunks`: the feed-forward network over 1, 2, 4, ... chunks of the tokens. With
 * `token chunks`, which include it, it has none of its own. */
#include "layout/layout.h"

enum { LEAST_CHUNK = 1024, MOST = 8 };

/* How many of 1, 2, 4, ... most. */
int chunk_doublings(const Program *p, int most)
{
    /* of the rank with fewest */
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

static int count(const Program *p)
{
    return ffn_chunks_open(p) ? chunk_doublings(p, MOST) : 1;
}

static bool take(const Program *p, Choice *c, int n)
{
    c->ffn_chunks = p->layout.ffn_chunks.is_auto ? 1 : (int)p->layout.ffn_chunks.value;
    if (ffn_chunks_open(p))
        c->ffn_chunks = 1 << n;
    return true;
}

static bool other(const Program *p, Choice *c, int n)
{
    (void)p;
    c->ffn_chunks = 1 << n;
    return c->ffn_chunks <= MOST && c->token_chunks < 2;
}

static const char *text(Arena *a, const Choice *c)
{
    return c->ffn_chunks > 1 ? arena_printf(a, "%d", c->ffn_chunks) : NULL;
}

static const char *idle(Arena *a, const Program *p, const Choice *c)
{
    return p->layout.ffn_chunks.value > 1 && c->token_chunks > 1
               ? arena_printf(a, "`token chunks %d` already splits the feed-forward network; remove it",
                              c->token_chunks)
               : NULL;
}

const SettingRecord setting_ffn_chunks = {
    .form = &form_ffn_chunks,
    .column = 10,
    .if_several = true,
    .escalates = true,
    .spares = true,
    .count = count,
    .take = take,
    .other = other,
    .fits_each = ffn_chunks_open,
    .text = text,
    .idle = {{offsetof(Layout, ffn_chunks), idle}},
};
