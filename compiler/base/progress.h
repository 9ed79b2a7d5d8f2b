/* base/progress.h: shows what a long command is doing. */
#ifndef BURST_BASE_PROGRESS_H
#define BURST_BASE_PROGRESS_H

#include "base/base.h"

/* Sets the current activity. On a terminal a line on standard error shows it from two seconds after the
 * first call on; elsewhere a line a minute does, or as BURSTC_PROGRESS says (seconds, or no). A timer writes
 * it, so that it also appears while a started command runs. */
void progress_say(const char *fmt, ...) PRINTF_LIKE(1, 2);
void progress_end(void); /* clears the line; required before other output */

#endif
