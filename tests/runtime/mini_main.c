/* mini_main.c: the miniature plan as a program of its own, as burstc would emit one. The environment
 * chooses the shape: MINI="world data partition batch steps separator", MINI_FAULT="kill 2 3", MINI_FFN=6,
 * MINI_RENAME_MS=1000. MINI_SET="lr 0.1" makes one value of the plan another. MINI_DATA="a 0.7 b 0.3" has the
 * plan train on a mix of files of bytes, MINI_EVALUATE="v 5" evaluate on another every 5 steps. */
#include "mini.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Linked in place of rename: MINI_RENAME_MS holds a finished file or folder back, so that a test sees the
 * moment before. */
int __real_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to)
{
    const char *wait = getenv("MINI_RENAME_MS");
    if (wait)
        usleep((useconds_t)atoi(wait) * 1000);
    return __real_rename(from, to);
}

/* Only so that ranks differ: they must be refused before anything is done with the plan. */
static void set_value(BurstPlan *p, const char *text)
{
    char name[32];
    double value;
    BurstTrain *t = &p->train;
    const struct { const char *name; double *real; int *count; int64_t *whole;
    } row[] = {{"lr", .real = &t->lr},
               {"lr_end", .real = &t->lr_end},
               {"beta1", .real = &t->beta1},
               {"beta2", .real = &t->beta2},
               {"eps", .real = &t->eps},
               {"decay", .real = &t->decay},
               {"clip", .real = &t->clip},
               {"rope_theta", .real = &p->rope.theta},
               {"norm_eps", .real = &p->norm_eps},
               {"softcap", .real = &p->softcap},
               {"logit_scale", .real = &p->scale[BURST_SCALE_LOGIT]},
               {"warmup", .whole = &t->warmup},
               {"predict", .whole = &t->predict},
               {"sequence", .whole = &p->sequence},
               {"vocab", .count = &p->vocab},
               {"layers", .count = &p->layers},
               {"hidden", .count = &p->hidden},
               {"activation", .count = &p->layer.activation},
               {"rotary", .count = &p->rope.rotary},
               {"shard_ranks", .count = &p->shard_ranks}};
    if (!text || sscanf(text, "%31s %lf", name, &value) != 2)
        return;
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        if (strcmp(row[i].name, name) != 0)
            continue;
        if (row[i].real)
            *row[i].real = value;
        else if (row[i].whole)
            *row[i].whole = (int64_t)value;
        else
            *row[i].count = (int)value;
    }
    if (strcmp(name, "arena") == 0)
        p->arena_bytes = (size_t)value;
    if (strcmp(name, "text") == 0)
        p->text_hash = (uint64_t)value;
}

static void set_data(BurstPlan *p, const char *mix, const char *evaluation)
{
    static BurstDataFile file[2], other;
    static char name[3][32];
    long long every;
    if (mix && sscanf(mix, "%31s %lf %31s %lf", name[0], &file[0].share, name[1], &file[1].share) == 4) {
        for (int i = 0; i < 2; i++)
            file[i].path = name[i], file[i].raw = 1;
        p->train.data = file;
        p->train.data_files = 2;
    }
    if (evaluation && sscanf(evaluation, "%31s %lld", name[2], &every) == 2) {
        other = (BurstDataFile){name[2], 1, 1};
        p->train.evaluate = &other;
        p->train.evaluate_every = every;
    }
}

int main(int argc, char **argv)
{
    Mini m = {.world = 2,
              .data = 1,
              .sequence = 48,
              .batch = 4,
              .steps = 12,
              .separator = -1,
              .documents = true,
              .ffn = getenv("MINI_FFN") ? atoi(getenv("MINI_FFN")) : 6,
              .fault = getenv("MINI_FAULT")};
    const char *shape = getenv("MINI");
    long long batch, steps, separator;
    if (shape && sscanf(shape, "%d %d %d %lld %lld %lld", &m.world, &m.data, &m.partition, &batch, &steps,
                        &separator) == 6) {
        m.batch = batch;
        m.steps = steps;
        m.separator = separator;
    } else if (shape) {
        fprintf(stderr, "mini: MINI is '%s'\n", shape);
        return 2;
    }
    BurstPlan plan = *mini_plan(&m);
    set_value(&plan, getenv("MINI_SET"));
    set_data(&plan, getenv("MINI_DATA"), getenv("MINI_EVALUATE"));
    return burst_main(&plan, argc, argv);
}
