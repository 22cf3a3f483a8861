/* Where the keys and values of one layer lie; `firsttoken_kernels/cache_memory.py` fills these in, field by field. */
#pragma once
#include "vectors.h"

enum which { KEY, VALUE };

/* Slots of one format. */
struct pool {
    char *rows[2];       /* keys, values: [num_slots, kv_heads, head_dim] without gaps */
    uint16_t *scales[2]; /* fp16, [num_slots, kv_heads]; NULL: numbers, no codes */
    int64_t first_slot, num_slots, type;
};

/* Full slots come first. */
struct cache {
    struct pool full, compact;
    int64_t kv_heads, head_dim;
};

INLINE const struct pool *pool_of(const struct cache *cache, int64_t slot) {
    return slot < cache->compact.first_slot ? &cache->full : &cache->compact;
}

INLINE int has_slot(const struct cache *cache, int64_t slot) {
    return slot >= 0 && slot < cache->compact.first_slot + cache->compact.num_slots;
}
