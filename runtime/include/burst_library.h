/* burst_library.h: what a plan's emitted library text and the runtime under it (runtime/library) have of each
 * other. The text has the plan's constants and its schedule; the runtime has the calls of burst.h. */
#ifndef BURST_LIBRARY_H
#define BURST_LIBRARY_H

#include "burst_rt.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One call of attention. Pointers that the direction does not have are NULL. */
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
    /* of a batch: its state, and its arrays on the host; of a call: what the caller gives */
    size_t state_bytes, batch_bytes, workspace_bytes, device_bytes;
    int requests; /* messages under way at a time, at most */
    int64_t (*tokens_of)(int chunk);
    int64_t (*position)(int chunk, int64_t i);
    int (*chunk_of)(int rank);
    /* The plan's device; NULL: it has none. */
    int (*open)(BurstCtx *c, void **device);
    void (*close)(void *device);
    /* Takes the batch's arrays, and finds what each mask leaves; tables NULL: it has none. */
    int (*start)(BurstCtx *c, void *state, const BurstTables *tables);
    /* The same on the device, in memory of device_bytes, where there is one. */
    int (*load)(BurstCtx *c, void *state, char *memory, void *stream);
    void (*place)(void *state, char *workspace); /* where a call has its buffers */
    int (*forward)(BurstCtx *c, void *state, const BurstAttention *a);
    int (*backward)(BurstCtx *c, void *state, const BurstAttention *a);
} BurstEmitted;
void *burst_library_device(BurstCtx *c);
/* Of each rank `bytes`, in their order; while a plan is opened. */
int burst_library_gather(BurstCtx *c, const void *in, void *out, size_t bytes);
/* what the emitted text has at its end */
extern const BurstEmitted burst_emitted;

/* ---- the device of a plan inside another program: its stream is the caller's ---- */
typedef struct BurstGpu BurstGpu; /* burst_gpu.h */
int burst_library_gpu_open(BurstCtx *c, int channels, void **device);
void burst_library_gpu_close(void *device);
/* A call: computing is in this stream from here on, and what earlier calls marked is done before it. So a
 * call can be captured in a CUDA graph: it waits for nothing that is not captured with it. */
void burst_library_gpu_use(BurstGpu *g, void *stream);
int burst_library_gpu_end(BurstGpu *g); /* the stream goes on when all channels are done */

#ifdef __cplusplus
}
#endif
#endif
