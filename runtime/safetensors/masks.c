/* safetensors/masks.c: compares each layer's mask in a folder's config.json with the plan's. If the folder
 * sets a window, full attention or burstc's masks, and the plan has others, that is an error: the results
 * would not be those of the folder's model. --plan-masks trains with the plan's masks all the same. A folder
 * whose layers are all causal sets only the default: the plan's masks are named and used. */
#include "safetensors/safetensors.h"

#include "burst_attend.h"
#include "core/context.h"
#include "files/json.h"

#include <stdio.h>
#include <string.h>

const char *plan_mask_text(const BurstPlan *p, int layer)
{
    return p->masks ? p->masks[p->layer_mask[layer]]->text : "causal";
}

const char *plan_mask_in_document(const BurstPlan *p, int layer)
{
    const char *text = plan_mask_text(p, layer);
    return strcmp(text, "document") == 0 ? "causal" : text;
}

/* [layers] texts. */
json_t *masks_of(const BurstPlan *p)
{
    json_t *texts = json_array();
    for (int i = 0; texts && i < p->layers; i++)
        json_array_append_new(texts, json_text(plan_mask_text(p, i)));
    return texts;
}

/* 0: causal; -1: not a window. */
json_int_t plan_mask_window(const BurstPlan *p, int layer)
{
    const char *text = plan_mask_in_document(p, layer);
    long long window;
    int n = 0;
    if (strcmp(text, "causal") == 0)
        return 0;
    return sscanf(text, "window(%lld)%n", &window, &n) == 1 && n > 0 && !text[n] ? window : -1;
}

/* null means false, as in transformers. */
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

bool masks_has_field(const Family *f, const char *name)
{
    const Windows w = f->windows;
    const struct { const char *name; bool read; } fields[] = {
        {"is_causal", !f->always_causal},
        {"use_sliding_window", w == WINDOWS_BY_FLAG || w == WINDOWS_WITHOUT_ROPE},
        {"max_window_layers", w == WINDOWS_BY_FLAG},
        {"sliding_window", w != WINDOWS_NONE},
        {"sliding_window_pattern", w == WINDOWS_BY_PATTERN},
        {"layer_types", true}, /* even if it only says that all layers are alike */
        {"burst_attention", true},
    };
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (strcmp(fields[i].name, name) == 0)
            return fields[i].read;
    return false;
}

static bool is_type(const json_t *type, const char *name)
{
    return json_is_string(type) && strcmp(json_string_value(type), name) == 0;
}

static bool is_full(const json_t *type)
{
    return is_type(type, "full_attention") || is_type(type, "attention");
}

/* A type that does not read layer_types has one mask in all layers, or is refused. */
static void check_unread_types(Misfits *m, const json_t *types, const Masks *masks)
{
    char text[VALUE_TEXT];
    bool alike = masks->family->windows == WINDOWS_NONE;
    for (size_t i = 0; i < json_array_size(types); i++)
        alike = alike && is_full(json_array_get(types, i));
    value_text(types, text);
    if (!alike)
        misfit(m, "layer_types is %s, which transformers does not read of a %s; remove it", text,
               masks->family->type);
}

static bool is_scan(const json_t *type, const Family *f)
{
    return f->scan && (is_type(type, f->scan->type) || (f->scan->also && is_type(type, f->scan->also)));
}

/* The first layer of a type that burstc cannot compute; -1: none. */
static int odd_type(const json_t *types, const Family *f, bool windows)
{
    for (size_t i = 0; i < json_array_size(types); i++) {
        const json_t *type = json_array_get(types, i);
        const bool network = (f->network && is_type(type, f->network)) ||
                             (f->sparse && is_type(type, f->sparse));
        const bool index = f->index && is_type(type, f->index->type);
        if (!is_full(type) && !is_scan(type, f) && !network && !index &&
            !(windows && is_type(type, "sliding_attention")))
            return (int)i;
    }
    return -1;
}

static void take_types(Misfits *m, int layers, const json_t *config, Masks *masks)
{
    char text[VALUE_TEXT];
    const json_t *types = json_object_get(config, "layer_types");
    if (!given(types))
        return;
    if (json_array_size(types) != (size_t)layers) {
        value_text(types, text);
        misfit(m, "layer_types is %s, expected a list of %d types", text, layers);
        return;
    }
    if (!masks->family->types) {
        check_unread_types(m, types, masks);
        return;
    }
    masks->types = types;
    const int odd = odd_type(types, masks->family, masks->window > 0);
    if (odd < 0)
        return;
    const json_t *type = json_array_get(types, (size_t)odd);
    value_text(type, text);
    if (is_type(type, "sliding_attention"))
        misfit(m, "layer_types has %s for layer %d, but use_sliding_window and sliding_window set no window",
               text, odd);
    else
        misfit(m, "layer_types has %s for layer %d, expected full_attention or %s", text, odd,
               masks->family->scan ? masks->family->scan->type : "sliding_attention");
}

