/* safetensors/folder.c: opens a Hugging Face folder and compares it with a plan before any tensor is read;
 * used by programs, and by burstc at compile time. */
#include "safetensors/safetensors.h"

#include "core/context.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SINGLE "model.safetensors"
#define INDEX "model.safetensors.index.json"

/* ---- opening ---- */

void folder_close(HfFolder *f)
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

/* Whether it names a file in the folder itself: the index must not point elsewhere. */
static bool plain_name(const char *name)
{
    size_t n = strlen(name), ending = strlen(".safetensors");
    return n > ending && name[0] != '.' && !strchr(name, '/') &&
           strcmp(name + n - ending, ".safetensors") == 0;
}

/* Lists the files that the index names, each once. */
static int list_files(BurstCtx *c, HfFolder *f, Misfits *m)
{
    const char *tensor;
    json_t *file;
    int n = 0;
    f->name = calloc(json_object_size(f->map) + 1, sizeof *f->name);
    if (!f->name)
        return burst_fail(c, BURST_E_MEMORY, "out of memory for the files of '%s'", f->path);
    json_object_foreach(f->map, tensor, file)
    {
        f->name[n] = json_string_value(file);
        if (f->name[n] && plain_name(f->name[n]))
            n++;
        else
            misfit_error(m, c,
                         burst_fail(c, BURST_E_IO,
                                    "%s/" INDEX ": %s is in a file whose name does not end in .safetensors",
                                    f->path, tensor));
    }
    qsort(f->name, (size_t)n, sizeof *f->name, by_text);
    for (int i = 0; i < n; i++)
        if (i == 0 || strcmp(f->name[i], f->name[i - 1]) != 0)
            f->name[f->names++] = f->name[i];
    return json_object_size(f->map) ? BURST_OK
                                    : burst_fail(c, BURST_E_IO, "%s/" INDEX " lists no tensors", f->path);
}

static int load_index(BurstCtx *c, HfFolder *f, const char *path, Misfits *m)
{
    BURST_TRY(load_json(c, path, &f->index));
    f->map = json_object_get(f->index, "weight_map");
    if (!json_is_object(f->map))
        return burst_fail(c, BURST_E_IO, "'%s' has no weight_map", path);
    return list_files(c, f, m);
}

static int path_in(BurstCtx *c, const char *folder, const char *name, char path[PATH_MAX])
{
    if (snprintf(path, PATH_MAX, "%s/%s", folder, name) < PATH_MAX)
        return BURST_OK;
    return burst_fail(c, BURST_E_IO, "the path '%s/%s' is too long", folder, name);
}

bool folder_has_file(const char *folder, const char *name)
{
    char path[PATH_MAX];
    return snprintf(path, sizeof path, "%s/%s", folder, name) < (int)sizeof path && access(path, F_OK) == 0;
}

bool folder_has_weights(const char *folder)
{
    return folder_has_file(folder, SINGLE) || folder_has_file(folder, INDEX);
}

/* Finds the weight files: a single one, or those in the index. */
static int find_files(BurstCtx *c, HfFolder *f, Misfits *m)
{
    char path[PATH_MAX];
    if (!folder_has_weights(f->path))
        return burst_fail(c, BURST_E_IO, "'%s' has neither " SINGLE " nor " INDEX, f->path);
    BURST_TRY(path_in(c, f->path, INDEX, path));
    if (!folder_has_file(f->path, SINGLE))
        return load_index(c, f, path, m);
    f->name = calloc(1, sizeof *f->name);
    if (!f->name)
        return burst_fail(c, BURST_E_MEMORY, "out of memory for the files of '%s'", f->path);
    f->name[f->names++] = SINGLE;
    return BURST_OK;
}

/* A missing or damaged file stays closed. */
static int open_files(BurstCtx *c, HfFolder *f, Misfits *m)
{
    char path[PATH_MAX];
    f->file = calloc((size_t)f->names + 1, sizeof *f->file);
    if (!f->file)
        return burst_fail(c, BURST_E_MEMORY, "out of memory for the files of '%s'", f->path);
    for (; f->files < f->names; f->files++) {
        StFile *file = &f->file[f->files];
        file->fd = -1;
        int status = path_in(c, f->path, f->name[f->files], path);
        status = status == BURST_OK ? safetensors_open(c, path, file) : status;
        BURST_TRY(misfit_error(m, c, status));
        f->entries += file->tensors;
    }
    return BURST_OK;
}

