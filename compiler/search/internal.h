/* search/internal.h: shared by the files of the search: candidates, and the state of one search. */
#ifndef SEARCH_H
#define SEARCH_H

#include "search/search.h"

/* How attention's schedule, placement and sizes load a step: seconds of all layers, forward and backward;
 * bytes sent inside nodes and between them; seconds of the bytes over the busiest link or NIC, which gathers
 * and reductions share; memory of a rank without the step's values. */
typedef struct Strain {
    double seconds, link, nic, busiest, memory;
} Strain;
typedef struct Candidate {
    Choice choice;
    int value[SETTING_COUNT]; /* index of each setting's value */
    const Plan *plan; /* set for a single candidate and for the winner */
    Cost cost;
    const char *why_not; /* NULL after evaluation: it works */
    bool evaluated, too_large; /* proof 6 fails: a choice that needs less memory may help */
    bool fits_device;      /* but perhaps not the host */
    bool large_with_any;   /* too large with any schedule */
    bool less_evaluated;       /* a candidate that needs less was tried */
    bool too_slow;         /* it is too large, and would not win if it fitted */
    bool alike;            /* tried with another's escalated settings alone */
    /* position among all candidates, simpler ones first; of the first one that differs only in weights */
    int64_t order, first;
    int64_t sequences; /* of a step, if evaluated */
    size_t needs; /* bytes of a rank, if evaluated */
    double host;  /* bytes of the host with most ranks */
} Candidate;
typedef Vec(Candidate) Candidates;
typedef struct Parted { Choice choice; const Partition *partition; PairCounts **counts; } Parted;
/* Counted pairs of masks, for all searches of programs with the same masks and sequence. */
typedef struct Counted {
    Arena *arena;
    MaskMap **maps; /* [mask_count] */
    Vec(Parted) parted;
} Counted;
/* Choices by some of their fields, numbered from 0. */
typedef struct Memo {
    Vec(Choice) choice;
    int *place; /* [places] open addressing, a power of two: 1 + a number; 0: free */
    int places;
} Memo;
/* How attention runs by its own time, in `choice`, cached by all that this depends on. open: it may also run
 * with the other value of `ranges`, and sends more or less then. */
typedef struct Ranged {
    Choice choice;
    bool open;
} Ranged;
/* Attention's loads, from when its ranges were decided or a bound was taken, in an arena of its own; NULL:
 * already used. least: with ranges still open, attention by cost_attended_least. */
typedef struct Loaded {
    Choice choice;
    Arena *arena;
    struct AttentionLoads *loads;
    const struct StepParts *least;
} Loaded;
/* The inputs of a step's list, before layers' saved and offloaded values are chosen. */
typedef struct Unsaved {
    Shape shape;
    int64_t tokens;
    int pieces, within;
    bool slices;
} Unsaved;
/* The values that layers save at any share, by all that they depend on. */
typedef struct Staged {
    Unsaved of;
    AttentionWork attended;
    const SavedStages *stages;
} Staged;
/* The set of `values` values that `layers` layers (0: all) offload, by its inputs. */
typedef struct Offloaded {
    Unsaved of;
    Saving saving;
    int layers, values;
    const char *set;
} Offloaded;
/* Simulated attention, in an arena of its own; NULL: in the search's. */
typedef struct Attended {
    Choice choice;
    Arena *arena;
    const struct StepParts *parts, *other; /* other: with the other value of `ranges`; NULL: not asked yet */
    struct AttentionLoads *loads;          /* for `other`; NULL: none */
} Attended;
/* Operations of a step with their times, in an arena of its own. */
typedef struct Modelled {
    Choice choice;
    bool even; /* the same in all partitions that give ranks equal numbers of tokens */
    Arena *arena;
    const struct StepModel *model;
    int64_t used; /* when: the number of uses before */
} Modelled;
enum { MODELLED = 128 };
enum { ATTENDED = 8 }; /* the last ones; candidates with the same attention are consecutive */
/* A search for the first value of a ladder, from `first` to `last`, that fits, from where others ended: in
 * growing steps until one value fits and the one before it does not, since memory falls along a ladder. */
typedef struct Walk {
    int first, last;
    int at, step, large, fits; /* fits: past the last one if none does */
} Walk;
/* Of what candidates are judged: all; whether activations alone fit; whether a step's values do, with
 * parameters, gradients and moments. */
typedef enum Judged { JUDGED_ALL, JUDGED_ACTIVATIONS, JUDGED_VALUES } Judged;
/* The escalated settings at which candidates with equal activation memory fit, counting activations only:
 * none of them needs less than all of these. */
