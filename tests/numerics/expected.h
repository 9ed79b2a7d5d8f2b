/* expected.h: the file in which the oracle hands inputs and right answers to the harness.
 *
 * Header, inputs (float), document tables (int32), then one Case with its answers (double) for every mask,
 * and for masks that read documents one for every table. What belongs to a mask does not depend on
 * schedule, partition or ranks: one file serves many emitted programs. Cases in turn of one mask and table
 * are parts of one answer, NaN in what the others judge. Offsets are in bytes from the file's begin and
 * multiples of 8.
 */
#ifndef EXPECTED_H
#define EXPECTED_H

#include <stdint.h>

#define EXPECTED_MAGIC 0x3436656c6361726fu /* "oracle64" */
/* name, what there are of them per token and head: 0 for query heads, 1 for key heads; size 0: one */
#define OUTPUTS(X) \
    X(o, 0, 1) X(lse, 0, 0) X(dq, 0, 1) X(dk, 1, 1) X(dv, 1, 1)
enum {
#define X(name, of_keys, vector) OUT_##name,
    OUTPUTS(X)
#undef X
    OUT_COUNT
};
enum { IN_q, IN_d_o, IN_k, IN_v, IN_COUNT }; /* [H][n][d] twice, [Hk][n][d] twice */

typedef struct ExpectedCase {
    int32_t mask;  /* index of the plan's mask */
    int32_t table; /* which document table */
    uint64_t out[OUT_COUNT];
    double scale[OUT_COUNT]; /* what errors are divided by: see oracle.c */
} ExpectedCase;
typedef struct Expected {
    uint64_t magic;
    int64_t n;
    int32_t heads, kv_heads, head_dim, masks, tables, cases;
    uint64_t in[IN_COUNT];
    uint64_t table; /* [tables][n] */
    uint64_t case_at; /* ExpectedCase[cases] */
    uint64_t bytes;
} Expected;

static inline void *expected_at(const Expected *e, uint64_t offset)
{
    return (char *)e + offset;
}

#endif
