/* Keys and values of rows to their slots in the paged cache and back, on a CPU, whatever the formats of the slots: in
 * one pass over a row, with eight-bit codes made and read on the way (`codes.h`). A row's bytes depend on the row alone.
 */
#include "codes.h"

INLINE int64_t copy(const int is_write, const enum type type, char *rows, int64_t bytes_between_rows,
                    const int64_t *slots, int64_t first_row, int64_t last_row, const struct cache *cache,
                    enum which which) {
    const int64_t heads = cache->kv_heads, head_dim = cache->head_dim;
    const int64_t head_bytes = head_dim * size_of(type), row_bytes = heads * head_bytes;
    for (int64_t row = first_row; row < last_row; row++) {
        const int64_t slot = slots[row];
        if (!has_slot(cache, slot)) return row;
        const struct pool *pool = pool_of(cache, slot);
        const int64_t place = slot - pool->first_slot;
        char *at = rows + row * bytes_between_rows;
        if (!pool->scales[which]) {
            char *stored = pool->rows[which] + place * row_bytes;
            memcpy(is_write ? stored : at, is_write ? at : stored, row_bytes);
            continue;
        }
        for (int64_t head = place * heads; head < (place + 1) * heads; head++, at += head_bytes) {
            if (is_write) encode(type, pool, which, head, at, head_dim);
            else decode(type, pool, which, head, at, head_dim);
        }
    }
    return last_row;
}

/* rows: [.., kv_heads, head_dim] of keys (which 0) or values (1), in the type of the full slots and without gaps in a
 * row; head_dim a multiple of 16. slots: of each row; compact ones are in that type too, or codes. is_write: rows go to
 * their slots; else they come from there. Returns the first row whose slot does not exist, where it stops; else
 * last_row. */
int64_t firsttoken_kv_copy(int32_t is_write, char *rows, int64_t bytes_between_rows, const int64_t *slots,
                           int64_t first_row, int64_t last_row, const struct cache *cache, int32_t which) {
    const int64_t type = cache->full.type;
#define COPY(is_write, type) \
    copy(is_write, type, rows, bytes_between_rows, slots, first_row, last_row, cache, which)
    if (is_write) return type == BF16 ? COPY(1, BF16) : type == FP16 ? COPY(1, FP16) : COPY(1, FP32);
    return type == BF16 ? COPY(0, BF16) : type == FP16 ? COPY(0, FP16) : COPY(0, FP32);
}
