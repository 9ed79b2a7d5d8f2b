/* burst_infer.h: the entry points of a program that infers: a prompt, and one more token. */
#ifndef BURST_INFER_H
#define BURST_INFER_H

/* Defined in burst_infer_host.h or burst_infer_cuda.cuh. */
static int plan_infer_begin(BurstCtx *c, PlanState *s); /* the sequence's tokens and positions are known */
static int plan_infer_run(BurstCtx *c, PlanState *s);   /* the list of operations */
static int plan_infer_end(BurstCtx *c, PlanState *s, int32_t *next); /* waits; the token that was found */
static int plan_infer_logits(BurstCtx *c, PlanState *s, float **logits); /* in the host's memory */
static void plan_infer_one(PlanState *s); /* from here on the sequence is one token */
/* Copies the prompt's last row of x, which the rank with infer.end has, to the first of each rank. scratch:
 * of a device, a row for each rank that shares the prompt, if there are several. */
static int plan_move_row(BurstCtx *c, PlanState *s, int64_t width, BurstAct *x, char *scratch);

/* The first of a chunk's tokens, which are in the order of positions, at `position` or after it. */
static inline int64_t plan_row_from(const BurstChunk *k, int64_t position)
{
    int64_t first = 0, end = k->tokens;
    while (first < end) {
        const int64_t middle = (first + end) / 2;
        if (k->position[middle] < position)
            first = middle + 1;
        else
            end = middle;
    }
    return first;
}

/* Of a prompt, what later tokens can see under the mask. */
static inline void plan_find_kept(PlanState *s, int mask)
{
    PlanInfer *f = &s->infer;
    const int64_t reach = plan_reach[mask];
    const BurstChunk *own = &s->chunk[s->me];
    f->first = reach ? plan_row_from(own, f->prompt - reach) : 0;
    f->kept = reach ? plan_row_from(own, f->prompt) - f->first : f->rows;
}

/* The tokens that this rank owns of the running sequence, which has n of its chunk's. */
static inline BurstOwn plan_owned(const BurstCtx *c, PlanState *s)
{
    const BurstOwn own = burst_own_tokens(&burst_plan, burst_rank(c), s->n);
    s->own = own.tokens;
    s->each = own.each;
    return own;
}

/* In the last layer, after a prompt's keys are kept: its last token goes on alone, on all ranks alike. */
static inline int plan_last_token(BurstCtx *c, PlanState *s, int layer, int64_t *n, int64_t width,
                                  BurstAct *x, char *scratch)
{
    PlanInfer *f = &s->infer;
    if (layer < PLAN_LAYERS - 1 || !f->ends)
        return BURST_OK;
    BURST_TRY(plan_move_row(c, s, width, x, scratch));
    plan_infer_one(s);
    f->decodes = true;
    f->last = s->me == 0 ? 0 : -1;
    s->n = *n = 1;
    plan_owned(c, s);
    return BURST_OK;
}

#ifdef PLAN_SCAN_COLUMNS
/* A prompt is a document. */
static inline void plan_running_pieces(PlanState *s)
{
    static const int64_t one[] = {0, 1};
    if (s->infer.decodes)
        s->pieces = (BurstPieces){1, one};
#ifndef PLAN_SCAN_PIECES
    else
        s->scan_rows[1] = s->n, s->pieces = (BurstPieces){1, s->scan_rows};
#endif
}
#endif

#if defined PLAN_SPLIT_PRODUCTS || defined PLAN_SLICES
/* Gathers rows of a product, of which this rank has computed `each` from row `first` on, over the ranks that
 * share the unit and in their order. The last ranks may have fewer rows of all, or none; on a device all have
 * as many. */
static int plan_gather_rows(BurstCtx *c, PlanState *s, int unit, int64_t first, int64_t each, int64_t rows,
                            BurstAct *y);
#endif

