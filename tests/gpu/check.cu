/* check.cu: inputs, copies, comparison. */
#include "check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void must(Check *k, int status, const char *call)
{
    if (status == BURST_OK)
        return;
    fprintf(stderr, "rank %d: %s: %s\n", burst_rank(k->c), call, burst_error(k->c));
    fflush(stderr);
    exit(1);
}

void expect(Check *k, const char *name, bool holds)
{
    printf("rank %d  %-28s %s\n", burst_rank(k->c), name, holds ? "ok" : "FAILED");
    k->failures += !holds;
}

void compare(Check *k, const char *name, const Floats &got, const Doubles &want, double tolerance)
{
    double error = 0, norm = 0;
    for (size_t i = 0; i < want.size(); i++) {
        error += (got[i] - want[i]) * (got[i] - want[i]);
        norm += want[i] * want[i];
    }
    error = sqrt(error / norm);
    bool holds = got.size() == want.size() && norm > 0 && error <= tolerance;
    printf("rank %d  %-28s error %.2e, at most %.2e: %s\n", burst_rank(k->c), name, error, tolerance,
           holds ? "ok" : "FAILED");
    k->failures += !holds;
}

/* ---- inputs ---- */
static uint64_t next_bits(uint64_t *state)
{
    uint64_t x = *state += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

float to_bf16(float x)
{
    return __bfloat162float(__float2bfloat16_rn(x));
}

/* The sum of four uniform numbers: nearly normal. */
Floats random_floats(size_t count, unsigned seed, double scale)
{
    Floats x(count);
    uint64_t state = seed;
    for (float &f : x) {
        double sum = 0;
        for (int i = 0; i < 4; i++)
            sum += (double)(next_bits(&state) >> 40) * 0x1p-24 - 0.5;
        f = (float)(sum * scale * sqrt(3.0));
    }
    return x;
}

Floats random_bf16(size_t count, unsigned seed, double scale)
{
    Floats x = random_floats(count, seed, scale);
    for (float &f : x)
        f = to_bf16(f);
    return x;
}

std::vector<int32_t> random_ints(size_t count, unsigned seed, int below)
{
    std::vector<int32_t> x(count);
    uint64_t state = seed;
    for (int32_t &i : x)
        i = (int32_t)(next_bits(&state) % (uint64_t)below);
    return x;
}

/* ---- copies ---- */
static void *take(Check *k, size_t bytes)
{
    void *at = burst_gpu_take(k->g, bytes);
    MUST(k, at ? BURST_OK : BURST_E_MEMORY);
    return at;
}

void *poisoned(Check *k, size_t bytes)
{
    void *at = take(k, bytes);
    if (cudaMemsetAsync(at, 0xff, bytes, burst_gpu_compute(k->g)) != cudaSuccess)
        MUST(k, burst_fail(k->c, BURST_E_PLAN, "cudaMemset failed"));
    return at;
}

template <typename T> static T *up_any(Check *k, const std::vector<T> &x)
{
    T *at = (T *)take(k, x.size() * sizeof(T));
    MUST(k, burst_gpu_upload(k->g, x.data(), x.size() * sizeof(T), at));
    return at;
}

float *up(Check *k, const Floats &x)
{
    return up_any(k, x);
}

int32_t *up(Check *k, const std::vector<int32_t> &x)
{
    return up_any(k, x);
}

BurstBf16 *up_bf16(Check *k, const Floats &x)
{
    std::vector<BurstBf16> y(x.size());
    for (size_t i = 0; i < x.size(); i++)
        y[i] = __float2bfloat16_rn(x[i]);
    return up_any(k, y);
}

Floats down(Check *k, const float *x, size_t count)
{
    Floats y(count);
    MUST(k, burst_gpu_download(k->g, x, count * sizeof *x, y.data()));
    return y;
}

Floats down_bf16(Check *k, const BurstBf16 *x, size_t count)
{
    std::vector<BurstBf16> bits(count);
    MUST(k, burst_gpu_download(k->g, x, count * sizeof *x, bits.data()));
    Floats y(count);
    for (size_t i = 0; i < count; i++)
        y[i] = __bfloat162float(bits[i]);
    return y;
}
