/* step/verify/verify.h: proofs 7 to 10, of the step's list of operations and of its values' offsets. */
#ifndef BURST_STEP_VERIFY_VERIFY_H
#define BURST_STEP_VERIFY_VERIFY_H

#include "step/memory/memory.h"

#define STEP_PROOFS(X) \
    X(VALUES, 7, "every read sees its own value") X(GRADIENTS, 8, "every gradient complete") \
    X(UNITS, 9, "weights gathered, gradients reduced once") X(STREAMS, 10, "streams apart")
typedef enum StepProof {
#define X(id, number, name) STEP_##id = number,
    STEP_PROOFS(X)
#undef X
} StepProof;
/* Returns false after one diagnostic, about a fault of burstc. */
bool step_verify(Arena *a, Diags *d, const Flow *f);
/* Checks invariants after every pass (verify/passes.c). Returns false after one diagnostic, about a fault of
 * burstc. */
bool step_check(Diags *d, const Step *s, const char *pass);
void print_step_proofs(Text *out);

#endif
