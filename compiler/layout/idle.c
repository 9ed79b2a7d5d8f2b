/* layout/idle.c: settings that the layout gives and that have nothing to act on in the chosen plan: a
 * warning for each.
 *
 * An idle setting is never an error and never silent; an error is what cannot be done. Values that say
 * what holds anyway (`overlap no`, `head chunks 1`) are not idle, and neither is what the search chose
 * itself.
 */
#include "layout/layout.h"

#include <stddef.h>
#include <string.h>

/* Whether the setting, whose value asks for something, has nothing to act on: why, with what to do; NULL:
 * it acts. */
typedef const char *IdleRule(Arena *a, const Program *p, const Choice *c);

static const char one_rank[] = "each sequence is on one rank; remove it";

static const char *idle_overlap(Arena *a, const Program *p, const Choice *c)
{
    (void)a;
    return p->layout.overlap.value && !c->tensor ? "it requires tensor parallelism; set `tensor 2` or remove "
                                                   "it"
                                                 : NULL;
}

static const char *idle_update(Arena *a, const Program *p, const Choice *c)
{
    (void)a, (void)p;
    return c->optimizer == OPTIMIZER_ON_DEVICE
               ? "parameters and moments are in device memory; set `offload optimizer` or remove it"
               : NULL;
}

static const char *idle_fetch(Arena *a, const Program *p, const Choice *c)
{
    (void)a, (void)p;
    return c->staged || c->offload ? NULL
                                   : "no activations are offloaded; set `offload activations` or remove it";
}

static bool asks_to_stage(const Layout *l)
{
    return l->offload.value || l->offloaded;
}

static const char *idle_offload(Arena *a, const Program *p, const Choice *c)
{
    (void)a, (void)c;
    return asks_to_stage(&p->layout) && p->model.layers == 1
               ? "the model has one layer, whose activations are used at once and never offloaded; remove "
                 "`activations`"
               : NULL;
}

static const char *idle_staged_layers(Arena *a, const Program *p, const Choice *c)
{
    (void)c;
    if (!asks_to_stage(&p->layout))
        return "no activations are offloaded; set `offload activations` or remove it";
    return p->model.layers == 1 || p->layout.staged_layers.value < p->model.layers
               ? NULL
               : arena_printf(a, "all of the %d layers except the last offload their activations; remove it",
                              p->model.layers);
}

static const char *idle_travel(Arena *a, const Program *p, const Choice *c)
{
    (void)p;
    if (c->ranks == 1)
        return one_rank;
    for (int m = 0; m < c->masks || m == 0; m++) {
        const Choice x = c->masks ? choice_of_mask(c, m) : *c;
        if (!travel_is_idle(&x))
            return NULL;
    }
    return arena_printf(a,
                        "schedule '%s' has the same backward for keys and queries; "
                        "remove it",
                        c->schedule->name);
}

static const char *idle_ranges(Arena *a, const Program *p, const Choice *c)
{
    (void)a;
    return p->layout.ranges.value && c->ranks == 1 ? one_rank : NULL;
}

static const char *idle_partition(Arena *a, const Program *p, const Choice *c)
{
    (void)a;
    return c->ranks == 1 && p->layout.partition.value != PART_CONTIGUOUS ? one_rank : NULL;
}

static const char *idle_shares(Arena *a, const Program *p, const Choice *c)
{
    (void)a;
    return c->ranks == 1 && p->layout.shares.value == SHARES_GIVEN ? one_rank : NULL;
}

static const char *idle_placement(Arena *a, const Program *p, const Choice *c)
{
    (void)a, (void)p;
    int axes = c->data > 1;
    for (int i = 0; i < c->coords; i++)
        axes += c->size[i] > 1;
    return axes < 2 ? "fewer than two axes have more than one rank; remove it" : NULL;
}

static const char *idle_weights(Arena *a, const Program *p, const Choice *c)
{
    (void)a;
    const bool usual = c->sharding == SHARDING_ZERO3 && !p->layout.within.given;
    return p->cluster.world == 1 && !usual ? "the cluster has one rank, which holds all weights; "
                                             "remove it"
                                           : NULL;
}

static const char *idle_ffn_chunks(Arena *a, const Program *p, const Choice *c)
{
    return p->layout.ffn_chunks.value > 1 && c->token_chunks > 1
               ? arena_printf(a, "`token chunks %d` already splits the feed-forward network; remove it",
                              c->token_chunks)
               : NULL;
}

static const char *idle_token_chunks(Arena *a, const Program *p, const Choice *c)
{
    return p->layout.chunk_queries && c->token_chunks == 1
               ? arena_printf(a, "one chunk holds all tokens; use `token chunks 2, %s` or remove it",
                              p->layout.chunk_keys ? "keys" : "attention")
               : NULL;
}

static const struct { size_t setting; IdleRule *rule;
} rules[] = {
    {offsetof(Layout, placement), idle_placement},   {offsetof(Layout, partition), idle_partition},
    {offsetof(Layout, shares), idle_shares},         {offsetof(Layout, travel), idle_travel},
    {offsetof(Layout, ranges), idle_ranges},         {offsetof(Layout, weights), idle_weights},
    {offsetof(Layout, ffn_chunks), idle_ffn_chunks}, {offsetof(Layout, token_chunks), idle_token_chunks},
    {offsetof(Layout, offload), idle_offload},       {offsetof(Layout, staged_layers), idle_staged_layers},
    {offsetof(Layout, update), idle_update},         {offsetof(Layout, fetch), idle_fetch},
    {offsetof(Layout, overlap), idle_overlap},
};

/* As it was written, without its semicolon. */
static const char *written_text(Arena *a, Span at)
{
    const char *text = at.src->text + at.begin;
    size_t n = at.end - at.begin;
    while (n > 0 && strchr("; \t\r\n", text[n - 1]))
        n--;
    return arena_copy(a, text, n);
}

void layout_warn_idle(Diags *d, const Program *p, const Choice *c)
{
    Arena *a = arena_new();
    for (int i = 0; i < countof(rules); i++) {
        const Setting *s = (const Setting *)((const char *)&p->layout + rules[i].setting);
        const char *why = s->given && !s->is_auto && s->span.src ? rules[i].rule(a, p, c) : NULL;
        if (why)
            diag_warn(d, WARN_UNUSED_SETTING, s->span, "`%s` has no effect: %s", written_text(a, s->span),
                      why);
    }
    arena_free(a);
}
