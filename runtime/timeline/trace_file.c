/* trace_file.c: trace events as JSON. Times are microseconds. */
#include "timeline/trace_file.h"

#include "base/escape.h"
#include "core/spans.h"
#include "timeline/forecast.h"

#include <stdlib.h>

enum { NAME = 96, STEP_ROW = 99 };

/* ---- events ---- */

/* JSON requires UTF-8; other bytes are written as the text \xNN. */
static void add_string(FILE *f, const char *text)
{
    char *escaped = escaped_utf8(text);
    putc('"', f);
    for (const unsigned char *s = (const unsigned char *)escaped; s && *s; s++)
        if (*s < 0x20 || *s == '"' || *s == '\\')
            fprintf(f, "\\u%04x", *s);
        else
            putc(*s, f);
    putc('"', f);
    free(escaped);
}

static void next_event(FILE *f, bool *any)
{
    fputs(*any ? ",\n" : "\n", f);
    *any = true;
}

/* thread -1: the process. */
static void add_name(FILE *f, bool *any, int process, int thread, const char *name, int order)
{
    const char *what = thread < 0 ? "process" : "thread";
    next_event(f, any);
    fprintf(f,
            "{\"ph\": \"M\", \"pid\": %d, \"tid\": %d, \"name\": \"%s_name\", \"args\": {\"name\": ", process,
            thread < 0 ? 0 : thread, what);
    add_string(f, name);
    fputs("}}", f);
    next_event(f, any);
    fprintf(f,
            "{\"ph\": \"M\", \"pid\": %d, \"tid\": %d, \"name\": \"%s_sort_index\", \"args\": "
            "{\"sort_index\": %d}}",
            process, thread < 0 ? 0 : thread, what, order);
}

static void name_rows(FILE *f, bool *any, const BurstPlan *p, int process, const char *name, int order)
{
    char text[NAME];
    add_name(f, any, process, -1, name, order);
    add_name(f, any, process, BURST_LANE_COMPUTE, "compute", 0);
    add_name(f, any, process, BURST_LANE_WEIGHTS, "weights", BURST_LANE_CHANNEL + BURST_CHANNELS);
    for (int i = 0; i < p->channels; i++) {
        if (!p->channel_names[i])
            continue;
        snprintf(text, sizeof text, "channel %d (%s)", i, p->channel_names[i]);
        add_name(f, any, process, BURST_LANE_CHANNEL + i, text, BURST_LANE_CHANNEL + i);
    }
}

void trace_file_begin(FILE *f, bool *any, const BurstPlan *p)
{
    char text[NAME];
    fputs("{\"displayTimeUnit\": \"ms\", \"traceEvents\": [", f);
    for (int rank = 0; rank < p->world; rank++) {
        snprintf(text, sizeof text, "rank %d", rank);
        name_rows(f, any, p, rank, text, 2 * rank);
    }
    if (p->world > 0)
        add_name(f, any, 0, STEP_ROW, "steps", -1);
    if (!p->forecast)
        return;
    snprintf(text, sizeof text, "rank %d predicted (most compute)", p->forecast->rank);
    name_rows(f, any, p, p->world, text, 2 * p->forecast->rank + 1);
}

/* ---- the predicted step, as a process after the ranks ---- */

typedef struct Predicted { FILE *f; bool *any; int process; } Predicted;

static void add_predicted(void *arg, const BurstSpan *s)
{
    const Predicted *p = arg;
    trace_file_span(p->f, p->any, p->process, 0, s);
}

void trace_file_forecast(FILE *f, bool *any, const BurstPlan *p)
{
    Predicted to = {f, any, p->world};
    if (p->forecast)
        forecast_step(p->forecast, add_predicted, &to);
}

void trace_file_span(FILE *f, bool *any, int process, double offset, const BurstSpan *s)
{
    char name[NAME];
    double seconds = s->end > s->begin ? s->end - s->begin : 0;
    span_name(s, name, sizeof name);
    next_event(f, any);
    fprintf(f, "{\"ph\": \"X\", \"pid\": %d, \"tid\": %d, \"ts\": %.3f, \"dur\": %.3f, \"name\": ", process,
            s->lane, (s->begin + offset) * 1e6, seconds * 1e6);
    add_string(f, name);
    if (s->bytes > 0)
        fprintf(f, ", \"args\": {\"bytes\": %lld, \"GB/s\": %.2f}", (long long)s->bytes,
                seconds > 0 ? (double)s->bytes / seconds * 1e-9 : 0.0);
    putc('}', f);
}

void trace_file_step(FILE *f, bool *any, int64_t step, double begin, double seconds)
{
    next_event(f, any);
    fprintf(f,
            "{\"ph\": \"X\", \"pid\": 0, \"tid\": %d, \"ts\": %.3f, \"dur\": %.3f, \"name\": \"step %lld\"}",
            STEP_ROW, begin * 1e6, seconds * 1e6, (long long)step + 1);
}

void trace_file_end(FILE *f, const BurstPlan *p, int64_t left_out)
{
    fputs("\n], \"otherData\": {\"program\": ", f);
    add_string(f, p->source);
    fprintf(f, ", \"predicted_seconds\": %.6g, \"left_out\": %lld}}\n", p->predicted_seconds,
            (long long)left_out);
}
