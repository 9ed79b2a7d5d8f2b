/* tools/tools.h: printed forms, fit, bench and probe. */
#ifndef BURST_TOOLS_TOOLS_H
#define BURST_TOOLS_TOOLS_H

#include "emit/emit.h"

/* ---- build.c ---- */
/* Commands that compile and link a program with the contents of the share folder. */
const char *build_command(Arena *a, const char *share, const Program *p, const char *source,
                          const char *program);
bool is_archive(const char *path); /* plan.a */
bool is_library(const char *path); /* plan.a or plan.so; false for NULL */

/* ---- kernels.c: the CUDA attention kernels of a program's devices ---- */
void print_kernels(const struct Draft *d, Text *out); /* --emit=kernels */

/* ---- Plan: only verify makes one ---- */
int memory_spaces(const Draft *d, Space *space); /* fills [MOST_SPACES]; returns their number */

/* ---- Cost: a simulated step ---- */
void print_cost(const Plan *p, const Cost *c, Text *out);

/* ---- tools/print_memory.c: --emit=memory ---- */
void print_memory(const Plan *p, const Cost *c, Text *out);

/* ---- fit.c: the longest sequences that fit ---- */
/* Prints a table of them. Returns 0, or an exit status after errors. */
int fit(Arena *a, Diags *d, const FrontEnd *in, const Program *p, Text *out);

/* ---- probe.c: a cluster with the figures of this machine ---- */
/* `burstc probe [cpus | gpus] [NODES [DEVICES]]`: GPUs if nvidia-smi lists any and no kind is given. Returns
 * false with an error in d. */
typedef struct ProbeOptions {
    enum { PROBE_ANY, PROBE_CPUS, PROBE_GPUS } kind;
    int nodes, devices; /* 0: not given */
} ProbeOptions;
/* false: an error is in d */
bool probe_machine(Arena *a, Diags *d, const char *share, const ProbeOptions *o, Text *out);

/* ---- bench.c: `burstc bench`: measures attention of a model, or of one mask, on this machine ---- */
typedef struct BenchOptions {
    const char *what, *output;
    int64_t tokens, heads, kv_heads, head_dim; /* 0: not given */
    bool peers;
} BenchOptions;
/* false: an error is in d */
bool bench(Arena *a, Diags *d, const char *share, const BenchOptions *o, Text *out);

#endif