typedef struct Points {
    Candidate of;
    Candidates evaluated;
    Judged judged;
} Points;
/* Where a setting's ladder up to `last` ended, with these values of the other escalating settings. */
typedef struct Near {
    int setting, last, value[SETTING_COUNT], found;
    Judged judged;
} Near;
/* For a schedule in given sizes, each direction: whether every attention has the rank's own queries, or its
 * own keys. STATIONARY_NONE: neither, or a pair of chunks is not computed exactly once. */
typedef enum StationarySide { STATIONARY_QUERIES, STATIONARY_KEYS, STATIONARY_NONE } StationarySide;
typedef struct Stationary {
    const SchedText *schedule;
    Travel travel;
    int coords, size[MAX_COORDS];
    StationarySide side[2];
} Stationary;
/* Lower bound from computing alone, with any weights: the same for all choices with the same chunks at their
 * owners. */
typedef struct Computed { Choice choice; Stationary of; double least; } Computed;
typedef struct Skipped { int tensor, data; double least; } Skipped;

/* The fastest of a schedule in a partition. */
typedef struct Form {
    Choice choice;
    double seconds;
} Form;
/* A candidate that attends with less strain than others, whatever their weights. */
typedef struct Rival {
    Candidate of;
    Strain strain;
} Rival;
typedef Vec(Rival) Rivals;
/* Summary of the first `n` tried candidates that work. fastest: seconds, 0: none works; forms: only with
 * drawn batches; rings: the fastest of each position, only if masks may get schedules of their own. */
typedef struct Tried {
    int n;
    double fastest;
    Vec(Form) forms;
    Vec(Form) rings;
} Tried;

/* Memory of a step's values, by all that it depends on; fits: the budget of step_pack; unpacked: as in
 * Flow. exact: the values with their offsets, for the winner alone. */
typedef struct StepFigures {
    Choice choice;
    int64_t tokens;
    int pieces;
    int64_t scratch, keys, packed, host, state, host_state;
    MemoryBudget fits;
    bool unpacked;
    struct Flow *exact;
} StepFigures;

/* Bytes of the values that are judged, at their peak, on the device and on the host: without attention's
 * buffers. */
typedef struct Active {
    Choice choice;
    int64_t tokens;
    int pieces;
    Judged judged;
    size_t device, host;
} Active;

/* Schedules that are tried together: without sizes to choose; rings of all sizes whose ranks share heads;
 * other rings of all sizes. */
typedef enum ScheduleKind { SCHEDULES_SIMPLE, SCHEDULES_SHARING, SCHEDULES_LEVELS } ScheduleKind;
/* What was not tried, by its lower bound and for other reasons. */
typedef struct Slow { const SchedText *schedule; double least; } Slow;
typedef struct Pruned {
    Vec(Skipped) groups;  /* numbers of groups, by perfect balance and overlap */
    Vec(Slow) slow;       /* the lowest bound of each schedule, */
    Candidate nearest;    /* and the candidate with the lowest of all, */
    double least;         /* which is this */
    int cut, unfit, outdone; /* how many: by these bounds; that do not fit; by search_outdone */
} Pruned;

/* Candidates that are tried as variants of a layout. */
typedef struct Variants {
    const Candidate *of; /* NULL: all combinations are tried */
    unsigned vary;       /* bits of settings in which they may differ from it */
    bool in_form; /* each schedule in each partition is to be compared, however slow by its plan */
    bool alike;   /* with the escalated settings of `of` */
} Variants;

