/* safetensors.h: weights from and to Hugging Face folders of Llama models: config.json, and
 * model.safetensors or model.safetensors.index.json with its shards (docs/runtime.md says what is accepted
 * and what is written).
 *
 * A safetensors file: the header's length (8 bytes, little-endian), the header (JSON: name -> dtype,
 * shape, data_offsets), then the data, which the tensors fill without holes.
 */
#ifndef BURST_SAFETENSORS_H
#define BURST_SAFETENSORS_H

#include "families/families.h"
#include "burst_plan.h"

#include <jansson.h>
#include <limits.h>
#include <stdio.h>

enum { ST_DIMS = 8, ST_SHAPE_TEXT = 200, ST_NAME = 256 };
#define ST_HEADER_MOST (100 << 20) /* bytes; the format's own limit */
#define ST_SHARD_BYTES INT64_C(5000000000) /* of tensors in one written file, as Hugging Face has it */

/* ---- reading what may be anybody's ---- */
/* The object in a file; the caller frees, also where it fails: of a file with Infinity or NaN, which is an
 * error, all else is there. */
int load_json(BurstCtx *c, const char *path, json_t **json);

/* What a folder says and the plan does not do, to be told in one message: what is so of several layers once.
 * Zeros to begin with; plan_masks, plan_rope: masks, or RoPE, that differ are told, and the plan's are used.
 */
enum { MISFIT_TEXT = 600, MISFITS_TEXT = 860, MISFITS_MOST = 64 };
typedef enum MisfitKind {
    MISFIT_MODEL,
    MISFIT_MASKS, /* --plan-masks trains all the same */
    MISFIT_ROPE,  /* --plan-rope does */
    MISFIT_LENGTH /* the sequence's, which is only warned of when a program is compiled */
} MisfitKind;
typedef struct Misfit {
    char *text;
    int layers; /* of which it is so; 0: it names none */
    MisfitKind kind;
} Misfit;
typedef struct Misfits {
    bool plan_masks, plan_rope, compiling;
    bool other_rope; /* found, of plan_rope */
    bool alone;      /* one says what to do first, and nothing else is looked at */
    int count, kept; /* kept: the first different ones */
    int status;      /* of the first that is not BURST_E_USAGE; 0: none */
    Misfit misfit[MISFITS_MOST];
} Misfits;
__attribute__((format(printf, 2, 3))) void misfit(Misfits *m, const char *format, ...);
__attribute__((format(printf, 3, 4))) void misfit_of(Misfits *m, MisfitKind kind, const char *format, ...);
__attribute__((format(printf, 2, 3))) void misfit_alone(Misfits *m, const char *format, ...);
/* The context's error as one of them, so that the rest is looked at too; no memory is told at once, and comes
 * back. */
int misfit_error(Misfits *m, const BurstCtx *c, int status);
/* Each of a kind; with MISFIT_MODEL, how many more there are. */
void misfits_tell(const Misfits *m, MisfitKind kind, void (*tell)(void *to, const char *text), void *to);
/* BURST_OK where there are none, and status as it was where that is an error. Frees them. */
int misfits_end(BurstCtx *c, Misfits *m, const char *folder, int status);
void misfits_close(Misfits *m);

