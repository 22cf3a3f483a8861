/* RMSNorm of rows, on a CPU.
 *
 *     y = x / sqrt(mean(x^2) + eps) * w
 *
 * The lengths of four rows in one pass, then each row is multiplied and rounded once while it is in the nearest cache.
 * A row's bits depend on nothing but the row. NaN in a row gives NaN in all of it.
 */
#include "norm.h"
#include "vectors.h"

INLINE void rows(const enum type type, const enum type weight_type, char *out, const char *x, const char *weight,
                 float eps, int64_t count, int64_t length) {
    const int64_t row_bytes = length * size_of(type);
    float scales[4];
    for (int64_t row = 0; row < count; row++, x += row_bytes, out += row_bytes) {
        if (row % 4 == 0 && count - row >= 4) norm_scales(type, 4, scales, x, length, eps);
        else if (row >= count / 4 * 4) norm_scales(type, 1, scales + row % 4, x, length, eps);
        const float scale = scales[row % 4];
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
