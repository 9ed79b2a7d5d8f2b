/* cases.h: schedules of the tests: a text, a shape, a direction. */
#ifndef CASES_H
#define CASES_H

#include "attention/attention.h"

/* Sizes of coordinates, from the outermost; 0: no more. A schedule of fewer has the outermost of them as
 * one, of more 1 before them. */
enum { MOST_SIZES = 4 };
typedef struct RankShape {
    int size0, size1, size2, size3;
} RankShape;
int shape_sizes(RankShape shape, int size[MOST_SIZES]); /* how many there are */
enum { PHASES = 3 };                              /* forward, backward keys, backward queries */
const SchedText *schedule_file(Arena *a, const char *path); /* NULL after errors, which are printed */
const SchedText *stock_schedule(Arena *a, const char *name);
const SchedText *case_schedule(Arena *a, const char *name); /* of this folder, or a shipped one */
/* Every shipped schedule that `checked`, [count], does not name, on shapes for as many coordinates as it has:
 * a new one is in the tests without a line of theirs. */
typedef void CheckSchedule(const char *name, const RankShape *shapes, int count);
void each_shipped(const char *const *checked, int count, CheckSchedule *check);
bool has_phase(const SchedText *t, int phase);
const char *phase_name(int phase);
/* Planned, with slots; NULL after an error. The choice lives in the arena. */
Schedule *plan_phase(Arena *a, Diags *d, const SchedText *t, RankShape shape, int phase);
/* What diags_print writes. */
const char *printed(Arena *a, Diags *d);
/* The line that the first error names, 0 where it names none. */
int error_line(const char *printed);

typedef struct Random { uint64_t state; } Random;
uint32_t random_below(Random *r, uint32_t n);

#endif
