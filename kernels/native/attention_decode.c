/* Attention of one query a sequence over a paged KV cache, on a CPU.
 *
 *     out[b, h] = sum_t softmax_t(scale * q[b, h] . K[slot(b, t), h / group]) * V[slot(b, t), h / group]
 *
 * Keys and values are read once, from where they lie, in the type in which they are stored; all arithmetic is
 * fp32. A sequence is walked in stretches of up to 64 keys with a running maximum and sum (online softmax, Milakov
 * and Gimelshein 2018), all KV heads of a stretch before the next, because they lie side by side in memory. Memory is
 * half of the time: while a stretch is computed the next one, perhaps of the next sequence, is fetched bit by bit.
 * NaN in a score gives NaN in the output.
 *
 * Built once for each instruction set (`build.py`): with AVX-512, and with AVX2, FMA and F16C.
 * The caller (`firsttoken_kernels/native.py`) checks shapes and types.
 */
#include "cache.h"
#include "softmax.h"

#define STRETCH 64 /* keys that are scored before any is weighed: so many exponentials are in flight at once */
#define CHUNK 4 /* vectors of a head that are kept in registers at once */
#define MOST_QUERY_FLOATS 32768 /* query heads x head_dim; the caller refuses more */

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

INLINE float sum(floats all) {
    float total = 0;
    for (int lane = 0; lane < LANES; lane++) total += all[lane];
    return total;
}

/* Up to STRETCH slots of one format that follow each other in a sequence. */
struct stretch {
    const struct pool *from;
    int count, is_last; /* count 0: no more rows */
    int64_t row;
    const int64_t *slots;
    const char *keys[STRETCH], *values[STRETCH];
};

/* What is left of the rows, `at` in slots: where the next stretch begins. */
struct walk {
    const struct cache *cache;
    const int64_t *slots, *ends, *starts;
    int64_t row, last_row, at;
};

/* The walk's next stretch. */
static void take(struct walk *walk, struct stretch *next) {
    next->count = 0;
    if (walk->row == walk->last_row) return;
    const int64_t end = walk->ends[walk->row];
    const int64_t *slots = walk->slots + walk->at;
    /* Stretches of a sequence are about equally long: what one fetches for the next is spread over its own keys. */
    const int64_t left = end - walk->at, stretches = (left + STRETCH - 1) / STRETCH;
    const int64_t even = (left + stretches * LANES - 1) / (stretches * LANES) * LANES;
    const int64_t most = left < even ? left : even;
    const struct pool *from = pool_of(walk->cache, slots[0]);
    const int64_t num_bytes = walk->cache->kv_heads * walk->cache->head_dim * size_of(from->type);
    int count = 0;
    for (; count < most && pool_of(walk->cache, slots[count]) == from; count++) {
        next->keys[count] = from->rows[KEY] + (slots[count] - from->first_slot) * num_bytes;
        next->values[count] = from->rows[VALUE] + (slots[count] - from->first_slot) * num_bytes;
    }
    next->from = from;
    next->count = count;
    next->row = walk->row;
    next->slots = slots;
    walk->at += count;
    next->is_last = walk->at == end;
    if (next->is_last && ++walk->row < walk->last_row) walk->at = walk->starts[walk->row];
    for (; count % LANES; count++) { /* whole tiles: these are computed and not used */
        next->keys[count] = next->keys[0];
        next->values[count] = next->values[0];
    }
}

/* Rows on their way into the cache, some bytes for each key that is worked on meanwhile: a processor that is asked for
 * many at once waits. */
struct ahead {
    const char *const *rows;
    int row, count;
    int64_t at, num_bytes, piece;
};

INLINE void fetch(struct ahead *ahead) {
    if (ahead->row >= ahead->count) return;
    const char *from = ahead->rows[ahead->row] + ahead->at;
    for (int64_t at = 0; at < ahead->piece; at += 64) __builtin_prefetch(from + at, 0, 2);
    ahead->at += ahead->piece;
    if (ahead->at >= ahead->num_bytes) {
        ahead->at = 0;
        ahead->row++;
    }
}

