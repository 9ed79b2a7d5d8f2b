/* proof/proof.h: the proofs of docs/architecture.md. A Plan has passed all of them. */
#ifndef BURST_PROOF_PROOF_H
#define BURST_PROOF_PROOF_H

#include "layout/layout.h"

/* ---- step/passes/offload.c: values in host memory ---- */
struct Plan;

/* ---- Plan: only verify makes one ---- */
typedef struct Plan Plan;
/* Proofs 1 to 6 of docs/architecture.md. Returns NULL after an error that names the broken proof and the
 * line. */
const Plan *verify(Arena *a, Diags *d, const Draft *draft);
/* The same in two parts: the proofs of attention, which hold for all drafts with the same attention and
 * tokens, and the rest, for a draft whose attention is proved. */
bool verify_attention(Arena *a, Diags *d, const Draft *draft);
const Plan *verify_rest(Arena *a, Diags *d, const Draft *draft);
/* Proofs 7 to 10 for the plan that is printed or written. Returns false after an error, which is a fault of
 * burstc, and a note on where to read the step's list. */
bool verify_step(Arena *a, Diags *d, const Draft *draft);
bool memory_fits(const Draft *draft); /* proof 6 */
bool device_fits(const Draft *draft); /* proof 6 without the hosts */
double host_needs(const Draft *draft); /* bytes that the host with most ranks needs */
bool host_fits(const Draft *draft);   /* proof 6 for hosts: all ranks of a node together */
/* For tests: proofs 1 to 5 of one direction, and the proof of pruning for every rank. */
bool verify_schedule(Arena *a, Diags *d, const Schedule *s);
bool verify_pruned(Arena *a, Diags *d, const Schedule *s, const uint8_t *pair, const char *mask);
const Draft *plan_draft(const Plan *p);
void print_plan(const Plan *p, Text *out);

#endif
