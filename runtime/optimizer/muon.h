/* muon.h: the layers' matrices that Muon updates, for both backends. */
#ifndef BURST_CORE_MUON_H
#define BURST_CORE_MUON_H

#include "burst_muon.h"
#include "burst_plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* At its owner a matrix is stored as tensor ranks split it: one part after the other, each [rows][cols /
 * parts] if its columns are split. */
typedef struct MuonMatrix {
    const BurstTensor *tensor;
    int owner;     /* among the ranks that share the weights */
    int64_t at;    /* its offset at the owner, in elements of `matrices` */
    int parts;     /* parts of its columns; 1: not split */
} MuonMatrix;
/* A world rank's part of a matrix: `count` elements from `begin` of its shard, at offset `at` at the owner.
 * sends: this rank sends it, among those that have the same. */
typedef struct MuonPart {
    int64_t begin, count, at;
    bool sends;
} MuonPart;

bool muon_updates(const struct BurstPlan *p, int unit, const BurstTensor *t);
/* Fills matrix with a unit's matrices; *count: their number. Returns BURST_E_MEMORY with a message if
 * the table cannot be allocated. */
int muon_matrices(BurstCtx *c, int unit, MuonMatrix matrix[BURST_MUON_MATRICES], int *count);
void muon_close(BurstCtx *c);
MuonPart muon_part(const BurstCtx *c, int rank, int unit, const MuonMatrix *x);

#ifdef __cplusplus
}
#endif
#endif
