/* safetensors/export/write.c: a Hugging Face folder from the shards: every rank writes its own bytes into
 * files that rank 0 has made, and the folder gets its name when all of them are whole. */
#include "safetensors/safetensors.h"

#include "core/context.h"
#include "core/weights.h"
#include "files/files.h"
#include "files/lock.h"
#include "files/output.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PIECE = 1 << 15, FILE_NAME = NAME_MAX + 1, ALIGN = 8, EARLIER_MOST = 10000 };

/* ---- layout: the same on every rank ---- */

/* Of a plan's tensor. begin: in the file's data, of the folder's tensor that holds it; part: 0 of the first
 * that it holds. */
typedef struct Entry {
    int unit, file, part;
    const BurstTensor *tensor;
    int64_t begin;
    TensorPiece piece; /* of the tensor */
} Entry;
static const char part_end[] = ".part", trial_name[] = ".trial";
static const char mark[] = "burst"; /* in the headers' metadata: an export wrote the file */
typedef struct OutFile {
    char name[FILE_NAME];
    char *header;
    size_t header_bytes;
    int64_t bytes;
} OutFile;
struct Export {
    const char *folder, *source; /* source: which the weights came from; NULL: none */
    json_t *config;              /* its, of rank 0; NULL: it cannot be read */
    Beside beside;               /* of rank 0 */
    Naming naming;
    char part[PATH_MAX]; /* its name while it is written */
    int lock;            /* of rank 0, on that */
    int dtype, size;     /* bytes an element */
    int files, entries, own; /* own: files of the plan's tensors, before the others */
    Entry *entry;
    OutFile *file;
    bool resumes, earlier; /* earlier: the folder has an export already, which is moved aside */
    bool kept;             /* .part is whole, or has its name */
};

static int count_tensors(const BurstPlan *p)
{
    int n = 0;
    for (int unit = 0; unit < burst_unit_count(p); unit++)
        n += FUSED_PARTS * burst_unit(p, unit)->tensors;
    return n;
}

static int64_t place_elements(const StPlace *p)
{
    int64_t elements = 1;
    for (int i = 0; i < p->dims; i++)
        elements *= p->shape[i];
    return elements;
}

/* Corrections of scores are fp32 in any folder: transformers keeps them so. */
static int dtype_of(const Export *o, const BurstTensor *t)
{
    return strcmp(t->name, "mlp.router.correction") == 0 ? BURST_F32 : o->dtype;
}

static int64_t size_of(const Export *o, const BurstTensor *t) { return dtype_of(o, t) == BURST_F32 ? 4 : 2; }

/* The entry of the first part, which has a place. */
static const Entry *first_part(const BurstPlan *p, const Export *o, const StPlace *place)
{
    const Entry *e = o->entry + o->entries - 1;
    while (e->part || strcmp(tensor_place(p, &o->naming, e->unit, &e->piece.tensor).name, place->name) != 0)
        e--;
    return e;
}

/* At the end of the last file, or of a new one; parts after the first are where that is. */
static void add_entry(const BurstPlan *p, Export *o, Entry e, int64_t shard_bytes)
{
    const StPlace place = tensor_place(p, &o->naming, e.unit, &e.piece.tensor);
    const int64_t whole = place_elements(&place) * size_of(o, e.tensor);
    e.part = place.part;
    if (place.part) {
        const Entry *first = first_part(p, o, &place);
        e.file = first->file, e.begin = first->begin;
        o->entry[o->entries++] = e;
        return;
    }
    if (o->files == 0 ||
        (o->file[o->files - 1].bytes > 0 && o->file[o->files - 1].bytes + whole > shard_bytes))
        o->files++;
    OutFile *f = &o->file[o->files - 1];
    e.file = o->files - 1, e.begin = f->bytes;
    o->entry[o->entries++] = e;
    f->bytes += whole;
}

static void place_pieces(const BurstPlan *p, Export *o, int unit, const BurstTensor *t, int64_t shard_bytes)
{
    TensorPiece piece[FUSED_PARTS];
    const int pieces = folder_pieces(p, &o->naming, t, piece);
    for (int k = 0; k < pieces; k++)
        add_entry(p, o, (Entry){.unit = unit, .tensor = t, .piece = piece[k]}, shard_bytes);
}

