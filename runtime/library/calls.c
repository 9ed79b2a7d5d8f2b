/* runtime/library/calls.c: the calls of burst.h for the plan that this archive is linked with. */
#include "library/library.h"

#include "burst_tables.h"
#include "base/plural.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGN = 64 };

/* For each rank, the rows that this rank has in one layout and the other rank in the other, sorted by
 * token. */
typedef struct Rows {
    int32_t *row, *begin;
} Rows;

struct BurstPlan {
    const BurstLibrary *library;
    const BurstEmitted *emitted;
    BurstInfo info;
    BurstCtx ctx;
    /* [tokens] tokens of all ranks' balanced rows, rank by rank; [ranks + 1] where each rank's begin */
    int32_t *token, *first;
    int32_t *all;           /* [tokens] 0, 1, 2 ... */
    Rows balanced, contiguous; /* this rank's rows in each layout, by the rank that has them in the other */
    char *memory;
};

struct BurstBatch {
    const BurstLibrary *library;
    BurstPlan *plan;
    void *state;
    uint64_t hash;
    BurstTables tables;
    int documents;
    int32_t *cu_seqlens;
    char *arrays;
};

/* ---- statuses ---- */

static int status_of(int code)
{
    switch (code) {
    case BURST_OK: return BURST_SUCCESS;
    case BURST_E_USAGE: return BURST_BAD_ARGUMENT;
    case BURST_E_MEMORY: return BURST_NO_MEMORY;
    case BURST_E_PEER: return BURST_PEERS;
    case BURST_E_DEVICE: return BURST_NO_DEVICE;
    default: return BURST_BAD_PLAN;
    }
}

/* ---- which rows a rank has ---- */

static int64_t contiguous_begin(const BurstPlan *p, int rank)
{
    return p->info.tokens * rank / p->info.ranks;
}

static void find_tokens(BurstPlan *p)
{
    const BurstEmitted *e = p->emitted;
    for (int r = 0, at = 0; r < e->ranks; r++) {
        const int chunk = e->chunk_of(r);
        const int64_t n = e->tokens_of(chunk);
        p->first[r] = at;
        p->first[r + 1] = at + (int32_t)n;
        for (int64_t i = 0; i < n; i++)
            p->token[at++] = (int32_t)e->position(chunk, i);
    }
    for (int32_t i = 0; i < e->sequence; i++)
        p->all[i] = i;
}

/* Groups this rank's balanced rows by the rank that has them in the contiguous layout, each group sorted by
 * token, and vice versa. at: [tokens] scratch. */
static void find_moves(BurstPlan *p, int32_t *owner, int32_t *at)
{
    const int me = p->ctx.rank, ranks = p->info.ranks;
    const int64_t begin = contiguous_begin(p, me), end = contiguous_begin(p, me + 1);
    for (int r = 0; r < ranks; r++)
        for (int32_t i = p->first[r]; i < p->first[r + 1]; i++) {
            owner[p->token[i]] = r;
            at[p->token[i]] = i - p->first[r];
        }
    for (int r = 0, b = 0, c = 0; r < ranks; r++) {
        p->balanced.begin[r] = b;
        for (int64_t t = contiguous_begin(p, r); t < contiguous_begin(p, r + 1); t++)
            if (owner[t] == me)
                p->balanced.row[b++] = at[t];
        p->balanced.begin[r + 1] = b;
        p->contiguous.begin[r] = c;
        for (int64_t t = begin; t < end; t++)
            if (owner[t] == r)
                p->contiguous.row[c++] = (int32_t)(t - begin);
        p->contiguous.begin[r + 1] = c;
    }
}

static bool make_rows(BurstPlan *p)
{
    const size_t n = (size_t)p->info.tokens, ranks = (size_t)p->info.ranks + 1;
    int32_t *at = malloc((4 * n + 3 * ranks) * sizeof *at), *scratch = malloc(2 * n * sizeof *scratch);
    p->memory = (char *)at;
    if (at && scratch) {
        p->token = at, p->all = at + n;
        p->balanced.row = at + 2 * n, p->contiguous.row = at + 3 * n;
        p->first = at + 4 * n, p->balanced.begin = p->first + ranks;
        p->contiguous.begin = p->balanced.begin + ranks;
        find_tokens(p);
        find_moves(p, scratch, scratch + n);
    }
    free(scratch);
    return at && scratch;
}

