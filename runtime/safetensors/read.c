/* safetensors/read.c: a Hugging Face folder's tensors into this rank's shards, whatever the world size:
 * each rank reads the bytes that it holds. */
#include "safetensors/safetensors.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SINGLE "model.safetensors"
#define INDEX "model.safetensors.index.json"
#define HEAD "lm_head.weight"

enum { TIED_BLOCK = 1 << 14 }; /* elements */

/* All tensors of all files, sorted by name. */
typedef struct Entry { const StTensor *tensor; const char *file; bool used; } Entry;
typedef struct Folder {
    const char *path;
    json_t *index, *map; /* map: of the index, name -> file; NULL: one file */
    int names, files;    /* files: how many of them are open */
    const char **name;   /* [names] */
    StFile *file;        /* [names] */
    int entries;
    Entry *entry;
} Folder;

/* ---- names ---- */

void tensor_name_of(const BurstPlan *p, int unit, const BurstTensor *t, char name[ST_NAME])
{
    const BurstUnit *row = p->units;
    for (; unit >= row->repeat; row++)
        unit -= row->repeat;
    const char *number = strstr(row->name, "%d");
    if (number)
        snprintf(name, ST_NAME, "%.*s%d%s.%s", (int)(number - row->name), row->name, unit, number + 2,
                 t->name);
    else
        snprintf(name, ST_NAME, "%s", t->name);
}

int tensor_shape_of(const BurstTensor *t, int64_t shape[2])
{
    bool vector = t->init_std <= 0;
    shape[0] = vector ? t->rows * t->cols : t->rows;
    shape[1] = t->cols;
    return vector ? 1 : 2;
}

/* ---- opening ---- */

