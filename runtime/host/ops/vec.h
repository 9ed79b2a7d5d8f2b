/* vec.h: fp32 vectors of the width that -march selects: AVX-512, AVX2, or plain x86-64's 128 bits.
 *
 * Arithmetic uses GNU vector types (a * b + c contracts to one FMA); intrinsics only where these lack an
 * operation. */
#ifndef BURST_HOST_VEC_H
#define BURST_HOST_VEC_H

#include <math.h>
#include <stdint.h>
#include <string.h>
#ifdef __SSE2__
#include <immintrin.h>
#endif

#if defined(__AVX512F__) && defined(__AVX512DQ__)
enum { VEC = 16 };
#elif defined(__AVX2__)
enum { VEC = 8 };
#else
enum { VEC = 4 };
#endif

typedef float Vec __attribute__((vector_size(VEC * 4)));
typedef int32_t VecInt __attribute__((vector_size(VEC * 4)));
/* Vectors of doubles have half as many elements: a vector wider than a register goes through memory at each
 * operation. */
typedef float VecHalf __attribute__((vector_size(VEC * 2)));
typedef double VecDouble __attribute__((vector_size(VEC * 4)));
typedef int64_t VecLong __attribute__((vector_size(VEC * 4)));
enum { VEC_DOUBLES = VEC / 2 };
/* for any float's address */
typedef float VecAny __attribute__((vector_size(VEC * 4), aligned(4), may_alias));
typedef float VecHalfAny __attribute__((vector_size(VEC * 2), aligned(4), may_alias));

#define VEC_INLINE static inline __attribute__((always_inline))

VEC_INLINE Vec vec_load(const float *p)
{
    return *(const VecAny *)p;
}

VEC_INLINE void vec_store(float *p, Vec x)
{
    *(VecAny *)p = x;
}

VEC_INLINE Vec vec_set(float x)
{
    return x - (Vec){0};
}

/* The VEC_DOUBLES floats at p. */
VEC_INLINE VecDouble vec_load_doubles(const float *p)
{
    return __builtin_convertvector(*(const VecHalfAny *)p, VecDouble);
}

/* Adds the lanes of low, then those of high, one after the other. */
VEC_INLINE double vec_total(VecDouble low, VecDouble high)
{
    double total = 0;
    for (int lane = 0; lane < VEC_DOUBLES; lane++)
        total += low[lane];
    for (int lane = 0; lane < VEC_DOUBLES; lane++)
        total += high[lane];
    return total;
}

/* Loads the first n < VEC floats at p, padded with zeros; reads nothing beyond. */
VEC_INLINE Vec vec_load_part(const float *p, int n)
{
#if defined(__AVX512F__) && defined(__AVX512DQ__)
    return (Vec)_mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), p);
#else
    Vec x = {0};
    memcpy(&x, p, (size_t)n * sizeof *p);
    return x;
#endif
}

VEC_INLINE void vec_store_part(float *p, Vec x, int n)
{
#if defined(__AVX512F__) && defined(__AVX512DQ__)
    _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), (__m512)x);
#else
    memcpy(p, &x, (size_t)n * sizeof *p);
#endif
}

/* where[i] is all ones or zero. */
VEC_INLINE Vec vec_select(VecInt where, Vec yes, Vec no)
{
    return (Vec)(((VecInt)yes & where) | ((VecInt)no & ~where));
}

/* Returns b if either is NaN. */
VEC_INLINE Vec vec_max(Vec a, Vec b)
{
#if defined(__AVX512F__) && defined(__AVX512DQ__)
    return (Vec)_mm512_max_ps((__m512)a, (__m512)b);
#elif defined(__AVX2__)
    return (Vec)_mm256_max_ps((__m256)a, (__m256)b);
#else
    return vec_select(a > b, a, b);
#endif
}

VEC_INLINE Vec vec_sqrt(Vec x)
{
#if defined(__AVX512F__) && defined(__AVX512DQ__)
    return (Vec)_mm512_sqrt_ps((__m512)x);
#elif defined(__AVX2__)
    return (Vec)_mm256_sqrt_ps((__m256)x);
#elif defined(__SSE2__)
    return (Vec)_mm_sqrt_ps((__m128)x);
#else
    for (int i = 0; i < VEC; i++)
        x[i] = sqrtf(x[i]);
    return x;
#endif
}

/* Lane i comes from x if bit i of bits is set, else from other. */
VEC_INLINE Vec vec_pick(uint32_t bits, Vec x, Vec other)
{
#if defined(__AVX512F__) && defined(__AVX512DQ__)
    return (Vec)_mm512_mask_blend_ps((__mmask16)bits, (__m512)other, (__m512)x);
#else
    VecInt bit;
    for (int i = 0; i < VEC; i++)
        bit[i] = 1 << i;
    return vec_select(((int32_t)bits & bit) == bit, x, other);
#endif
}

/* Rounds to the nearest integer; infinities and NaN do not change. */
VEC_INLINE Vec vec_round(Vec x)
{
    const float shift = 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer in the low bits */
    VecInt small = (x < vec_set(shift / 3)) & (x > vec_set(-shift / 3)); /* all others are integers */
    return vec_select(small, (x + shift) - shift, x);
}

VEC_INLINE float vec_sum(Vec x)
{
    float s = 0;
    for (int i = 0; i < VEC; i++)
        s += x[i];
    return s;
}

