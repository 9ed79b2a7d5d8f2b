/* check.c: the front end: reads files and imports, then checks the parts of the program in order of
 * dependence. */
#include "check.h"
#include "ir/kernels.h"

#include "burst_sizes.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static void read_stock(Checker *c);
static void read_user_files(Checker *c);

/* The requested target, or the cluster's devices' target. Processors are always accepted; other devices must
 * be in the cluster. */
static const Target *find_target(Checker *c, const Target *asked)
{
    const Cluster *k = &c->program->cluster;
    if (asked && asked != k->target && asked->device_memory && k->group_count > 0)
        diag_error(c->diags, k->groups[0].span,
                   "a %s program runs on %ss, but '%s' is a %s; write %s with `-o FILE%s`", asked->language,
                   asked->device, k->groups[0].device->name, k->target->device, k->target->language,
                   k->target->suffix);
    return asked ? asked : k->target;
}

static bool is_made(const Target *t, int head_dim)
{
    return !t || !t->head_dim.step || head_dim <= 0 ||
           (head_dim >= t->head_dim.least && head_dim <= t->head_dim.most &&
            head_dim % t->head_dim.step == 0);
}

/* Checks head_dim against the kernels' limits. */
static void check_head_dim(Checker *c)
{
    const Model *m = &c->program->model;
    const Target *t = c->program->target;
    if (m->latent && !is_made(t, m->value_dim))
        diag_error(c->diags, m->latent_span,
                   "value_dim %d is not supported: %s attention requires a multiple of %d from %d to %d",
                   m->value_dim, t->language, t->head_dim.step, t->head_dim.least, t->head_dim.most);
    if (!is_made(t, m->head_dim))
        diag_error(c->diags, m->head_dim_span,
                   "head_dim %d is not supported: %s attention requires a multiple of %d from %d to %d; "
                   "heads times head_dim may differ from hidden",
                   m->head_dim, t->language, t->head_dim.step, t->head_dim.least, t->head_dim.most);
}

/* A device rotates eight pairs at a time if pairs are of two halves, four if of neighbours, and copies eight
 * elements of the rest at a time. */
static void check_rotary(Checker *c)
{
    const BurstRope *r = &c->program->model.rope;
    const int step = r->interleaved ? 8 : 16, turns = abs(r->rotary);
    if (c->program->target && c->program->target->device_memory && turns % step)
        diag_error(c->diags, c->program->model.rotary_span,
                   "rotary %d is not supported: %s programs require a multiple of %d here, C programs an "
                   "even number",
                   turns, c->program->target->language, step);
}

/* A device's kernels move eight elements at a time. */
static void check_latents(Checker *c)
{
    const Program *p = c->program;
    const struct {
        const char *name;
        int value;
    } row[] = {{"latent", p->model.latent}, {"query_latent", p->model.query_latent}};
    for (int i = 0; i < countof(row) && p->target && p->target->device_memory; i++)
        if (row[i].value % 8)
            diag_error(c->diags, p->model.latent_span,
                       "%s %d is not supported: %s programs require a multiple of 8", row[i].name,
                       row[i].value, p->target->language);
}

static void check_experts(Checker *c)
{
    const Program *p = c->program;
    const int width[] = {p->model.experts.width, p->model.experts.shared};
    for (int i = 0; i < countof(width) && p->target && p->target->device_memory; i++)
        if (p->model.experts.experts && width[i] % 8)
            diag_error(c->diags, p->model.experts_span,
                       "experts of width %d are not supported: %s programs require a multiple of 8", width[i],
                       p->target->language);
}

