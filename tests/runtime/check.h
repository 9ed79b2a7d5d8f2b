/* check.h: checks inside a rank's body (a process of its own, where cmocka's asserts do not reach), and
 * what the tests need to look at jobs from outside. */
#ifndef CHECK_H
#define CHECK_H

#include "burst_rt.h"

/* In a body: fails the rank with the place. */
#define CHECK(c, condition)                                                                       \
    do {                                                                                          \
        if (!(condition))                                                                         \
            return burst_fail(c, BURST_E_PLAN, "%s:%d: not so: %s", __FILE__, __LINE__, #condition); \
    } while (0)

typedef int (*Body)(BurstCtx *c, const BurstPlan *p, void *arg);

typedef struct Outcome {
    int code;
    double seconds;
    char text[8192]; /* what was written on stderr (jobs), or on both (programs) */
} Outcome;

/* A plan of `world` ranks in one data group that only has an arena. */
BurstPlan bare_plan(int world, size_t arena_bytes);
/* Runs body on all ranks of the plan, with stderr caught. */
Outcome run_job(const BurstPlan *p, const char *timeout, Body body, void *arg);
/* Runs a shell command; exit code as the shell's. */
Outcome run_command(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The wall-clock limit for something that takes less than this many seconds on an idle machine. It grows
 * with the load: four times the number of processes that want each processor. timeouts.py and check.sh
 * have the same. */
double scaled_timeout(double seconds);
/* Zeroed memory that the ranks share with the test. */
void *shared_memory(size_t bytes);
/* A new empty directory below the build folder's temporary place; the caller removes it with
 * remove_directory. */
char *temporary_directory(void);
void remove_directory(char *path);

/* The same numbers on every rank. */
typedef struct Random { uint64_t state; } Random;
uint64_t random_next(Random *r);
int random_below(Random *r, int bound);
float random_float(Random *r); /* in [-1, 1) */
#endif
