/* layout/layout.h: the settings of a layout: values to try, why one does not work, how it is written. */
#ifndef BURST_LAYOUT_LAYOUT_H
#define BURST_LAYOUT_LAYOUT_H

#include "cost/cost.h"

int choice_heads(const Choice *c); /* ranks that share the heads, also where one direction alone exchanges */

/* ---- layout/table.c: what a layout decides, a row each ---- */
enum { DIMENSIONS = 21 };
typedef struct Dimension {
    const char *name;  /* as in the layout, and of its column in --explain */
    int column;        /* that column's width; 0: none */
    bool if_several;   /* a column only where several values are tried */
    bool by_need;      /* of its values the first that fits into memory, else all are tried */
    bool takes_host;   /* what its values spare the device, the host holds */
    /* and what fits with it alone, before the other rows of that kind, is another candidate */
    bool need_first;
    /* Of a row by need: the number of the first value of another way to need less, whose first that fits
     * is another candidate; values before it are one way, those from it on the other. 0, or NULL: there is
     * one way. */
    int (*other_way)(const Program *p);
    /* its last needs less than the last of the first way, and is tried where that does not fit */
    bool other_needs_less;
    int (*count)(const Program *p); /* of values; NULL: it follows from others */
    /* Decides for the n-th value, given those of the rows before; false: it is not to be tried, as the
     * layout has another, or could make no difference. */
    bool (*take)(const Program *p, Choice *c, int n);
    /* The n-th value that could stand here, whatever the layout has; false: there are not so many that
     * could make a difference. NULL: other rows follow from this one. */
    bool (*other)(const Program *p, Choice *c, int n);
    bool (*fits_each)(const Program *p); /* whether `burstc fit` has a row for each of these; NULL: none */
    /* once all are decided; NULL: it works */
    const char *(*why_not)(Arena *a, const Program *p, const Choice *c);
    const char *(*text)(Arena *a, const Choice *c); /* as the layout has it; NULL: it means nothing here */
} Dimension;
extern const Dimension dimensions[DIMENSIONS]; /* data first */
const char *choice_why_not(Arena *a, const Program *p, const Choice *c);
Choice choice_on(const Program *p, const Choice *c); /* the same for a sequence of another length */
/* The values of the row `weights`, as count and take. */
int sharding_count(const Program *p);
bool sharding_take(const Program *p, Choice *c, int n);
const char *partition_text(Arena *a, PartitionKind kind, int64_t block); /* "blocks(4Ki)" */
/* "layout { data 1; context 4; ... }", as a model may have it */
const char *choice_text(Arena *a, const Choice *c);

/* ---- layout/layers.c: what differs between layers ---- */
int travel_count(const Program *p); /* the row `travel`, its functions as in Dimension */
bool travel_take(const Program *p, Choice *c, int n);
bool travel_other(const Program *p, Choice *c, int n);
const char *travel_why_not(Arena *a, const Program *p, const Choice *c);
const char *travel_text(Arena *a, const Choice *c);
/* "near for window(4096), ring" */
const char *by_mask_text(Arena *a, const Choice *c, const char *(*text)(Arena *a, const Choice *c));
/* Why the layers of a mask can't have what they have, beside those of the first; of any mask. NULL: they
 * can. */
const char *mask_why_not(Arena *a, const Program *p, const Choice *c, int mask);
const char *layers_why_not(Arena *a, const Program *p, const Choice *c);

/* ---- layout/recompute.c: the row of what layers save, its functions as in Dimension ---- */
/* why attention can't go through chunks of queries, or of heads; NULL: it can */
const char *saving_why_no_chunks(const Choice *c, bool heads);
const char *saving_fewer(void);                                /* advice: "save fewer values with ..." */
int saving_other_way(const Program *p);
int saving_count(const Program *p);
bool saving_take(const Program *p, Choice *c, int n);
bool saving_other(const Program *p, Choice *c, int n);
const char *saving_why_not(Arena *a, const Program *p, const Choice *c);
const char *saving_choice_text(Arena *a, const Choice *c);

/* ---- layout/chunks.c: the rows `ffn chunks`, `token chunks`, `fetch` and `loss tile`, their
 * functions as in Dimension ---- */
bool ffn_chunks_open(const Program *p);
int ffn_chunks_count(const Program *p);
bool ffn_chunks_take(const Program *p, Choice *c, int n);
bool ffn_chunks_other(const Program *p, Choice *c, int n);
const char *ffn_chunks_text(Arena *a, const Choice *c);
bool token_chunks_open(const Program *p);
int token_chunks_count(const Program *p);
bool token_chunks_take(const Program *p, Choice *c, int n);
int token_chunks_other_way(const Program *p);
const char *token_chunks_why_not(Arena *a, const Program *p, const Choice *c);
bool token_chunks_other(const Program *p, Choice *c, int n);
const char *token_chunks_text(Arena *a, const Choice *c);
int fetch_count(const Program *p); /* the row `fetch` */
bool fetch_take(const Program *p, Choice *c, int n);
bool fetch_open(const Program *p);
bool fetch_other(const Program *p, Choice *c, int n);
const char *fetch_why_not(Arena *a, const Program *p, const Choice *c);
const char *fetch_text(Arena *a, const Choice *c);
bool loss_tile_open(const Program *p);
int loss_tile_count(const Program *p);
bool loss_tile_take(const Program *p, Choice *c, int n);
bool loss_tile_other(const Program *p, Choice *c, int n);
const char *loss_tile_text(Arena *a, const Choice *c);

/* ---- layout/heads.c: the row `head chunks`, its functions as in Dimension ---- */
bool head_chunks_open(const Program *p);
int head_chunks_count(const Program *p);
bool head_chunks_take(const Program *p, Choice *c, int n);
bool head_chunks_other(const Program *p, Choice *c, int n);
const char *head_chunks_why_not(Arena *a, const Program *p, const Choice *c);
const char *head_chunks_text(Arena *a, const Choice *c);

/* ---- search/tensor.c ---- */
/* layout/idle.c: of settings that have nothing to act on */
void layout_warn_idle(Diags *d, const Program *p, const Choice *c);
bool travel_is_idle(const Choice *c); /* one backward serves both */

/* ---- search/alternatives.c: other choices than the search's, compiled ---- */
const char *schedule_text(Arena *a, const Choice *c); /* "ring", "near for local, ring" */

#endif
