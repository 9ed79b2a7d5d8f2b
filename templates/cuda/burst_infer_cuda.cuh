/* burst_infer_cuda.cuh: a prompt and the tokens that continue it, on GPUs; as burst_infer_host.h has them.
 *
 * Keys and values are by tokens, so a prompt's are copied as they are, and a further token's are a row. What
 * kernels need to know of the running token is in device memory, and all launches of a further token are the
 * same. */
#ifndef BURST_INFER_CUDA_CUH
#define BURST_INFER_CUDA_CUH

#ifdef PLAN_KEEPS_LATENTS
#include "cuda_decode_latent.cuh"
#else
#include "cuda_decode.cuh"
#endif

#ifdef PLAN_SCAN_COLUMNS
#include "burst_infer_scan_cuda.cuh"
#endif

/* Columns of a part, floats of the parts of all heads, and how many parts the cache has. */
#ifdef PLAN_KEEPS_LATENTS
enum { PLAN_PART_DIM = PLAN_LATENT, PLAN_SPLITS = burst_latent_splits(PLAN_HEADS) };
#else
enum { PLAN_PART_DIM = PLAN_VALUE_DIM, PLAN_SPLITS = burst_decode_splits(PLAN_HEADS, PLAN_KV_HEADS) };
#endif
enum { PLAN_PART_WORDS = PLAN_HEADS * burst_decode_row(PLAN_PART_DIM, 1) };

static cudaError_t plan_launch_decode(PlanState *s, int mask, const BurstDecode *d);

/* Uploads what the sequence begins with. */
static int plan_infer_begin(BurstCtx *c, PlanState *s)
{
    PlanInfer *f = &s->infer;
    BurstRunning *running = (BurstRunning *)(void *)s->buffer.device_running;
    struct {
        BurstRunning at;
        int32_t kept[PLAN_MASKS][2];
    } now = {{f->at[0], (int32_t)f->prompt, (int32_t)f->rows, (int32_t)f->more}, {}};
    (void)c;
    s->position = f->decodes ? &running->at : s->tokens[s->me].position;
    s->token = s->buffer.device_token;
    f->found = s->buffer.device_found;
#ifdef PLAN_SCAN_COLUMNS
    plan_running_pieces(s);
    s->place = s->position;
#endif
    for (int m = 0; m < PLAN_MASKS; m++) {
        plan_find_kept(s, m);
        now.kept[m][0] = (int32_t)f->first, now.kept[m][1] = (int32_t)f->kept;
    }
    BURST_TRY(burst_gpu_upload(s->exec, &now, sizeof now, running));
    return burst_gpu_upload(s->exec, f->decodes ? f->token : f->own,
                            (size_t)(f->decodes ? 1 : s->own) * sizeof(int32_t), s->buffer.device_token);
}

#if PLAN_WORLD == PLAN_GROUP
/* Launches of a further token are the same for all prompts of a length: recorded for the second one, since
 * for the first products are planned, and then launched at once. Several ranks record if they gather on the
 * compute stream. */
static int plan_recorded_length = -1;

static int plan_record(BurstCtx *c, PlanState *s, bool *records)
{
    const bool planned = plan_recorded_length == plan_length;
    plan_recorded_length = plan_length;
    *records = false;
    if (!planned)
        return burst_gpu_graph_drop(s->exec);
    if (!burst_gpu_graph_there(s->exec))
        BURST_TRY(burst_gpu_graph_begin(s->exec, records));
    if (!*records)
        return BURST_OK;
    BURST_TRY(plan_sequence(c, s));
    return burst_gpu_graph_end(s->exec);
}

static int plan_infer_run(BurstCtx *c, PlanState *s)
{
    bool records = false;
    if (s->infer.decodes && (PLAN_WORLD == 1 || burst_gpu_gathers_one_shot(s->exec, 1)))
        BURST_TRY(plan_record(c, s, &records));
    if (s->infer.decodes && burst_gpu_graph_there(s->exec))
        return burst_gpu_graph_run(s->exec);
    return plan_sequence(c, s);
}
#else
static int plan_infer_run(BurstCtx *c, PlanState *s) { return plan_sequence(c, s); }
#endif

static int plan_infer_end(BurstCtx *c, PlanState *s, int32_t *next)
{
    (void)c;
    BURST_TRY(burst_gpu_download(s->exec, s->infer.found, sizeof *next, next));
    return burst_gpu_sync(s->exec);
}

