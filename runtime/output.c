/* output.c: see output.h. */
#include "output.h"

#include <errno.h>
#include <string.h>

int output_begin(BurstCtx *c, const char *path, OutputFile *o)
{
    if (output_open(o, path) == 0)
        return BURST_OK;
    return burst_fail(c, BURST_E_IO, "cannot write %s: %s", path, strerror(errno));
}

int output_keep(BurstCtx *c, const char *path, OutputFile *o)
{
    if (output_close(o, true) == 0)
        return BURST_OK;
    return burst_fail(c, BURST_E_IO, "cannot write %s: %s", path, strerror(errno));
}

/* errno of a failure that was before is lost: what is written last fails for the same reason, as a rule. */
int output_printed(BurstCtx *c)
{
    errno = EIO;
    if (fflush(stdout) == 0 && !ferror(stdout))
        return BURST_OK;
    return burst_fail(c, BURST_E_IO, "cannot write to standard output: %s", strerror(errno));
}