/* ---- one file ---- */
typedef struct StTensor {
    const char *name, *dtype; /* in the file's header */
    int dims;
    int64_t shape[ST_DIMS];
    int64_t elements; /* product of the shape */
    int64_t begin, end; /* bytes from where the data begin */
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
/* Opens the file and checks its whole header: lengths, offsets, shapes, holes, overlaps. On failure
 * nothing is left open. */
int safetensors_open(BurstCtx *c, const char *path, StFile *f);
void safetensors_close(StFile *f);
bool safetensors_readable(const StTensor *t); /* F32, BF16 and F16 are */
/* Reads count elements from `first` on as fp32. */
int safetensors_read(BurstCtx *c, const StTensor *t, int64_t first, int64_t count, float *to);
/* The same bytes as they are, whatever the dtype. */
int safetensors_bytes(BurstCtx *c, const StTensor *t, int64_t first, int64_t count, uint8_t *to);
/* "[4096, 1024]", cut to ST_SHAPE_TEXT. */
void safetensors_shape(const int64_t *shape, int dims, char text[ST_SHAPE_TEXT]);

/* ---- numbers ---- */
float from_half(uint16_t bits);
uint16_t to_bf16(float x); /* to nearest, ties to even */

/* ---- config.json ---- */
enum { DENSE_WORDS = 16, DENSE_MOST = 64 * DENSE_WORDS }; /* layers */
static inline bool layer_is_dense(const uint64_t at[DENSE_WORDS], int64_t layer)
{
    return layer < DENSE_MOST && at[layer / 64] >> layer % 64 & 1;
}
/* What a model is to Hugging Face. */
typedef struct HfModel {
    const Family *family;
    int64_t layers, hidden, heads, kv_heads, head_dim, ffn, vocab;
    int64_t experts, top, expert_width; /* of layer.experts */
    int64_t dense; /* so many first layers have none, where others have; -1: others than the first */
    uint64_t dense_at[DENSE_WORDS]; /* a bit for each; of DENSE_LISTED `dense` is their number */
    int64_t shared_ffn, groups, top_groups; /* shared_ffn: as the family's field says it; one group: none */
    int64_t scan_heads, scan_key_heads, scan_key_dim, scan_value_dim, scan_kernel; /* of layer.scan */
    int64_t index_heads, index_dim, index_block, index_top, index_local; /* of layer.indexer */
    double step_least, step_most; /* of a scan without a delta rule; else 0 */
    double beta_most, scan_eps; /* of one with it; of the norm of its outputs, 0: norm_eps */
    double weight_scale, alpha, limit; /* of the experts' weights; of their activation */
    double balance; /* what the experts' balance loss is multiplied by; 0: it is not added */
    int64_t sequence; /* of a plan */
    /* of multi-head latent attention: a head's elements that do not turn, those that do and all heads share
     */
    int64_t value_dim, latent, query_latent, own, shared;
    double norm_eps, softcap, scale[BURST_SCALES];
    bool tied, normalize; /* normalize: the weights of chosen experts */
    bool sinks;
    LayerParts parts;
    BurstRope rope, local_rope; /* local: of layers with a window, where the family has it by type */
    BurstRopeFactors factors, local_factors; /* of those that are read */
} HfModel;
HfModel model_of(const BurstPlan *p);
/* Whether it has parts that no family without a name has. */
bool model_needs_family(const BurstPlan *p);
/* Of a text model, or of the text model's part of a larger one; the caller frees. */
int config_load(BurstCtx *c, const char *folder, char path[PATH_MAX], json_t **config);
int config_load_whole(BurstCtx *c, const char *folder, char path[PATH_MAX], json_t **config);
/* The type of a config.json that has a text model as a part; NULL: it is one, or of no known type. */
const Whole *whole_of(const json_t *config);
/* The part as a text model's own; head: the folder has one. The caller frees. */
json_t *text_part(json_t *config, bool head);
/* The whole with the part as an export has written it, which is freed. */
json_t *text_part_put(json_t *written, const json_t *whole, const Family *family);
/* model_read, and all fields that it does not read, but for masks. */
void config_read(Misfits *m, const json_t *config, const HfModel *plan, HfModel *there);
/* Reads config.json of a folder whose weights can be read; *config is NULL where one misfit says what to do
 * first. The caller frees. */
int config_open(BurstCtx *c, const char *folder, Misfits *m, char path[PATH_MAX], json_t **config);
/* Whether it is a type with a part that no plan has, such as experts: then that is the one misfit. */
bool config_is_unsupported(Misfits *m, const json_t *config);
/* What a config.json says; what cannot be said in a model, or is not what `plan` has, is a misfit. plan NULL:
 * there is none. */
void model_read(Misfits *m, const json_t *config, const HfModel *plan, HfModel *there);
/* Adds the model's fields; false: no memory. */
bool model_write(json_t *config, const HfModel *m);
bool model_has_field(const Family *f, const char *name); /* whether model_read reads it */
bool model_has_no(const HfModel *m, const char *name); /* whether it is about parts that no layer has */
/* A RoPE that is not the plan's: a misfit, or noted where the plan's wins. */
__attribute__((format(printf, 2, 3))) void misfit_rope(Misfits *m, const char *format, ...);
/* A sequence beyond max_position_embeddings with the folder's own RoPE, which is not scaled for it. */
void rope_check_length(Misfits *m, const BurstPlan *p, const json_t *config, const HfModel *there);
/* The same of the rotary embedding, described in rope_theta, rope_scaling and rope_parameters. */
void rope_read(Misfits *m, const json_t *config, const HfModel *plan, HfModel *there);
/* A block for each type of layer. */
bool rope_write_types(json_t *config, const BurstRope *full, const BurstRope *sliding);
/* part: of a head; 0: no field says it. */
bool rope_write(json_t *config, const Family *f, const BurstRope *r, double part);
/* Of yarn and multi-head latent attention: what scores are multiplied by where mscale_all_dim says it
 * (DeepSeek-V2); 0: 1 / sqrt(head_dim). And that field, of the model's attention_scale. */
double rope_score_scale(const json_t *config, const HfModel *m);
bool rope_write_score_scale(json_t *config, const HfModel *m);
/* Its fields by their names in the family's config.json. */
const char *rope_part_name(const Family *f);
const char *rope_theta_name(const Family *f);
/* The same of scales; text: as a model has them. */
void scales_read(Misfits *m, const json_t *config, const HfModel *plan, HfModel *there);
bool scales_write(json_t *config, const HfModel *m);
bool scales_has_field(const Family *family, const char *name);
void scales_text(FILE *out, const HfModel *m);
/* Checks each field of the folder's config.json against the plan; says on rank 0 what differs and may.
 * *family: the folder's. */
int config_check(BurstCtx *c, const BurstPlan *p, const char *folder, Misfits *m, const Family **family);
/* What fields say that no plan has a value for: those that change no numbers, those of which one value does
 * not, and unknown ones. */
void config_check_others(Misfits *m, const json_t *config, const Family *family);
/* Masks: those that a layer has by the folder's config.json against the plan's. */
void config_check_masks(const BurstCtx *c, const BurstPlan *p, const json_t *config, const HfModel *there,
                        const char *path, Misfits *m);
/* What config.json has of masks. */
typedef struct Masks {
    const Family *family;
    const json_t *config;
    bool causal;
    json_int_t window; /* 0: none */
    bool wide; /* as long as the sequence, so that masks are the same without it */
    json_int_t pattern; /* layers of a run */
    json_int_t from; /* the first layer with a window, where flags say it */
    const json_t *types; /* [layers]; NULL: not given */
    const json_t *texts; /* [layers], burst_attention where it is read; NULL: the fields above hold */
} Masks;
enum { MASK_TEXT = 256 };
/* ---- safetensors/masks.c: layers that choose blocks with an indexer, whose mask is msa(n, b, l): n blocks
 * of b keys beside the last l, which a query always sees ---- */
bool plan_has_indexer(const BurstPlan *p, int layer);
bool config_has_indexer(const Family *f, const json_t *config, int layer); /* layer -1: any */
/* The numbers of a plan's blocks; what no mask of this form says is as transformers has it with one block. */
void plan_index_blocks(const BurstPlan *p, HfModel *m);
void index_mask(const Family *f, const json_t *config, char text[MASK_TEXT]);
void index_text(FILE *out, const HfModel *m); /* the indexer and the selection of an imported model */
void index_check(Misfits *m, const HfModel *there); /* what no selection can do */
bool masks_has_field(const Family *f, const char *name); /* whether transformers reads it of the type */
Masks masks_read(Misfits *m, int layers, const json_t *config, const Family *family);
/* The first layer of another mask than the plan's; -1: there is none. */
int masks_other_layer(const BurstPlan *p, const Masks *m);
const char *plan_mask_text(const BurstPlan *p, int layer);
/* The same in a sequence of one document, as transformers computes it. */
int masks_other_in_document(const BurstPlan *p, const Masks *m);
const char *plan_mask_in_document(const BurstPlan *p, int layer);
/* 0: causal; -1: what no window says */
json_int_t plan_mask_window(const BurstPlan *p, int layer);
void masks_take_written(Misfits *m, int layers, const json_t *config, Masks *masks);
void masks_layer(const Masks *m, int layer, char text[MASK_TEXT]); /* as a model calls it */
bool masks_has_window(const Masks *m, int layer); /* where there is one */
/* The rotary embedding of a layer; what of it no model can say, or is not what the plan has (NULL: there is
 * none), is a misfit. */
bool is_without_rope(const json_t *config, int layer); /* by no_rope_layers */
BurstRope layer_rope(const HfModel *m, const json_t *config, const Masks *masks, int layer);
void layer_ropes_check(Misfits *m, const BurstPlan *p, const json_t *config, const HfModel *there,
                       const Masks *masks);
void layer_ropes_text(FILE *out, const HfModel *m, const json_t *config, const Masks *masks);
/* Layers with a scan: those of the folder that are not the plan's (NULL: there is none) are a misfit. */
void scans_check(Misfits *m, const BurstPlan *p, const json_t *config, const HfModel *there);
bool config_has_scans(const Family *f, const json_t *config); /* any layer */
void scans_read(Misfits *m, const json_t *config, const HfModel *plan, HfModel *there);
bool scans_has_field(const Family *f, const char *name);
bool scans_write(json_t *config, const HfModel *m);
void scans_text(FILE *out, const HfModel *m, const json_t *config); /* as a model has them */
bool plan_has_scan(const BurstPlan *p, int layer);
bool plan_attends(const BurstPlan *p, int layer); /* the layer has attention */
bool plan_has_network(const BurstPlan *p, int layer); /* and a feed-forward network */
bool plan_has_experts(const BurstPlan *p, int layer);
/* Of layers with one part: how many have no experts; 0: none has a dense network either. dense_at: those with
 * one. */
int64_t config_single(const Family *f, const json_t *config, uint64_t dense_at[DENSE_WORDS]);
int64_t plan_single(const BurstPlan *p);
/* A config.json whose types of layers have another form, with layer_types and num_hidden_layers in its place;
 * takes it over. And back, as the family's folders have it. */
json_t *layer_types_read(json_t *config);
bool layer_types_write(json_t *config, const Family *family);
int64_t plan_scan_kernel(const BurstPlan *p); /* 0: no layer has a scan */
bool layer_ropes_write(json_t *config, const BurstPlan *p, const Family *family);
/* Adds fields that mean the plan's masks to transformers, as `source` has them (the config.json that the
 * weights came from, or NULL) where that means the same; where no fields do, burst_attention. They also
 * decide RoPE by type of layer, which is right in either case where it can be. After the model's other
 * fields; false: no memory. */
bool masks_write(json_t *config, const BurstPlan *p, const HfModel *model, const json_t *source);
/* Tells where transformers will compute other masks than the plan's. */
void masks_say_unread(const BurstPlan *p, const json_t *config, const Family *family, const char *folder);
enum { VALUE_TEXT = 80 };
void value_text(const json_t *value, char text[VALUE_TEXT]); /* as JSON, cut to the size */
bool given(const json_t *value); /* there, and not null */
bool same_value(const json_t *a, const json_t *b); /* numbers to 6 digits where one is real */
/* Whether a field is read and compared with a plan. */
bool config_is_compared(const Family *family, const char *name);
/* What config.json says of this plan, with what `whole` has beside it (the config.json that the weights came
 * from; NULL: none); the caller frees. NULL: no memory. */
json_t *config_make(const BurstPlan *p, int dtype, json_t *whole);
/* Whether that, read as any folder is, describes the plan; else an error that says what it does not. */
int config_check_export(BurstCtx *c, const BurstPlan *p, const char *folder, json_t *whole);
json_t *masks_of(const BurstPlan *p); /* the layers' masks as texts */

/* ---- a plan's tensors under Hugging Face's names ---- */
/* "model.layers.3.mlp.up_proj.weight", its shape (norms are vectors there), and where in it a plan's tensor
 * lies: it may hold several, of which this is part `part`. `run` elements of the plan's follow each other,
 * or are `step` apart, the first of them at `first`, those of the next run `stride` further on. */
/* The plan's elements from `begin` on: as in StPlace. */
enum { ST_SECTIONS = 3 };
typedef struct StSection {
    int64_t begin, first, run, stride;
} StSection;
typedef struct StPlace {
    char name[ST_NAME];
    int dims, part;
    int64_t shape[4], first, run, stride, step; /* shape: of at most 3; blocks have one more */
    int sections; /* more than 0: these hold in place of first, run and stride */
    StSection section[ST_SECTIONS];
} StPlace;
/* Names of a folder's tensors: those of the family, but for how they begin, which differs where the text
 * model is a part. */
typedef struct Naming {
    const Family *family;
    const char *prefix; /* in place of "model."; NULL: that */
    const char *head;   /* in place of the family's head; NULL: that */
    bool straight; /* tensors that the family has transposed are not; experts' matrices are packed */
} Naming;
/* The k-th way that parts are named, up to NAMINGS; 0: text models. NAMINGS more: straight. */
enum { NAMINGS = 3 };
Naming naming_of(const Family *f, int way);
/* What a folder's elements are more than a plan's: where it has weights of norms less one, -1. */
float tensor_shift(const Family *f, const BurstTensor *t);
/* unit counts repeats */
StPlace tensor_place(const BurstPlan *p, const Naming *n, int unit, const BurstTensor *t);
/* Where in the folder's tensor an element of the plan's lies; *count: at most so many, how many follow it
 * there. */
int64_t element_at(const StPlace *place, int64_t element, int64_t *count);
const char *head_name(const Naming *n); /* of the head's matrix */

/* What a folder has as a tensor of its own: rows of a plan's tensor, from the element `first` on. */
typedef struct TensorPiece {
    BurstTensor tensor;
    int64_t first;
} TensorPiece;
/* Returns how many there are: 1, the whole tensor, where the family has no other. */
int folder_pieces(const BurstPlan *p, const Naming *n, const BurstTensor *t, TensorPiece piece[FUSED_PARTS]);
/* The part of a run that is in the piece; false: none. */
bool piece_run(const TensorPiece *x, const BurstRun *r, BurstRun *part);

/* ---- what an export takes over of the folder that its weights came from (export/carry.c) ---- */
bool copy_bytes(int from, off_t from_at, int to, off_t to_at, off_t bytes);
bool is_carried(const char *name, bool code); /* whether a file of that name is */
/* Copies these files from one folder to another; a source that is not there, or NULL, has none. */
int carry_files(BurstCtx *c, const char *source, bool code, const char *part);
/* Adds the fields that no plan has, all ids, and the longer of both lengths; part: of a larger model, where
 * fields that mean the plan stay as they are. */
void carry_fields(json_t *config, json_t *source, const HfModel *model, bool part);
/* Whether a folder with this config.json (NULL: none) brings code that computes it. */
bool carries_code(const json_t *config, const Family *family);
/* Says what code transformers will not have of a folder that is exported; config: the source's, or NULL. */
void carry_say(const char *folder, const char *source, json_t *config, const Family *family);

/* ---- a folder, opened ---- */
#define ST_HEAD "lm_head.weight"
/* All tensors of all files, sorted by name. */
typedef struct HfEntry {
    const StTensor *tensor;
    const char *file;
    bool used;
    bool beside; /* of no text model: an export copies it */
} HfEntry;
typedef struct HfFolder {
    const char *path;
    const Family *family;
    Naming naming;
    int way; /* of naming_of */
    json_t *index, *map; /* map: of the index, name -> file; NULL: one file */
    int names, files; /* files: how many of them were tried; one that cannot be read has fd -1 */
    const char **name; /* [names] */
    StFile *file; /* [names] */
    int entries;
    HfEntry *entry;
} HfFolder;
/* Opens the folder and compares all of it with the plan but its tensors' values. To be closed also where this
 * fails. c: of a rank, or of none: rank -1, which says nothing on its own. */
int folder_open(BurstCtx *c, const BurstPlan *p, HfFolder *f, Misfits *m);
/* The same but for config.json: f->family is known. */
int folder_compare(BurstCtx *c, const BurstPlan *p, HfFolder *f, Misfits *m);
/* Opens all files, without a plan: its tensors, and how they are named. */
int folder_list(BurstCtx *c, HfFolder *f, Misfits *m);
/* Marks what a plan takes, and what is beside it; what is neither is a misfit. */
void folder_mark(Misfits *m, const BurstPlan *p, const HfFolder *f);
bool folder_has_head(BurstCtx *c, const char *folder); /* whether a head's matrix is there */
bool folder_has_weights(const char *folder); /* whether a file of them is there, or their index */
bool folder_has_file(const char *folder, const char *name);
void folder_close(HfFolder *f);
HfEntry *folder_entry(const HfFolder *f, const char *name); /* NULL: it has none */
const BurstTensor *tied_tensor(
    const BurstPlan *p); /* the embedding, which a tied model has as its head too; NULL */

/* ---- MXFP4 (mxfp4.c): experts' matrices as blocks of 4-bit numbers, each block with a scale ---- */
enum { MXFP4_BLOCK = 32 };
typedef struct Mxfp4 {
    HfEntry *blocks, *scales;
} Mxfp4; /* of one tensor of a folder; NULL: none */
Mxfp4 mxfp4_of(const HfFolder *f, const char *name);
/* "[32, 5760, 90, 16]" and without the last, as the tensor at this place would have them; false: none can. */
bool mxfp4_shape(const StPlace *place, int64_t shape[4]);
/* Reads a run of the plan's tensor, of which `expert` is the expert. */
int mxfp4_read(BurstCtx *c, const Mxfp4 *m, const StPlace *place, int expert, const BurstRun *r, float *to);
/* Whether config.json says so of a type whose folders are read so. */
bool config_is_mxfp4(const json_t *config);

/* ---- what must be done with a folder first (foreign.c, quantized.c): each is the one misfit then ---- */
enum { FOREIGN_BEGIN = 64, FOLDER_HINT = 512 };
/* "is a git-lfs pointer, ...", by how a file begins; NULL: nothing is known of it. */
const char *foreign_content(const char *begin, size_t bytes);
/* What is to be said after a folder's name where there is no such folder. */
void folder_hint(const char *folder, char hint[FOLDER_HINT]);
bool folder_is_foreign(Misfits *m, const char *folder);  /* an adapter, or no folder of a model */
bool weights_are_foreign(Misfits *m, const char *folder); /* of another library's form */
bool files_are_foreign(Misfits *m, const HfFolder *f);   /* none of safetensors */
bool names_are_foreign(Misfits *m, const HfFolder *f);   /* of an object that holds the model */
bool config_is_quantized(Misfits *m, const json_t *config, const char *folder);
bool tensors_are_quantized(Misfits *m, const HfFolder *f); /* where config.json says nothing */
/* Its pattern has '@' for the folder, '#' for the file. */
void misfit_filled(Misfits *m, const char *pattern, const char *folder, const char *file);

/* ---- tensors beside the text model, which an export copies (export/beside.c) ---- */
typedef struct BesideTensor {
    const StTensor *tensor;
    int file;      /* of those that have them */
    int64_t begin; /* in its data */
} BesideTensor;
typedef struct Beside {
    HfFolder folder;
    int count, files;
    BesideTensor *tensor;
} Beside;
/* Those of the folder that the weights came from; NULL: none. config: its config.json, or NULL. To be closed
 * also where this fails. */
int beside_open(BurstCtx *c, const BurstPlan *p, const char *source, const json_t *config,
                int64_t shard_bytes, Beside *b);
void beside_close(Beside *b);

/* ---- `burstc import` ---- */
/* Writes the model that the folder's config.json describes; what of it no model can say is a misfit.
 * *written: whether the text is a model, whatever else is wrong. */
int folder_import(BurstCtx *c, const char *folder, FILE *out, Misfits *m, bool *written);

/* ---- folders; every rank calls ---- */
/* Fills this rank's shards. Reads only their bytes. */
int folder_read(BurstCtx *c, const BurstPlan *p, BurstWeights *w, const char *folder, bool plan_masks,
                bool plan_rope);
/* A folder in the making, which no other run may make meanwhile. */
typedef struct Export Export;
/* Before the training: nothing or an empty folder may be there, or, if the run `resumes`, an export, which is
 * moved aside when this one is whole; another may take its place, and all files have their room, in files of
 * at most shard_bytes of tensors (a larger tensor has its own). source: the folder that the weights came
 * from, of which the tokenizer is taken over; NULL: none. dtype: BURST_BF16 or BURST_F32. To be closed also
 * where this fails. */
int export_open(BurstCtx *c, const BurstPlan *p, const char *folder, const char *source, int dtype,
                int64_t shard_bytes, bool resumes, Export **e);
/* Writes the folder, whole or not at all. Every rank learns whether all have written. */
int export_write(BurstCtx *c, const BurstPlan *p, const BurstWeights *w, Export *e);
/* After export_write: its .part is whole, also where it did not get its name. */
bool export_is_whole(const Export *e);
void export_close(BurstCtx *c, Export *e); /* removes what is not whole */
#endif
