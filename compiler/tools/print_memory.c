/* tools/print_memory.c: --emit=memory: each space of a rank, its live bytes over the step, what is alive at
 * the peak, and the memory of other choices. */
#include "tools/tools.h"

#include <math.h>

enum { SECTIONS = 8, COLUMN = 11 }; /* per block of layers; characters */

int memory_spaces(const Draft *d, Space *space)
{
    const Program *p = d->program;
    const Memory *m = &d->memory;
    const Device *least = cluster_least_memory(&p->cluster);
    const bool device = p->target->device_memory;
    const size_t host = m->offloaded + (device ? m->host : 0);
    space[0] = (Space){"device", least->name, least->memory, m->total, m->beside, 0, device, true, m->flow};
    space[1] = (Space){"host", "rank's part of a node", 0, host, 0, m->offloaded, false, device, NULL};
    for (int g = 0, most = 0; g < p->cluster.group_count; g++)
        if (p->cluster.groups[g].gpus > most) {
            most = p->cluster.groups[g].gpus;
            space[1].capacity = p->cluster.host_memory / most;
        }
    return device || host ? 2 : 1;
}

static const char *size(Arena *a, double bytes)
{
    return bytes_text(a, bytes, 2);
}

/* ---- spaces ---- */

static void print_size(Arena *a, double bytes, const char *what, Text *out)
{
    text_printf(out, "  %*s  %s\n", COLUMN, size(a, bytes), what);
}

static void print_space(Arena *a, const Space *s, const Memory *m, Text *out)
{
    size_t rest = s->total;
    text_printf(out, "%s: a rank needs %s, a %s has %s\n", s->name, size(a, (double)(s->total + s->beside)),
                s->of, size(a, s->capacity));
    if (s->flow)
        print_size(a, (double)s->flow->packed,
                   arena_printf(a, "arena of the step's values; live bytes peak at %s",
                                size(a, (double)s->flow->live_peak)),
                   out);
    rest -= s->flow ? (size_t)s->flow->packed : 0;
    const bool optimizer = m->flow->step->choice.optimizer;
    if (s->offloaded)
        print_size(a, (double)s->offloaded,
                   arena_printf(a, "arena of what %s; live bytes peak at %s",
                                optimizer ? "is offloaded" : "layers offload",
                                size(a, (double)(m->flow->host_peak - (s->rows ? m->flow->host_state : 0)))),
                   out);
    rest -= s->offloaded;
    if (s->beside)
        print_size(a, (double)s->beside, "CUDA's context, NCCL, workspace", out);
    for (int i = 0; i < m->n && s->rows; i++)
        if (m->at[i].at < 0 && m->at[i].device == s->device) {
            print_size(a, (double)m->at[i].bytes, arena_printf(a, "%s %s", m->at[i].name, m->at[i].shape),
                       out);
            rest -= m->at[i].bytes;
        }
    if (rest)
        print_size(a, (double)rest,
                   optimizer ? "parameters and moments"
                             : "parameters, moments and gradients on their way to files",
                   out);
}

/* ---- over the step ---- */

static void print_uses(Arena *a, const Flow *f, const int64_t *uses, const Section *s, Text *out)
{
    text_printf(out, "  %-28s %*s", section_text(a, f, s), COLUMN, size(a, (double)uses_sum(uses, s->at)));
    for (int u = 0; u < USES; u++)
        text_printf(out, " %*s", COLUMN,
                    uses[s->at * USES + u] ? size(a, (double)uses[s->at * USES + u]) : "-");
    text_add(out, "\n");
}

static void print_over_step(Arena *a, const Flow *f, Text *out)
{
    const int64_t *uses = step_uses(a, f);
    Section *s;
    const int n = step_sections(a, f, uses, SECTIONS, &s);
    text_printf(out, "  %-28s %*s", "live bytes where largest", COLUMN, "all");
    for (int u = 0; u < USES; u++)
        text_printf(out, " %*s", COLUMN, use_text[u].column);
    text_add(out, "\n");
    for (int i = 0; i < n; i++)
        print_uses(a, f, uses, &s[i], out);
}

static void print_peak(Arena *a, const Flow *f, Text *out)
{
    Alive *alive = NEW_ARRAY(a, Alive, f->items);
    const int n = step_alive(f, alive);
    text_printf(out, "  at the peak, in %s:\n", step_op_text(a, f, f->peak_at));
    for (int i = 0; i < n; i++) {
        const Value *v = &f->step->values.at[alive[i].value];
        const char *each = alive[i].count > 1 ? arena_printf(a, " (%d)", alive[i].count) : "";
        text_printf(out, "  %*s  %s%s: %s\n", COLUMN, size(a, (double)alive[i].bytes),
                    step_value_text(a, f->step, alive[i].value), each, use_text[value_use(v)].what);
    }
}

/* ---- other choices ---- */

static void print_other(Arena *a, const Alternative *o, double now, double step, Text *out)
{
    text_printf(out, "  %-34s ", o->what);
    if (o->why_not) {
        text_printf(out, "%s\n", o->why_not);
        return;
    }
    const double more = (double)o->needs - now, longer = 100 * (o->step / step - 1);
    const char *change = arena_printf(a, "%c%s", more < 0 ? '-' : '+', size(a, fabs(more)));
    text_printf(out, "%*s %*s %15s %+7.1f %%%s\n", COLUMN, size(a, (double)o->needs), COLUMN + 1, change,
                time_text(a, o->step, 3), fabs(longer) < 0.05 ? 0 : longer, o->fits ? "" : ", does not fit");
}

static void print_others(Arena *a, const Draft *d, const Cost *c, Text *out)
{
    Alternative *other;
    const int n = alternatives_of(a, d, &other);
    text_printf(out, "with one setting changed%23s%28s\n", "needs", "predicted step");
    text_printf(out, "  %-34s %*s %*s %15s\n", "as chosen", COLUMN, size(a, (double)c->memory), COLUMN + 1,
                "", time_text(a, c->step, 3));
    for (int i = 0; i < n; i++)
        print_other(a, &other[i], (double)c->memory, c->step, out);
}

void print_memory(const Plan *p, const Cost *c, Text *out)
{
    const Draft *d = plan_draft(p);
    Arena *a = arena_new();
    Space space[MOST_SPACES];
    const int n = memory_spaces(d, space);
    text_printf(out, "burst-memory 2\n%s\n", choice_text(a, &d->choice));
    if (memory_uncounted(d->program))
        text_printf(out, "%s\n", memory_uncounted(d->program));
    for (int i = 0; i < n; i++) {
        print_space(a, &space[i], &d->memory, out);
        if (space[i].flow) {
            print_over_step(a, space[i].flow, out);
            print_peak(a, space[i].flow, out);
        }
    }
    text_add(out, memory_alone_text(a, d));
    print_others(a, d, c, out);
    arena_free(a);
}
