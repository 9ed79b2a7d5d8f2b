/* safetensors/masks.c: which mask each layer has by a folder's config.json, beside the plan's. Where the
 * folder says a window, full attention or masks of burstc's, and the plan has others, that is an error:
 * numbers would not be those that the folder asks for. --plan-masks trains with the plan's all the same. A
 * folder whose layers are all causal says nothing that is not the default: the plan's masks are named and
 * used. */
#include "safetensors/safetensors.h"

#include <stdio.h>
#include <string.h>

enum { MASK_TEXT = 64, WINDOWS_FROM = 28 }; /* max_window_layers where config.json has none */

static const char *mask_text(const BurstPlan *p, int layer)
{
    return p->masks ? p->masks[p->layer_mask[layer]]->text : "causal";
}

bool all_causal(const BurstPlan *p)
{
    for (int i = 0; i < p->layers; i++)
        if (strcmp(mask_text(p, i), "causal") != 0)
            return false;
    return true;
}

/* [layers] texts. */
json_t *masks_of(const BurstPlan *p)
{
    json_t *texts = json_array();
    for (int i = 0; texts && i < p->layers; i++)
        json_array_append_new(texts, json_text(mask_text(p, i)));
    return texts;
}

/* What config.json has of masks. */
typedef struct Masks {
    bool causal;
    json_int_t window;  /* 0: none */
    json_int_t from;    /* the first layer with a window, where layer_types does not tell */
    const json_t *types; /* [layers]; NULL: not given */
} Masks;

/* null is false: so it is to transformers. */
static bool take_flag(Misfits *m, const json_t *config, const char *name, bool absent)
{
    const json_t *flag = json_object_get(config, name);
    char text[VALUE_TEXT];
    if (!flag || json_is_boolean(flag) || json_is_null(flag))
        return flag ? json_is_true(flag) : absent;
    value_text(flag, text);
    misfit(m, "%s is %s, expected true or false", name, text);
    return absent;
}

static json_int_t take_number(Misfits *m, const json_t *config, const char *name, json_int_t absent,
                              json_int_t least)
{
    const json_t *number = json_object_get(config, name);
    char text[VALUE_TEXT];
    if (!given(number))
        return absent;
    if (json_is_integer(number) && json_integer_value(number) >= least)
        return json_integer_value(number);
    value_text(number, text);
    misfit(m, "%s is %s, expected a whole number of at least %d", name, text, (int)least);
    return absent;
}

static void take_types(Misfits *m, const BurstPlan *p, const json_t *config, Masks *masks)
{
    char text[VALUE_TEXT];
    const json_t *types = json_object_get(config, "layer_types");
    if (!given(types))
        return;
    if (json_array_size(types) != (size_t)p->layers) {
        value_text(types, text);
        misfit(m, "layer_types is %s, expected a list of %d types", text, p->layers);
        return;
    }
    masks->types = types;
    for (int i = 0; i < p->layers; i++) {
        const char *type = json_string_value(json_array_get(types, (size_t)i));
        const bool window = type && strcmp(type, "sliding_attention") == 0;
        if (window && masks->window)
            continue;
        if (type && (strcmp(type, "full_attention") == 0 || strcmp(type, "attention") == 0))
            continue;
        value_text(json_array_get(types, (size_t)i), text);
        misfit(m, "layer_types has %s for layer %d%s", text, i,
               window ? ", but use_sliding_window and sliding_window set no window"
                      : ", expected full_attention or sliding_attention");
        return;
    }
}

static Masks take_masks(Misfits *m, const BurstPlan *p, const json_t *config)
{
    Masks masks = {.causal = take_flag(m, config, "is_causal", true)};
    const bool windows = take_flag(m, config, "use_sliding_window", false);
    const json_int_t window = take_number(m, config, "sliding_window", 0, 1);
    masks.window = windows ? window : 0;
    masks.from = take_number(m, config, "max_window_layers", WINDOWS_FROM, 0);
    take_types(m, p, config, &masks);
    return masks;
}

/* As a plan would call it. */
static void layer_text(const Masks *m, int layer, char text[MASK_TEXT])
{
    const char *type = json_string_value(json_array_get(m->types, (size_t)layer));
    const bool window = m->window && (type ? strcmp(type, "sliding_attention") == 0 : layer >= m->from);
    if (window)
        snprintf(text, MASK_TEXT, "%swindow(%lld)", m->causal ? "" : "bidirectional ", (long long)m->window);
    else
        snprintf(text, MASK_TEXT, "%s", m->causal ? "causal" : "full");
}

/* As a window of as many tokens as there are is causal. */
static bool same_mask(const BurstPlan *p, const Masks *m, int layer)
{
    const char *here = mask_text(p, layer);
    char there[MASK_TEXT];
    Masks seen = *m;
    layer_text(m, layer, there);
    seen.window = m->window < p->sequence ? m->window : 0;
    if (strcmp(there, here) == 0)
        return true;
    layer_text(&seen, layer, there);
    return strcmp(there, here) == 0;
}

/* The first layer of another mask; -1: there is none. */
static int other_layer(const BurstPlan *p, const Masks *m)
{
    int layer = 0;
    while (layer < p->layers && same_mask(p, m, layer))
        layer++;
    return layer < p->layers ? layer : -1;
}

/* Whether it is said that a layer is not just causal. */
static bool says_masks(const BurstPlan *p, const Masks *m)
{
    char text[MASK_TEXT];
    bool says = false;
    for (int i = 0; i < p->layers && !says; i++) {
        layer_text(m, i, text);
        says = strcmp(text, "causal") != 0;
    }
    return says;
}

#define TRAINS "; use --plan-masks to train with the plan's masks"

/* Of a folder that burstc wrote. */
static void compare_written(const BurstCtx *c, const BurstPlan *p, const json_t *there, const char *path,
                            Misfits *m)
{
    json_t *here = masks_of(p);
    const bool equal = json_equal(there, here);
    if (!equal && !m->plan_masks)
        misfit(m, "burst_attention differs from the plan's masks" TRAINS);
    else if (!equal && c->rank == 0 && !m->count)
        say_line("using the plan's masks, which differ from burst_attention in '%s'", path);
    json_decref(here);
}

void config_check_masks(const BurstCtx *c, const BurstPlan *p, const json_t *config, const char *path,
                        Misfits *m)
{
    const json_t *written = json_object_get(config, "burst_attention");
    const int before = m->count;
    const Masks masks = take_masks(m, p, config);
    char there[MASK_TEXT];
    if (m->count > before)
        return;
    if (written) {
        compare_written(c, p, written, path, m);
        return;
    }
    const int layer = other_layer(p, &masks);
    if (layer < 0)
        return;
    layer_text(&masks, layer, there);
    if (says_masks(p, &masks) && !m->plan_masks)
        misfit(m, "the mask of layer %d is %s, expected %s" TRAINS, layer, there, mask_text(p, layer));
    else if (c->rank == 0 && !m->count)
        say_line("using the plan's masks: for layer %d, %s in '%s' differs from %s in the plan", layer, there,
                 path, mask_text(p, layer));
}
