/* spans.h: where the parts of a traced step are recorded. One lane a stream; time is seconds, or, until
 * the device has come to rest, numbers of its events. */
#ifndef BURST_SPANS_H
#define BURST_SPANS_H

#include "burst_rt.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { SPAN_LANES = BURST_LANE_CHANNEL + BURST_CHANNELS, SPANS_MOST = 1 << 16 };
typedef struct Spans {
    BurstSpan *at; /* [SPANS_MOST] */
    int n;
    int64_t left_out;            /* for which there was no room */
    double zero;                 /* seconds: when all ranks had met before the step */
    BurstSpan open[SPAN_LANES];  /* part IDLE: none */
} Spans;

/* What a rank computes on, where that is not the host: its streams, its memory. */
typedef struct HostDevice {
    void *arg;
    int (*rest)(void *arg);                      /* waits until nothing is under way */
    int (*trace_begin)(void *arg, Spans *spans); /* at rest; what is queued from now on is recorded */
    int (*trace_end)(void *arg);                 /* waits; all spans have their seconds */
    int (*memory)(void *arg, size_t *used);      /* bytes in use on the device, by anybody */
    int (*describe)(void *arg, char *text, size_t size); /* what its memory is used for, as measured */
} HostDevice;

int spans_make(BurstCtx *c, Spans **out); /* all that is ever needed; freed with the context */
void spans_free(Spans *s);
/* From `when` on the lane does this part; what it did before ends. */
void spans_switch(Spans *s, int lane, double when, int part, int a, int b);
/* "attend Q[2] KV[1]"; trace_file.c */
void span_name(const BurstSpan *s, char *text, size_t size);

#ifdef __cplusplus
}
#endif
#endif