/* ---- plans ---- */

static BurstInfo info_of(const BurstEmitted *e)
{
    return (BurstInfo){.ranks = e->ranks,
                       .heads = e->heads,
                       .kv_heads = e->kv_heads,
                       .head_dim = e->head_dim,
                       .value_dim = e->value_dim,
                       .tokens = e->sequence,
                       .masks = e->masks,
                       .tables = e->tables,
                       .mask_name = e->mask_name,
                       .table_name = e->table_name,
                       .element_bytes = e->element_bytes,
                       .align = e->open ? 256 : ALIGN,
                       .target = e->target,
                       .layout = e->layout,
                       .hash = e->text_hash};
}

static void close_plan(BurstPlan *p)
{
    if (p->ctx.device && !is_forked(&p->ctx))
        p->emitted->close(p->ctx.device);
    transport_close(&p->ctx);
    free(p->memory);
    free(p);
}

/* connect_ranks exchanges the errors, so no rank returns before all know them. */
static void check_open(BurstPlan *p, const BurstGroup *group)
{
    const BurstEmitted *e = p->emitted;
    if (e->abi != BURST_RT_ABI)
        burst_fail(&p->ctx, BURST_E_PLAN, "the plan was made by another burstc");
    else if (group->size != e->ranks)
        burst_fail(&p->ctx, BURST_E_USAGE, "the plan is for %d rank%s, but the group has %d", e->ranks,
                   plural(e->ranks), group->size);
    else if (!make_rows(p))
        burst_fail(&p->ctx, BURST_E_MEMORY, "out of memory for the rows of %lld tokens",
                   (long long)e->sequence);
}

static int open_group(BurstPlan *p, const BurstGroup *group)
{
    BURST_TRY(transport_open(&p->ctx, group->rank, group->size, p->emitted->requests));
    check_open(p, group);
    if (group->size > 1)
        BURST_TRY(connect_ranks(&p->ctx, group, p->emitted->text_hash));
    return p->ctx.error[0] ? BURST_E_USAGE : BURST_OK;
}

void *burst_library_device(BurstCtx *c) { return c->device; }

static int open_device(BurstPlan *p, const BurstGroup *group)
{
    if (!p->emitted->open)
        return BURST_OK;
    p->ctx.group = group;
    return agree(&p->ctx, p->emitted->open(&p->ctx, &p->ctx.device));
}

static int open_plan(const BurstLibrary *self, const BurstGroup *group, BurstPlan **plan, char *error,
                     size_t size)
{
    BurstPlan *p = calloc(1, sizeof *p);
    *plan = NULL;
    if (!p) {
        snprintf(error, size, "out of memory for a plan");
        return BURST_NO_MEMORY;
    }
    *p = (BurstPlan){.library = self, .emitted = &burst_emitted, .info = info_of(&burst_emitted)};
    int status = open_group(p, group);
    if (status == BURST_OK)
        status = open_device(p, group);
    if (status == BURST_OK) {
        *plan = p;
        return BURST_SUCCESS;
    }
    snprintf(error, size, "%s", p->ctx.error);
    p->ctx.broken = status;
    close_plan(p);
    return status_of(status);
}

static void abort_plan(BurstPlan *p, const char *reason)
{
    BurstCtx *c = &p->ctx;
    if (!is_forked(c))
        (void)call_end(c, burst_fail(c, BURST_E_PEER, "rank %d: %s", c->rank, reason));
}

static const BurstInfo *plan_info(const BurstPlan *p) { return &p->info; }
static const char *plan_error(const BurstPlan *p) { return p->ctx.error; }

static size_t table_bytes(const BurstPlan *p)
{
    return (size_t)p->emitted->tables * (size_t)p->info.tokens * sizeof(int32_t);
}

static size_t plan_bytes(const BurstPlan *p, BurstSpace space)
{
    const BurstEmitted *e = p->emitted;
    switch (space) {
    case BURST_WORKSPACE: return e->workspace_bytes;
    case BURST_BATCH_MEMORY: return e->device_bytes;
    case BURST_HOST_MEMORY: return e->state_bytes + e->batch_bytes + table_bytes(p);
    default: return 0;
    }
}

