/* By what RMSNorm multiplies a row: 1 / sqrt(mean(x^2) + eps).
 *
 * Eight sums lane by lane, their sum in order, its root, and the square of that: as PyTorch's operations have it. Any
 * other order is as good, but a model in 16 bit whose two best tokens are one step of its logits apart then answers
 * as it does without this kernel. (Products of 16 bit are exact, so it does not matter that the sum is fused.)
 */
#pragma once
#include <math.h>

#include "vectors.h"

typedef float eight __attribute__((vector_size(32), aligned(4)));

INLINE eight load_eight(const enum type type, const char *from) {
    if (type == FP32) return *(const eight *)from;
    const __m128i stored = _mm_loadu_si128((const __m128i_u *)from);
    if (type == FP16) return (eight)_mm256_cvtph_ps(stored);
    return (eight)_mm256_slli_epi32(_mm256_cvtepu16_epi32(stored), 16);
}

/* totals: of the squares of whole eights; rest: the elements of the row behind those. */
INLINE float norm_scale(const enum type type, eight totals, const char *rest, int64_t rest_length, int64_t length,
                        float eps) {
    float total = totals[0];
    for (int lane = 1; lane < 8; lane++) total += totals[lane];
    if (rest_length > 0) {
        const floats last = load_some(type, rest, rest_length);
        for (int lane = 0; lane < rest_length; lane++) total += last[lane] * last[lane];
    }
    const float root = sqrtf(total);
    float mean = root * root * (float)(1.0 / (double)length);
    __asm__("" : "+x"(mean)); /* rounded before eps is added: the compiler would fuse them */
    return 1 / sqrtf(mean + eps);
}

/* Of `count` rows, so that the sums of one do not wait for themselves. x: rows of `length` without gaps. */
INLINE void norm_scales(const enum type type, const int count, float *scales, const char *x, int64_t length,
                        float eps) {
    const int64_t row_bytes = length * size_of(type), whole = length / 8 * 8;
    eight totals[4] = {0};
    for (int64_t at = 0; at < whole; at += 8)
        for (int row = 0; row < count; row++) {
            const eight part = load_eight(type, x + row * row_bytes + at * size_of(type));
            totals[row] += part * part;
        }
    for (int row = 0; row < count; row++)
        scales[row] = norm_scale(type, totals[row], x + row * row_bytes + whole * size_of(type), length - whole,
                                 length, eps);
}
