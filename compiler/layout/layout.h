/* layout/layout.h: the settings of a layout, a record each. */
#ifndef BURST_LAYOUT_LAYOUT_H
#define BURST_LAYOUT_LAYOUT_H

#include "cost/cost.h"

#include <stddef.h>

/* The search decides for one after the other: each has its values given those before it. Columns of
 * --explain, notes of refusals and what is printed as a layout are in this order.
 * id, settings/<name>.c */
#define SETTINGS(X) \
    X(DATA, data) X(SCHEDULE, schedule) X(CONTEXT, context) X(HEADS, heads) X(TENSOR, tensor) \
    X(PLACEMENT, placement) X(TRAVEL, travel) X(PARTITION, partition) X(SHARES, shares) \
    X(FFN_CHUNKS, ffn_chunks) X(RECOMPUTE, recompute) X(OFFLOAD, offload) X(HEAD_CHUNKS, head_chunks) \
    X(TOKEN_CHUNKS, token_chunks) X(FETCH, fetch) X(LOSS_TILE, loss_tile) X(WEIGHTS, weights) \
    X(OVERLAP, overlap) X(GRADIENTS, gradients) X(UPDATE, update) X(RANGES, ranges)
enum {
#define X(id, name) SETTING_##id,
    SETTINGS(X)
#undef X
    SETTING_COUNT
};

/* A Setting of Layout that may be given where it has nothing to act on: why, with what to do; NULL: it
 * acts. */
typedef struct IdleSetting {
    size_t at;
    const char *(*why)(Arena *a, const Program *p, const Choice *c);
} IdleSetting;
extern const char idle_on_one_rank[];

typedef struct SettingRecord {
    const SettingForm *form; /* its name is also that of its column in --explain */
    size_t span;             /* where it is written, in Layout; 0: in the Setting of its form */
    int column;        /* that column's width; 0: none */
    bool if_several;   /* a column only where several values are tried */
    bool escalates;    /* memory escalation: of its values the first that fits, else all are tried */
    bool takes_host;   /* what its values spare the device, the host holds */
    /* and what fits with it alone, before the other settings of that kind, is another candidate */
    bool escalates_first;
    bool spares;       /* memory: `burstc fit` has a row for each value, a refusal says where it would fit */
    /* Of a setting that escalates: the number of the first value of a second ladder, whose first that fits
     * is another candidate. 0, or NULL: there is one ladder. */
    int (*second_ladder)(const Program *p);
    /* its last needs less than the last of the first ladder, and is tried where that does not fit */
    bool second_needs_less;
    int (*count)(const Program *p); /* of values; NULL: it follows from others */
    /* Decides for the n-th value, given those of the settings before; false: it is not to be tried, as the
     * layout has another, or could make no difference. */
    bool (*take)(const Program *p, Choice *c, int n);
    /* The n-th value that could stand here, whatever the layout has; false: there are not so many that
     * could make a difference. NULL: other settings follow from this one. */
    bool (*other)(const Program *p, Choice *c, int n);
    bool (*fits_each)(const Program *p); /* whether `burstc fit` has these rows; NULL: where it is `auto` */
    bool (*leave_open)(Layout *l); /* see setting_leave_open; NULL: it is one Setting */
    /* once all are decided; NULL: it works */
    const char *(*why_not)(Arena *a, const Program *p, const Choice *c);
    const char *(*text)(Arena *a, const Choice *c); /* as the layout has it; NULL: it means nothing here */
    IdleSetting idle[3]; /* ends with one without `why` */
} SettingRecord;
#define X(id, name) extern const SettingRecord setting_##name;
SETTINGS(X)
#undef X

/* ---- table.c ---- */
extern const SettingRecord *const settings[SETTING_COUNT];
bool setting_leave_open(int i, Layout *l); /* leaves it to the search; false: it was already */
bool setting_fits_each(int i, const Program *p); /* whether `burstc fit` has a row for each of its values */
Span setting_span(int i, const Layout *l); /* src NULL: the layout does not write it */
const char *choice_why_not(Arena *a, const Program *p, const Choice *c);
int choice_refused_by(Arena *a, const Program *p, const Choice *c); /* SETTING_COUNT: by none */
/* "layout { data 1; context 4; ... }", as a model may have it */
const char *choice_text(Arena *a, const Choice *c);

/* ---- layers.c: what differs between layers ---- */
/* "near for window(4096), ring" */
const char *by_mask_text(Arena *a, const Choice *c, const char *(*text)(Arena *a, const Choice *c));
/* Why the layers of a mask can't have what they have, beside those of the first; of any mask. NULL: they
 * can. */
const char *mask_why_not(Arena *a, const Program *p, const Choice *c, int mask);
const char *layers_why_not(Arena *a, const Program *p, const Choice *c);

/* ---- idle.c: a warning for each setting that is given and has nothing to act on ---- */
void layout_warn_idle(Diags *d, const Program *p, const Choice *c);

/* ---- settings/: what others ask of one ---- */
int choice_heads(const Choice *c); /* ranks that share the heads, also where one direction alone exchanges */
const char *schedule_text(Arena *a, const Choice *c); /* "ring", "near for local, ring" */
const char *partition_text(Arena *a, PartitionKind kind, int64_t block); /* "blocks(4Ki)" */
/* the same in that partition, with its block as the layout has it or the usual one */
Choice choice_in(const Program *p, const Choice *c, PartitionKind kind);
Choice choice_on(const Program *p, const Choice *c); /* the same for a sequence of another length */
bool ffn_chunks_open(const Program *p);
int chunk_doublings(const Program *p, int most); /* how many of 1, 2, 4, ... most chunks are not too small */
/* why attention can't go through chunks of queries, or of heads, with what layers save; NULL: it can */
const char *saving_why_no_chunks(const Choice *c, bool heads);
const char *saving_fewer(void); /* advice: "save fewer values with ..." */

#endif