#ifdef PLAN_SPLIT_PRODUCTS
/* A product of the step. Of a later token each rank that shares the prompt computes a part of the rows. */
static inline int plan_linear(BurstCtx *c, PlanState *s, int64_t n, int in, int out, int tensors,
                              const BurstAct *x, const BurstAct *w, const BurstAct *add, BurstAct *y)
{
    const BurstGroup ranks = burst_unit_group(c, 1); /* of a layer's weights */
    const int64_t rows = (int64_t)tensors * out, each = rows / PLAN_GROUP;
    if (!s->infer.decodes || n != 1 || ranks.count != PLAN_GROUP || rows % PLAN_SPLIT_PRODUCTS != 0)
        return burst_op_linear(s->exec, n, in, out, tensors, x, w, add, y);
    const int64_t first = (burst_rank(c) - ranks.first) / ranks.stride * each;
    BURST_TRY(burst_op_linear(s->exec, 1, in, (int)each, 1, x, w + first * in, add ? add + first : NULL,
                              y + first));
    return plan_gather_rows(c, s, 1, first, each, rows, y);
}

/* The next token. Of a later token each rank that shares the prompt computes a part of the logits. */
static inline int plan_next_token(BurstCtx *c, PlanState *s, int hidden, int vocab, double softcap,
                                  double bias_scale, const BurstAct *x, const BurstAct *w,
                                  const BurstAct *bias, char *scratch)
{
    enum { WORDS = sizeof(float) / sizeof(BurstAct) };
    const PlanInfer *f = &s->infer;
    const BurstGroup ranks = burst_unit_group(c, 1);
    const int each = vocab / PLAN_GROUP, first = (burst_rank(c) - ranks.first) / ranks.stride * each;
    float *logits = (float *)(void *)scratch;
    if (!f->decodes || ranks.count != PLAN_GROUP || vocab % PLAN_SPLIT_PRODUCTS != 0)
        return burst_op_next(s->exec, f->last, hidden, vocab, softcap, bias_scale, x, w, bias, f->found,
                             scratch);
    if (s->own == 0)
        return BURST_OK; /* ranks that share layers with these have the token */
    BURST_TRY(burst_op_head_logits(s->exec, hidden, first, each, x, w, logits));
    BURST_TRY(
        plan_gather_rows(c, s, 1, first * WORDS, each * WORDS, vocab * WORDS, (BurstAct *)(void *)scratch));
    if (f->last < 0)
        return BURST_OK;
    return burst_op_head_greatest(s->exec, vocab, softcap, bias_scale, bias, f->found, logits);
}
#endif

#ifdef PLAN_SLICES
/* ---- weights in slices: each rank multiplies a later token by its own; prompts gather them. Operations with
 * slices get a matrix as gathered, and the rank's slice of it ---- */

/* A rank's part of so many rows, slices of `each`. */
typedef struct PlanSliceRows {
    int64_t first, count;
} PlanSliceRows;

/* Weights of a layer, or of the embedding and the head: the rank's shard or the gathered unit. */
static inline BurstAct *plan_weights(const PlanState *s, BurstAct *shard, BurstAct *gathered)
{
    return s->infer.sliced ? shard : gathered;
}

static inline int plan_slice_member(const BurstCtx *c, int unit)
{
    const BurstGroup ranks = burst_unit_group(c, unit);
    return (burst_rank(c) - ranks.first) / ranks.stride;
}

static inline PlanSliceRows plan_slice_rows(const BurstCtx *c, int unit, int64_t each, int64_t rows)
{
    const int64_t at = plan_slice_member(c, unit) * each, first = at < rows ? at : rows;
    return (PlanSliceRows){first, each < rows - first ? each : rows - first};
}

static inline int plan_linear_slices(BurstCtx *c, PlanState *s, int64_t n, int in, int out, int tensors,
                                     const BurstAct *x, const BurstAct *w, const BurstAct *slice,
                                     const BurstAct *add, BurstAct *y)
{
    const int64_t rows = (int64_t)tensors * out, ranks = burst_unit_group(c, 1).count;
    if (!s->infer.sliced || n == 0)
        return burst_op_linear(s->exec, n, in, out, tensors, x, w, add, y);
    const PlanSliceRows own = plan_slice_rows(c, 1, (rows + ranks - 1) / ranks, rows);
    if (own.count > 0)
        BURST_TRY(burst_op_linear(s->exec, 1, in, (int)own.count, 1, x, slice, add ? add + own.first : NULL,
                                  y + own.first));
    return plan_gather_rows(c, s, 1, own.first, own.count, rows, y);
}

