/* arena.c: memory of one compile. Blocks grow geometrically and are freed together. */
#include "base/base.h"

#include <stdlib.h>
#include <string.h>

typedef struct Block { struct Block *next; size_t used, size; } Block;
struct Arena { Block *blocks; size_t total; };
enum { FIRST_BLOCK = 64 << 10, MAX_BLOCK = 8 << 20, ALIGN = 16 };
static const size_t header = (sizeof(Block) + ALIGN - 1) / ALIGN * ALIGN;

_Noreturn void out_of_memory(void)
{
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

void *vec_grow_(Arena *a, void *at, int n, int *cap, size_t size)
{
    int grown = *cap ? *cap * 2 : 8;
    void *p = arena_alloc(a, (size_t)grown * size);
    if (n)
        memcpy(p, at, (size_t)n * size);
    *cap = grown;
    return p;
}