/* ---- the table of tensors ---- */

static int by_name(const void *a, const void *b)
{
    const HfEntry *x = a, *y = b;
    return strcmp(x->tensor->name, y->tensor->name);
}

HfEntry *folder_entry(const HfFolder *f, const char *name)
{
    StTensor tensor = {.name = name};
    HfEntry key = {.tensor = &tensor};
    return f->entries ? bsearch(&key, f->entry, (size_t)f->entries, sizeof *f->entry, by_name) : NULL;
}

static int list_tensors(BurstCtx *c, HfFolder *f, Misfits *m)
{
    int n = 0;
    f->entry = calloc((size_t)f->entries + 1, sizeof *f->entry);
    if (!f->entry)
        return burst_fail(c, BURST_E_MEMORY, "out of memory for the tensors of '%s'", f->path);
    for (int i = 0; i < f->files; i++)
        for (int t = 0; t < f->file[i].tensors; t++)
            f->entry[n++] = (HfEntry){.tensor = &f->file[i].tensor[t], .file = f->name[i]};
    qsort(f->entry, (size_t)n, sizeof *f->entry, by_name);
    for (int i = 1; i < n; i++)
        if (by_name(&f->entry[i - 1], &f->entry[i]) == 0)
            misfit_error(m, c,
                         burst_fail(c, BURST_E_IO, "%s: tensor %s is in both %s and %s", f->path,
                                    f->entry[i].tensor->name, f->entry[i - 1].file, f->entry[i].file));
    return BURST_OK;
}

/* Whether a file of the index could be read. */
static bool is_open(const HfFolder *f, const char *file)
{
    const char **name = file ? bsearch(&file, f->name, (size_t)f->names, sizeof *f->name, by_text) : NULL;
    return name && f->file[name - f->name].fd >= 0;
}

/* Checks that the index and the files agree. */
static void check_index(BurstCtx *c, const HfFolder *f, Misfits *m)
{
    const char *name;
    json_t *file;
    json_object_foreach(f->map, name, file)
    {
        const HfEntry *e = folder_entry(f, name);
        if (is_open(f, json_string_value(file)) && (!e || strcmp(e->file, json_string_value(file)) != 0))
            misfit_error(m, c,
                         burst_fail(c, BURST_E_IO, "%s/" INDEX " lists %s in %s, which does not have it",
                                    f->path, name, json_string_value(file)));
    }
    for (int i = 0; f->map && i < f->entries; i++)
        if (!json_object_get(f->map, f->entry[i].tensor->name))
            misfit_error(m, c,
                         burst_fail(c, BURST_E_IO, "%s: tensor %s in %s is missing from the index", f->path,
                                    f->entry[i].tensor->name, f->entry[i].file));
}

/* ---- comparing with the plan ---- */

static void check_shape(Misfits *m, const StPlace *p, const StTensor *there)
{
    char is_[ST_SHAPE_TEXT], wanted[ST_SHAPE_TEXT];
    if (there->dims == p->dims && memcmp(there->shape, p->shape, (size_t)p->dims * sizeof *p->shape) == 0)
        return;
    safetensors_shape(there->shape, there->dims, is_);
    safetensors_shape(p->shape, p->dims, wanted);
    misfit(m, "%s is %s, expected %s", there->name, is_, wanted);
}

static void check_entry(Misfits *m, const StPlace *p, HfEntry *e)
{
    const char *name = e->tensor->name;
    if (e->used) /* another of its parts used it */
        return;
    e->used = true;
    check_shape(m, p, e->tensor);
    if (!safetensors_readable(e->tensor))
        misfit(m, "%s is %s, expected F32, BF16 or F16", name, e->tensor->dtype);
}

/* Whether the reason for a missing tensor was reported: its file cannot be read, or lacks it. */
static bool is_told(const HfFolder *f, const char *name)
{
    return f->map ? json_object_get(f->map, name) != NULL : f->file[0].fd < 0;
}

