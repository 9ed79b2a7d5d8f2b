/* safetensors/layer_ropes.c: layers whose rotary embedding differs from the model's, by config.json. */
#include "safetensors/safetensors.h"

#include <stdio.h>
#include <string.h>

enum { INTERVAL = 4 }; /* default of no_rope_layer_interval */

/* SmolLM3: 1 means RoPE, 0 none. */
bool is_without_rope(const json_t *config, int layer)
{
    const json_t *list = json_object_get(config, "no_rope_layers"),
                 *interval = json_object_get(config, "no_rope_layer_interval");
    const json_int_t each = given(interval) ? json_integer_value(interval) : INTERVAL;
    return given(list) ? json_integer_value(json_array_get(list, (size_t)layer)) == 0
                       : each > 0 && (layer + 1) % each == 0;
}

static bool turns_by_word(const json_t *config)
{
    const char *word = json_string_value(json_object_get(config, "position_embedding_type"));
    return word && strcmp(word, "rope") == 0;
}

static bool turns_by_theta(const json_t *config)
{
    const json_t *block = json_object_get(config, "rope_parameters"),
                 *theta = json_object_get(json_is_object(block) ? block : config, "rope_theta");
    return !theta || !json_is_null(theta);
}

static bool is_other(const HfModel *m, const json_t *config, const Masks *masks, int layer)
{
    switch (m->family->layer_ropes) {
    case ROPES_LISTED: return is_without_rope(config, layer);
    case ROPES_OF_WINDOWS: return masks->window && !masks_has_window(masks, layer);
    case ROPES_IN_WINDOWS: return !masks->window || !masks_has_window(masks, layer);
    case ROPES_BY_WORD: return !turns_by_word(config);
    case ROPES_NONE: return true;
    case ROPES_BY_THETA: return !turns_by_theta(config);
    case ROPES_BY_TYPE: return masks->window && masks_has_window(masks, layer);
    default: return false;
    }
}

BurstRope layer_rope(const HfModel *m, const json_t *config, const Masks *masks, int layer)
{
    if (!is_other(m, config, masks, layer))
        return m->rope;
    BurstRope none = {.rotary = m->rope.rotary, .interleaved = m->rope.interleaved};
    return m->family->layer_ropes == ROPES_BY_TYPE ? m->local_rope : none;
}

static void check_list(Misfits *m, const json_t *config, const HfModel *there)
{
    const json_t *list = json_object_get(config, "no_rope_layers");
    bool right = true;
    char text[VALUE_TEXT];
    if (there->family->layer_ropes != ROPES_LISTED || !given(list))
        return;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *value = json_array_get(list, i);
        right = right && json_is_integer(value) && json_integer_value(value) / 2 == 0;
    }
    value_text(list, text);
    if (!right || json_array_size(list) < (size_t)there->layers)
        misfit(m, "no_rope_layers is %s; only a list of a 0 or 1 for each layer is computed", text);
}

void layer_ropes_check(Misfits *m, const BurstPlan *p, const json_t *config, const HfModel *there,
                       const Masks *masks)
{
    const int before = m->count;
    check_list(m, config, there);
    for (int i = 0; p && i < p->layers && m->count == before && !m->other_rope; i++) {
        const BurstRope *here = p->ropes ? &p->ropes[p->layer_rope[i]] : &p->rope;
        BurstRope seen = layer_rope(there, config, masks, i);
        char text[ROPE_TEXT], other[ROPE_TEXT];
        seen.length = here->length;
        rope_text(&seen, text, sizeof text);
        rope_text(here, other, sizeof other);
        if ((p->ropes || there->family->layer_ropes) && !rope_same(&seen, here))
            misfit_rope(m, "the rope of layer %d is %s, and the plan's is %s", i, text, other);
    }
}

/* Writes the runs of layers whose embedding differs from the model's. */
void layer_ropes_text(FILE *out, const HfModel *m, const json_t *config, const Masks *masks)
{
    for (int from = 0, to; from < m->layers; from = to) {
        const BurstRope r = layer_rope(m, config, masks, from);
        char text[ROPE_TEXT];
        for (to = from + 1; to < m->layers; to++) {
            const BurstRope next = layer_rope(m, config, masks, to);
            if (!rope_same(&r, &next))
                break;
        }
        if (rope_same(&r, &m->rope))
            continue;
        rope_text(&r, text, sizeof text);
        if (to > from + 1)
            fprintf(out, "  rope layers %d .. %d: %s%s\n", from, to - 1, text, r.kind ? "" : ";");
        else
            fprintf(out, "  rope layers %d: %s%s\n", from, text, r.kind ? "" : ";");
    }
}

static bool any_turns(const BurstPlan *p)
{
    for (int i = 0; i < p->layers; i++)
        if (!p->ropes || p->ropes[p->layer_rope[i]].theta > 0)
            return true;
    return false;
}

bool layer_ropes_write(json_t *config, const BurstPlan *p, const Family *family)
{
    json_t *list = family->layer_ropes == ROPES_LISTED ? json_array() : NULL;
    if (family->layer_ropes == ROPES_BY_THETA)
        return any_turns(p) || json_object_set_new(config, "rope_theta", json_null()) == 0;
    if (family->layer_ropes == ROPES_BY_WORD)
        return json_object_set_new(config, "position_embedding_type",
                                   any_turns(p) ? json_string("rope") : json_null()) == 0;
    if (family->layer_ropes != ROPES_LISTED)
        return true;
    for (int i = 0; list && i < p->layers; i++)
        json_array_append_new(list, json_integer(!p->ropes || p->ropes[p->layer_rope[i]].theta > 0));
    return json_object_set_new(config, "no_rope_layers", list) == 0;
}
