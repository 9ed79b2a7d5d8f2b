/* forecast.h: the predicted step as spans, in the order in which a rank runs it. For the trace of a
 * program and for burstc. */
#ifndef BURST_FORECAST_H
#define BURST_FORECAST_H

#include "burst_parts.h"

/* add gets each span; times from the begin of the step. Spans of a lane do not overlap. Returns the step's
 * seconds. */
double forecast_step(const BurstForecast *f, void (*add)(void *arg, const BurstSpan *s), void *arg);
#endif
