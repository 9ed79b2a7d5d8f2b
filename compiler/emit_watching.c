/* emit_watching.c: what --trace of an emitted program shows beside what it measures: names of streams, the predicted step. */
#include "emit.h"

#include "burst_rt.h"
#include "cost.h"
#include "trace_file.h"

#include <math.h>
#include <stdlib.h>

/* An attention with more spans is shown as one: the text does not grow with the ranks. */
enum { MOST_SPANS = 32 };

const char *channel_name(const Draft *d, int channel)
{
    const Schedule *both[2] = {d->forward, d->backward};
    for (int i = 0; i < 2; i++)
        for (int at = 0; at < both[i]->trace.n; at++) {
            const Node *n = both[i]->trace.at[at].node;
            if (n->kind == N_COMPUTE || n->channel != channel)
                continue;
            return n->kind == N_PASS && n->pool >= 0 ? both[i]->pool[n->pool].name : tensor_name(n->ref[0].tensor);
        }
    return NULL;
}

static const char *const part_constant[BURST_P_COUNT] = {
#define X(id, row, name) "BURST_P_" #id,
    BURST_PARTS(X)
#undef X
};

static void emit_attention(Emit *e, const BurstAttentionForecast *a, int mask, int backward)
{
    text_printf(e->out, "static const BurstSpan plan_spans_%d_%d[] = {\n", mask, backward);
    for (int i = 0; i < a->spans; i++) {
        const BurstSpan *s = &a->span[i];
        text_printf(e->out, "    {%.5g, %.5g, 0, %d, %d, %s, %d},\n", s->begin, s->end, s->a, s->b, part_constant[s->part], s->lane);
    }
    if (!a->spans)
        text_add(e->out, "    {0, 0, 0, 0, 0, BURST_P_IDLE, 0},\n");
    text_add(e->out, "};\n");
}

static void emit_forecast(Emit *e, const BurstForecast *f)
{
    int masks = e->draft->program->mask_count;
    text_add(e->out, "/* The predicted step of the rank that computes most: one attention of each mask, forward and backward (seconds,\n"
                     " * chunks, stream), and around it the rest of a layer. */\n");
    for (int m = 0; m < masks; m++)
        for (int backward = 0; backward < 2; backward++)
            emit_attention(e, &f->attention[m][backward], m, backward);
    text_add(e->out, "static const BurstAttentionForecast plan_attention_forecast[PLAN_MASKS][2] = {\n");
    for (int m = 0; m < masks; m++)
        text_printf(e->out, "    {{%.5g, %d, plan_spans_%d_0}, {%.5g, %d, plan_spans_%d_1}},\n", f->attention[m][0].seconds,
                    f->attention[m][0].spans, m, f->attention[m][1].seconds, f->attention[m][1].spans, m);
    text_printf(e->out, "};\nstatic const BurstForecast plan_forecast = {\n"
                        "    /* rank, sequences, layers */ %d, %d, PLAN_LAYERS, plan_layer_mask,\n"
                        "    /* backward attends again */ %d,\n"
                        "    /* norms, projections, feed-forward; again */ {%.5g, %.5g, %.5g}, {%.5g, %.5g, %.5g},\n"
                        "    /* embedding, loss, optimizer */ %.5g, %.5g, %.5g,\n"
                        "    /* gather, reduction of a layer; first, last; what shows */ %.5g, %.5g, %.5g, %.5g, %.5g,\n"
                        "    plan_attention_forecast,\n};\n",
                f->rank, f->sequences, f->attends_again, f->rest.norms, f->rest.projections, f->rest.ffn,
                f->again.norms, f->again.projections, f->again.ffn,
                f->embedding, f->loss, f->optimizer, f->gather, f->reduce, f->first_gather, f->last_reduce, f->exposed);
}

void insert_watching(Emit *e)
{
    const double *rows = e->found->cost.rows;
    text_add(e->out, "static const char *const plan_channel_names[PLAN_CHANNELS] = {");
    for (int i = 0, n = e->draft->backward->channels; i < (n ? n : 1); i++) {
        const char *name = channel_name(e->draft, i);
        text_printf(e->out, name ? "%s\"%s\"" : "%sNULL", i ? ", " : "", name);
    }
    text_add(e->out, "};\n/* Predicted seconds of a step, by rows of the table of parts. */\n"
                     "static const double plan_predicted_rows[BURST_ROW_COUNT] = {");
    for (int r = 0; r < BURST_ROW_COUNT; r++)
        text_printf(e->out, "%s%.4g", r ? ", " : "", rows && isfinite(rows[r]) ? rows[r] : 0.0);
    text_add(e->out, "};\n");
    const BurstForecast *f = cost_forecast(e->arena, e->draft, MOST_SPANS);
    e->forecast = f != NULL;
    if (f)
        emit_forecast(e, f);
}

/* ---- --emit=trace ---- */

void print_trace(Arena *a, const Plan *p, Text *out)
{
    const Draft *d = plan_draft(p);
    BurstPlan plan = {.source = arena_printf(a, "%s %s", d->program->topo_path, d->program->model_path),
                      .channels = d->backward->channels, .forecast = cost_forecast(a, d, INT32_MAX)};
    const char **names = NEW_ARRAY(a, const char *, plan.channels + 1);
    char *text = NULL;
    size_t size = 0;
    bool any = false;
    FILE *f = open_memstream(&text, &size);
    if (!f)
        out_of_memory();
    for (int i = 0; i < plan.channels; i++)
        names[i] = channel_name(d, i);
    plan.channel_names = names;
    plan.predicted_seconds = cost_simulate(a, p).step;
    trace_file_begin(f, &any, &plan);
    trace_file_forecast(f, &any, &plan, 0);
    trace_file_end(f, &plan, 0);
    if (fclose(f) != 0)
        out_of_memory();
    text_add_n(out, text, size);
    free(text);
}
