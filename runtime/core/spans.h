/* spans.h: records the parts of a traced step. There is one lane per stream; times are seconds or, until the
 * device is idle, numbers of its events. */
#ifndef BURST_SPANS_H
#define BURST_SPANS_H

#include "burst_context.h"
#include "burst_parts.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { SPAN_LANES = BURST_LANE_CHANNEL + BURST_CHANNELS, SPANS_MOST = 1 << 16 };
typedef struct Spans {
    BurstSpan *at; /* [SPANS_MOST] */
    int n;
    int64_t left_out;            /* spans that did not fit */
    double zero;                 /* seconds: when all ranks had met before the step */
    BurstSpan open[SPAN_LANES];  /* part IDLE: none */
} Spans;

/* The device that a rank computes on, if it is not the host: its streams and memory. */
typedef struct HostDevice {
    void *arg;
    int (*rest)(void *arg);                      /* waits until it is idle */
    int (*trace_begin)(void *arg, Spans *spans); /* called when idle; records what is queued from now on */
    int (*trace_end)(void *arg);                 /* waits; all spans then have seconds */
    int (*memory)(void *arg, size_t *used);      /* bytes in use on the device, by any process */
    /* describes what its memory is used for, as measured */
    int (*describe)(void *arg, char *text, size_t size);
} HostDevice;

int spans_make(BurstCtx *c, Spans **out); /* allocates everything; freed with the context */
void spans_free(Spans *s);
/* Whether this is the lane's current part, so that nothing has to be recorded. */
bool spans_goes_on(const Spans *s, int lane, int part, int a, int b);
/* Ends the lane's current part and begins this one at `when`. */
void spans_switch(Spans *s, int lane, double when, int part, int a, int b);

/* "attend Q[2] KV[1]"; span_name.c */
void span_name(const BurstSpan *s, char *text, size_t size);

#ifdef __cplusplus
}
#endif
#endif
