/* help.h: what burstc's command line takes, in words: help, the manual page and completion of shells. */
#ifndef HELP_H
#define HELP_H

#include <stdbool.h>

/* `burstc help NAME`, `burstc NAME --help`; NULL: all of it. Returns an exit status, 2 where no command has
 * the name. */
int help_print(const char *command);
/* `burstc --complete WORD...`, for the scripts of completions/: what may stand for the last word, a line
 * each; a line that begins with ':' is a pattern of files, ":/" is folders. Returns an exit status. */
int help_complete(int argc, char **argv);
/* `burstc --man`: the manual page burstc(1). Returns an exit status. */
int help_manual(void);
/* Whether the command line asks for help, and of what (NULL: all). */
bool help_asked(int argc, char **argv, const char **command);

#endif
