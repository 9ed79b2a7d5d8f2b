/* names.c: a map from names to values. */
#include "check.h"

#include <string.h>

static uint64_t hash_name(const char *name)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    for (const char *s = name; *s; s++)
        h = (h ^ (unsigned char)*s) * UINT64_C(0x100000001b3);
    return h ^ h >> 32;
}

/* The entry of the name, or the free entry for it. */
static NamedValue *find(const NameMap *m, const char *name)
{
    for (uint64_t i = hash_name(name);; i++) {
        NamedValue *e = &m->entry[i & (uint64_t)(m->size - 1)];
        if (!e->name || strcmp(e->name, name) == 0)
            return e;
    }
}

void *name_find(const NameMap *m, const char *name)
{
    return m->size ? find(m, name)->value : NULL;
}

void name_add(Arena *a, NameMap *m, const char *name, void *value)
{
    if (m->n * 2 >= m->size) {
        const NameMap old = *m;
        m->size = old.size ? old.size * 2 : 64;
        m->entry = NEW_ARRAY(a, NamedValue, m->size);
        for (int i = 0; i < old.size; i++)
            if (old.entry[i].name)
                *find(m, old.entry[i].name) = old.entry[i];
    }
    *find(m, name) = (NamedValue){name, value};
    m->n++;
}
