/* executor_machine.h: between the files of the executor. */
#ifndef STEP_EXECUTOR_MACHINE_H
#define STEP_EXECUTOR_MACHINE_H

#include "executor.h"

enum { RANKS = 4 };

/* Operations of a stream beside compute, by their numbers; those before begun are done. */
typedef struct Queue { int *at, n, begun; } Queue;

typedef struct Machine {
    Run *run;
    const Step *step;
    const Model *m;
    Heads heads; /* that operations have at a time */
    int ranks, rank; /* that split the layers; they do one operation after the other together */
    double *arenas[RANKS], *arena; /* the device's memory, and behind it the host's */
    char *spoiled;                 /* of each byte of it, on all ranks */
    int *order;                    /* items of the flow by address */
    double **params[RANKS], **grads[RANKS], **param, **grad; /* [units], of what a rank has of each */
    int64_t device, bytes, n, first; /* n tokens from that one on */
    int64_t key_first, key_n;  /* keys that queries are attended with */
    int t;         /* the operation */
    double *x[OP_READS], *y[OP_WRITES]; /* operands, copied out of the arena */
    int64_t nx[OP_READS], ny[OP_WRITES];
    int64_t row;               /* from one row of the operation's weights to the next */
    bool adds;                 /* to its first output */
    Queue queue[STREAMS];
    int sequence;              /* of the operation at t */
    bool lost;
} Machine;

bool is_of_keys(const Machine *m, const Op *o); /* in a loop over chunks of keys */

/* ---- executor_ops.c ---- */
/* Of the chunk's tokens the first that is a rank's own, and how many are. */
int64_t first_own(const Machine *m, int rank);
int64_t own_tokens(const Machine *m, int rank);
/* What one rank computes of x and w into y and dw, of a tensor [out][in]; false: it is no such operation. */
bool compute(Machine *m, const Op *o, int64_t in, int64_t out, const double *w, double *dw);

#endif
