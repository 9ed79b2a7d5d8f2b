/* vec.cuh: eight elements at a time (16 bytes of bf16), and sums over a warp and a block in a fixed order. */
#ifndef BURST_CUDA_VEC_CUH
#define BURST_CUDA_VEC_CUH

#include <cuda_bf16.h>
#include <stdint.h>

enum { VEC = 8, WARP = 32 };
/* rows that one thread sums in fp32 before it adds to doubles: the error does not grow with the length */
enum { IN_FLOATS = 64 };

/* Programmatic dependent launch (sm_90; nothing elsewhere): a kernel that is launched so begins when all
 * blocks of the one before it have let it, and until it has awaited that one it touches only what nothing
 * writes. */
static __device__ __forceinline__ void let_next_begin()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}

static __device__ __forceinline__ void await_previous()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

static __device__ __forceinline__ void load(const __nv_bfloat16 *p, float f[VEC])
{
    const uint4 bits = *reinterpret_cast<const uint4 *>(p);
    const uint32_t word[4] = {bits.x, bits.y, bits.z, bits.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        f[2 * i] = __uint_as_float(word[i] << 16);
        f[2 * i + 1] = __uint_as_float(word[i] & 0xffff0000u);
    }
}

static __device__ __forceinline__ void load(const float *p, float f[VEC])
{
    const float4 a = reinterpret_cast<const float4 *>(p)[0], b = reinterpret_cast<const float4 *>(p)[1];
    f[0] = a.x, f[1] = a.y, f[2] = a.z, f[3] = a.w;
    f[4] = b.x, f[5] = b.y, f[6] = b.z, f[7] = b.w;
}

static __device__ __forceinline__ uint32_t pack(float low, float high)
{
    const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
    uint32_t word;
    memcpy(&word, &both, sizeof word);
    return word;
}

static __device__ __forceinline__ void store(__nv_bfloat16 *p, const float f[VEC])
{
    *reinterpret_cast<uint4 *>(p) = make_uint4(pack(f[0], f[1]), pack(f[2], f[3]), pack(f[4], f[5]),
                                               pack(f[6], f[7]));
}

static __device__ __forceinline__ void store(float *p, const float f[VEC])
{
    reinterpret_cast<float4 *>(p)[0] = make_float4(f[0], f[1], f[2], f[3]);
    reinterpret_cast<float4 *>(p)[1] = make_float4(f[4], f[5], f[6], f[7]);
}

/* all += sum; resets sum. */
static __device__ __forceinline__ void take_sum(float sum[VEC], double all[VEC])
{
#pragma unroll
    for (int i = 0; i < VEC; i++)
        all[i] += sum[i], sum[i] = 0;
}

template <typename T> static __device__ __forceinline__ T warp_sum(T x)
{
#pragma unroll
    for (int lane = WARP / 2; lane > 0; lane /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, lane);
    return x;
}

/* The sum over a block of whole warps, in every thread. May be called again immediately. */
template <typename T> static __device__ __forceinline__ T block_sum(T x)
{
    __shared__ T part[WARP];
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, warps = blockDim.x / WARP;
    x = warp_sum(x);
    __syncthreads(); /* the last call's parts have been read */
    if (lane == 0)
        part[warp] = x;
    __syncthreads();
    return warp_sum(lane < warps ? part[lane] : T(0));
}
#endif
