/* safetensors/foreign.c: folders and files that hold a model in another form: an adapter, another library's
 * weights, links to files that were not downloaded. One line says what to do first, instead of the errors
 * that would follow. */
#include "safetensors/safetensors.h"

#include "core/context.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- files ---- */

/* Kinds of file by their first bytes, if the name says otherwise. */
static const struct {
    const char *begins, *what;
} contents[] = {
    {"version https://git-lfs",
     "is a git-lfs pointer, not the file itself; run `git lfs pull` in its folder"},
    {"<!DOCTYPE", "is a web page, not the file itself; download it again, signed in if the model is gated"},
    {"<!doctype", "is a web page, not the file itself; download it again, signed in if the model is gated"},
    {"<html", "is a web page, not the file itself; download it again, signed in if the model is gated"},
    {"GGUF", "is a GGUF file; `burstc import` of a folder that has only .gguf files says how to convert one"},
    {"PK\x03\x04",
     "was written by torch.save; load it in torch, and write it by safetensors.torch.save_file"},
};

const char *foreign_content(const char *begin, size_t bytes)
{
    for (size_t i = 0; i < sizeof contents / sizeof *contents; i++)
        if (bytes >= strlen(contents[i].begins) &&
            memcmp(begin, contents[i].begins, strlen(contents[i].begins)) == 0)
            return contents[i].what;
    return NULL;
}

/* ---- folders ---- */

/* Weights in other forms, by a file in the folder; the first match is reported. In a text '@' is the folder,
 * '#' the file. */
static const struct {
    const char *pattern, *what;
} forms[] = {
    {"pytorch_model*.bin", "convert its weights (#) first, in Python: transformers.AutoModelForCausalLM."
                           "from_pretrained(\"@\", dtype=\"auto\").save_pretrained(\"CONVERTED\")"},
    {"*.gguf", "it has only GGUF files; convert one first, in Python: transformers.AutoModelForCausalLM."
               "from_pretrained(\"@\", gguf_file=\"#\").save_pretrained(\"CONVERTED\"), or download the "
               "folder from which it was made"},
    {"consolidated*.pth",
     "its weights (#) are in Meta's own form; download the model's Hugging Face files, or "
     "convert them by transformers' convert_llama_weights_to_hf.py"},
    {"consolidated*.safetensors",
     "its weights (#) are in Mistral's own form; download the model's Hugging Face files "
     "(model.safetensors, or its shards and their index)"},
    {"model-*-of-*.safetensors",
     "it has #, but model.safetensors.index.json, which lists the shards, is missing; download that too"},
    {"zero_to_fp32.py", "it is a DeepSpeed checkpoint; convert it first: python @/# @ CONVERTED "
                        "--safe_serialization"},
    {"*.distcp", "it is a sharded FSDP checkpoint; merge it first: accelerate merge-weights @ MERGED"},
    {"tf_model.h5",
     "its weights (#) are TensorFlow's; convert them with transformers 4: "
     "AutoModelForCausalLM.from_pretrained(\"@\", from_tf=True).save_pretrained(\"CONVERTED\")"},
    {"flax_model.msgpack",
     "its weights (#) are Flax's; convert them with transformers 4: "
     "AutoModelForCausalLM.from_pretrained(\"@\", from_flax=True).save_pretrained(\"CONVERTED\")"},
    {"*.safetensors",
     "its weights must be in model.safetensors, or in shards that model.safetensors.index.json "
     "lists; it has only #"},
};

/* The first matching name in alphabetical order; false: none. */
static bool first_match(const char *folder, const char *pattern, char name[NAME_MAX + 1])
{
    DIR *d = opendir(folder);
    name[0] = 0;
    for (struct dirent *e; d && (e = readdir(d)) != NULL;)
        if (fnmatch(pattern, e->d_name, FNM_PERIOD) == 0 && (!name[0] || strcmp(e->d_name, name) < 0))
            snprintf(name, NAME_MAX + 1, "%s", e->d_name);
    if (d)
        closedir(d);
    return name[0];
}