/* The tensor there in a unit of files; NULL: none. unit: the one that has it. */
static const BurstTensor *tensor_in_whole(const BurstPlan *p, int whole, int64_t offset, int *unit)
{
    *unit = whole;
    for (int n = 0; *unit >= 0; *unit = burst_part_of_whole(p, whole, ++n)) {
        const BurstUnit *u = burst_unit(p, *unit);
        for (const BurstTensor *t = u->tensor; t < u->tensor + u->tensors; t++)
            if (t->offset == offset)
                return t;
    }
    return NULL;
}

/* Its tensors in their order, whatever units they are in. */
static void place_whole(const BurstPlan *p, Export *o, int whole, int64_t shard_bytes)
{
    int unit;
    int64_t at = 0;
    for (const BurstTensor *t; (t = tensor_in_whole(p, whole, at, &unit)); at += t->rows * t->cols)
        place_pieces(p, o, unit, t, shard_bytes);
}

/* Tensors in the plan's order, a file full before the next; then those beside, in as many other files. */
static void place_tensors(const BurstPlan *p, Export *o, int64_t shard_bytes, int others)
{
    for (int unit = 0; unit < burst_whole_count(p); unit++)
        if (p->expert_groups)
            place_whole(p, o, unit, shard_bytes);
        else
            for (int i = 0; i < burst_unit(p, unit)->tensors; i++)
                place_pieces(p, o, unit, &burst_unit(p, unit)->tensor[i], shard_bytes);
    o->own = o->files;
    o->files += others;
    for (int i = 0; i < o->beside.count; i++) {
        const BesideTensor *t = &o->beside.tensor[i];
        o->file[o->own + t->file].bytes = t->begin + t->tensor->end - t->tensor->begin;
    }
    for (int i = 0; i < o->files; i++)
        if (o->files == 1)
            snprintf(o->file[i].name, FILE_NAME, "model.safetensors");
        else
            snprintf(o->file[i].name, FILE_NAME, "model-%05d-of-%05d.safetensors", i + 1, o->files);
}

static json_t *facts_of(const char *dtype, const int64_t *shape, int dims, int64_t begin, int64_t end)
{
    json_t *sizes = json_array();
    for (int i = 0; sizes && i < dims; i++)
        json_array_append_new(sizes, json_integer((json_int_t)shape[i]));
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", dtype, "shape", sizes, "data_offsets",
                     (json_int_t)begin, (json_int_t)end);
}

static json_t *facts_of_entry(const Export *o, const Entry *e, const StPlace *place)
{
    return facts_of(dtype_of(o, e->tensor) == BURST_F32 ? "F32" : "BF16", place->shape, place->dims, e->begin,
                    e->begin + place_elements(place) * size_of(o, e->tensor));
}

/* How many of those beside are in the file. */
static size_t add_beside(const Export *o, const OutFile *f, json_t *all)
{
    size_t tensors = 0;
    for (const BesideTensor *b = o->beside.tensor; all && b < o->beside.tensor + o->beside.count; b++) {
        const StTensor *t = b->tensor;
        if (f != &o->file[o->own + b->file])
            continue;
        json_object_set_new(all, t->name,
                            facts_of(t->dtype, t->shape, t->dims, b->begin, b->begin + t->end - t->begin));
        tensors++;
    }
    return tensors;
}

/* Length and JSON, with blanks up to where the data may begin. */
static bool make_header(const BurstPlan *p, const Export *o, OutFile *f)
{
    json_t *all = json_pack("{s:{s:s, s:s}}", "__metadata__", "format", "pt", /* what transformers asks for */
                            mark, "export");
    size_t tensors = 0;
    for (const Entry *e = o->entry; all && e < o->entry + o->entries; e++) {
        const StPlace place = tensor_place(p, &o->naming, e->unit, &e->piece.tensor);
        const bool here = place.part == 0 && f == &o->file[e->file];
        if (here)
            json_object_set_new(all, place.name, facts_of_entry(o, e, &place));
        tensors += here;
    }
    tensors += add_beside(o, f, all);
    bool all_there = json_object_size(all) == tensors + 1;
    char *text = all_there ? json_dumps(all, JSON_COMPACT) : NULL;
    size_t n = text ? strlen(text) : 0, padded = (n + ALIGN - 1) / ALIGN * ALIGN;
    f->header_bytes = ALIGN + padded;
    f->header = text ? malloc(f->header_bytes) : NULL;
    if (f->header) {
        memset(f->header, ' ', f->header_bytes);
        for (int i = 0; i < 8; i++)
            f->header[i] = (char)((uint64_t)padded >> (8 * i));
        memcpy(f->header + ALIGN, text, n);
    }
    free(text);
    json_decref(all);
    return f->header != NULL;
}

