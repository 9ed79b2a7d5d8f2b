/* host.h: declarations shared inside the host backend, not seen by emitted programs. */
#ifndef BURST_HOST_H
#define BURST_HOST_H

/* First thing in main, before threads: one BLAS thread a process unless OPENBLAS_NUM_THREADS says otherwise, and the
 * AVX-512 kernels of OpenBLAS where it would choose others on a processor that has AVX-512. OPENBLAS_CORETYPE, when
 * set, is left alone. */
void burst_blas_setup(void);

#endif