/* ---- batches ---- */

static uint64_t hash_bytes(uint64_t h, const void *data, size_t bytes)
{
    const unsigned char *at = data;
    for (size_t i = 0; i < bytes; i += 4) {
        uint32_t word;
        memcpy(&word, at + i, sizeof word);
        h = (h ^ word) * UINT64_C(0x9e3779b97f4a7c15);
        h ^= h >> 29;
    }
    return h;
}

static bool reads_documents(const BurstPlan *p)
{
    for (int t = 0; t < p->info.tables; t++)
        if (burst_table_kind(p->info.table_name[t]) != BURST_TABLE_GIVEN)
            return true;
    return false;
}

static int check_documents(BurstPlan *p, const int32_t *cu, int documents, const int32_t *const *tables)
{
    if (documents < 1)
        return burst_fail(&p->ctx, BURST_E_USAGE, "a batch has one document at least, not %d", documents);
    for (int i = 0; i < documents; i++)
        if (cu[i + 1] < cu[i])
            return burst_fail(&p->ctx, BURST_E_USAGE, "cu_seqlens must not fall: [%d] is %d, and [%d] is %d",
                              i, cu[i], i + 1, cu[i + 1]);
    if (cu[0] != 0 || cu[documents] != p->info.tokens)
        return burst_fail(&p->ctx, BURST_E_USAGE,
                          "cu_seqlens goes from %d to %d; it must go from 0 to the plan's %lld tokens: add a "
                          "document of padding where a batch has fewer",
                          cu[0], cu[documents], (long long)p->info.tokens);
    if (documents > 1 && !reads_documents(p))
        return burst_fail(&p->ctx, BURST_E_USAGE,
                          "a batch of %d documents needs masks that read the table doc, such as `causal and "
                          "doc[q] == doc[k]`: with those of this plan they would attend to each other",
                          documents);
    for (int t = 0; t < p->info.tables; t++)
        if (burst_table_kind(p->info.table_name[t]) == BURST_TABLE_GIVEN && !(tables && tables[t]))
            return burst_fail(&p->ctx, BURST_E_USAGE, "the masks read the table %s, which is not given",
                              p->info.table_name[t]);
    return BURST_OK;
}

static void fill_tables(BurstBatch *b, const int32_t *const *tables, int32_t *to)
{
    const BurstPlan *p = b->plan;
    const int64_t n = p->info.tokens;
    for (int t = 0; t < p->info.tables; t++, to += n) {
        b->tables.table[t] = to;
        if (tables && tables[t])
            memcpy(to, tables[t], (size_t)n * sizeof *to);
        const BurstTableKind kind = burst_table_kind(p->info.table_name[t]);
        for (int d = 0; d < b->documents && !(tables && tables[t]); d++) {
            const BurstDocument document = {d, b->cu_seqlens[d], b->cu_seqlens[d + 1]};
            burst_document_fill(kind, &document, to);
        }
        b->hash = hash_bytes(b->hash, to, (size_t)n * sizeof *to);
    }
}

static void close_batch(BurstBatch *b)
{
    free(b->cu_seqlens);
    free(b->arrays);
    free(b);
}

static size_t aligned(size_t bytes) { return (bytes + ALIGN - 1) / ALIGN * ALIGN; }

/* Stores its state, arrays and tables in one allocation. */
static int fill_batch(BurstBatch *b, const int32_t *const *tables)
{
    BurstPlan *p = b->plan;
    const BurstEmitted *e = p->emitted;
    BurstCtx *c = &p->ctx;
    const size_t state = aligned(e->state_bytes), all = state + aligned(e->batch_bytes) + table_bytes(p);
    b->arrays = aligned_alloc(ALIGN, aligned(all));
    if (!b->arrays)
        return burst_fail(c, BURST_E_MEMORY, "out of memory for a batch of %zu bytes", all);
    memset(b->arrays, 0, state + e->batch_bytes);
    b->state = b->arrays;
    c->arena = b->arrays + state;
    c->arena_bytes = aligned(e->batch_bytes);
    c->used = 0;
    b->hash = hash_bytes(p->info.hash, b->cu_seqlens, (size_t)(b->documents + 1) * sizeof *b->cu_seqlens);
    fill_tables(b, tables, (int32_t *)(void *)(b->arrays + state + aligned(e->batch_bytes)));
    return e->start(c, b->state, e->tables ? &b->tables : NULL);
}

