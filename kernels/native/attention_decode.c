/* Attention of one query a sequence over a paged KV cache, on a CPU.
 *
 *     out[b, h] = sum_t softmax_t(scale * q[b, h] . K[slot(b, t), h / group]) * V[slot(b, t), h / group]
 *
 * Keys and values are read once, from where they lie, in the type in which they are stored; all arithmetic is
 * fp32. A sequence is walked in tiles of 8 or 16 keys with a running maximum and sum (online softmax, Milakov and
 * Gimelshein 2018), all KV heads of a tile before the next, because they lie side by side in memory and memory
 * is what bounds this. NaN in a score gives NaN in the output.
 *
 * Built once for each instruction set (`build.py`): with AVX-512, and with AVX2, FMA and F16C.
 * The caller (`firsttoken_kernels/native.py`) checks shapes and types.
 */
#include <stdint.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))
#ifdef __AVX512F__
#define LANES 16 /* floats of a vector, and keys of a tile */
#else
#define LANES 8
#endif
#define CHUNK 4 /* vectors of a head that are kept in registers at once */
#define MOST_QUERY_FLOATS 32768 /* query heads x head_dim; the caller refuses more */

typedef float floats __attribute__((vector_size(4 * LANES), aligned(4)));
typedef int32_t ints __attribute__((vector_size(4 * LANES), aligned(4)));
typedef uint32_t words __attribute__((vector_size(4 * LANES), aligned(4)));
typedef uint16_t halves __attribute__((vector_size(2 * LANES), aligned(2)));
typedef int8_t bytes __attribute__((vector_size(LANES), aligned(1)));

/* In the order of `native.TYPES`. */
enum type { BF16, FP16, FP32, INT8, FP8 };

/* Slots of one format in one layer. */
struct source {
    const char *keys, *values;
    const uint16_t *key_scales, *value_scales; /* fp16, [slots, KV heads]; NULL: not scaled */
    int64_t first_slot;
    int64_t row; /* elements of a slot: KV heads x head_dim */
    enum type type;
};

INLINE int64_t size_of(const enum type type) {
    return type == FP32 ? 4 : type == BF16 || type == FP16 ? 2 : 1;
}

/* fp16 to fp32 by moving bits: subnormals are made exact by the multiplication. */
INLINE floats widened_fp16(words bits) {
    const words sign = (bits & 0x8000) << 16;
    const words magnitude = (bits & 0x7fff) << 13;
    const floats scaled = (floats)magnitude * 0x1p112f;
    const words is_special = (words)((bits & 0x7c00) == 0x7c00);
    const words special = magnitude | 0x7f800000;
    return (floats)(((words)scaled & ~is_special) | (special & is_special) | sign);
}

INLINE float widened_scale(uint16_t bits) {
    _Float16 half;
    memcpy(&half, &bits, sizeof half);
    return (float)half;
}

INLINE floats load(const enum type type, const char *from) {
    if (type == FP32) {
        floats all;
        memcpy(&all, from, sizeof all);
        return all;
    }
    if (type == INT8) {
        bytes codes;
        memcpy(&codes, from, sizeof codes);
        return __builtin_convertvector(codes, floats);
    }
    if (type == FP8) { /* e4m3: seven bits of fp16's exponent and mantissa, its bias 8 less; NaN is 0x7f */
        bytes codes;
        memcpy(&codes, from, sizeof codes);
        const words bits = (words)__builtin_convertvector(codes, ints) & 0xff;
        const words sign = (bits & 0x80) << 24;
        const words is_nan = (words)((bits & 0x7f) == 0x7f);
        const floats scaled = (floats)((bits & 0x7f) << 20) * 0x1p120f;
        return (floats)(((words)scaled & ~is_nan) | (is_nan & 0x7fc00000) | sign);
    }
    halves stored;
    memcpy(&stored, from, sizeof stored);
    const words bits = __builtin_convertvector(stored, words);
    return type == BF16 ? (floats)(bits << 16) : widened_fp16(bits);
}

