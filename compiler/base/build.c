/* build.c: commands for a shell, and how programs for a target are compiled and linked. */
#include "ir/burst.h"

#include <errno.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* One word of a shell's command line. Quoted where it must be, and never with a sign of C's comments in it, so that the
 * command can be copied from the emitted text. */
static void add_word(Text *t, const char *word)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_@%+=:,./-";
    if (*word && !word[strspn(word, plain)]) {
        text_add(t, word);
        return;
    }
    text_add(t, "'");
    for (const char *s = word; *s; s++) {
        bool parted = (s[0] == '*' && s[1] == '/') || (s[0] == '/' && s[1] == '*');
        if (*s == '\'')
            text_add(t, "'\\''");
        else
            text_printf(t, parted ? "%c''" : "%c", *s);
    }
    text_add(t, "'");
}

const char *shell_word(Arena *a, const char *word)
{
    Text t = {0};
    add_word(&t, word);
    return text_keep(a, &t);
}

/* Flags that link the runtime, one a line, written when burstc was built. Those that begin with a dot are relative. */
static const char *link_flags(Arena *a, const char *share, const Target *t)
{
    size_t n;
    char *text = read_file(a, arena_printf(a, "%s/%s", share, t->build.link_file), &n), *save = NULL;
    const char *flags = text ? "" : arena_printf(a, " %s", t->build.link);
    for (char *line = text ? strtok_r(text, "\n", &save) : NULL; line; line = strtok_r(NULL, "\n", &save))
        flags = arena_printf(a, "%s %s", flags, shell_word(a, *line == '.' ? arena_printf(a, "%s/%s", share, line) : line));
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
const char *build_command(Arena *a, const char *share, const Program *p, const char *source, const char *program)
{
    const Target *t = p->target;
    return arena_printf(a, "%s %s %s %s -o %s%s", environment(t->build.variable, t->build.compiler),
                        compile_flags(a, t, p->cluster.groups[0].device->arch), shell_word(a, arena_printf(a, "-I%s/include", share)),
                        shell_word(a, source), shell_word(a, program), link_flags(a, share, t));
}

int run_command(const char *command)
{
    pid_t child = fork();
    if (child == 0) {
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        fprintf(stderr, "burstc: error: cannot run /bin/sh: %s\n", strerror(errno));
        _exit(127);
    }
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) < 0 || !WIFEXITED(status))
        return -1;
    return WEXITSTATUS(status);
}
