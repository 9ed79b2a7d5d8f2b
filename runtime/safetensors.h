/* safetensors.h: weights from and to Hugging Face folders of Llama models: config.json, and model.safetensors or
 * model.safetensors.index.json with its shards (docs/runtime.md says what is accepted and what is written).
 *
 * A safetensors file: the header's length (8 bytes, little-endian), the header (JSON: name -> dtype, shape, data_offsets),
 * then the data, which the tensors fill without holes.
 */
#ifndef BURST_SAFETENSORS_H
#define BURST_SAFETENSORS_H

#include "internal.h"

#include <jansson.h>
#include <limits.h>

enum { ST_DIMS = 8, ST_SHAPE_TEXT = 200, ST_NAME = 256 };
#define ST_HEADER_MOST (100 << 20) /* bytes; the format's own limit */
#define ST_SHARD_BYTES INT64_C(5000000000) /* of tensors in one written file, as Hugging Face has it */

/* ---- one file ---- */
typedef struct StTensor {
    const char *name, *dtype;    /* in the file's header */
    int dims;
    int64_t shape[ST_DIMS];
    int64_t elements;            /* product of the shape */
    int64_t begin, end;          /* bytes from where the data begin */
    const struct StFile *file;
} StTensor;
typedef struct StFile {
    char path[PATH_MAX];
    int fd;
    int64_t data_at;
    int tensors;
    StTensor *tensor; /* in the order of the data */
    json_t *header;
} StFile;
/* Opens the file and checks its whole header: lengths, offsets, shapes, holes, overlaps. On failure nothing is left open. */
int safetensors_open(BurstCtx *c, const char *path, StFile *f);
void safetensors_close(StFile *f);
/* Reads count elements from `first` on as fp32. F32, BF16 and F16 are read; another dtype is an error that names it. */
int safetensors_read(BurstCtx *c, const StTensor *t, int64_t first, int64_t count, float *to);
/* "[4096, 1024]", cut to ST_SHAPE_TEXT. */
void safetensors_shape(const int64_t *shape, int dims, char text[ST_SHAPE_TEXT]);

/* ---- numbers ---- */
float from_half(uint16_t bits);
uint16_t to_bf16(float x); /* to nearest, ties to even */

/* ---- config.json ---- */
/* Checks each field of the folder's config.json against the plan. */
int config_check(BurstCtx *c, const BurstPlan *p, const char *folder);
/* What config.json says of this plan; the caller frees. NULL: no memory. */
json_t *config_make(const BurstPlan *p, int dtype);
json_t *masks_of(const BurstPlan *p); /* the layers' masks as texts */

/* ---- a plan's tensors under Hugging Face's names ---- */
/* "model.layers.3.mlp.up_proj.weight": unit counts repeats. */
void tensor_name_of(const BurstPlan *p, int unit, const BurstTensor *t, char name[ST_NAME]);
/* Norms are vectors there. Returns the dimensions. */
int tensor_shape_of(const BurstTensor *t, int64_t shape[2]);

/* ---- folders; every rank calls ---- */
/* Fills this rank's shards. Reads only their bytes. */
int folder_read(BurstCtx *c, const BurstPlan *p, BurstWeights *w, const char *folder);
/* A folder in the making, which no other run may make meanwhile. */
typedef struct Export Export;
/* Before the training: nothing or an empty folder may be there, another may take its place, and all files have their room, in files of at
 * most shard_bytes of tensors (a larger tensor has its own). dtype: BURST_BF16 or BURST_F32. To be closed also where this fails. */
int export_open(BurstCtx *c, const BurstPlan *p, const char *folder, int dtype, int64_t shard_bytes, Export **e);
/* Writes the folder, whole or not at all. Every rank learns whether all have written. */
int export_write(BurstCtx *c, const BurstPlan *p, const BurstWeights *w, Export *e);
/* After export_write: its .part is whole, also where it did not get its name. */
bool export_is_whole(const Export *e);
void export_close(BurstCtx *c, Export *e); /* removes what is not whole */
#endif
