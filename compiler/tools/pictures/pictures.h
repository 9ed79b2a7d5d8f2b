/* pictures.h: burstc's results as SVG, for --emit=FORM -o FILE.svg and the page of `burstc explore`. */
#ifndef BURST_PICTURES_H
#define BURST_PICTURES_H

#include "tools/tools.h"

/* ---- svg.c: coordinates are pixels of a panel ---- */
typedef struct Panel { const char *title; Text body; double width, height; } Panel;
Panel *panel_new(Arena *a, const char *title, double width, double height);
void svg_escape(const char *text, Text *out); /* escapes markup; unprintable bytes become <XX> */
/* at most so many bytes; says if something is left out */
const char *svg_short(Arena *a, const char *text, int most);
void svg_text(Panel *p, double x, double y, const char *class, const char *fmt, ...) PRINTF_LIKE(5, 6);
/* title: may be NULL */
void svg_rect(Panel *p, double x, double y, double w, double h, const char *class, const char *title);
/* A framed grid in shades of a family of colours: share[row * columns + column] from 0, not drawn, to 1. */
enum { SVG_LEVELS = 5, SVG_CELLS = 64 }; /* shades; cells a side that stay readable */
typedef struct Grid { double x, y, w, h; int rows, columns; const double *share; const char *family; } Grid;
void svg_grid(Panel *p, Arena *a, Grid g);
int svg_level(double share); /* 0 .. SVG_LEVELS; 0 only for a share of 0, SVG_LEVELS only for 1 */
typedef struct Key { const char *class, *text; } Key;
void svg_keys(Panel *p, double x, double y, double step, const Key *key, int n);
/* An axis from 0 to most. ROWS: labels every per_row-th number[], as far as there is room. */
typedef enum AxisUnit { AXIS_TOKENS, AXIS_COUNT, AXIS_DECIMAL, AXIS_ROWS } AxisUnit;
typedef struct Axis {
    double x, y, length;
    bool down;
    double most;
    AxisUnit unit;
    const char *what;
    const int *number;
    int per_row;
    bool up; /* from bottom to top */
} Axis;
void svg_axis(Panel *p, Arena *a, Axis x);
const char *tokens_text(Arena *a, int64_t tokens); /* "64Ki" */
extern const char svg_style[];
/* Both move the panels' text to out. file: a document of its own, with panels below each other. */
void svg_inline(Panel *p, Text *out);
void svg_file(const char *title, Panel *const *panel, int n, Text *out);

/* ---- picture_*.c ---- */
Panel *picture_mask(Arena *a, const Program *p, int mask, MaskMap *m);
Panel *picture_partition(Arena *a, const Partition *p);
/* counts: [mask] */
Panel *picture_balance(Arena *a, const Program *p, const Partition *part, PairCounts **counts);
/* One attention under a mask: its loads and, if simulated, its times. */
typedef struct Attended {
    const Draft *draft;
    const Schedule *schedule;
    int mask;
    AttentionInput in;
    AttentionTime time;
} Attended;
Attended attended(Arena *a, const Draft *d, int mask, bool backward, bool simulate);
const char *attended_title(Arena *a, const Attended *t, const char *what); /* what: the picture's subject */
Panel *picture_work(Arena *a, const Attended *t);
Panel *picture_timeline(Arena *a, const Attended *t);
Panel *picture_step(Arena *a, const Cost *c);
Panel *picture_memory(Arena *a, const Space *s);  /* live bytes over the step, of a space with a flow */
Panel *picture_alive(Arena *a, const Flow *f);    /* at the peak */
Panel *picture_others(Arena *a, const Draft *d, const Cost *c);

/* ---- picture_forms.c: whole files ---- */
typedef void DrawForm(Arena *a, const Found *f, Text *out);
DrawForm draw_masks, draw_partition, draw_schedule, draw_cost, draw_memory;

/* ---- explore.c: p: from the front end; f->plan NULL: without a cluster ---- */
void explore_page(Arena *a, Diags *d, const Program *p, const Found *f, Text *out);

#endif
