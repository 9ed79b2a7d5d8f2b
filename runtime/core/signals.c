/* signals.c: the signals that ask a job to end. A launcher of ours reads them from a descriptor; ranks
 * that somebody else started notice them in their next wait, or behind their step. */
#include "core/signals.h"

#include "core/context.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

static const int ending[] = {SIGHUP, SIGINT, SIGTERM};
enum { ENDING = sizeof ending / sizeof *ending };
static volatile sig_atomic_t told;

/* nohup and shells without job control have reasons to ignore some. */
static bool ignored(int number)
{
    struct sigaction usual;
    return sigaction(number, NULL, &usual) == 0 && usual.sa_handler == SIG_IGN;
}

void signal_text(int number, char *text, size_t size)
{
    snprintf(text, size, "signal %d, %s", number, strsignal(number));
}

/* ---- ranks of another launcher ---- */

static void note(int number)
{
    told = number;
}

/* mpirun and torchrun send SIGKILL later: a rank that does not wait just then ends all the same. So does a
 * second one. */
void catch_termination(void)
{
    struct sigaction a = {.sa_handler = note, .sa_flags = (int)SA_RESETHAND};
    for (int i = 0; i < ENDING; i++)
        if (!ignored(ending[i]))
            sigaction(ending[i], &a, NULL);
}

bool termination_told(void)
{
    return told != 0;
}

int heed_termination(BurstCtx *c)
{
    char text[SIGNAL_TEXT];
    if (!told)
        return BURST_OK;
    signal_text(told, text, sizeof text);
    return burst_fail(c, BURST_E_PEER, "stopped by %s", text);
}

/* ---- our launcher ---- */

bool signals_hold(Signals *s)
{
    sigset_t held;
    sigemptyset(&held);
    for (int i = 0; i < ENDING; i++)
        if (!ignored(ending[i]))
            sigaddset(&held, ending[i]);
    *s = (Signals){.fd = signalfd(-1, &held, SFD_CLOEXEC | SFD_NONBLOCK)};
    if (s->fd < 0 || sigprocmask(SIG_BLOCK, &held, &s->usual) == 0)
        return s->fd >= 0;
    close(s->fd);
    return false;
}

int signals_read(Signals *s)
{
    struct signalfd_siginfo info;
    if (read(s->fd, &info, sizeof info) != sizeof info)
        return 0;
    s->told = (int)info.ssi_signo;
    return s->told;
}

void signals_release(Signals *s)
{
    close(s->fd);
    sigprocmask(SIG_SETMASK, &s->usual, NULL);
}

void signals_follow(const Signals *s)
{
    if (!s->told)
        return;
    signal(s->told, SIG_DFL);
    raise(s->told);
}
