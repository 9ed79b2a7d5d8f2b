/* search/internal.h: what the files of the search share: candidates, and what one search has tried. */
#ifndef SEARCH_H
#define SEARCH_H

#include "search/search.h"

typedef struct Candidate {
    Choice choice;
    int value[SETTING_COUNT]; /* which one of each setting */
    const Plan *plan; /* of a single candidate and of the winner */
    Cost cost;
    const char *why_not; /* NULL: it works, once tried */
    bool evaluated, too_large; /* proof 6 fails: a choice that needs less memory may help */
    bool fits_device;      /* perhaps not the host */
    bool large_with_any;   /* with another schedule too */
    bool less_evaluated;       /* and one was tried */
    bool too_slow;         /* it is too large, and would not win if it were not */
    /* its place among the open ones; that of the first that differs in weights alone */
    int order, equal_but_weights;
    double least;          /* of that first one: seconds that no other value of weights falls below */
    size_t needs; /* bytes of a rank, where it was tried */
    double host;  /* of the host with most ranks */
} Candidate;
typedef Vec(Candidate) Candidates;
typedef struct Parted { Choice choice; const Partition *partition; PairCounts **counts; } Parted;
typedef Vec(Parted) AllParted;
/* What searches of one sequence and its masks have in common, in their arena. {0}: nothing is counted yet. */
typedef struct Counted { MaskMap **maps; AllParted parted; } Counted;
/* Whether attention's transfers carry ranges, by all that it depends on. */
typedef struct Ranged { Choice choice; bool ranges; } Ranged;
/* What attention loads, found when its ranges were decided, in an arena of its own; NULL: taken. */
typedef struct Loaded { Choice choice; Arena *arena; const struct AttentionLoads *loads; } Loaded;
/* Simulated attention, in an arena of its own. */
typedef struct Attended { Choice choice; Arena *arena; const struct StepParts *parts; } Attended;
enum { ATTENDED = 2 }; /* the last ones: candidates that attend alike follow each other */
/* Where candidates that need memory alike are by settings that escalate, with activations alone:
 * none of them falls below all of these. */
typedef struct Points {
    Candidate of;
    Candidates evaluated;
} Points;
/* Where the ladder of a setting up to `last` ended, with these values of others that escalate. */
typedef struct Near {
    int setting, last, value[SETTING_COUNT], found;
    bool activations_only;
} Near;
/* Of a schedule in some sizes, forward and backward: whether each attention has the rank's own queries, or
 * its own keys. HOME_NONE: neither, or some pair of chunks not once. */
typedef enum Home { HOME_QUERIES, HOME_KEYS, HOME_NONE } Home;
typedef struct Homes {
    const SchedText *schedule;
    Travel travel;
    int coords, size[MAX_COORDS];
    Home home[2];
} Homes;
/* What ranks compute alone with any weights, which is the same for all that have the same chunks at home. */
typedef struct Computed { Choice choice; Homes of; double least; } Computed;
typedef struct Skipped { int data; double least; } Skipped; /* least: seconds of a step */

/* What the values of a step take, by all that they depend on; fits: as step_pack was told; unpacked: as of
 * Flow. */
typedef struct StepFigures {
    Choice choice;
    int64_t tokens, scratch, keys, packed, host, state, host_state;
    MemoryBudget fits;
    bool unpacked;
} StepFigures;

/* Schedules that are tried together: those without sizes to choose, rings of all sizes whose ranks share
 * heads, and other rings of all sizes. */
typedef enum Turn { TURN_SIMPLE, TURN_SHARING, TURN_LEVELS } Turn;
typedef struct Slow { const SchedText *schedule; double least; } Slow; /* seconds of a step */

typedef struct Searcher {
    Arena *arena;
    Diags *diags;
    const Program *program;
    SearchEffort effort;
    /* seconds that a step of another program takes, which this one's is to undercut; INFINITY: there is
     * none */
    double other;
    MaskMap **maps;
    AllParted parted;
    Vec(StepFigures) figures;
    Vec(Ranged) ranged;
    Vec(Choice) proved; /* their attention holds */
    Vec(Homes) homes;
    Vec(Computed) computed; /* of the number of groups that is tried */
    Loaded loaded; /* the last one: it is simulated next, if at all */
    Attended attended[ATTENDED];
    int attends; /* how many there were */
    int evaluations; /* candidates that went through the passes so far, those of activations alone too */
    Speeds *speeds; /* once shares are asked for */
    Candidates data; /* decided alone: numbers of groups to try, falling */
    Candidates open; /* of one of these: what is to be tried */
    Candidates all;  /* what was tried, what is simpler first */
    Vec(Skipped) skipped;
    Turn turn; /* whose it is */
    const Candidate *like; /* schedules with levels are tried beside it; NULL: with all there is */
    unsigned varies;       /* bits of settings in which those differ from it */
    Vec(Slow) slow; /* of each schedule, what was not tried */
    bool many;      /* so many that figures of those that fit, or surely do not, need not be exact */
    bool cuts;      /* what cannot win, or cannot fit, is not tried */
    bool might_fit; /* what was tried last, with another schedule or had it not been too slow */
    bool hopeless;  /* no candidate with as many groups fits */
    /* how many were not tried for it; and since they differ in weights alone from one that loses anyhow */
    int unfit, cut;
    Vec(Points) points;
    Vec(Near) nears;
    bool advises; /* where nothing fits, what would is found and said */
    bool activations_only; /* candidates are judged by search_evaluate_activations */
    int group; /* nothing fits, but something would with groups of so many layers; 0: not that either */
    bool single; /* the layout leaves nothing open but what is decided by memory escalation */
    const Draft *refused; /* the last that was to be kept, and that a proof refused */
} Searcher;

