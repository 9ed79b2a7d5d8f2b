/* muon.h: the matrices of a layer that Muon updates, for both backends. */
#ifndef BURST_CORE_MUON_H
#define BURST_CORE_MUON_H

#include "burst_muon.h"
#include "burst_rt.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A matrix lies at its owner as tensor ranks have it: one part after the other, each [rows][cols / parts]
 * where they split its columns. */
typedef struct MuonMatrix {
    const BurstTensor *tensor;
    int owner;     /* of the ranks that share the weights */
    int64_t at;    /* where the owner has it, in elements of `matrices` */
    int parts;     /* over which its columns are split; 1: none are */
} MuonMatrix;
/* What a rank of the world has of a matrix: `count` elements from `begin` of its shard, which are those from
 * `at` on at the owner. sends: it is the one of those that have the same which sends it. */
typedef struct MuonPart {
    int64_t begin, count, at;
    bool sends;
} MuonPart;

bool muon_updates(const struct BurstPlan *p, int unit, const BurstTensor *t);
/* Of the unit, which is a layer: how many; BURST_E_MEMORY with a text where there is no memory for the table.
 */
int muon_matrices(BurstCtx *c, int unit, MuonMatrix matrix[BURST_MUON_MATRICES], int *count);
MuonPart muon_part(const BurstCtx *c, int rank, int unit, const MuonMatrix *x);

#ifdef __cplusplus
}
#endif
#endif
