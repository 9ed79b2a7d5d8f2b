/* emit/emit.h: a plan as the text of a program, and that text read again. */
#ifndef BURST_EMIT_EMIT_H
#define BURST_EMIT_EMIT_H

#include "search/search.h"

/* ---- shares.c: ranks of different speed have different shares of a sequence ---- */
void print_trace(Arena *a, const Plan *p, Text *out); /* emit/tracing.c: the predicted step, for Perfetto */

/* ---- emit/program.c: text of the program ---- */
/* C or CUDA; command: as typed, for its first comment */
void emit_program(Arena *a, const Found *f, const char *command, Text *out);
/* emit/library.c: the same of attention alone, for another program to call: no main, no global state */
void emit_library(Arena *a, const Found *f, const char *command, Text *out);

/* ---- check_text.c: the emitted text, read again by libclang ---- */
/* Reports as errors, at their line of the text `name`: what clang diagnoses (-Wall -Wextra), dropped
 * statuses of burst_ and plan_ functions, buffers of PlanBuffers that plan_alloc does not take or nothing
 * uses, calls outside the runtime and a short list. runtime_include: the folder of burst_rt.h and of the
 * other headers that it includes. 0, -1 after problems; without libclang 0 after a warning. */
int check_emitted_c(Arena *a, Diags *d, const char *name, const Text *text, const char *runtime_include,
                    const Target *target);

#endif