/* Blocks and scales in place of a tensor; whether they are there. */
static bool check_blocks(Misfits *m, const HfFolder *f, const StPlace *place)
{
    const Mxfp4 x = mxfp4_of(f, place->name);
    StPlace blocks = {.dims = 4}, scales = {.dims = 3};
    if ((!x.blocks && !x.scales) || !mxfp4_shape(place, blocks.shape))
        return false;
    if (!x.blocks || !x.scales) {
        HfEntry *one = x.blocks ? x.blocks : x.scales;
        if (!one->used)
            misfit(m, "tensor %s_%s is missing, beside %s", place->name, x.blocks ? "scales" : "blocks",
                   one->tensor->name);
        one->used = true;
        return true;
    }
    memcpy(scales.shape, blocks.shape, sizeof *blocks.shape * 3);
    HfEntry *const entry[] = {x.blocks, x.scales};
    for (int i = 0; i < 2 && !entry[i]->used; i++) {
        entry[i]->used = true;
        check_shape(m, i ? &scales : &blocks, entry[i]->tensor);
        if (strcmp(entry[i]->tensor->dtype, "U8") != 0)
            misfit(m, "%s is %s, expected U8", entry[i]->tensor->name, entry[i]->tensor->dtype);
    }
    return true;
}

static void check_tensor(Misfits *m, const BurstPlan *p, const HfFolder *f, int unit, const BurstTensor *t)
{
    const StPlace place = tensor_place(p, &f->naming, unit, t);
    HfEntry *e = folder_entry(f, place.name);
    if (e)
        check_entry(m, &place, e);
    else if (!check_blocks(m, f, &place) && place.part == 0 && !is_told(f, place.name))
        misfit(m, "tensor %s is missing", place.name);
}

static void check_pieces(Misfits *m, const BurstPlan *p, const HfFolder *f, int unit, const BurstTensor *t)
{
    TensorPiece piece[FUSED_PARTS];
    const int pieces = folder_pieces(p, &f->naming, t, piece);
    for (int i = 0; i < pieces; i++)
        check_tensor(m, p, f, unit, &piece[i].tensor);
}

/* The embedding's tensor, which is also the head in a tied model. */
const BurstTensor *tied_tensor(const BurstPlan *p) { return p->tied ? &burst_unit(p, 0)->tensor[0] : NULL; }

static bool ends_with(const char *name, const char *end)
{
    const size_t n = strlen(name), ending = strlen(end);
    return n >= ending && strcmp(name + n - ending, end) == 0;
}

/* Computed buffers, which transformers does not read either. */
static bool is_computed(const Family *f, const char *name)
{
    bool found = ends_with(name, "rotary_emb.inv_freq");
    for (const char *const *end = f->buffers; end && *end; end++)
        found = found || ends_with(name, *end);
    return found;
}

static bool has_ending(const HfFolder *f, const char *end)
{
    bool found = false;
    for (int i = 0; i < f->entries; i++)
        found = found || ends_with(f->entry[i].tensor->name, end);
    return found;
}

/* Whether experts' matrices are packed, of a family that may have them so; or as products have them, of a
 * family that may have them transposed too: up is [experts][2 * width][hidden] then, down
 * [experts][hidden][width]. */
static bool is_straight(const HfFolder *f)
{
    char up[ST_NAME], down[ST_NAME];
    const char *prefix = f->naming.prefix ? f->naming.prefix : "model.";
    snprintf(up, sizeof up, "%slayers.0.mlp.experts.gate_up_proj", prefix);
    snprintf(down, sizeof down, "%slayers.0.mlp.experts.down_proj", prefix);
    const HfEntry *x = folder_entry(f, up), *y = folder_entry(f, down);
    if (f->family->packed_without)
        return !has_ending(f, f->family->packed_without);
    if (f->family->packed)
        return x && y;
    return f->family->either_way && x && y && x->tensor->dims == 3 && y->tensor->dims == 3 &&
           x->tensor->shape[2] == y->tensor->shape[1] && x->tensor->shape[1] == 2 * y->tensor->shape[2];
}

