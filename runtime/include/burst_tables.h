/* burst_tables.h: per-token tables computed from the ends of documents, for the compiler, for programs
 * (train.separator) and for libraries (cu_seqlens). */
#ifndef BURST_TABLES_H
#define BURST_TABLES_H

#include <stdint.h>
#include <string.h>

/* One document of a sequence: its number, and its tokens [begin, end). */
typedef struct BurstDocument { int64_t number, begin, end; } BurstDocument;

#define BURST_DOCUMENT_TABLES(X) /* id, name, value of the token at `at` of document d */ \
    X(DOC, "doc", d->number) \
    X(FIRST, "first", d->begin) \
    X(LAST, "last", d->end - 1) \
    X(POSITION, "position", at - d->begin)

/* GIVEN: any other table; its values are given. */
typedef enum BurstTableKind {
    BURST_TABLE_GIVEN,
#define KIND(id, name, value) BURST_TABLE_##id,
    BURST_DOCUMENT_TABLES(KIND)
#undef KIND
} BurstTableKind;

static inline BurstTableKind burst_table_kind(const char *name)
{
#define KIND(id, text, value) \
    if (strcmp(name, text) == 0) \
        return BURST_TABLE_##id;
    BURST_DOCUMENT_TABLES(KIND)
#undef KIND
    return BURST_TABLE_GIVEN;
}

/* kind: not GIVEN. */
static inline int64_t burst_document_value(BurstTableKind kind, const BurstDocument *d, int64_t at)
{
    switch (kind) {
#define KIND(id, name, value) \
    case BURST_TABLE_##id: return (value);
        BURST_DOCUMENT_TABLES(KIND)
#undef KIND
    case BURST_TABLE_GIVEN: break;
    }
    return 0;
}

/* The document's part of a table, [sequence]. */
static inline void burst_document_fill(BurstTableKind kind, const BurstDocument *d, int32_t *table)
{
    for (int64_t at = d->begin; at < d->end; at++)
        table[at] = (int32_t)burst_document_value(kind, d, at);
}

#endif
