/* RMSNorm of rows, on a CPU.
 *
 *     y = x / sqrt(mean(x^2) + eps) * w
 *
 * One pass for the length of a row, one that multiplies and rounds once, while the row is in the nearest cache.
 * A row's bits depend on nothing but the row. NaN in a row gives NaN in all of it.
 */
#include <math.h>

#include "vectors.h"

#define APART 4 /* sums that do not wait for each other */

INLINE float squares(const enum type type, const char *x, int64_t length) {
    floats totals[APART] = {0};
    int64_t at = 0;
    for (; at + APART * LANES <= length; at += APART * LANES)
        for (int i = 0; i < APART; i++) {
            const floats part = load(type, x + (at + i * LANES) * size_of(type));
            totals[i] += part * part;
        }
    for (; at + LANES <= length; at += LANES) {
        const floats part = load(type, x + at * size_of(type));
        totals[0] += part * part;
    }
    if (at < length) {
        const floats part = load_some(type, x + at * size_of(type), length - at);
        totals[1] += part * part;
    }
    return sum((totals[0] + totals[1]) + (totals[2] + totals[3]));
}

INLINE void rows(const enum type type, const enum type weight_type, char *out, const char *x, const char *weight,
                 float eps, int64_t count, int64_t length) {
    for (int64_t row = 0; row < count; row++, x += length * size_of(type), out += length * size_of(type)) {
        const float scale = 1 / sqrtf(squares(type, x, length) / (float)length + eps);
        int64_t at = 0;
        for (; at + LANES <= length; at += LANES)
            store(type, out + at * size_of(type),
                  load(type, x + at * size_of(type)) * scale * load(weight_type, weight + at * size_of(weight_type)));
        if (at < length)
            store_some(type, out + at * size_of(type),
                       load_some(type, x + at * size_of(type), length - at) * scale *
                           load_some(weight_type, weight + at * size_of(weight_type), length - at),
                       length - at);
    }
}

/* x, out: [rows, length] without gaps, in `type`. weight: [length], in `type` or, if `is_weight_wide`, in fp32. */
void firsttoken_rmsnorm(char *out, const char *x, int32_t type, const char *weight, int32_t is_weight_wide, float eps,
                        int64_t first_row, int64_t last_row, int64_t length) {
    const int64_t count = last_row - first_row, skipped = first_row * length * size_of(type);
    out += skipped;
    x += skipped;
    if (type == FP32) rows(FP32, FP32, out, x, weight, eps, count, length);
    else if (type == BF16 && is_weight_wide) rows(BF16, FP32, out, x, weight, eps, count, length);
    else if (type == BF16) rows(BF16, BF16, out, x, weight, eps, count, length);
    else if (is_weight_wide) rows(FP16, FP32, out, x, weight, eps, count, length);
    else rows(FP16, FP16, out, x, weight, eps, count, length);
}
