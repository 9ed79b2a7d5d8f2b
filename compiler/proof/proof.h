/* proof/proof.h: the proofs of docs/architecture.md. A Plan has all of them. */
#ifndef BURST_PROOF_PROOF_H
#define BURST_PROOF_PROOF_H

#include "layout/layout.h"

/* ---- step/passes/offload.c: values in the host's memory ---- */
struct Plan;

/* ---- Plan: only verify makes one ---- */
typedef struct Plan Plan;
/* The six proofs of docs/architecture.md. NULL after an error that names the broken proof and the line. */
const Plan *verify(Arena *a, Diags *d, const Draft *draft);
/* In two parts: the proofs of attention, which hold for all drafts that attend alike, with the same tokens;
 * and the rest, of a draft whose attention holds. */
bool verify_attention(Arena *a, Diags *d, const Draft *draft);
const Plan *verify_rest(Arena *a, Diags *d, const Draft *draft);
/* Proofs 7 to 10, of the plan that is printed or written. False after an error about a fault of burstc, and a
 * note of where the list can be read. */
bool verify_step(Arena *a, Diags *d, const Draft *draft);
bool memory_fits(const Draft *draft); /* proof 6 */
bool device_fits(const Draft *draft); /* ... but for the hosts */
double host_needs(const Draft *draft); /* bytes of the host with most ranks, whether it has them or not */
bool host_fits(const Draft *draft);   /* its part of the memory of hosts: all ranks of a node together */
/* Parts of it, for tests: proofs 1 to 5 of one direction, and what a mask leaves of it for every rank. */
bool verify_schedule(Arena *a, Diags *d, const Schedule *s);
bool verify_pruned(Arena *a, Diags *d, const Schedule *s, const uint8_t *pair, const char *mask);
const Draft *plan_draft(const Plan *p);
void print_plan(const Plan *p, Text *out);

#endif
