/* safetensors/export/carry.c: what an export copies from the folder that its weights came from: the files of
 * the tokenizer, of generation and of the code that auto_map names, byte for byte, and the fields of
 * config.json that no plan has. */
#include "safetensors/safetensors.h"

#include "core/context.h"
#include "files/files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- files ---- */

static bool ends_with(const char *name, const char *ending)
{
    const size_t n = strlen(name), m = strlen(ending);
    return n > m && strcmp(name + n - m, ending) == 0;
}

bool is_carried(const char *name, bool code)
{
    static const char *const begins[] = {"tokenizer",    "tokenization_",  "special_tokens_map",
                                         "added_tokens", "vocab.",         "merges.",
                                         "spiece.",      "sentencepiece.", "tekken.",
                                         "tiktoken.",    "chat_template",  "generation_config.",
                                         "preprocessor", "processor_",     "video_preprocessor"};
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++)
        if (strncmp(name, begins[i], strlen(begins[i])) == 0)
            return true;
    return ends_with(name, ".tiktoken") || (code && ends_with(name, ".py"));
}

bool copy_bytes(int from, off_t from_at, int to, off_t to_at, off_t bytes)
{
    enum { PIECE = 1 << 16 };
    char piece[PIECE];
    for (off_t at = 0; at < bytes; at += PIECE) {
        const size_t n = bytes - at < PIECE ? (size_t)(bytes - at) : PIECE;
        if (!read_at(from, piece, n, from_at + at) || !write_at(to, piece, n, to_at + at))
            return false;
    }
    return true;
}

static int copy_file(BurstCtx *c, const char *from, const char *to)
{
    off_t bytes;
    const int in = open_regular(c, from, &bytes);
    if (in < 0)
        return BURST_E_IO;
    const int out = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    const int status = out < 0 ? io_failed(c, "write", to)
                               : close_written(c, out, copy_bytes(in, 0, out, 0, bytes), to);
    close(in);
    return status;
}

static int carry_file(BurstCtx *c, const char *source, const char *part, const char *name)
{
    char from[PATH_MAX], to[PATH_MAX];
    struct stat st;
    if (snprintf(from, sizeof from, "%s/%s", source, name) >= PATH_MAX ||
        snprintf(to, sizeof to, "%s/%s", part, name) >= PATH_MAX)
        return burst_fail(c, BURST_E_IO, "the path '%s/%s' is too long", source, name);
    return stat(from, &st) == 0 && S_ISREG(st.st_mode) ? copy_file(c, from, to) : BURST_OK;
}

int carry_files(BurstCtx *c, const char *source, bool code, const char *part)
{
    int status = BURST_OK;
    DIR *d = source ? opendir(source) : NULL;
    for (struct dirent *e; d && status == BURST_OK && (e = readdir(d)) != NULL;)
        if (is_carried(e->d_name, code))
            status = carry_file(c, source, part, e->d_name);
    if (d)
        closedir(d);
    return status;
}

/* ---- code in the folder ---- */

bool carries_code(const json_t *source, const Family *family)
{
    return family->own_code && json_object_size(json_object_get(source, "auto_map")) > 0;
}

/* "modeling_x.Class" is in modeling_x.py; "name--modeling_x.Class" is in another repository. */
static bool code_is_there(const char *folder, const char *class, char file[NAME_MAX])
{
    const char *dot = strchr(class, '.');
    char path[PATH_MAX];
    if (strstr(class, "--") || !dot)
        return true;
    const int n = snprintf(file, NAME_MAX, "%.*s.py", (int)(dot - class), class);
    return n < NAME_MAX && snprintf(path, sizeof path, "%s/%s", folder, file) < PATH_MAX &&
           access(path, R_OK) == 0;
}

/* A value of auto_map is a class, or a list of classes and nulls. */
static bool value_is_there(const char *folder, const json_t *value, char file[NAME_MAX])
{
    const char *class = json_string_value(value);
    if (class)
        return code_is_there(folder, class, file);
    for (size_t i = 0; i < json_array_size(value); i++)
        if (!value_is_there(folder, json_array_get(value, i), file))
            return false;
    return true;
}

