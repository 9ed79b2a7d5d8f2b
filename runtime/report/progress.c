/* progress.c: the progress line and the metrics file. */
#include "report/progress.h"

#include "base/escape.h"
#include "base/plural.h"
#include "core/context.h"
#include "data/data.h"
#include "files/output.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { LINES = 20, LINE = 256, TEXT = 4096 }; /* lines in total without a terminal */
/* Fields of a step's line, in order. */
enum { STEP, LOSS, NORM, RATE, SPEED, FLOPS, MFU, MEMORY, SECONDS_TAKEN, LEFT, FIELDS };
enum { FIELD = 96, COLUMNS = 100 };

static double gib(double bytes)
{
    return bytes / (1 << 30);
}

static const char *data_text(const BurstTrain *t, char *text, size_t size)
{
    FILE *to = t->data_files ? fmemopen(text, size, "w") : NULL;
    if (!to)
        return "random tokens";
    data_print(to, t);
    fclose(to);
    text[size - 1] = 0;
    return text;
}

static int say_plan(BurstCtx *c, const BurstPlan *p, int64_t done)
{
    char data[TEXT];
    print_shown(stdout,
                "%s: %d rank%s = data %d x %d, %d layer%s, sequence %lld, batch %lld, %s; %.3f GiB of host "
                "memory per rank, ",
                p->source, p->world, plural(p->world), p->data, p->group, p->layers, plural(p->layers),
                (long long)p->sequence, (long long)p->train.batch, data_text(c->train, data, sizeof data),
                gib((double)(p->arena_bytes + p->offloaded_bytes)));
    if (p->predicted_seconds > 0)
        printf("predicted %.4g s per step\n", p->predicted_seconds);
    else
        printf("no predicted step time\n");
    if (p->predicted_memory > p->arena_bytes)
        printf("predicted device memory: %.3f GiB\n", gib((double)p->predicted_memory));
    if (done)
        printf("resumed after step %lld\n", (long long)done);
    return output_printed(c);
}

int progress_memory(BurstCtx *c)
{
    char text[LINE];
    if (!c->device.describe)
        return BURST_OK;
    BURST_TRY(c->device.describe(c->device.arg, text, sizeof text));
    print_shown(stdout, "device memory of rank %d: %s", c->rank, text), putchar('\n');
    return output_printed(c);
}

/* A line about devices involves all ranks, and under mpirun only some may see a terminal: rank 0 decides. */
static int agree(BurstCtx *c, int64_t *every)
{
    double value = c->rank == 0 ? (double)*every : 0;
    if (!c->device.memory)
        return BURST_OK;
    BURST_TRY(burst_allreduce(c, (BurstGroup){0, 1, c->world}, &value, 1));
    *every = (int64_t)value;
    return BURST_OK;
}

int progress_open(Progress *s, BurstCtx *c, const BurstPlan *p, const Options *o, int64_t done)
{
    int64_t lines = (o->steps - done + LINES - 1) / LINES;
    s->terminal = isatty(STDOUT_FILENO);
    const bool each = s->terminal || lines < 1;
    s->every = o->progress;
    if (!o->progress)
        s->every = each ? 1 : lines;
    s->first = done;
    s->last = o->steps - 1;
    BURST_TRY(agree(c, &s->every));
    s->metrics.fd = -1;
    if (c->rank != 0)
        return BURST_OK;
    if (!o->quiet)
        BURST_TRY(say_plan(c, p, done));
    if (!o->quiet)
        BURST_TRY(progress_memory(c));
    return metrics_open(c, o->metrics, &s->metrics);
}

/* After a restart, steps after the newest checkpoint are trained once more. With --resume of another FILE,
 * the user may want to compare both runs. */
int progress_begin(Progress *s, BurstCtx *c, const Options *o, int64_t done)
{
    return metrics_begin(c, &s->metrics, done, !o->resume_file && done < o->steps);
}

bool progress_evaluated(const Progress *s) { return s->metrics.evaluation[0] != 0; }

/* Model flops relative to the ranks' capacity in that time at `rate`, without recomputation and masked
 * pairs. */
static double share_of(double rate, const BurstPlan *p, double seconds)
{
    return rate > 0 ? p->flops / seconds / (rate * p->world) : 0;
}

/* Warned once: no device exceeds its rate, so the rate is wrong, and so are prediction and choice. */
static void say_share(Progress *s, const BurstPlan *p, double seconds)
{
    const double share = share_of(p->matmul_flops, p, seconds);
    if (share <= 1 || s->share_said)
        return;
    s->share_said = true;
    printf("%.0f %% of the matmul rate is impossible: the matmul rate in the .topo file is too low, so the "
           "predicted times and the chosen layout are unreliable; measure this machine with `burstc probe`\n",
           100 * share);
}