/* A missing field has its default; null means no window. */
static json_int_t take_window(Misfits *m, const json_t *config, const Family *family)
{
    const bool by_flag = masks_has_field(family, "use_sliding_window"),
               flag = by_flag && take_flag(m, config, "use_sliding_window", false);
    const json_t *there = json_object_get(config, "sliding_window");
    /* Qwen2MoeConfig writes 0 where windows are not used */
    if (!masks_has_field(family, "sliding_window") &&
        json_is_false(json_object_get(config, "use_sliding_window")))
        return 0;
    const json_int_t window = take_number(m, config, "sliding_window", there ? 0 : family->window, 1);
    return family->windows != WINDOWS_NONE && (flag || !by_flag) ? window : 0;
}

Masks masks_read(Misfits *m, int layers, const json_t *config, const Family *family)
{
    Masks masks = {.family = family, .config = config, .causal = true, .pattern = family->pattern};
    if (masks_has_field(family, "is_causal"))
        masks.causal = take_flag(m, config, "is_causal", true);
    masks.window = take_window(m, config, family);
    masks.from = take_number(m, config, "max_window_layers", family->from, 0);
    take_types(m, layers, config, &masks);
    /* with types it may be anything, such as "LLLG" in EXAONE 4 */
    if (!masks.types && masks_has_field(family, "sliding_window_pattern"))
        masks.pattern = take_number(m, config, "sliding_window_pattern", family->pattern, 0);
    return masks;
}

bool masks_has_window(const Masks *m, int layer)
{
    const json_t *type = json_array_get(m->types, (size_t)layer);
    if (type)
        return is_type(type, "sliding_attention");
    switch (m->family->windows) {
    case WINDOWS_BY_FLAG: return layer >= m->from;
    case WINDOWS_WITHOUT_ROPE: return is_without_rope(m->config, layer);
    case WINDOWS_IN_ALL: return true;
    case WINDOWS_BUT_FOURTH: return layer % 4 != 0;
    case WINDOWS_IN_RUNS:
    case WINDOWS_BY_PATTERN: return m->pattern > 0 && (layer + 1) % m->pattern != 0;
    default: return false;
    }
}

/* ---- layers that choose blocks of keys with an indexer ---- */

bool plan_has_indexer(const BurstPlan *p, int layer)
{
    const BurstUnit *u = burst_unit(p, 1 + layer);
    for (int t = 0; t < u->tensors; t++)
        if (strcmp(u->tensor[t].name, BURST_INDEXER_TENSORS "q_proj.weight") == 0)
            return true;
    return false;
}

bool config_has_indexer(const Family *f, const json_t *config, int layer)
{
    const json_t *types = json_object_get(config, "layer_types");
    bool has = false;
    for (size_t i = 0; f->index && i < json_array_size(types); i++) {
        const char *type = json_string_value(json_array_get(types, i));
        has |= type && (layer < 0 || (size_t)layer == i) && strcmp(type, f->index->type) == 0;
    }
    return has;
}

void plan_index_blocks(const BurstPlan *p, HfModel *m)
{
    long long n = 0, block = 0, local = 1;
    for (int l = 0; l < p->layers && p->indexer.heads && !block; l++) {
        const BurstMask *mask = p->masks ? p->masks[p->layer_mask[l]] : NULL;
        if (!mask || !mask->selection || !plan_has_indexer(p, l))
            continue;
        n = mask->selection->top, block = mask->selection->block;
        if (sscanf(mask->text, "msa(%lld, %lld, %lld)", &n, &block, &local) != 3)
            local = 1;
    }
    m->index_block = block, m->index_top = n + local, m->index_local = local;
}

static json_int_t index_number(const json_t *config, const char *name, int absent)
{
    const json_t *value = json_object_get(config, name);
    return given(value) ? json_integer_value(value) : absent;
}

void index_mask(const Family *f, const json_t *config, char text[MASK_TEXT])
{
    const IndexFields *x = f->index;
    const json_int_t local = index_number(config, x->local, x->absent_local);
    snprintf(text, MASK_TEXT, "msa(%lld, %lld, %lld)",
             (long long)(index_number(config, x->top, x->absent_top) - local),
             (long long)index_number(config, x->block, x->absent_block), (long long)local);
}

void index_text(FILE *out, const HfModel *m)
{
    const int turns = m->rope.rotary ? m->rope.rotary : (int)m->head_dim;
    if (!m->parts.layer.indexer)
        return;
    fprintf(out,
            "indexer ix { heads %lld; dim %lld; norm rmsnorm; rotary %d; from hidden; train frozen; }\n"
            "# Tiles of 128 queries choose together, by their first; a model of transformers chooses for "
            "each query.\n"
            "select msa(n, b, l) = top n of k / b by ix(first Q, max K) for kv_head per 128 queries\n"
            "  where causal always q / b - k / b < l;\n",
            (long long)m->index_heads, (long long)m->index_dim, turns);
}

