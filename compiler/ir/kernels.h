/* ir/kernels.h: the CUDA attention kernels of a program's devices. */
#ifndef BURST_IR_KERNELS_H
#define BURST_IR_KERNELS_H

#include "ir/program.h"
#include "burst_kernels.h"

typedef struct Kernels {
    int form;                      /* their architecture: 80, 90. 0: there are none */
    const char *forward, *backward; /* headers */
    BurstTileSizes tile;
    /* the architecture of all devices, whose own kernels `unfit`; NULL: those run */
    const char *missed, *unfit;
    double share[2];    /* of the rates that such devices state, what these reach forward and backward */
} Kernels;
Kernels kernels_of(const Program *p);
/* What the kernels' headers ask of the program that includes them. */
void kernels_define(const Program *p, Text *out);
/* All forms, the best first; unfit: why the program cannot have it, after "kernels for <arch>"; NULL: it
 * can. */
enum { KERNEL_FORMS = 2 };
typedef struct KernelForm {
    int form;
    const char *arch;
    BurstTileSizes tile;
    const char *unfit, *header[2];
} KernelForm;
int kernels_forms(const Program *p, KernelForm out[KERNEL_FORMS]);
/* Columns of a head in attention's products, on average: forward two of keys and values, backward three and
 * two. */
double model_columns(const Model *m, bool backward);
/* Columns of a head that attention's products take at the rates that the devices state: head_dim as
 * kernels pad it, over `share`. */
double kernels_columns(const Program *p, bool backward);

#endif
