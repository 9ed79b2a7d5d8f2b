/* proof/internal.h: shared by proof/proofs.c and proof/pruned.c, and by tests of the verifier. */
#ifndef VERIFY_H
#define VERIFY_H

#include "proof/proof.h"

#define PROOFS(X) \
    X(PAIRS, 1, "every pair once") X(SUMS, 2, "every sum home") X(MESSAGES, 3, "sends meet receives") \
    X(SLOTS, 4, "slots") X(LINKS, 5, "links and streams") X(MEMORY, 6, "memory")
typedef enum Proof {
#define X(id, number, name) PROOF_##id = number,
    PROOFS(X)
#undef X
} Proof;
extern const char *const proof_names[]; /* by number */

/* Proves that pruning is complete for each mask of the layers with the schedule, and for samples of
 * per-token tables. */
bool verify_masks(Arena *a, Diags *d, const Draft *t, const Schedule *s);
/* As verify_pruned, but for `live` instead of the result of prune(): it must be what each pair needs of both
 * sides (NULL: whole chunks), and nothing else. pair: in choice_pairs' order. */
bool verify_live(Arena *a, Diags *d, const Schedule *s, Live live, const uint8_t *pair,
                 const BurstPairTiles *tiles, const char *mask);

/* ---- pieces.c: part of proof 1: pieces that recurrent layers scan in place ---- */
bool verify_pieces(Arena *a, Diags *d, const Draft *t);

/* ---- scratch.c: part of proof 6: scratch of operations, and offsets of attention's buffers ---- */
bool verify_scratch(Arena *a, Diags *d, const Draft *t);

#endif