/* Whether PEFT can merge what this type trains into the model's weights. */
static bool is_mergeable(const char *type)
{
    static const char *const others[] = {"PROMPT_TUNING",
                                         "MULTITASK_PROMPT_TUNING",
                                         "P_TUNING",
                                         "PREFIX_TUNING",
                                         "ADAPTION_PROMPT",
                                         "CPT",
                                         "POLY",
                                         "XLORA"};
    for (size_t i = 0; type && i < sizeof others / sizeof *others; i++)
        if (strcmp(type, others[i]) == 0)
            return false;
    return true;
}

static void misfit_adapter(Misfits *m, const char *folder)
{
    BurstCtx unheard = {.rank = -1};
    char path[PATH_MAX];
    json_t *config = NULL;
    const bool read = snprintf(path, sizeof path, "%s/adapter_config.json", folder) < (int)sizeof path &&
                      load_json(&unheard, path, &config) == BURST_OK;
    const char *type = read ? json_string_value(json_object_get(config, "peft_type")) : NULL,
               *base = read ? json_string_value(json_object_get(config, "base_model_name_or_path")) : NULL;
    if (is_mergeable(type))
        misfit_alone(
            m,
            "it has an adapter (adapter_config.json: %s of %s); merge it into that model first, in Python: "
            "peft.AutoPeftModelForCausalLM.from_pretrained(\"%s\").merge_and_unload().save_pretrained("
            "\"MERGED\")",
            type ? type : "PEFT", base && *base ? base : "an unnamed model", folder);
    else
        misfit_alone(
            m,
            "it has an adapter of the type %s (adapter_config.json), which cannot be merged into weights "
            "and is not computed; start from its base, %s",
            type, base && *base ? base : "which it does not name");
    json_decref(config);
}

/* Whether a name has the form of the Hugging Face hub, owner/model. */
static bool is_hub_name(const char *name)
{
    const char *slash = strchr(name, '/');
    return slash && slash > name && slash[1] && !strchr(slash + 1, '/') && !strchr(".~/", name[0]);
}

void folder_hint(const char *folder, char hint[FOLDER_HINT])
{
    hint[0] = 0;
    if (folder[0] == '~')
        snprintf(hint, FOLDER_HINT, "; '~' is not expanded here: write the whole path");
    else if (is_hub_name(folder))
        snprintf(hint, FOLDER_HINT,
                 "; names of the Hugging Face hub are not looked up: hf download %.200s --local-dir %.200s",
                 folder, folder);
}

/* A subfolder with a config.json, as downloads and trainings create; false: none. */
static bool inner_folder(const char *folder, char inner[NAME_MAX + 1])
{
    char path[PATH_MAX];
    bool found = false;
    DIR *d = opendir(folder);
    for (struct dirent *e; d && (e = readdir(d)) != NULL;)
        if (e->d_name[0] != '.' &&
            snprintf(path, sizeof path, "%s/%s/config.json", folder, e->d_name) < (int)sizeof path &&
            access(path, F_OK) == 0 && (!found || strcmp(e->d_name, inner) < 0)) {
            snprintf(inner, NAME_MAX + 1, "%s", e->d_name);
            found = true;
        }
    if (d)
        closedir(d);
    return found;
}

/* Reports why a folder has no config.json. */
static void misfit_place(Misfits *m, const char *folder)
{
    char inner[NAME_MAX + 1], path[PATH_MAX], hint[FOLDER_HINT];
    struct stat st;
    folder_hint(folder, hint);
    if (stat(folder, &st) != 0)
        misfit_alone(m, "cannot read '%s/config.json': %s%s", folder, strerror(errno), hint);
    else if (!S_ISDIR(st.st_mode))
        misfit_alone(m, "it is a file; name the folder that has it");
    else if (snprintf(path, sizeof path, "%s/config.json", folder) < (int)sizeof path &&
             lstat(path, &st) == 0)
        misfit_alone(m,
                     "cannot read '%s': it is a link to a file that is not there; download the folder again",
                     path);
    else if (errno != ENOENT)
        misfit_alone(m, "cannot read '%s': %s", path, strerror(errno));
    else if (inner_folder(folder, inner))
        misfit_alone(m, "it has no config.json; '%s/%s' has one", folder, inner);
    else if (snprintf(path, sizeof path, "%s/snapshots", folder) < (int)sizeof path &&
             inner_folder(path, inner))
        misfit_alone(m, "it is a cache of the Hugging Face hub; the model's folder is '%s/%s'", path, inner);
    else
        misfit_alone(m, "it has no config.json, which describes the model");
}

