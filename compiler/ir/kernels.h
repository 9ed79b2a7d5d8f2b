/* ir/kernels.h: the CUDA attention kernels of a program's devices. */
#ifndef BURST_IR_KERNELS_H
#define BURST_IR_KERNELS_H

#include "ir/program.h"
#include "burst_kernels.h"

typedef struct Kernels {
    int form;                      /* architecture: 80, 90. 0: no kernels */
    const char *forward, *backward; /* headers */
    BurstTileSizes tile;
    /* the architecture of all devices if their own kernels do not fit, and why (`unfit`); NULL: they fit */
    const char *missed, *unfit;
    /* share of the devices' stated rates that these kernels reach, forward and backward */
    double share[2];
} Kernels;
Kernels kernels_of(const Program *p);
/* Writes the macros that the kernels' headers expect from the program that includes them. */
void kernels_define(const Program *p, Text *out);
/* All forms, the best first. unfit: why the program cannot use it, after "kernels for <arch>"; NULL: it
 * can. */
enum { KERNEL_FORMS = 2 };
typedef struct KernelForm {
    int form;
    const char *arch;
    BurstTileSizes tile;
    const char *unfit, *header[2];
} KernelForm;
int kernels_forms(const Program *p, KernelForm out[KERNEL_FORMS]);
/* Average columns of a head over attention's products: forward, two products of keys and values; backward,
 * three and two. */
double model_columns(const Model *m, bool backward);
/* Columns of a head that attention's products cost at the devices' stated rates: head_dim as padded by the
 * kernels, divided by `share`. */
double kernels_columns(const Program *p, bool backward);

#endif
