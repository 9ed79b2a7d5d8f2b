/* progress.c: the line of a command that takes long, written by a timer. */
#include "base/progress.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/time.h>
#include <unistd.h>

enum { QUIET = 2, BETWEEN = 200 * 1000 }; /* seconds before the first line, microseconds between two */

/* The handler reads one text while the next is made in the other. */
static char text[2][256];
static volatile sig_atomic_t current, shown;
static bool running;

static const char clear[] = "\r\033[K";

static void put(const char *s)
{
    const ssize_t n = write(STDERR_FILENO, s, strlen(s));
    (void)n; /* a line that is lost does no harm */
}

static void show(int signal)
{
    const int error = errno;
    (void)signal;
    put(clear);
    put(text[current]);
    shown = 1;
    errno = error;
}

/* Where a line can be rewritten. */
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

static void set_timer(int first, int between)
{
    setitimer(ITIMER_REAL, &(struct itimerval){{0, between}, {first, 0}}, NULL);
}

void progress_say(const char *fmt, ...)
{
    if (!on_terminal())
        return;
    char *next = text[!current];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(next, sizeof text[0], fmt, ap);
    va_end(ap);
    const int most = columns() - 1;
    if (most < (int)sizeof text[0])
        next[most] = 0;
    current = !current;
    if (running)
        return;
    running = true;
    sigaction(SIGALRM, &(struct sigaction){.sa_handler = show, .sa_flags = SA_RESTART}, NULL);
    set_timer(QUIET, BETWEEN);
}

void progress_end(void)
{
    if (!running)
        return;
    set_timer(0, 0);
    running = false;
    if (shown)
        put(clear);
    shown = 0;
}