/* The largest memory in use by a rank, in rounds of as many ranks as an allreduce takes. */
static int most_memory(BurstCtx *c, double *most)
{
    size_t used = burst_arena_used(c);
    if (!c->device.memory)
        return *most = (double)used, BURST_OK;
    BURST_TRY(c->device.memory(c->device.arg, &used));
    *most = 0;
    for (int first = 0; first < c->world; first += REDUCE_MAX) {
        double of[REDUCE_MAX] = {0};
        int count = c->world - first < REDUCE_MAX ? c->world - first : REDUCE_MAX;
        if (c->rank >= first && c->rank < first + count)
            of[c->rank - first] = (double)used;
        BURST_TRY(burst_allreduce(c, (BurstGroup){0, 1, c->world}, of, count));
        for (int i = 0; i < count; i++)
            *most = of[i] > *most ? of[i] : *most;
    }
    return BURST_OK;
}

/* All tokens of a batch, including those that do not count in the loss. */
static double tokens_of(const BurstPlan *p)
{
    return (double)p->sequence * (double)p->train.batch;
}

/* Of a plan with experts: ", \"balance\": 1.02, \"expert_loads\": [null, 1.2, 1.4]", one for each layer. */
static const char *experts_text(const BurstPlan *p, const BurstStep *r, char *text, size_t size)
{
    const int most = (int)size / 8 - 8; /* layers whose loads fit, far more than models have */
    FILE *to = r->loads && p->layers <= most ? fmemopen(text, size, "w") : NULL;
    if (!to)
        return "";
    if (p->experts.balance > 0)
        fprintf(to, ", \"balance\": %.9g", r->balance);
    fputs(", \"expert_loads\": [", to);
    for (int l = 0; l < p->layers; l++)
        r->loads[l] > 0 ? fprintf(to, "%s%.4g", l ? ", " : "", r->loads[l])
                        : fprintf(to, "%snull", l ? ", " : "");
    fputs("]", to);
    fclose(to);
    text[size - 1] = 0;
    return text;
}

static int write_metrics(Progress *s, BurstCtx *c, const BurstPlan *p, int64_t step, const BurstStep *r,
                         double seconds)
{
    char experts[METRICS_LINE / 2];
    return metrics_line(c, &s->metrics,
                        "{\"step\": %lld, \"loss\": %.17g, \"tokens\": %.17g, \"tokens_per_second\": %.6g, "
                        "\"seconds\": %.6g, "
                        "\"norm\": %.9g, \"lr\": %.9g, \"predicted\": %.6g, \"mfu\": %.6g, "
                        "\"matmul_share\": %.6g, "
                        "\"memory_bytes\": %.0f, \"predicted_memory_bytes\": %zu%s}\n",
                        (long long)step + 1, r->loss, r->tokens, tokens_of(p) / seconds, seconds, r->norm,
                        burst_learning_rate(p, step), p->predicted_seconds,
                        share_of(p->peak_flops, p, seconds), share_of(p->matmul_flops, p, seconds), s->memory,
                        p->predicted_memory, experts_text(p, r, experts, sizeof experts));
}

/* The remaining time, from the steps so far; empty after the last one. */
static void print_left(const Progress *s, int64_t step, double seconds, char text[FIELD])
{
    static const struct { double seconds; const char *format; } unit[] = {
        {86400, "ETA %.1f days"}, {3600, "ETA %.1f h"}, {60, "ETA %.0f min"}, {1, "ETA %.0f s"}};
    const double mean = s->counted ? s->spent / (double)s->counted : seconds,
                 left = mean * (double)(s->last - step);
    int i = 0;
    while (unit[i].seconds > 1 && left < 2 * unit[i].seconds)
        i++;
    text[0] = 0;
    if (step < s->last)
        snprintf(text, FIELD, unit[i].format, left / unit[i].seconds);
}

/* On a terminal, the least important fields are dropped until a line has COLUMNS. */
static void print_fields(char field[FIELDS][FIELD], bool terminal)
{
    static const int least[] = {FLOPS, MEMORY, RATE, NORM, MFU};
    size_t n = 0;
    for (int i = 0; i < FIELDS; i++)
        n += field[i][0] ? strlen(field[i]) + 2 : 0;
    for (size_t i = 0; terminal && n > COLUMNS + 2 && i < sizeof least / sizeof *least; i++) {
        n -= field[least[i]][0] ? strlen(field[least[i]]) + 2 : 0;
        field[least[i]][0] = 0;
    }
    for (int i = 0; i < FIELDS; i++)
        if (field[i][0])
            printf("%s%s", i ? "  " : "", field[i]);
    printf("\n");
}

