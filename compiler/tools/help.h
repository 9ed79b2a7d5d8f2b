/* help.h: descriptions of burstc's command line: help, the manual page and shell completion. */
#ifndef HELP_H
#define HELP_H

#include "base/base.h"

/* `burstc help NAME`, `burstc NAME --help`; NULL: everything. Returns an exit status, 2 if no command has
 * that name. */
int help_print(const char *command);
/* `burstc --complete WORD...`, for the scripts of completions/: prints candidates for the last word, a line
 * each. A line that begins with ':' is a pattern of files; ":/" means folders. Returns an exit status. */
int help_complete(int argc, char **argv);
/* Completions, a line each: a command's options ("-": burstc's), forms and passes. */
char *help_options(Arena *a, const char *command);
char *help_forms(Arena *a);
char *help_passes(Arena *a);
/* `burstc --man`: the manual page burstc(1). Returns an exit status. */
int help_manual(void);
/* Whether the command line asks for help; *command: about which command (NULL: all). */
bool help_asked(int argc, char **argv, const char **command);

#endif