/* Sizes that a device's kernels of recurrent layers have. */
static void check_scans(Checker *c)
{
    const Program *p = c->program;
    const BurstScan *s = &p->model.scan;
    const int gates = (s->read ? 2 : 1) * s->heads, values = s->heads * s->value_dim;
    const struct {
        bool has;
        const char *name;
        int value;
        const char *needs;
    } row[] = {
        {s->key_dim == 64 || s->key_dim == 128 || s->key_dim == 256, "key_dim", s->key_dim,
         "key_dim 64, 128 or 256"},
        {s->value_dim % 64 == 0, "value_dim", s->value_dim, "a multiple of 64"},
        {gates % 8 == 0, "heads", s->heads,
         s->read ? "a multiple of 4, for gates of 16 bytes" : "a multiple of 8, for gates of 16 bytes"},
        {s->read || values <= BURST_GPU_GATED_NORM_ELEMENTS, "heads times value_dim", values,
         "at most 40960, whose norm has a weight each"},
    };
    for (int i = 0; i < countof(row) && s->heads && p->target && p->target->device_memory; i++)
        if (!row[i].has)
            diag_error(
                c->diags, p->model.scan_span,
                "a 'scan' with %s %d is not supported in %s programs, which need %s; C programs have it: use "
                "a cluster of CPUs",
                row[i].name, row[i].value, p->target->language, row[i].needs);
}

/* On CPUs all sums have a fixed order anyway. */
static void check_deterministic(Checker *c)
{
    const Program *p = c->program;
    if (p->train.deterministic && p->target && p->target->device_memory && !kernels_of(p).form)
        diag_error(
            c->diags, p->train.deterministic_span,
            "`deterministic yes` requires the sm_90a attention kernels: all devices sm_90a, head_dim 64 or "
            "128, value_dim the same, and no softcap at head_dim 64; other kernels accumulate dQ in no fixed "
            "order");
}

/* Fills the program, after errors as far as it could be read. */
static const Program *fill_program(Checker *c)
{
    const int before = diags_errors(c->diags);
    c->program->topo_path = c->in->topo_path;
    c->program->model_path = c->in->model_path;
    read_stock(c);
    read_user_files(c);
    if (diags_errors(c->diags) - before != c->mended)
        return c->program;
    if (c->in->topo_path)
        finish_topology(c);
    begin_infer(c);
    finish_model(c);
    finish_layout(c);
    finish_train(c);
    check_mask_declarations(c);
    finish_attention(c);
    settle_library(c);
    c->program->target = find_target(c, c->in->target);
    check_head_dim(c);
    check_experts(c);
    check_scans(c);
    check_indexer(c);
    check_selections(c);
    check_rotary(c);
    check_latents(c);
    check_deterministic(c);
    check_infer(c);
    check_tensor_target(c);
    c->program->schedules = c->schedules.at;
    c->program->schedule_count = c->schedules.n;
    return c->program;
}

const Program *front_end(Arena *a, Diags *d, const FrontEnd *in)
{
    const int before = diags_errors(d);
    Checker c = {.arena = a, .diags = d, .in = in, .program = NEW(a, Program)};
    const Program *p = fill_program(&c);
    return diags_errors(d) == before ? p : NULL;
}

const Program *front_end_names(Arena *a, const FrontEnd *in)
{
    Checker c = {.arena = a, .diags = diags_new(a), .in = in, .program = NEW(a, Program)};
    return fill_program(&c);
}

/* ---- reading files ---- */
void add_input(Checker *c, const char *path)
{
    if (c->program)
        *vec_push(c->arena, &c->program->inputs) = path;
}

static const Source *source_of(Checker *c, const char *path, const char *text, size_t len)
{
    Source *s = NEW(c->arena, Source);
    *s = (Source){.name = path, .text = text, .len = len};
    return s;
}

static const Source *read_source(Checker *c, const char *path, Span at)
{
    size_t len;
    const char *text = read_file(c->arena, path, &len);
    if (!text) {
        diag_error(c->diags, at, "cannot read '%s': %s", path, strerror(errno));
        return NULL;
    }
    add_input(c, path);
    return source_of(c, path, text, len);
}

static AstList read_items(Checker *c, const char *path, Span at)
{
    const Source *s = read_source(c, path, at);
    return s ? parse_source(c->arena, c->diags, s, &c->mended) : (AstList){0};
}

static void report_cycle(Checker *c, Span import, const LoadedFile *again)
{
    diag_error(c->diags, import, "'%s' imports itself", again->path);
    for (int i = 0; i < c->files.n; i++)
        if (c->files.at[i]->open && c->files.at[i]->import.src)
            diag_note(c->diags, c->files.at[i]->import, "imported from here");
}