typedef struct Searcher {
    Arena *arena;
    Diags *diags;
    const Program *program; /* of the candidate at hand: see search_enter */
    Vec(const Program *) programs; /* with each number of tensor ranks, rising; empty: the one above */
    const char *remarks; /* why some numbers of them are invalid */
    SearchEffort effort;
    double other; /* seconds of another program, which this one's must undercut; INFINITY: none */
    /* what candidates share */
    Counted *counted;
    DrawnInputs *drawn; /* NULL: each candidate draws its own */
    Vec(StepFigures) figures;
    Vec(Active) active;
    Memo ranged_choices, proved, busiest_choices; /* proved: choices whose attention is proved */
    Vec(Ranged) ranged;
    Vec(const struct StepParts *) busiest; /* attention of the rank that computes most */
    Vec(Staged) staged;
    Vec(Offloaded) offloaded;
    Vec(Stationary) stationary;
    Vec(Computed) computed;
    Loaded loaded; /* the last one; it is simulated next, if at all */
    Attended attended[ATTENDED];
    int attends; /* how many are stored */
    Modelled modelled[MODELLED];
    int64_t uses;
    Speeds *speeds; /* computed on first use */
    Vec(Points) points;
    Vec(Near) nears;
    /* what is tried */
    Candidates data; /* numbers of groups to try, falling, of each program */
    Variants variants;
    bool single; /* the layout leaves nothing open but escalated settings */
    bool many;      /* many candidates: figures of those that surely fit, or surely do not, may be inexact */
    bool thorough; /* but memory is packed as tightly as the winner's */
    bool cuts;      /* candidates that cannot win, or cannot fit, are pruned */
    Judged judged;
    unsigned closed; /* bits of settings that do not escalate, since they exclude values of others */
    /* what was tried */
    Candidates all;  /* simpler ones first */
    Tried tried;
    Rivals *rivals; /* of the current number of groups: whose strain is known */
    Pruned pruned;
    int evaluations; /* candidates that went through the passes, including those not judged by all */
    bool might_fit; /* the last candidate might fit with another schedule, or was pruned as too slow */
    int group; /* nothing fits: group size with which `full(n)` fits; 0: none */
    const Draft *refused; /* the last draft that was to be kept and that a proof refused */
} Searcher;

/* Times in a search are seconds of a sequence: batches of programs with other numbers of tensor ranks may
 * differ. Costs and their bounds are seconds of a step. */
static inline double sequence_seconds(const Program *p, double step) { return step / (double)p->train.batch; }
static inline double step_seconds(const Program *p, double sequence)
{
    return sequence * (double)p->train.batch;
}

static inline bool same_tensor(const Choice *x, const Choice *y)
{
    return choice_tensor(x) == choice_tensor(y);
}

/* ---- search/candidate.c: evaluation of a candidate ---- */
/* A copy with the same choice and order, but without figures. */
Candidate search_untried(const Candidate *from);
Counted *counted_new(Arena *a, const Program *p);
/* Sends it through all passes. Its results live in the arena; errors go to the diagnostics. */
void search_evaluate(Searcher *s, Arena *a, Candidate *x, Diags *d);
/* Whether it fits the device, the host perhaps not; true if its attention cannot be made. */
bool search_fits_device(Searcher *s, const Choice *choice);
/* Partition with counted pairs, attentions, saved and offloaded values; attentions 0 after errors. */
Draft search_begin(Searcher *s, Arena *a, Diags *d, const Choice *choice);
/* Everything that is judged; exact: see search_flow. */
Draft search_draft(Searcher *s, Arena *a, Diags *d, const Choice *choice, bool exact);
/* Chooses whether transfers carry ranges, and the launches. */
void search_add_ranges(Searcher *s, Arena *a, Draft *t);
/* ---- search/memo.c ---- */
int memo_find(const Memo *m, const Choice *c, unsigned keys); /* its number; -1: none */
void memo_add(Arena *a, Memo *m, const Choice *c, unsigned keys);
/* ---- search/queue.c ---- */
/* Tries what may win of all numbers of groups, with the schedules of each kind that search_tries_kind
 * allows. Appends it to s->all, in the order of the candidates. */
void search_all(Searcher *s);
/* The same of the variants, with schedules of `kinds`: bits. */
void search_variants(Searcher *s, Variants v, unsigned kinds);
/* Candidates with schedules without levels of one number of groups: an index of s->data. */
int search_count_simple(Searcher *s, int data);
/* ---- search/search.c ---- */
/* A search that prunes nothing, or the evaluation of single choices; search_forget at the end. */
Searcher search_new(Arena *a, Diags *d, const Program *p, Counted *counted);
const double *search_pairs(Searcher *s); /* [mask_count] unmasked pairs of the sequence */
Speeds *search_speeds(Searcher *s);
/* With several masks: the fastest attention of each mask's layers. Returns NULL, or what does not work. */
const char *search_choose_layers(Searcher *s, Choice *c);
/* Whether masks may still get schedules of their own, so that a candidate that loses with one for all may
 * win. */
