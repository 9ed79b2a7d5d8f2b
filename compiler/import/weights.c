/* import/weights.c: compares the folder that `weights` names with the model before anything is emitted. The
 * program compares again before it reads a weight. */
#include "import/import.h"

#include "core/context.h"
#include "safetensors/safetensors.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

typedef struct Told {
    Diags *diags;
    const Program *program;
    const Misfits *misfits;
    bool begun;
    int row; /* index into warned */
} Told;

static void tell(void *to, const char *text)
{
    Told *t = to;
    const Train *train = &t->program->train;
    if (t->misfits->alone)
        diag_error(t->diags, train->weights_span, "'%s' cannot be used: %s", train->weights, text);
    else if (!t->begun)
        diag_error(t->diags, train->weights_span, "'%s' does not match the model", train->weights);
    t->begun = true;
    if (!t->misfits->alone)
        diag_note(t->diags, (Span){0}, "%s", text);
}

/* Mismatches that are warnings: the program may still start with an option. */
static const struct {
    MisfitKind kind;
    Warning warning;
    const char *before, *after; /* around the folder's name */
} warned[] = {
    {MISFIT_MASKS, WARN_OTHER_MASKS, "masks of", "differ from the model's"},
    {MISFIT_ROPE, WARN_OTHER_ROPE, "RoPE of", "differs from the model's"},
    {MISFIT_LENGTH, WARN_LONG_SEQUENCE, "the sequence is longer than", "is made for"},
};
enum { WARNED = sizeof warned / sizeof *warned };

static void warn(void *to, const char *text)
{
    const Told *t = to;
    const Train *train = &t->program->train;
    diag_warn(t->diags, warned[t->row].warning, train->weights_span, "%s '%s' %s: %s", warned[t->row].before,
              train->weights, warned[t->row].after, text);
}

static int compare(Arena *a, BurstCtx *c, const Program *p, HfFolder *f, Misfits *m)
{
    const BurstPlan *plan = model_plan(a, p);
    return folder_has_weights(f->path) ? folder_open(c, plan, f, m)
                                       : config_check(c, plan, f->path, m, &f->family);
}

void weights_check(Arena *a, Diags *d, const Program *p)
{
    struct stat st;
    char hint[FOLDER_HINT];
    const Train *train = &p->train;
    if (!train->weights || p->library)
        return;
    if (stat(train->weights, &st) != 0) {
        const int why = errno;
        folder_hint(train->weights, hint);
        diag_warn(d, WARN_MISSING_WEIGHTS, train->weights_span,
                  "cannot compare '%s' with the model: %s; the program compares them when it starts%s",
                  train->weights, strerror(why), hint);
        return;
    }
    BurstCtx *c = NEW(a, BurstCtx); /* collects mismatches */
    HfFolder f = {.path = train->weights};
    Misfits m = {.compiling = true};
    Told told = {.diags = d, .program = p, .misfits = &m};
    c->rank = -1;
    const int status = compare(a, c, p, &f, &m);
    misfits_tell(&m, MISFIT_MODEL, tell, &told);
    if (status != BURST_OK)
        tell(&told, burst_error(c));
    if (!told.begun && !folder_has_weights(f.path))
        diag_warn(
            d, WARN_MISSING_WEIGHTS, train->weights_span,
            "'%s' has neither model.safetensors nor its index, so only its config.json was compared with "
            "the model; the program compares the weights when it starts",
            train->weights);
    for (; told.row < WARNED; told.row++)
        misfits_tell(&m, warned[told.row].kind, warn, &told);
    misfits_close(&m);
    folder_close(&f);
}
