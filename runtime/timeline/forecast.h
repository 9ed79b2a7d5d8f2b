/* forecast.h: the predicted step as spans, in a rank's order, for a program's trace and for burstc. */
#ifndef BURST_FORECAST_H
#define BURST_FORECAST_H

#include "burst_parts.h"

/* Calls add for each span, with times from the step's begin. Spans of a lane do not overlap. Returns the
 * step's seconds. */
double forecast_step(const BurstForecast *f, void (*add)(void *arg, const BurstSpan *s), void *arg);
#endif
