/* base/progress.h: what a command that takes long is doing. */
#ifndef BURST_BASE_PROGRESS_H
#define BURST_BASE_PROGRESS_H

#include "base/base.h"

/* What is done now: a line on standard error that is rewritten, where that is a terminal, from two seconds
 * after the first call on; elsewhere a line a minute, or as BURSTC_PROGRESS says (seconds, or no). A timer
 * writes it, so that it also appears while a started command runs. */
void progress_say(const char *fmt, ...) PRINTF_LIKE(1, 2);
void progress_end(void); /* Clears the line: before anything else is printed. */

#endif