/* ---- search/candidate.c: what a candidate goes through ---- */
/* The same choice in the same place, without figures. */
Candidate search_untried(const Candidate *from);
MaskMap **search_maps(Arena *a, const Program *p);
/* Sends it through all passes; what it takes lives in the arena, errors go to the diagnostics. */
void search_evaluate(Searcher *s, Arena *a, Candidate *x, Diags *d);
/* Whether a device has room for it, the host perhaps not; true where its attention cannot be made. */
bool search_fits_device(Searcher *s, const Choice *choice);
/* Partition and counted pairs, attentions, what is saved and offloaded; attentions 0 after errors. */
Draft search_begin(Searcher *s, Arena *a, Diags *d, const Choice *choice);
/* All that is judged; exact: see search_flow. */
Draft search_draft(Searcher *s, Arena *a, Diags *d, const Choice *choice, bool exact);
/* Whether transfers carry ranges. */
void search_add_ranges(Searcher *s, Draft *t);
/* ---- search/search.c ---- */
/* As search_with, or with advice as search(); what it counts joins what is counted. */
Found search_counted(Arena *a, Diags *d, const Program *p, SearchEffort effort, double other, bool advises,
                     Counted *counted);
/* As search_evaluate, of what it takes the figures alone stay, but of a single candidate all. */
void search_try(Searcher *s, Candidate *x);
bool search_works(const Candidate *x);
/* false: the setting has no such value here */
bool search_take(const Searcher *s, Candidate *x, int setting, int value);
int search_values(const Searcher *s, int setting);
double search_fastest(const Searcher *s); /* seconds that a candidate is to undercut */
double search_to_win(const Searcher *s); /* seconds that a step may take to win */
/* ---- search/batches.c ---- */
/* Over drawn batches, the fastest of what was tried; NULL: none works, or batches decide nothing. Those
 * that were compared have cost.batches then. */
Candidate *search_best_on_batches(Searcher *s);
/* ---- search/escalation.c ---- */
/* Tries it, with what needs less where it is too large; all that is worth to be seen goes to s->all. */
void search_escalate(Searcher *s, Candidate x);
/* The same with the number of layers that offload by which a step takes least, where the layout leaves it
 * open; itself, if that is all. */
Candidate search_offload_fewer(Searcher *s, const Candidate *best);
/* The fastest that fits with other values of settings that escalate: what is in the host's memory, where the
 * layout leaves that open, chunks of the feed-forward network, and what layers save. Itself, if none is
 * faster. */
Candidate search_escalate_otherwise(Searcher *s, const Candidate *from);
/* Of a candidate that has what another escalates: seconds that it takes at least, whatever is saved; and the
 * best, or this one with as much saved as fits, if that is faster. */
double search_least_alike(Searcher *s, const Candidate *x);
Candidate search_escalate_alike(Searcher *s, const Candidate *x, const Candidate *best);
void search_evaluate_activations(Searcher *s, Arena *a, Candidate *x, Diags *d);
/* What the candidate, which has the first values of settings that escalate, takes at least with
 * whatever it needs of these, and any value of weights. */
double search_least(Searcher *s, const Candidate *x);
/* ---- search/cache.c ---- */
struct Flow;
/* The partition that the choice wants, with the counts of its pieces: made once. */
const Parted *search_parted(Searcher *s, const Choice *c);
/* As ranges_wanted, found once for all that attend alike. */
bool search_ranges(Searcher *s, const Draft *t);
/* As cost_attended, found once for all that attend alike; NULL: layers of different masks attend by
 * schedules of their own. */
const struct StepParts *search_attended(Searcher *s, const Draft *t);
void search_forget(Searcher *s); /* what search_ranges and search_attended have found */
/* As verify_attention, shown once for all that attend alike. */
bool search_attention_holds(Searcher *s, Arena *a, Diags *d, const Draft *t);
/* Where the least seconds of computing alone, with any weights, are kept; 0: not known yet. Valid until the
 * next call. NULL: none that computes the same is known. */
double *search_computing(Searcher *s, const Choice *c);
/* The step's values in their places; not exact: perhaps only what they take, or take at least. */
struct Flow *search_flow(Searcher *s, Arena *a, const Draft *t, bool exact);
/* Whether all schedules, with the same settings that escalate, are too large: without attention's buffers, or
 * for the hosts. */
bool search_large_with_any(const Program *p, const Draft *t);
/* ---- search/refuse.c: why no candidate works ---- */
void search_refuse(Searcher *s);
/* ---- search/advise.c: the settings that would fit ---- */
/* "`offload auto` or `host { memory 1100 GiB; }`"; NULL: none alone */
const char *search_would_fit(Searcher *s, const Candidate *near);
void search_advise(Searcher *s, const Candidate *near); /* where it is asked to */
/* `recompute full(group)`: of so many layers the first saves its input */
const Program *search_with_group(Arena *a, const Program *p, int group);
void search_remark_kernels(const Program *p, Text *t);

#endif
