/* emit/tracing.c: what --trace of an emitted program shows in addition to measurements: names of streams,
 * the predicted step. */
#include "emit/internal.h"

#include "burst_plan.h"
#include "timeline/trace_file.h"

#include <math.h>
#include <stdlib.h>

/* An attention with more spans is shown as one, so that the text does not grow with the ranks. */
enum { MOST_SPANS = 32 };

static const char *channel_of(const Schedule *s, int channel)
{
    for (int at = 0; at < s->trace.n; at++) {
        const Node *n = s->trace.at[at].node;
        if (n->kind != N_COMPUTE && n->channel == channel)
            return n->kind == N_PASS && n->pool >= 0 ? s->pool[n->pool].name : tensor_name(n->ref[0].tensor);
    }
    return NULL;
}

/* Layers with different attentions use it one after the other, perhaps for different tensors. */
static const char *channel_name(Arena *a, const Draft *d, int channel)
{
    const char *all = NULL;
    for (int i = 0; i < 2 * d->attention.n; i++) {
        const char *name = channel_of(d->attention.at[i / 2].way[i % 2], channel);
        if (name)
            all = all ? arena_printf(a, "%s, %s", all, name) : name;
    }
    return all;
}

static void emit_spans(Emit *e, const BurstStretch *t, int number)
{
    text_printf(e->out, "static const BurstSpan plan_spans_%d[] = {\n", number);
    for (int i = 0; i < t->spans; i++) {
        const BurstSpan *s = &t->span[i];
        text_printf(e->out, "%s{%.5g, %.5g, 0, %d, %d, BURST_P_%s, %d},%s", i % 2 ? " " : "    ", s->begin,
                    s->end, s->a, s->b, part_name[s->part], s->lane,
                    i % 2 || i + 1 == t->spans ? "\n" : "");
    }
    text_add(e->out, t->spans ? "};\n" : "    {0, 0, 0, 0, 0, BURST_P_IDLE, 0},\n};\n");
}

static void emit_visits(Emit *e, const BurstForecast *f)
{
    text_add(e->out, "static const BurstVisit plan_visits[] = {");
    for (int v = 0; v < f->visits; v++) {
        text_printf(e->out, "%s{%d, {", v ? ", " : "", f->visit[v].stretches);
        for (int i = 0; i < f->visit[v].stretches; i++)
            text_printf(e->out, "%s%d", i ? ", " : "", f->visit[v].stretch[i]);
        text_add(e->out, "}}");
    }
    text_add(e->out, "};\n");
}

static void emit_sequence(Emit *e, const BurstSequenceForecast *s, int number)
{
    text_printf(e->out, "static const BurstVisitRun plan_runs_%d[] = {", number);
    for (int i = 0; i < s->runs; i++)
        text_printf(e->out, "%s{%d, %d}", i ? ", " : "", s->run[i].visit, s->run[i].times);
    text_add(e->out, "};\n");
}

static void emit_step_forecast(Emit *e, const BurstForecast *f)
{
    text_add(e->out, "/* The predicted step of the rank that computes most: stretches (seconds, numbers of "
                     "the part, stream), stored once if they\n"
                     " * are equal; visits of a unit's weights, made of stretches; runs of equal visits in a "
                     "sequence. */\n");
    for (int k = 0; k < f->stretches; k++)
        emit_spans(e, &f->stretch[k], k);
    text_add(e->out, "static const BurstStretch plan_stretches[] = {\n");
    for (int k = 0; k < f->stretches; k++)
        text_printf(e->out, "%s{%.5g, %d, plan_spans_%d},%s", k % 3 ? " " : "    ", f->stretch[k].seconds,
                    f->stretch[k].spans, k, k % 3 == 2 || k + 1 == f->stretches ? "\n" : "");
    text_add(e->out, "};\n");
    emit_visits(e, f);
    for (int i = 0; i < f->sequences; i++)
        emit_sequence(e, &f->sequence[i], i);
    text_add(e->out, "static const BurstSequenceForecast plan_sequences[] = {");
    for (int i = 0; i < f->sequences; i++)
        text_printf(e->out, "%s{%d, %d, plan_runs_%d}", i ? ", " : "", f->sequence[i].times,
                    f->sequence[i].runs, i);
    text_printf(e->out,
                "};\nconst BurstForecast plan_forecast = {%d, PLAN_LAYERS, PLAN_GROUP_LAYERS, "
                "PLAN_EXPERT_GROUPS, %d, %d, %d, "
                "plan_sequences, plan_visits, plan_stretches};\n",
                f->rank, f->sequences, f->visits, f->stretches);
}

