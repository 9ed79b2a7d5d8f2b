/* forms.c: what --emit=FORM prints of a found plan; the front end's ast and the program's own text aside. */
#include "tools/forms.h"

#include <string.h>

static void form_mask(Diags *d, const Found *f, Text *out)
{
    (void)d;
    const Program *p = plan_draft(f->plan)->program;
    for (int m = 0; m < p->mask_count; m++)
        print_mask(p, m, out);
}

static void form_partition(Diags *d, const Found *f, Text *out)
{
    (void)d;
    print_partition(plan_draft(f->plan)->partition, out);
}

static void form_schedule(Diags *d, const Found *f, Text *out)
{
    (void)d;
    const Draft *t = plan_draft(f->plan);
    for (int i = 0; i < 2 * t->attention.n; i++) {
        for (int m = 0; m < t->program->mask_count && i % 2 == 0 && t->attention.n > 1; m++)
            if (t->attention.of_mask[m] == i / 2)
                text_printf(out, "# layers with mask `%s`:\n", t->program->masks[m].text);
        print_schedule(t->attention.at[i / 2].way[i % 2], out);
    }
}

/* The step as operations, and its memory, proved: a refusal is an internal error, which no change of the
 * input could mend. */
static void form_step(Diags *d, const Found *f, Text *out)
{
    const Draft *t = plan_draft(f->plan);
    Arena *a = arena_new();
    const Flow *flow = t->memory.flow;
    if (step_verify(a, d, flow)) {
        print_step(flow->step, out);
        print_lifetimes(flow, out);
        print_step_proofs(out);
    }
    arena_free(a);
}

static void form_plan(Diags *d, const Found *f, Text *out)
{
    (void)d;
    print_plan(f->plan, out);
}

static void form_kernels(Diags *d, const Found *f, Text *out)
{
    (void)d;
    print_kernels(plan_draft(f->plan), out);
}

static void form_cost(Diags *d, const Found *f, Text *out)
{
    (void)d;
    print_cost(f->plan, &f->cost, out);
}

static void form_memory(Diags *d, const Found *f, Text *out)
{
    (void)d;
    print_memory(f->plan, &f->cost, out);
}

/* The predicted step, for Perfetto. */
static void form_trace(Diags *d, const Found *f, Text *out)
{
    (void)d;
    Arena *a = arena_new();
    print_trace(a, f->plan, out);
    arena_free(a);
}

static const Form forms[] = {
    {"mask", form_mask, draw_masks},
    {"partition", form_partition, draw_partition},
    {"schedule", form_schedule, draw_schedule},
    {"step", form_step, NULL},
    {"plan", form_plan, NULL},
    {"kernels", form_kernels, NULL},
    {"cost", form_cost, draw_cost},
    {"memory", form_memory, draw_memory},
    {"trace", form_trace, NULL},
};

const Form *find_form(const char *name)
{
    for (int i = 0; i < countof(forms); i++)
        if (strcmp(forms[i].name, name) == 0)
            return &forms[i];
    return NULL;
}