static int make_batch(BurstPlan *p, const int32_t *cu_seqlens, int documents, const int32_t *const *tables,
                      BurstBatch **batch)
{
    const int32_t whole[] = {0, (int32_t)p->info.tokens};
    const int32_t *cu = cu_seqlens ? cu_seqlens : whole;
    documents = cu_seqlens ? documents : 1;
    if (!batch)
        return status_of(burst_fail(&p->ctx, BURST_E_USAGE, "burst_batch_make: batch is NULL"));
    int status = check_documents(p, cu, documents, tables);
    if (status != BURST_OK)
        return status_of(status);
    BurstBatch *b = calloc(1, sizeof *b);
    const size_t bytes = (size_t)(documents + 1) * sizeof *cu;
    if (b)
        *b = (BurstBatch){.library = p->library,
                          .plan = p,
                          .documents = documents,
                          .cu_seqlens = malloc(bytes)};
    if (!b || !b->cu_seqlens) {
        free(b);
        return status_of(burst_fail(&p->ctx, BURST_E_MEMORY, "out of memory for a batch"));
    }
    memcpy(b->cu_seqlens, cu, bytes);
    status = fill_batch(b, tables);
    if (status == BURST_OK)
        *batch = b;
    else
        close_batch(b);
    return status_of(status);
}

static int load_batch(BurstBatch *b, void *memory, void *stream)
{
    const BurstEmitted *e = b->plan->emitted;
    BurstCtx *c = &b->plan->ctx;
    if (e->device_bytes && (!memory || (uintptr_t)memory % 256))
        return status_of(
            burst_fail(c, BURST_E_USAGE, "the batch's memory is NULL or not aligned to 256 bytes"));
    return e->load ? status_of(e->load(c, b->state, memory, stream)) : BURST_SUCCESS;
}

static int32_t position_of(const BurstBatch *b, int32_t token)
{
    int lo = 0, hi = b->documents;
    while (hi - lo > 1) {
        const int mid = lo + (hi - lo) / 2;
        *(b->cu_seqlens[mid] <= token ? &lo : &hi) = mid;
    }
    return token - b->cu_seqlens[lo];
}

static int64_t batch_rows(const BurstBatch *b, BurstLayout layout, int32_t *row, int32_t *position)
{
    const BurstPlan *p = b->plan;
    const int me = p->ctx.rank;
    const int32_t *token = p->all;
    int64_t n = p->info.tokens;
    if (layout == BURST_BALANCED) {
        token = p->token + p->first[me];
        n = p->first[me + 1] - p->first[me];
    } else if (layout == BURST_CONTIGUOUS) {
        token = p->all + contiguous_begin(p, me);
        n = contiguous_begin(p, me + 1) - contiguous_begin(p, me);
    } else if (layout != BURST_REPLICATED) {
        return BURST_BAD_ARGUMENT;
    }
    for (int64_t i = 0; i < n && row; i++)
        row[i] = token[i];
    for (int64_t i = 0; i < n && position; i++)
        position[i] = position_of(b, token[i]);
    return n;
}

/* ---- attention ---- */

/* Does not tell the other ranks: they call with the process that opened the plan. */
static int refuse_fork(BurstCtx *c)
{
    return burst_fail(
        c, BURST_E_USAGE,
        "rank %d: process %ld opened the plan, and a process forked from it cannot call it; open "
        "the plan after the fork",
        c->rank, (long)c->owner);
}

