/* burst_head_chunks.h: the heads that attention processes at a time, on either target: all, or a chunk of a
 * layer's heads (`head chunks`). The last chunks may have a key head less than the first, with its query
 * heads. */
#ifndef BURST_HEAD_CHUNKS_H
#define BURST_HEAD_CHUNKS_H

#ifndef PLAN_HEAD_CHUNKS
#define PLAN_HEAD_CHUNKS 1
#endif
#ifndef PLAN_SHORT_CHUNKS
#define PLAN_SHORT_CHUNKS 0
#endif
enum { PLAN_KV_SHARE = PLAN_HEADS / PLAN_KV_HEADS }; /* query heads that read a key head */
#define PLAN_ALL_KV_HEADS (PLAN_HEAD_CHUNKS * PLAN_KV_HEADS - PLAN_SHORT_CHUNKS)
#define PLAN_ALL_HEADS (PLAN_ALL_KV_HEADS * PLAN_KV_SHARE)

/* Numbers of heads, and the first of them among the layer's. */
typedef struct PlanChunkHeads { int queries, keys, first_query, first_key; } PlanChunkHeads;

static inline PlanChunkHeads plan_chunk_heads(int chunk)
{
    /* short chunks before it */
    const int whole = PLAN_HEAD_CHUNKS - PLAN_SHORT_CHUNKS, before = chunk > whole ? chunk - whole : 0;
    const int keys = PLAN_KV_HEADS - (chunk >= whole), first = chunk * PLAN_KV_HEADS - before;
    const PlanChunkHeads heads = {keys * PLAN_KV_SHARE, keys, first * PLAN_KV_SHARE, first};
    return heads;
}

#endif
