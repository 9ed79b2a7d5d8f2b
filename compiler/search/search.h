/* search/search.h: chooses what the layout leaves open. */
#ifndef BURST_SEARCH_SEARCH_H
#define BURST_SEARCH_SEARCH_H

#include "dsl.h"
#include "proof/proof.h"

/* ---- search.c ---- */
/* A row of --explain's table; why_not NULL: it works. */
typedef struct Evaluated {
    const Program *program; /* with the choice's tensor ranks */
    Choice choice;
    Cost cost;
    const char *why_not;
    bool chosen;
    const char *verdict;
    PairCounts **counts; /* by mask; counts made so far */
    /* too_large: why_not is memory; less_evaluated: a candidate that needs less was tried */
    bool too_large, less_evaluated;
    bool too_slow;            /* and it would not win with enough memory */
    bool ends_later;          /* a prompt's last token is later than the chosen layout's */
    size_t needs;             /* bytes of a rank, if known */
    int value[SETTING_COUNT]; /* index of each setting's value */
} Evaluated;
typedef struct Found {
    const Plan *plan;
    Cost cost;
    const char *remarks; /* the last lines of --explain */
    bool column[SETTING_COUNT]; /* whether --explain has it */
    const Evaluated *evaluated; /* the chosen one, others by time, then what does not work */
    int evaluated_count, evaluations; /* evaluations: candidates that went through the passes */
    struct Counted *counted; /* for further searches of the program's masks; as the search's arena */
    double counting; /* work of counting pairs, in mask node operations, without drawn batches */
    bool too_large; /* plan NULL: because of memory */
    int group; /* search(), too_large: group size with which `full(n)` fits; 0: none */
    /* plan NULL: the only candidate, if a proof refused it; else NULL */
    const Draft *refused;
} Found;
#define SEARCH_TIE 1e-3 /* a simpler layout wins unless another is faster by more than this fraction */
/* Plan NULL after errors, which say what would fit. With `tensor` open the plan's program has its value. */
Found search(Arena *a, Diags *d, const Program *p);
/* USUAL prunes what cannot win or fit if there are many candidates; for tests, WHOLE never prunes and CUT
 * always does. The choice is the same. other: seconds that a sequence takes with another program, INFINITY:
 * none; what is pruned then need not be slower. search() has USUAL and INFINITY; there is no advice with
 * others. */
typedef enum SearchEffort { SEARCH_USUAL, SEARCH_WHOLE, SEARCH_CUT } SearchEffort;
Found search_with(Arena *a, Diags *d, const Program *p, SearchEffort effort, double other);

/* ---- search/open.c ---- */
/* As search(), with `offload` open if the layout does not mention it. The plan's program then has it. */
Found search_open(Arena *a, Diags *d, const Program *p);
/* Proves the plans of all lengths of prompts but the longest, which is the plan itself. first: seconds until
 * their first token. False after an error. */
bool search_lengths(Arena *a, Diags *d, const Plan *plan, double first[MOST_LENGTHS]);

/* ---- search/batches.c: --explain's table of partitions over drawn batches; "" without drawn batches
 * ---- */
const char *search_batches(Arena *a, const Found *f);
/* ---- search/warn.c ---- */
/* warns about choices that are bad for any layout's kernels */
void search_warn(Diags *d, const Program *p, const Choice *c);

/* ---- search/layers.c ---- */
/* Chooses the fastest attention for each mask's layers among what the layout leaves open. Leaves c as it is
 * if all choose the same. Returns NULL, or what does not work. */
const char *layers_choose(Arena *a, const Program *p, const Partition *part, PairCounts **counts, Choice *c);
/* Schedules, sizes and travels that one mask's layers may have, of all masks; 0: the layout gives them. */
int layers_options(const Program *p);
/* Takes the n-th of these for its mask's layers. Returns false if it is no change, or does not work. */
bool layers_take(Arena *a, const Program *p, Choice *c, int n);

/* ---- search.c ---- */
/* as cost_least, over all values of `weights` */
double data_least(const Program *p, const double *pairs, int data);
Draft draft_make(Arena *a, Diags *d, const Program *p, const Choice *c); /* attentions 0 after errors */

/* ---- search/explain.c: reports for --explain and the page of `burstc explore` ---- */
/* The same with rows of `evaluated` whose simulation ended early simulated to the end, so that each has the
 * time of its layout. */
Found search_complete(Arena *a, const Found *f);
/* Why the chosen layout won; NULL: nothing else works. */
const char *search_reason(Arena *a, const Found *f);
/* Rows that do not fit, would lose, or are refused, each with a heading `what` from row `first` on. Returns
 * the number of groups. */
typedef struct Failures { int first, n; const char *what; } Failures;
int search_failures(Arena *a, const Found *f, Failures **out);
/* p: from the front end. Returns the whole report. */
const char *search_table(Arena *a, const Program *p, const Found *f);
/* ---- search/advise.c ---- */
/* A line for each fixed setting that would save time with another value; "" if there is none. p: from the
 * front end. */
const char *search_hints(Arena *a, const Program *p, const Found *f);

/* ---- search/alternatives.c: other choices than the search's, compiled ---- */
/* cost: also if it does not fit, but not if why_not gives another reason. */
typedef struct Evaluation {
    Draft draft;
    Cost cost;
    bool fits;
    const char *why_not;
} Evaluation;
Evaluation evaluate_choice(Arena *a, const Program *p, const Choice *c);
typedef struct Alternative {
    int setting;
    const char *what, *value; /* "weights zero2", "zero2"; value NULL: without the setting */
    size_t needs;
    double step;
    bool fits;
    const char *why_not;
} Alternative;
/* with other values of each setting, in order; returns their number */
int alternatives_of(Arena *a, const Draft *d, Alternative **out);
const char *setting_text(Arena *a, int setting, const Choice *c); /* "weights zero2" */

#endif