/* Reads a file once, under whatever name. Returns NULL if it was read before or cannot be read. */
static LoadedFile *load_once(Checker *c, const char *path, Span import)
{
    struct stat st = {0};
    if (stat(path, &st) != 0) {
        diag_error(c->diags, import, "cannot read '%s': %s", path, strerror(errno));
        return NULL;
    }
    for (int i = 0; i < c->files.n; i++) {
        const LoadedFile *f = c->files.at[i];
        if (f->device != st.st_dev || f->inode != st.st_ino)
            continue;
        if (f->open)
            report_cycle(c, import, f);
        return NULL;
    }
    LoadedFile *f = *vec_push(c->arena, &c->files) = NEW(c->arena, LoadedFile);
    *f = (LoadedFile){.device = st.st_dev, .inode = st.st_ino, .path = path, .import = import};
    f->items = read_items(c, path, import);
    return f;
}

/* Takes the model from a given text. */
static LoadedFile *load_text(Checker *c, const char *path, const char *text)
{
    LoadedFile *f = NEW(c->arena, LoadedFile);
    f->path = path;
    f->items = parse_source(c->arena, c->diags, source_of(c, path, text, strlen(text)), &c->mended);
    return f;
}

static void declare_file(Checker *c, LoadedFile *f, void (*declare)(Checker *, AstList))
{
    if (!f)
        return;
    f->open = true;
    declare(c, f->items);
    f->open = false;
}

static void read_once(Checker *c, const char *path, Span import, void (*declare)(Checker *, AstList))
{
    declare_file(c, load_once(c, path, import), declare);
}

