/* safetensors/masks.c: which mask each layer has by a folder's config.json, beside the plan's. Where the
 * folder says a window, full attention or masks of burstc's, and the plan has others, that is an error:
 * numbers would not be those that the folder asks for. --plan-masks trains with the plan's all the same. A
 * folder whose layers are all causal says nothing that is not the default: the plan's masks are named and
 * used. */
#include "safetensors/safetensors.h"

#include <stdio.h>
#include <string.h>

enum { WINDOWS_FROM = 28 }; /* max_window_layers where config.json has none */

static const char *mask_text(const BurstPlan *p, int layer)
{
    return p->masks ? p->masks[p->layer_mask[layer]]->text : "causal";
}

/* [layers] texts. */
json_t *masks_of(const BurstPlan *p)
{
    json_t *texts = json_array();
    for (int i = 0; texts && i < p->layers; i++)
        json_array_append_new(texts, json_text(mask_text(p, i)));
    return texts;
}

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

static void take_types(Misfits *m, int layers, const json_t *config, Masks *masks)
{
    char text[VALUE_TEXT];
    const json_t *types = json_object_get(config, "layer_types");
    if (!given(types))
        return;
    value_text(types, text);
    if (masks->family->windows != WINDOWS_BY_FLAG && !masks->family->types) {
        misfit(m, "layer_types is %s, which transformers does not read of a %s; remove it", text,
               masks->family->type);
        return;
    }
    if (json_array_size(types) != (size_t)layers) {
        misfit(m, "layer_types is %s, expected a list of %d types", text, layers);
        return;
    }
    masks->types = types;
    for (int i = 0; i < layers; i++) {
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

/* Where the family has another rule than flags, a field that is not there has its default, and null is none.
 */
static json_int_t take_window(Misfits *m, const json_t *config, const Family *family)
{
    const bool by_flag = family->windows == WINDOWS_BY_FLAG,
               flag = by_flag && take_flag(m, config, "use_sliding_window", false);
    const json_t *there = json_object_get(config, "sliding_window");
    const json_int_t window = take_number(m, config, "sliding_window", there || by_flag ? 0 : family->window,
                                          1);
    return flag || !by_flag ? window : 0;
}

Masks masks_read(Misfits *m, int layers, const json_t *config, const Family *family)
{
    Masks masks = {.family = family, .causal = take_flag(m, config, "is_causal", true)};
    masks.window = take_window(m, config, family);
    masks.from = take_number(m, config, "max_window_layers", WINDOWS_FROM, 0);
    take_types(m, layers, config, &masks);
    if (!masks.types) /* else it may be anything, "LLLG" of EXAONE 4 among others */
        masks.pattern = take_number(m, config, "sliding_window_pattern", family->pattern, 0);
    return masks;
}

bool masks_has_window(const Masks *m, int layer)
{
    const char *type = json_string_value(json_array_get(m->types, (size_t)layer));
    if (type)
        return strcmp(type, "sliding_attention") == 0;
    switch (m->family->windows) {
    case WINDOWS_IN_ALL: return true;
    case WINDOWS_BUT_FOURTH: return layer % 4 != 0;
    case WINDOWS_IN_RUNS: return m->pattern > 0 && (layer + 1) % m->pattern != 0;
    default: return layer >= m->from;
    }
}

void masks_layer(const Masks *m, int layer, char text[MASK_TEXT])
{
    if (m->window && masks_has_window(m, layer))
        snprintf(text, MASK_TEXT, "%swindow(%lld)", m->causal ? "" : "bidirectional ",
                 (long long)m->window);
    else
        snprintf(text, MASK_TEXT, "%s", m->causal ? "causal" : "full");
}

/* As a window of as many tokens as there are is causal. */
static bool same_mask(const BurstPlan *p, const Masks *m, int layer)
{
    const char *here = mask_text(p, layer);
    char there[MASK_TEXT];
    Masks seen = *m;
    masks_layer(m, layer, there);
    seen.window = m->window < p->sequence ? m->window : 0;
    if (strcmp(there, here) == 0)
        return true;
    masks_layer(&seen, layer, there);
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
        masks_layer(m, i, text);
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
        misfit_masks(m, "burst_attention differs from the plan's masks" TRAINS);
    else if (!equal && c->rank == 0 && !m->count)
        say_line("using the plan's masks, which differ from burst_attention in '%s'", path);
    json_decref(here);
}

void config_check_masks(const BurstCtx *c, const BurstPlan *p, const json_t *config, const HfModel *model,
                        const char *path, Misfits *m)
{
    const json_t *written = json_object_get(config, "burst_attention");
    const int before = m->count;
    const Masks masks = masks_read(m, p->layers, config, model->family);
    char there[MASK_TEXT];
    layer_ropes_check(m, p, config, model, &masks);
    if (m->count > before)
        return;
    if (written) {
        compare_written(c, p, written, path, m);
        return;
    }
    const int layer = other_layer(p, &masks);
    if (layer < 0)
        return;
    masks_layer(&masks, layer, there);
    if (says_masks(p, &masks) && !m->plan_masks)
        misfit_masks(m, "the mask of layer %d is %s, expected %s" TRAINS, layer, there, mask_text(p, layer));
    else if (c->rank == 0 && !m->count)
        say_line("using the plan's masks: for layer %d, %s in '%s' differs from %s in the plan", layer, there,
                 path, mask_text(p, layer));
}

/* ---- writing ---- */

/* 0: causal; -1: what no window says. */
static long long window_of(const BurstPlan *p, int layer)
{
    const char *text = mask_text(p, layer);
    long long window;
    int n = 0;
    if (strcmp(text, "causal") == 0)
        return 0;
    return sscanf(text, "window(%lld)%n", &window, &n) == 1 && n > 0 && !text[n] ? window : -1;
}

/* The one that layers have; 0: all are causal; -1: what a family of this kind does not say. */
static long long common_window(const BurstPlan *p, const Family *family, bool *all)
{
    long long common = 0;
    *all = true;
    for (int i = 0; i < p->layers; i++) {
        const long long window = window_of(p, i);
        if (window < 0 || (window && common && window != common))
            return -1;
        common = window ? window : common;
        *all = *all && window;
    }
    return common && !*all && !family->types ? -1 : common;
}

static json_t *types_of(const BurstPlan *p)
{
    json_t *types = json_array();
    for (int i = 0; types && i < p->layers; i++)
        json_array_append_new(types,
                              json_string(window_of(p, i) > 0 ? "sliding_attention" : "full_attention"));
    return types;
}

bool masks_write(json_t *config, const BurstPlan *p, const Family *family)
{
    bool all;
    const long long window = common_window(p, family, &all);
    const bool by_flag = family->windows == WINDOWS_BY_FLAG;
    bool made = true;
    if (by_flag && (window <= 0 || !family->types)) /* where it says nothing, there is none */
        return true;
    if (by_flag)
        made = json_object_set_new(config, "use_sliding_window", json_true()) == 0;
    if (made)
        made = json_object_set_new(config, "sliding_window",
                                   window > 0 ? json_integer(window) : json_null()) == 0;
    if (made && family->types)
        made = json_object_set_new(config, "layer_types", types_of(p)) == 0;
    return made;
}

bool masks_said(const json_t *config, const BurstPlan *p, const Family *family)
{
    Misfits m = {0};
    const Masks masks = masks_read(&m, p->layers, config, family);
    const bool said = !m.count && other_layer(p, &masks) < 0;
    misfits_close(&m);
    return said;
}
