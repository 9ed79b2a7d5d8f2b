/* signals.h: the signals that ask a job to end (SIGHUP, SIGINT, SIGTERM, where they are not ignored). */
#ifndef BURST_SIGNALS_H
#define BURST_SIGNALS_H

#include "burst_context.h"

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>

/* ---- ranks of another launcher ---- */
/* Under mpirun, torchrun and srun, which end the ranks by SIGTERM when one of them was lost. */
void catch_termination(void);
bool termination_told(void);
int heed_termination(BurstCtx *c); /* fails when a signal has told this rank to end */

/* ---- our launcher ---- */
enum { SIGNAL_TEXT = 64 };
typedef struct Signals {
    int fd; /* readable when one has come */
    int told; /* the last, 0: none */
    sigset_t usual;
} Signals;

/* From now on they wait until they are read. False, with errno: they do as usual. */
bool signals_hold(Signals *s);
int signals_read(Signals *s); /* the number, 0: none has come */
/* As before; in the ranks too, which the launcher forks. */
void signals_release(Signals *s);
/* Ends as the signal that came would have ended this process: who started it is to know. */
void signals_follow(const Signals *s);
/* "signal 15, Terminated" */
void signal_text(int number, char *text, size_t size);
#endif
