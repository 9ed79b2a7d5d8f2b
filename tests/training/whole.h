/* whole.h: the pieces that ranks hold, put together for the float64 oracle. */
#ifndef WHOLE_H
#define WHOLE_H

#include "burst_rt.h"
#include "model64.h"

/* The oracle's view of a plan, and room for gathering. Made on every rank alike. */
typedef struct Whole {
    BurstCtx *c;
    const BurstPlan *p;
    Shape64 shape;
    double gap; /* of experts: the least distance from a chosen score to the next so far; 1: none is close */
    bool *dense, *scans; /* [layers] of a plan with experts: layers without; with scans: layers with one */
    bool *indexed; /* [layers] with an indexer */
    int64_t agreed; /* choices of experts that were given and are the oracle's too */
    int tensors;
    Tensor64 *tensor;
    int64_t count; /* all weights */
    float *shard, *full; /* of the arena */
} Whole;
/* What whole_open takes from the arena over what the plan has counted. */
size_t whole_arena(const BurstPlan *p);
int whole_open(Whole *x, BurstCtx *c, const BurstPlan *p);
void whole_close(Whole *x);
/* out[count] = all weights (or gradients), from every rank's shards [units]. Every rank calls. */
int whole_weights(Whole *x, float *const *shards, double *out);
/* One sequence of the batch as the loader gives it to the ranks. Every rank calls; the arrays are
 * [sequence]. */
typedef struct Sequence {
    int32_t *token, *label, *doc;
    double *weight;
    double counted; /* tokens with a label and a weight */
} Sequence;
Sequence sequence_new(int64_t n);
void sequence_free(Sequence *s);
int whole_sequence(Whole *x, int64_t step, int64_t index, Sequence *out);

#endif
