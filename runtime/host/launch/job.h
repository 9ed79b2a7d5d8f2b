/* job.h: a job on all of its ranks, however they are started. */
#ifndef BURST_HOST_LAUNCH_JOB_H
#define BURST_HOST_LAUNCH_JOB_H

#include "host/net/messages.h"

struct Identity;
typedef struct Job {
    const BurstPlan *plan;
    const BurstTrain *train;
    double timeout;
    int (*body)(BurstCtx *c, const BurstPlan *p, void *arg);
    void *arg;
    /* what else must be equal on all ranks (identity.h); NULL: nothing */
    void (*identify)(struct Identity *id, const void *arg);
    const struct Place *place; /* set by job_run */
} Job;
/* Runs the job on all ranks: the exit code. */
int job_run(const Job *job);
/* Runs the body as one rank of a region; returns a status. *first: this failure is the host's first, and
 * its text stands in the region's head. */
int rank_run(const Job *job, Region *r, int rank, const int *local_of, const Remote *remote, bool *first);
/* 0, 1, 2 or 3 for a status. */
int exit_code(int status);
/* Of what another process sent: whether it is BURST_OK or an error. */
static inline bool is_status(int64_t status) { return status <= BURST_OK && status >= BURST_E_DEVICE; }
int mpi_job_run(const Job *job);
int rendezvous_job_run(const Job *job); /* started by torchrun or srun */

#endif