INLINE void store(const enum type type, char *to, floats all) {
    if (type == FP32) {
        memcpy(to, &all, sizeof all);
        return;
    }
    if (type == FP16) {
        for (int lane = 0; lane < LANES; lane++) {
            const _Float16 half = (_Float16)all[lane];
            memcpy(to + 2 * lane, &half, sizeof half);
        }
        return;
    }
    const words bits = (words)all; /* bf16: to nearest, ties to even; a NaN stays one */
    const words is_nan = (words)(all != all);
    const words rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    const halves narrow = __builtin_convertvector((rounded & ~is_nan) | (is_nan & 0x7fc0), halves);
    memcpy(to, &narrow, sizeof narrow);
}

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

INLINE floats halved(floats a, floats b, ints low, ints high) {
    return __builtin_shuffle(a, b, low) + __builtin_shuffle(a, b, high);
}

/* Lane i: the sum of all lanes of vector i. */
INLINE floats sums(floats all[LANES]) {
#if LANES == 16
    const ints low8 = {0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23};
    const ints low4 = {0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27};
    const ints low2 = {0, 1, 4, 5, 8, 9, 12, 13, 16, 17, 20, 21, 24, 25, 28, 29};
    const ints low1 = {0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30};
    for (int i = 0; i < 8; i++) all[i] = halved(all[2 * i], all[2 * i + 1], low8, low8 + 8);
#else
    const ints low4 = {0, 1, 2, 3, 8, 9, 10, 11};
    const ints low2 = {0, 1, 4, 5, 8, 9, 12, 13};
    const ints low1 = {0, 2, 4, 6, 8, 10, 12, 14};
#endif
    for (int i = 0; i < 4; i++) all[i] = halved(all[2 * i], all[2 * i + 1], low4, low4 + 4);
    for (int i = 0; i < 2; i++) all[i] = halved(all[2 * i], all[2 * i + 1], low2, low2 + 2);
    return halved(all[0], all[1], low1, low1 + 1);
}

INLINE float largest(floats all) {
    for (int apart = LANES / 2; apart > 0; apart /= 2) {
        ints turned;
        for (int lane = 0; lane < LANES; lane++) turned[lane] = (lane + apart) % LANES;
        const floats other = __builtin_shuffle(all, turned);
        const ints is_other = other > all;
        all = (floats)(((ints)other & is_other) | ((ints)all & ~is_other));
    }
    return all[0];
}

INLINE float sum(floats all) {
    float total = 0;
    for (int lane = 0; lane < LANES; lane++) total += all[lane];
    return total;
}

/* One slot's rows of keys, or of values, on their way into the cache. */
INLINE void fetch(const char *row, int64_t num_bytes) {
    for (int64_t at = 0; at < num_bytes; at += 64) __builtin_prefetch(row + at, 0, 3);
}

/* parts[g][t] += q[g] . key[t] lane by lane, over `width` vectors of the head. */
INLINE void dots(const enum type type, const int queries, const int width, floats parts[][LANES],
                 const char *const keys[LANES], int64_t offset, const float *q, int64_t head_dim) {
    for (int t = 0; t < LANES; t++) {
        const char *key = keys[t] + offset * size_of(type);
        floats k[CHUNK];
        for (int c = 0; c < width; c++) k[c] = load(type, key + c * LANES * size_of(type));
        for (int g = 0; g < queries; g++) {
            floats part = parts[g][t];
            for (int c = 0; c < width; c++) part += k[c] * *(const floats *)(q + g * head_dim + c * LANES);
            parts[g][t] = part;
        }
    }
}

/* out[g] += sum_t weights[g][t] * value[t], over `width` vectors of the head. */
INLINE void weigh(const enum type type, const int queries, const int width, const floats weights[],
                  const char *const values[LANES], int count, int64_t offset, float *out, int64_t head_dim) {
    floats sums_of[4][CHUNK];
    for (int g = 0; g < queries; g++)
        for (int c = 0; c < width; c++) sums_of[g][c] = *(floats *)(out + g * head_dim + c * LANES);
    for (int t = 0; t < count; t++) {
        const char *value = values[t] + offset * size_of(type);
        for (int c = 0; c < width; c++) {
            const floats v = load(type, value + c * LANES * size_of(type));
            for (int g = 0; g < queries; g++) sums_of[g][c] += v * ((const float *)&weights[g])[t];
        }
    }
    for (int g = 0; g < queries; g++)
        for (int c = 0; c < width; c++) *(floats *)(out + g * head_dim + c * LANES) = sums_of[g][c];
}

