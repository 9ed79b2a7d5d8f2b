/* safetensors/config.c: compares a folder's config.json with the plan field by field, and writes one.
 * model.c handles the fields that a plan has, fields.c all others. */
#include "safetensors/safetensors.h"

#include "core/context.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- values ---- */

void value_text(const json_t *value, char text[VALUE_TEXT])
{
    char *dumped = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(9));
    snprintf(text, VALUE_TEXT, "%s", dumped ? dumped : "missing");
    if (dumped && strlen(dumped) >= VALUE_TEXT)
        memcpy(text + VALUE_TEXT - 4, "...", 3);
    free(dumped);
}

/* Compares real numbers with few digits, and integers with or without a point. */
bool same_value(const json_t *a, const json_t *b)
{
    if (!json_is_number(a) || !json_is_number(b) || (json_is_integer(a) && json_is_integer(b)))
        return json_equal(a, b);
    const double x = json_number_value(a), y = json_number_value(b);
    return fabs(x - y) <= 1e-6 * fabs(x);
}

bool given(const json_t *value)
{
    return value && !json_is_null(value);
}

/* ---- checking ---- */

static void check_architectures(Misfits *m, const Family *f, const json_t *there)
{
    char text[VALUE_TEXT];
    const char *first = json_string_value(json_array_get(there, 0));
    const bool one = json_array_size(there) == 1 && first;
    if (!given(there) || (one && strcmp(first, f->architecture) == 0) ||
        (one && f->published && strcmp(first, f->published) == 0))
        return;
    value_text(there, text);
    misfit(m, "architectures is %s; only %s is computed", text,
           f->published ? f->published : f->architecture);
}

/* Warns: transformers gives this token's embedding no gradient. */
static void say_padding(const BurstCtx *c, const char *path, const json_t *token)
{
    char text[VALUE_TEXT];
    if (c->rank != 0 || !given(token))
        return;
    value_text(token, text);
    say_line("%s sets pad_token_id to %s; transformers does not train that token, this program does", path,
             text);
}

bool config_is_compared(const Family *family, const char *name)
{
    if (strcmp(name, "architectures") == 0 || strcmp(name, "pad_token_id") == 0)
        return true;
    if (family->own_code && strcmp(name, "auto_map") == 0)
        return true;
    return masks_has_field(family, name) || model_has_field(family, name);
}

void config_read(Misfits *m, const json_t *config, const HfModel *plan, HfModel *there)
{
    model_read(m, config, plan, there);
    check_architectures(m, there->family, json_object_get(config, "architectures"));
    config_check_others(m, config, there->family);
}

int config_check(BurstCtx *c, const BurstPlan *p, const char *folder, Misfits *m, const Family **family)
{
    char path[PATH_MAX];
    json_t *config = NULL;
    const HfModel plan = model_of(p);
    HfModel there;
    *family = plan.family;
    BURST_TRY(config_open(c, folder, m, path, &config));
    if (!config)
        return BURST_OK;
    config_read(m, config, &plan, &there);
    config_check_masks(c, p, config, &there, path, m);
    if (m->compiling)
        rope_check_length(m, p, config, &there);
    if (!m->count && m->plan_rope && m->other_rope && c->rank == 0)
        say_line("using the plan's RoPE, which differs from that in '%s'", path);
    if (!m->count)
        say_padding(c, path, json_object_get(config, "pad_token_id"));
    *family = there.family;
    json_decref(config);
    return BURST_OK;
}

int config_load(BurstCtx *c, const char *folder, char path[PATH_MAX], json_t **config)
{
    json_t *whole = NULL;
    const int status = config_load_whole(c, folder, path, &whole);
    if (!whole)
        return status;
    *config = text_part(whole, whole_of(whole) && folder_has_head(c, folder));
    json_decref(whole);
    return *config ? status : burst_fail(c, BURST_E_MEMORY, "out of memory for '%s'", path);
}

int config_open(BurstCtx *c, const char *folder, Misfits *m, char path[PATH_MAX], json_t **config)
{
    *config = NULL;
    if (folder_is_foreign(m, folder))
        return BURST_OK;
    const int status = config_load(c, folder, path, config);
    const bool alone = *config && (config_is_unsupported(m, *config) ||
                                   (status == BURST_OK && (config_is_quantized(m, *config, folder) ||
                                                           weights_are_foreign(m, folder))));
    if (!alone && status == BURST_OK)
        return BURST_OK;
    json_decref(*config);
    *config = NULL;
    return alone ? BURST_OK : status;
}

int config_load_whole(BurstCtx *c, const char *folder, char path[PATH_MAX], json_t **config)
{
    if (snprintf(path, PATH_MAX, "%s/config.json", folder) >= PATH_MAX)
        return burst_fail(c, BURST_E_IO, "the name of %s is too long", folder);
    return load_json(c, path, config);
}