static void close_folder(Folder *f)
{
    for (int i = 0; i < f->files; i++)
        safetensors_close(&f->file[i]);
    free(f->file);
    free(f->name);
    free(f->entry);
    json_decref(f->index);
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* A file of the folder itself: the index may not lead elsewhere. */
static bool plain_name(const char *name)
{
    size_t n = strlen(name), ending = strlen(".safetensors");
    return n > ending && name[0] != '.' && !strchr(name, '/') &&
           strcmp(name + n - ending, ".safetensors") == 0;
}

/* The files that the index names, each once. */
static int list_files(BurstCtx *c, Folder *f)
{
    const char *tensor;
    json_t *file;
    int n = 0;
    f->name = calloc(json_object_size(f->map) + 1, sizeof *f->name);
    if (!f->name)
        return burst_fail(c, BURST_E_MEMORY, "out of memory for the files of '%s'", f->path);
    json_object_foreach(f->map, tensor, file) {
        f->name[n] = json_string_value(file);
        if (!f->name[n] || !plain_name(f->name[n]))
            return burst_fail(c, BURST_E_IO,
                              "%s/" INDEX ": %s is in a file whose name does not end in .safetensors",
                              f->path, tensor);
        n++;
    }
    qsort(f->name, (size_t)n, sizeof *f->name, by_text);
    for (int i = 0; i < n; i++)
        if (i == 0 || strcmp(f->name[i], f->name[i - 1]) != 0)
            f->name[f->names++] = f->name[i];
    return f->names ? BURST_OK : burst_fail(c, BURST_E_IO, "%s/" INDEX " lists no tensors", f->path);
}

static int load_index(BurstCtx *c, Folder *f, const char *path)
{
    BURST_TRY(load_json(c, path, &f->index));
    f->map = json_object_get(f->index, "weight_map");
    if (!json_is_object(f->map))
        return burst_fail(c, BURST_E_IO, "'%s' has no weight_map", path);
    return list_files(c, f);
}

static int path_in(BurstCtx *c, const Folder *f, const char *name, char path[PATH_MAX])
{
    if (snprintf(path, PATH_MAX, "%s/%s", f->path, name) < PATH_MAX)
        return BURST_OK;
    return burst_fail(c, BURST_E_IO, "the path '%s/%s' is too long", f->path, name);
}

/* Which files there are: one, or those of the index. */
static int find_files(BurstCtx *c, Folder *f)
{
    char path[PATH_MAX];
    BURST_TRY(path_in(c, f, SINGLE, path));
    if (access(path, F_OK) == 0) {
        f->name = calloc(1, sizeof *f->name);
        if (!f->name)
            return burst_fail(c, BURST_E_MEMORY, "out of memory for the files of '%s'", f->path);
        f->name[f->names++] = SINGLE;
        return BURST_OK;
    }
    BURST_TRY(path_in(c, f, INDEX, path));
    if (access(path, F_OK) != 0)
        return burst_fail(c, BURST_E_IO, "'%s' has neither " SINGLE " nor " INDEX, f->path);
    return load_index(c, f, path);
}

static int open_files(BurstCtx *c, Folder *f)
{
    char path[PATH_MAX];
    f->file = calloc((size_t)f->names, sizeof *f->file);
    if (!f->file)
        return burst_fail(c, BURST_E_MEMORY, "out of memory for the files of '%s'", f->path);
    for (; f->files < f->names; f->files++) {
        BURST_TRY(path_in(c, f, f->name[f->files], path));
        BURST_TRY(safetensors_open(c, path, &f->file[f->files]));
        f->entries += f->file[f->files].tensors;
    }
    return BURST_OK;
}

/* ---- the table of tensors ---- */

static int by_name(const void *a, const void *b)
{
    const Entry *x = a, *y = b;
    return strcmp(x->tensor->name, y->tensor->name);
}

static Entry *find_entry(const Folder *f, const char *name)
{
    StTensor tensor = {.name = name};
    Entry key = {.tensor = &tensor};
    return f->entries ? bsearch(&key, f->entry, (size_t)f->entries, sizeof *f->entry, by_name) : NULL;
}

static int list_tensors(BurstCtx *c, Folder *f)
{
    int n = 0;
    f->entry = calloc((size_t)f->entries + 1, sizeof *f->entry);
    if (!f->entry)
        return burst_fail(c, BURST_E_MEMORY, "out of memory for the tensors of '%s'", f->path);
    for (int i = 0; i < f->files; i++)
        for (int t = 0; t < f->file[i].tensors; t++)
            f->entry[n++] = (Entry){.tensor = &f->file[i].tensor[t], .file = f->name[i]};
    qsort(f->entry, (size_t)n, sizeof *f->entry, by_name);
    for (int i = 1; i < n; i++)
        if (by_name(&f->entry[i - 1], &f->entry[i]) == 0)
            return burst_fail(c, BURST_E_IO, "%s: tensor %s is in both %s and %s", f->path,
                              f->entry[i].tensor->name, f->entry[i - 1].file, f->entry[i].file);
    return BURST_OK;
}

/* The index and the files say the same. */
static int check_index(BurstCtx *c, const Folder *f)
{
    const char *name;
    json_t *file;
    json_object_foreach(f->map, name, file) {
        const Entry *e = find_entry(f, name);
        if (!e || strcmp(e->file, json_string_value(file)) != 0)
            return burst_fail(c, BURST_E_IO, "%s/" INDEX " lists %s in %s, which does not have it", f->path,
                              name, json_string_value(file));
    }
    for (int i = 0; f->map && i < f->entries; i++)
        if (!json_object_get(f->map, f->entry[i].tensor->name))
            return burst_fail(c, BURST_E_IO, "%s: tensor %s in %s is missing from the index", f->path,
                              f->entry[i].tensor->name, f->entry[i].file);
    return BURST_OK;
}

/* ---- against the plan ---- */

static void check_shape(Misfits *m, const char *name, const BurstTensor *t, const StTensor *there)
{
    int64_t shape[2];
    char is_[ST_SHAPE_TEXT], wanted[ST_SHAPE_TEXT];
    int dims = tensor_shape_of(t, shape);
    if (there->dims == dims && memcmp(there->shape, shape, (size_t)dims * sizeof *shape) == 0)
        return;
    safetensors_shape(there->shape, there->dims, is_);
    safetensors_shape(shape, dims, wanted);
    misfit(m, "%s is %s, expected %s", name, is_, wanted);
}

static void check_entry(Misfits *m, const char *name, const BurstTensor *t, Entry *e)
{
    e->used = true;
    check_shape(m, name, t, e->tensor);
    if (!safetensors_readable(e->tensor))
        misfit(m, "%s is %s, expected F32, BF16 or F16", name, e->tensor->dtype);
}

static void check_tensor(Misfits *m, const BurstPlan *p, const Folder *f, int unit, const BurstTensor *t)
{
    char name[ST_NAME];
    tensor_name_of(p, unit, t, name);
    Entry *e = find_entry(f, name);
    if (e)
        check_entry(m, name, t, e);
    else
        misfit(m, "tensor %s is missing", name);
}

/* The embedding's tensor, which a tied model has as its head too. */
static const BurstTensor *tied_tensor(const BurstPlan *p)
{
    return p->tied ? &burst_unit(p, 0)->tensor[0] : NULL;
}

/* Buffers that are computed: transformers does not read them either. */
static bool is_computed(const char *name)
{
    static const char computed[] = "rotary_emb.inv_freq";
    size_t n = strlen(name), ending = sizeof computed - 1;
    return n >= ending && strcmp(name + n - ending, computed) == 0;
}

/* The folder has each tensor of the plan, and no others: known before anything is read. */
static void check_tensors(Misfits *m, const BurstPlan *p, const Folder *f)
{
    Entry *head = tied_tensor(p) ? find_entry(f, HEAD) : NULL;
    for (int unit = 0; unit < burst_unit_count(p); unit++) {
        const BurstUnit *u = burst_unit(p, unit);
        for (int t = 0; t < u->tensors; t++)
            check_tensor(m, p, f, unit, &u->tensor[t]);
    }
    if (head)
        check_entry(m, HEAD, tied_tensor(p), head);
    for (int i = 0; i < f->entries; i++)
        if (!f->entry[i].used && !is_computed(f->entry[i].tensor->name))
            misfit(m, "tensor %s is not part of the model", f->entry[i].tensor->name);
}

/* ---- values ---- */

/* A model that is trained from a value that is no number has none after the first step. */
static int check_finite(BurstCtx *c, const StTensor *t, int64_t first, const float *value, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        if (!isfinite(value[i]))
            return burst_fail(c, BURST_E_NUMERIC, "%s: element %lld of %s is %s", t->file->path,
                              (long long)(first + i), t->name, isnan(value[i]) ? "not a number" : "infinite");
    return BURST_OK;
}

/* transformers ties a head that the folder has besides only where it is the embedding. */
static int check_tied(BurstCtx *c, const StTensor *head, int64_t first, const float *value, int64_t count)
{
    float other[TIED_BLOCK];
    for (int64_t done = 0; done < count; done += TIED_BLOCK) {
        const int64_t n = count - done < TIED_BLOCK ? count - done : TIED_BLOCK;
        BURST_TRY(safetensors_read(c, head, first + done, n, other));
        for (int64_t i = 0; i < n; i++)
            if (other[i] != value[done + i])
                return burst_fail(
                    c, BURST_E_USAGE,
                    "%s: element %lld of " HEAD
                    " is %g but the embedding's is %g, so the weights are not tied; "
                    "set `tied no` in the model and \"tie_word_embeddings\": false in config.json",
                    head->file->path, (long long)(first + done + i), (double)other[i],
                    (double)value[done + i]);
    }
    return BURST_OK;
}

static int read_run(BurstCtx *c, const StTensor *t, const StTensor *head, const BurstRun *r, float *to)
{
    BURST_TRY(safetensors_read(c, t, r->from, r->count, to));
    BURST_TRY(check_finite(c, t, r->from, to, r->count));
    return head ? check_tied(c, head, r->from, to, r->count) : BURST_OK;
}

/* The part of each tensor that this rank holds. */
static int read_unit(BurstCtx *c, const BurstPlan *p, const Folder *f, int unit, float *param)
{
    const BurstUnit *u = burst_unit(p, unit);
    char name[ST_NAME];
    for (int i = 0; i < u->tensors; i++) {
        const BurstTensor *t = &u->tensor[i];
        tensor_name_of(p, unit, t, name);
        const Entry *tied = t == tied_tensor(p) ? find_entry(f, HEAD) : NULL;
        for (BurstRun r = {0}; burst_next_run(p, c->rank, u, t, &r);)
            BURST_TRY(read_run(c, find_entry(f, name)->tensor, tied ? tied->tensor : NULL, &r, param + r.at));
    }
    return BURST_OK;
}

/* Adapters are weights that transformers adds to these. */
static void check_adapters(Misfits *m, const char *folder)
{
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/adapter_config.json", folder) < (int)sizeof path &&
        access(path, F_OK) == 0)
        misfit(m,
               "adapters are not supported (adapter_config.json); merge the adapter into the weights first");
}

static int read_folder(BurstCtx *c, const BurstPlan *p, Folder *f, BurstWeights *w, bool plan_masks)
{
    Misfits m = {.plan_masks = plan_masks};
    BURST_TRY(config_check(c, p, f->path, &m));
    check_adapters(&m, f->path);
    BURST_TRY(find_files(c, f));
    BURST_TRY(open_files(c, f));
    BURST_TRY(list_tensors(c, f));
    BURST_TRY(check_index(c, f));
    check_tensors(&m, p, f);
    BURST_TRY(misfits_end(c, &m, f->path));
    for (int unit = 0; unit < w->units; unit++)
        BURST_TRY(read_unit(c, p, f, unit, w->param[unit]));
    return BURST_OK;
}

int folder_read(BurstCtx *c, const BurstPlan *p, BurstWeights *w, const char *folder, bool plan_masks)
{
    Folder f = {.path = folder};
    burst_doing(c, "reading weights");
    int status = read_folder(c, p, &f, w, plan_masks);
    close_folder(&f);
    return status;
}