/* By the embedding's name. */
static void find_prefix(HfFolder *f)
{
    char name[ST_NAME];
    for (f->way = NAMINGS - 1; f->way > 0; f->way--) {
        f->naming = naming_of(f->family, f->way);
        snprintf(name, sizeof name, "%sembed_tokens.weight", f->naming.prefix);
        if (folder_entry(f, name))
            return;
    }
    f->naming = naming_of(f->family, 0);
}

static void find_naming(HfFolder *f)
{
    find_prefix(f);
    if (is_straight(f))
        f->naming = naming_of(f->family, f->way += NAMINGS);
}

static bool begins(const char *name, const char *with) { return strncmp(name, with, strlen(with)) == 0; }

/* Parts for images and others, and layers that predict several tokens; transformers does not load them. */
static bool is_beside(const HfFolder *f, int layers, const char *name)
{
    const bool part = f->way > 0 || f->family->part_only;
    static const char layer[] = "model.layers.";
    if (begins(name, "mtp."))
        return true;
    if (f->family->mtp && begins(name, layer) && atoi(name + sizeof layer - 1) >= layers)
        return true;
    return part && !begins(name, f->naming.prefix ? f->naming.prefix : "model.") &&
           strcmp(name, head_name(&f->naming)) != 0;
}

/* Checks, before anything is read, that the folder has each tensor of the plan and no others of a text
 * model. */
void folder_mark(Misfits *m, const BurstPlan *p, const HfFolder *f)
{
    HfEntry *head = tied_tensor(p) ? folder_entry(f, head_name(&f->naming)) : NULL;
    for (int unit = 0; unit < burst_unit_count(p); unit++) {
        const BurstUnit *u = burst_unit(p, unit);
        for (int t = 0; t < u->tensors; t++)
            check_pieces(m, p, f, unit, &u->tensor[t]);
    }
    if (head) {
        const StPlace place = tensor_place(p, &f->naming, 0, tied_tensor(p));
        check_entry(m, &place, head);
    }
    for (int i = 0; i < f->entries; i++) {
        HfEntry *e = &f->entry[i];
        e->beside = !e->used && !is_computed(f->family, e->tensor->name) &&
                    is_beside(f, p->layers, e->tensor->name);
        if (!e->used && !e->beside && !is_computed(f->family, e->tensor->name))
            misfit(m, "tensor %s is not part of the model", e->tensor->name);
    }
}

int folder_list(BurstCtx *c, HfFolder *f, Misfits *m)
{
    BURST_TRY(find_files(c, f, m));
    if (files_are_foreign(m, f))
        return BURST_OK;
    BURST_TRY(open_files(c, f, m));
    BURST_TRY(list_tensors(c, f, m));
    find_naming(f);
    return BURST_OK;
}

bool folder_has_head(BurstCtx *c, const char *folder)
{
    HfFolder f = {.path = folder, .family = &families[0]};
    Misfits m = {0};
    const bool listed = folder_has_weights(folder) && folder_list(c, &f, &m) == BURST_OK,
               found = listed && folder_entry(&f, head_name(&f.naming));
    c->error[0] = 0; /* reported when the folder is read */
    misfits_close(&m);
    folder_close(&f);
    return found;
}

static void say_beside(const HfFolder *f)
{
    int count = 0;
    const char *first = NULL;
    for (int i = 0; i < f->entries; i++)
        if (f->entry[i].beside) {
            first = first ? first : f->entry[i].tensor->name;
            count++;
        }
    if (count)
        say_line("%d tensors of '%s' are not part of the text model (%s first): they are not trained, and an "
                 "export "
                 "has them as they are",
                 count, f->path, first);
}

int folder_compare(BurstCtx *c, const BurstPlan *p, HfFolder *f, Misfits *m)
{
    BURST_TRY(folder_list(c, f, m));
    if (m->alone || names_are_foreign(m, f) || tensors_are_quantized(m, f))
        return BURST_OK;
    check_index(c, f, m);
    folder_mark(m, p, f);
    if (c->rank == 0 && !m->count)
        say_beside(f);
    return BURST_OK;
}

int folder_open(BurstCtx *c, const BurstPlan *p, HfFolder *f, Misfits *m)
{
    BURST_TRY(config_check(c, p, f->path, m, &f->family));
    return m->alone ? BURST_OK : folder_compare(c, p, f, m);
}