/* scores[g][t] = q[g] . key[t] for the LANES keys of a tile. */
INLINE void dots(const enum type type, const int queries, const char *const keys[], int64_t offset,
                 int64_t head_dim, const float *q, floats *scores[], struct ahead *ahead) {
    floats parts[4][LANES];
    for (int t = 0; t < LANES; t++) {
        const char *key = keys[t] + offset * size_of(type);
        fetch(ahead);
        floats all[4] = {{0}, {0}, {0}, {0}};
        for (int64_t at = 0; at < head_dim; at += LANES) {
            const floats k = load(type, key + at * size_of(type));
            for (int g = 0; g < queries; g++) all[g] += k * *(const floats *)(q + g * head_dim + at);
        }
        for (int g = 0; g < queries; g++) parts[g][t] = all[g];
    }
    for (int g = 0; g < queries; g++) *scores[g] = sums(parts[g]);
}

/* out[g] += sum_t weights[g][t] * value[t], over `width` vectors of the head. */
INLINE void weigh(const enum type type, const int queries, const int width, float weights[][STRETCH],
                  const struct stretch *now, int64_t offset, float *out, int64_t head_dim, struct ahead *ahead) {
    floats sums_of[4][CHUNK];
    for (int g = 0; g < queries; g++)
        for (int c = 0; c < width; c++) sums_of[g][c] = *(floats *)(out + g * head_dim + c * LANES);
    for (int t = 0; t < now->count; t++) {
        const char *value = now->values[t] + offset * size_of(type);
        fetch(ahead);
        for (int c = 0; c < width; c++) {
            const floats v = load(type, value + c * LANES * size_of(type));
            for (int g = 0; g < queries; g++) sums_of[g][c] += v * weights[g][t];
        }
    }
    for (int g = 0; g < queries; g++)
        for (int c = 0; c < width; c++) *(floats *)(out + g * head_dim + c * LANES) = sums_of[g][c];
}

INLINE float scale_at(const uint16_t *scales, const struct stretch *now, int t, int64_t kv_heads, int64_t kv_head) {
    return _cvtsh_ss(scales[(now->slots[t] - now->from->first_slot) * kv_heads + kv_head]);
}

/* Up to four query heads of one KV head against one stretch. */
INLINE void attend(const enum type type, const int queries, const struct stretch *now, struct ahead *keys, struct ahead *values,
                   int64_t kv_head, int64_t kv_heads, int64_t head_dim, const float *q, float cap, float *out,
                   float *best, float *total) {
    float weights[4][STRETCH] __attribute__((aligned(64)));
    const int64_t first = kv_head * head_dim;
    const int count = now->count, padded = (count + LANES - 1) / LANES * LANES;
    for (int t = 0; t < padded; t += LANES) {
        floats *scores[4];
        for (int g = 0; g < queries; g++) scores[g] = (floats *)(weights[g] + t);
        dots(type, queries, now->keys + t, first, head_dim, q, scores, keys);
    }
    if (now->from->scales[KEY])
        for (int t = 0; t < count; t++) {
            const float scale = scale_at(now->from->scales[KEY], now, t, kv_heads, kv_head);
            for (int g = 0; g < queries; g++) weights[g][t] *= scale;
        }
    for (int g = 0; g < queries; g++) {
        floats *scores = (floats *)weights[g];
        if (cap > 0)
            for (int t = 0; t < padded / LANES; t++) scores[t] = capped(scores[t], cap);
        for (int t = count; t < padded; t++) weights[g][t] = -__builtin_inff();
        floats most = scores[0];
        for (int t = 1; t < padded / LANES; t++) most = larger(most, scores[t]);
        const float now_best = largest(most);
        if (now_best > best[g]) {
            const floats shrunk = exponential(all_of(best[g] - now_best)); /* 0 at the first stretch */
            best[g] = now_best;
            total[g] *= shrunk[0];
            for (int64_t d = 0; d < head_dim; d += LANES) *(floats *)(out + g * head_dim + d) *= shrunk;
        }
        floats all = {0};
        for (int t = 0; t < padded / LANES; t++) all += scores[t] = exponential(scores[t] - best[g]);
        total[g] += sum(all);
    }
    if (now->from->scales[VALUE])
        for (int t = 0; t < count; t++) {
            const float scale = scale_at(now->from->scales[VALUE], now, t, kv_heads, kv_head);
            for (int g = 0; g < queries; g++) weights[g][t] *= scale;
        }
    int64_t at = 0;
    for (; at + CHUNK * LANES <= head_dim; at += CHUNK * LANES)
        weigh(type, queries, CHUNK, weights, now, first + at, out + at, head_dim, values);
    for (; at < head_dim; at += LANES) weigh(type, queries, 1, weights, now, first + at, out + at, head_dim, values);
}

