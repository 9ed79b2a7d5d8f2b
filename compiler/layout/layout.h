/* layout/layout.h: the settings of a layout, a record each. */
#ifndef BURST_LAYOUT_LAYOUT_H
#define BURST_LAYOUT_LAYOUT_H

#include "cost/cost.h"

#include <stddef.h>

/* The search chooses settings in this order, so a setting's values may depend on those before it. Columns of
 * --explain, notes of refusals and printed layouts have the same order.
 * id, settings/<name>.c */
#define SETTINGS(X) \
    X(DATA, data) \
    X(SCHEDULE, schedule) \
    X(CONTEXT, context) \
    X(HEADS, heads) X(TENSOR, tensor) X(PLACEMENT, placement) X(TRAVEL, travel) X(PARTITION, partition) \
        X(SHARES, shares) X(EXPERTS, experts) X(FFN_CHUNKS, ffn_chunks) X(RECOMPUTE, recompute) \
            X(OFFLOAD, offload) X(HEAD_CHUNKS, head_chunks) X(TOKEN_CHUNKS, token_chunks) X(FETCH, fetch) \
                X(LOSS_TILE, loss_tile) X(WEIGHTS, weights) X(OVERLAP, overlap) X(GRADIENTS, gradients) \
                    X(UPDATE, update) X(RANGES, ranges)
enum {
#define X(id, name) SETTING_##id,
    SETTINGS(X)
#undef X
    SETTING_COUNT
};

/* A Setting in Layout that may be given without effect: the reason and advice; NULL: it has an effect. */
typedef struct IdleSetting {
    size_t at;
    const char *(*why)(Arena *a, const Program *p, const Choice *c);
} IdleSetting;
extern const char idle_on_one_rank[];

typedef struct SettingRecord {
    const SettingForm *form; /* its name is the column's in --explain */
    size_t span;             /* offset in Layout of the span; 0: in the form's Setting */
    int column;        /* the column's width; 0: none */
    bool if_several;   /* a column only if several values are tried */
    bool escalates;    /* memory escalation: the first value that fits is taken; else all are tried */
    bool takes_host;   /* what its values save on the device, the host holds */
    /* what fits with this setting alone, before the other escalating settings, is another candidate */
    bool escalates_first;
    /* saves memory: `burstc fit` has a row for each value, and a refusal says which would fit */
    bool spares;
    bool trains; /* has only one value in a program that infers: it is of backward, or of the optimizer */
    /* For a setting that escalates: index of the first value of a second ladder, whose first value that fits
     * is another candidate. 0, or NULL: there is one ladder. */
    int (*second_ladder)(const Program *p);
    /* the second ladder's last value needs less than the first's, and is tried if that does not fit */
    bool second_needs_less;
    int (*count)(const Program *p); /* number of values; NULL: other settings determine it */
    /* Sets the n-th value, given the settings before. Returns false if it is not to be tried: the layout
     * says otherwise, or it would make no difference. */
    bool (*take)(const Program *p, Choice *c, int n);
    /* Sets the n-th possible value, whatever the layout says. Returns false if there are no more that could
     * make a difference. NULL: other settings follow from this one. */
    bool (*other)(const Program *p, Choice *c, int n);
    bool (*fits_each)(const Program *p); /* whether `burstc fit` has these rows; NULL: if it is `auto` */
    bool (*leave_open)(Layout *l); /* see setting_leave_open; NULL: it is one Setting, or cannot be */
    /* checked once all settings are chosen; NULL: it works */
    const char *(*why_not)(Arena *a, const Program *p, const Choice *c);
    /* as the layout writes it; NULL: it has no meaning here */
    const char *(*text)(Arena *a, const Choice *c);
    IdleSetting idle[3]; /* ends with an entry without `why` */
} SettingRecord;
#define X(id, name) extern const SettingRecord setting_##name;
SETTINGS(X)
#undef X

/* ---- table.c ---- */
extern const SettingRecord *const settings[SETTING_COUNT];
/* Leaves it to the search; false: it was already open, or cannot be. */
bool setting_leave_open(int i, Layout *l);
bool setting_fits_each(int i, const Program *p); /* whether `burstc fit` has a row for each of its values */
Span setting_span(int i, const Layout *l); /* src NULL: the layout does not have it */
const char *choice_why_not(Arena *a, const Program *p, const Choice *c);
/* index of the setting that refuses the choice; SETTING_COUNT: none */
int choice_refused_by(Arena *a, const Program *p, const Choice *c);
/* "layout { data 1; context 4; ... }", valid in a model */
const char *choice_text(Arena *a, const Choice *c);

/* ---- layers.c: differences between layers ---- */
/* "near for window(4096), ring" */
const char *by_mask_text(Arena *a, const Choice *c, const char *(*text)(Arena *a, const Choice *c));
/* Why the layers of a mask, or of any mask, cannot have their schedule in addition to the first mask's;
 * NULL: they can. */
const char *mask_why_not(Arena *a, const Program *p, const Choice *c, int mask);
const char *layers_why_not(Arena *a, const Program *p, const Choice *c);

/* ---- idle.c: warnings for settings without effect ---- */
void layout_warn_idle(Diags *d, const Program *p, const Choice *c);

/* ---- settings/: functions that others use ---- */
int choice_heads(const Choice *c); /* ranks that share the heads, also if only one direction exchanges */
const char *schedule_text(Arena *a, const Choice *c); /* "ring", "near for local, ring" */
const char *partition_text(Arena *a, PartitionKind kind, int64_t block); /* "blocks(4Ki)" */
/* the choice with that partition, and the layout's block or the default */
Choice choice_in(const Program *p, const Choice *c, PartitionKind kind);
Choice choice_on(const Program *p, const Choice *c); /* the choice for a sequence of another length */
bool ffn_chunks_open(const Program *p);
int chunk_doublings(const Program *p, int most); /* how many of 1, 2, 4, ... most chunks are large enough */
/* why the saved values rule out chunks of queries, or of heads; NULL: they do not */
const char *saving_why_no_chunks(const Choice *c, bool heads);
const char *saving_fewer(void); /* advice: "save fewer values with ..." */

#endif