/* Of the target. Copies to x, on all ranks, the token's row of the rank whose slice has it, which begins with
 * row `first`. scratch: of a device, a row for each rank. */
static int plan_embed_slice(BurstCtx *c, PlanState *s, int64_t first, int hidden, const int32_t *token,
                            const BurstAct *slice, BurstAct *x, char *scratch);
/* Gives all tensor ranks the head's row, which the first of them has. scratch: where they get it, with a
 * place for each. */
static int plan_share_head_row(BurstCtx *c, PlanState *s, int hidden, const BurstAct **x, char *scratch);

static inline int plan_embed(BurstCtx *c, PlanState *s, int64_t n, int hidden, const int32_t *token,
                             const BurstAct *w, const BurstAct *slice, BurstAct *x, char *scratch)
{
    if (!s->infer.sliced)
        return burst_op_embed(s->exec, n, hidden, token, w, x);
    const int64_t first = (int64_t)plan_slice_member(c, PLAN_EMBED) * PLAN_SLICES;
    return plan_embed_slice(c, s, first, hidden, token, slice, x, scratch);
}

/* The next token. scratch: logits of all ranks' rows, and behind them the head's row. */
static inline int plan_next_slices(BurstCtx *c, PlanState *s, int hidden, int vocab, double softcap,
                                   double bias_scale, const BurstAct *x, const BurstAct *w,
                                   const BurstAct *slice, const BurstAct *bias, char *scratch)
{
    enum { WORDS = sizeof(float) / sizeof(BurstAct), ROWS = PLAN_WORLD * PLAN_SLICES };
    const PlanInfer *f = &s->infer;
    float *logits = (float *)(void *)scratch;
    if (!f->sliced)
        return burst_op_next(s->exec, f->last, hidden, vocab, softcap, bias_scale, x, w, bias, f->found,
                             scratch);
    const int64_t first = (int64_t)plan_slice_member(c, PLAN_HEAD) * PLAN_SLICES;
    BURST_TRY(plan_share_head_row(c, s, hidden, &x, (char *)(logits + ROWS)));
    BURST_TRY(burst_op_head_logits(s->exec, hidden, 0, PLAN_SLICES, x, slice, logits + first));
    BURST_TRY(plan_gather_rows(c, s, PLAN_HEAD, first * WORDS, PLAN_SLICES * WORDS, ROWS * WORDS,
                               (BurstAct *)(void *)scratch));
    if (f->last < 0)
        return BURST_OK;
    return burst_op_head_greatest(s->exec, vocab, softcap, bias_scale, bias, f->found, logits);
}

#ifdef PLAN_SLICE_EXPERTS
/* Each rank multiplies a later token by the experts that it has; ranks add up the results. */
static inline void plan_slice_experts(const BurstCtx *c, PlanState *s)
{
    BurstExperts *own = &s->infer.experts;
    *own = plan_experts;
    own->experts = PLAN_SLICE_EXPERTS;
    own->first = plan_slice_member(c, 1) * PLAN_SLICE_EXPERTS;
    own->rows = PLAN_TOP < PLAN_SLICE_EXPERTS ? PLAN_TOP : PLAN_SLICE_EXPERTS;
}

static inline const BurstExperts *plan_running_experts(const PlanState *s)
{
    return s->infer.sliced ? &s->infer.experts : &plan_experts;
}

static inline const BurstAct *plan_slice(const PlanState *s, const BurstAct *w, const BurstAct *slice)
{
    return s->infer.sliced ? slice : w;
}

/* The running experts' biases among all experts'. */
static inline const BurstAct *plan_expert_biases(const PlanState *s, const BurstAct *bias)
{
    const BurstExperts *m = plan_running_experts(s);
    return bias + (int64_t)m->first * burst_experts_columns(m);
}

/* Of the target: x of all ranks that share a layer added up, on each. scratch: of a device. */
static int plan_add_slices(BurstCtx *c, PlanState *s, int hidden, BurstAct *x, char *scratch);