/* Up to four query heads of one KV head against one tile. */
INLINE void attend(const enum type type, const int queries, const struct source *from, const int64_t *slots,
                   const char *const keys[LANES], const char *const values[LANES], int count, int64_t kv_head,
                   int64_t kv_heads, int64_t head_dim, const float *q, float cap, float *out, float *best,
                   floats *total) {
    floats parts[4][LANES], weights[4];
    memset(parts, 0, sizeof parts);
    const int64_t first = kv_head * head_dim;
    int64_t at = 0;
    for (; at + CHUNK * LANES <= head_dim; at += CHUNK * LANES)
        dots(type, queries, CHUNK, parts, keys, first + at, q + at, head_dim);
    for (; at < head_dim; at += LANES) dots(type, queries, 1, parts, keys, first + at, q + at, head_dim);

    floats key_scales = all_of(1), value_scales = all_of(1);
    if (from->key_scales)
        for (int t = 0; t < count; t++) {
            const int64_t scale = (slots[t] - from->first_slot) * kv_heads + kv_head;
            key_scales[t] = widened_scale(from->key_scales[scale]);
            value_scales[t] = widened_scale(from->value_scales[scale]);
        }
    for (int g = 0; g < queries; g++) {
        floats scores = sums(parts[g]) * key_scales;
        if (cap > 0) scores = capped(scores, cap);
        for (int t = count; t < LANES; t++) scores[t] = -__builtin_inff();
        const float now_best = largest(scores);
        if (now_best > best[g]) {
            const floats shrunk = exponential(all_of(best[g] - now_best)); /* 0 at the first tile */
            best[g] = now_best;
            total[g] *= shrunk;
            for (int64_t d = 0; d < head_dim; d += LANES) *(floats *)(out + g * head_dim + d) *= shrunk;
        }
        const floats chances = exponential(scores - best[g]);
        total[g] += chances;
        weights[g] = chances * value_scales;
    }
    for (at = 0; at + CHUNK * LANES <= head_dim; at += CHUNK * LANES)
        weigh(type, queries, CHUNK, weights, values, count, first + at, out + at, head_dim);
    for (; at < head_dim; at += LANES)
        weigh(type, queries, 1, weights, values, count, first + at, out + at, head_dim);
}

/* All heads against one tile of slots of one format. */
INLINE void tile(const enum type type, const struct source *from, const int64_t *slots, int count,
                 const int64_t *next, int next_count, int64_t kv_heads, int64_t group, int64_t head_dim,
                 const float *q, float cap, float *out, float *best, floats *total) {
    const int64_t num_bytes = from->row * size_of(type);
    const char *keys[LANES], *values[LANES];
    for (int t = 0; t < LANES; t++) {
        const int64_t slot = slots[t < count ? t : 0] - from->first_slot;
        keys[t] = from->keys + slot * num_bytes;
        values[t] = from->values + slot * num_bytes;
    }
    for (int t = 0; t < count; t++) fetch(values[t], num_bytes);
    for (int t = 0; t < next_count; t++) fetch(from->keys + (next[t] - from->first_slot) * num_bytes, num_bytes);
    for (int64_t kv_head = 0; kv_head < kv_heads; kv_head++)
        for (int64_t g = 0; g < group; g += 4) {
            const int64_t head = kv_head * group + g;
            const int64_t queries = group - g;
#define ATTEND(n)                                                                                            \
    attend(type, n, from, slots, keys, values, count, kv_head, kv_heads, head_dim, q + head * head_dim, cap, \
           out + head * head_dim, best + head, total + head)
            if (queries >= 4) ATTEND(4);
            else if (queries == 3) ATTEND(3);
            else if (queries == 2) ATTEND(2);
            else ATTEND(1);
        }
}

