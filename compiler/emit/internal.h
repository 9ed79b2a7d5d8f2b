/* emit/internal.h: shared by the files of the emitter. */
#ifndef EMIT_H
#define EMIT_H

#include "emit/emit.h"

typedef struct Emit {
    Arena *arena;
    const Found *found;
    const Draft *draft;
    Text *out;
    int indent;
    /* by block of the step, and of evaluation's head: bit 0: its function takes a layer, bit 1: a visit */
    unsigned takes[STEP_BLOCKS + 1];
    bool splits; /* ranks that share a prompt each compute a part of a later token's products */
    AloneMemory alone; /* of a run that only evaluates; flow NULL: there is none */
    const BurstForecast *forecast; /* plan_forecast; NULL: none */
    size_t hashed_from; /* begin of the text that text_hash covers */
} Emit;
/* Prints one line, indented by braces: closing ones at its begin, opening ones at its end. */
void emit_line(Emit *e, const char *fmt, ...) PRINTF_LIKE(2, 3);
const char *base_name(const char *path);
void emit_coordinates(Emit *e);                 /* sizes of coordinates */
/* plan_forward and plan_backward, for each attention if layers have several */
void emit_attentions(Emit *e);
/* their operations, for runtime/core/prune.c; by chunks only */
void emit_traces(Emit *e);
void emit_tensors(Emit *e);                     /* offsets of tensors in their units */
void emit_places(Emit *e);                      /* offsets of the step's values in the arena */
bool emit_scratch_moves(const Emit *e);         /* whether attention's scratch has an offset for each layer */
void emit_in_scratch(Emit *e, const Buffer *b); /* prints the buffer's or pool's offset in it */
/* if it moves, a function of the layer that sets all offsets */
void emit_scratch(Emit *e);
/* whether values other than parameters and moments are in host memory */
bool emit_stages(const Emit *e);
/* "D_X" for d_x: upper case, with '_' for characters not allowed in C names */
const char *constant_name(Arena *a, const char *text);
/* "PLAN_W_MLP_GATE_PROJ" for mlp.gate_proj.weight */
const char *weight_constant(Arena *a, const char *tensor);
/* the same of a tensor of a row of Units; layers of several kinds may have it in different places */
const char *tensor_at_constant(const Emit *e, int unit, const UnitTensor *t);
const char *slice_at_constant(const Emit *e, int unit, const UnitTensor *t); /* in a shard */
void emit_layer_kinds(Emit *e); /* the kind of each layer; nothing if there is one */
void emit_step_blocks(Emit *e);                 /* one function per block */
void emit_step_sequence(Emit *e);               /* plan_sequence, which calls them */
const char *all_heads_text(bool keys); /* of all chunks of heads */
void emit_shards(Emit *e);                      /* part of plan_alloc: addresses of gradients */
/* pairs of chunks, and the bytes that their copies move; nothing if keys stay on the device */
void emit_key_chunks(Emit *e);
/* constants of attention over chunks of queries, or of heads; none without chunks */
void emit_output_rows(Emit *e);
void emit_head_chunks(Emit *e); /* of chunks of heads; none without chunks */
extern const char *const part_name[];           /* "NORM" */
void emit_watching(Emit *e);                    /* names of streams, and declarations of the forecast */
void emit_forecast(Emit *e);                    /* the forecast, at the end of the text */
void emit_predicted(Emit *e);                   /* the line of the header */
/* of a library's header: what its calls take */
void emit_library_sizes(Emit *e);
const char *library_layout(const Emit *e); /* what of the layout acts on attention, as a model has it */
void emit_library_table(Emit *e, const char *layout, uint64_t hash); /* what the runtime reads of it */

/* kept_headers.c: the toolkit's headers as libclang read them in an earlier run, or now. An open file to read
 * by its descriptor, -1 if there is none; path is its name. */
typedef struct KeptHeaders { int file; const char *path; } KeptHeaders;
/* flag: of the pass that it is for; cuda: the toolkit's folder; dropped: the header that is empty. */
KeptHeaders kept_headers(Arena *a, const char *const *flag, int flags, const char *cuda, const char *dropped);
void kept_headers_close(KeptHeaders *kept, bool bad); /* bad: removes it */

#endif
