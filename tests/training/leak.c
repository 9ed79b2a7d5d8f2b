/* leak.c: the main of an emitted program under test: what a token changes before itself.
 *
 *     program                  for some tokens t: the loss of labels before t, and all lists of tiles that
 * begin before t, with two values of token t
 *
 * Prints "tokens N lists HASH"; exits with 1 where a bit differs. HASH: of all lists, in the order of layers
 * and masks, of the last sequence; the same on any number of ranks. A program's lists are seen by
 * PLAN_SEE_CHOSEN, which calls see_chosen.
 */
#include "test_masks.h"
#include "whole.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern const BurstPlan burst_plan;
void see_chosen(const BurstSelection *how, int64_t tiles, int64_t words, const int32_t *lists);

enum { TRIES = 8 };

static int64_t before; /* tiles that begin before it are hashed; -1: all */
static uint64_t hash;

void see_chosen(const BurstSelection *how, int64_t tiles, int64_t words, const int32_t *lists)
{
    for (int64_t t = 0; t < tiles && (before < 0 || t * how->queries < before); t++)
        for (int64_t i = 0; i < words; i++)
            hash = (hash ^ (uint32_t)lists[t * words + i]) * UINT64_C(0x100000001b3);
}

static double uniform(uint64_t i)
{
    uint64_t z = i * 0xD1B54A32D192ED03u + 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return (double)((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

/* Documents of 90 to 290 tokens. */
static void fill_documents(int64_t n, int32_t *doc, int32_t *position)
{
    int64_t left = 0, begin = 0;
    int32_t number = -1;
    for (int64_t i = 0; i < n; i++) {
        if (left-- == 0)
            left = 90 + (int64_t)(200 * uniform((uint64_t)i)), begin = i, number++;
        doc[i] = number, position[i] = (int32_t)(i - begin);
    }
}

/* The loss of labels before t with that value of token t. */
static int loss_of(BurstCtx *c, const BurstPlan *p, void *state, BurstWeights *w, int64_t t, int32_t value,
                   double *loss)
{
    const int chunk = p->chunk_of(burst_rank(c));
    const int64_t n = p->tokens_of(chunk), all = p->sequence;
    int32_t *token = calloc((size_t)n + 1, 4), *label = calloc((size_t)n + 1, 4),
            *doc = calloc((size_t)all, 4), *position = calloc((size_t)all, 4);
    float *weight = calloc((size_t)n + 1, 4);
    if (!token || !label || !weight || !doc || !position)
        return burst_fail(c, BURST_E_MEMORY, "no memory");
    fill_documents(all, doc, position);
    for (int64_t i = 0; i < n; i++) {
        const int64_t at = p->position(chunk, i);
        token[i] = at == t ? value : (int32_t)(uniform((uint64_t)at) * p->vocab);
        label[i] = at + 1 < t ? (int32_t)(uniform((uint64_t)at + 1) * p->vocab) : -1;
        weight[i] = at + 1 < t;
    }
    BurstBatch b = {token, label, weight, {{0}}};
    for (int i = 0; i < p->table_count; i++)
        b.tables.table[i] = strcmp(p->tables[i], "position") == 0 ? position : doc;
    before = t, hash = UINT64_C(0xcbf29ce484222325), *loss = 0;
    const int status = p->sequence_step(c, state, w, &b, 1, loss);
    free(token), free(label), free(weight), free(doc), free(position);
    return status;
}

static int check(BurstCtx *c, const BurstPlan *p, void *state, BurstWeights *w)
{
    for (int i = 0; i < TRIES; i++) {
        const int64_t t = i == TRIES - 1
                              ? p->sequence - 1
                              : 2 + (int64_t)(uniform(77 + (uint64_t)i) * (double)(p->sequence - 2));
        double loss[2];
        uint64_t seen[2];
        for (int j = 0; j < 2; j++) {
            BURST_TRY(loss_of(c, p, state, w, t, j, &loss[j]));
            seen[j] = hash;
        }
        if (memcmp(&loss[0], &loss[1], sizeof loss[0]) != 0 || seen[0] != seen[1])
            return burst_fail(c, BURST_E_NUMERIC,
                              "token %lld changes what is before it: losses %.17g %.17g, lists %s",
                              (long long)t, loss[0], loss[1], seen[0] == seen[1] ? "alike" : "differ");
    }
    double loss;
    BURST_TRY(loss_of(c, p, state, w, p->sequence, 0, &loss));
    if (burst_rank(c) == 0)
        printf("tokens %d lists %016llx\n", TRIES, (unsigned long long)hash);
    return BURST_OK;
}

static int body(BurstCtx *c, const BurstPlan *p, void *arg)
{
    BurstWeights w;
    void *state = calloc(1, p->state_bytes + 1);
    (void)arg;
    if (!state)
        return burst_fail(c, BURST_E_MEMORY, "no memory");
    BURST_TRY(burst_weights_make(c, p, &w));
    BURST_TRY(p->start(c, state, &w));
    const int status = check(c, p, state, &w);
    free(state);
    return status;
}

int main(int argc, char **argv)
{
    (void)argc;
    return burst_launch(&burst_plan, 1, argv, body, NULL);
}
