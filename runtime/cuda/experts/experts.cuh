/* experts.cuh: products of the rows of tokens by the matrices of the experts that they chose: what the
 * kernels of sm_90a (experts_sm90.cuh) and of sm_80 (experts_sm80.cuh) share.
 *
 * Rows of an expert are first[e] up to first[e + 1], which only the device knows. A persistent grid takes
 * tiles in order: those of expert 0, then those of expert 1; every thread counts them itself. Sums over the
 * rows of an expert differ in length, so that blocks of sm_90a take the next tile when they are done. */
#ifndef BURST_CUDA_EXPERTS_CUH
#define BURST_CUDA_EXPERTS_CUH

#include "burst_sizes.h"
#include "burst_step_cuda.h"

/* Rows: c[rows][columns] in bf16 = a b of the row's expert, where a has `inner` columns, and b of an expert
 * is [columns][inner] or, turned, [inner][columns]. Weights: c[experts][lines][columns] in fp32 += a^T b
 * over the expert's rows, where a has `lines` columns. A gathered side has the rows of tokens, in the
 * order of `row`. */
enum { EXPERTS_UP, EXPERTS_DOWN, EXPERTS_UP_DX, EXPERTS_DOWN_DX, EXPERTS_UP_DW, EXPERTS_DOWN_DW };
template <int FORM> struct ExpertsForm {
    static constexpr bool WEIGHTS = FORM == EXPERTS_UP_DW || FORM == EXPERTS_DOWN_DW;
    static constexpr bool GATHERS_A = FORM == EXPERTS_UP || FORM == EXPERTS_DOWN_DX ||
                                      FORM == EXPERTS_DOWN_DW;
    static constexpr bool GATHERS_B = FORM == EXPERTS_UP_DW;
    static constexpr bool TURNED_B = WEIGHTS || FORM == EXPERTS_UP_DX || FORM == EXPERTS_DOWN_DX;
};

typedef struct ExpertsProduct {
    const BurstBf16 *a, *b;
    void *c;
    const int32_t *row, *first;
    int32_t *taken; /* tiles that blocks have taken; 0 at the beginning */
    int experts, lines, columns, inner;
    uint32_t factor; /* token of a choice: burst_token_of */
    int shift;
} ExpertsProduct;

/* choice / top of choices below 2^31 (Granlund and Montgomery, PLDI 1994): factor is 2^(31 + shift) / top
 * rounded up, 2^shift at least top. */
static inline void experts_divide(ExpertsProduct *p, int top)
{
    p->shift = 0;
    while ((1 << p->shift) < top)
        p->shift++;
    p->factor = (uint32_t)((((uint64_t)1 << (31 + p->shift)) + (uint64_t)top - 1) / (uint64_t)top);
}
static __device__ __forceinline__ int64_t experts_token(const ExpertsProduct &p, int32_t choice)
{
    return (int64_t)((uint64_t)(uint32_t)choice * p.factor >> (31 + p.shift));
}

/* Tiles of BM lines and BN columns, those of a line of tiles next to each other. */
template <int FORM, int BM, int BN> struct ExpertsWalk {
    int expert, before, tiles, begin, rows, across;

    __device__ __forceinline__ void open(const ExpertsProduct &p)
    {
        begin = p.first[expert], rows = p.first[expert + 1] - begin;
        const int lines = ExpertsForm<FORM>::WEIGHTS ? p.lines : rows;
        tiles = rows ? (lines + BM - 1) / BM * across : 0;
    }

    __device__ __forceinline__ void start(const ExpertsProduct &p)
    {
        expert = before = 0, across = (p.columns + BN - 1) / BN;
        open(p);
    }

    /* To the expert of a tile; tiles come in ascending order. False: there are no more. */
    __device__ __forceinline__ bool seek(const ExpertsProduct &p, int tile)
    {
        while (tile >= before + tiles) {
            before += tiles;
            if (++expert == p.experts)
                return false;
            open(p);
        }
        return true;
    }

    __device__ __forceinline__ int line(int tile) const { return (tile - before) / across * BM; }
    __device__ __forceinline__ int column(int tile) const { return (tile - before) % across * BN; }
    /* of the sum that an element of a tile is */
    __device__ __forceinline__ int inner(const ExpertsProduct &p) const
    {
        return ExpertsForm<FORM>::WEIGHTS ? rows : p.inner;
    }
};

#endif
