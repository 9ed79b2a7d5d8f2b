/* emit_step.h: shared by the files that print the step's operations. */
#ifndef EMIT_STEP_H
#define EMIT_STEP_H

#include "emit/internal.h"
#include "emit/emit.h"

typedef struct Printer {
    Emit *emit;
    const Flow *flow;
    const Step *step;
    const Block *block;
    /* [values * 3]: whether the block's function has a variable for the value: of this index, of the next,
     * of the embedding */
    bool *known;
    bool said;         /* burst_doing was printed */
} Printer;

/* ---- emit/step.c: operands as text ---- */
const char *type_of(const Value *v);
const char *turn_text(const Printer *p, const Op *o); /* "chunk": the number of its innermost loop's turn */
const char *copying_layers(const Printer *p, const Op *o); /* "layer > 0" */
const char *place_text(const Printer *p, const Op *o, Operand x); /* "plan_act(s, PLAN_AT_X(layer))" */
/* The visit of an operation's unit, and its unit, or those of so many visits later. */
const char *visit_of(const Printer *p, const Op *o, int next);
const char *unit_at_text(const Printer *p, const Op *o, int next);
const char *variable(const Printer *p, const Op *o, Operand x);
/* "BURST_TRY(burst_op_gather(e, ", or for a part of the trace "BURST_OP(NORM, burst_op_rmsnorm(e, " */
const char *call_begin(const Printer *p, const Op *o, const char *function);
/* Prints begin, then items with commas, broken into lines. */
void emit_list(Emit *e, const char *begin, const char *const *item, int n, const char *end);

/* ---- emit/calls.c: the call of an operation ---- */
enum { CALL_WORDS = 20 };
/* function: "burst_op_embed(e", with the arguments that all calls have; item: the others. Returns their
 * number. */
int call_words(const Printer *p, const Op *o, const char **function, const char *item[CALL_WORDS]);
const Operand *find_weight(const Printer *p, const Op *o); /* NULL: it reads none */

/* ---- emit/heads.c: widths, and chunks of heads ---- */
const char *all_text(const Printer *p); /* "n": tokens of loops over chunks and of attention */
const char *head_width_text(Dim d); /* " * PLAN_HEAD_DIM": elements per head; "": not by heads */
const char *width_text(const Printer *p, const Op *o, const Value *v, bool heads);
/* the begin of the loop's chunk in a value with all heads */
const char *heads_begin_text(const Printer *p, const Value *v);
const char *heads_weight_text(const Printer *p, const UnitTensor *t); /* the same in a tensor of weights */

/* ---- emit/streams.c: operations on other streams than computing's, waits for them, and operations on whole
 * units ---- */
bool emit_stream_op(Printer *p, const Op *o); /* false: it is not one of them */
bool emit_wait(Printer *p, const Op *o); /* prints a listed wait; false: it is none, or has a name */

#endif
