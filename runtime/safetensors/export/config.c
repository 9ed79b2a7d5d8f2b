/* safetensors/export/config.c: config.json of an export: written, then read back like any folder's, before
 * training starts. */
#include "safetensors/safetensors.h"

/* The config.json of a text model. */
static json_t *make(const BurstPlan *p, int dtype, json_t *source, bool part)
{
    const char *name = dtype == BURST_F32 ? "float32" : "bfloat16";
    const HfModel model = model_of(p);
    json_t *end = p->train.separator < 0 ? json_null() : json_integer((json_int_t)p->train.separator);
    json_t *config = json_pack("{s:[s], s:I, s:s, s:n, s:n, s:o}", "architectures",
                               model.family->architecture, "max_position_embeddings", (json_int_t)p->sequence,
                               "torch_dtype", name, "bos_token_id", "pad_token_id", "eos_token_id", end);
    bool made = config && model_write(config, &model) && layer_ropes_write(config, p, model.family);
    if (made && model.family->bos)
        made = json_object_del(config, "bos_token_id") == 0;
    if (made && source)
        carry_fields(config, source, &model, part);
    made = made && masks_write(config, p, &model, source) && layer_types_write(config, model.family);
    if (!made)
        json_decref(config);
    return made ? config : NULL;
}

json_t *config_make(const BurstPlan *p, int dtype, json_t *whole)
{
    const bool part = whole && whole_of(whole);
    json_t *source = whole ? text_part(whole, !p->tied) : NULL, *config = make(p, dtype, source, part);
    if (config && part)
        config = text_part_put(config, whole, model_of(p).family);
    json_decref(source);
    return config;
}

int config_check_export(BurstCtx *c, const BurstPlan *p, const char *folder, json_t *whole)
{
    Misfits m = {0};
    HfModel there;
    const HfModel plan = model_of(p);
    json_t *made = config_make(p, BURST_F32, whole), *config = made ? text_part(made, !p->tied) : NULL;
    json_decref(made);
    if (!config)
        return burst_fail(c, BURST_E_MEMORY, "out of memory for 'config.json'");
    config_read(&m, config, &plan, &there);
    const Masks masks = masks_read(&m, p->layers, config, plan.family);
    layer_ropes_check(&m, p, config, &there, &masks);
    scans_check(&m, p, config, &there);
    if (!m.count)
        masks_say_unread(p, config, plan.family, folder);
    const int status = !m.count ? BURST_OK
                                : burst_fail(c, BURST_E_USAGE,
                                             "cannot export to '%s': no config.json of a %s describes this "
                                             "model: %s; train without --export, or change the model",
                                             folder, plan.family->type, m.misfit[0].text);
    misfits_close(&m);
    json_decref(config);
    return status;
}
