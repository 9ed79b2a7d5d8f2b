/* progress.c: the progress line of a long command, written by a timer. */
#include "base/progress.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/time.h>
#include <unistd.h>

enum { QUIET = 2, BETWEEN = 200 * 1000 }; /* seconds before the first line, microseconds between two */
enum { PIPE = 60 };                       /* seconds before each line if lines cannot be rewritten */

/* The handler reads one buffer while the next text is written to the other. */
static char text[2][256];
static volatile sig_atomic_t current, shown;
static bool running, on_pipe;

static const char clear[] = "\r\033[K";

static void put(const char *s)
{
    const ssize_t n = write(STDERR_FILENO, s, strlen(s));
    (void)n; /* a lost line does no harm */
}

static void show(int signal)
{
    const int error = errno;
    (void)signal;
    if (on_pipe) {
        put("burstc: ");
        put(text[current]);
        put("\n");
    } else {
        put(clear);
        put(text[current]);
        shown = 1;
    }
    errno = error;
}

/* Whether a line can be rewritten. */
static bool on_terminal(void)
{
    static int is = -1;
    if (is < 0)
        is = isatty(STDERR_FILENO) && strcmp(environment("TERM", "dumb"), "dumb") != 0;
    return is;
}

/* A line that wrapped could not be rewritten. */
static int columns(void)
{
    enum { USUAL = 80 };
    struct winsize size;
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col : USUAL;
}

/* 0: no line. */
static int pipe_seconds(void)
{
    const char *given = environment("BURSTC_PROGRESS", NULL);
    const long seconds = given ? strtol(given, NULL, 10) : PIPE; /* "no" is 0 */
    return seconds > 0 && seconds < 1 << 20 ? (int)seconds : 0;
}

static void set_timer(struct timeval first, struct timeval between)
{
    setitimer(ITIMER_REAL, &(struct itimerval){between, first}, NULL);
}

void progress_say(const char *fmt, ...)
{
    on_pipe = !on_terminal();
    const int seconds = on_pipe ? pipe_seconds() : 0;
    if (on_pipe && !seconds)
        return;
    char *next = text[!current];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(next, sizeof text[0], fmt, ap);
    va_end(ap);
    const int most = on_pipe ? (int)sizeof text[0] : columns() - 1;
    if (most < (int)sizeof text[0])
        next[most] = 0;
    current = !current;
    if (running)
        return;
    running = true;
    sigaction(SIGALRM, &(struct sigaction){.sa_handler = show, .sa_flags = SA_RESTART}, NULL);
    if (on_pipe)
        set_timer((struct timeval){seconds, 0}, (struct timeval){seconds, 0});
    else
        set_timer((struct timeval){QUIET, 0}, (struct timeval){0, BETWEEN});
}

void progress_end(void)
{
    if (!running)
        return;
    set_timer((struct timeval){0}, (struct timeval){0});
    running = false;
    if (shown)
        put(clear);
    shown = 0;
}
