/* mask/memory.c: counts by key, in a bounded hash table. A full table starts over: a mask whose boxes never
 * repeat would fill any, and boxes that do repeat are soon stored anew. */
#include "mask/internal.h"

#include <string.h>

enum { FIRST_SIZE = 1 << 6, MOST_ENTRIES = 1 << 13, MOST_WORDS = 1 << 17 };

static uint64_t hash_words(const int64_t *word, int n)
{
    uint64_t h = UINT64_C(0x9e3779b97f4a7c15);
    for (int i = 0; i < n; i++) {
        h = (h ^ (uint64_t)word[i]) * UINT64_C(0xff51afd7ed558ccd);
        h ^= h >> 32;
    }
    return h;
}

/* The entry of the key, or the free entry for it. */
static MaskEntry *find(const MaskMemory *m, uint64_t hash, const int64_t *key, int words)
{
    for (uint64_t i = hash;; i++) {
        MaskEntry *e = &m->entry[i & (uint64_t)(m->size - 1)];
        if (!e->words)
            return e;
        if (e->hash == hash && e->words == words &&
            !memcmp(m->keys.at + e->key, key, sizeof(int64_t) * (size_t)words))
            return e;
    }
}

static void grow(MaskMemory *m)
{
    const MaskEntry *old = m->entry;
    const int size = m->size;
    m->size = size ? size * 4 : FIRST_SIZE;
    m->entry = NEW_ARRAY(m->arena, MaskEntry, m->size);
    for (int i = 0; i < size; i++)
        if (old[i].words)
            *find(m, old[i].hash, m->keys.at + old[i].key, old[i].words) = old[i];
}

void mask_memory_forget(MaskMemory *m)
{
    if (m->size)
        memset(m->entry, 0, sizeof *m->entry * (size_t)m->size);
    m->entries = m->keys.n = 0;
}

int mask_pair_key(const PosSet *q, const PosSet *k, int64_t key[PAIR_WORDS])
{
    const PosSet *side[2] = {q, k};
    int n = 0;
    for (int i = 0; i < 2; i++) {
        if (side[i]->npieces > PAIR_PIECES)
            return 0;
        key[n++] = side[i]->npieces;
        for (const Piece *p = side[i]->pieces; p < side[i]->pieces + side[i]->npieces; p++)
            key[n++] = p->start, key[n++] = p->run, key[n++] = p->stride, key[n++] = p->count;
    }
    return n;
}

const MaskCount *mask_memory_find(const MaskMemory *m, const int64_t *key, int words)
{
    if (!words || !m->size)
        return NULL;
    const MaskEntry *e = find(m, hash_words(key, words), key, words);
    return e->words ? &e->count : NULL;
}

void mask_memory_add(MaskMemory *m, const int64_t *key, int words, MaskCount n)
{
    if (!words || words > MOST_WORDS)
        return;
    if (m->entries == MOST_ENTRIES || m->keys.n > MOST_WORDS - words)
        mask_memory_forget(m);
    if (m->entries * 2 >= m->size)
        grow(m);
    const uint64_t hash = hash_words(key, words);
    MaskEntry *e = find(m, hash, key, words);
    if (e->words)
        return;
    *e = (MaskEntry){.hash = hash, .key = m->keys.n, .words = words, .count = n};
    for (int i = 0; i < words; i++)
        *(int64_t *)vec_push(m->arena, &m->keys) = key[i];
    m->entries++;
}
