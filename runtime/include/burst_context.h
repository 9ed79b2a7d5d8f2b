/* burst_context.h: the context of a rank: status, messages and collectives of an emitted program (burst_rt.h
 * has the conventions). */
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
    BURST_E_USAGE = -1,  /* arguments, environment or world size: the program exits with 2 */
    BURST_E_MEMORY = -2, /* the arena or the machine has too little memory */
    BURST_E_IO = -3,     /* a file error */
    BURST_E_PEER = -4,   /* a lost or stuck rank, or a message of the wrong size */
    BURST_E_PLAN = -5,   /* the emitted program is inconsistent: a bug of burstc */
    BURST_E_NUMERIC = -6, /* the loss is not finite */
    /* no device, too few, or of another kind than the program needs: the program exits with 3 */
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
/* Takes 64-byte aligned zeroed memory from the arena; NULL (and an error text) if the plan's size is
 * exceeded. */
void *burst_take(BurstCtx *c, size_t bytes);
size_t burst_arena_used(const BurstCtx *c);
/* Names what this rank is doing, for the watchdog and for reports of a lost rank. The text must outlive the
 * call. */
void burst_doing(BurstCtx *c, const char *operation);
double burst_seconds(void); /* monotonic */
/* The rank computes this part (BURST_P_*; a, b: the numbers in its name) until the next call; for --trace.
 * Waits for messages interrupt the part. */
void burst_part(BurstCtx *c, int part, int a, int b);

/* ---- messages: point to point, in order per (sender, receiver, channel) ---- */
/* A channel is one stream of the plan; two concurrent streams never share one. */
typedef struct BurstReq {
    int kind; /* 0 idle, 1 send, 2 receive */
    void *impl; /* private to the transport */
} BurstReq;
/* the most channels one plan may use; 12.. belong to the runtime's collectives */
enum { BURST_CHANNELS = 16 };
/* Both return at once. The buffer, from the arena, must not be touched until burst_wait. Sender and receiver
 * must pass the same number of bytes, else BURST_E_PEER with a text that names both. peer: a world rank
 * other than the caller. */
int burst_send(BurstCtx *c, int channel, int peer, const void *data, size_t bytes, BurstReq *req);
int burst_recv(BurstCtx *c, int channel, int peer, void *data, size_t bytes, BurstReq *req);
/* The same for strips, one after the other: each is `rows` rows of `bytes` bytes, `pitch` bytes apart. The
 * other end's pitch may differ. One request covers all. */
typedef struct BurstStrip { void *data; size_t rows, bytes, pitch; } BurstStrip;
int burst_send_rows(BurstCtx *c, int channel, int peer, const BurstStrip *strip, int strips, BurstReq *req);
int burst_recv_rows(BurstCtx *c, int channel, int peer, const BurstStrip *strip, int strips, BurstReq *req);
uint64_t burst_sent_bytes(const BurstCtx *c); /* sent so far on the plan's channels */
/* an idle request returns at once; the request is idle afterwards */
int burst_wait(BurstCtx *c, BurstReq *req);

/* ---- collectives over a group of ranks: first, first + stride, ... (every member calls, in the same
 * order) ---- */
typedef struct BurstGroup { int first, stride, count; } BurstGroup;
typedef struct BurstGather { BurstGroup group; int active; BurstReq *reqs; } BurstGather;
/* full[i*shard_elements ...] = shard of the i-th member. Returns at once; burst_gather_wait completes it. At
 * most 4 may be in flight. The shard must not change until every member has waited. */
int burst_gather_start(BurstCtx *c, BurstGroup g, const float *shard, int64_t shard_elements, float *full,
                       BurstGather *op);
int burst_gather_wait(BurstCtx *c, BurstGather *op);
/* shard[j] += sum over members m of full_m[me*shard_elements + j], in order, so that every run has the same
 * bits. After it, every member may change its full. */
int burst_reduce_scatter(BurstCtx *c, BurstGroup g, float *full, int64_t shard_elements, float *shard);
/* burst_gather_start and wait in one call. After it, every member may change its shard. */
int burst_all_gather(BurstCtx *c, BurstGroup g, const float *shard, int64_t shard_elements, float *full);
/* data[j] = sum over members of data[j], with the same bits on every member and in every run. */
int burst_sum_over(BurstCtx *c, BurstGroup g, float *data, int64_t elements);
/* sums in rank order; count <= 64 */
enum { BURST_MOST_VALUES = 64 };
int burst_allreduce(BurstCtx *c, BurstGroup g, double *values, int count);
int burst_barrier(BurstCtx *c, BurstGroup g);

#ifdef __cplusplus
}
#endif
#endif
