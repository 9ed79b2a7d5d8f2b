/* blas.h: what OpenBLAS needs of the process. */
#ifndef BURST_BASE_BLAS_H
#define BURST_BASE_BLAS_H

#include <stdbool.h>
#include <stddef.h>

/* First thing in main, before threads: one BLAS thread a process unless OPENBLAS_NUM_THREADS says
 * otherwise, and the AVX-512 kernels of OpenBLAS where it would choose others on a processor that has
 * AVX-512. OPENBLAS_CORETYPE, when set, is left alone. */
void burst_blas_setup(void);
/* Whether a limit of the address space (ulimit -v) leaves room for OpenBLAS beside these bytes; else text
 * says what is needed. OpenBLAS does not: each of its threads asks for its buffer again and again, and a
 * fork or an exit waits for the thread. */
bool burst_blas_fits(size_t bytes, char *text, size_t size);

#endif
