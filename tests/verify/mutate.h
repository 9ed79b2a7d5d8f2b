/* mutate.h: wrong copies of a planned schedule, one change each. */
#ifndef MUTATE_H
#define MUTATE_H

#include "tools/tools.h"

/* id, name, where the message must point: at the changed statement (1) or anywhere in the text (0) */
#define MUTATIONS(X) \
    X(DROP, "operation dropped", 0) X(DUPLICATE, "operation twice", 0) X(SWAP, "neighbours swapped", 0) \
    X(EARLY, "gradient passed before its computing", 0) X(HOP, "sent elsewhere", 0) \
    X(CHUNK, "another chunk", 0) \
    X(KEYS, "another key chunk", 0) X(WAIT, "wait missing", 1) X(EXTRA_WAIT, "wait too many", 0) \
    X(CHANNEL, "channel shared", 0) X(POOL, "wrong pool", 0) X(FEWER, "a slot fewer", 0) \
    X(NO_POOL, "sums that leave home without slots", 0) \
    X(MORE, "a slot more", 0) \
    X(EXCHANGE, "exchange put in", 0) X(TURN, "exchange turned round", 0) X(WHOLE, "whole pair put in", 0) \
    X(PAIR, "pair of chunks put in", 0) X(FORM, "chunks for whole tensors, or these for chunks", 0) \
    X(BESIDES, "all pairs by heads besides", 0)
typedef enum Mutation {
#define X(id, name, exact) MUTATE_##id,
    MUTATIONS(X)
#undef X
    MUTATION_COUNT
} Mutation;
typedef struct Mutant {
    Mutation kind;
    const Schedule *schedule;
    const Stmt *at;   /* what was changed; NULL: a pool */
    const char *text; /* for messages */
} Mutant;
typedef void (*MutantFn)(const Mutant *m, void *arg);
/* Calls back with every mutant of the schedule; each lives during its call only. */
void each_mutant(const Schedule *s, MutantFn fn, void *arg);
extern const char *const mutation_names[MUTATION_COUNT];
extern const bool mutation_exact[MUTATION_COUNT];

#endif
