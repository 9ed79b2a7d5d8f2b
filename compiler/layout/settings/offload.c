/* settings/offload.c: `offload`: what is kept in host memory. */
#include "layout/layout.h"

#include <string.h>

static bool is_open(const Program *p)
{
    return p->layout.offload.is_auto;
}

/* Parameters, moments and gradients of a node's ranks. Muon's must stay on the device. */
static bool optimizer_fits_host(const Program *p)
{
    if (p->train.optimizer == BURST_OPTIMIZER_MUON)
        return false;
    Arena *a = arena_new();
    const Shape shape = program_shape(p);
    const Units u = units_make(a, p, &shape, 0, false);
    double bytes = 0;
    for (int i = 0; i < u.n; i++)
        bytes += 16 * (double)u.at[i].repeat * (double)u.at[i].shard;
    arena_free(a);
    return bytes * cluster_most_ranks(&p->cluster) <= p->cluster.host_memory;
}

static int most_offloaded(const Program *p) { return p->model.layers > 1 ? OFFLOAD_ALL : 0; }

static int count(const Program *p) { return is_open(p) ? most_offloaded(p) + 1 + optimizer_fits_host(p) : 1; }

/* By need: nothing, then more and more of the saved values, finally the optimizer too. */
static bool take(const Program *p, Choice *c, int n)
{
    const int most = most_offloaded(p);
    const Layout *l = &p->layout;
    const int tried = n < most ? n : most, given = most ? (int)l->offload.value : 0;
    c->offload_values = is_open(p) ? tried : given;
    c->offload = most ? l->offloaded : NULL;
    c->offload_layers = l->offload_layers.value < p->model.layers && (c->offload_values || c->offload)
                            ? (int)l->offload_layers.value
                            : 0;
    const bool on_host = is_open(p) ? n > most : p->layout.host_optimizer;
    c->optimizer = on_host ? OPTIMIZER_ON_HOST : OPTIMIZER_ON_DEVICE;
    c->on_device = l->offload.given && !is_open(p) && !l->offload.value && !l->offloaded && !on_host;
    return true;
}

/* Nothing, all activations, the optimizer, both. */
static bool other(const Program *p, Choice *c, int n)
{
    const int ways = most_offloaded(p) ? 2 : 1; /* with and without offloaded activations */
    c->offload_values = n % ways ? OFFLOAD_ALL : 0;
    c->offload = NULL;
    c->offload_layers = 0;
    c->fetch_chunks = c->fetch_chunks && c->offload_values;
    if (n / ways == 0)
        c->optimizer = OPTIMIZER_ON_DEVICE;
    else if (!c->optimizer)
        c->optimizer = OPTIMIZER_ON_HOST;
    return n < (p->train.optimizer == BURST_OPTIMIZER_MUON ? 1 : 2) * ways;
}

static const char *offloaded_text(Arena *a, const Choice *c)
{
    const char *list = NULL,
               *layers = c->offload_layers ? arena_printf(a, ", layers %d", c->offload_layers) : "";
    if (!c->offload || !*c->offload)
        return c->offload_values ? arena_printf(a, "activations%s", layers) : NULL;
    for (const char *at = c->offload + 1; *at; at += strcspn(at, " ") + 1)
        list = arena_printf(a, "%s%s%.*s", list ? list : "", list ? ", " : "", (int)strcspn(at, " "), at);
    return list ? arena_printf(a, "activations(%s)%s", list, layers) : NULL;
}

static const char *text(Arena *a, const Choice *c)
{
    const char *offloaded = offloaded_text(a, c);
    if (!c->optimizer && !offloaded)
        return c->on_device ? "none" : NULL; /* without, it is open */
    if (!c->optimizer)
        return offloaded;
    return offloaded ? arena_printf(a, "%s, optimizer", offloaded) : "optimizer";
}

/* Named values require that the layout says what layers save. */
static const char *why_not(Arena *a, const Program *p, const Choice *c)
{
    const Saving v = saving_of(c);
    if (!c->offload || c->offload_values || c->spared)
        return NULL;
    const Partition one = {.max_tokens = 1};
    const Shape shape = shape_unchunked(shape_of(p, c));
    const char *can = offload_at(a, p, &shape, &one, units_make(a, p, &shape, 0, false), v, c->offload_layers,
                                 OFFLOAD_ALL);
    for (const char *at = c->offload + 1; *at; at += strcspn(at, " ") + 1) {
        const char *name = arena_copy(a, at, strcspn(at, " "));
        if (!saves(can, name))
            return arena_printf(a,
                                "'%s' cannot be offloaded: backward with `recompute %s` does not read it "
                                "unchanged; it reads%.*s",
                                name, saving_text(a, v), (int)strlen(can) - 1, can);
    }
    return NULL;
}

static bool asks_to_offload(const Layout *l) { return l->offload.value || l->offloaded; }

static const char *idle_offload(Arena *a, const Program *p, const Choice *c)
{
    (void)a, (void)c;
    return asks_to_offload(&p->layout) && p->model.layers == 1
               ? "the model has one layer, whose activations are used at once and never offloaded; remove "
                 "`activations`"
               : NULL;
}

static const char *idle_offload_layers(Arena *a, const Program *p, const Choice *c)
{
    (void)c;
    if (!asks_to_offload(&p->layout))
        return "no activations are offloaded; set `offload activations` or remove it";
    return p->model.layers == 1 || p->layout.offload_layers.value < p->model.layers
               ? NULL
               : arena_printf(a, "all of the %d layers except the last offload their activations; remove it",
                              p->model.layers);
}

const SettingRecord setting_offload = {
    .form = &(const SettingForm){.name = "offload", .at = offsetof(Layout, offload)},
    .column = 26,
    .if_several = true,
    .escalates = true,
    .escalates_first = true,
    .takes_host = true,
    .spares = true,
    .count = count,
    .take = take,
    .trains = true,
    .other = other,
    .why_not = why_not,
    .text = text,
    .idle = {{offsetof(Layout, offload), idle_offload},
             {offsetof(Layout, offload_layers), idle_offload_layers}},
};