static void emit_rows(Emit *e)
{
    const double *rows = e->found->cost.rows;
    text_add(e->out, "/* predicted seconds of a step, by rows of the table of parts */\n"
                     "const double plan_predicted_rows[BURST_ROW_COUNT] = {");
    for (int r = 0; r < BURST_ROW_COUNT; r++)
        text_printf(e->out, "%s%.4g", r ? ", " : "", rows && isfinite(rows[r]) ? rows[r] : 0.0);
    text_add(e->out, "};\n");
}

void emit_forecast(Emit *e)
{
    if (!cost_is_of_program(e->draft->program))
        return;
    text_add(e->out, "\n/* ---- the forecast that --trace shows beside what it measures ---- */\n\n");
    emit_rows(e);
    if (e->forecast)
        emit_step_forecast(e, e->forecast);
}

void emit_watching(Emit *e)
{
    text_add(e->out, "static const char *const plan_channel_names[PLAN_CHANNELS] = {");
    for (int i = 0, n = attentions_channels(&e->draft->attention); i < (n ? n : 1); i++) {
        const char *name = channel_name(e->arena, e->draft, i);
        text_printf(e->out, name ? "%s\"%s\"" : "%sNULL", i ? ", " : "", name);
    }
    text_add(e->out, "};\n");
    if (!cost_is_of_program(e->draft->program))
        return;
    e->forecast = cost_forecast(e->arena, e->draft, MOST_SPANS);
    text_printf(e->out, "extern const double plan_predicted_rows[BURST_ROW_COUNT]; /* at the end */\n%s",
                e->forecast ? "extern const BurstForecast plan_forecast;\n" : "");
}

/* ---- --emit=trace ---- */

void print_trace(Arena *a, const Plan *p, Text *out)
{
    const Draft *d = plan_draft(p);
    BurstPlan plan = {.source = arena_printf(a, "%s %s", d->program->topo_path, d->program->model_path),
                      .channels = attentions_channels(&d->attention),
                      .forecast = cost_forecast(a, d, ALL_SPANS)};
    const char **names = NEW_ARRAY(a, const char *, plan.channels + 1);
    char *text = NULL;
    size_t size = 0;
    bool any = false;
    FILE *f = open_memstream(&text, &size);
    if (!f)
        out_of_memory();
    for (int i = 0; i < plan.channels; i++)
        names[i] = channel_name(a, d, i);
    plan.channel_names = names;
    plan.predicted_seconds = cost_draft(a, plan_draft(p), INFINITY).step;
    trace_file_begin(f, &any, &plan);
    trace_file_forecast(f, &any, &plan);
    trace_file_end(f, &plan, 0);
    if (fclose(f) != 0)
        out_of_memory();
    text_add_n(out, text, size);
    free(text);
}

/* ---- the program's header ---- */

/* The memory is the same as in the table of candidates. */
void emit_predicted(Emit *e)
{
    const Cost *c = &e->found->cost;
    text_add(e->out, " * predicted: ");
    if (!cost_is_of_program(e->draft->program))
        text_add(e->out, "no time, as the cluster's rates are those of GPUs and this is C for CPUs");
    else if (isfinite(c->step) && e->draft->program->infer.lengths)
        text_printf(e->out, "first token after %.3f s, each further one %.4f s", c->step,
                    cost_continued(e->draft));
    else if (isfinite(c->step))
        text_printf(e->out, "%.3f s a step, %.1f %% of it waiting for transfers, %s", c->step,
                    c->step > 0 ? 100 * c->exposed / c->step : 0,
                    cost_speed_text(e->arena, e->draft->program, c));
    else
        text_add(e->out, "no time, as the simulation did not finish");
    text_printf(e->out, "; %.3f GiB a rank", (double)c->memory / (1 << 30));
    if (e->draft->memory.beside)
        text_printf(e->out, ", %.3f of it CUDA's context, NCCL and workspace",
                    (double)e->draft->memory.beside / (1 << 30));
    if (c->batches.n && cost_is_of_program(e->draft->program))
        text_printf(e->out, "; %s", cost_batches_text(e->arena, c));
    text_add(e->out, "\n");
    if (memory_uncounted(e->draft->program))
        text_printf(e->out, " * %s\n", memory_uncounted(e->draft->program));
    const char *too_fast = cost_mfu_text(e->arena, cost_mfu(e->draft->program, c));
    if (too_fast && cost_is_of_program(e->draft->program))
        text_printf(e->out, " * %s\n", too_fast);
}
