/* gate.h: what multiplies a branch (BURST_GATE_...), and its slope, in double. */
#ifndef BURST_HOST_SCAN_GATE_H
#define BURST_HOST_SCAN_GATE_H

#include "burst_model.h"

#include <math.h>

static inline double gate_value(int gate, double z)
{
    const double s = 1 / (1 + exp(-z));
    switch (gate) {
    case BURST_GATE_SIGMOID: return s;
    case BURST_GATE_SILU: return s * z;
    default: return z;
    }
}

static inline double gate_slope(int gate, double z)
{
    const double s = 1 / (1 + exp(-z));
    switch (gate) {
    case BURST_GATE_SIGMOID: return s * (1 - s);
    case BURST_GATE_SILU: return s * (1 + z * (1 - s));
    default: return 1;
    }
}

#endif
