/* safetensors/mxfp4.c: matrices of experts in MXFP4 (OCP Microscaling Formats 1.0): blocks of 32 numbers of 4
 * bits (E2M1), each block with a scale, a power of two. As GPT-OSS has them: rows are outputs, `NAME_blocks`
 * [experts][rows][columns / 32][16] with the lower four bits first, `NAME_scales` [experts][rows][columns /
 * 32] with 127 for 1; dequantized, they are the transposed matrix that `NAME` would be. */
#include "safetensors/safetensors.h"

#include "core/context.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

bool config_is_mxfp4(const json_t *config)
{
    const Family *f = family_named(json_string_value(json_object_get(config, "model_type")));
    const char *method = json_string_value(
        json_object_get(json_object_get(config, "quantization_config"), "quant_method"));
    return f && f->mxfp4 && method && strcmp(method, "mxfp4") == 0;
}

Mxfp4 mxfp4_of(const HfFolder *f, const char *name)
{
    char blocks[ST_NAME + 8], scales[ST_NAME + 8];
    if (!f->family->mxfp4)
        return (Mxfp4){0};
    snprintf(blocks, sizeof blocks, "%s_blocks", name);
    snprintf(scales, sizeof scales, "%s_scales", name);
    return (Mxfp4){folder_entry(f, blocks), folder_entry(f, scales)};
}

bool mxfp4_shape(const StPlace *place, int64_t shape[4])
{
    if (place->dims != 3 || place->step < 2 || place->shape[1] % MXFP4_BLOCK)
        return false;
    const int64_t all[] = {place->shape[0], place->shape[2], place->shape[1] / MXFP4_BLOCK, MXFP4_BLOCK / 2};
    memcpy(shape, all, sizeof all);
    return true;
}

/* A row of the matrices: so many columns. */
static void dequantize(const uint8_t *block, const uint8_t *scale, int64_t columns, float *to)
{
    static const float number[16] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};
    for (int64_t i = 0; i < columns; i++)
        to[i] = ldexpf(number[(block[i / 2] >> i % 2 * 4) & 15], scale[i / MXFP4_BLOCK] - 127);
}

static int read_row(BurstCtx *c, const Mxfp4 *m, int64_t row, int64_t columns, uint8_t *bytes, float *to)
{
    const int64_t blocks = columns / MXFP4_BLOCK, half = columns / 2;
    BURST_TRY(safetensors_bytes(c, m->blocks->tensor, row * half, half, bytes));
    BURST_TRY(safetensors_bytes(c, m->scales->tensor, row * blocks, blocks, bytes + half));
    dequantize(bytes, bytes + half, columns, to);
    for (int64_t i = 0; i < columns; i++)
        if (!isfinite(to[i]))
            return burst_fail(c, BURST_E_NUMERIC, "%s: row %lld of %s is not finite: a scale is too large",
                              m->scales->tensor->file->path, (long long)row, m->scales->tensor->name);
    return BURST_OK;
}

int mxfp4_read(BurstCtx *c, const Mxfp4 *m, const StPlace *place, int expert, const BurstRun *r, float *to)
{
    const int64_t columns = place->run, rows = place->shape[2],
                  first = place->first - expert * rows * columns + expert * rows;
    float *row = malloc((size_t)columns * sizeof *row);
    uint8_t *bytes = malloc((size_t)columns);
    int status = row && bytes
                     ? BURST_OK
                     : burst_fail(c, BURST_E_MEMORY, "out of memory to read %s", m->blocks->tensor->name);
    for (int64_t done = 0, count; status == BURST_OK && done < r->count; done += count) {
        const int64_t at = r->from + done, from = at % columns;
        count = columns - from < r->count - done ? columns - from : r->count - done;
        status = read_row(c, m, first + at / columns * place->stride, columns, bytes, row);
        if (status == BURST_OK)
            memcpy(to + done, row + from, (size_t)count * sizeof *row);
    }
    free(row);
    free(bytes);
    return status;
}
