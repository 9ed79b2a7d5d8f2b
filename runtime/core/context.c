/* context.c: one rank's context: errors, its arena, and what it shows of itself to the others. */
#include "core/context.h"

#include "core/region.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

int host_cores(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

int host_threads(const BurstCtx *c)
{
    const int share = host_cores() / c->region->locals;
    return share > 1 ? share : 1;
}

int burst_rank(const BurstCtx *c)
{
    return c->rank;
}

int burst_world(const BurstCtx *c)
{
    return c->world;
}

bool burst_evaluates_alone(const BurstCtx *c) { return c->plan->evaluates_alone; }

void *burst_take(BurstCtx *c, size_t bytes)
{
    size_t rounded = (bytes + 63) / 64 * 64;
    if (rounded < bytes || rounded > c->plan->arena_bytes - c->used) {
        burst_fail(c, BURST_E_MEMORY,
                   "the plan reserved %zu bytes for buffers, but %zu more were requested after the first %zu",
                   c->plan->arena_bytes, bytes, c->used);
        return NULL;
    }
    void *at = c->arena + c->used;
    c->used += rounded;
    return at;
}

size_t burst_arena_used(const BurstCtx *c)
{
    return c->used;
}

/* Copied, not pointed at: under mpirun the text lies elsewhere in the reader's memory. A reader may see
 * half of the next text; it is only shown. */
void burst_doing(BurstCtx *c, const char *operation)
{
    size_t n = strnlen(operation, DOING_TEXT - 1);
    memcpy(c->slot->doing, operation, n);
    c->slot->doing[n] = 0;
}

double burst_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double awake_seconds(void)
{
    static const double look_most = 0.25;
    static _Thread_local double last, awake = 1; /* 0 is none */
    const double now = burst_seconds(), gap = last > 0 ? now - last : 0;
    last = now;
    return awake += gap < look_most ? gap : look_most;
}

void describe_rank(const Region *r, int rank, int local, char *text, size_t size)
{
    if (local < 0) {
        snprintf(text, size, "rank %d (on another host)", rank);
        return;
    }
    const Slot *s = region_slot(r, local);
    snprintf(text, size, "rank %d, step %lld (%.*s)", rank, (long long)atomic_load(&s->step), DOING_TEXT - 1,
             s->doing);
}

bool parse_seconds(const char *text, double *seconds)
{
    char *end;
    errno = 0;
    double value = strtod(text, &end);
    if (end == text || *end || errno || !(value > 0))
        return false;
    *seconds = value;
    return true;
}

double default_timeout(void)
{
    const char *text = getenv("BURST_TIMEOUT");
    double seconds = 300;
    if (text && !parse_seconds(text, &seconds))
        say_line("BURST_TIMEOUT is '%s', expected a number of seconds; using %.0f", text, seconds);
    return seconds;
}