void carry_say(const char *folder, const char *source, json_t *config, const Family *family)
{
    const char *key;
    json_t *value;
    char file[NAME_MAX] = "", said[NAME_MAX] = "";
    if (family->only_code && !carries_code(config, family))
        say_line("transformers has no %s of its own; to load '%s' it needs the code that published folders "
                 "bring: their .py files, and auto_map in config.json",
                 family->architecture, folder);
    else if (carries_code(config, family))
        json_object_foreach(json_object_get(config, "auto_map"), key, value)
        {
            if (value_is_there(source, value, file) || strcmp(file, said) == 0)
                continue;
            memcpy(said, file, sizeof said);
            say_line(
                "auto_map names code in %s, which '%s' does not have; transformers cannot load '%s' with "
                "it",
                file, source, folder);
        }
}

/* ---- fields ---- */

/* Fields about the tensors' files or the program that wrote the folder. */
static bool is_of_source(const char *name)
{
    static const char *const names[] = {"torch_dtype",        "dtype",        "transformers_version",
                                        "_name_or_path",      "name_or_path", "_commit_hash",
                                        "quantization_config"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return false;
}

/* The export writes layer_types or no_rope_layers for all layers, which overrides these fields. */
static bool is_overruled(const char *name)
{
    return strcmp(name, "max_window_layers") == 0 || strcmp(name, "sliding_window_pattern") == 0 ||
           strcmp(name, "no_rope_layer_interval") == 0;
}

/* How a model is trained: a plan that began from a folder with a balance loss has the same. */
static bool is_of_training(const char *name)
{
    return strcmp(name, "output_router_logits") == 0 || strcmp(name, "router_aux_loss_coef") == 0;
}

static bool is_carried_field(const HfModel *model, const char *name)
{
    return !is_of_source(name) && (is_overruled(name) || is_of_training(name) || model_has_no(model, name) ||
                                   !config_is_compared(model->family, name));
}

/* If the source lacks an id, the type's default applies. */
static void carry_ids(json_t *config, const json_t *source)
{
    static const char *const ids[] = {"bos_token_id", "eos_token_id", "pad_token_id"};
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        json_t *id = json_object_get(source, ids[i]);
        if (id)
            json_object_set(config, ids[i], id);
        else
            json_object_del(config, ids[i]);
    }
}

/* dynamic RoPE reads this length */
static void carry_length(json_t *config, const json_t *source, const HfModel *m)
{
    static const char name[] = "max_position_embeddings";
    json_t *there = json_object_get(source, name);
    if (m->rope.kind == BURST_ROPE_DYNAMIC || m->local_rope.kind == BURST_ROPE_DYNAMIC)
        return;
    if (json_integer_value(there) > json_integer_value(json_object_get(config, name)))
        json_object_set(config, name, there);
}

/* Code in the folder reads fields by its own names and with its own defaults. If the source describes the
 * same model, its fields are kept. */
static void carry_spelling(json_t *config, json_t *source, const HfModel *model)
{
    static const char *const as_there[] = {"auto_map", "architectures"};
    Misfits misfits = {0};
    HfModel there;
    const char *name;
    json_t *value;
    void *next;
    for (size_t i = 0; i < sizeof as_there / sizeof *as_there; i++)
        if (given(json_object_get(source, as_there[i])))
            json_object_set(config, as_there[i], json_object_get(source, as_there[i]));
    model_read(&misfits, source, model, &there);
    const bool same = misfits.count == 0;
    misfits_close(&misfits);
    if (!same)
        return;
    json_object_foreach_safe(config, next, name, value)
    {
        if (model_has_field(model->family, name) && !json_object_get(source, name))
            json_object_del(config, name);
    }
    json_object_foreach(source, name, value)
    {
        if (model_has_field(model->family, name))
            json_object_set(config, name, value);
    }
    value = json_object_get(source, "max_position_embeddings"); /* these kinds of RoPE read it */
    if (value && (there.rope.kind == BURST_ROPE_DYNAMIC || there.rope.kind == BURST_ROPE_LONGROPE))
        json_object_set(config, "max_position_embeddings", value);
}

void carry_fields(json_t *config, json_t *source, const HfModel *model, bool part)
{
    const Family *family = model->family;
    const char *name;
    json_t *value;
    carry_ids(config, source);
    carry_length(config, source, model);
    if (part || carries_code(source, family))
        carry_spelling(config, source, model);
    json_object_foreach(source, name, value)
    {
        if (!json_object_get(config, name) && is_carried_field(model, name))
            json_object_set(config, name, value);
    }
}
