/* settings/fetch.c: `fetch`: how much of a layer's offloaded values comes back at a time. */
#include "layout/layout.h"

static bool is_open(const Program *p)
{
    return p->layout.fetch.is_auto;
}

static int count(const Program *p)
{
    return is_open(p) ? form_fetch.word_count : 1;
}

/* Chunks need offloaded values and a loop that attends one chunk at a time. */
static bool can(const Choice *c)
{
    return choice_chunks_queries(c) && (c->offload_values || c->offload) && !c->offload_layers &&
           saving_group(saving_of(c)) == 1;
}

static bool take(const Program *p, Choice *c, int n)
{
    const bool offloads = c->offload_values || c->offload;
    c->fetch_chunks = is_open(p) ? n : offloads && p->layout.fetch.value;
    return !is_open(p) || !n || can(c);
}

static bool other(const Program *p, Choice *c, int n)
{
    (void)p;
    c->fetch_chunks = n;
    return n < form_fetch.word_count && can(c);
}

static const char *why_not(Arena *a, const Program *p, const Choice *c)
{
    (void)a, (void)p;
    if (!c->fetch_chunks || can(c))
        return NULL;
    if (c->offload_layers)
        return "`fetch chunks` cannot be combined with `layers` in `offload`; remove `layers` or use `fetch "
               "layers`";
    if (saving_group(saving_of(c)) > 1)
        return "`fetch chunks` cannot be combined with `recompute full(n)`; use `recompute full` or `fetch "
               "layers`";
    return "`fetch chunks` requires `token chunks` with `attention` and offloaded activations; use `token "
           "chunks auto, attention` or `fetch layers`";
}

static const char *text(Arena *a, const Choice *c)
{
    (void)a;
    return can(c) ? form_fetch.words[c->fetch_chunks] : NULL;
}

static const char *idle(Arena *a, const Program *p, const Choice *c)
{
    (void)a, (void)p;
    return c->offload_values || c->offload
               ? NULL
               : "no activations are offloaded; set `offload activations` or remove it";
}

const SettingRecord setting_fetch = {
    .form = &form_fetch,
    .column = 6,
    .if_several = true,
    .escalates = true,
    .spares = true,
    .count = count,
    .take = take,
    .trains = true,
    .other = other,
    .why_not = why_not,
    .text = text,
    .idle = {{offsetof(Layout, fetch), idle}},
};
