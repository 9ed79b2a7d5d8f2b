/* safetensors/text_part.c: folders whose text model is part of a larger model: converts config.json of that
 * part to a text model's, and back. Its tensors have another prefix (names.c); an export copies all
 * others. */
#include "safetensors/safetensors.h"

#include <string.h>

static const char part_name[] = "text_config";

/* Fields of the other parts, if config.json has the text model's fields next to them. */
static bool is_others(const char *name)
{
    static const char *const names[] = {"vision_config",   "image_token_id",        "video_token_id",
                                        "vision_token_id", "vision_start_token_id", "vision_end_token_id"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return false;
}

const Whole *whole_of(const json_t *config)
{
    const char *type = json_string_value(json_object_get(config, "model_type")),
               *part = json_string_value(json_object_get(json_object_get(config, part_name), "model_type"));
    for (const Whole *w = wholes; type && w->type; w++)
        if (strcmp(w->type, type) == 0 && (!part || strcmp(w->part, part) == 0))
            return w;
    return NULL;
}

static void take_outer(json_t *part, const json_t *config, const char *name)
{
    if (!json_object_get(part, name) && json_object_get(config, name))
        json_object_set(part, name, json_object_get(config, name));
}

/* Either config may say that weights are tied. If neither does, transformers ties them only if the folder
 * has no other head. */
static bool is_tied(const Whole *w, const json_t *config, const json_t *part, bool head)
{
    const json_t *outer = json_object_get(config, "tie_word_embeddings"),
                 *inner = json_object_get(part, "tie_word_embeddings");
    if (w->outer)
        return json_is_true(outer);
    if (json_is_true(inner) || json_is_boolean(outer))
        return json_is_true(inner) || json_is_true(outer);
    return w->tied && !head;
}

static json_t *part_of(const Whole *w, const json_t *config, bool head)
{
    static const char *const outer[] = {"bos_token_id", "eos_token_id", "pad_token_id", "quantization_config",
                                        "auto_map"};
    const json_t *nested = json_object_get(config, part_name),
                 *names = json_object_get(config, "architectures");
    json_t *part = json_deep_copy(json_is_object(nested) ? nested : config), *value;
    json_t *absent = w->absent ? json_loads(w->absent, 0, NULL) : NULL;
    const char *name, *first = json_string_value(json_array_get(names, 0));
    void *next;
    json_object_foreach_safe(part, next, name, value) if (is_others(name)) json_object_del(part, name);
    if (absent)
        json_object_update_missing(part, absent);
    json_decref(absent);
    for (size_t i = 0; i < sizeof outer / sizeof *outer; i++)
        take_outer(part, config, outer[i]);
    json_object_set_new(part, "tie_word_embeddings", json_boolean(is_tied(w, config, part, head)));
    json_object_set_new(part, "model_type", json_string(w->part));
    json_object_set(part, "architectures", names ? (json_t *)names : json_null());
    if (json_array_size(names) == 1 && first && strcmp(first, w->architecture) == 0)
        json_object_set_new(part, "architectures", json_pack("[s]", family_named(w->part)->architecture));
    return part;
}

json_t *text_part(json_t *config, bool head)
{
    const Whole *w = whole_of(config);
    return layer_types_read(w ? part_of(w, config, head) : json_incref(config));
}

/* Keeps fields of RoPE by three coordinates in a block that was rewritten. */
static void keep_mrope(json_t *part, const json_t *source)
{
    static const char *const blocks[] = {"rope_scaling", "rope_parameters"}, *const names[] = {
                                                                                 "mrope_section",
                                                                                 "mrope_interleaved"};
    json_t *block = json_object_get(part, "rope_scaling");
    for (size_t b = 0; b < sizeof blocks / sizeof *blocks; b++)
        for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
            json_t *value = json_object_get(json_object_get(source, blocks[b]), names[i]);
            if (value && json_is_object(block))
                json_object_set(block, names[i], value);
        }
}

/* Sets the dtype of files under both names, inside and outside. */
static void set_dtype(json_t *config, const json_t *written)
{
    static const char *const names[] = {"torch_dtype", "dtype"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (json_object_get(config, names[i]))
            json_object_set(config, names[i], json_object_get(written, "torch_dtype"));
}

/* Fields that keep the larger model's value. */
static bool is_outer(const char *name)
{
    static const char *const names[] = {"architectures", "model_type",   "torch_dtype",        "bos_token_id",
                                        "eos_token_id",  "pad_token_id", "tie_word_embeddings"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return false;
}

json_t *text_part_put(json_t *written, const json_t *whole, const Family *family)
{
    json_t *config = json_deep_copy(whole), *nested = json_object_get(config, part_name), *value,
           *part = json_is_object(nested) ? nested : config, *before = json_deep_copy(part);
    const char *name;
    void *next;
    json_object_foreach_safe(part, next, name, value) if (!is_outer(name) && (model_has_field(family, name) ||
                                                                              masks_has_field(family, name)))
        json_object_del(part, name);
    json_object_foreach(written, name, value) if (!is_outer(name)) json_object_set(part, name, value);
    if (family->mrope)
        keep_mrope(part, before);
    set_dtype(part, written);
    set_dtype(config, written);
    json_decref(before);
    json_decref(written);
    return config;
}
