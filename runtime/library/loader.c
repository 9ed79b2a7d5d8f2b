/* runtime/library/loader.c: libburst, which a program links: forwards the functions of burst.h to each
 * plan's table. */
#include "library/library.h"

#include <dlfcn.h>
#include <stdio.h>

static _Thread_local char said[LIBRARY_TEXT];

static int bad_call(int status, const char *what, const char *why)
{
    snprintf(said, sizeof said, "%s: %s", what, why);
    return status;
}

int burst_plan_use(const BurstLibrary *library, const BurstGroup *group, BurstPlan **plan)
{
    if (!plan)
        return bad_call(BURST_BAD_ARGUMENT, "burst_plan_open", "plan is NULL");
    *plan = NULL;
    if (!library || library->abi != BURST_ABI)
        return bad_call(BURST_BAD_PLAN, "the plan", "it was made by another burstc: make it again");
    if (!group || group->size < 1 || group->rank < 0 || group->rank >= group->size ||
        (group->size > 1 && !group->all_gather))
        return bad_call(BURST_BAD_ARGUMENT, "burst_plan_open",
                        "the group needs 0 <= rank < size and an all_gather");
    return library->open(library, group, plan, said, sizeof said);
}

/* The plan stays mapped, because threads of the process may be running in it. */
int burst_plan_open(const char *path, const BurstGroup *group, BurstPlan **plan)
{
    if (plan)
        *plan = NULL;
    if (!path)
        return bad_call(BURST_BAD_ARGUMENT, "burst_plan_open", "path is NULL");
    void *file = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const BurstLibrary *library = file ? dlsym(file, "burst_library") : NULL;
    if (!library)
        return bad_call(BURST_BAD_PLAN, path, file ? "it is not a plan" : dlerror());
    return burst_plan_use(library, group, plan);
}

static const BurstLibrary *of_plan(const BurstPlan *plan)
{
    return *(const BurstLibrary *const *)(const void *)plan;
}

static const BurstLibrary *of_batch(const BurstBatch *batch)
{
    return *(const BurstLibrary *const *)(const void *)batch;
}

static int no_batch(const char *call) { return bad_call(BURST_BAD_ARGUMENT, call, "batch is NULL"); }

void burst_plan_close(BurstPlan *plan)
{
    if (plan)
        of_plan(plan)->close(plan);
}

void burst_plan_abort(BurstPlan *plan, const char *reason)
{
    if (plan)
        of_plan(plan)->abort(plan, reason ? reason : "it has given up");
}

const BurstInfo *burst_plan_info(const BurstPlan *plan) { return plan ? of_plan(plan)->info(plan) : NULL; }

size_t burst_plan_bytes(const BurstPlan *plan, BurstSpace space)
{
    return plan ? of_plan(plan)->bytes(plan, space) : 0;
}

const char *burst_error(const BurstPlan *plan) { return plan ? of_plan(plan)->error(plan) : said; }

int burst_batch_make(BurstPlan *plan, const int32_t *cu_seqlens, int documents, const int32_t *const *tables,
                     BurstBatch **batch)
{
    if (batch)
        *batch = NULL;
    if (!plan)
        return bad_call(BURST_BAD_ARGUMENT, "burst_batch_make", "plan is NULL");
    return of_plan(plan)->batch_make(plan, cu_seqlens, documents, tables, batch);
}

int burst_batch_load(BurstBatch *batch, void *memory, void *stream)
{
    if (!batch)
        return no_batch("burst_batch_load");
    return of_batch(batch)->batch_load(batch, memory, stream);
}

void burst_batch_close(BurstBatch *batch)
{
    if (batch)
        of_batch(batch)->batch_close(batch);
}

int64_t burst_batch_rows(const BurstBatch *batch, BurstLayout layout, int32_t *row, int32_t *position)
{
    if (!batch)
        return no_batch("burst_batch_rows");
    return of_batch(batch)->batch_rows(batch, layout, row, position);
}

int burst_attention_forward(BurstBatch *batch, int mask, const void *q, const void *k, const void *v,
                            const float *sinks, float scale, void *o, float *lse, void *workspace,
                            void *stream)
{
    const BurstAttention call = {.mask = mask,
                                 .q = q,
                                 .k = k,
                                 .v = v,
                                 .sinks = sinks,
                                 .scale = scale,
                                 .to_o = o,
                                 .to_lse = lse,
                                 .stream = stream};
    return batch ? of_batch(batch)->forward(batch, &call, workspace) : no_batch("burst_attention_forward");
}

int burst_attention_backward(BurstBatch *batch, int mask, const void *q, const void *k, const void *v,
                             const float *sinks, float scale, const void *o, const float *lse,
                             const void *d_o, const float *d_lse, void *dq, void *dk, void *dv, float *dsinks,
                             void *workspace, void *stream)
{
    const BurstAttention call = {.mask = mask,
                                 .q = q,
                                 .k = k,
                                 .v = v,
                                 .sinks = sinks,
                                 .scale = scale,
                                 .o = o,
                                 .lse = lse,
                                 .d_o = d_o,
                                 .d_lse = d_lse,
                                 .dq = dq,
                                 .dk = dk,
                                 .dv = dv,
                                 .dsinks = dsinks,
                                 .stream = stream};
    return batch ? of_batch(batch)->backward(batch, &call, workspace) : no_batch("burst_attention_backward");
}

int burst_move(BurstBatch *batch, BurstLayout from, BurstLayout to, const void *in, void *out,
               size_t row_bytes, void *stream)
{
    if (!batch)
        return no_batch("burst_move");
    return of_batch(batch)->move(batch, from, to, in, out, row_bytes, stream);
}
