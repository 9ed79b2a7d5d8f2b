/* burst_library.h: the interface between a plan's emitted library text, which has its constants and
 * schedule, and the runtime (runtime/library), which implements burst.h. */
#ifndef BURST_LIBRARY_H
#define BURST_LIBRARY_H

#include "burst_rt.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One call of attention. Pointers that its direction does not use are NULL. */
typedef struct BurstAttention {
    int mask;
    float scale;
    const void *q, *k, *v, *o, *d_o;
    const float *sinks, *lse, *d_lse;
    void *to_o, *dq, *dk, *dv;
    float *to_lse, *dsinks;
    void *stream;
} BurstAttention;

typedef struct BurstEmitted {
    int abi; /* BURST_RT_ABI */
    const char *target, *layout;
    uint64_t text_hash;
    int ranks, heads, kv_heads, head_dim, value_dim;
    size_t element_bytes;
    int64_t sequence;
    int masks, tables;
    const char *const *mask_name, *const *table_name;
    /* per batch: its state, and its arrays on the host; per call: the caller's workspace and device
     * memory */
    size_t state_bytes, batch_bytes, workspace_bytes, device_bytes;
    int requests; /* messages in flight, at most */
    int64_t (*tokens_of)(int chunk);
    int64_t (*position)(int chunk, int64_t i);
    int (*chunk_of)(int rank);
    /* Opens the plan's device; NULL: it has none. */
    int (*open)(BurstCtx *c, void **device);
    void (*close)(void *device);
    /* Takes the batch's arrays and prunes the schedule for each mask. tables NULL: none. */
    int (*start)(BurstCtx *c, void *state, const BurstTables *tables);
    /* The same on the device, in `memory` of device_bytes; NULL: no device. */
    int (*load)(BurstCtx *c, void *state, char *memory, void *stream);
    void (*place)(void *state, char *workspace); /* sets a call's buffers in its workspace */
    int (*forward)(BurstCtx *c, void *state, const BurstAttention *a);
    int (*backward)(BurstCtx *c, void *state, const BurstAttention *a);
} BurstEmitted;
void *burst_library_device(BurstCtx *c);
/* all_gather of `bytes` from each rank, in rank order; only while a plan is opened */
int burst_library_gather(BurstCtx *c, const void *in, void *out, size_t bytes);
/* defined at the end of the emitted text */
extern const BurstEmitted burst_emitted;

/* ---- the device of a plan inside another program, on the caller's stream ---- */
typedef struct BurstGpu BurstGpu; /* burst_gpu.h */
int burst_library_gpu_open(BurstCtx *c, int channels, void **device);
void burst_library_gpu_close(void *device);
/* Begins a call: computing runs in `stream`, after the marks of earlier calls. A call can be captured in a
 * CUDA graph, because it waits only for work captured with it. */
void burst_library_gpu_use(BurstGpu *g, void *stream);
int burst_library_gpu_end(BurstGpu *g); /* `stream` waits for all channels */

#ifdef __cplusplus
}
#endif
#endif
