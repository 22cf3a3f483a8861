/* Vectors of 8 or 16 floats, and rows of any stored type read and written through them: all arithmetic is fp32.
 *
 * GNU C's vector types, so that one source serves every instruction set that `build.py` compiles for.
 */
#pragma once
#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))
#ifdef __AVX512F__
#define LANES 16
#else
#define LANES 8
#endif

typedef float floats __attribute__((vector_size(4 * LANES), aligned(4)));
typedef int32_t ints __attribute__((vector_size(4 * LANES), aligned(4)));
typedef uint32_t words __attribute__((vector_size(4 * LANES), aligned(4)));
typedef uint16_t halves __attribute__((vector_size(2 * LANES), aligned(2)));

/* In the order of `native.TYPES`. Rows are computed in one of the first three; the others are codes. */
enum type { BF16, FP16, FP32, INT8, FP8 };

INLINE int64_t size_of(const enum type type) {
    return type == FP32 ? 4 : type == BF16 || type == FP16 ? 2 : 1;
}

/* GNU C's own conversion from bytes goes lane by lane. */
INLINE ints load_bytes(const char *from) {
#if LANES == 16
    return (ints)_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i_u *)from));
#else
    return (ints)_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i_u *)from));
#endif
}

INLINE floats load(const enum type type, const char *from) {
    floats all;
    if (type == FP32) {
        memcpy(&all, from, sizeof all);
        return all;
    }
    if (type == INT8) return __builtin_convertvector(load_bytes(from), floats);
    if (type == FP8) /* e4m3: sign and seven bits of fp32's exponent and mantissa, its bias 120 less */
        return (floats)(((words)load_bytes(from) << 20) & 0x87f00000) * 0x1p120f; /* NaN, which is no code: 480 */
#if LANES == 16
    const __m256i stored = _mm256_loadu_si256((const __m256i_u *)from);
    return type == BF16 ? (floats)((words)_mm512_cvtepu16_epi32(stored) << 16) : (floats)_mm512_cvtph_ps(stored);
#else
    const __m128i stored = _mm_loadu_si128((const __m128i_u *)from);
    return type == BF16 ? (floats)((words)_mm256_cvtepu16_epi32(stored) << 16) : (floats)_mm256_cvtph_ps(stored);
#endif
}

/* The bits of a bf16 in the upper half of each word: to nearest, ties to even. A NaN out of arithmetic is quiet,
 * which its upper half says, and stays one. */
INLINE words bits_of_bf16(floats all) {
    const words bits = (words)all;
    return bits + ((0x7fff + ((bits >> 16) & 1)) & (words)(all == all));
}

INLINE halves bits_of_fp16(floats all) {
#if LANES == 16
    return (halves)_mm512_cvtps_ph((__m512)all, _MM_FROUND_TO_NEAREST_INT);
#else
    return (halves)_mm256_cvtps_ph((__m256)all, _MM_FROUND_TO_NEAREST_INT);
#endif
}

/* Of a type that rows are computed in. */
INLINE void store(const enum type type, char *to, floats all) {
    if (type == FP32) {
        memcpy(to, &all, sizeof all);
        return;
    }
    const halves narrow = type == FP16 ? bits_of_fp16(all) : __builtin_convertvector(bits_of_bf16(all) >> 16, halves);
    memcpy(to, &narrow, sizeof narrow);
}

/* What `load` gives of what `store` has stored. */
INLINE floats rounded(const enum type type, floats all) {
    if (type == FP32) return all;
    if (type == BF16) return (floats)(bits_of_bf16(all) & 0xffff0000);
    const halves narrow = bits_of_fp16(all);
    return load(FP16, (const char *)&narrow);
}

/* The last elements of a row whose length is no multiple of LANES; the other lanes are 0. */
INLINE floats load_some(const enum type type, const char *from, int64_t count) {
    char padded[4 * LANES] = {0};
    memcpy(padded, from, count * size_of(type));
    return load(type, padded);
}

INLINE void store_some(const enum type type, char *to, floats all, int64_t count) {
    char padded[4 * LANES];
    store(type, padded, all);
    memcpy(to, padded, count * size_of(type));
}
