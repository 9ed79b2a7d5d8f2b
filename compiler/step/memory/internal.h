/* step/memory/internal.h: shared by buffers.c, buffers_gpu.c and buffers_heads.c. */
#ifndef MEMORY_H
#define MEMORY_H

#include "step/memory/memory.h"

enum { HOST_ALIGN = 64, DEVICE_ALIGN = 256 }; /* of burst_take and burst_gpu_take */

/* the directions of attention that use a buffer */
enum { FORWARD = 1, BACKWARD = 2, BOTH = FORWARD | BACKWARD };

typedef struct MemoryMaker {
    Arena *arena;
    const Program *program;
    const Choice *choice;
    const Draft *draft; /* for its schedules */
    /* tokens that attention processes at a time, of this rank and of those that share heads with it; 0:
     * all */
    int64_t queries;
    int64_t key_tokens; /* the same for keys */
    int64_t n, own; /* tokens of a chunk; own: of a tensor rank */
    RowSizes of[2]; /* forward, backward */
    Vec(Buffer) rows;
    bool on_device; /* the following rows are on the device */
    size_t host, device;
    int64_t scratch[2]; /* of attention: forward, backward */
    int64_t keys; /* bytes that persist from one chunk of queries to the next */
} MemoryMaker;

/* the keys that attention has at a time, out of `all` */
int64_t keys_at_a_time(const MemoryMaker *m, int64_t all);
void add_buffers(MemoryMaker *m, const char *name, const char *type, size_t size, int copies,
                 const char *shape, int64_t elements);
void add_scratch(MemoryMaker *m, unsigned directions, const char *name, const char *type, size_t size,
                 int copies, const char *shape, int64_t elements);
/* a buffer that persists from one chunk of queries to the next */
void keep_keys(MemoryMaker *m, const char *name, const char *type, size_t size, const char *shape,
               int64_t elements);
RowSizes most_rows(const MemoryMaker *m); /* of both directions */
void add_shares(MemoryMaker *m, const Partition *part); /* for head parallelism */
void add_latents(MemoryMaker *m); /* before buffers of a single direction */
void add_device(MemoryMaker *m, const Partition *part); /* a rank's device buffers, except pools */

#endif