static void layout_drop(Export *o)
{
    if (o->lock >= 0)
        close(o->lock);
    for (int i = 0; i < o->files; i++)
        free(o->file[i].header);
    free(o->file);
    free(o->entry);
    beside_close(&o->beside);
    json_decref(o->config);
}

/* What the folder's name, without slashes at its end, leads to; and ".part". */
static int part_name(BurstCtx *c, const char *folder, char part[PATH_MAX])
{
    size_t n = strlen(folder);
    while (n > 1 && folder[n - 1] == '/')
        n--;
    char *name = strndup(folder, n), *real = name ? output_follow(name) : NULL;
    free(name);
    if (!real)
        return burst_fail(c, BURST_E_USAGE, "cannot export to '%s': %s", folder, output_reason(errno));
    const bool fits = snprintf(part, PATH_MAX, "%s%s", real, part_end) + FILE_NAME < PATH_MAX;
    free(real);
    return fits ? BURST_OK : burst_fail(c, BURST_E_USAGE, "the path '%s' is too long", folder);
}

static int lay_out(BurstCtx *c, const BurstPlan *p, int64_t shard_bytes, int others, Export *o)
{
    const size_t tensors = (size_t)count_tensors(p);
    BURST_TRY(part_name(c, o->folder, o->part));
    o->entry = calloc(tensors, sizeof *o->entry);
    o->file = calloc(tensors + (size_t)others, sizeof *o->file);
    bool made = o->entry && o->file;
    if (made)
        place_tensors(p, o, shard_bytes, others);
    for (int i = 0; made && i < (c->rank == 0 ? o->files : o->own); i++)
        made = make_header(p, o, &o->file[i]);
    return made ? BURST_OK
                : burst_fail(c, BURST_E_MEMORY, "out of memory for the headers of '%s'", o->folder);
}

/* A file of the folder in the making. */
static void path_of(const Export *o, const char *name, char path[PATH_MAX])
{
    snprintf(path, PATH_MAX, "%.*s/%s", PATH_MAX - FILE_NAME - 2, o->part, name);
}

/* The folder's name when it is whole. */
static void final_name(const Export *o, char path[PATH_MAX])
{
    snprintf(path, PATH_MAX, "%.*s", (int)(strlen(o->part) - strlen(part_end)), o->part);
}

static void mark_name(int rank, char name[FILE_NAME])
{
    snprintf(name, FILE_NAME, ".written-by-%d", rank);
}

/* ---- before ---- */

/* Cuts a path to the folder that holds it. */
static void parent_of(char path[PATH_MAX])
{
    char *slash = strrchr(path, '/');
    if (!slash)
        snprintf(path, PATH_MAX, ".");
    else
        slash[slash == path] = 0;
}

/* Whether a file is one that an interrupted export leaves, or a part of a folder. locked: the folder has the
 * lock of an export; .py files elsewhere are the user's. */
static bool ours(const char *name, bool locked)
{
    const char *end = strstr(name, ".safetensors");
    return (strncmp(name, "model", 5) == 0 && end && (!end[12] || strcmp(end + 12, ".index.json") == 0)) ||
           strcmp(name, "config.json") == 0 || is_carried(name, locked) ||
           strncmp(name, ".written-by-", 12) == 0 || strcmp(name, trial_name) == 0 ||
           strcmp(name, ".lock") == 0 || strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

/* A folder itself, not what a link leads to. *d NULL: nothing is there. */
static int open_folder(BurstCtx *c, const char *folder, const char *path, DIR **d)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    *d = fd < 0 ? NULL : fdopendir(fd);
    if (*d || errno == ENOENT)
        return BURST_OK;
    return burst_fail(c, BURST_E_USAGE, "cannot export to '%s': '%s' is in the way: %s", folder, path,
                      strerror(errno));
}

static int part_free(BurstCtx *c, const char *folder, const char *part)
{
    DIR *d;
    bool foreign = false;
    BURST_TRY(open_folder(c, folder, part, &d));
    const bool locked = d && faccessat(dirfd(d), ".lock", F_OK, 0) == 0;
    for (struct dirent *e; d && (e = readdir(d)) != NULL;)
        foreign |= !ours(e->d_name, locked);
    if (d)
        closedir(d);
    if (!foreign)
        return BURST_OK;
    return burst_fail(c, BURST_E_USAGE,
                      "cannot export to '%s': '%s' is in the way and has files that no export wrote", folder,
                      part);
}

