/* progress.c: the progress line and the metrics file. */
#include "progress.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

enum { LINES = 20 }; /* in all, where nobody watches */

static void say_plan(const BurstCtx *c, const BurstPlan *p, int64_t done)
{
    printf("%s: %d ranks = data %d x %d, %d layers, sequence %lld, batch %lld, %s; %.3f GiB a rank, %.4g s a step predicted\n",
           p->source, p->world, p->data, p->group, p->layers, (long long)p->sequence, (long long)p->train.batch,
           c->train->data ? c->train->data : "random tokens", (double)p->arena_bytes / (1 << 30), p->predicted_seconds);
    if (done)
        printf("resumed after step %lld\n", (long long)done);
    fflush(stdout);
}

int progress_open(Progress *s, BurstCtx *c, const BurstPlan *p, const Options *o, int64_t done)
{
    int64_t lines = (o->steps - done + LINES - 1) / LINES;
    s->every = o->progress ? o->progress : isatty(STDOUT_FILENO) || lines < 1 ? 1 : lines;
    s->first = done;
    s->last = o->steps - 1;
    if (c->rank != 0)
        return BURST_OK;
    if (!o->quiet)
        say_plan(c, p, done);
    s->metrics = o->metrics ? fopen(o->metrics, done ? "a" : "w") : NULL;
    if (o->metrics && !s->metrics)
        return burst_fail(c, BURST_E_IO, "cannot write %s: %s", o->metrics, strerror(errno));
    return BURST_OK;
}

static int write_metrics(Progress *s, BurstCtx *c, const BurstPlan *p, const Options *o, int64_t step, const BurstStep *r,
                         double seconds)
{
    if (!s->metrics)
        return BURST_OK;
    fprintf(s->metrics,
            "{\"step\": %lld, \"loss\": %.17g, \"tokens\": %.17g, \"tokens_per_second\": %.6g, \"seconds\": %.6g, "
            "\"norm\": %.9g, \"lr\": %.9g, \"predicted\": %.6g}\n",
            (long long)step + 1, r->loss, r->tokens, r->tokens / seconds, seconds, r->norm, burst_learning_rate(p, step),
            p->predicted_seconds);
    if (fflush(s->metrics) == 0)
        return BURST_OK;
    return burst_fail(c, BURST_E_IO, "cannot write %s: %s", o->metrics, strerror(errno));
}

int progress_step(Progress *s, BurstCtx *c, const BurstPlan *p, const Options *o, int64_t step, const BurstStep *r,
                  double seconds)
{
    if (c->rank != 0)
        return BURST_OK;
    bool due = step == s->first || step == s->last || (step + 1) % s->every == 0;
    if (due && !o->quiet) {
        printf("step %lld/%lld  loss %.5f  norm %.4g  lr %.3g  %.1f tokens/s/rank  %.2f GFLOP/s  %.3f GiB/rank  "
               "%.4f s (predicted %.4f, %+.0f%%)\n",
               (long long)step + 1, (long long)o->steps, r->loss, r->norm, burst_learning_rate(p, step),
               r->tokens / seconds / p->world, p->flops / seconds * 1e-9, (double)burst_arena_used(c) / (1 << 30), seconds,
               p->predicted_seconds, p->predicted_seconds > 0 ? (seconds / p->predicted_seconds - 1) * 100 : 0.0);
        fflush(stdout);
    }
    return write_metrics(s, c, p, o, step, r, seconds);
}

int progress_close(Progress *s, BurstCtx *c, int status)
{
    bool failed = s->metrics && fclose(s->metrics) != 0;
    s->metrics = NULL;
    if (status == BURST_OK && failed)
        return burst_fail(c, BURST_E_IO, "cannot write the metrics: %s", strerror(errno));
    return status;
}