/* 2^f on [-1/2, 1/2]: minimax polynomial, relative error below 2e-9 before rounding. */
VEC_INLINE Vec vec_exp2_core(Vec f)
{
    Vec p = vec_set(0.0001534581201f);
    p = p * f + 0.001339993122f;
    p = p * f + 0.009618488957f;
    p = p * f + 0.05550328777f;
    p = p * f + 0.2402264689f;
    p = p * f + 0.6931472057f;
    return p * f + 1.0f;
}

/* 2^x, relative error about 1e-7. Exactly 0 for x < -125, so also for -inf; large if 2^x overflows (infinity
 * or 2^127); NaN propagates. Results that underflow cost an assist of a hundred cycles on Intel's cores, so
 * none is computed. */
VEC_INLINE Vec vec_exp2(Vec x)
{
#if defined(__AVX512F__) && defined(__AVX512DQ__)
    const __mmask16 normal = _mm512_cmp_ps_mask((__m512)x, _mm512_set1_ps(-125), _CMP_NLT_UQ);
    x = (Vec)_mm512_maskz_mov_ps(normal, (__m512)x);
    Vec n = (Vec)_mm512_roundscale_ps((__m512)x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    return (Vec)_mm512_maskz_scalef_ps(normal, (__m512)vec_exp2_core(x - n), (__m512)n);
#else
    const float shift = 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer in the low bits */
    const VecInt small = x < vec_set(-125);
    x = vec_select(small, vec_set(0), x);
    x = vec_select(x > vec_set(127), vec_set(127), x);
    const Vec n = x + shift;
    /* 2^n as a factor: adding to the exponent would turn NaN into a number */
    const VecInt power = ((VecInt)n - ((VecInt)vec_set(shift) - 127)) << 23;
    const Vec p = vec_exp2_core(x - (n - shift)) * (Vec)power;
    return (Vec)((VecInt)p & ~small);
#endif
}

/* tanh x, relative error about 1e-7: a series near 0, where 1 - 2 / (1 + e^2x) would lose digits. NaN
 * propagates. */
VEC_INLINE Vec vec_tanh(Vec x)
{
    const Vec z = x * x, far = 1.0f - 2.0f / (1.0f + vec_exp2(x * 2.88539008177792681472f));
    Vec p = vec_set(-5.70498872745e-3f);
    p = p * z + 2.06390887954e-2f;
    p = p * z - 5.37397155531e-2f;
    p = p * z + 1.33314422036e-1f;
    p = p * z - 3.33332819422e-1f;
    return vec_select((x > 0.625f) | (x < -0.625f), far, p * z * x + x);
}

/* Sines and cosines of VEC_DOUBLES angles up to 2^40, exact to fp32: reduced by quarter turns in double,
 * then Taylor series. */
VEC_INLINE void vec_sincos(const VecDouble *angle, float *sine, float *cosine)
{
    const double shift = 6755399441055744.0; /* 1.5 * 2^52: adding it rounds to an integer in the low bits */
    const double quarter = 0x1.921fb544p0, quarter_rest = 0x1.0b4611a626331p-34;
    VecDouble turns = *angle * 0.63661977236758134308 + shift, n = turns - shift;
    VecLong quadrant = (VecLong)turns;
    VecDouble r = *angle - n * quarter - n * quarter_rest, z = r * r;
    VecDouble s = z * (-1 / 39916800.0) + 1 / 362880.0, c = z * (-1 / 3628800.0) + 1 / 40320.0;
    s = (((s * z - 1 / 5040.0) * z + 1 / 120.0) * z - 1 / 6.0) * z * r + r;
    c = (((c * z - 1 / 720.0) * z + 1 / 24.0) * z - 0.5) * z + 1.0;
    VecLong odd = -(quadrant & 1);
    VecLong for_sine = ((VecLong)c & odd) | ((VecLong)s & ~odd),
            for_cosine = ((VecLong)s & odd) | ((VecLong)c & ~odd);
    for_sine ^= (quadrant & 2) << 62; /* to the sign bit */
    for_cosine ^= ((quadrant + 1) & 2) << 62;
    *(VecHalfAny *)sine = __builtin_convertvector((VecDouble)for_sine, VecHalf);
    *(VecHalfAny *)cosine = __builtin_convertvector((VecDouble)for_cosine, VecHalf);
}

/* Sum of a[i] * b[i] in double; equal n have the same order of additions. */
static inline double vec_dot(int64_t n, const float *a, const float *b)
{
    VecDouble low = {0}, high = {0};
    int64_t i = 0;
    for (; i + VEC <= n; i += VEC) {
        low += vec_load_doubles(a + i) * vec_load_doubles(b + i);
        high += vec_load_doubles(a + i + VEC_DOUBLES) * vec_load_doubles(b + i + VEC_DOUBLES);
    }
    if (i < n) {
        float x[VEC], y[VEC];
        vec_store(x, vec_load_part(a + i, (int)(n - i)));
        vec_store(y, vec_load_part(b + i, (int)(n - i)));
        low += vec_load_doubles(x) * vec_load_doubles(y);
        high += vec_load_doubles(x + VEC_DOUBLES) * vec_load_doubles(y + VEC_DOUBLES);
    }
    return vec_total(low, high);
}

#endif
