/* memory.h: between memory.c and memory_gpu.c. */
#ifndef MEMORY_H
#define MEMORY_H

#include "burst.h"

enum { HOST_ALIGN = 64, DEVICE_ALIGN = 256 }; /* of burst_take and burst_gpu_take */

typedef struct MemoryMaker {
    Arena *arena;
    const Program *program;
    const Choice *choice;
    const Schedule *schedule[2];
    int64_t n, q, kv; /* tokens; elements a token of all query heads, of all key heads */
    Vec(Buffer) rows;
    bool on_device;   /* where the rows that are added now lie */
    size_t host, device;
} MemoryMaker;

void add_buffers(MemoryMaker *m, const char *name, const char *type, size_t size, int copies, const char *shape, int64_t elements);
void add_array(MemoryMaker *m, const char *name, const char *type, size_t size, int copies, const char *shape, int64_t elements);
void add_pools(MemoryMaker *m);
void add_shares(MemoryMaker *m, const Partition *part); /* of head parallelism, on the device */
size_t add_device(MemoryMaker *m, const Partition *part, Units units); /* all of a rank's device buffers; the bytes of its weights come back */

#endif
