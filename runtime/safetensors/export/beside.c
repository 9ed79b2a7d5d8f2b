/* safetensors/export/beside.c: tensors outside the text model in the folder that the weights came from:
 * parts for images, and layers that predict several tokens. An export copies them byte for byte into
 * separate files. */
#include "safetensors/safetensors.h"

#include "core/context.h"

#include <stdlib.h>

static int list_beside(BurstCtx *c, Beside *b, int64_t shard_bytes)
{
    int64_t bytes = 0;
    b->tensor = calloc((size_t)b->folder.entries + 1, sizeof *b->tensor);
    if (!b->tensor)
        return burst_fail(c, BURST_E_MEMORY, "out of memory for the tensors of '%s'", b->folder.path);
    for (int i = 0; i < b->folder.entries; i++) {
        const StTensor *t = b->folder.entry[i].tensor;
        if (!b->folder.entry[i].beside)
            continue;
        if (b->files == 0 || (bytes > 0 && bytes + t->end - t->begin > shard_bytes))
            b->files++, bytes = 0;
        b->tensor[b->count++] = (BesideTensor){t, b->files - 1, bytes};
        bytes += t->end - t->begin;
    }
    return BURST_OK;
}

/* A part of a larger model is not a folder by itself. */
static bool is_needed(const BurstPlan *p, const json_t *config)
{
    return model_of(p).family->part_only || (config && whole_of(config));
}

int beside_open(BurstCtx *c, const BurstPlan *p, const char *source, const json_t *config,
                int64_t shard_bytes, Beside *b)
{
    Misfits m = {0};
    b->folder = (HfFolder){.path = source, .family = model_of(p).family};
    if (!source && is_needed(p, config))
        return burst_fail(c, BURST_E_USAGE,
                          "a %s is part of a larger model: an export requires the directory that its weights "
                          "came from; set `weights` in the plan, or --weights",
                          b->folder.family->type);
    if (!source)
        return BURST_OK;
    int status = folder_list(c, &b->folder, &m);
    if (status == BURST_OK && !m.count)
        folder_mark(&m, p, &b->folder);
    if (is_needed(p, config)) {
        BURST_TRY(misfits_end(c, &m, source, status));
        return config ? list_beside(c, b, shard_bytes)
                      : burst_fail(c, BURST_E_IO,
                                   "cannot read '%s/config.json', which an export of a %s requires", source,
                                   b->folder.family->type);
    }
    const bool listed = status == BURST_OK && !m.count;
    misfits_close(&m);
    if (!listed)
        c->error[0] = 0;
    return listed ? list_beside(c, b, shard_bytes) : BURST_OK;
}

void beside_close(Beside *b)
{
    folder_close(&b->folder);
    free(b->tensor);
}
