/* search/search.h: decides what the layout leaves open. */
#ifndef BURST_SEARCH_SEARCH_H
#define BURST_SEARCH_SEARCH_H

#include "dsl.h"
#include "proof/proof.h"

/* ---- search.c: decides what the layout leaves open ---- */
/* A candidate of the table that --explain prints; why_not NULL: it works. */
typedef struct Evaluated {
    Choice choice;
    Cost cost;
    const char *why_not;
    bool chosen;
    const char *verdict;
    PairCounts **counts; /* of its partition, by mask: counted already */
} Evaluated;
typedef struct Found {
    const Plan *plan;
    Cost cost;
    const char *table, *remarks; /* for --explain; its last lines */
    bool column[SETTING_COUNT];     /* that it has */
    const Evaluated *evaluated;
    int evaluated_count, evaluations; /* evaluations: how often a candidate went through the passes */
    bool too_large; /* plan NULL: for want of memory */
    /* plan NULL: the only candidate, where it came to a proof that failed; NULL: it did not */
    const Draft *refused;
} Found;
#define SEARCH_TIE 1e-3 /* what is simpler wins unless another is faster by more than this share */
Found search(Arena *a, Diags *d, const Program *p); /* plan NULL after errors */
/* USUAL: what cannot win or cannot fit is left out where there are many; for tests: WHOLE: never; CUT:
 * always. The choice is the same. other: seconds of a step that another program takes, INFINITY: there is
 * none; what is left out then need not take less. */
typedef enum SearchEffort { SEARCH_USUAL, SEARCH_WHOLE, SEARCH_CUT } SearchEffort;
Found search_with(Arena *a, Diags *d, const Program *p, SearchEffort effort, double other);

/* ---- search/tensor.c ---- */
/* The same where it may be open over how many ranks layers are split, and what lies in the host's memory.
 * The plan's program then says both. */
Found search_open(Arena *a, Diags *d, const Program *p);
const char *search_table(Arena *a, const Found *f); /* for --explain */
/* ---- search/batches.c: --explain's table of partitions over drawn batches; "" where there are none ---- */
const char *search_batches(Arena *a, const Found *f);
/* of a choice that is bad for any layout's kernels */
void search_warn(Diags *d, const Program *p, const Choice *c);

/* ---- search/layers.c ---- */
/* Has the layers of each mask attend as it takes least, of what the layout leaves open; c stays as it is
 * where that is one way for all. NULL, or what does not work. */
const char *layers_choose(Arena *a, const Program *p, const Partition *part, PairCounts **counts, Choice *c);

/* ---- search.c ---- */
/* as cost_least, of all values that `weights` may have */
double data_least(const Program *p, const double *pairs, int data);
Draft draft_make(Arena *a, Diags *d, const Program *p, const Choice *c); /* attentions 0 after errors */

/* ---- search/alternatives.c: other choices than the search's, compiled ---- */
/* cost: also of what does not fit, but not where why_not says what else does not work. */
typedef struct Evaluation {
    Draft draft;
    Cost cost;
    bool fits;
    const char *why_not;
} Evaluation;
/* counts: of its partition; NULL: none yet */
Evaluation evaluate_choice(Arena *a, const Program *p, const Choice *c, PairCounts **counts);
typedef struct Alternative {
    const char *what; /* "weights zero2" */
    size_t needs;
    double step;
    bool fits;
    const char *why_not;
} Alternative;
/* with one setting decided otherwise, in their order; how many */
int alternatives_of(Arena *a, const Draft *d, Alternative **out);
const char *setting_text(Arena *a, int setting, const Choice *c); /* "weights zero2" */

#endif
