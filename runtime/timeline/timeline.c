/* timeline.c: traced steps as a file and as a table.
 *
 * Time is the host's monotonic clock, counted from when all ranks had met before the first traced step.
 * Ranks of rank 0's host share that clock; another host's times are shifted so that all ranks leave the
 * barrier together. */
#include "timeline/timeline.h"

#include "base/escape.h"
#include "core/context.h"
#include "core/region.h"
#include "report/progress.h"
#include "timeline/trace_file.h"

#include <string.h>

/* spans per message, through the slot's shared memory */
enum { PIECE = REDUCE_MAX * sizeof(double) / sizeof(BurstSpan) };

static BurstGroup everyone(const BurstCtx *c)
{
    return (BurstGroup){0, 1, c->world};
}

static bool traced(const Timeline *t, int64_t step)
{
    return t->path && step >= t->first && step <= t->last;
}

/* ---- begin ---- */

int timeline_open(Timeline *t, BurstCtx *c, const Options *o, int64_t done)
{
    *t = (Timeline){.path = o->trace, .first = done + (done + 1 < o->steps)};
    if (!o->trace || done >= o->steps)
        return t->path = NULL, BURST_OK;
    t->last = t->first + o->trace_steps - 1;
    t->last = t->last < o->steps ? t->last : o->steps - 1;
    if (c->rank == 0)
        BURST_TRY(output_begin(c, t->path, &t->out));
    return spans_make(c, &c->spans);
}

int timeline_begin(Timeline *t, BurstCtx *c, int64_t step)
{
    Spans *s = c->spans;
    if (!traced(t, step))
        return BURST_OK;
    if (c->device.rest)
        BURST_TRY(c->device.rest(c->device.arg));
    BURST_TRY(burst_barrier(c, everyone(c)));
    double now = burst_seconds(), first = c->rank == 0 ? now : 0;
    BURST_TRY(burst_allreduce(c, everyone(c), &first, 1));
    s->zero = c->local_of[0] >= 0 ? first : now;
    s->n = 0;
    s->left_out = 0;
    memset(s->open, 0, sizeof s->open);
    if (c->device.trace_begin)
        return c->device.trace_begin(c->device.arg, s);
    c->watching = s;
    return BURST_OK;
}

/* ---- end ---- */

/* Rank 0's summary of one rank's spans, recorded anywhere. */
typedef struct Sums { double seconds[BURST_ROW_COUNT], calls[BURST_ROW_COUNT], end; } Sums;

static const int row_of[BURST_P_COUNT] = {
#define X(id, row, name) [BURST_P_##id] = BURST_ROW_##row,
    BURST_PARTS(X)
#undef X
};

static void add_span(Timeline *t, Sums *sums, int rank, double offset, const BurstSpan *s)
{
    int row = row_of[s->part];
    sums->seconds[row] += s->end - s->begin;
    sums->calls[row]++;
    sums->end = s->end > sums->end ? s->end : sums->end;
    trace_file_span(t->out.file, &t->any, rank, offset, s);
}

/* most: receives the step's largest sums */
static void add_rank(Timeline *t, const Sums *sums, int world, double *most)
{
    for (int r = 0; r < BURST_ROW_COUNT; r++) {
        t->mean[r] += sums->seconds[r] / world;
        most[r] = sums->seconds[r] > most[r] ? sums->seconds[r] : most[r];
        t->calls[r] += sums->calls[r] / world;
    }
}

static int send_spans(BurstCtx *c, const Spans *s)
{
    double head[2] = {s->n, (double)s->left_out};
    BurstReq request;
    memcpy(c->slot->reduce, head, sizeof head);
    BURST_TRY(burst_send(c, CHANNEL_REDUCE, 0, c->slot->reduce, sizeof head, &request));
    BURST_TRY(burst_wait(c, &request));
    for (int at = 0; at < s->n; at += PIECE) {
        size_t bytes = sizeof *s->at * (size_t)(s->n - at < (int)PIECE ? s->n - at : (int)PIECE);
        memcpy(c->slot->reduce, s->at + at, bytes);
        BURST_TRY(burst_send(c, CHANNEL_REDUCE, 0, c->slot->reduce, bytes, &request));
        BURST_TRY(burst_wait(c, &request));
    }
    return BURST_OK;
}

static int receive_spans(Timeline *t, BurstCtx *c, int rank, double offset, Sums *sums)
{
    double head[2];
    BurstSpan piece[PIECE];
    BurstReq request;
    BURST_TRY(burst_recv(c, CHANNEL_REDUCE, rank, head, sizeof head, &request));
    BURST_TRY(burst_wait(c, &request));
    t->left_out += (int64_t)head[1];
    for (int at = 0, n = (int)head[0]; at < n; at += PIECE) {
        int count = n - at < (int)PIECE ? n - at : (int)PIECE;
        BURST_TRY(burst_recv(c, CHANNEL_REDUCE, rank, piece, sizeof *piece * (size_t)count, &request));
        BURST_TRY(burst_wait(c, &request));
        for (int i = 0; i < count; i++)
            add_span(t, sums, rank, offset, &piece[i]);
    }
    return BURST_OK;
}

