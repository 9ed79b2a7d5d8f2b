/* safetensors/export/masks.c: masks of a plan as fields of config.json. */
#include "safetensors/safetensors.h"

#include "core/context.h"

#include <string.h>

/* The window of the first layer that has one; 0: none. */
static json_int_t first_window(const BurstPlan *p)
{
    for (int i = 0; i < p->layers; i++)
        if (plan_mask_window(p, i) > 0)
            return plan_mask_window(p, i);
    return 0;
}

static bool all_full(const BurstPlan *p)
{
    int full = 0;
    for (int i = 0; i < p->layers; i++)
        full += strcmp(plan_mask_text(p, i), "full") == 0;
    return full == p->layers;
}

/* Candidate descriptions of windows in config.json: which layers are of type sliding_attention, and the
 * window (0: null). They are tried in order and read back like any folder; the first that gives the plan's
 * masks is written. */
enum { BY_SOURCE, BY_MASKS, BY_ROPES, WAYS };
typedef struct Attempt {
    const BurstPlan *p;
    const HfModel *model;
    const Masks *source; /* of the folder that the weights came from; NULL: none */
    json_t *types[WAYS];
    json_int_t window;
} Attempt;

/* By the layer's rotary embedding, in families where it depends on the type. */
static bool slides_by_rope(const Attempt *a, int layer)
{
    const BurstRope *r = a->p->ropes ? &a->p->ropes[a->p->layer_rope[layer]] : &a->p->rope;
    if (a->model->family->layer_ropes == ROPES_BY_TYPE)
        return !rope_same(r, &a->model->rope);
    return r->theta > 0;
}

static bool slides(const Attempt *a, int way, int layer)
{
    if (way == BY_SOURCE)
        return a->source && a->source->window && masks_has_window(a->source, layer);
    return way == BY_MASKS ? plan_mask_window(a->p, layer) > 0 : slides_by_rope(a, layer);
}

static const char *type_of(const Attempt *a, int way, int layer)
{
    if (a->model->family->scan && plan_has_scan(a->p, layer))
        return a->model->family->scan->type;
    if (a->model->family->index && plan_has_indexer(a->p, layer))
        return a->model->family->index->type;
    if (a->model->family->network && !plan_attends(a->p, layer))
        return plan_has_experts(a->p, layer) ? a->model->family->sparse : a->model->family->network;
    return slides(a, way, layer) ? "sliding_attention" : "full_attention";
}

static json_t *types_of(const Attempt *a, int way)
{
    json_t *types = json_array();
    for (int i = 0; types && i < a->p->layers; i++)
        json_array_append_new(types, json_string(type_of(a, way, i)));
    return types;
}

static bool any_slides(const json_t *types)
{
    for (size_t i = 0; i < json_array_size(types); i++)
        if (strcmp(json_string_value(json_array_get(types, i)), "sliding_attention") == 0)
            return true;
    return false;
}

static bool reads_flag(const Family *f) { return masks_has_field(f, "use_sliding_window"); }

static const char *const mask_fields[] = {"is_causal", "use_sliding_window", "sliding_window", "layer_types"};
enum { MASK_FIELDS = sizeof mask_fields / sizeof *mask_fields };

static bool say_as_source(json_t *config, const json_t *source)
{
    bool made = true;
    for (int i = 0; i < MASK_FIELDS; i++)
        if (json_object_get(source, mask_fields[i]))
            made = made &&
                   json_object_set(config, mask_fields[i], json_object_get(source, mask_fields[i])) == 0;
    return made;
}

static bool say(json_t *config, const Attempt *a, json_t *types)
{
    const Family *f = a->model->family;
    const bool none = f->windows == WINDOWS_NONE || (reads_flag(f) && (!a->window || !any_slides(types)));
    bool made = true;
    for (int i = 0; i < MASK_FIELDS; i++)
        json_object_del(config, mask_fields[i]);
    if (all_full(a->p) && masks_has_field(f, "is_causal"))
        made = json_object_set_new(config, "is_causal", json_false()) == 0;
    if (f->scan || f->index)
        made = made && json_object_set(config, "layer_types", types) == 0;
    if (none) /* without the fields there is no window */
        return made;
    if (reads_flag(f))
        made = json_object_set_new(config, "use_sliding_window", json_true()) == 0;
    if (f->types)
        made = made && json_object_set(config, "layer_types", types) == 0;
    return made && json_object_set_new(config, "sliding_window",
                                       a->window ? json_integer(a->window) : json_null()) == 0;
}

