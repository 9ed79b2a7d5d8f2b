/* burst_rt.h: what an emitted training program calls. C17, no global state beyond a context.
 *
 * Conventions. Functions that can fail return 0 or a negative status and leave a text in the context
 * (burst_error). Arrays are row-major; a shape in brackets is [slowest ... fastest]. n: local tokens of
 * this rank, N: tokens of the whole sequence, D: hidden, H / Hk: query / key-value heads, d: head_dim. All
 * floating point is fp32 on the host backend; sums over tokens, norms and losses are accumulated in
 * double. Memory: every buffer comes from the rank's arena (burst_take), which the plan has sized; nothing
 * is allocated after start-up. The arena is shared memory, so peers on the same machine copy straight out
 * of it.
 */
#ifndef BURST_RT_H
#define BURST_RT_H

#include "burst_attend.h"
#include "burst_context.h"
#include "burst_plan.h"

#endif
