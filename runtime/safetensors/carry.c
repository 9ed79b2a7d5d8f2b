/* safetensors/carry.c: what an export takes over from the folder that its weights came from: the files of the
 * tokenizer and of generation, byte by byte, and the fields of config.json that no plan has. */
#include "safetensors/safetensors.h"

#include "checkpoint/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PIECE = 1 << 16 };

/* ---- files ---- */

bool is_carried(const char *name)
{
    static const char *const begins[] = {"tokenizer",    "tokenization_",  "special_tokens_map",
                                         "added_tokens", "vocab.",         "merges.",
                                         "spiece.",      "sentencepiece.", "tekken.",
                                         "tiktoken.",    "chat_template",  "generation_config."};
    static const char ending[] = ".tiktoken";
    const size_t n = strlen(name), m = sizeof ending - 1;
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++)
        if (strncmp(name, begins[i], strlen(begins[i])) == 0)
            return true;
    return n > m && strcmp(name + n - m, ending) == 0;
}

static bool copy_bytes(int from, int to, off_t bytes)
{
    char piece[PIECE];
    for (off_t at = 0; at < bytes; at += PIECE) {
        const size_t n = bytes - at < PIECE ? (size_t)(bytes - at) : PIECE;
        if (!read_at(from, piece, n, at) || !write_at(to, piece, n, at))
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
                               : close_written(c, out, copy_bytes(in, out, bytes), to);
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

int carry_files(BurstCtx *c, const char *source, const char *part)
{
    int status = BURST_OK;
    DIR *d = source ? opendir(source) : NULL;
    for (struct dirent *e; d && status == BURST_OK && (e = readdir(d)) != NULL;)
        if (is_carried(e->d_name))
            status = carry_file(c, source, part, e->d_name);
    if (d)
        closedir(d);
    return status;
}

/* ---- fields ---- */

/* Of the tensors' files, or of who wrote the folder. */
static bool is_of_source(const char *name)
{
    static const char *const names[] = {"torch_dtype",   "dtype",        "transformers_version",
                                        "_name_or_path", "name_or_path", "_commit_hash"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return false;
}

/* By the list of all layers, layer_types or no_rope_layers, that the export has. */
static bool is_overruled(const char *name)
{
    return strcmp(name, "max_window_layers") == 0 || strcmp(name, "sliding_window_pattern") == 0 ||
           strcmp(name, "no_rope_layer_interval") == 0;
}

static bool is_carried_field(const Family *family, const char *name)
{
    return !is_of_source(name) && (is_overruled(name) || !config_is_compared(family, name));
}

/* A source that does not have an id means its type's own. */
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

static void carry_length(json_t *config, const json_t *source)
{
    static const char name[] = "max_position_embeddings";
    json_t *there = json_object_get(source, name);
    if (json_integer_value(there) > json_integer_value(json_object_get(config, name)))
        json_object_set(config, name, there);
}

void carry_fields(json_t *config, json_t *source, const Family *family)
{
    const char *name;
    json_t *value;
    if (!source)
        return;
    carry_ids(config, source);
    carry_length(config, source);
    json_object_foreach(source, name, value)
    {
        if (!json_object_get(config, name) && is_carried_field(family, name))
            json_object_set(config, name, value);
    }
}
