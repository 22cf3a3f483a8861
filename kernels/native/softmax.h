/* What a softmax is made of, on vectors. */
#pragma once
#include "vectors.h"

INLINE floats all_of(float value) {
    return (floats){0} + value;
}

/* e^x for x <= 0: 2^n times a polynomial in [-1/2, 1/2], relative error below 2e-7; below 2^-126: 0. */
INLINE floats exponential(floats x) {
    const floats powers = x * 1.44269504088896f;
    const ints is_tiny = powers < -126.0f;
    const floats y = (floats)(((ints)powers & ~is_tiny) | ((ints)all_of(-126.0f) & is_tiny));
    const floats shifted = y + 12582912.0f; /* 1.5 * 2^23: rounds, and leaves n in the low bits */
    const floats f = y - (shifted - 12582912.0f);
    floats r = 1.33335581e-3f + f * 1.54035304e-4f;
    r = 9.61812911e-3f + f * r;
    r = 5.55041087e-2f + f * r;
    r = 2.40226507e-1f + f * r;
    r = 6.93147181e-1f + f * r;
    r = 1.0f + f * r;
    return (floats)(((ints)r + ((ints)shifted << 23)) & ~is_tiny);
}

/* cap * tanh(x / cap) */
INLINE floats capped(floats x, float cap) {
    const floats size = (floats)((words)x & 0x7fffffff) * (1 / cap);
    const floats e = exponential(-2 * size);
    const floats bent = cap * (1 - e) / (1 + e);
    return (floats)((words)bent | ((words)x & 0x80000000));
}

INLINE floats larger(floats a, floats b) {
#if LANES == 16
    return (floats)_mm512_max_ps((__m512)a, (__m512)b);
#else
    return (floats)_mm256_max_ps((__m256)a, (__m256)b);
#endif
}

/* Not by shuffles in a loop: the compiler would make their orders at run time. */
INLINE float largest(floats all) {
#if LANES == 16
    return _mm512_reduce_max_ps((__m512)all);
#else
    float most = all[0];
    for (int lane = 1; lane < LANES; lane++) most = all[lane] > most ? all[lane] : most;
    return most;
#endif
}
