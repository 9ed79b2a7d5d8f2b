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
    /* why_not: for want of memory; and it was tried again with settings that need less */
    bool too_large, less_evaluated;
    bool too_slow;            /* and it would not win with enough memory */
    size_t needs;             /* bytes of a rank, where they were found */
    int value[SETTING_COUNT]; /* which one of each setting's values */
} Evaluated;
typedef struct Found {
    const Plan *plan;
    Cost cost;
    const char *remarks; /* the last lines of --explain */
    bool column[SETTING_COUNT]; /* of --explain: that it has */
    const Evaluated *evaluated; /* the chosen one, others by time, then what does not work */
    int evaluated_count, evaluations; /* evaluations: how often a candidate went through the passes */
    double counting; /* work of counting pairs, in nodes of masks, drawn batches apart */
    bool too_large; /* plan NULL: for want of memory */
    int group; /* of search(), too_large: with groups of so many layers something fits; 0: it does not */
    /* plan NULL: the only candidate, where it came to a proof that failed; NULL: it did not */
    const Draft *refused;
} Found;
#define SEARCH_TIE 1e-3 /* what is simpler wins unless another is faster by more than this share */
Found search(Arena *a, Diags *d, const Program *p); /* plan NULL after errors, which say what would fit */
/* The same without advice where nothing fits. USUAL: what cannot win or cannot fit is left out where there
 * are many; for tests: WHOLE: never; CUT: always. The choice is the same. other: seconds of a step that
 * another program takes, INFINITY: there is none; what is left out then need not take less. */
typedef enum SearchEffort { SEARCH_USUAL, SEARCH_WHOLE, SEARCH_CUT } SearchEffort;
Found search_with(Arena *a, Diags *d, const Program *p, SearchEffort effort, double other);

/* ---- search/tensor.c ---- */
/* The same where it may be open over how many ranks layers are split, and what lies in the host's memory.
 * The plan's program then says both. */
Found search_open(Arena *a, Diags *d, const Program *p);
/* ---- search/batches.c: --explain's table of partitions over drawn batches; "" where there are none ---- */
const char *search_batches(Arena *a, const Found *f);
/* The fastest number of ranks to a layer other than the plan's, where a sequence takes less with it: p as
 * written, with `tensor` given. 0: none; *seconds of its step. */
int search_other_tensor(Arena *a, const Program *p, const Found *f, double *seconds);
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

/* ---- search/explain.c: what --explain and the page of `burstc explore` say of a search ---- */
void search_sort(Arena *a, Found *f); /* evaluated, in its order */
/* Why the chosen one is chosen; NULL: nothing else works. */
const char *search_reason(Arena *a, const Found *f);
/* Rows that do not work, by reason: `what` heads those from `first` on; how many. */
typedef struct Failures { int first, n; const char *what; } Failures;
int search_failures(Arena *a, const Found *f, Failures **out);
/* p: as the front end has it; it all as text */
const char *search_table(Arena *a, const Program *p, const Found *f);
/* ---- search/hints.c ---- */
/* A line for each setting that the layout fixes and that gains time with another value; "". p: as the
 * front end has it. */
const char *search_hints(Arena *a, const Program *p, const Found *f);

/* ---- search/alternatives.c: other choices than the search's, compiled ---- */
/* cost: also of what does not fit, but not where why_not says what else does not work. */
typedef struct Evaluation {
    Draft draft;
    Cost cost;
    bool fits;
    const char *why_not;
} Evaluation;
Evaluation evaluate_choice(Arena *a, const Program *p, const Choice *c);
typedef struct Alternative {
    int setting;
    const char *what, *value; /* "weights zero2", "zero2"; value NULL: the setting is left out */
    size_t needs;
    double step;
    bool fits;
    const char *why_not;
} Alternative;
/* with the setting decided otherwise; how many */
int alternatives_of_setting(Arena *a, const Draft *d, int setting, Alternative **out);
/* of each setting, in their order */
int alternatives_of(Arena *a, const Draft *d, Alternative **out);
const char *setting_text(Arena *a, int setting, const Choice *c); /* "weights zero2" */

#endif