/* ---- imports ---- */
/* A file named in a text must be a regular file: a device or a pipe might never end. */
bool is_plain_file(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

const char *path_beside(Arena *a, Span at, const char *path)
{
    const char *from = at.src->name, *slash = strrchr(from, '/');
    if (path[0] == '/' || !slash)
        return path;
    return arena_printf(a, "%.*s%s", (int)(slash - from + 1), from, path);
}

/* The existing one of folder/name and folder/name.ext. */
static const char *file_in(Checker *c, const char *folder, const char *name, const char *extension)
{
    const char *path = arena_printf(c->arena, "%s%s%s", folder, name, extension);
    if (is_plain_file(path))
        return path;
    path = arena_printf(c->arena, "%s%s", folder, name);
    return is_plain_file(path) ? path : NULL;
}

/* Names without a slash refer to stock files first; everything else is relative to the importing file. */
void import_file(Checker *c, const Ast *setting, const char *extension, void (*declare)(Checker *, AstList))
{
    Cursor u = cursor_of(c, setting);
    const Ast *name = cursor_string(&u, "a file in quotes, such as \"masks\"");
    if (!cursor_end(&u))
        return;
    const char *from = setting->span.src->name, *slash = strrchr(from, '/'), *path = NULL;
    const char *folder = slash ? arena_copy(c->arena, from, (size_t)(slash - from + 1)) : "";
    if (!strchr(name->text, '/'))
        path = file_in(c, arena_printf(c->arena, "%s/", c->in->stock_dir), name->text, extension);
    if (!path)
        path = file_in(c, name->text[0] == '/' ? "" : folder, name->text, extension);
    if (path) {
        read_once(c, path, name->span, declare);
        return;
    }
    static const char *const stock[] = {"masks", "devices"};
    const char *near = nearest_name(name->text, stock, countof(stock));
    diag_error(c->diags, name->span,
               "cannot find '%s': it is neither a stock file nor a file in this file's "
               "folder%s",
               name->text, near ? arena_printf(c->arena, "; did you mean '%s'?", near) : "");
}

/* ---- schedules ---- */
static const SchedText *add_schedule(Checker *c, const SchedText *s, bool stock, Span at)
{
    for (int i = 0; i < c->schedules.n; i++) {
        const SchedText *other = c->schedules.at[i];
        if (strcmp(other->name, s->name) != 0)
            continue;
        if (i >= c->stock_schedules) {
            diag_error(c->diags, at.src ? at : s->span, "schedule '%s' is defined twice", s->name);
            diag_note(c->diags, other->span, "first here");
            return NULL;
        }
        c->schedules.at[i] = s;
        return s;
    }
    *vec_push(c->arena, &c->schedules) = s;
    c->stock_schedules += stock;
    return s;
}

const SchedText *load_schedule(Checker *c, const char *path, Span at)
{
    const Source *source = read_source(c, path, at);
    if (!source)
        return NULL;
    int before = diags_errors(c->diags), mended = 0;
    AstList items = parse_source(c->arena, c->diags, source, &mended);
    c->mended += mended;
    if (diags_errors(c->diags) - before != mended)
        return NULL;
    const SchedText *s = check_schedule(c, source, items);
    return s ? add_schedule(c, s, c->stock, at) : NULL;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Reads all .sched files of the stock folder, sorted by name. */
static void read_stock_schedules(Checker *c)
{
    const char *folder = arena_printf(c->arena, "%s/schedules", c->in->stock_dir);
    Vec(const char *) paths = {0};
    DIR *dir = opendir(folder);
    if (!dir && errno == ENOMEM)
        out_of_memory();
    if (!dir) {
        diag_error(c->diags, (Span){0}, "cannot read the stock schedules in '%s': %s", folder,
                   strerror(errno));
        return;
    }
    for (const struct dirent *e; (e = readdir(dir));) {
        size_t n = strlen(e->d_name);
        if (n > 6 && strcmp(e->d_name + n - 6, ".sched") == 0)
            *vec_push(c->arena, &paths) = arena_printf(c->arena, "%s/%s", folder, e->d_name);
    }
    closedir(dir);
    if (paths.n)
        qsort(paths.at, (size_t)paths.n, sizeof *paths.at, by_name);
    for (int i = 0; i < paths.n; i++)
        load_schedule(c, paths.at[i], (Span){0});
}

const SchedText *parse_schedule(Arena *a, Diags *d, const char *stock_dir, const char *path)
{
    const FrontEnd in = {.stock_dir = stock_dir};
    Checker c = {.arena = a, .diags = d, .in = &in};
    int before = diags_errors(d);
    c.stock = true;
    if (stock_dir)
        read_stock_schedules(&c);
    c.stock = false;
    const SchedText *s = load_schedule(&c, path, (Span){0});
    return diags_errors(d) == before ? s : NULL;
}

static void read_stock(Checker *c)
{
    c->stock = true;
    read_once(c, arena_printf(c->arena, "%s/devices.topo", c->in->stock_dir), (Span){0}, check_topology);
    read_once(c, arena_printf(c->arena, "%s/masks.burst", c->in->stock_dir), (Span){0}, check_declarations);
    read_stock_schedules(c);
    c->stock = false;
}

static void read_user_files(Checker *c)
{
    const char *topo_path = c->in->topo_path, *model_path = c->in->model_path;
    LoadedFile *topo = topo_path ? load_once(c, topo_path, (Span){0}) : NULL;
    int before = diags_errors(c->diags);
    LoadedFile *model = c->in->model_text ? load_text(c, model_path, c->in->model_text)
                                          : load_once(c, model_path, (Span){0});
    if (topo && model && is_model_file(topo->items) && is_cluster_file(model->items)) {
        diag_error(c->diags, (Span){0},
                   "'%s' is a model and '%s' is a cluster; give the cluster first: burstc %s %s", topo_path,
                   model_path, model_path, topo_path);
        return;
    }
    if (topo && !model && diags_errors(c->diags) == before) {
        diag_error(c->diags, (Span){0}, "'%s' is given both as the cluster and as the model", model_path);
        return;
    }
    declare_file(c, topo, check_topology);
    declare_file(c, model, check_declarations);
    for (int i = 0; i < c->in->schedule_path_count; i++)
        load_schedule(c, c->in->schedule_paths[i], (Span){0});
}

/* ---- --emit=ast: the user's files as parsed ---- */
static void print_file(Arena *a, Diags *d, const char *path, Text *out)
{
    Checker c = {.arena = a, .diags = d};
    const Source *s = path ? read_source(&c, path, (Span){0}) : NULL;
    if (s)
        ast_print(s, parse_source(a, d, s, &c.mended), out);
}

void print_ast(Arena *a, Diags *d, const FrontEnd *in, Text *out)
{
    text_add(out, "burst-ast 1\n");
    print_file(a, d, in->topo_path, out);
    print_file(a, d, in->model_path, out);
    for (int i = 0; i < in->schedule_path_count; i++)
        print_file(a, d, in->schedule_paths[i], out);
}
