/* base/shell.c: shell commands. */
#include "base/base.h"

#include <errno.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Adds one word of a shell command. Quotes it if necessary, and breaks up C's comment marks, so that the
 * command can be copied from emitted text. */
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