static int plan_infer_logits(BurstCtx *c, PlanState *s, float **logits)
{
    (void)c;
    *logits = s->buffer.logits;
    BURST_TRY(burst_gpu_download(s->exec, plan_floats(s, PLAN_AT_NEXT_SCRATCH), PLAN_VOCAB * sizeof(float),
                                 *logits));
    return burst_gpu_sync(s->exec);
}

static void plan_infer_one(PlanState *s)
{
    s->position = &((const BurstRunning *)(void *)s->buffer.device_running)->at;
}

#if PLAN_GROUP > 1 || defined PLAN_SLICES
/* Gathers as many elements of each rank that shares the unit; of a layer these share the prompt. own: may be
 * its place in `all`. */
static int plan_gather_same(PlanState *s, int unit, const BurstAct *own, int64_t elements, BurstAct *all)
{
    if (burst_gpu_gathers_one_shot(s->exec, unit)) {
        BURST_TRY(burst_op_part(s->exec, BURST_P_GATHER));
        BURST_TRY(burst_gpu_gather_one_shot(s->exec, unit, own, elements, all));
        return burst_op_part(s->exec, BURST_P_IDLE);
    }
    BURST_TRY(burst_op_begin(s->exec, BURST_P_GATHER, unit, &s->reduction));
    BURST_TRY(burst_gpu_gather(s->exec, unit, own, elements, all));
    BURST_TRY(burst_op_end(s->exec, &s->reduction));
    return burst_op_reduced(s->exec, &s->reduction);
}
#endif

#if PLAN_GROUP > 1
/* Which of them has a position. */
static int plan_member_with(const BurstCtx *c, const PlanState *s, int64_t position)
{
    const BurstGroup ranks = burst_unit_group(c, 1);
    int member = 0;
    for (int i = 0; i < ranks.count; i++) {
        const BurstChunk *k = &s->chunk[plan_chunk_of(ranks.first + i * ranks.stride)];
        const int64_t row = plan_row_from(k, position);
        member = row < k->tokens && k->position[row] == position ? i : member;
    }
    return member;
}
#endif

static int plan_move_row(BurstCtx *c, PlanState *s, int64_t width, BurstAct *x, char *scratch)
{
    const BurstAct *row = x + (s->infer.end > 0 ? s->infer.end : 0) * width;
#if PLAN_GROUP > 1
    BurstAct *all = (BurstAct *)(void *)scratch;
    BURST_TRY(plan_gather_same(s, 1, row, width, all));
    row = all + plan_member_with(c, s, s->infer.prompt - 1) * width;
#endif
    (void)c, (void)scratch;
    if (row != x)
        PLAN_CUDA(cudaMemcpyAsync(x, row, (size_t)width * sizeof *x, cudaMemcpyDeviceToDevice,
                                  burst_gpu_compute(s->exec)));
    return BURST_OK;
}

/* First row and rows of a prompt that layers with the mask keep. */
static inline const int32_t *plan_kept_rows(const PlanState *s, int mask)
{
    return s->buffer.device_running + sizeof(BurstRunning) / sizeof(int32_t) + 2 * mask;
}

#if defined PLAN_SPLIT_PRODUCTS || defined PLAN_SLICES
static int plan_gather_rows(BurstCtx *c, PlanState *s, int unit, int64_t first, int64_t each, int64_t rows,
                            BurstAct *y)
{
    (void)c, (void)rows;
    return plan_gather_same(s, unit, y + first, each, y);
}
#endif

#ifdef PLAN_SLICES
/* The rows of all ranks are gathered, of which all but one are 0. */
static int plan_embed_slice(BurstCtx *c, PlanState *s, int64_t first, int hidden, const int32_t *token,
                            const BurstBf16 *slice, BurstBf16 *x, char *scratch)
{
    BurstBf16 *all = (BurstBf16 *)(void *)scratch,
              *own = all + (int64_t)plan_slice_member(c, PLAN_EMBED) * hidden;
    BURST_TRY(burst_gpu_embed_slice(s->exec, first, PLAN_SLICES, hidden, token, slice, own));
    BURST_TRY(plan_gather_same(s, PLAN_EMBED, own, hidden, all));
    return burst_gpu_sum_rows(s->exec, PLAN_WORLD, hidden, all, x);
}