/* Whether an export wrote the folder, as one of its files of weights says. */
static bool is_export(BurstCtx *c, const char *folder)
{
    char path[PATH_MAX];
    StFile f;
    bool found = false, marked = false;
    DIR *d = opendir(folder);
    for (struct dirent *e; d && !found && (e = readdir(d)) != NULL;) {
        const char *end = strstr(e->d_name, ".safetensors");
        found = strncmp(e->d_name, "model", 5) == 0 && end && !end[12] &&
                snprintf(path, sizeof path, "%s/%s", folder, e->d_name) < (int)sizeof path;
    }
    if (d)
        closedir(d);
    if (found && safetensors_open(c, path, &f) == BURST_OK) {
        marked = json_object_get(json_object_get(f.header, "__metadata__"), mark) != NULL;
        safetensors_close(&f);
    }
    c->error[0] = 0;
    return marked;
}

static int names_free(BurstCtx *c, Export *o)
{
    const char *folder = o->folder;
    int found = 0;
    DIR *d = opendir(folder);
    if (!d && errno == ENOENT)
        return BURST_OK;
    if (!d)
        return burst_fail(c, BURST_E_USAGE, "cannot export to '%s': %s", folder, strerror(errno));
    for (struct dirent *e; (e = readdir(d)) != NULL;)
        found += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    closedir(d);
    o->earlier = found && o->resumes && is_export(c, folder);
    if (!found || o->earlier)
        return BURST_OK;
    return burst_fail(
        c, BURST_E_USAGE,
        "cannot export to '%s': the directory is not empty; choose another, or move this one away", folder);
}

/* Whether a folder of this name can be written: nothing, an empty folder or an earlier export is there yet.
 */
static int folder_free(BurstCtx *c, Export *o)
{
    char parent[PATH_MAX];
    memcpy(parent, o->part, sizeof parent);
    parent_of(parent);
    if (access(parent, W_OK | X_OK) != 0)
        return burst_fail(c, BURST_E_USAGE, "cannot export to '%s': cannot write in '%s': %s", o->folder,
                          parent, strerror(errno));
    BURST_TRY(names_free(c, o));
    return part_free(c, o->folder, o->part);
}

/* Removes what an interrupted export has left, as the lock is ours. */
static int clear_part(BurstCtx *c, const Export *o)
{
    char path[PATH_MAX];
    DIR *d;
    BURST_TRY(open_folder(c, o->folder, o->part, &d));
    for (struct dirent *e; d && (e = readdir(d)) != NULL;)
        if (ours(e->d_name, true) && strlen(e->d_name) < FILE_NAME && strcmp(e->d_name, ".lock") != 0) {
            path_of(o, e->d_name, path);
            remove(path); /* of . and .. it fails */
        }
    if (d)
        closedir(d);
    return BURST_OK;
}

static int create_file(BurstCtx *c, const Export *o, const char *name, int64_t bytes)
{
    char path[PATH_MAX];
    path_of(o, name, path);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    return fd < 0 ? io_failed(c, "write", path) : close_written(c, fd, reserve(fd, (off_t)bytes), path);
}

static json_t *index_of(const BurstPlan *p, const Export *o)
{
    json_t *map = json_object();
    int64_t bytes = 0;
    for (int i = 0; map && i < o->entries; i++) {
        const Entry *e = &o->entry[i];
        if (e->part == 0)
            json_object_set_new(map, tensor_place(p, &o->naming, e->unit, &e->piece.tensor).name,
                                json_string(o->file[e->file].name));
    }
    for (const BesideTensor *b = o->beside.tensor; map && b < o->beside.tensor + o->beside.count; b++)
        json_object_set_new(map, b->tensor->name, json_string(o->file[o->own + b->file].name));
    for (int i = 0; i < o->files; i++)
        bytes += o->file[i].bytes;
    return json_pack("{s:{s:I}, s:o}", "metadata", "total_size", (json_int_t)bytes, "weight_map", map);
}

