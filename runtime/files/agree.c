/* agree.c: what all ranks find out about files together. */
#include "files/files.h"

#include "core/context.h"

int await_files(BurstCtx *c, double *values, int count)
{
    c->patient = true;
    const int status = burst_allreduce(c, (BurstGroup){0, 1, c->world}, values, count);
    c->patient = false;
    return status;
}

int all_agree(BurstCtx *c, int status)
{
    double failed = status != BURST_OK;
    BURST_TRY(await_files(c, &failed, 1));
    if (status != BURST_OK || failed == 0)
        return status;
    c->others_failed = true;
    return burst_fail(c, BURST_E_IO, "another rank failed");
}