bool search_layers_may_differ(const Searcher *s);
bool search_tries_kind(const Searcher *s, const Candidate *data, ScheduleKind kind);
/* x with the escalated settings of `like` */
Candidate search_with_escalation(const Candidate *x, const Candidate *like);
bool search_same_but_escalation(const Candidate *x, const Candidate *y); /* they differ in these at most */
void search_forget_tried(Searcher *s); /* tried candidates changed */
double search_fastest_tried(Searcher *s); /* seconds; INFINITY: none works */
/* The fastest of so many tensor ranks and groups (0: of any number); if none works, the last tried. */
const Candidate *search_fastest_of(const Searcher *s, int tensor, int data);
/* Whether it is better than one tried before; anything is if that does not work. */
bool search_leads(const Candidate *x, const Candidate *other);
/* Takes the program with the choice's tensor ranks. */
void search_enter(Searcher *s, const Choice *c);
double search_seconds(const Candidate *x);
/* As search_with, with what searches of the same masks have counted. */
Found search_counted(Arena *a, Diags *d, const Program *p, SearchEffort effort, double other,
                     Counted *counted);
/* The fastest of p that differs from the chosen row in one setting, and in what escalates; plan NULL: none
 * takes at most so many seconds. */
Found search_near(Arena *a, const Program *p, const Found *f, int setting, double most);
/* As search_evaluate, but keeps only the figures, unless the candidate is the only one. */
void search_try(Searcher *s, Candidate *x);
bool search_works(const Candidate *x);
/* Returns false if the setting has no such value here. */
bool search_take(const Searcher *s, Candidate *x, int setting, int value);
int search_values(const Searcher *s, int setting);
double search_fastest(Searcher *s); /* seconds that a candidate must undercut */
/* Seconds with which a candidate of this choice may still win. */
double search_to_win(Searcher *s, const Choice *c);
/* ---- search/found.c: rows, columns and remarks of --explain's table ---- */
Found search_found(Searcher *s, const Candidate *best); /* best: with its plan */
/* Whether rows of the table have different texts of a setting. */
bool search_has_several(Arena *a, const Found *f, int setting);
/* Compares a row that works with the chosen layout of a program: "equally fast", "3.1 % slower (...)" */
const char *search_verdict(Arena *a, const Evaluated *x, const Program *p, const Cost *best);
/* ---- search/explain.c ---- */
void search_sort(Arena *a, Found *f); /* sorts `evaluated` */
/* ---- search/batches.c ---- */
/* The fastest over drawn batches; NULL: none works, or batches decide nothing. Compared candidates then have
 * cost.batches. */
Candidate *search_best_on_batches(Searcher *s);
void search_add_form(Searcher *s, const Candidate *x);
/* Seconds by its plan with which a candidate is compared over drawn batches: as the fastest of its
 * schedule in its partition, among few. */
double search_to_be_compared(const Searcher *s, const Choice *c);
/* The same as the fastest plan of so many groups and tensor ranks, little slower than any. */
double search_to_be_of_groups(const Searcher *s, const Choice *c);
/* ---- search/escalation.c ---- */
/* Tries it; if it is too large, also with settings that need less. Appends what is worth showing to
 * s->all. */
void search_escalate(Searcher *s, Candidate first);
Walk search_walk(int first, int last, int at);
bool search_walk_ends(const Walk *k);
void search_walk_on(Walk *k, bool room); /* room: whether the value at hand fits */
/* Whether the setting's smallest value excludes the smallest one of a setting after it, given the candidate's
 * other values. */
bool search_excludes(const Searcher *s, const Candidate *x, int setting);
/* Whether the same escalating settings can save memory for both candidates, with the same smallest values. */
bool search_escalates_alike(const Searcher *s, const Candidate *x, const Candidate *y);
/* With nothing in the host's memory and as much saved as fits; an infinite step if that does not fit, or the
 * layout does not leave it open. */
Candidate search_without_host(Searcher *s, const Candidate *best);
/* The same with the fastest number of offloading layers, if the layout leaves it open; else a copy. */
Candidate search_offload_fewer(Searcher *s, const Candidate *best);
/* For a candidate with another's escalation: a lower bound in seconds for any saved values; and the fastest
 * with as much saved as fits, in chunks of the feed-forward network that allow to save more. */
double search_least_alike(Searcher *s, const Candidate *x);
/* With as much saved as fits, and its other settings as they are. *slow: it would not win if it fitted. */
Candidate search_save_alike(Searcher *s, const Candidate *x, bool *slow);
Candidate search_escalate_alike(Searcher *s, const Candidate *x);
/* With as much saved as fits where memory is packed as tightly as can be; a copy if that is no more. */
Candidate search_save_more(Searcher *s, const Candidate *best);
void search_evaluate_activations(Searcher *s, Arena *a, Candidate *x, Diags *d);
/* Lower bound in seconds for a candidate with the first values of escalating settings, for any escalation it
 * needs and any value of weights. */
