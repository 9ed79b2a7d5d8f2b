/* burst_rt.h: what an emitted training program calls. C17, with no global state besides a context.
 *
 * Conventions. Functions that can fail return 0 or a negative status and leave a text in the context
 * (burst_error). Arrays are row-major; shapes are [slowest ... fastest]. n: local tokens of this rank, N:
 * tokens of the whole sequence, D: hidden, H / Hk: query / key-value heads, d: head_dim. The host backend
 * uses fp32; sums over tokens, norms and losses are accumulated in double. Every buffer comes from the
 * rank's arena (burst_take), whose size the plan gives; nothing is allocated after start-up. The arena is
 * shared memory, and peers on the same machine copy directly from it. */
#ifndef BURST_RT_H
#define BURST_RT_H

#include "burst_attend.h"
#include "burst_context.h"
#include "burst_plan.h"

#endif