static int check_attention(const BurstBatch *b, const BurstAttention *a, const void *workspace, bool backward)
{
    BurstCtx *c = &b->plan->ctx;
    const BurstInfo *info = &b->plan->info;
    if (a->mask < 0 || a->mask >= info->masks)
        return burst_fail(c, BURST_E_USAGE, "rank %d: mask %d does not exist; the plan has %d", c->rank,
                          a->mask, info->masks);
    if (!workspace || (uintptr_t)workspace % info->align)
        return burst_fail(c, BURST_E_USAGE, "rank %d: the workspace is NULL or not aligned to %zu bytes",
                          c->rank, info->align);
    if (!(a->scale > 0 && isfinite(a->scale))) /* kernels take a row's maximum before they scale it */
        return burst_fail(c, BURST_E_USAGE, "rank %d: the scale %g is not a finite number above 0", c->rank,
                          (double)a->scale);
    const bool there = a->q && a->k && a->v &&
                       (backward ? a->o && a->lse && a->d_o && a->dq && a->dk && a->dv
                                 : a->to_o && a->to_lse);
    if (!there && batch_rows(b, BURST_BALANCED, NULL, NULL) > 0)
        return burst_fail(c, BURST_E_USAGE, "rank %d: an array is NULL", c->rank);
    return BURST_OK;
}

static int attend(BurstBatch *b, const BurstAttention *call, char *workspace, bool backward)
{
    const BurstEmitted *e = b->plan->emitted;
    BurstCtx *c = &b->plan->ctx;
    BurstAttention a = *call;
    const Call k = {.what = backward ? CALL_BACKWARD : CALL_FORWARD,
                    .batch = b->hash,
                    .mask = a.mask,
                    .scale = a.scale,
                    .with = (a.sinks != NULL) | (uint32_t)(a.d_lse != NULL) << 1};
    if (is_forked(c))
        return status_of(refuse_fork(c));
    if (a.scale == 0)
        a.scale = 1 / sqrtf((float)e->head_dim);
    /* checked before others see the call: one that needs nothing from this rank would succeed */
    int status = c->broken ? c->broken : check_attention(b, &a, workspace, backward);
    if (status == BURST_OK)
        status = call_begin(c, &k);
    if (status == BURST_OK && e->open) /* before anything is queued that waits for other ranks */
        status = call_agreed(c);
    if (status == BURST_OK) {
        e->place(b->state, workspace);
        status = (backward ? e->backward : e->forward)(c, b->state, &a);
    }
    return status_of(call_end(c, status));
}

static int forward(BurstBatch *b, const BurstAttention *call, void *workspace)
{
    return attend(b, call, workspace, false);
}

static int backward(BurstBatch *b, const BurstAttention *call, void *workspace)
{
    return attend(b, call, workspace, true);
}

/* ---- rows from one layout to another ---- */

static void take_rows(const char *in, const int32_t *row, int64_t n, size_t bytes, char *out)
{
    for (int64_t i = 0; i < n; i++)
        memcpy(out + (size_t)i * bytes, in + (size_t)row[i] * bytes, bytes);
}

/* Between the balanced and contiguous layouts. */
static int exchange_rows(BurstCtx *c, const Rows *from, const Rows *to, const char *in, char *out,
                         size_t bytes)
{
    const int me = c->rank;
    BurstReq req;
    for (int i = 1; i < c->world; i++) {
        const int r = (me + i) % c->world, s = (me + c->world - i) % c->world;
        if (from->begin[r] < from->begin[r + 1])
            BURST_TRY(send_listed(c, r, in, from->row + from->begin[r], from->begin[r + 1] - from->begin[r],
                                  bytes, &req));
        if (to->begin[s] == to->begin[s + 1])
            continue;
        BURST_TRY(
            receive_listed(c, s, out, to->row + to->begin[s], to->begin[s + 1] - to->begin[s], bytes, &req));
        BURST_TRY(burst_wait(c, &req));
    }
    for (int32_t i = from->begin[me], j = to->begin[me]; i < from->begin[me + 1]; i++, j++)
        memcpy(out + (size_t)to->row[j] * bytes, in + (size_t)from->row[i] * bytes, bytes);
    return BURST_OK;
}

