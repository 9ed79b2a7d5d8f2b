/* tile.cuh: tensor-core products of bf16 tiles in shared memory, m16n8k16 with fp32 sums (sm_80 and later),
 * and asynchronous loads. Tiles' rows are padded by PAD elements, so that eight rows lie in different banks.
 */
#ifndef BURST_CUDA_SCAN_TILE_CUH
#define BURST_CUDA_SCAN_TILE_CUH

#include "cuda/ops/scan/scan.h"
#include "cuda/ops/vec.cuh"

#include <cuda_runtime.h>

enum { PAD = 8 };

/* ---- the instructions ---- */

static __device__ __forceinline__ unsigned shared_address(const void *p)
{
    return (unsigned)__cvta_generic_to_shared(p);
}

static __device__ __forceinline__ void ldmatrix(uint32_t r[4], const Bf16 *p)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(p))
                 : "memory");
}

static __device__ __forceinline__ void ldmatrix_trans(uint32_t r[4], const Bf16 *p)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(p))
                 : "memory");
}

/* c += a b */
static __device__ __forceinline__ void mma(float c[4], const uint32_t a[4], uint32_t b0, uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
                 "{%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* 16 bytes from global to shared memory; zeros where `there` is false. */
static __device__ __forceinline__ void copy16(void *to, const void *from, bool there)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"(shared_address(to)), "l"(from), "r"(there ? 16 : 0)
                 : "memory");
}

static __device__ __forceinline__ void copies_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int LEFT> static __device__ __forceinline__ void copies_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}

static __device__ __forceinline__ char *shared_memory()
{
    extern __shared__ __align__(128) char memory[];
    return memory;
}

/* Blocks may take more shared memory than kernels get by themselves. */
template <typename Args>
static inline void launch(void (*kernel)(Args), dim3 blocks, int threads, size_t shared, cudaStream_t stream,
                          const Args &args)
{
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
    kernel<<<blocks, threads, shared, stream>>>(args);
}

/* ---- fragments ---- */

/* Of [16][16] of a, from rows of it, or from rows of its transpose. */
static __device__ __forceinline__ void load_a(uint32_t r[4], const Bf16 *tile, int stride)
{
    const int lane = threadIdx.x % WARP;
    ldmatrix(r, tile + (lane % 16) * stride + lane / 16 * 8);
}

static __device__ __forceinline__ void load_a_trans(uint32_t r[4], const Bf16 *tile, int stride)
{
    const int lane = threadIdx.x % WARP;
    ldmatrix_trans(r, tile + (lane % 8 + lane / 16 * 8) * stride + lane / 8 % 2 * 8);
}

/* Of [16][16] of b: r[0], r[1] of its first eight columns, r[2], r[3] of the others; from rows of b, or of
 * its transpose. */
static __device__ __forceinline__ void load_b(uint32_t r[4], const Bf16 *tile, int stride)
{
    const int lane = threadIdx.x % WARP;
    ldmatrix_trans(r, tile + (lane % 16) * stride + lane / 16 * 8);
}

static __device__ __forceinline__ void load_b_trans(uint32_t r[4], const Bf16 *tile, int stride)
{
    const int lane = threadIdx.x % WARP;
    ldmatrix(r, tile + (lane % 8 + lane / 16 * 8) * stride + lane / 8 % 2 * 8);
}

/* Element j of a sum c[4] of a warp lies in row sum_row(j), column sum_column(j) of [16][8]. */
static __device__ __forceinline__ int sum_row(int j) { return threadIdx.x % WARP / 4 + j / 2 * 8; }
static __device__ __forceinline__ int sum_column(int j) { return threadIdx.x % 4 * 2 + j % 2; }

/* The sum over a row of a fragment's lanes, in all four. */
static __device__ __forceinline__ float row_sum(float x)
{
    x += __shfl_xor_sync(0xffffffffu, x, 1);
    return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

/* c [16][8 * TILES] += a b with a's 16 columns from k on in `a`; b is [k][n] in memory, or with TRANS [n][k].
 */
template <int TILES, bool TRANS>
static __device__ __forceinline__ void multiply(float c[TILES][4], const uint32_t a[4], const Bf16 *b,
                                                int stride)
{
#pragma unroll
    for (int tile = 0; tile < TILES; tile += 2) {
        uint32_t r[4];
        if (TRANS)
            load_b_trans(r, b + tile * 8 * stride, stride);
        else
            load_b(r, b + tile * 8, stride);
        mma(c[tile], a, r[0], r[1]);
        mma(c[tile + 1], a, r[2], r[3]);
    }
}

template <int TILES> static __device__ __forceinline__ void clear(float c[TILES][4])
{
#pragma unroll
    for (int tile = 0; tile < TILES; tile++)
#pragma unroll
        for (int j = 0; j < 4; j++)
            c[tile][j] = 0;
}

static __device__ __forceinline__ void store_pair(Bf16 *p, float low, float high)
{
    *reinterpret_cast<uint32_t *>(p) = pack(low, high);
}

static __device__ __forceinline__ float2 load_pair(const Bf16 *p)
{
    const uint32_t word = *reinterpret_cast<const uint32_t *>(p);
    return make_float2(__uint_as_float(word << 16), __uint_as_float(word & 0xffff0000u));
}

/* A tile of ALL rows of WIDTH columns by THREADS threads, whole rows at a time; rows from `rows` on become
 * zeros. */
template <int THREADS, int WIDTH, int ALL>
static __device__ __forceinline__ void copy_tile(Bf16 *to, int stride, const Bf16 *from, int64_t pitch,
                                                 int rows)
{
    constexpr int VECTORS = WIDTH / VEC, STEP = THREADS / VECTORS;
    static_assert(THREADS % VECTORS == 0 && ALL % STEP == 0, "whole rows, by all threads");
    const int first = threadIdx.x / VECTORS, at = threadIdx.x % VECTORS * VEC;
    const Bf16 *p = from + first * pitch + at;
#pragma unroll
    for (int row = first; row < first + ALL; row += STEP, p += STEP * pitch)
        copy16(to + row * stride + at, row < rows ? p : from, row < rows);
}

#endif