static int say_step(Progress *s, BurstCtx *c, const BurstPlan *p, const Options *o, int64_t step,
                    const BurstStep *r, double seconds)
{
    char field[FIELDS][FIELD] = {{0}};
    const char *device = c->device.memory ? "GPU" : "rank";
    snprintf(field[STEP], FIELD, "step %lld/%lld", (long long)step + 1, (long long)o->steps);
    snprintf(field[LOSS], FIELD, "loss %.5f", r->loss);
    snprintf(field[NORM], FIELD, "norm %.4g", r->norm);
    snprintf(field[RATE], FIELD, "lr %.3g", burst_learning_rate(p, step));
    snprintf(field[SPEED], FIELD, "%.1f tokens/s/%s", tokens_of(p) / seconds / p->world, device);
    snprintf(field[FLOPS], FIELD, "%.2f GFLOP/s", p->flops / seconds * 1e-9);
    if (p->peak_flops > 0)
        snprintf(field[MFU], FIELD, "%.1f %% MFU", 100 * share_of(p->peak_flops, p, seconds));
    snprintf(field[MEMORY], FIELD, "%.3f GiB/%s (predicted %.3f)", gib(s->memory), device,
             gib((double)p->predicted_memory));
    if (p->predicted_seconds > 0)
        snprintf(field[SECONDS_TAKEN], FIELD, "%.4f s (predicted %.4f, %+.0f%%)", seconds,
                 p->predicted_seconds, (seconds / p->predicted_seconds - 1) * 100);
    else
        snprintf(field[SECONDS_TAKEN], FIELD, "%.4f s", seconds);
    print_left(s, step, seconds, field[LEFT]);
    print_fields(field, s->terminal);
    say_share(s, p, seconds);
    return output_printed(c);
}

/* Its loss is 0 by definition, which would look like success. */
static void say_none_counts(Progress *s, int64_t step, const BurstStep *r)
{
    if (r->tokens > 0 || s->none_said)
        return;
    s->none_said = true;
    fprintf(stderr,
            "burst: no token of the batch of step %lld counts in the loss, which is shown as 0; this is said "
            "once\n",
            (long long)step + 1);
}

int progress_step(Progress *s, BurstCtx *c, const BurstPlan *p, const Options *o, int64_t step,
                  const BurstStep *r, double seconds)
{
    bool due = step == s->first || step == s->last || (step + 1) % s->every == 0;
    if (due)
        BURST_TRY(most_memory(c, &s->memory));
    if (c->rank != 0)
        return BURST_OK;
    s->spent += step > s->first ? seconds : 0;
    s->counted += step > s->first;
    say_none_counts(s, step, r);
    BURST_TRY(write_metrics(s, c, p, step, r, seconds));
    return due && !o->quiet ? say_step(s, c, p, o, step, r, seconds) : BURST_OK;
}

int progress_evaluation(Progress *s, BurstCtx *c, const Options *o, int64_t done, int64_t batches,
                        const BurstStep *r, double seconds)
{
    char line[METRICS_LINE];
    BURST_TRY(most_memory(c, &s->memory));
    if (c->rank != 0)
        return BURST_OK;
    snprintf(line, sizeof line,
             "{\"step\": %lld, \"evaluation_loss\": %.17g, \"perplexity\": %.17g, "
             "\"evaluation_tokens\": %.17g, ",
             (long long)done, r->loss, exp(r->loss), r->tokens);
    /* --evaluate may repeat the previous run's evaluation */
    if (strncmp(s->metrics.evaluation, line, strlen(line)) != 0)
        BURST_TRY(metrics_line(c, &s->metrics,
                               "%s\"evaluation_seconds\": %.6g, \"memory_bytes\": %.0f, "
                               "\"predicted_memory_bytes\": %zu}\n",
                               line, seconds, s->memory, c->plan->predicted_memory));
    if (o->quiet)
        return BURST_OK;
    print_shown(stdout,
                "evaluation after step %lld  loss %.5f  perplexity %.5g  %.0f tokens of %lld batch%s of %s  "
                "%.4f s",
                (long long)done, r->loss, exp(r->loss), r->tokens, (long long)batches,
                batches == 1 ? "" : "es", c->train->evaluate->path, seconds);
    printf("\n");
    return output_printed(c);
}

int progress_close(Progress *s, BurstCtx *c, int status)
{
    return metrics_close(c, &s->metrics, status);
}
