/* emit_step.h: between the files that print the step's operations. */
#ifndef EMIT_STEP_H
#define EMIT_STEP_H

#include "emit/internal.h"
#include "emit/emit.h"

typedef struct Printer {
    Emit *emit;
    const Flow *flow;
    const Step *step;
    const Block *block;
    /* [values * 3]: the block's function has a variable for it, of this index, of the next, of the
     * embedding */
    bool *known;
    int part;          /* that was said last; -1: none */
    bool said;         /* what the rank does */
} Printer;

/* ---- emit/step.c: operands as text ---- */
const char *type_of(const Value *v);
const char *copying_layers(const Printer *p, const Op *o); /* "layer > 0" */
const char *place_text(const Printer *p, const Op *o, Operand x); /* "plan_act(s, PLAN_AT_X(layer))" */
const char *variable(const Printer *p, const Op *o, Operand x);
/* begin, then items with commas, broken where a line is full. */
void emit_list(Emit *e, const char *begin, const char *const *item, int n, const char *end);

/* ---- emit/calls.c: the call of an operation ---- */
enum { CALL_WORDS = 20 };
/* function: "burst_op_embed(e", with the arguments that all its calls have; item: the others; how many */
int call_words(const Printer *p, const Op *o, const char **function, const char *item[CALL_WORDS]);
const Operand *find_weight(const Printer *p, const Op *o); /* NULL: it reads none */

/* ---- emit/heads.c: widths, and chunks of heads ---- */
const char *all_text(const Printer *p); /* "n": how many tokens loops over chunks are of, and attention has */
const char *head_width_text(Dim d); /* " * PLAN_HEAD_DIM": of one head; "" of no head's elements */
const char *width_text(const Printer *p, const Op *o, const Value *v, bool heads);
/* the loop's chunk, in a value of all heads */
const char *heads_begin_text(const Printer *p, const Value *v);
const char *heads_weight_text(const Printer *p, const UnitTensor *t); /* and in a tensor of weights */

/* ---- emit/streams.c: operations of streams beside computing, waits for them, and of whole units ---- */
bool emit_stream_op(Printer *p, const Op *o); /* false: it is none of them */
bool emit_wait(Printer *p, const Op *o); /* a wait as the list has it; false: it is none, or has a name */

#endif