/* All heads against one stretch. */
INLINE void all_heads(const enum type type, const struct stretch *now, const struct stretch *next, int64_t kv_heads,
                      int64_t group, int64_t head_dim, const float *q, float cap, float *out, float *best,
                      float *total) {
    const int64_t piece = head_dim * size_of(type), num_bytes = kv_heads * piece;
    const int next_count = next->from == now->from ? next->count : 0;
    struct ahead keys = {next->keys, 0, next_count, 0, num_bytes, piece};
    struct ahead values = {next->values, 0, next_count, 0, num_bytes, piece};
    for (int64_t kv_head = 0; kv_head < kv_heads; kv_head++)
        for (int64_t g = 0; g < group; g += 4) {
            const int64_t head = kv_head * group + g;
            const int64_t queries = group - g;
#define ATTEND(n)                                                                                                \
    attend(type, n, now, &keys, &values, kv_head, kv_heads, head_dim, q + head * head_dim, cap, out + head * head_dim,     \
           best + head, total + head)
            if (queries >= 4) ATTEND(4);
            else if (queries == 3) ATTEND(3);
            else if (queries == 2) ATTEND(2);
            else ATTEND(1);
        }
}

#define ALL_HEADS(name, type)                                                                                    \
    static void name(const struct stretch *now, const struct stretch *next, int64_t kv_heads, int64_t group,     \
                     int64_t head_dim, const float *q, float cap, float *out, float *best, float *total) {       \
        all_heads(type, now, next, kv_heads, group, head_dim, q, cap, out, best, total);                         \
    }
ALL_HEADS(all_heads_bf16, BF16)
ALL_HEADS(all_heads_fp16, FP16)
ALL_HEADS(all_heads_fp32, FP32)
ALL_HEADS(all_heads_int8, INT8)
ALL_HEADS(all_heads_fp8, FP8)

/* In the order of `enum type`. */
static void (*const of_type[])(const struct stretch *, const struct stretch *, int64_t, int64_t, int64_t,
                               const float *, float, float *, float *, float *) = {
    all_heads_bf16, all_heads_fp16, all_heads_fp32, all_heads_int8, all_heads_fp8};

INLINE void widen_row(const enum type type, const char *from, float *to, int64_t count, float scale) {
    for (int64_t i = 0; i < count; i += LANES)
        *(floats *)(to + i) = load(type, from + i * size_of(type)) * scale;
}

/* Rows `first_row` to `last_row` (not included) of queries and out, [rows, heads, head_dim] without gaps, head_dim a
 * multiple of 16. Slots of row b: slots[starts[b]] to slots[ends[b]] (not included), at least one. */
void firsttoken_attention_decode(char *out, const char *queries, int32_t query_type, int64_t first_row,
                                 int64_t last_row, int64_t heads, const struct cache *cache, const int64_t *slots,
                                 const int64_t *starts, const int64_t *ends, float scale, float cap) {
    const int64_t kv_heads = cache->kv_heads, head_dim = cache->head_dim;
    const int64_t floats_of_row = heads * head_dim;
    const int64_t bytes_of_row = floats_of_row * size_of(query_type);
    float q[MOST_QUERY_FLOATS], answer[MOST_QUERY_FLOATS];
    float best[MOST_QUERY_FLOATS / LANES], total[MOST_QUERY_FLOATS / LANES];
    struct walk walk = {cache, slots, ends, starts, first_row, last_row, starts[first_row]};
    struct stretch two[2];
    int turn = 0;
    int64_t row = -1;
    for (take(&walk, &two[0]); two[turn].count; turn = !turn) {
        const struct stretch *now = &two[turn];
        take(&walk, &two[!turn]);
        if (now->row != row) {
            row = now->row;
            const char *query = queries + row * bytes_of_row;
            if (query_type == BF16) widen_row(BF16, query, q, floats_of_row, scale);
            else if (query_type == FP16) widen_row(FP16, query, q, floats_of_row, scale);
            else widen_row(FP32, query, q, floats_of_row, scale);
            memset(answer, 0, floats_of_row * sizeof *answer);
            for (int64_t head = 0; head < heads; head++) {
                best[head] = -__builtin_inff();
                total[head] = 0;
            }
        }
        of_type[now->from->type](now, &two[!turn], kv_heads, heads / kv_heads, head_dim, q, cap, answer, best, total);
        if (!now->is_last) continue;
        for (int64_t head = 0; head < heads; head++) {
            const float inverse = 1 / total[head];
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