/* 15 digits keep every decimal number that a plan was given; 17 would write 1e-5 as 1.0000000000000001e-05 */
static int with_json(BurstCtx *c, const Export *o, const char *name, json_t *value,
                     int (*use)(BurstCtx *c, const Export *o, const char *name, const char *text,
                                size_t bytes))
{
    char *text = value ? json_dumps(value, JSON_INDENT(2) | JSON_REAL_PRECISION(15)) : NULL;
    const size_t n = text ? strlen(text) : 0;
    json_decref(value);
    if (!text)
        return burst_fail(c, BURST_E_MEMORY, "out of memory for '%s'", name);
    text[n] = '\n'; /* in place of the end */
    const int status = use(c, o, name, text, n + 1);
    free(text);
    return status;
}

static int for_each_json(BurstCtx *c, const BurstPlan *p, const Export *o,
                         int (*use)(BurstCtx *c, const Export *o, const char *name, const char *text,
                                    size_t bytes))
{
    BURST_TRY(with_json(c, o, "config.json", config_make(p, o->dtype, o->config), use));
    return o->files > 1 ? with_json(c, o, "model.safetensors.index.json", index_of(p, o), use) : BURST_OK;
}

static int create_json(BurstCtx *c, const Export *o, const char *name, const char *text, size_t bytes)
{
    (void)text;
    return create_file(c, o, name, (int64_t)bytes);
}

/* All files with their room, and nothing in them that could be read for weights. */
static int create_files(BurstCtx *c, const BurstPlan *p, const Export *o)
{
    BURST_TRY(carry_files(c, o->source, carries_code(o->config, o->naming.family), o->part));
    for (int i = 0; i < o->files; i++)
        BURST_TRY(create_file(c, o, o->file[i].name, (int64_t)o->file[i].header_bytes + o->file[i].bytes));
    return for_each_json(c, p, o, create_json);
}

/* Where the folder is there already, whether another may take its place: it may be where a file system is
 * mounted, or `.`. A file system that cannot exchange two names is believed. */
static int try_rename(BurstCtx *c, const Export *o)
{
    char empty[PATH_MAX], folder[PATH_MAX];
    struct stat st;
    final_name(o, folder);
    if (lstat(folder, &st) != 0)
        return BURST_OK;
    path_of(o, trial_name, empty);
    if (mkdir(empty, st.st_mode & 0777) != 0)
        return io_failed(c, "create the directory", empty);
    bool renamed = renameat2(AT_FDCWD, empty, AT_FDCWD, folder, RENAME_EXCHANGE) == 0;
    const bool can = renamed || (errno != EINVAL && errno != ENOSYS && errno != EXDEV && errno != EOPNOTSUPP);
    renamed = renamed && renameat2(AT_FDCWD, empty, AT_FDCWD, folder, RENAME_EXCHANGE) == 0;
    const int reason = errno;
    rmdir(empty);
    if (renamed || !can)
        return BURST_OK;
    return burst_fail(
        c, BURST_E_USAGE,
        "cannot export to '%s': the directory cannot be replaced: %s; choose a new directory inside it",
        o->folder, strerror(reason));
}

static int create(BurstCtx *c, const BurstPlan *p, Export *o)
{
    BURST_TRY(folder_free(c, o));
    if (mkdir(o->part, 0777) != 0 && errno != EEXIST)
        return io_failed(c, "create the directory", o->part);
    if (!output_is_trusted(o->part))
        return burst_fail(c, BURST_E_USAGE, "cannot export to '%s': '%s' is in the way: %s", o->folder,
                          o->part, output_reason(EPERM));
    BURST_TRY(lock_take(c, p, o->part, &o->lock));
    BURST_TRY(clear_part(c, o));
    BURST_TRY(try_rename(c, o));
    return create_files(c, p, o);
}

/* What rank 0 made before the training is still this run's, or made again. */
static int hold(BurstCtx *c, const BurstPlan *p, Export *o)
{
    if (o->lock >= 0 && lock_stands(o->part, o->lock))
        return BURST_OK;
    if (o->lock >= 0)
        close(o->lock);
    o->lock = -1;
    return create(c, p, o);
}

/* ---- this rank's elements ---- */

/* fp32, each with `shift` added. */
static bool write_shifted(int fd, const float *from, float shift, int64_t count, off_t at)
{
    float piece[PIECE];
    for (int64_t done = 0; done < count; done += PIECE) {
        const int64_t n = count - done < PIECE ? count - done : PIECE;
        for (int64_t i = 0; i < n; i++)
            piece[i] = from[done + i] + shift;
        if (!write_at(fd, piece, (size_t)n * sizeof *piece, at + (off_t)(done * (int64_t)sizeof *piece)))
            return false;
    }
    return true;
}

