/* help.h: what burstc's command line takes, in words: help, the manual page and completion of shells. */
#ifndef HELP_H
#define HELP_H

#include "base/base.h"

/* `burstc help NAME`, `burstc NAME --help`; NULL: all of it. Returns an exit status, 2 where no command has
 * the name. */
int help_print(const char *command);
/* `burstc --complete WORD...`, for the scripts of completions/: what may stand for the last word, a line
 * each; a line that begins with ':' is a pattern of files, ":/" is folders. Returns an exit status. */
int help_complete(int argc, char **argv);
/* What may stand there, a line each: a command's options ("-": burstc's), forms and passes. */
char *help_options(Arena *a, const char *command);
char *help_forms(Arena *a);
char *help_passes(Arena *a);
/* `burstc --man`: the manual page burstc(1). Returns an exit status. */
int help_manual(void);
/* Whether the command line asks for help, and of what (NULL: all). */
bool help_asked(int argc, char **argv, const char **command);

#endif