static int plan_share_head_row(BurstCtx *c, PlanState *s, int hidden, const BurstBf16 **x, char *scratch)
{
#if PLAN_WORLD > PLAN_GROUP
    BurstBf16 *all = (BurstBf16 *)(void *)scratch;
    BURST_TRY(burst_op_tensor_gather(s->exec, 1, hidden, *x, all, &s->tensor));
    BURST_TRY(burst_op_tensor_done(s->exec, &s->tensor));
    *x = all;
#endif
    (void)c, (void)s, (void)hidden, (void)x, (void)scratch;
    return BURST_OK;
}

#ifdef PLAN_SLICE_EXPERTS
static int plan_add_slices(BurstCtx *c, PlanState *s, int hidden, BurstBf16 *x, char *scratch)
{
    BurstBf16 *all = (BurstBf16 *)(void *)scratch;
    (void)c;
    if (PLAN_GROUP == 1)
        return BURST_OK;
    BURST_TRY(plan_gather_same(s, 1, x, hidden, all));
    return burst_gpu_sum_rows(s->exec, PLAN_GROUP, hidden, all, x);
}
#endif
#endif

#ifdef PLAN_KEEPS_LATENTS
enum { PLAN_OWN_DIM = PLAN_HEAD_DIM - PLAN_SHARED, PLAN_LATENT_QUERY = PLAN_LATENT + PLAN_SHARED };

/* Keeps the layer's latents and what all heads' keys share, which each head of k has: those of a prompt, or
 * of the running token if it is this rank's turn. weight: keys' own elements, then values, from a latent. */
static inline int plan_cache_latents(BurstCtx *c, PlanState *s, int mask, const BurstBf16 *latent,
                                     const BurstBf16 *k, const BurstBf16 *weight, BurstBf16 *cache_latent,
                                     BurstBf16 *cache_shared, char *parts)
{
    enum { K = PLAN_HEADS * PLAN_HEAD_DIM };
    enum { LATENT = PLAN_LATENT * sizeof *k, SHARED = PLAN_SHARED * sizeof *k }; /* bytes */
    PlanInfer *f = &s->infer;
    const cudaStream_t stream = burst_gpu_compute(s->exec);
    f->k = cache_latent;
    f->v = cache_shared;
    f->weight = weight;
    f->parts = (float *)(void *)parts;
    if (f->decodes) {
        PLAN_CUDA(burst_keep_row((const BurstRunning *)(void *)s->buffer.device_running, PLAN_GROUP, s->me,
                                 plan_kept_rows(s, mask), PLAN_LATENT, PLAN_SHARED, latent, k + PLAN_OWN_DIM,
                                 cache_latent, cache_shared, stream));
        return BURST_OK;
    }
    plan_find_kept(s, mask);
    const size_t rows = (size_t)f->kept;
    if (rows == 0)
        return BURST_OK;
    PLAN_CUDA(cudaMemcpyAsync(cache_latent, latent + f->first * PLAN_LATENT, rows * LATENT,
                              cudaMemcpyDeviceToDevice, stream));
    PLAN_CUDA(cudaMemcpy2DAsync(cache_shared, SHARED, k + f->first * K + PLAN_OWN_DIM, K * sizeof *k, SHARED,
                                rows, cudaMemcpyDeviceToDevice, stream));
    return BURST_OK;
}

/* Queries that attend latents, in the parts' scratch; the output of latents is behind them. */
static inline int plan_latent_queries(BurstCtx *c, PlanState *s, const BurstBf16 *q, BurstBf16 **to)
{
    const int64_t parts = PLAN_SPLITS + (PLAN_GROUP > 1 ? 1 + PLAN_GROUP : 0);
    (void)c;
    *to = (BurstBf16 *)(void *)(s->infer.parts + parts * PLAN_PART_WORDS);
    PLAN_CUDA((burst_latent_query<PLAN_LATENT, PLAN_SHARED, PLAN_OWN_DIM>(PLAN_HEADS, q, s->infer.weight, *to,
                                                                          burst_gpu_compute(s->exec))));
    return BURST_OK;
}

