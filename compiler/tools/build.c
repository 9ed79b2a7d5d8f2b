/* tools/build.c: commands that compile and link programs for a target. */
#include "tools/tools.h"

#include <ctype.h>
#include <string.h>

/* Flags that link the runtime, one a line, written when burstc was built. Lines that begin with a dot are
 * relative. archives_alone: without the system's libraries, which whoever links an archive adds. */
static const char *link_flags(Arena *a, const char *share, const char *file, const char *otherwise,
                              bool archives_alone)
{
    size_t n;
    char *text = read_file(a, arena_printf(a, "%s/%s", share, file), &n), *save = NULL;
    const char *flags = text ? "" : arena_printf(a, " %s", otherwise);
    for (char *line = text ? strtok_r(text, "\n", &save) : NULL; line; line = strtok_r(NULL, "\n", &save))
        if (!archives_alone || *line != '-')
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

/* The C identifier of a linked plan, made from its file's name. */
static const char *symbol_name(Arena *a, const char *path)
{
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path, *dot = strrchr(base, '.');
    char *name = arena_copy(a, base, dot ? (size_t)(dot - base) : strlen(base));
    for (char *c = name; *c; c++)
        *c = isalnum((unsigned char)*c) ? *c : '_';
    return name;
}

/* Commands for one object that exports a single name, so that a program can link several plans. */
static const char *archive_commands(Arena *a, const char *compile, const char *archives, const char *library)
{
    const char *object = shell_word(a, arena_printf(a, "%s.o", library)), *name = symbol_name(a, library),
               *one = shell_word(a, arena_printf(a, "%s.one.o", library)), *to = shell_word(a, library);
    return arena_printf(
        a,
        "%s -c -o %s && ld -r -u burst_library %s%s -o %s && objcopy --redefine-sym "
        "burst_library=burst_library_%s %s && objcopy --keep-global-symbol=burst_library_%s %s "
        "&& rm -f %s %s && ar rcs %s %s && rm -f %s",
        compile, object, object, archives, one, name, one, name, one, to, object, to, one, one);
}

/* A plan to link exports burst_library, which the text itself does not use. */
static const char *library_command(Arena *a, const char *share, const Program *p, const char *source,
                                   const char *library)
{
    const Target *t = p->target;
    const bool archive = is_archive(library);
    const char *links = link_flags(a, share, t->build.library_file, t->build.library_link, archive);
    const char *compile = arena_printf(a, "%s %s%s %s %s", environment(t->build.variable, t->build.compiler),
                                       compile_flags(a, t, p->cluster.groups[0].device->arch),
                                       t->build.library_flags,
                                       shell_word(a, arena_printf(a, "-I%s/include", share)),
                                       shell_word(a, source));
    if (archive)
        return archive_commands(a, compile, links, library);
    return arena_printf(a, "%s -shared -o %s%s -Xlinker -u -Xlinker burst_library", compile,
                        shell_word(a, library), links);
}

/* $CC may have several words. */
const char *build_command(Arena *a, const char *share, const Program *p, const char *source,
                          const char *program)
{
    const Target *t = p->target;
    if (p->library)
        return library_command(a, share, p, source, program);
    return arena_printf(a, "%s %s %s %s -o %s%s", environment(t->build.variable, t->build.compiler),
                        compile_flags(a, t, p->cluster.groups[0].device->arch),
                        shell_word(a, arena_printf(a, "-I%s/include", share)), shell_word(a, source),
                        shell_word(a, program),
                        link_flags(a, share, t->build.link_file, t->build.link, false));
}
