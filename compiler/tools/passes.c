/* tools/passes.c: --dump-after=PASS and --verify-each: makes the plan's step once more and shows or checks
 * its list after each pass. */
#include "tools/output.h"

#include "step/verify/verify.h"

#include <string.h>

bool pass_exists(const char *name)
{
    for (int i = 0; step_pass_name(i); i++)
        if (strcmp(name, step_pass_name(i)) == 0)
            return true;
    return strcmp(name, "all") == 0;
}

const char *pass_names(Arena *a)
{
    const char *names = "all";
    for (int i = 0; step_pass_name(i); i++)
        names = arena_printf(a, "%s, %s", names, step_pass_name(i));
    return names;
}

typedef struct Watcher { Diags *diags; const Request *asked; Text *out; } Watcher;

/* Prints a list that a check refuses, even if it was not requested, and none after it. */
static void see(void *to, const char *pass, const Step *s)
{
    const Watcher *w = to;
    const char *after = w->asked->dump_after;
    if (diags_errors(w->diags))
        return;
    const bool refused = w->asked->verify_each && !step_check(w->diags, s, pass);
    if (!refused && !(after && (strcmp(after, "all") == 0 || strcmp(after, pass) == 0)))
        return;
    text_printf(w->out, "after pass %s%s\n", pass, refused ? ", refused" : "");
    print_step(s, w->out);
}

int print_passes(Arena *a, Diags *d, const Request *o, const Found *f)
{
    const Draft *t = plan_draft(f->plan);
    const StepInput in = {
        .program = t->program,
        .choice = t->attention.at[0].choice,
        .partition = t->partition,
        .units = t->units,
        .pairs = step_pairs(a, t->program, &t->choice, t->partition, t->counts),
        .attention = t->memory.scratch,
        .keys = t->memory.keys,
    };
    Text out = {0};
    if (!o->dump_after && !o->verify_each)
        return 0;
    step_make_watched(a, &in, see, &(Watcher){d, o, &out});
    const int status = out.n ? print_text(out.at) : 0;
    text_free(&out);
    return diags_errors(d) ? EXIT_INTERNAL : status;
}
