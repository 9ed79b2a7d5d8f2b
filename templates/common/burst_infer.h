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

#ifdef PLAN_SPLIT_PRODUCTS
/* Gathers rows of a product, of which this rank has computed rows `first` to first + each, in the order of
 * ranks. */
static int plan_gather_rows(BurstCtx *c, PlanState *s, BurstGroup ranks, int64_t first, int64_t each,
                            BurstAct *y);

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
    return plan_gather_rows(c, s, ranks, first, each, y);
}

/* The next token. Of a later token each rank that shares the prompt computes a part of the logits. */
static inline int plan_next_token(BurstCtx *c, PlanState *s, int hidden, int vocab, int tensors,
                                  double softcap, double bias_scale, const BurstAct *x, const BurstAct *w,
                                  char *scratch)
{
    enum { WORDS = sizeof(float) / sizeof(BurstAct) };
    const PlanInfer *f = &s->infer;
    const BurstGroup ranks = burst_unit_group(c, 1);
    const int each = vocab / PLAN_GROUP, first = (burst_rank(c) - ranks.first) / ranks.stride * each;
    float *logits = (float *)(void *)scratch;
    if (!f->decodes || ranks.count != PLAN_GROUP || vocab % PLAN_SPLIT_PRODUCTS != 0)
        return burst_op_next(s->exec, f->last, hidden, vocab, tensors, softcap, bias_scale, x, w, f->found,
                             scratch);
    if (s->own == 0)
        return BURST_OK; /* ranks that share layers with these have the token */
    BURST_TRY(burst_op_head_logits(s->exec, hidden, first, each, x, w, logits));
    BURST_TRY(plan_gather_rows(c, s, ranks, first * WORDS, each * WORDS, (BurstAct *)(void *)scratch));
    if (f->last < 0)
        return BURST_OK;
    return burst_op_head_greatest(s->exec, hidden, vocab, tensors, softcap, bias_scale, w, f->found, logits);
}
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
