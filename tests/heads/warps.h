/* warps.h: in place of cuda_attention.cuh, what cuda_scores.cuh needs, for a block of threads on a CPU. They
 * are contexts that take turns and give way at barriers; a warp's instructions have barriers of the warp
 * around them, from the PTX manual's tables of fragments. Copies land when they are waited for, and not
 * before. */
#pragma once
#define CUDA_ATTENTION_CUH
#include "burst_attend.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <ucontext.h>
#include <vector>

#define __device__
#define __global__
#define __host__
#define __shared__
#define __forceinline__ inline
#define __grid_constant__
#define __launch_bounds__(x)
#define __align__(x) __attribute__((aligned(x)))
#define CUDART_INF_F INFINITY
enum cudaError_t { cudaSuccess };
enum { cudaFuncAttributeMaxDynamicSharedMemorySize };
template <class F> static cudaError_t cudaFuncSetAttribute(F, int, int) { return cudaSuccess; }
static inline cudaError_t cudaGetLastError() { return cudaSuccess; }
using std::isnan;
using std::max;
using std::min;

static struct {
    unsigned x, y;
} threadIdx, blockIdx;

/* ---- numbers ---- */
struct __nv_bfloat16 {
    uint16_t bits;
};
struct __nv_bfloat162 {
    __nv_bfloat16 x, y;
};
struct float2 {
    float x, y;
};

static inline uint32_t __float_as_uint(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float __uint_as_float(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline float wide(uint16_t bits) { return __uint_as_float((uint32_t)bits << 16); }

static inline uint16_t rounded(float x)
{
    const uint32_t bits = __float_as_uint(x);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static inline float2 __bfloat1622float2(__nv_bfloat162 v) { return {wide(v.x.bits), wide(v.y.bits)}; }
template <class T> static inline T __ldg(const T *at) { return *at; }

/* ---- threads ---- */
enum { BLOCK_THREADS = 256, WARP = 32, STACK = 1 << 16 };

struct Meeting {
    int waiting, times;
};
static struct Threads {
    ucontext_t turns, of[BLOCK_THREADS];
    bool ended[BLOCK_THREADS];
    int now;
    Meeting block, warp[BLOCK_THREADS / WARP];
    std::function<void()> body;
    std::vector<char> stack;
} threads;

static inline void meet(Meeting *m, int of)
{
    const int time = m->times, me = threads.now;
    if (++m->waiting == of)
        m->waiting = 0, m->times++;
    while (m->times == time)
        swapcontext(&threads.of[me], &threads.turns);
    threadIdx.x = (unsigned)me;
}

static inline void __syncthreads() { meet(&threads.block, BLOCK_THREADS); }
static inline void meet_warp() { meet(&threads.warp[threads.now / WARP], WARP); }

static inline int __syncthreads_or(int mine)
{
    static int any;
    __syncthreads();
    any = 0;
    __syncthreads();
    any |= mine;
    __syncthreads();
    return any;
}

static inline void one_thread()
{
    threads.body();
    threads.ended[threads.now] = true;
    swapcontext(&threads.of[threads.now], &threads.turns);
}

/* Runs all threads of a block. */
static inline void run_block(std::function<void()> body)
{
    threads.body = body;
    threads.stack.resize((size_t)BLOCK_THREADS * STACK);
    for (int t = 0; t < BLOCK_THREADS; t++) {
        threads.ended[t] = false;
        getcontext(&threads.of[t]);
        threads.of[t].uc_stack.ss_sp = &threads.stack[(size_t)t * STACK];
        threads.of[t].uc_stack.ss_size = STACK;
        makecontext(&threads.of[t], one_thread, 0);
    }
    for (bool some = true; some;) {
        some = false;
        for (int t = 0; t < BLOCK_THREADS; t++) {
            if (threads.ended[t])
                continue;
            some = true, threads.now = t, threadIdx.x = (unsigned)t;
            swapcontext(&threads.turns, &threads.of[t]);
        }
    }
}

/* ---- instructions ---- */
alignas(16) static uint32_t select_shared[64 << 10]; /* the kernel's shared memory */

namespace burst {

static inline uint32_t shared_address(const void *at)
{
    return (uint32_t)((const char *)at - (const char *)select_shared);
}

static inline char *shared_at(uint32_t address)
{
    if (address % 16 || address >= sizeof select_shared)
        fprintf(stderr, "address %u is not one of 16 bytes\n", address), exit(1);
    return (char *)select_shared + address;
}

static inline float max_or_nan(float x, float y) { return isnan(x) || isnan(y) ? NAN : max(x, y); }
static inline uint32_t pack(float low, float high) { return rounded(low) | (uint32_t)rounded(high) << 16; }

/* ldmatrix.x4: lanes 8 m to 8 m + 7 have the addresses of the rows of matrix m. */
static inline void load_block(uint32_t r[4], uint32_t address)
{
    static uint32_t row[BLOCK_THREADS];
    const int me = threads.now, warp = me / WARP * WARP, lane = me % WARP;
    row[me] = address;
    meet_warp();
    for (int m = 0; m < 4; m++)
        memcpy(&r[m], shared_at(row[warp + 8 * m + lane / 4]) + lane % 4 * 4, 4);
    meet_warp();
}

static inline float half_of(uint32_t two, int which) { return wide((uint16_t)(two >> 16 * which)); }

/* mma.m16n8k16: element (i, k) of A is in lane i % 8 * 4 + k % 8 / 2, register i / 8 + 2 (k / 8), that of B
 * at (k, j) in lane 4 j + k % 8 / 2, register k / 8, and C's (i, j) in lane i % 8 * 4 + j / 2. */
static inline void mma(float c[4], const uint32_t a[4], uint32_t b0, uint32_t b1)
{
    static uint32_t of_a[BLOCK_THREADS][4], of_b[BLOCK_THREADS][2];
    const int me = threads.now, warp = me / WARP * WARP, lane = me % WARP;
    memcpy(of_a[me], a, sizeof of_a[me]);
    of_b[me][0] = b0, of_b[me][1] = b1;
    meet_warp();
    for (int e = 0; e < 4; e++) {
        const int i = lane / 4 + e / 2 * 8, j = lane % 4 * 2 + e % 2;
        double sum = 0;
        for (int k = 0; k < 16; k++)
            sum += (double)half_of(of_a[warp + i % 8 * 4 + k % 8 / 2][i / 8 + k / 8 * 2], k % 2) *
                   half_of(of_b[warp + j * 4 + k % 8 / 2][k / 8], k % 2);
        c[e] += (float)sum;
    }
    meet_warp();
}

struct Copy {
    char *to;
    const void *from;
    bool there;
    int group;
};
static std::vector<Copy> copies[BLOCK_THREADS];
static int groups[BLOCK_THREADS];

static inline void copy16(uint32_t to, const void *from, bool there)
{
    copies[threads.now].push_back({shared_at(to), from, there, groups[threads.now]});
}

static inline void copies_commit() { groups[threads.now]++; }

template <int PENDING> static inline void copies_wait()
{
    std::vector<Copy> &of = copies[threads.now], later;
    for (const Copy &c : of)
        if (c.group >= groups[threads.now] - PENDING)
            later.push_back(c);
        else if (c.there)
            memcpy(c.to, c.from, 16);
        else
            memset(c.to, 0, 16);
    of = later;
}

} // namespace burst
