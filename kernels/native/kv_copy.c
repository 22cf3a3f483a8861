/* Keys and values of rows to their slots in the paged cache and back, on a CPU, whatever the formats of the slots: in
 * one pass over a row, with eight-bit codes made and read on the way.
 *
 *     scale = fp16(max |x| / L),  code = round_half_even(x / scale) clamped to +-L,  read back: code * scale
 *
 * The stored bytes are those of `kv_quant`, which says what its edges are. A row's bytes depend on the row alone.
 */
#include <stddef.h>

#include "vectors.h"

/* Of compact slots: the type of the computation, or codes with scales. In the order of `kv_copy._STORED`. */
enum stored { PLAIN, INT8, FP8 };

#define LARGEST_SCALE 65504.0f

/* Keys or values of one layer in all slots. */
struct pool {
    char *full;       /* [num_full, heads, head_dim] */
    char *compact;    /* [num_compact, heads, head_dim] */
    uint16_t *scales; /* [num_compact, heads] fp16; NULL: plain */
};

INLINE ints nearest(floats all) {
#if LANES == 16
    return (ints)_mm512_cvtps_epi32((__m512)all);
#else
    return (ints)_mm256_cvtps_epi32((__m256)all);
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

/* GNU C's own conversions from and to bytes go lane by lane. */
INLINE ints load_bytes(const char *from) {
#if LANES == 16
    return (ints)_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i_u *)from));
#else
    return (ints)_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i_u *)from));
#endif
}

INLINE void store_bytes(char *to, ints all) {
#if LANES == 16
    _mm_storeu_si128((__m128i_u *)to, _mm512_cvtepi32_epi8((__m512i)all));
#else
    const __m256i wide = (__m256i)all;
    const __m128i pairs = _mm_packs_epi32(_mm256_castsi256_si128(wide), _mm256_extracti128_si256(wide, 1));
    _mm_storel_epi64((__m128i_u *)to, _mm_packs_epi16(pairs, pairs));
#endif
}

INLINE floats widened(const enum stored stored, const char *from) {
    const ints codes = load_bytes(from);
    if (stored == INT8) return __builtin_convertvector(codes, floats);
    const words bits = (words)codes;
    return (floats)(((words)((floats)((bits & 0x7f) << 20) * 0x1p120f)) | (bits & 0x80000000));
}

/* One head. Larger magnitudes are larger integers too, and an infinity or a NaN is larger than every number. */
INLINE void quantize(const enum type type, const enum stored stored, char *codes, uint16_t *scale, const char *from,
                     int64_t head_dim) {
    const float largest = stored == INT8 ? 127.0f : 448.0f;
    ints most = {0};
    for (int64_t d = 0; d < head_dim; d += LANES) {
        const ints magnitude = (ints)load(type, from + d * size_of(type)) & 0x7fffffff, is_more = magnitude > most;
        most = (magnitude & is_more) | (most & ~is_more);
    }
    int32_t bits = 0;
    for (int lane = 0; lane < LANES; lane++) bits = most[lane] > bits ? most[lane] : bits;
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
        floats all = load(type, from + d * size_of(type)) / divisor;
        const ints is_above = all > largest, is_below = all < -largest;
        const floats high = (floats){0} + largest;
        all = (floats)(((ints)all & ~(is_above | is_below)) | ((ints)high & is_above) | ((ints)-high & is_below));
        store_bytes(codes + d, stored == INT8 ? nearest(all) : bits_of_fp8(all));
    }
}

INLINE void dequantize(const enum type type, const enum stored stored, char *to, const char *codes, uint16_t scale,
                       int64_t head_dim) {
    const float factor = _cvtsh_ss(scale);
    for (int64_t d = 0; d < head_dim; d += LANES) store(type, to + d * size_of(type), widened(stored, codes + d) * factor);
}

INLINE int64_t copy(const int is_write, const enum type type, const enum stored stored, char *rows,
                    int64_t bytes_between_rows, const int64_t *slots, int64_t first_row, int64_t last_row,
                    int64_t heads, int64_t head_dim, struct pool pool, int64_t num_full, int64_t num_compact) {
    const int64_t head_bytes = head_dim * size_of(type), row_bytes = heads * head_bytes;
    for (int64_t row = first_row; row < last_row; row++) {
        const int64_t slot = slots[row], compact = slot - num_full;
        if (slot < 0 || compact >= num_compact) return row;
        char *at = rows + row * bytes_between_rows;
        if (compact < 0 || stored == PLAIN) {
            char *place = compact < 0 ? pool.full + slot * row_bytes : pool.compact + compact * row_bytes;
            memcpy(is_write ? place : at, is_write ? at : place, row_bytes);
            continue;
        }
        for (int64_t head = 0; head < heads; head++, at += head_bytes) {
            char *codes = pool.compact + (compact * heads + head) * head_dim;
            uint16_t *scale = pool.scales + compact * heads + head;
            if (is_write) quantize(type, stored, codes, scale, at, head_dim);
            else dequantize(type, stored, at, codes, *scale, head_dim);
        }
    }
    return last_row;
}

INLINE int64_t of_type(const int is_write, const enum type type, int32_t stored, char *rows,
                       int64_t bytes_between_rows, const int64_t *slots, int64_t first_row, int64_t last_row,
                       int64_t heads, int64_t head_dim, struct pool pool, int64_t num_full, int64_t num_compact) {
#define COPY(stored)                                                                                          \
    copy(is_write, type, stored, rows, bytes_between_rows, slots, first_row, last_row, heads, head_dim, pool, \
         num_full, num_compact)
    return stored == INT8 ? COPY(INT8) : stored == FP8 ? COPY(FP8) : COPY(PLAIN);
}

/* rows: [.., heads, head_dim] in `type`, without gaps in a row; head_dim a multiple of 16. slots: of each row; those
 * from num_full on are compact. is_write: rows go to their slots; else they come from there. Returns the first row
 * whose slot does not exist, where it stops; else last_row. */
int64_t firsttoken_kv_copy(int32_t is_write, int32_t type, int32_t stored, char *rows, int64_t bytes_between_rows,
                           const int64_t *slots, int64_t first_row, int64_t last_row, int64_t heads,
                           int64_t head_dim, char *full, char *compact, uint16_t *scales, int64_t num_full,
                           int64_t num_compact) {
    const struct pool pool = {full, compact, scales};
#define OF_TYPE(is_write, type)                                                                               \
    of_type(is_write, type, stored, rows, bytes_between_rows, slots, first_row, last_row, heads, head_dim, pool, \
            num_full, num_compact)
    if (is_write) return type == BF16 ? OF_TYPE(1, BF16) : type == FP16 ? OF_TYPE(1, FP16) : OF_TYPE(1, FP32);
    return type == BF16 ? OF_TYPE(0, BF16) : type == FP16 ? OF_TYPE(0, FP16) : OF_TYPE(0, FP32);
}
