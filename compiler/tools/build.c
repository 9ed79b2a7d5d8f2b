/* tools/build.c: how programs for a target are compiled and linked. */
#include "tools/tools.h"

#include <string.h>

/* Flags that link the runtime, one a line, written when burstc was built. Those that begin with a dot are
 * relative. */
static const char *link_flags(Arena *a, const char *share, const Target *t)
{
    size_t n;
    char *text = read_file(a, arena_printf(a, "%s/%s", share, t->build.link_file), &n), *save = NULL;
    const char *flags = text ? "" : arena_printf(a, " %s", t->build.link);
    for (char *line = text ? strtok_r(text, "\n", &save) : NULL; line; line = strtok_r(NULL, "\n", &save))
        flags = arena_printf(a, "%s %s", flags,
                             shell_word(a, *line == '.' ? arena_printf(a, "%s/%s", share, line) : line));
    return flags;
}

/* A target's flags, for the architecture of the cluster's devices. */
static const char *compile_flags(Arena *a, const Target *t, const char *arch)
{
    const char *number = strncmp(arch, "sm_", 3) == 0 ? arch + 3 : arch, *flags = "";
    const char *from = t->build.flags;
    for (const char *at; (at = strchr(from, '@')); from = at + 1)
        flags = arena_printf(a, "%s%.*s%s", flags, (int)(at - from), from, number);
    return arena_printf(a, "%s%s", flags, from);
}

/* $CC may be several words. */
const char *build_command(Arena *a, const char *share, const Program *p, const char *source,
                          const char *program)
{
    const Target *t = p->target;
    return arena_printf(a, "%s %s %s %s -o %s%s", environment(t->build.variable, t->build.compiler),
                        compile_flags(a, t, p->cluster.groups[0].device->arch),
                        shell_word(a, arena_printf(a, "-I%s/include", share)), shell_word(a, source),
                        shell_word(a, program), link_flags(a, share, t));
}
