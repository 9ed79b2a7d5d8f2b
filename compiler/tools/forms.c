/* forms.c: prints what --emit=FORM prints from a plan: all forms but the front end's ast and the program
 * itself. */
#include "tools/forms.h"

#include <string.h>

/* The plan's draft; without a plan, the draft that a proof refused. */
static const Draft *draft_of(const Found *f)
{
    return f->plan ? plan_draft(f->plan) : f->refused;
}

static void form_mask(const Found *f, Text *out)
{
    const Program *p = draft_of(f)->program;
    for (int m = 0; m < p->mask_count; m++)
        print_mask(p, m, out);
}

static void form_partition(const Found *f, Text *out)
{
    print_partition(draft_of(f)->partition, out);
}

static void form_schedule(const Found *f, Text *out)
{
    const Draft *t = draft_of(f);
    for (int i = 0; i < 2 * t->attention.n; i++) {
        for (int m = 0; m < t->program->mask_count && i % 2 == 0 && t->attention.n > 1; m++)
            if (t->attention.of_mask[m] == i / 2)
                text_printf(out, "# layers with mask `%s`:\n", t->program->masks[m].text);
        print_schedule(t->attention.at[i / 2].way[i % 2], out);
    }
}

/* The step's operations and its memory. Also printed if a proof refuses it, to find burstc's fault. */
static void form_step(const Found *f, Text *out)
{
    const Draft *t = draft_of(f);
    print_step(t->memory.flow->step, out);
    print_lifetimes(t->memory.flow, out);
    if (f->plan)
        print_step_proofs(out);
}

static void form_plan(const Found *f, Text *out)
{
    print_plan(f->plan, out);
}

static void form_kernels(const Found *f, Text *out)
{
    print_kernels(plan_draft(f->plan), out);
}

static void form_cost(const Found *f, Text *out)
{
    print_cost(f->plan, &f->cost, out);
}

static void form_memory(const Found *f, Text *out)
{
    print_memory(f->plan, &f->cost, out);
}

/* The predicted step, for Perfetto. */
static void form_trace(const Found *f, Text *out)
{
    Arena *a = arena_new();
    print_trace(a, f->plan, out);
    arena_free(a);
}

static const Form forms[] = {
    {"mask", form_mask, draw_masks, true},
    {"partition", form_partition, draw_partition, true},
    {"schedule", form_schedule, draw_schedule, true},
    {"step", form_step, NULL, true},
    {"plan", form_plan, NULL},
    {"kernels", form_kernels, NULL},
    {"cost", form_cost, draw_cost},
    {"memory", form_memory, draw_memory},
    {"trace", form_trace, NULL},
};

const char *form_name(int i)
{
    return i < countof(forms) ? forms[i].name : NULL;
}

const Form *find_form(const char *name)
{
    for (int i = 0; i < countof(forms); i++)
        if (strcmp(forms[i].name, name) == 0)
            return &forms[i];
    return NULL;
}