/* Sends every rank's rows to all ranks. token: of all ranks' rows, rank by rank; first [ranks + 1]. */
static int gather_rows(BurstPlan *p, bool balanced, const char *in, char *out, size_t bytes)
{
    BurstCtx *c = &p->ctx;
    BurstReq req;
    const int32_t *token = balanced ? p->token : p->all;
    for (int i = 0; i < c->world; i++) {
        const int to = (c->rank + i) % c->world, from = (c->rank + c->world - i) % c->world;
        const int64_t mine = balanced ? p->first[c->rank] : contiguous_begin(p, c->rank),
                      end = balanced ? p->first[c->rank + 1] : contiguous_begin(p, c->rank + 1),
                      first = balanced ? p->first[from] : contiguous_begin(p, from),
                      last = balanced ? p->first[from + 1] : contiguous_begin(p, from + 1);
        for (int64_t j = mine; j < end && i == 0; j++)
            memcpy(out + (size_t)token[j] * bytes, in + (size_t)(j - mine) * bytes, bytes);
        if (i && mine < end)
            BURST_TRY(send_listed(c, to, in, p->all, end - mine, bytes, &req));
        if (!i || first == last)
            continue;
        BURST_TRY(receive_listed(c, from, out, token + first, last - first, bytes, &req));
        BURST_TRY(burst_wait(c, &req));
    }
    return BURST_OK;
}

static int move_rows(BurstBatch *b, BurstLayout from, BurstLayout to, const char *in, char *out, size_t bytes)
{
    BurstPlan *p = b->plan;
    const int me = p->ctx.rank;
    const int64_t begin = contiguous_begin(p, me), end = contiguous_begin(p, me + 1);
    if (from == to)
        memcpy(out, in, (size_t)batch_rows(b, from, NULL, NULL) * bytes);
    else if (from == BURST_REPLICATED && to == BURST_BALANCED)
        take_rows(in, p->token + p->first[me], p->first[me + 1] - p->first[me], bytes, out);
    else if (from == BURST_REPLICATED)
        memcpy(out, in + (size_t)begin * bytes, (size_t)(end - begin) * bytes);
    else if (to == BURST_REPLICATED)
        return gather_rows(p, from == BURST_BALANCED, in, out, bytes);
    else
        return from == BURST_BALANCED ? exchange_rows(&p->ctx, &p->balanced, &p->contiguous, in, out, bytes)
                                      : exchange_rows(&p->ctx, &p->contiguous, &p->balanced, in, out, bytes);
    return BURST_OK;
}

static int check_move(const BurstBatch *b, BurstLayout from, BurstLayout to, const void *in, const void *out,
                      size_t bytes)
{
    BurstCtx *c = &b->plan->ctx;
    if ((unsigned)from > BURST_REPLICATED || (unsigned)to > BURST_REPLICATED || bytes == 0)
        return burst_fail(c, BURST_E_USAGE, "rank %d: no such layout, or rows of 0 bytes", c->rank);
    if (b->plan->emitted->open)
        return burst_fail(c, BURST_E_USAGE, "rows on GPUs are not moved by burst_move yet");
    if ((!in && batch_rows(b, from, NULL, NULL)) || (!out && batch_rows(b, to, NULL, NULL)))
        return burst_fail(c, BURST_E_USAGE, "rank %d: an array is NULL", c->rank);
    return BURST_OK;
}

static int move(BurstBatch *b, BurstLayout from, BurstLayout to, const void *in, void *out, size_t bytes,
                void *stream)
{
    BurstCtx *c = &b->plan->ctx;
    const Call k = {.what = CALL_MOVE, .batch = b->hash, .from = from, .to = to, .row_bytes = bytes};
    (void)stream;
    if (is_forked(c))
        return status_of(refuse_fork(c));
    int status = c->broken ? c->broken : check_move(b, from, to, in, out, bytes);
    if (status == BURST_OK)
        status = call_begin(c, &k);
    if (status == BURST_OK)
        status = move_rows(b, from, to, in, out, bytes);
    return status_of(call_end(c, status));
}

__attribute__((visibility("default"))) const BurstLibrary burst_library = {.abi = BURST_ABI,
                                                                           .open = open_plan,
                                                                           .close = close_plan,
                                                                           .abort = abort_plan,
                                                                           .info = plan_info,
                                                                           .bytes = plan_bytes,
                                                                           .error = plan_error,
                                                                           .batch_make = make_batch,
                                                                           .batch_load = load_batch,
                                                                           .batch_close = close_batch,
                                                                           .batch_rows = batch_rows,
                                                                           .forward = forward,
                                                                           .backward = backward,
                                                                           .move = move};