static bool write_elements(int fd, int dtype, const float *from, float shift, int64_t count, off_t at)
{
    uint16_t piece[PIECE];
    if (dtype == BURST_F32 && shift != 0)
        return write_shifted(fd, from, shift, count, at);
    if (dtype == BURST_F32)
        return write_at(fd, from, (size_t)count * sizeof *from, at);
    for (int64_t done = 0; done < count; done += PIECE) {
        int64_t n = count - done < PIECE ? count - done : PIECE;
        for (int64_t i = 0; i < n; i++)
            piece[i] = to_bf16(from[done + i] + shift);
        if (!write_at(fd, piece, (size_t)n * sizeof *piece, at + (off_t)(done * (int64_t)sizeof *piece)))
            return false;
    }
    return true;
}

/* Rows of the plan's that lie across the folder's tensor: neighbours among them at once, where other parts'
 * rows do not stand between them. */
static bool write_across(const StPlace *place, const BurstRun *r, const float *from, float shift, off_t begin,
                         int fd, int dtype)
{
    const int64_t row = r->from / place->run, end = (r->from + r->count - 1) / place->run + 1,
                  size = dtype == BURST_F32 ? 4 : 2;
    float *part = malloc((size_t)(end - row) * sizeof *part);
    bool written = part != NULL;
    for (int64_t col = 0; written && col < place->run; col++) {
        const int64_t first = row + (row * place->run + col < r->from),
                      last = end - ((end - 1) * place->run + col >= r->from + r->count);
        for (int64_t i = first; i < last; i++)
            part[i - first] = from[i * place->run + col - r->from];
        const int64_t each = place->stride == 1 ? last - first : 1;
        for (int64_t i = first; written && i < last; i += each)
            written = write_elements(fd, dtype, part + i - first, shift, each,
                                     begin + (place->first + i * place->stride + col * place->step) * size);
    }
    free(part);
    return written;
}

/* A run of the plan's tensor where the folder's has it. begin: of the folder's tensor in the file. */
static bool write_run(const StPlace *place, const BurstRun *r, const float *from, float shift, off_t begin,
                      int fd, int dtype)
{
    bool written = true;
    if (place->step > 1)
        return write_across(place, r, from, shift, begin, fd, dtype);
    for (int64_t done = 0, count; written && done < r->count; done += count) {
        count = r->count - done;
        const int64_t at = element_at(place, r->from + done, &count);
        written = write_elements(fd, dtype, from + done, shift, count,
                                 begin + at * (dtype == BURST_F32 ? 4 : 2));
    }
    return written;
}

static bool write_entry(const BurstCtx *c, const BurstPlan *p, const BurstWeights *w, const Export *o,
                        const Entry *e, int fd)
{
    const BurstUnit *u = burst_unit(p, e->unit);
    const off_t begin = (off_t)o->file[e->file].header_bytes + e->begin;
    const float shift = tensor_shift(o->naming.family, e->tensor);
    const StPlace place = tensor_place(p, &o->naming, e->unit, &e->piece.tensor);
    bool written = true;
    for (BurstRun r = {0}, part; written && tensor_is_written(p, c->rank, u, e->tensor) &&
                                 burst_next_run(p, c->rank, u, e->tensor, &r);)
        written = !piece_run(&e->piece, &r, &part) || write_run(&place, &part, w->param[e->unit] + part.at,
                                                                shift, begin, fd, dtype_of(o, e->tensor));
    return written;
}

static int open_part(BurstCtx *c, const Export *o, const char *name, int flags, char path[PATH_MAX], int *fd)
{
    path_of(o, name, path);
    *fd = open(path, O_WRONLY | O_CLOEXEC | flags, 0666);
    if (*fd >= 0)
        return BURST_OK;
    if (errno != ENOENT)
        return io_failed(c, "write", path);
    return burst_fail(c, BURST_E_IO,
                      "rank 0 created '%s', but rank %d cannot see it; with ranks on several hosts, --export "
                      "requires a shared file system",
                      path, c->rank);
}

