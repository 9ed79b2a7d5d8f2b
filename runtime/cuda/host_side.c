/* host_side.c: the CUDA runtime's view of the context: place on the host, broadcast, watch over device waits. */
#include "host_side.h"
#include "internal.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

enum { WORD = 4, LINE = 256, NAP_US = 1000 };

/* Each word is a whole number below 2^32, exact in a double; all ranks but the first add zeros. */
int host_broadcast(BurstCtx *c, void *bytes, int count)
{
    double values[REDUCE_MAX] = {0};
    char *at = bytes;
    for (int i = 0; i < count / WORD && c->rank == 0; i++) {
        uint32_t word;
        memcpy(&word, at + i * WORD, WORD);
        values[i] = word;
    }
    BURST_TRY(burst_allreduce(c, (BurstGroup){0, 1, c->world}, values, count / WORD));
    for (int i = 0; i < count / WORD; i++) {
        uint32_t word = (uint32_t)values[i];
        memcpy(at + i * WORD, &word, WORD);
    }
    return BURST_OK;
}

int host_local(const BurstCtx *c)
{
    return c->local;
}

int host_locals(const BurstCtx *c)
{
    return c->region->locals;
}

/* The rank of this host in the earliest step: who waits for a device waits, in the end, for such a one. */
static void describe_last(const BurstCtx *c, char *text, size_t size)
{
    int last = c->rank;
    for (int rank = 0; rank < c->world; rank++) {
        int local = c->local_of[rank];
        if (local >= 0 && atomic_load(&region_slot(c->region, local)->step) <
                              atomic_load(&region_slot(c->region, c->local_of[last])->step))
            last = rank;
    }
    describe_rank(c->region, last, c->local_of[last], text, size);
}

int host_vigil(BurstCtx *c, HostVigil *v, const char *what)
{
    Vigil vigil = {.begin = v->begin, .checked = v->checked};
    int status = vigil_look(c, &vigil);
    *v = (HostVigil){vigil.begin, vigil.checked};
    BURST_TRY(status);
    double waited = burst_seconds() - v->begin;
    if (waited <= c->timeout)
        return BURST_OK;
    char who[LINE];
    describe_last(c, who, sizeof who);
    return burst_fail(c, BURST_E_PEER, "stuck for %.3g s (--timeout sets the limit), waiting for the device: %s; furthest behind on this host: %s",
                      waited, what, who);
}

bool host_failure_known(BurstCtx *c, double seconds)
{
    double end = burst_seconds() + seconds;
    while (atomic_load(&region_head(c->region)->state) == RUNNING && burst_seconds() < end)
        host_nap(NAP_US);
    c->echo = atomic_load(&region_head(c->region)->state) != RUNNING;
    return c->echo;
}

void host_nap(long microseconds)
{
    nanosleep(&(struct timespec){.tv_nsec = microseconds * 1000}, NULL);
}
