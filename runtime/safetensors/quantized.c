/* safetensors/quantized.c: folders of quantized weights: one line says what turns them back, by the method.
 */
#include "safetensors/safetensors.h"

#include "core/context.h"

#include <string.h>

#define GPTQMODEL \
    "dequantize them first, in Python: gptqmodel.utils.model_dequant.dequantize_model(\"@\", " \
    "\"DEQUANTIZED\")"
#define BY_CONFIG(name) \
    "dequantize them first, in Python: transformers.AutoModelForCausalLM.from_pretrained(\"@\", " \
    "quantization_config=transformers." name "(dequantize=True)).save_pretrained(\"DEQUANTIZED\")"
#define BY_MODEL \
    "dequantize them first, in Python: " \
    "transformers.AutoModelForCausalLM.from_pretrained(\"@\").dequantize()." \
    "save_pretrained(\"DEQUANTIZED\")"

/* By quant_method; ending: of tensors that only this method has, NULL: there is none that says it. In a text
 * '@' is the folder. */
static const struct {
    const char *method, *ending, *how;
} methods[] = {
    {"bitsandbytes", ".absmax", BY_MODEL},
    {"bitsandbytes", ".SCB", BY_MODEL},
    {"higgs", NULL, BY_MODEL},
    {"fp8", ".weight_scale_inv", BY_CONFIG("FineGrainedFP8Config")},
    {"mxfp4", "_blocks", BY_CONFIG("Mxfp4Config")},
    {"compressed-tensors", ".weight_packed", BY_CONFIG("CompressedTensorsConfig")},
    {"gptq", ".g_idx", GPTQMODEL},
    {"awq", ".qweight", GPTQMODEL},
    {"auto-round", NULL, GPTQMODEL},
    {"mlx", NULL, "dequantize them first: mlx_lm.convert --hf-path @ --mlx-path DEQUANTIZED --dequantize"},
};
enum { METHODS = sizeof methods / sizeof *methods };

/* Files beside config.json in which a method says what it did. */
static const struct {
    const char *file, *method;
} files[] = {
    {"hf_quant_config.json", "modelopt"}, {"quantize_config.json", "gptq"}, {"quant_config.json", "awq"}};

/* The method by what config.json and files beside it say; NULL: they say none. */
static const char *method_of(const json_t *config, const char *folder)
{
    const json_t *said = json_object_get(config, "quantization_config");
    const char *method = json_string_value(json_object_get(said, "quant_method"));
    if (json_object_size(json_object_get(config, "quantization")) > 0)
        return "mlx";
    if (json_object_size(json_object_get(config, "compression_config")) > 0)
        return "compressed-tensors";
    if (json_is_true(json_object_get(said, "load_in_4bit")) ||
        json_is_true(json_object_get(said, "load_in_8bit")))
        return "bitsandbytes";
    for (size_t i = 0; i < sizeof files / sizeof *files && !method; i++)
        method = folder_has_file(folder, files[i].file) ? files[i].method : NULL;
    return method || json_object_size(said) == 0 ? method : "an unnamed method";
}

static void misfit_quantized(Misfits *m, const char *folder, const char *method, const char *seen)
{
    char text[MISFIT_TEXT];
    const char *how = "use the folder from which they were quantized";
    for (int i = METHODS; i-- > 0;)
        if (strcmp(methods[i].method, method) == 0)
            how = methods[i].how;
    snprintf(text, sizeof text, "its weights are quantized (%s: %s); %s", seen, method, how);
    misfit_filled(m, text, folder, "#");
}

static bool ends_with(const char *name, const char *ending)
{
    const size_t n = strlen(name), m = strlen(ending);
    return n > m && strcmp(name + n - m, ending) == 0;
}

/* A row of a method that has tensors of such a name; -1: there is none. */
static int row_of(const HfFolder *f, int entry)
{
    if (f->family->mxfp4 && ends_with(f->entry[entry].tensor->name, "_blocks"))
        return -1;
    for (int i = 0; i < METHODS; i++)
        if (methods[i].ending && ends_with(f->entry[entry].tensor->name, methods[i].ending))
            return i;
    return -1;
}

/* Whether there are weights, none of which is quantized. */
static bool is_plain(const char *folder)
{
    BurstCtx unheard = {.rank = -1};
    Misfits none = {0};
    HfFolder f = {.path = folder, .family = &families[0]};
    bool plain = folder_has_weights(folder) && folder_list(&unheard, &f, &none) == BURST_OK && !none.count;
    for (int i = 0; i < f.entries; i++)
        plain = plain && safetensors_readable(f.entry[i].tensor) && row_of(&f, i) < 0;
    misfits_close(&none);
    folder_close(&f);
    return plain;
}

bool config_is_quantized(Misfits *m, const json_t *config, const char *folder)
{
    const char *method = method_of(config, folder);
    const bool plain = method && is_plain(folder);
    if (plain && !given(json_object_get(config, "quantization_config")))
        return false; /* what is left is a file beside */
    if (!plain && config_is_mxfp4(config))
        return false;
    if (plain)
        misfit_alone(m,
                     "config.json says that the weights are quantized (%s), but none of them is; remove "
                     "quantization_config from it if they were dequantized",
                     method);
    else if (method)
        misfit_quantized(m, folder, method, "config.json");
    return method != NULL;
}

bool tensors_are_quantized(Misfits *m, const HfFolder *f)
{
    for (int i = 0; i < f->entries && !m->alone; i++)
        if (row_of(f, i) >= 0)
            misfit_quantized(m, f->path, methods[row_of(f, i)].method, f->entry[i].tensor->name);
    return m->alone;
}
