/* measure.h: programs that measure this machine, for `burstc probe` and `burstc bench`; private to them
 * and their tests.
 *
 * burstc writes a program with the masks and kernels that it would emit for a model
 * (templates/burst_measure_*), compiles it as it does a training program, runs it and reads the figures
 * that it prints. So burstc itself needs no CUDA.
 */
#ifndef BURST_MEASURE_H
#define BURST_MEASURE_H

#include "tools/tools.h"

enum { MEASURE_MOST = 16, MEASURE_NAME = 128 };

/* Attention of one sequence with itself under a mask of the program, all heads. */
typedef struct MeasureCase { int mask, head_dim, value_dim, tokens, heads, kv_heads; } MeasureCase;
typedef struct MeasureJob {
    const Program *program; /* its masks and target; the architecture is that of its cluster's devices */
    const char *share;
    bool machine;           /* also memory and passes, and of GPUs PCIe and links; on all GPUs */
    double seconds;         /* that the rounds take */
    int cases;
    const MeasureCase *at;  /* [cases] */
} MeasureJob;

/* forward, backward: seconds of one, tiles of one head, cycles that a multiprocessor takes for one tile
 * (0: not known) */
typedef struct MeasuredAttention { double pairs, seconds[2], tiles[2], cycles[2]; } MeasuredAttention;
/* bytes/s, while computing, seconds */
typedef struct MeasuredLink { double alone, beside, latency; } MeasuredLink;
enum { LINK_AUTO, LINK_NCCL, LINKS };
typedef struct Measured {
    int gpus;
    double memory;           /* bytes of a device */
    char device[MEASURE_NAME];
    double product;          /* FLOP/s */
    double passes, norms, copy; /* bytes/s; 0: not measured, as all that follows */
    /* of processors: the most that half of the repetitions of anything took at least, in times of the best
     * one */
    double spread;
    double pcie[2]; /* alone, while computing */
    MeasuredLink link[LINKS];
    MeasuredAttention attention[MEASURE_MOST];
} Measured;

/* The text of the program. */
void measure_emit(const MeasureJob *j, Text *out);
/* What it printed; NULL, or what is wrong with it. Every figure is positive and of a size that machines
 * have. */
const char *measure_read(Arena *a, const char *text, const MeasureJob *j, Measured *out);
/* Writes, compiles and runs it in a folder of its own under $TMPDIR, which goes unless something fails.
 * Errors are in d. */
bool measure_run(Arena *a, Diags *d, const MeasureJob *j, Measured *out);
/* A model of these masks, each with the number of its place, and a cluster of one node, as a checked
 * program: masks are expressions in the language of .burst. NULL: an error is in d. */
typedef struct MeasureModel {
    const char *const *masks;
    int n, heads, kv_heads, head_dim, gpus;
    int64_t tokens;
    const char *arch;
} MeasureModel;
const Program *measure_program(Arena *a, Diags *d, const char *share, const MeasureModel *m);

/* The GPUs that nvidia-smi lists: how many, and their architecture ("sm_90a"), which is one. 0: none here,
 * or no driver; -1: an error is in d. */
int measure_gpus(Arena *a, Diags *d, const char **arch);

/* ---- probe_attention.c: attention's rates of what was measured ---- */
enum { PROBE_LONG = -1 }; /* the rates of long rows */
/* What is timed, and the rate that it decides: attention_forward and _backward, or a row of its kind. */
typedef struct ProbeCase {
    const char *mask;
    int head_dim, kind; /* AttentionKind, or PROBE_LONG */
} ProbeCase;
typedef struct ProbeCases {
    int n;
    const ProbeCase *at; /* [n] rows of keys by falling keys */
    int tokens, heads, kv_heads;
    double seconds;      /* that the rounds take */
    const char *unit_name;
    double unit;         /* FLOP/s */
} ProbeCases;
/* the masks that are timed */
const Program *probe_program(Arena *a, Diags *d, const char *share, const ProbeCases *c, const char *arch,
                             int gpus);
MeasureJob probe_job(Arena *a, const Program *p, const char *share, const ProbeCases *c);
/* Comments: what each case reached of its unmasked pairs. */
void probe_print_cases(const ProbeCases *c, const Measured *m, Text *out);
/* A device's rates of attention. */
void probe_print_rates(Arena *a, const Program *p, const ProbeCases *c, const Measured *m, Text *out);

/* ---- probe.c, probe_gpu.c: the cluster's text of what was measured with these cases ---- */
typedef struct Cards { double gigabits; int count; } Cards; /* the fastest network cards, by their drivers */
/* bytes; of processors cores and memory of all nodes together */
typedef struct ProbedHost { int nodes, cores; double memory; Cards cards; } ProbedHost;
extern const ProbeCases probe_cpu_cases, probe_gpu_cases;
bool probe_uncertain(const Measured *m); /* others used the processors meanwhile */
/* of a node */
void probe_cpu_print(Arena *a, const Program *p, const Measured *m, const ProbedHost *h, int devices,
                     Text *out);
void probe_gpu_print(Arena *a, const Program *p, const Measured *m, const ProbedHost *h, Text *out);
Cards probe_cards(Arena *a, const char *sys); /* sys: where the kernel says it, /sys */
/* All of it; false: an error is in d. */
bool probe_gpus(Arena *a, Diags *d, const char *share, int gpus, const char *arch, ProbedHost h, Text *out);

#endif