double search_least(Searcher *s, const Candidate *x);
/* Escalates from what fits without attention's buffers, where that may win; without drawn batches also from
 * the first values, so that the table has the candidate. *least becomes at most the bound of what may not
 * win. Returns false if it ends without a candidate that fits: then all values are to be tried. */
bool search_escalate_from_points(Searcher *s, const Candidate *x, double *least);
/* ---- search/bounds.c ---- */
/* Lower bounds in seconds: for any value of weights, by computing alone, by the bytes that attention moves (0
 * if they are not known sooner than its simulation), and by its simulation; for its own value of weights. */
double search_least_computing(Searcher *s, const Candidate *x);
double search_least_moving(Searcher *s, const Candidate *x);
double search_least_any(Searcher *s, const Choice *c);
double search_least_own(Searcher *s, const Candidate *x);
/* Adds it to the rivals. */
void search_add_rival(Searcher *s, const Candidate *x);
void search_drop_rival(Searcher *s, const Candidate *x); /* the last one, if it is this one */
/* Whether a rival that differs only in how ranks exchange attention strains nothing more, and is simpler or
 * faster by more than the tie. */
bool search_outdone(Searcher *s, const Candidate *x);
/* ---- search/refine.c ---- */
/* The fastest that fits with other values of escalating settings, and of those after them; a copy if none is
 * faster. starts: also from values that need little memory. */
Candidate search_escalate_otherwise(Searcher *s, const Candidate *best, bool starts);
/* ---- search/cache.c ---- */
struct Flow;
/* The choice's partition with the counts of its pieces, cached. */
const Parted *search_parted(Searcher *s, const Choice *c);
/* As ranges_wanted, launches_wanted and head_pieces_wanted, cached for all choices with the same
 * attention. */
Ranged search_ranges(Searcher *s, const Draft *t);
/* As cost_attended, cached for all choices with the same attention. */
const struct StepParts *search_attended(Searcher *s, const Draft *t);
/* The same for as long as the search's arena lives. */
const struct StepParts *search_keep_attended(Searcher *s, const Draft *t);
/* The same for cost_bound: perhaps the rank alone that computes most, which is kept for all choices. */
const struct StepParts *search_busiest(Searcher *s, const Draft *t);
/* Lower bounds of the attention's times while its ranges are open, from loads that search_ranges uses then;
 * NULL: ranges are decided, or loads depend on more than KEY_RANGES. */
const struct StepParts *search_attended_least(Searcher *s, const Draft *t);
/* As cost_model, cached for all choices with the same list. */
const struct StepModel *search_model(Searcher *s, const Draft *t);
/* As cost_uncopied, with its model. */
Draft search_uncopied(Searcher *s, Draft t);
void search_forget(Searcher *s); /* frees the results of search_ranges and search_attended */
/* As verify_attention, cached for all choices with the same attention. */
bool search_attention_holds(Searcher *s, Arena *a, Diags *d, const Draft *t);
/* The cache entry for the lower bound of computing alone, with any weights; 0: not computed yet. Valid until
 * the next call. NULL: not cacheable. */
double *search_computing(Searcher *s, const Choice *c);
/* The step's values with offsets. Not exact: perhaps only their memory, or a lower bound. */
struct Flow *search_flow(Searcher *s, Arena *a, const Draft *t, bool exact);
/* The peak of the values that s->judged names, cached by all that they depend on. */
Active search_active(Searcher *s, Arena *a, const Draft *t);
/* Whether it is too large with every schedule and the same escalated settings: without attention's buffers,
 * or for the hosts. */
bool search_large_with_any(const Program *p, const Draft *t);
/* ---- search/alternatives.c ---- */
Evaluation search_evaluation(Searcher *s, Arena *a, const Choice *c);
/* ---- search/ranges.c: whether transfers carry ranges, by the step ---- */
/* If the step is faster with the other value of `ranges`, changes the draft and its cost, and returns true:
 * then the draft is not proved. exact: as for search_flow. */
bool search_change_ranges(Searcher *s, Arena *a, Draft *t, Cost *cost, bool exact);
/* ---- search/refuse.c: reports why no candidate works ---- */
void search_refuse(Searcher *s);
/* ---- search/advise.c: the settings that would fit ---- */
/* "`offload auto` or `host { memory 1100 GiB; }`"; NULL: no single change fits */
const char *search_would_fit(Searcher *s, const Candidate *near);
void search_advise(Searcher *s, const Candidate *near); /* with the effort of search() */
/* p with `recompute full(group)`: the first of so many layers saves its input. */
const Program *search_with_group(Arena *a, const Program *p, int group);

#endif