static inline int plan_latent_values(BurstCtx *c, PlanState *s, const BurstBf16 *latent, BurstBf16 *o)
{
    const BurstBf16 *weight = s->infer.weight + (int64_t)PLAN_HEADS * PLAN_OWN_DIM * PLAN_LATENT;
    (void)c;
    PLAN_CUDA((burst_latent_value<PLAN_LATENT, PLAN_VALUE_DIM>(PLAN_HEADS, latent, weight, o,
                                                               burst_gpu_compute(s->exec))));
    return BURST_OK;
}
#else
/* Keeps the layer's keys and values: those of a prompt, or of the running token if it is this rank's turn. */
static inline int plan_cache(BurstCtx *c, PlanState *s, int mask, const BurstBf16 *k, const BurstBf16 *v,
                             BurstBf16 *cache_k, BurstBf16 *cache_v, char *parts)
{
    enum { K = PLAN_KV_HEADS * PLAN_HEAD_DIM, V = PLAN_KV_HEADS * PLAN_VALUE_DIM };
    PlanInfer *f = &s->infer;
    const cudaStream_t stream = burst_gpu_compute(s->exec);
    f->k = cache_k;
    f->v = cache_v;
    f->parts = (float *)(void *)parts;
    if (f->decodes) {
        PLAN_CUDA(burst_keep_row((const BurstRunning *)(void *)s->buffer.device_running, PLAN_GROUP, s->me,
                                 plan_kept_rows(s, mask), K, V, k, v, cache_k, cache_v, stream));
        return BURST_OK;
    }
    plan_find_kept(s, mask);
    const size_t rows = (size_t)f->kept;
    PLAN_CUDA(
        cudaMemcpyAsync(cache_k, k + f->first * K, rows * K * sizeof *k, cudaMemcpyDeviceToDevice, stream));
    PLAN_CUDA(
        cudaMemcpyAsync(cache_v, v + f->first * V, rows * V * sizeof *v, cudaMemcpyDeviceToDevice, stream));
    return BURST_OK;
}
#endif

/* Attention of the running token with all that is kept: o [heads][value_dim], lse [heads]. */
static inline int plan_decode_attention(BurstCtx *c, PlanState *s, int mask, const BurstBf16 *q, BurstBf16 *o,
                                        float *lse)
{
    enum { HEADS = PLAN_HEADS, DIM = PLAN_PART_DIM };
    const cudaStream_t stream = burst_gpu_compute(s->exec);
    const PlanInfer *f = &s->infer;
    BurstDecode d = {};
    d.q = q, d.k = f->k, d.v = f->v, d.parts = f->parts;
    d.running = (const BurstRunning *)(void *)s->buffer.device_running;
    d.position = s->tokens[s->me].position;
    d.ranks = PLAN_GROUP, d.rank = s->me;
    d.kept = plan_kept_rows(s, mask);
    d.scale = PLAN_SCALE;
    BURST_TRY(plan_part(s, BURST_P_ATTEND, s->me, s->me));
#ifdef PLAN_KEEPS_LATENTS
    BurstBf16 *queries, *const output = o;
    BURST_TRY(plan_latent_queries(c, s, q, &queries));
    d.q = queries;
    o = queries + PLAN_HEADS * PLAN_LATENT_QUERY;
#endif
    PLAN_CUDA(plan_launch_decode(s, mask, &d));
#if PLAN_GROUP > 1
    float *own = f->parts + (int64_t)PLAN_SPLITS * PLAN_PART_WORDS, *all = own + PLAN_PART_WORDS;
    PLAN_CUDA((burst_merge_parts<DIM, PLAN_SPLITS>(HEADS, f->parts, own, NULL, NULL, stream)));
    BURST_TRY(plan_part(s, BURST_P_IDLE, 0, 0));
    BURST_TRY(plan_gather_same(s, 1, (const BurstAct *)own, 2 * PLAN_PART_WORDS, (BurstAct *)all));
    PLAN_CUDA((burst_merge_parts<DIM, PLAN_GROUP>(HEADS, all, NULL, o, lse, stream)));
#else
    PLAN_CUDA((burst_merge_parts<DIM, PLAN_SPLITS>(HEADS, f->parts, NULL, o, lse, stream)));
#endif
#ifdef PLAN_KEEPS_LATENTS
    BURST_TRY(plan_latent_values(c, s, o, output));
#endif
    return plan_part(s, BURST_P_IDLE, 0, 0);
}

#endif