/* Whether the fields give the plan's ropes and, if masks_too, its masks. */
static bool means(const json_t *config, const Attempt *a, bool masks_too)
{
    Misfits m = {0};
    const Masks masks = masks_read(&m, a->p->layers, config, a->model->family);
    layer_ropes_check(&m, a->p, config, a->model, &masks);
    scans_check(&m, a->p, config, a->model);
    /* a window in both directions is not a mask that an import can write */
    const bool wide = !masks.window ||
                      masks.window >= json_integer_value(json_object_get(config, "max_position_embeddings")),
               right = !m.count && (masks.causal || wide) &&
                       (!masks_too || masks_other_in_document(a->p, &masks) < 0);
    misfits_close(&m);
    return right;
}

static bool try_windows(json_t *config, Attempt *a, bool masks_too)
{
    enum { OF_SOURCE, OF_PLAN, NONE, LONGEST };
    static const struct {
        int way, window;
    } tries[] = {
        {BY_SOURCE, OF_SOURCE}, {BY_MASKS, OF_SOURCE}, {BY_MASKS, OF_PLAN},  {BY_MASKS, NONE},
        {BY_MASKS, LONGEST},    {BY_SOURCE, OF_PLAN},  {BY_SOURCE, LONGEST}, {BY_ROPES, OF_SOURCE},
        {BY_ROPES, OF_PLAN},    {BY_ROPES, LONGEST},
    };
    const json_int_t most = json_integer_value(json_object_get(config, "max_position_embeddings")),
                     longest = most > a->p->sequence ? most : (json_int_t)a->p->sequence,
                     windows[] = {a->source ? a->source->window : 0, first_window(a->p), 0, longest};
    for (size_t i = 0; i < sizeof tries / sizeof *tries; i++) {
        a->window = windows[tries[i].window];
        if (!a->window && a->model->family->window_needed)
            continue;
        if (say(config, a, a->types[tries[i].way]) && means(config, a, masks_too))
            return true;
    }
    return false;
}

/* Whether these fields describe all of the plan's masks. */
static bool is_said(const json_t *config, const Attempt *a)
{
    Misfits m = {0};
    const Masks masks = masks_read(&m, a->p->layers, config, a->model->family);
    const bool said = !m.count && masks_other_layer(a->p, &masks) < 0;
    misfits_close(&m);
    return said;
}

bool masks_write(json_t *config, const BurstPlan *p, const HfModel *model, const json_t *source)
{
    Misfits m = {0};
    Masks there = {0};
    Attempt a = {.p = p, .model = model};
    if (source) {
        there = masks_read(&m, p->layers, source, model->family);
        a.source = m.count ? NULL : &there;
        misfits_close(&m);
    }
    for (int way = 0; way < WAYS; way++)
        a.types[way] = types_of(&a, way);
    bool made = a.types[BY_SOURCE] && a.types[BY_MASKS] && a.types[BY_ROPES];
    if (!(source && say_as_source(config, source) && means(config, &a, true)) &&
        !try_windows(config, &a, true))
        try_windows(config, &a, false);
    if (!is_said(config, &a))
        made = made && json_object_set_new(config, "burst_attention", masks_of(p)) == 0;
    for (int way = 0; way < WAYS; way++)
        json_decref(a.types[way]);
    return made;
}

void masks_say_unread(const BurstPlan *p, const json_t *config, const Family *family, const char *folder)
{
    Misfits m = {0};
    char text[MASK_TEXT];
    const Masks masks = masks_read(&m, p->layers, config, family);
    const int layer = m.count ? -1 : masks_other_in_document(p, &masks);
    misfits_close(&m);
    if (layer < 0)
        return;
    masks_layer(&masks, layer, text);
    say_line("no field that transformers reads of a %s says %s: loaded by it, layer %d of '%s' is %s "
             "(burst_attention in config.json has the plan's masks)",
             family->type, plan_mask_text(p, layer), layer, folder, text);
}
