/* measure.h: programs that measure this machine, for `burstc probe` and `burstc bench`; private to them and
 * their tests.
 *
 * burstc writes a program with the masks and kernels that it would emit for a model
 * (templates/burst_measure_*), compiles it like a training program, runs it and reads the figures that it
 * prints. So burstc itself needs no CUDA. */
#ifndef BURST_MEASURE_H
#define BURST_MEASURE_H

#include "tools/tools.h"

enum { MEASURE_MOST = 16, MEASURE_NAME = 128 };

/* Attention of one sequence with itself under one of the program's masks, all heads. */
typedef struct MeasureCase { int mask, head_dim, value_dim, tokens, heads, kv_heads; } MeasureCase;
typedef struct MeasureJob {
    const Program *program; /* gives masks and target; its cluster's devices give the architecture */
    const char *share;
    bool machine;           /* also measures memory and passes, and for GPUs PCIe and links; on all GPUs */
    double seconds;         /* length of the rounds */
    int cases;
    const MeasureCase *at;  /* [cases] */
} MeasureJob;

/* forward, backward: seconds of one call, tiles of one head, cycles of a multiprocessor per tile (0: not
 * known) */
typedef struct MeasuredAttention { double pairs, seconds[2], tiles[2], cycles[2]; } MeasuredAttention;
/* bytes/s alone, bytes/s while computing, seconds */
typedef struct MeasuredLink { double alone, beside, latency; } MeasuredLink;
enum { LINK_AUTO, LINK_NCCL, LINKS };
typedef struct Measured {
    int gpus;
    double memory;           /* bytes of a device */
    char device[MEASURE_NAME];
    double product;          /* FLOP/s */
    double passes, norms, copy; /* bytes/s; 0: not measured, and neither is what follows */
    double experts; /* FLOP/s of products of experts' matrices, partial tiles counted as whole */
    /* processors: the largest ratio of median to fastest repetition among all measurements */
    double spread;
    /* pinned memory, all GPUs at once: to them alone; while computing to them, from them, each way at once */
    double pcie[4];
    /* several GPUs: the slowest one's time over the fastest one's, of products and attention in both
     * directions */
    double apart[3];
    /* several GPUs: bytes/s that a rank sends of gradients, alone and while computing; how many times as
     * long computing takes meanwhile */
    double reduction[3];
    MeasuredLink link[LINKS];
    MeasuredAttention attention[MEASURE_MOST];
} Measured;

/* Prints the program. */
void measure_emit(const MeasureJob *j, Text *out);
/* Reads its output. Returns NULL, or what is wrong with it. Every figure must be positive and of a plausible
 * size. */
const char *measure_read(Arena *a, const char *text, const MeasureJob *j, Measured *out);
/* Writes, compiles and runs it in a temporary folder under $TMPDIR, which is kept only if something fails.
 * Errors are in d. */
bool measure_run(Arena *a, Diags *d, const MeasureJob *j, Measured *out);
/* A checked program: a model with these masks, each in its own place, and a cluster of one node. Masks are
 * expressions in the language of .burst. Returns NULL with an error in d. */
typedef struct MeasureModel {
    const char *const *masks;
    int n, heads, kv_heads, head_dim, gpus;
    int64_t tokens;
    const char *arch;
} MeasureModel;
const Program *measure_program(Arena *a, Diags *d, const char *share, const MeasureModel *m);

/* The number of GPUs that nvidia-smi lists, and their common architecture ("sm_90a"). 0: no GPU or no
 * driver; -1: an error is in d. */
int measure_gpus(Arena *a, Diags *d, const char **arch);

/* ---- probe_attention.c: attention's rates from the measurements ---- */
enum { PROBE_LONG = -1 }; /* the rates of long rows */
/* A measured case, and the rate that it determines: attention_forward and _backward, or a row of its
 * kind. */
typedef struct ProbeCase {
    const char *mask;
    int head_dim, kind; /* AttentionKind, or PROBE_LONG */
} ProbeCase;
typedef struct ProbeCases {
    int n;
    const ProbeCase *at; /* [n] rows of keys by falling keys */
    int tokens, heads, kv_heads;
    double seconds;      /* length of the rounds */
    const char *unit_name;
    double unit;         /* FLOP/s */
} ProbeCases;
/* a program with the measured masks */
const Program *probe_program(Arena *a, Diags *d, const char *share, const ProbeCases *c, const char *arch,
                             int gpus);
MeasureJob probe_job(Arena *a, const Program *p, const char *share, const ProbeCases *c);
/* Prints comments: each case's rate over its unmasked pairs. */
void probe_print_cases(const ProbeCases *c, const Measured *m, Text *out);
/* Prints a device's attention rates. */
void probe_print_rates(Arena *a, const Program *p, const ProbeCases *c, const Measured *m, Text *out);

/* ---- probe.c, probe_gpu.c: the cluster's text from the measurements ---- */
/* the fastest network cards, as their drivers report */
typedef struct Cards { double gigabits; int count; } Cards;
/* memory: bytes; for processors, cores and memory are of all nodes together */
typedef struct ProbedHost { int nodes, cores; double memory; Cards cards; } ProbedHost;
extern const ProbeCases probe_cpu_cases, probe_gpu_cases;
bool probe_uncertain(const Measured *m); /* others used the processors meanwhile */
/* devices: of a node */
void probe_cpu_print(Arena *a, const Program *p, const Measured *m, const ProbedHost *h, int devices,
                     Text *out);
void probe_gpu_print(Arena *a, const Program *p, const Measured *m, const ProbedHost *h, Text *out);
Cards probe_cards(Arena *a, const char *sys); /* sys: the kernel's folder, /sys */
/* Prints the cluster's text. Returns false with an error in d. */
bool probe_gpus(Arena *a, Diags *d, const char *share, int gpus, const char *arch, ProbedHost h, Text *out);

#endif
