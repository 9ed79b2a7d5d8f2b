/* burst_context.h: a rank's context: status, messages and collectives of an emitted program (burst_rt.h has
 * the conventions). */
#ifndef BURST_CONTEXT_H
#define BURST_CONTEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- status ---- */
enum {
    BURST_OK = 0,
    BURST_E_USAGE = -1,  /* arguments, environment, world size: the program ends with 2 */
    BURST_E_MEMORY = -2, /* the arena or the machine has too little */
    BURST_E_IO = -3,     /* a file */
    BURST_E_PEER = -4,   /* a lost or stuck rank, a message of the wrong size */
    BURST_E_PLAN = -5,   /* the emitted program contradicts itself: a bug of burstc */
    BURST_E_NUMERIC = -6, /* loss is not finite */
    /* no device, too few, or of another kind than the program needs: the program ends with 3 */
    BURST_E_DEVICE = -7
};
#define BURST_TRY(call)                \
    do {                               \
        int burst_status_ = (call);    \
        if (burst_status_ != BURST_OK) \
            return burst_status_;      \
    } while (0)

typedef struct BurstCtx BurstCtx;
struct BurstPlan;
int burst_rank(const BurstCtx *c);
int burst_world(const BurstCtx *c);
const char *burst_error(const BurstCtx *c);
/* Records the text and returns code, so that callers can write `return burst_fail(c, BURST_E_IO, "...")`. */
int burst_fail(BurstCtx *c, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Takes 64-byte aligned zeroed memory from the arena; NULL (and an error text) where the plan counted too
 * little. */
void *burst_take(BurstCtx *c, size_t bytes);
size_t burst_arena_used(const BurstCtx *c);
/* Says what this rank does now: shown by the watchdog and when a rank is lost. The text must outlive the
 * call. */
void burst_doing(BurstCtx *c, const char *operation);
double burst_seconds(void); /* monotonic */
/* From now on the rank computes this part (BURST_P_*; its name's numbers), until the next call: for
 * --trace. Waits for messages cut it. */
void burst_part(BurstCtx *c, int part, int a, int b);

/* ---- messages: point to point, in order per (sender, receiver, channel) ---- */
/* A channel is one stream of the plan; two concurrent streams never share one. */
typedef struct BurstReq {
    int kind; /* 0 idle, 1 send, 2 receive */
    void *impl; /* transport's own */
} BurstReq;
/* the most channels one plan may use; 12.. belong to the runtime's collectives */
enum { BURST_CHANNELS = 16 };
/* Both return at once. The buffer (from the arena) must stay untouched until burst_wait. The receiver's
 * bytes must be the sender's: anything else is BURST_E_PEER naming both. peer is a world rank and not the
 * caller's own. */
int burst_send(BurstCtx *c, int channel, int peer, const void *data, size_t bytes, BurstReq *req);
int burst_recv(BurstCtx *c, int channel, int peer, void *data, size_t bytes, BurstReq *req);
/* The same of strips, one after the other: so many rows of `bytes` each, `pitch` bytes apart, which need
 * not be the other end's pitch; one request for all. */
typedef struct BurstStrip { void *data; size_t rows, bytes, pitch; } BurstStrip;
int burst_send_rows(BurstCtx *c, int channel, int peer, const BurstStrip *strip, int strips, BurstReq *req);
int burst_recv_rows(BurstCtx *c, int channel, int peer, const BurstStrip *strip, int strips, BurstReq *req);
uint64_t burst_sent_bytes(const BurstCtx *c); /* so far, by the plan's channels */
int burst_wait(BurstCtx *c, BurstReq *req); /* idle requests return at once; afterwards the request is idle */

/* ---- collectives over a group of ranks: first, first + stride, ... (every member calls, in the same
 * order) ---- */
typedef struct BurstGroup { int first, stride, count; } BurstGroup;
typedef struct BurstGather { BurstGroup group; int active; BurstReq *reqs; } BurstGather;
/* full[i*shard_elements ...] = shard of the i-th member. Started here, finished by burst_gather_wait;
 * computing may go on between the two. At most 4 may be under way. The shard must not change until every
 * member has waited. */
int burst_gather_start(BurstCtx *c, BurstGroup g, const float *shard, int64_t shard_elements, float *full,
                       BurstGather *op);
int burst_gather_wait(BurstCtx *c, BurstGather *op);
/* shard[j] += sum over members m (in order: same bits on every run) of full_m[me*shard_elements + j].
 * Returns when every member may change its full again. */
int burst_reduce_scatter(BurstCtx *c, BurstGroup g, float *full, int64_t shard_elements, float *shard);
/* As burst_gather_start, from begin to end: returns when every member may change its shard again. */
int burst_all_gather(BurstCtx *c, BurstGroup g, const float *shard, int64_t shard_elements, float *full);
/* data[j] = sum over members of data[j], the same bits on every member and on every run. */
int burst_sum_over(BurstCtx *c, BurstGroup g, float *data, int64_t elements);
/* sums in rank order; count <= 64 */
int burst_allreduce(BurstCtx *c, BurstGroup g, double *values, int count);
int burst_barrier(BurstCtx *c, BurstGroup g);

#ifdef __cplusplus
}
#endif
#endif