static int write_file(BurstCtx *c, const BurstPlan *p, const BurstWeights *w, const Export *o,
                      const OutFile *f)
{
    char path[PATH_MAX];
    bool written = true;
    int fd;
    BURST_TRY(open_part(c, o, f->name, 0, path, &fd));
    for (int i = 0; written && i < o->entries; i++)
        written = &o->file[o->entry[i].file] != f || !plan_writes(p, c->rank, i) ||
                  write_entry(c, p, w, o, &o->entry[i], fd);
    return close_written(c, fd, written, path);
}

/* An empty file says that this rank has written: rank 0 sees it only where it sees the data too. */
static int write_mine(BurstCtx *c, const BurstPlan *p, const BurstWeights *w, const Export *o)
{
    char name[FILE_NAME], path[PATH_MAX];
    int fd;
    for (int i = 0; i < o->own; i++)
        BURST_TRY(write_file(c, p, w, o, &o->file[i]));
    mark_name(c->rank, name);
    BURST_TRY(open_part(c, o, name, O_CREAT, path, &fd));
    return close_written(c, fd, true, path);
}

/* ---- after: rank 0 ---- */

static int copy_beside(BurstCtx *c, const Export *o)
{
    char path[PATH_MAX];
    int fd;
    for (const BesideTensor *b = o->beside.tensor; b < o->beside.tensor + o->beside.count; b++) {
        const OutFile *f = &o->file[o->own + b->file];
        const StTensor *t = b->tensor;
        BURST_TRY(open_part(c, o, f->name, 0, path, &fd));
        const bool copied = copy_bytes(t->file->fd, (off_t)(t->file->data_at + t->begin), fd,
                                       (off_t)f->header_bytes + b->begin, t->end - t->begin);
        BURST_TRY(close_written(c, fd, copied, path));
    }
    return BURST_OK;
}

static int take_marks(BurstCtx *c, const Export *o)
{
    char name[FILE_NAME], path[PATH_MAX];
    for (int rank = 0; rank < c->world; rank++) {
        mark_name(rank, name);
        path_of(o, name, path);
        if (unlink(path) != 0)
            return burst_fail(c, BURST_E_IO,
                              "rank %d did not write to '%s' of rank 0; with ranks on several hosts, "
                              "--export requires a shared file system",
                              rank, o->part);
    }
    return BURST_OK;
}

/* Makes sure that the names in a folder outlive a crash. */
static int sync_folder(BurstCtx *c, const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 ? io_failed(c, "open", path) : close_written(c, fd, true, path);
}

static int sync_parent(BurstCtx *c, const Export *o)
{
    char path[PATH_MAX];
    memcpy(path, o->part, sizeof path);
    parent_of(path);
    return sync_folder(c, path);
}

static int write_json(BurstCtx *c, const Export *o, const char *name, const char *text, size_t bytes)
{
    char path[PATH_MAX];
    int fd;
    BURST_TRY(open_part(c, o, name, 0, path, &fd));
    return close_written(c, fd, write_at(fd, text, bytes, 0), path);
}

static int write_headers(BurstCtx *c, const Export *o)
{
    char path[PATH_MAX];
    int fd;
    for (const OutFile *f = o->file; f < o->file + o->files; f++) {
        BURST_TRY(open_part(c, o, f->name, 0, path, &fd));
        BURST_TRY(close_written(c, fd, write_at(fd, f->header, f->header_bytes, 0), path));
    }
    return BURST_OK;
}

/* Nothing that was exported is lost. */
static int move_aside(BurstCtx *c, const Export *o, const char *folder)
{
    char aside[PATH_MAX + 32];
    for (int i = 1; i < EARLIER_MOST; i++) {
        snprintf(aside, sizeof aside, "%s.earlier-%d", folder, i);
        if (access(aside, F_OK) != 0)
            break;
    }
    if (rename(folder, aside) != 0 && errno != ENOENT)
        return burst_fail(c, BURST_E_IO,
                          "cannot move the earlier export '%s' to '%s': %s; the complete weights are in '%s'",
                          o->folder, aside, strerror(errno), o->part);
    say_line("moved the earlier export '%s' to '%s'", o->folder, aside);
    return BURST_OK;
}