void index_check(Misfits *m, const HfModel *there)
{
    enum { TILE = 128 };
    const IndexFields *x = there->family->index;
    const int64_t turns = there->rope.rotary ? there->rope.rotary : there->head_dim;
    if (!x || !there->parts.layer.indexer)
        return;
    if (there->index_block != TILE)
        misfit(m, "%s is %lld; only %d, the queries that choose together, is computed", x->block,
               (long long)there->index_block, TILE);
    if (there->index_top <= there->index_local)
        misfit(m, "%s is %lld; only a number above %s, which is %lld, is computed", x->top,
               (long long)there->index_top, x->local, (long long)there->index_local);
    if (there->index_dim < turns)
        misfit(m, "%s is %lld; only a number from %lld on, the elements of a head that turn, is computed",
               x->dim, (long long)there->index_dim, (long long)turns);
    if (there->kv_heads && there->index_heads % there->kv_heads)
        misfit(m, "%s is %lld; only a multiple of num_key_value_heads, which is %lld, is computed", x->heads,
               (long long)there->index_heads, (long long)there->kv_heads);
}

/* ---- masks of layers ---- */

void masks_layer(const Masks *m, int layer, char text[MASK_TEXT])
{
    if (m->texts)
        snprintf(text, MASK_TEXT, "%s", json_string_value(json_array_get(m->texts, (size_t)layer)));
    else if (config_has_indexer(m->family, m->config, layer))
        index_mask(m->family, m->config, text);
    else if (m->window && !m->wide && masks_has_window(m, layer))
        snprintf(text, MASK_TEXT, "%swindow(%lld)", m->causal ? "" : "bidirectional ",
                 (long long)m->window);
    else
        snprintf(text, MASK_TEXT, "%s", m->causal ? "causal" : "full");
}

/* A window at least as long as the sequence equals causal; a layer without attention has none. */
static bool same_mask(const char *here, const BurstPlan *p, const Masks *m, int layer)
{
    char there[MASK_TEXT];
    Masks seen = *m;
    masks_layer(m, layer, there);
    seen.wide = m->window >= p->sequence;
    if (strcmp(there, here) == 0 || !plan_attends(p, layer))
        return true;
    masks_layer(&seen, layer, there);
    return strcmp(there, here) == 0;
}

/* The first layer with another mask; -1: none. */
int masks_other_layer(const BurstPlan *p, const Masks *m)
{
    int layer = 0;
    while (layer < p->layers && same_mask(plan_mask_text(p, layer), p, m, layer))
        layer++;
    return layer < p->layers ? layer : -1;
}

int masks_other_in_document(const BurstPlan *p, const Masks *m)
{
    int layer = 0;
    while (layer < p->layers && same_mask(plan_mask_in_document(p, layer), p, m, layer))
        layer++;
    return layer < p->layers ? layer : -1;
}

/* Whether the folder sets any mask other than plain causal. */
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

/* Compares masks in a folder that burstc wrote. */
static void compare_written(const BurstCtx *c, const BurstPlan *p, const json_t *there, const char *path,
                            Misfits *m)
{
    json_t *here = masks_of(p);
    const bool equal = json_equal(there, here);
    if (!equal && !m->plan_masks)
        misfit_of(m, MISFIT_MASKS, "burst_attention differs from the plan's masks" TRAINS);
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
    scans_check(m, p, config, model);
    if (m->count > before)
        return;
    if (written) {
        compare_written(c, p, written, path, m);
        return;
    }
    const int layer = masks_other_layer(p, &masks);
    if (layer < 0)
        return;
    masks_layer(&masks, layer, there);
    if (says_masks(p, &masks) && !m->plan_masks)
        misfit_of(m, MISFIT_MASKS, "the mask of layer %d is %s, expected %s" TRAINS, layer, there,
                     plan_mask_text(p, layer));
    else if (c->rank == 0 && !m->count)
        say_line("using the plan's masks: for layer %d, %s in '%s' differs from %s in the plan", layer, there,
                 path, plan_mask_text(p, layer));
}

/* ---- a folder that burstc wrote ---- */

/* "name" or "name(1, 2)", as models call a mask. */
static bool is_call(const char *text)
{
    const size_t name = strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789");
    const size_t rest = strlen(text) - name, values = strspn(text + name + (rest > 0), "-0123456789, ");
    if (name == 0 || (text[0] >= '0' && text[0] <= '9') || strlen(text) >= MASK_TEXT)
        return false;
    return rest == 0 || (text[name] == '(' && values + 2 == rest && text[name + rest - 1] == ')');
}

void masks_take_written(Misfits *m, int layers, const json_t *config, Masks *masks)
{
    const json_t *texts = json_object_get(config, "burst_attention");
    char text[VALUE_TEXT];
    bool right = json_array_size(texts) == (size_t)layers;
    for (int i = 0; right && i < layers; i++) {
        const char *call = json_string_value(json_array_get(texts, (size_t)i));
        right = call && is_call(call);
    }
    if (right)
        masks->texts = texts;
    value_text(texts, text);
    if (given(texts) && !right)
        misfit(m, "burst_attention is %s, expected a list of %d masks such as \"window(16)\"", text, layers);
}
