/* evaluate.c: see evaluate.h. Batches are read like training's, but from another file and in its order;
 * after its last sequence no token counts. */
#include "report/evaluate.h"

#include "core/context.h"
#include "core/signals.h"
#include "data/data.h"

#include <math.h>

bool evaluate_due(const Options *o, int64_t done)
{
    return o->evaluation && (done == o->steps || (o->evaluate_every > 0 && done % o->evaluate_every == 0));
}

/* The requested number, or all that the file has. */
static int64_t batches_of(const BurstCtx *c, const Options *o, int64_t sequences)
{
    const int64_t all = (sequences + c->train->batch - 1) / c->train->batch;
    return o->evaluate_steps > 0 && o->evaluate_steps < all ? o->evaluate_steps : all;
}

int evaluate_ready(BurstCtx *c, const BurstPlan *p, const Options *o, int64_t done)
{
    int64_t sequences;
    if (!o->evaluation || (!o->evaluate && done >= o->steps))
        return BURST_OK;
    return data_evaluation_ready(c, p, &sequences);
}

int evaluate_owed(BurstCtx *c, const Options *o, const Progress *show, int64_t done, bool *owed)
{
    double value = c->rank == 0 && !progress_evaluated(show);
    *owed = false;
    if (done == 0 || o->steps == 0 || !evaluate_due(o, done))
        return BURST_OK;
    BURST_TRY(burst_allreduce(c, (BurstGroup){0, 1, c->world}, &value, 1));
    *owed = value > 0;
    return BURST_OK;
}

static int losses(BurstCtx *c, const BurstPlan *p, void *state, BurstWeights *w, int64_t batches,
                  BurstStep *all)
{
    double loss = 0;
    for (int64_t i = 0; i < batches; i++) {
        BurstStep r = {0};
        BURST_TRY(heed_termination(c));
        BURST_TRY(p->evaluate(c, state, w, i, &r));
        loss += r.loss * r.tokens;
        all->tokens += r.tokens;
    }
    all->loss = loss / all->tokens;
    return BURST_OK;
}

/* A file in which no token counts has no mean. */
static int check(BurstCtx *c, const BurstStep *r, int64_t done)
{
    if (r->tokens <= 0)
        return burst_fail(c, BURST_E_IO, "no token of '%s' counts in the loss", c->train->evaluate->path);
    if (isfinite(r->loss))
        return BURST_OK;
    return burst_fail(c, BURST_E_NUMERIC, "the loss on '%s' after %lld steps is %s", c->train->evaluate->path,
                      (long long)done, isnan(r->loss) ? "not a number" : "infinite");
}

int evaluate(BurstCtx *c, const BurstPlan *p, const Options *o, Progress *show, void *state, BurstWeights *w,
             int64_t done)
{
    BurstStep r = {0};
    int64_t sequences;
    const double begin = burst_seconds();
    if (!p->evaluate)
        return burst_fail(c, BURST_E_PLAN, "the program cannot evaluate");
    BURST_TRY(data_evaluation_ready(c, p, &sequences));
    const int64_t batches = batches_of(c, o, sequences);
    burst_doing(c, "evaluation");
    data_swap(c);
    const int status = losses(c, p, state, w, batches, &r);
    data_swap(c);
    BURST_TRY(status);
    BURST_TRY(check(c, &r, done));
    return progress_evaluation(show, c, o, done, batches, &r, burst_seconds() - begin);
}
