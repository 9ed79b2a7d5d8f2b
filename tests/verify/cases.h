/* cases.h: schedules of the tests: a text, a shape, a direction. */
#ifndef CASES_H
#define CASES_H

#include "burst.h"

typedef struct Shape { int nodes, lanes; } Shape; /* a schedule of one coordinate takes nodes * lanes ranks */
enum { PHASES = 3 };                              /* forward, backward keys, backward queries */
const SchedText *schedule_file(Arena *a, const char *path); /* NULL after errors, which are printed */
const SchedText *stock_schedule(Arena *a, const char *name);
bool has_phase(const SchedText *t, int phase);
const char *phase_name(int phase);
/* Planned, with slots; NULL after an error. The choice lives in the arena. */
Schedule *plan_phase(Arena *a, Diags *d, const SchedText *t, Shape shape, int phase);
/* What diags_print writes. */
const char *printed(Arena *a, Diags *d);
/* The line that the first error names, 0 where it names none. */
int error_line(const char *printed);

typedef struct Random { uint64_t state; } Random;
uint32_t random_below(Random *r, uint32_t n);

#endif
