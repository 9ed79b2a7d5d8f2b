/* safetensors/read.c: reads a Hugging Face folder's tensors into this rank's shards, for any world size:
 * each rank reads only the bytes that it holds. */
#include "safetensors/safetensors.h"

#include "core/context.h"

#include <math.h>
#include <stdlib.h>

enum { TIED_BLOCK = 1 << 14 }; /* elements */

/* Refuses NaN and infinity: training from them has no finite value after the first step. */
static int check_finite(BurstCtx *c, const StTensor *t, int64_t first, const float *value, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        if (!isfinite(value[i]))
            return burst_fail(c, BURST_E_NUMERIC, "%s: element %lld of %s is %s", t->file->path,
                              (long long)(first + i), t->name, isnan(value[i]) ? "not a number" : "infinite");
    return BURST_OK;
}

/* transformers ties a head that the folder also stores only if it equals the embedding. */
static int check_tied(BurstCtx *c, const StTensor *head, int64_t first, const float *value, int64_t count)
{
    float other[TIED_BLOCK];
    for (int64_t done = 0; done < count; done += TIED_BLOCK) {
        const int64_t n = count - done < TIED_BLOCK ? count - done : TIED_BLOCK;
        BURST_TRY(safetensors_read(c, head, first + done, n, other));
        for (int64_t i = 0; i < n; i++)
            if (other[i] != value[done + i])
                return burst_fail(
                    c, BURST_E_USAGE,
                    "%s: element %lld of %s is %g but the embedding's is %g, so the weights are not tied; "
                    "set `tied no` in the model and \"tie_word_embeddings\": false in config.json",
                    head->file->path, (long long)(first + done + i), head->name, (double)other[i],
                    (double)value[done + i]);
    }
    return BURST_OK;
}

/* Rows of the plan's that lie across the tensor: those of the run from a row of the tensor's after the other,
 * of each of which they have a part. */
static int read_across(BurstCtx *c, const StTensor *t, const StPlace *place, const BurstRun *r, float *to)
{
    const int64_t row = r->from / place->run, rows = (r->from + r->count - 1) / place->run - row + 1,
                  most = (rows - 1) * place->stride + 1;
    float *part = malloc((size_t)most * sizeof *part);
    int status = part ? BURST_OK : burst_fail(c, BURST_E_MEMORY, "out of memory to read %s", t->name);
    for (int64_t col = 0; status == BURST_OK && col < place->run; col++) {
        const int64_t at = place->first + row * place->stride + col * place->step;
        status = safetensors_read(c, t, at, most, part);
        for (int64_t i = 0; status == BURST_OK && i < rows; i++) {
            const int64_t element = (row + i) * place->run + col - r->from;
            if (element >= 0 && element < r->count)
                to[element] = part[i * place->stride];
        }
        if (status == BURST_OK)
            status = check_finite(c, t, at, part, most);
    }
    free(part);
    return status;
}

static int read_run(BurstCtx *c, const StTensor *t, const StPlace *place, const StTensor *head,
                    const BurstRun *r, float *to)
{
    if (place->step > 1)
        return read_across(c, t, place, r, to);
    for (int64_t done = 0, count; done < r->count; done += count) {
        count = r->count - done;
        const int64_t at = element_at(place, r->from + done, &count);
        BURST_TRY(safetensors_read(c, t, at, count, to + done));
        BURST_TRY(check_finite(c, t, at, to + done, count));
    }
    return head ? check_tied(c, head, r->from, to, r->count) : BURST_OK;
}

/* Reads this rank's part of what the folder has as one tensor. */
static int read_piece(BurstCtx *c, const BurstPlan *p, const HfFolder *f, int unit, const BurstTensor *t,
                      const TensorPiece *x, float *param)
{
    const BurstUnit *u = burst_unit(p, unit);
    const StPlace place = tensor_place(p, &f->naming, unit, &x->tensor);
    const float shift = tensor_shift(f->family, t);
    const HfEntry *tied = t == tied_tensor(p) ? folder_entry(f, head_name(&f->naming)) : NULL,
                  *entry = folder_entry(f, place.name);
    const Mxfp4 blocks = entry ? (Mxfp4){0} : mxfp4_of(f, place.name);
    for (BurstRun r = {0}, part; burst_next_run(p, c->rank, u, t, &r);) {
        if (!piece_run(x, &r, &part))
            continue;
        if (blocks.blocks)
            BURST_TRY(mxfp4_read(c, &blocks, &place, tensor_expert(t->name), &part, param + part.at));
        else
            BURST_TRY(read_run(c, entry->tensor, &place, tied ? tied->tensor : NULL, &part, param + part.at));
        for (int64_t j = 0; j < part.count; j++)
            param[part.at + j] -= shift;
    }
    return BURST_OK;
}

/* Reads this rank's part of each tensor. */
static int read_unit(BurstCtx *c, const BurstPlan *p, const HfFolder *f, int unit, float *param)
{
    const BurstUnit *u = burst_unit(p, unit);
    TensorPiece piece[FUSED_PARTS];
    for (int i = 0; i < u->tensors; i++) {
        const int pieces = folder_pieces(p, &f->naming, &u->tensor[i], piece);
        for (int k = 0; k < pieces; k++)
            BURST_TRY(read_piece(c, p, f, unit, &u->tensor[i], &piece[k], param));
    }
    return BURST_OK;
}

static int read_folder(BurstCtx *c, const BurstPlan *p, HfFolder *f, BurstWeights *w, Misfits *m)
{
    const int status = folder_open(c, p, f, m);
    BURST_TRY(misfits_end(c, m, f->path, status));
    for (int unit = 0; unit < w->units; unit++)
        BURST_TRY(read_unit(c, p, f, unit, w->param[unit]));
    return BURST_OK;
}

int folder_read(BurstCtx *c, const BurstPlan *p, BurstWeights *w, const char *folder, bool plan_masks,
                bool plan_rope)
{
    Misfits m = {.plan_masks = plan_masks, .plan_rope = plan_rope};
    HfFolder f = {.path = folder};
    burst_doing(c, "reading weights");
    int status = read_folder(c, p, &f, w, &m);
    folder_close(&f);
    return status;
}