static inline int plan_experts_sum(BurstCtx *c, PlanState *s, int64_t n, int hidden, const BurstAct *rows,
                                   const int32_t *slot, const BurstAct *add, BurstAct *y, char *scratch)
{
    const bool adds = !s->infer.sliced || plan_slice_member(c, 1) == 0;
    BURST_TRY(
        burst_op_experts_sum(s->exec, n, plan_running_experts(s), hidden, rows, slot, adds ? add : NULL, y));
    return s->infer.sliced && n > 0 ? plan_add_slices(c, s, hidden, y, scratch) : BURST_OK;
}
#endif
#endif

/* Runs the list; *next: the token after the sequence's last, on all ranks. */
static inline int plan_run_infer(BurstCtx *c, PlanState *s, int32_t *next)
{
    int32_t found = 0;
    BURST_TRY(plan_infer_begin(c, s));
    BURST_TRY(plan_infer_run(c, s));
    s->sequence = 1; /* weights are there from now on */
    BURST_TRY(plan_infer_end(c, s, &found));
    double value = s->infer.last < 0 ? 0 : found;
    const BurstGroup all = {0, 1, PLAN_WORLD};
    BURST_TRY(burst_allreduce(c, all, &value, 1));
    *next = (int32_t)value;
    return BURST_OK;
}

/* Takes a prompt of n tokens, which the length holds. own: storage for this rank's tokens. */
static inline int plan_prompt(BurstCtx *c, void *state, int length, const int32_t *token, int64_t n,
                              int32_t *own, int32_t *next)
{
    PlanState *s = (PlanState *)state;
    PlanInfer *f = &s->infer;
    plan_length = length;
    BURST_TRY(plan_chunks(c, s));
    BURST_TRY(plan_live(c, s, NULL));
    const BurstOwn mine = plan_owned(c, s);
    memset(f, 0, sizeof *f);
    f->prompt = n, f->rows = s->n, f->last = -1;
    f->at[0] = (BurstPosition)(n - 1);
    f->more = -1; /* its last token's keys are among the prompt's */
    for (int64_t i = 0; i < mine.tokens; i++) {
        const int64_t position = s->chunk[s->me].position[mine.first + i];
        own[i] = position < n ? token[position] : 0;
        f->last = position == n - 1 ? i : f->last;
    }
    f->own = own;
    f->end = f->last;
    f->ends = true;
    BURST_TRY(plan_run_infer(c, s, next));
    f->more = 0;
    return BURST_OK;
}

/* Continues by a token. */
static inline int plan_token(BurstCtx *c, void *state, int32_t token, int32_t *next)
{
    PlanState *s = (PlanState *)state;
    PlanInfer *f = &s->infer;
#ifdef PLAN_SLICES
    f->sliced = true;
#endif
#ifdef PLAN_SLICE_EXPERTS
    plan_slice_experts(c, s);
#endif
    if (f->more == PLAN_NEW_TOKENS)
        return burst_fail(c, BURST_E_PLAN, "the cache holds %d tokens after a prompt", PLAN_NEW_TOKENS);
    f->decodes = true;
    f->ends = false;
    f->at[0] = (BurstPosition)(f->prompt + f->more);
    f->token[0] = token;
    s->n = 1;
    const BurstOwn mine = plan_owned(c, s);
    f->last = mine.tokens > 0 && s->me == 0 ? 0 : -1; /* all ranks compute it */
    BURST_TRY(plan_run_infer(c, s, next));
    f->more++;
    return BURST_OK;
}

/* Logits of the last token, on all ranks. */
static inline int plan_logits(BurstCtx *c, void *state, float **logits)
{
    PlanState *s = (PlanState *)state;
    const BurstGroup all = {0, 1, PLAN_WORLD};
    BURST_TRY(plan_infer_logits(c, s, logits));
    if (s->infer.last < 0)
        memset(*logits, 0, PLAN_VOCAB * sizeof **logits);
    return burst_sum_over(c, all, *logits, PLAN_VOCAB);
}

#endif
