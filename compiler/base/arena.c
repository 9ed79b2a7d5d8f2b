/* arena.c: memory of one compile. Blocks grow geometrically and are freed together. */
#include "base/base.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct Block { struct Block *next; size_t used, size; } Block;
struct Arena { Block *blocks; size_t total; };
enum { FIRST_BLOCK = 64 << 10, MAX_BLOCK = 8 << 20, LARGE = 256 << 10, ALIGN = 16 };
static const size_t header = (sizeof(Block) + ALIGN - 1) / ALIGN * ALIGN;

/* Only the first thread that lacks memory ends the process. */
_Noreturn void out_of_memory(void)
{
    static atomic_flag ends = ATOMIC_FLAG_INIT;
    while (atomic_flag_test_and_set(&ends))
        pause();
    fputs("burstc: error: out of memory\n", stderr);
    exit(3);
}

void *xmalloc(size_t bytes)
{
    void *p = malloc(bytes ? bytes : 1);
    if (!p)
        out_of_memory();
    return p;
}

void *xrealloc(void *old, size_t bytes)
{
    void *p = realloc(old, bytes ? bytes : 1);
    if (!p)
        out_of_memory();
    return p;
}

Arena *arena_new(void)
{
    Arena *a = xmalloc(sizeof *a);
    *a = (Arena){0};
    return a;
}

void arena_free(Arena *a)
{
    if (!a)
        return;
    for (Block *b = a->blocks, *next; b; b = next) {
        next = b->next;
        free(b);
    }
    free(a);
}

void arena_join(Arena *to, Arena *from)
{
    Block **last = &to->blocks;
    while (*last)
        last = &(*last)->next;
    *last = from->blocks;
    to->total += from->total;
    free(from);
}

static void add_block(Arena *a, size_t need)
{
    size_t size = a->blocks ? a->blocks->size * 2 : FIRST_BLOCK;
    if (size > MAX_BLOCK)
        size = MAX_BLOCK;
    if (size < need)
        size = need;
    Block *b = xmalloc(header + size);
    *b = (Block){.next = a->blocks, .size = size};
    a->blocks = b;
    a->total += header + size;
}

void *arena_alloc(Arena *a, size_t bytes)
{
    if (bytes > SIZE_MAX / 2)
        out_of_memory();
    bytes = (bytes + ALIGN - 1) / ALIGN * ALIGN;
    if (!a->blocks || a->blocks->size - a->blocks->used < bytes)
        add_block(a, bytes);
    char *p = (char *)a->blocks + header + a->blocks->used;
    a->blocks->used += bytes;
    return memset(p, 0, bytes);
}

/* In a block of its own, behind the block that smaller ones are taken from; not zeroed. */
static void *large_alloc(Arena *a, size_t bytes)
{
    bytes = (bytes + ALIGN - 1) / ALIGN * ALIGN;
    Block *b = xmalloc(header + bytes), **next = a->blocks ? &a->blocks->next : &a->blocks;
    *b = (Block){.next = *next, .used = bytes, .size = bytes};
    *next = b;
    a->total += header + bytes;
    return (char *)b + header;
}

char *arena_copy(Arena *a, const char *text, size_t len)
{
    char *p = arena_alloc(a, len + 1);
    if (len)
        memcpy(p, text, len);
    return p;
}

char *arena_printf(Arena *a, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    char *p = arena_alloc(a, (size_t)n + 1);
    va_start(ap, fmt);
    vsnprintf(p, (size_t)n + 1, fmt, ap);
    va_end(ap);
    return p;
}

size_t arena_bytes(const Arena *a)
{
    return a->total;
}

/* The block that has only `at`, of so many bytes; NULL: none has. */
static Block **block_of(Arena *a, const void *at, size_t bytes)
{
    for (Block **b = &a->blocks; *b; b = &(*b)->next)
        if ((const char *)*b + header == at)
            return (*b)->used == bytes && (*b)->size == bytes ? b : NULL;
    return NULL;
}

/* Large arrays have a block of their own, which grows instead of staying beside its copy. What is not used
 * yet takes no memory, as it is not zeroed. */
static void *grow_block(Arena *a, Block **b, size_t bytes)
{
    a->total += bytes - (*b)->size;
    *b = xrealloc(*b, header + bytes);
    (*b)->used = (*b)->size = bytes;
    return (char *)*b + header;
}

void *vec_grow_(Arena *a, void *at, int n, int *cap, size_t size)
{
    int grown = *cap ? *cap * 2 : 8;
    void *p = arena_alloc(a, (size_t)grown * size);
    if (n)
        memcpy(p, at, (size_t)n * size);
    *cap = grown;
    return p;
}

void *vec_move_(Arena *a, void *at, int n, int *cap, size_t size)
{
    const size_t before = (size_t)*cap * size, bytes = 2 * before;
    if (before < LARGE || before % ALIGN)
        return vec_grow_(a, at, n, cap, size);
    Block **own = block_of(a, at, before);
    *cap *= 2;
    return own ? grow_block(a, own, bytes) : memcpy(large_alloc(a, bytes), at, (size_t)n * size);
}
