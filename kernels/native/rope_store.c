/* What lies between the projection to queries, keys and values and the attention, on a CPU: in one pass over a
 * token's heads queries and keys are normed (where the model does) and rotated; queries are put aside, keys and
 * values go to their slots in the paged cache.
 *
 *     y[i]         = x[i]         * cos[i]         + x[i + D / 2] * sin[i]
 *     y[i + D / 2] = x[i + D / 2] * cos[i + D / 2] + x[i]         * sin[i + D / 2]
 *
 * The first half of sin is negative. Numbers are rounded where the operations of `rope.rotate` round them: after the
 * norm, after the product with cos, and at the end; where the slot holds codes they are made of that (`codes.h`). A
 * token's bits depend on nothing but the token.
 */
#include "codes.h"
#include "norm.h"

#define MOST_HEAD_DIM 1024 /* the caller refuses more */

/* x / sqrt(mean(x^2) + eps) * w, rounded to `type`. */
INLINE void norm(const enum type type, const enum type weight_type, float *head, const char *weight, float eps,
                 int64_t head_dim) {
    float scale;
    norm_scales(FP32, 1, &scale, (const char *)head, head_dim, eps);
    for (int64_t d = 0; d < head_dim; d += LANES) {
        const floats normed = *(const floats *)(head + d) * scale * load(weight_type, weight + d * size_of(weight_type));
        *(floats *)(head + d) = rounded(type, normed);
    }
}

/* Of queries or of keys; NULL: none. */
struct weight {
    const char *values; /* [head_dim] */
    int32_t is_wide;    /* fp32, whatever the type of the heads */
};

/* One head of queries or keys. cos, sin: [head_dim] in `type`; NULL: not rotated. */
INLINE void turn(const enum type type, char *to, const char *from, const char *cos, const char *sin,
                 struct weight weight, float eps, int64_t head_dim) {
    float head[MOST_HEAD_DIM];
    for (int64_t d = 0; d < head_dim; d += LANES) *(floats *)(head + d) = load(type, from + d * size_of(type));
    if (weight.values && weight.is_wide) norm(type, FP32, head, weight.values, eps, head_dim);
    else if (weight.values) norm(type, type, head, weight.values, eps, head_dim);
    if (!cos) {
        for (int64_t d = 0; d < head_dim; d += LANES) store(type, to + d * size_of(type), *(floats *)(head + d));
        return;
    }
    const int64_t half = head_dim / 2;
    for (int64_t d = 0; d < half; d += LANES) {
        const floats first = *(const floats *)(head + d), second = *(const floats *)(head + half + d);
        const int64_t low = d * size_of(type), high = (half + d) * size_of(type);
        store(type, to + low, rounded(type, first * load(type, cos + low)) + second * load(type, sin + low));
        store(type, to + high, rounded(type, second * load(type, cos + high)) + first * load(type, sin + high));
    }
}

INLINE int64_t tokens(const enum type type, const char *heads, int64_t first_row, int64_t last_row,
                      int64_t query_heads, const char *cos, const char *sin, struct weight query_weight,
                      struct weight key_weight, float eps, char *queries, const struct cache *cache,
                      const int64_t *slots) {
    const int64_t kv_heads = cache->kv_heads, head_dim = cache->head_dim;
    const int64_t head = head_dim * size_of(type), kv_row = kv_heads * head;
    for (int64_t row = first_row; row < last_row; row++) {
        const int64_t slot = slots ? slots[row] : row;
        if (!has_slot(cache, slot)) return row;
        const struct pool *pool = pool_of(cache, slot);
        const int64_t place = slot - pool->first_slot;
        const char *from = heads + row * (query_heads + 2 * kv_heads) * head;
        const char *row_cos = cos ? cos + row * head : NULL, *row_sin = cos ? sin + row * head : NULL;
        char *query = queries + row * query_heads * head;
        for (int64_t i = 0; i < query_heads; i++, from += head)
            turn(type, query + i * head, from, row_cos, row_sin, query_weight, eps, head_dim);
        const int is_coded = pool->scales[KEY] != NULL;
        char turned[MOST_HEAD_DIM * sizeof(float)];
        for (int64_t i = 0; i < kv_heads; i++, from += head) {
            char *to = is_coded ? turned : pool->rows[KEY] + place * kv_row + i * head;
            turn(type, to, from, row_cos, row_sin, key_weight, eps, head_dim);
            if (is_coded) encode(type, pool, KEY, place * kv_heads + i, turned, head_dim);
        }
        if (!is_coded) {
            memcpy(pool->rows[VALUE] + place * kv_row, from, kv_row);
            continue;
        }
        for (int64_t i = 0; i < kv_heads; i++, from += head)
            encode(type, pool, VALUE, place * kv_heads + i, from, head_dim);
    }
    return last_row;
}

/* heads: [rows, query_heads + 2 kv_heads, head_dim], queries: [rows, query_heads, head_dim], cos and sin: [rows,
 * head_dim] (NULL: not rotated), all in the type of the full slots and without gaps; head_dim / 2 a multiple of 16.
 * slots: of each row (NULL: rows in order); compact ones are in that type too, or codes. Returns the first row whose
 * slot does not exist, where it stops; else last_row. */
int64_t firsttoken_rope_store(const char *heads, int64_t first_row, int64_t last_row, int64_t query_heads,
                              const char *cos, const char *sin, const char *query_weight, const char *key_weight,
                              int32_t is_weight_wide, float eps, char *queries, const struct cache *cache,
                              const int64_t *slots) {
    const struct weight query = {query_weight, is_weight_wide}, key = {key_weight, is_weight_wide};
    const int64_t type = cache->full.type;
#define TOKENS(type) \
    tokens(type, heads, first_row, last_row, query_heads, cos, sin, query, key, eps, queries, cache, slots)
    return type == BF16 ? TOKENS(BF16) : type == FP16 ? TOKENS(FP16) : TOKENS(FP32);
}