static int collect(Timeline *t, BurstCtx *c, double *seconds)
{
    const Spans *own = c->spans;
    double offset = own->zero - t->zero, most[BURST_ROW_COUNT] = {0};
    for (int rank = 0; rank < c->world; rank++) {
        Sums sums = {0};
        for (int i = 0; rank == 0 && i < own->n; i++)
            add_span(t, &sums, 0, offset, &own->at[i]);
        if (rank > 0)
            BURST_TRY(receive_spans(t, c, rank, offset, &sums));
        add_rank(t, &sums, c->world, most);
        *seconds = sums.end > *seconds ? sums.end : *seconds;
    }
    for (int r = 0; r < BURST_ROW_COUNT; r++)
        t->most[r] += most[r];
    t->left_out += own->left_out;
    return BURST_OK;
}

static int finish_file(Timeline *t, BurstCtx *c, const BurstPlan *p)
{
    trace_file_end(t->out.file, p, t->left_out);
    return output_keep(c, t->path, &t->out);
}

static void relative(Spans *s)
{
    for (int i = 0; i < s->n; i++) {
        s->at[i].begin -= s->zero;
        s->at[i].end -= s->zero;
    }
}

/* ---- the table ---- */

static void print_row(const char *text, double calls, double mean, double most, double predicted, double step)
{
    char prediction[32] = "-";
    if (predicted >= 0)
        snprintf(prediction, sizeof prediction, "%.3f", predicted * 1e3);
    printf("  %-28s %8.0f %12.3f %12.3f %12s %7.1f %%\n", text, calls, mean * 1e3, most * 1e3, prediction,
           100 * mean / step);
}

static void print_table(const Timeline *t, const BurstPlan *p)
{
    static const struct { const char *text; bool computing; } row[BURST_ROW_COUNT] = {
#define X(id, text, computing) {text, computing},
        BURST_ROWS(X)
#undef X
    };
    double n = (double)(t->last - t->first + 1), step = t->seconds / n, left = step;
    print_shown(stdout, "traced %.0f step%s from step %lld on, to %s", n, n > 1 ? "s" : "",
                (long long)t->first + 1, t->path);
    printf("\n  %-28s %8s %12s %12s %12s %9s\n", "milliseconds per step", "spans", "mean", "most",
           "predicted", "share");
    for (int beside = 0; beside < 2; beside++) {
        for (int r = 1; r < BURST_ROW_COUNT; r++) {
            double predicted = p->predicted_rows ? p->predicted_rows[r] : -1;
            if (row[r].computing == beside || (t->calls[r] == 0 && predicted <= 0))
                continue;
            left -= beside ? 0 : t->mean[r] / n;
            print_row(row[r].text, t->calls[r] / n, t->mean[r] / n, t->most[r] / n, predicted, step);
        }
        if (!beside)
            print_row("neither computes nor waits", 0, left, left, -1, step);
        if (!beside)
            print_row("step", 0, step, step, p->predicted_seconds > 0 ? p->predicted_seconds : -1, step);
    }
    if (t->left_out)
        printf("  %lld spans are missing: the trace is full\n", (long long)t->left_out);
}

int timeline_end(Timeline *t, BurstCtx *c, const BurstPlan *p, const Options *o, int64_t step)
{
    double seconds = 0;
    if (!traced(t, step))
        return BURST_OK;
    burst_part(c, BURST_P_IDLE, 0, 0);
    c->watching = NULL;
    if (c->device.trace_end)
        BURST_TRY(c->device.trace_end(c->device.arg));
    relative(c->spans);
    if (c->rank != 0)
        return send_spans(c, c->spans);
    if (step == t->first) {
        t->zero = c->spans->zero;
        trace_file_begin(t->out.file, &t->any, p);
        trace_file_forecast(t->out.file, &t->any, p);
    }
    BURST_TRY(collect(t, c, &seconds));
    trace_file_step(t->out.file, &t->any, step, c->spans->zero - t->zero, seconds);
    t->seconds += seconds;
    if (step < t->last)
        return BURST_OK;
    if (!o->quiet) {
        print_table(t, p);
        BURST_TRY(output_printed(c));
        BURST_TRY(progress_memory(c));
    }
    return finish_file(t, c, p);
}

int timeline_close(Timeline *t, int status)
{
    if (t->out.file)
        output_close(&t->out, false);
    *t = (Timeline){0};
    return status;
}