#define TILE(name, type)                                                                                    \
    static void name(const struct source *from, const int64_t *slots, int count, const int64_t *next,       \
                     int next_count, int64_t kv_heads, int64_t group, int64_t head_dim, const float *q,     \
                     float cap, float *out, float *best, floats *total) {                                   \
        tile(type, from, slots, count, next, next_count, kv_heads, group, head_dim, q, cap, out, best, total); \
    }
TILE(tile_bf16, BF16)
TILE(tile_fp16, FP16)
TILE(tile_fp32, FP32)
TILE(tile_int8, INT8)
TILE(tile_fp8, FP8)

/* In the order of `enum type`. */
static void (*const tiles[])(const struct source *, const int64_t *, int, const int64_t *, int, int64_t, int64_t,
                             int64_t, const float *, float, float *, float *, floats *) = {
    tile_bf16, tile_fp16, tile_fp32, tile_int8, tile_fp8};

INLINE void widen_row(const enum type type, const char *from, float *to, int64_t count, float scale) {
    for (int64_t i = 0; i < count; i += LANES)
        *(floats *)(to + i) = load(type, from + i * size_of(type)) * scale;
}

/* Rows `first_row` to `last_row` (not included) of queries and out, [rows, heads, head_dim] without gaps, head_dim a
 * multiple of 16. `cache`: for full and compact slots keys, values, key scales, value scales. Slots of row b:
 * slots[starts[b]] to slots[ends[b]], at least one; those below num_full_slots are full. */
void firsttoken_attention_decode(char *out, const char *queries, int32_t query_type, int64_t first_row,
                                 int64_t last_row, int64_t heads, int64_t kv_heads, int64_t head_dim,
                                 const void *const cache[8], int32_t full_type, int32_t compact_type,
                                 int64_t num_full_slots, const int64_t *slots, const int64_t *starts,
                                 const int64_t *ends, float scale, float cap) {
    struct source sources[2];
    for (int i = 0; i < 2; i++)
        sources[i] = (struct source){cache[4 * i], cache[4 * i + 1], cache[4 * i + 2], cache[4 * i + 3],
                                     i ? num_full_slots : 0, kv_heads * head_dim, i ? compact_type : full_type};
    const int64_t floats_of_row = heads * head_dim;
    const int64_t bytes_of_row = floats_of_row * size_of(query_type);
    float q[MOST_QUERY_FLOATS], answer[MOST_QUERY_FLOATS], best[MOST_QUERY_FLOATS / LANES];
    floats total[MOST_QUERY_FLOATS / LANES];
    for (int64_t row = first_row; row < last_row; row++) {
        const char *query = queries + row * bytes_of_row;
        if (query_type == BF16) widen_row(BF16, query, q, floats_of_row, scale);
        else if (query_type == FP16) widen_row(FP16, query, q, floats_of_row, scale);
        else widen_row(FP32, query, q, floats_of_row, scale);
        memset(answer, 0, floats_of_row * sizeof *answer);
        for (int64_t head = 0; head < heads; head++) {
            best[head] = -__builtin_inff();
            total[head] = (floats){0};
        }
        int64_t at = starts[row];
        const int64_t end = ends[row];
        while (at < end) {
            const int is_compact = slots[at] >= num_full_slots;
            int count = 1, next_count = 0;
            while (count < LANES && at + count < end && (slots[at + count] >= num_full_slots) == is_compact) count++;
            while (next_count < LANES && at + count + next_count < end &&
                   (slots[at + count + next_count] >= num_full_slots) == is_compact)
                next_count++;
            const struct source *from = &sources[is_compact];
            tiles[from->type](from, slots + at, count, slots + at + count, next_count, kv_heads, heads / kv_heads,
                              head_dim, q, cap, answer, best, total);
            at += count;
        }
        for (int64_t head = 0; head < heads; head++) {
            const float inverse = 1 / sum(total[head]);
            for (int64_t d = 0; d < head_dim; d += LANES) {
                const floats all = *(floats *)(answer + head * head_dim + d) * inverse;
                char *to = out + row * bytes_of_row + (head * head_dim + d) * size_of(query_type);
                if (query_type == BF16) store(BF16, to, all);
                else if (query_type == FP16) store(FP16, to, all);
                else store(FP32, to, all);
            }
        }
    }
}
