/* Eight-bit codes of a head, and one scale for all of it.
 *
 *     scale = fp16(max |x| / L),  code = round_half_even(x / scale) clamped to +-L,  read back: code * scale
 *
 * The stored bytes are those of `kv_quant`, which says what its edges are.
 */
#pragma once
#include "cache.h"

#define LARGEST_SCALE 65504.0f

INLINE ints nearest(floats all) {
#if LANES == 16
    return (ints)_mm512_cvtps_epi32((__m512)all);
#else
    return (ints)_mm256_cvtps_epi32((__m256)all);
#endif
}

INLINE ints larger_of(ints a, ints b) {
#if LANES == 16
    return (ints)_mm512_max_epi32((__m512i)a, (__m512i)b);
#else
    return (ints)_mm256_max_epi32((__m256i)a, (__m256i)b);
#endif
}

/* Not by shuffles in a loop: the compiler would make their orders at run time. */
INLINE int32_t largest_of(ints all) {
#if LANES == 16
    return _mm512_reduce_max_epi32((__m512i)all);
#else
    int32_t most = all[0];
    for (int lane = 1; lane < LANES; lane++) most = all[lane] > most ? all[lane] : most;
    return most;
#endif
}

/* Numbers only. */
INLINE floats clamped(floats all, float largest) {
    const floats high = (floats){0} + largest;
#if LANES == 16
    return (floats)_mm512_min_ps(_mm512_max_ps((__m512)all, (__m512)-high), (__m512)high);
#else
    return (floats)_mm256_min_ps(_mm256_max_ps((__m256)all, (__m256)-high), (__m256)high);
#endif
}

/* e4m3: 3 bits after the leading one, exponents from -6; below that steps of 2^-9. For magnitudes up to 448. As
 * signed bytes. */
INLINE ints bits_of_fp8(floats all) {
    const words sign = (words)((ints)all >> 31) << 7, magnitude = (words)all & 0x7fffffff;
    const words normal = ((magnitude + 0x7ffff + ((magnitude >> 20) & 1)) >> 20) - (120 << 3);
    const words subnormal = (words)nearest((floats)magnitude * 512.0f);
    const words is_normal = (words)((ints)magnitude >= 121 << 23); /* 2^-6 */
    return (ints)((normal & is_normal) | (subnormal & ~is_normal) | sign);
}

/* GNU C's own conversion to bytes goes lane by lane. */
INLINE void store_bytes(char *to, ints all) {
#if LANES == 16
    _mm_storeu_si128((__m128i_u *)to, _mm512_cvtepi32_epi8((__m512i)all));
#else
    const __m256i wide = (__m256i)all;
    const __m128i pairs = _mm_packs_epi32(_mm256_castsi256_si128(wide), _mm256_extracti128_si256(wide, 1));
    _mm_storel_epi64((__m128i_u *)to, _mm_packs_epi16(pairs, pairs));
#endif
}

/* Larger magnitudes are larger integers too, and an infinity or a NaN is larger than every number. */
INLINE void quantize(const enum type type, const enum type stored, char *codes, uint16_t *scale, const char *from,
                     int64_t head_dim) {
    const float largest = stored == INT8 ? 127.0f : 448.0f;
    ints most = {0};
    for (int64_t d = 0; d < head_dim; d += LANES)
        most = larger_of(most, (ints)load(type, from + d * size_of(type)) & 0x7fffffff);
    const int32_t bits = largest_of(most);
    float extent;
    memcpy(&extent, &bits, sizeof extent);
    if (bits >= 0x7f800000) {
        *scale = 0x7e00; /* NaN */
        memset(codes, 0, head_dim);
        return;
    }
    const float exact = extent / largest;
    *scale = _cvtss_sh(exact > LARGEST_SCALE ? LARGEST_SCALE : exact, _MM_FROUND_TO_NEAREST_INT);
    const float divisor = *scale ? _cvtsh_ss(*scale) : __builtin_inff();
    for (int64_t d = 0; d < head_dim; d += LANES) {
        const floats all = clamped(load(type, from + d * size_of(type)) / divisor, largest);
        store_bytes(codes + d, stored == INT8 ? nearest(all) : bits_of_fp8(all));
    }
}

INLINE void dequantize(const enum type type, const enum type stored, char *to, const char *codes, uint16_t scale,
                       int64_t head_dim) {
    const float factor = _cvtsh_ss(scale);
    for (int64_t d = 0; d < head_dim; d += LANES) store(type, to + d * size_of(type), load(stored, codes + d) * factor);
}

/* One head between a row in `type` and the codes of a pool; head: its number there. */
INLINE void encode(const enum type type, const struct pool *pool, enum which which, int64_t head, const char *from,
                   int64_t head_dim) {
    char *codes = pool->rows[which] + head * head_dim;
    if (pool->type == INT8) quantize(type, INT8, codes, pool->scales[which] + head, from, head_dim);
    else quantize(type, FP8, codes, pool->scales[which] + head, from, head_dim);
}

INLINE void decode(const enum type type, const struct pool *pool, enum which which, int64_t head, char *to,
                   int64_t head_dim) {
    const char *codes = pool->rows[which] + head * head_dim;
    if (pool->type == INT8) dequantize(type, INT8, to, codes, pool->scales[which][head], head_dim);
    else dequantize(type, FP8, to, codes, pool->scales[which][head], head_dim);
}