/* A folder that was there keeps its permissions. */
static int publish(BurstCtx *c, Export *o)
{
    char path[PATH_MAX];
    struct stat st;
    final_name(o, path);
    o->kept = true;
    if (stat(path, &st) == 0)
        (void)!chmod(o->part, st.st_mode & 07777);
    if (o->earlier)
        BURST_TRY(move_aside(c, o, path));
    if (rename(o->part, path) != 0)
        return burst_fail(c, BURST_E_IO, "cannot rename to '%s': %s; the complete weights are in '%s'",
                          o->folder, strerror(errno), o->part);
    /* Only now: without its lock, another export would take a whole .part for one that was interrupted,
     * and clear it. */
    snprintf(path + strlen(path), sizeof path - strlen(path), "/.lock");
    unlink(path);
    return sync_parent(c, o);
}

/* Headers and config.json last: until then nobody reads the folder for weights. */
static int finish(BurstCtx *c, const BurstPlan *p, Export *o)
{
    BURST_TRY(take_marks(c, o));
    if (o->source && !o->config)
        say_line("cannot read '%s/config.json'; '%s' is exported without the tokenizer and its token ids",
                 o->source, o->folder);
    BURST_TRY(copy_beside(c, o));
    BURST_TRY(write_headers(c, o));
    BURST_TRY(for_each_json(c, p, o, write_json));
    BURST_TRY(sync_folder(c, o->part));
    return publish(c, o);
}

/* Where it cannot be read, a run that begins with its weights ends by that; one that resumes goes on. */
static void read_source(BurstCtx *c, Export *o)
{
    char path[PATH_MAX];
    if (c->rank != 0 || !o->source || config_load_whole(c, o->source, path, &o->config) == BURST_OK)
        return;
    json_decref(o->config);
    o->config = NULL;
    c->error[0] = 0;
}

/* How tensors are named there, and how many files there are beside: every rank writes by both. */
static int read_beside(BurstCtx *c, const BurstPlan *p, int64_t shard_bytes, Export *o, int *others)
{
    double said[2] = {0};
    if (c->rank == 0) {
        BURST_TRY(all_agree(c, beside_open(c, p, o->source, o->config, shard_bytes, &o->beside)));
        said[0] = o->beside.folder.way, said[1] = o->beside.files;
    } else {
        BURST_TRY(all_agree(c, BURST_OK));
    }
    BURST_TRY(burst_allreduce(c, (BurstGroup){0, 1, c->world}, said, 2));
    o->naming = naming_of(model_of(p).family, (int)said[0]);
    *others = (int)said[1];
    return BURST_OK;
}

int export_open(BurstCtx *c, const BurstPlan *p, const char *folder, const char *source, int dtype,
                int64_t shard_bytes, bool resumes, Export **e)
{
    burst_doing(c, "testing the export directory");
    Export *o = *e = calloc(1, sizeof *o);
    if (!o)
        return burst_fail(c, BURST_E_MEMORY, "out of memory for the export");
    if (model_needs_family(p))
        return burst_fail(c, BURST_E_PLAN,
                          "an export of this model requires its family: set `family` in the model");
    int others;
    *o = (Export){.folder = folder,
                  .source = source,
                  .lock = -1,
                  .dtype = dtype,
                  .size = dtype == BURST_F32 ? 4 : 2,
                  .resumes = resumes};
    read_source(c, o);
    BURST_TRY(read_beside(c, p, shard_bytes, o, &others));
    BURST_TRY(lay_out(c, p, shard_bytes, others, o));
    if (c->rank != 0)
        return BURST_OK;
    BURST_TRY(config_check_export(c, p, folder, o->config));
    carry_say(folder, source, o->config, o->naming.family);
    return create(c, p, o);
}

int export_write(BurstCtx *c, const BurstPlan *p, const BurstWeights *w, Export *o)
{
    burst_doing(c, "exporting weights");
    BURST_TRY(all_agree(c, c->rank == 0 ? hold(c, p, o) : BURST_OK));
    BURST_TRY(all_agree(c, write_mine(c, p, w, o)));
    const int status = c->rank == 0 ? finish(c, p, o) : BURST_OK;
    double whole = o->kept;
    BURST_TRY(await_files(c, &whole, 1));
    o->kept = whole > 0;
    return all_agree(c, status);
}

bool export_is_whole(const Export *e)
{
    return e && e->kept;
}

void export_close(BurstCtx *c, Export *o)
{
    char path[PATH_MAX];
    if (!o)
        return;
    if (c->rank == 0 && o->lock >= 0 && !o->kept && lock_stands(o->part, o->lock)) {
        clear_part(c, o);
        path_of(o, ".lock", path);
        unlink(path);
        rmdir(o->part);
    }
    layout_drop(o);
    free(o);
}
