/* proof/internal.h: between proof/proofs.c and proof/pruned.c, and what tests of the verifier reach into. */
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

/* What each mask of the layers that have the schedule leaves, and for per-token tables samples of what
 * they may leave, is complete. */
bool verify_masks(Arena *a, Diags *d, const Draft *t, const Schedule *s);
/* As verify_pruned, of what `live` says is left instead of what prune() finds: whatever each pair needs of
 * both sides (NULL: whole chunks), and nothing else. pair: as choice_pairs has it. */
bool verify_live(Arena *a, Diags *d, const Schedule *s, Live live, const uint8_t *pair,
                 const BurstPairTiles *tiles, const char *mask);

/* ---- scratch.c: of proof 6, what operations have as scratch, and where buffers lie in attention's ---- */
bool verify_scratch(Arena *a, Diags *d, const Draft *t);

#endif
