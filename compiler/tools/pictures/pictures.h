/* pictures.h: what burstc knows as SVG, for --emit=FORM -o FILE.svg and for the page of `burstc explore`. */
#ifndef BURST_PICTURES_H
#define BURST_PICTURES_H

#include "tools/tools.h"

/* ---- svg.c: coordinates are pixels of a panel ---- */
typedef struct Panel { const char *title; Text body; double width, height; } Panel;
Panel *panel_new(Arena *a, const char *title, double width, double height);
void svg_escape(const char *text, Text *out); /* markup escaped; what is no printable character as <XX> */
/* at most so many bytes, and what is left out said */
const char *svg_short(Arena *a, const char *text, int most);
void svg_text(Panel *p, double x, double y, const char *class, const char *fmt, ...) PRINTF_LIKE(5, 6);
/* title: may be NULL */
void svg_rect(Panel *p, double x, double y, double w, double h, const char *class, const char *title);
/* A framed grid in shades of a family of colours: share[row * columns + column] from 0, not drawn, to 1. */
enum { SVG_LEVELS = 5, SVG_CELLS = 64 }; /* shades; cells a side that stay readable */
typedef struct Grid { double x, y, w, h; int rows, columns; const double *share; const char *family; } Grid;
void svg_grid(Panel *p, Arena *a, Grid g);
int svg_level(double share); /* 0 .. SVG_LEVELS, the first and the last for none and all alone */
typedef struct Key { const char *class, *text; } Key;
void svg_keys(Panel *p, double x, double y, double step, const Key *key, int n);
/* An axis from 0 to most. ROWS: every per_row-th of number[], as far as there is room. */
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
/* Both take the panels' text with them. file: as a document of its own, panels below each other. */
void svg_inline(Panel *p, Text *out);
void svg_file(const char *title, Panel *const *panel, int n, Text *out);

/* ---- picture_*.c ---- */
Panel *picture_mask(Arena *a, const Program *p, int mask, MaskMap *m);
Panel *picture_partition(Arena *a, const Partition *p);
/* counts: by mask */
Panel *picture_balance(Arena *a, const Program *p, const Partition *part, PairCounts **counts);
/* One attention under a mask: its loads, and where it is simulated its times. */
typedef struct Attended {
    const Draft *draft;
    const Schedule *schedule;
    int mask;
    AttentionInput in;
    AttentionTime time;
} Attended;
Attended attended(Arena *a, const Draft *d, int mask, bool backward, bool simulate);
const char *attended_title(Arena *a, const Attended *t, const char *what); /* what: of the picture */
Panel *picture_work(Arena *a, const Attended *t);
Panel *picture_timeline(Arena *a, const Attended *t);
Panel *picture_step(Arena *a, const Cost *c);
Panel *picture_memory(Arena *a, const Space *s);  /* of a space with a flow: live bytes over the step */
Panel *picture_alive(Arena *a, const Flow *f);    /* at the peak */
Panel *picture_others(Arena *a, const Draft *d, const Cost *c);

/* ---- picture_forms.c: whole files ---- */
typedef void DrawForm(Arena *a, const Found *f, Text *out);
DrawForm draw_masks, draw_partition, draw_schedule, draw_cost, draw_memory;

/* ---- explore.c: p: as the front end has it; f->plan NULL: without a cluster ---- */
void explore_page(Arena *a, Diags *d, const Program *p, const Found *f, Text *out);

#endif
