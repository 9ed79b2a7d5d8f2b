/* output.c: see output.h. */
#include "files/output.h"

#include <errno.h>
#include <string.h>

int output_begin(BurstCtx *c, const char *path, OutputFile *o)
{
    if (output_open(o, path) == 0)
        return BURST_OK;
    return burst_fail(c, BURST_E_IO, "cannot write '%s': %s", path, output_reason(errno));
}

int output_keep(BurstCtx *c, const char *path, OutputFile *o)
{
    if (output_close(o, true) == 0)
        return BURST_OK;
    return burst_fail(c, BURST_E_IO, "cannot write '%s': %s", path, strerror(errno));
}

int output_printed(BurstCtx *c)
{
    int reason = output_flush(stdout);
    return reason ? burst_fail(c, BURST_E_IO, "cannot write to standard output: %s", strerror(reason))
                  : BURST_OK;
}
