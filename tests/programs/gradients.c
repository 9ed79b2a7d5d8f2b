/* gradients.c: the main of an emitted program: loss and gradients of one sequence with given weights,
 * through files.
 *
 *     program --tables                                what the weights are, JSON
 *     program WEIGHTS TOKENS GRADIENTS
 *
 * WEIGHTS, GRADIENTS: fp32, the elements of each unit in the order of the tables (repeats in turn),
 * without padding. TOKENS: int32, the sequence's tokens and then their labels (-1: none). Every rank reads
 * and writes its own shards. The loss counts every label alike and is their mean; so do the gradients.
 * Prints {"loss": ..., "tokens": ...}.
 */
#include "burst_rt.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern const BurstPlan burst_plan;
typedef struct Files { const char *weights, *tokens, *gradients; } Files;

static void print_tables(const BurstPlan *p)
{
    printf("[");
    for (int r = 0; r < p->unit_rows; r++) {
        const BurstUnit *u = &p->units[r];
        printf("%s{\"name\": \"%s\", \"repeat\": %d, \"elements\": %lld, \"tensors\": [", r ? ",\n " : "",
               u->name, u->repeat, (long long)u->elements);
        for (int t = 0; t < u->tensors; t++)
            printf("%s{\"name\": \"%s\", \"rows\": %lld, \"cols\": %lld, \"offset\": %lld}", t ? ", " : "",
                   u->tensor[t].name, (long long)u->tensor[t].rows, (long long)u->tensor[t].cols,
                   (long long)u->tensor[t].offset);
        printf("]}");
    }
    printf("]\n");
}

/* Reads or writes this rank's part of every unit. */
static int move_shards(BurstCtx *c, const BurstPlan *p, const char *path, float **shard, bool write)
{
    int fd = open(path, write ? O_WRONLY | O_CREAT : O_RDONLY, 0666);
    off_t begin = 0;
    if (fd < 0)
        return burst_fail(c, BURST_E_IO, "cannot open %s", path);
    for (int i = 0; i < burst_unit_count(p); i++) {
        const BurstUnit *u = burst_unit(p, i);
        int64_t first = burst_rank(c) * u->shard, left = u->elements - first;
        int64_t own = left < u->shard ? left : u->shard;
        ssize_t bytes = (ssize_t)sizeof(float) * (own < 0 ? 0 : own);
        off_t at = begin + (off_t)sizeof(float) * first;
        if ((write ? pwrite(fd, shard[i], (size_t)bytes, at) : pread(fd, shard[i], (size_t)bytes, at)) !=
            bytes)
            return burst_fail(c, BURST_E_IO, "%s: %zd bytes at %lld cannot be moved", path, bytes,
                              (long long)at);
        begin += (off_t)sizeof(float) * u->elements;
    }
    return close(fd) == 0 ? BURST_OK : burst_fail(c, BURST_E_IO, "cannot close %s", path);
}

/* The whole sequence: tokens, then labels; the caller frees. */
static int32_t *read_tokens(const char *path, int64_t sequence)
{
    size_t count = 2 * (size_t)sequence;
    int32_t *all = malloc(count * sizeof *all);
    FILE *f = fopen(path, "rb");
    bool whole = all && f && fread(all, sizeof *all, count, f) == count;
    if (f)
        fclose(f);
    if (whole)
        return all;
    free(all);
    return NULL;
}

static int run_sequence(BurstCtx *c, const BurstPlan *p, void *state, BurstWeights *w, const int32_t *all,
                        double *loss, double *tokens)
{
    int chunk = burst_rank(c) % p->group;
    int64_t n = p->tokens_of(chunk);
    int32_t *token = calloc((size_t)n + 1, sizeof *token), *label = calloc((size_t)n + 1, sizeof *label);
    float *weight = calloc((size_t)n + 1, sizeof *weight);
    if (!token || !label || !weight)
        return burst_fail(c, BURST_E_MEMORY, "no memory for %lld tokens", (long long)n);
    for (int64_t i = 0; i < p->sequence; i++)
        *tokens += all[p->sequence + i] >= 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t at = p->position(chunk, i);
        token[i] = all[at], label[i] = all[p->sequence + at], weight[i] = 1;
    }
    BurstBatch b = {token, label, weight, {{0}}};
    int status = p->sequence_step(c, state, w, &b, 1 / *tokens, loss);
    free(token), free(label), free(weight);
    return status;
}

static int body(BurstCtx *c, const BurstPlan *p, void *arg)
{
    const Files *files = arg;
    BurstWeights w;
    double loss = 0, tokens = 0;
    void *state = calloc(1, p->state_bytes + 1);
    int32_t *all = read_tokens(files->tokens, p->sequence);
    if (!state || !all)
        return burst_fail(c, BURST_E_IO, "cannot read %lld tokens and labels of %s", (long long)p->sequence,
                          files->tokens);
    BURST_TRY(burst_weights_make(c, p, &w));
    BURST_TRY(move_shards(c, p, files->weights, w.param, false));
    BURST_TRY(p->start(c, state, &w));
    BURST_TRY(run_sequence(c, p, state, &w, all, &loss, &tokens));
    BURST_TRY(burst_allreduce(c, (BurstGroup){0, 1, p->world}, &loss, 1));
    if (p->save)
        BURST_TRY(p->save(c, state, &w));
    BURST_TRY(move_shards(c, p, files->gradients, w.grad, true));
    if (burst_rank(c) == 0)
        printf("{\"loss\": %.9g, \"tokens\": %.0f}\n", loss / tokens, tokens);
    fflush(stdout);
    free(state), free(all);
    return burst_barrier(c, (BurstGroup){0, 1, p->world});
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--tables") == 0) {
        print_tables(&burst_plan);
        return 0;
    }
    if (argc != 4 || burst_plan.table_count > 0 || burst_plan.data != 1) {
        fprintf(stderr,
                "usage: %s --tables | WEIGHTS TOKENS GRADIENTS (one data group, no per-token tables)\n",
                argv[0]);
        return 2;
    }
    Files files = {argv[1], argv[2], argv[3]};
    return burst_launch(&burst_plan, 1, argv, body, &files);
}
