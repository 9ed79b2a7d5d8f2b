/* rank.c: one rank of a job: its context from begin to end, and what its status is outside. */
#include "core/weights.h"
#include "data/data.h"
#include "host/launch/job.h"
#include "host/launch/place.h"
#include "optimizer/muon.h"

#include <stdio.h>
#include <unistd.h>

enum { WHO = 256, SPINS = 2000 /* some 20 us: shorter than a futex's way through the kernel and back */ };

static int context_open(BurstCtx *c, const Job *job, Region *r, int rank, const int *local_of,
                        const Remote *remote)
{
    *c = (BurstCtx){.plan = job->plan,
                    .train = job->train,
                    .rank = rank,
                    .world = job->plan->world,
                    .local = local_of[rank],
                    .local_of = local_of,
                    .region = r,
                    .timeout = job->timeout,
                    .remote = remote,
                    .unwatched = remote != NULL,
                    .local_rank = job->place ? job->place->local : -1};
    c->slot = region_slot(r, c->local);
    c->arena = region_arena(r, c->local);
    /* with fewer cores than ranks, spinning delays who is waited for */
    c->spins = r->locals <= host_cores() ? SPINS : 0;
    atomic_store(&c->slot->pid, getpid());
    burst_doing(c, "starting");
    return messages_open(c);
}

static void context_close(BurstCtx *c)
{
    data_close(c);
    pool_close(c);
    weights_close(c);
    muon_close(c);
    messages_close(c);
    spans_free(c->spans);
}

static bool report(const BurstCtx *c, int status)
{
    char who[WHO], text[ERROR_TEXT + WHO + 4];
    describe_rank(c->region, c->rank, c->local, who, sizeof who);
    snprintf(text, sizeof text, "%s: %s", who, c->error);
    /* not of this rank or step */
    bool bare = c->relayed || status == BURST_E_USAGE || status == BURST_E_DEVICE;
    return region_fail(c->region, status, bare ? c->error : text);
}

int rank_run(const Job *job, Region *r, int rank, const int *local_of, const Remote *remote, bool *first)
{
    BurstCtx c;
    int status = context_open(&c, job, r, rank, local_of, remote);
    if (status == BURST_OK)
        status = job->body(&c, job->plan, job->arg);
    if (status != BURST_OK && c.others_failed)
        (void)burst_barrier(&c, (BurstGroup){0, 1, c.world}); /* until whoever failed has said so */
    if (status == BURST_OK)
        status = messages_drain(&c);
    if (status == BURST_OK && remote && remote->finish)
        status = remote->finish(&c);
    *first = status != BURST_OK && !c.echo && report(&c, status);
    if (status == BURST_OK) {
        atomic_store(&c.slot->ended, 1);
        for (int i = 0; i < r->locals; i++)
            slot_ring(region_slot(r, i));
    }
    context_close(&c);
    return status;
}

int exit_code(int status)
{
    switch (status) {
    case BURST_OK: return 0;
    case BURST_E_USAGE: return 2;
    case BURST_E_DEVICE: return 3;
    default: return 1;
    }
}