/* Whether the folder cannot be read, whatever the plan. */
static bool ends_here(Misfits *m)
{
    if (m->alone)
        m->status = BURST_E_IO;
    return m->alone;
}

void misfit_filled(Misfits *m, const char *pattern, const char *folder, const char *file)
{
    char text[MISFIT_TEXT] = "";
    for (size_t n = 0; *pattern && n < sizeof text - 1; n = strlen(text), pattern++) {
        const char letter[] = {*pattern, 0}, *named = *pattern == '@' ? folder : file;
        snprintf(text + n, sizeof text - n, "%s", *pattern == '@' || *pattern == '#' ? named : letter);
    }
    misfit_alone(m, "%s", text);
}

bool weights_are_foreign(Misfits *m, const char *folder)
{
    char name[NAME_MAX + 1];
    for (size_t i = 0; i < sizeof forms / sizeof *forms && !m->alone && !folder_has_weights(folder); i++)
        if (first_match(folder, forms[i].pattern, name))
            misfit_filled(m, forms[i].what, folder, name);
    return ends_here(m);
}

bool folder_is_foreign(Misfits *m, const char *folder)
{
    if (folder_has_file(folder, "adapter_config.json"))
        misfit_adapter(m, folder);
    else if (!folder_has_file(folder, "config.json") && !weights_are_foreign(m, folder))
        misfit_place(m, folder);
    return ends_here(m);
}

bool files_are_foreign(Misfits *m, const HfFolder *f)
{
    char path[PATH_MAX], begin[FOREIGN_BEGIN];
    for (int i = 0; i < f->names && !m->alone; i++) {
        const bool named = snprintf(path, sizeof path, "%s/%s", f->path, f->name[i]) < (int)sizeof path;
        const int fd = named ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY) : -1;
        const ssize_t bytes = fd < 0 ? 0 : pread(fd, begin, sizeof begin, 0);
        const char *what = bytes > 0 ? foreign_content(begin, (size_t)bytes) : NULL;
        if (what)
            misfit_alone(m, "'%s' %s", path, what);
        if (fd >= 0)
            close(fd);
    }
    return ends_here(m);
}

/* ---- tensors ---- */

/* Prefixes that wrappers of a model put before its tensors' names. */
static const struct {
    const char *prefix, *what;
} wrappers[] = {
    {"base_model.model.", "of a PEFT model; save the model that merge_and_unload() returns instead"},
    {"_orig_mod.", "of a model from torch.compile; save its _orig_mod instead"},
    {"module.", "of DistributedDataParallel or DeepSpeed; save the module that they hold instead"},
    {"_fsdp_wrapped_module.", "of FSDP; save the state dict that accelerate's get_state_dict(model) returns"},
    {"pretrained_model.", "of a model with a value head; save its pretrained_model instead"},
    {"model.model.", "of an object that holds the model; save its `model` instead"},
};

bool names_are_foreign(Misfits *m, const HfFolder *f)
{
    for (int i = 0; i < f->entries && !m->alone; i++)
        for (size_t w = 0; w < sizeof wrappers / sizeof *wrappers && !m->alone; w++)
            if (strncmp(f->entry[i].tensor->name, wrappers[w].prefix, strlen(wrappers[w].prefix)) == 0)
                misfit_alone(m, "its tensors' names (%s) are those %s", f->entry[i].tensor->name,
                             wrappers[w].what);
            else if (strstr(f->entry[i].tensor->name, ".lora_A."))
                misfit_alone(m,
                             "it has tensors of LoRA beside the weights (%s); save the model that PEFT's "
                             "merge_and_unload() returns instead",
                             f->entry[i].tensor->name);
    return ends_here(m);
}
