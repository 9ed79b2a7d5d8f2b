/* emit/emit.h: prints a plan as a program's text, and checks that text. */
#ifndef BURST_EMIT_EMIT_H
#define BURST_EMIT_EMIT_H

#include "search/search.h"

/* ---- emit/tracing.c ---- */
void print_trace(Arena *a, const Plan *p, Text *out); /* the predicted step, for Perfetto */

/* ---- emit/program.c: text of the program ---- */
/* command: as typed, for the first comment. C or CUDA. */
void emit_program(Arena *a, const Found *f, const char *command, Text *out);
/* emit/library.c: the same for attention alone, called by another program: without main or global state */
void emit_library(Arena *a, const Found *f, const char *command, Text *out);

/* ---- check_text.c: the emitted text, read again by libclang ---- */
/* Reports errors at lines of the text `name`: clang's diagnostics (-Wall -Wextra), ignored statuses of
 * burst_ and plan_ functions, buffers of PlanBuffers that plan_alloc does not allocate or nothing uses, and
 * calls outside the runtime and a short list. runtime_include: the folder of burst_rt.h and the headers that
 * it includes. Returns 0, or -1 after problems; without libclang 0 after a warning. */
int check_emitted_c(Arena *a, Diags *d, const char *name, const Text *text, const char *runtime_include,
                    const Target *target);

#endif
