/* import.c: `burstc import FOLDER`: reads the model that safetensors/import.c writes like any model, and
 * compares its tensors with the folder's. Each mismatch is an error. */
#include "import/import.h"

#include "base/progress.h"
#include "core/context.h"
#include "safetensors/safetensors.h"

#include <stdlib.h>

typedef struct Told {
    Diags *diags;
    const char *folder;
} Told;

static void tell(void *to, const char *text)
{
    const Told *t = to;
    diag_error(t->diags, (Span){0}, "'%s' cannot be imported: %s", t->folder, text);
}

/* Reads the text as a program for any cluster. Returns NULL if it is refused, and sets *why. */
static const Program *program_of(Arena *a, const char *share, const char *folder, const char *text,
                                 const char **why)
{
    Diags *d = diags_new(a);
    const FrontEnd in = {.model_path = folder,
                         .model_text = text,
                         .stock_dir = share,
                         .target = &targets[TARGET_C]};
    const Program *p = front_end(a, d, &in);
    *why = arena_printf(a, "%s", diags_first(d));
    return p;
}

/* If the folder has no weights, only config.json is imported. */
static int compare_tensors(Arena *a, BurstCtx *c, const Program *p, const char *folder, Misfits *m)
{
    HfFolder f = {.path = folder, .family = family_named(p->model.family)};
    if (!folder_has_weights(folder))
        return BURST_OK;
    const int status = folder_compare(c, model_plan(a, p), &f, m);
    folder_close(&f);
    return status;
}

/* A model that the front end refuses is reported only if there is no other mismatch, which would explain
 * it. */
static int compare(Arena *a, BurstCtx *c, const char *share, const char *folder, const char *text, Misfits *m)
{
    const char *why;
    const Program *p = program_of(a, share, folder, text, &why);
    if (!p && !m->count)
        misfit(m, "%s", why);
    return p ? compare_tensors(a, c, p, folder, m) : BURST_OK;
}

static int import(Arena *a, BurstCtx *c, const char *share, const char *folder, Text *out, Misfits *m)
{
    char *text = NULL;
    size_t n = 0;
    bool written = false;
    FILE *to = open_memstream(&text, &n);
    if (!to)
        out_of_memory();
    int status = folder_import(c, folder, to, m, &written);
    if (fclose(to) != 0)
        out_of_memory();
    if (status == BURST_OK && written)
        status = compare(a, c, share, folder, text, m);
    text_add_n(out, text, n);
    free(text);
    return status;
}

bool import_folder(Arena *a, Diags *d, const char *share, const char *folder, Text *out)
{
    BurstCtx *c = NEW(a, BurstCtx); /* collects mismatches */
    Misfits m = {0};
    Told told = {d, folder};
    c->rank = -1;
    progress_say("reading %s", folder);
    const int status = import(a, c, share, folder, out, &m);
    misfits_tell(&m, MISFIT_MODEL, tell, &told);
    if (status != BURST_OK)
        tell(&told, burst_error(c));
    misfits_close(&m);
    return diags_errors(d) == 0;
}
