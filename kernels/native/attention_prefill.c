/* Attention of prompt chunks over a paged KV cache in bf16, on a CPU with matrix tiles (AMX).
 *
 *     out[t, h] = sum_s softmax_s(scale * q[t, h] . K[s, h / group]) * V[s, h / group],   s in what t sees
 *
 * The queries of one KV head, `group` for each token, are taken 32 at a time against blocks of 256 keys with a running
 * maximum and sum (online softmax, Milakov and Gimelshein 2018). Keys and values are copied to the tiles' order
 * once for all queries of a KV head, whatever type they are stored in; what a tile has past the last key is 0.
 * Scores and sums are fp32; chances are rounded to bf16 for the second product, as are eight-bit keys and values.
 *
 * A tile multiplies what a query does not see too, by 0. Its scores are replaced before that, so they may be anything;
 * values that are no finite numbers are replaced by 0, and the queries that see them become NaN as a whole.
 *
 * Built for AVX-512 only; the caller (`firsttoken_kernels/attention_prefill.py`) checks shapes and types, and asks
 * `firsttoken_has_tiles` first.
 */
#include "cache.h"
#include "softmax.h"

#ifdef __AVX512F__
#include <cpuid.h>
#include <math.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#pragma GCC target("avx512bf16,amx-tile,amx-bf16")

#define SIDE 16                /* rows of a tile, and floats of a row */
#define TILE 1024              /* bytes */
#define QUERIES (2 * SIDE)     /* taken at a time */
#define KEYS (2 * SIDE)        /* of a tile of chances: what one step of the second product takes */
#define BLOCK_KEYS (8 * KEYS)  /* between two looks at the running maximum */
#define MOST_HEAD_DIM 512      /* the caller refuses more */

/* One sequence's part of the step. Its last query sees the last of its slots. */
struct chunk {
    int64_t first_row, num_tokens, num_slots;
    const int64_t *slots;
};

struct shape {
    int64_t heads, kv_heads, group, head_dim;
};

/* Keys and values of one KV head of a chunk, from key `first` to `last` (multiples of KEYS), in the order of tiles. */
struct packed {
    char *keys;   /* [keys / SIDE, head_dim / 32] tiles of 16 pairs of a head's elements by 16 keys */
    char *values; /* [keys / KEYS, head_dim / SIDE] tiles of 16 pairs of keys by 16 elements */
    char *is_broken;
    int64_t first, last;
    int has_broken;
};

/* The 32 queries at hand. */
struct pass {
    _Alignas(64) char queries[QUERIES * MOST_HEAD_DIM * 2];
    _Alignas(64) char scores[2][BLOCK_KEYS / SIDE][TILE];
    _Alignas(64) char chances[2][BLOCK_KEYS / KEYS][TILE];
    _Alignas(64) char sums[2][MOST_HEAD_DIM / SIDE][TILE];
    _Alignas(64) float best[QUERIES]; /* times scale and log2(e), like all exponents here */
    __m512 total[QUERIES];
    int64_t first_key[QUERIES], last_key[QUERIES]; /* seen by each; equal: there is no such query */
};

/* The compiler knows of no memory that its own intrinsics for these read. */
#define LOAD(tile, from, stride) \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #tile ::"r"(from), "r"((int64_t)(stride)) : "memory")
#define STORE(tile, to) \
    __asm__ volatile("tilestored %%tmm" #tile ", (%0,%1,1)" ::"r"(to), "r"((int64_t)64) : "memory")

int32_t firsttoken_has_tiles(void) {
    enum { ASK_PERMISSION = 0x1023, TILE_DATA = 18 };
    uint32_t a, b, c, d;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d >> 22 & 1) == 0 || (d >> 24 & 1) == 0) return 0;
    if (!__get_cpuid_count(7, 1, &a, &b, &c, &d) || (a >> 5 & 1) == 0) return 0;
    return syscall(SYS_arch_prctl, ASK_PERMISSION, TILE_DATA) == 0;
}

struct tiles_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

/* Tiles have the shapes that others gave them again when this ends: a library may keep its own for long. */
static void configure(const struct tiles_config *wanted, struct tiles_config *before) {
    if (before) __asm__ volatile("sttilecfg %0" : "=m"(*before));
    if (wanted->palette) __asm__ volatile("ldtilecfg %0" ::"m"(*wanted));
    else __asm__ volatile("tilerelease");
}

INLINE __m512i narrowed(__m512 low, __m512 high) {
    return (__m512i)_mm512_cvtne2ps_pbh(high, low);
}

INLINE void widen_row(const enum type type, const char *from, float scale, __m512i *to, int64_t parts) {
    const int64_t step = SIDE * size_of(type);
    for (int64_t i = 0; i < parts; i++, from += 2 * step)
        to[i] = narrowed(load(type, from) * scale, load(type, from + step) * scale);
}

/* One slot's key or value as bf16, 32 elements a vector. */
INLINE void read_row(const struct cache *cache, enum which which, int64_t slot, int64_t kv_head, __m512i *to) {
    const struct pool *from = pool_of(cache, slot);
    const int64_t parts = cache->head_dim / 32;
    const int64_t head = (slot - from->first_slot) * cache->kv_heads + kv_head;
    const char *row = from->rows[which] + head * cache->head_dim * size_of(from->type);
    if (from->type == BF16) {
        for (int64_t i = 0; i < parts; i++) to[i] = _mm512_loadu_si512(row + 64 * i);
        return;
    }
    const float scale = from->scales[which] ? _cvtsh_ss(from->scales[which][head]) : 1;
    if (from->type == FP16) widen_row(FP16, row, scale, to, parts);
    else if (from->type == FP32) widen_row(FP32, row, scale, to, parts);
    else if (from->type == INT8) widen_row(INT8, row, scale, to, parts);
    else widen_row(FP8, row, scale, to, parts);
}

/* 16 rows of 16 words. */
INLINE void transpose(const __m512i *from, int64_t apart, __m512i *to) {
    __m512i a[SIDE], b[SIDE];
    for (int i = 0; i < SIDE; i += 2) {
        a[i] = _mm512_unpacklo_epi32(from[i * apart], from[(i + 1) * apart]);
        a[i + 1] = _mm512_unpackhi_epi32(from[i * apart], from[(i + 1) * apart]);
    }
    for (int i = 0; i < SIDE; i += 4)
        for (int j = 0; j < 2; j++) {
            b[i + 2 * j] = _mm512_unpacklo_epi64(a[i + j], a[i + j + 2]);
            b[i + 2 * j + 1] = _mm512_unpackhi_epi64(a[i + j], a[i + j + 2]);
        }
    for (int i = 0; i < SIDE; i += 8)
        for (int j = 0; j < 4; j++) {
            a[i + j] = _mm512_shuffle_i32x4(b[i + j], b[i + j + 4], 0x88);
            a[i + j + 4] = _mm512_shuffle_i32x4(b[i + j], b[i + j + 4], 0xdd);
        }
    for (int j = 0; j < 8; j++) {
        to[j] = _mm512_shuffle_i32x4(a[j], a[j + 8], 0x88);
        to[j + 8] = _mm512_shuffle_i32x4(a[j], a[j + 8], 0xdd);
    }
}

INLINE int has_broken(const __m512i *row, int64_t parts) {
    const __m512i exponent = _mm512_set1_epi16(0x7f80);
    __mmask32 found = 0;
    for (int64_t i = 0; i < parts; i++)
        found |= _mm512_cmpeq_epi16_mask(_mm512_and_si512(row[i], exponent), exponent);
    return found != 0;
}

/* The next KEYS keys and values. */
static void pack(struct packed *packed, const struct cache *cache, const struct chunk *chunk, int64_t kv_head) {
    __m512i rows[KEYS][MOST_HEAD_DIM / 32];
    const int64_t parts = cache->head_dim / 32, first = packed->last, done = first - packed->first;
    const int64_t count = chunk->num_slots - first < KEYS ? chunk->num_slots - first : KEYS;
    for (enum which which = KEY; which <= VALUE; which++) {
        for (int64_t t = 0; t < count; t++) read_row(cache, which, chunk->slots[first + t], kv_head, rows[t]);
        for (int64_t t = count; t < KEYS; t++)
            for (int64_t i = 0; i < parts; i++) rows[t][i] = _mm512_setzero_si512();
        if (which == KEY) {
            __m512i *to = (__m512i *)(packed->keys + done / SIDE * parts * TILE);
            for (int half = 0; half < 2; half++)
                for (int64_t i = 0; i < parts; i++, to += SIDE)
                    transpose(&rows[half * SIDE][i], MOST_HEAD_DIM / 32, to);
            continue;
        }
        for (int64_t t = 0; t < KEYS; t++) {
            packed->is_broken[first + t] = has_broken(rows[t], parts);
            if (!packed->is_broken[first + t]) continue;
            packed->has_broken = 1;
            for (int64_t i = 0; i < parts; i++) rows[t][i] = _mm512_setzero_si512();
        }
        const __m512i low = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8, 39, 7, 38,
                                             6, 37, 5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
        const __m512i high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
        __m512i *to = (__m512i *)(packed->values + done / KEYS * 2 * parts * TILE);
        for (int64_t i = 0; i < parts; i++, to += 2 * SIDE)
            for (int t = 0; t < SIDE; t++) {
                to[t] = _mm512_permutex2var_epi16(rows[2 * t][i], low, rows[2 * t + 1][i]);
                to[SIDE + t] = _mm512_permutex2var_epi16(rows[2 * t][i], high, rows[2 * t + 1][i]);
            }
    }
    packed->last += KEYS;
}

/* scores = queries . keys, for `count` keys. */
INLINE void score(struct pass *pass, const int tiles, const char *keys, int64_t count, int64_t head_dim) {
    const int64_t steps = head_dim / 32, row = 2 * head_dim;
    for (int64_t t = 0; t < count / SIDE; t += 2) {
        const char *at = keys + t * steps * TILE;
        _tile_zero(0);
        _tile_zero(1);
        if (tiles == 2) _tile_zero(2);
        if (tiles == 2) _tile_zero(3);
        for (int64_t s = 0; s < steps; s++, at += TILE) {
            LOAD(4, pass->queries + 64 * s, row);
            LOAD(6, at, 64);
            LOAD(7, at + steps * TILE, 64);
            _tile_dpbf16ps(0, 4, 6);
            _tile_dpbf16ps(1, 4, 7);
            if (tiles == 1) continue;
            LOAD(5, pass->queries + SIDE * row + 64 * s, row);
            _tile_dpbf16ps(2, 5, 6);
            _tile_dpbf16ps(3, 5, 7);
        }
        STORE(0, pass->scores[0][t]);
        STORE(1, pass->scores[0][t + 1]);
        if (tiles == 1) continue;
        STORE(2, pass->scores[1][t]);
        STORE(3, pass->scores[1][t + 1]);
    }
}

/* sums += chances . values, for `count` keys; is_first: there are no sums yet. */
INLINE void weigh(struct pass *pass, const int tiles, const char *values, int64_t count, int64_t head_dim,
                  int is_first) {
    const int64_t parts = head_dim / SIDE;
    for (int64_t i = 0; i < parts; i += 2) {
        if (is_first) {
            _tile_zero(0);
            _tile_zero(1);
            if (tiles == 2) _tile_zero(2);
            if (tiles == 2) _tile_zero(3);
        } else {
            LOAD(0, pass->sums[0][i], 64);
            LOAD(1, pass->sums[0][i + 1], 64);
            if (tiles == 2) LOAD(2, pass->sums[1][i], 64);
            if (tiles == 2) LOAD(3, pass->sums[1][i + 1], 64);
        }
        for (int64_t t = 0; t < count / KEYS; t++) {
            const char *at = values + (t * parts + i) * TILE;
            LOAD(4, pass->chances[0][t], 64);
            LOAD(6, at, 64);
            LOAD(7, at + TILE, 64);
            _tile_dpbf16ps(0, 4, 6);
            _tile_dpbf16ps(1, 4, 7);
            if (tiles == 1) continue;
            LOAD(5, pass->chances[1][t], 64);
            _tile_dpbf16ps(2, 5, 6);
            _tile_dpbf16ps(3, 5, 7);
        }
        STORE(0, pass->sums[0][i]);
        STORE(1, pass->sums[0][i + 1]);
        if (tiles == 2) STORE(2, pass->sums[1][i]);
        if (tiles == 2) STORE(3, pass->sums[1][i + 1]);
    }
}

/* 2^x: a polynomial for what is behind the point, relative error below 8e-5, a fiftieth of bf16's. */
INLINE __m512 power_of_two(__m512 x) {
    const __m512 f = _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF);
    __m512 r = _mm512_fmadd_ps(f, _mm512_set1_ps(0.07802452f), _mm512_set1_ps(0.22606716f));
    r = _mm512_fmadd_ps(f, r, _mm512_set1_ps(0.69583354f));
    r = _mm512_fmadd_ps(f, r, _mm512_set1_ps(0.99992522f));
    return _mm512_scalef_ps(r, x); /* takes the integer below x */
}

INLINE __m512 joined(__m512 a, __m512 b, const int is_maximum) {
    return is_maximum ? _mm512_max_ps(a, b) : _mm512_add_ps(a, b);
}

/* Lane i: the sum, or the maximum, of all lanes of vector i. */
INLINE __m512 folded(const __m512 all[SIDE], const int is_maximum) {
    __m512 a[8], b[4], c[2];
    for (int i = 0; i < 8; i++) /* pairs of neighbours: lanes of 0 and 1 in turn */
        a[i] = joined(_mm512_unpacklo_ps(all[2 * i], all[2 * i + 1]), _mm512_unpackhi_ps(all[2 * i], all[2 * i + 1]),
                      is_maximum);
    for (int i = 0; i < 4; i++)
        b[i] = joined((__m512)_mm512_unpacklo_pd((__m512d)a[2 * i], (__m512d)a[2 * i + 1]),
                      (__m512)_mm512_unpackhi_pd((__m512d)a[2 * i], (__m512d)a[2 * i + 1]), is_maximum);
    for (int i = 0; i < 2; i++)
        c[i] = joined(_mm512_shuffle_f32x4(b[2 * i], b[2 * i + 1], 0x88),
                      _mm512_shuffle_f32x4(b[2 * i], b[2 * i + 1], 0xdd), is_maximum);
    return joined(_mm512_shuffle_f32x4(c[0], c[1], 0x88), _mm512_shuffle_f32x4(c[0], c[1], 0xdd), is_maximum);
}

/* From scores to chances for one tile of queries and the `count` keys from `first` on; what was summed before is made
 * smaller where the maximum grows. */
static void soften(struct pass *pass, int tile, int64_t first, int64_t count, int64_t head_dim, float scale,
                   float cap) {
    __m512 largest[SIDE];
    float *const scores = (float *)pass->scores[tile];
    __m512i *const chances = (__m512i *)pass->chances[tile];
    const int pairs = (int)(count / KEYS);
    int begins[SIDE], ends[SIDE]; /* pairs of vectors with keys that the query sees */
    __mmask16 sees = 0;
    for (int row = 0; row < SIDE; row++) {
        const int64_t from = pass->first_key[tile * SIDE + row] - first, to = pass->last_key[tile * SIDE + row] - first;
        const int begin = (int)(from < 0 ? 0 : from), end = (int)(to > count ? count : to);
        largest[row] = _mm512_set1_ps(-INFINITY);
        begins[row] = ends[row] = 0;
        if (begin >= end) continue;
        sees |= 1 << row;
        begins[row] = begin / KEYS;
        ends[row] = (end + KEYS - 1) / KEYS;
        float *const at = scores + row * SIDE;
        for (int part = 2 * begins[row]; cap > 0 && part < 2 * ends[row]; part++) {
            floats *some = (floats *)(at + part * SIDE * SIDE);
            *some = capped(*some * scale, cap);
        }
        if (begin % KEYS) {
            const uint32_t hidden = (1u << begin % KEYS) - 1;
            float *edge = at + begins[row] * 2 * SIDE * SIDE;
            _mm512_mask_store_ps(edge, hidden, largest[row]);
            _mm512_mask_store_ps(edge + SIDE * SIDE, hidden >> SIDE, largest[row]);
        }
        if (end % KEYS) {
            const uint32_t hidden = ~0u << end % KEYS;
            float *edge = at + (ends[row] - 1) * 2 * SIDE * SIDE;
            _mm512_mask_store_ps(edge, hidden, largest[row]);
            _mm512_mask_store_ps(edge + SIDE * SIDE, hidden >> SIDE, largest[row]);
        }
        __m512 other = largest[row];
        for (int pair = begins[row]; pair < ends[row]; pair++) {
            largest[row] = _mm512_max_ps(largest[row], _mm512_load_ps(at + pair * 2 * SIDE * SIDE));
            other = _mm512_max_ps(other, _mm512_load_ps(at + (pair * 2 + 1) * SIDE * SIDE));
        }
        largest[row] = _mm512_max_ps(largest[row], other);
    }
    float *const best = pass->best + tile * SIDE;
    const __m512 by = _mm512_set1_ps((cap > 0 ? 1 : scale) * 1.44269504f); /* log2(e) */
    const __m512 old = _mm512_load_ps(best);
    const __m512 now = _mm512_mask_max_ps(old, sees, old, _mm512_mul_ps(folded(largest, 1), by));
    _Alignas(64) float shrunk[SIDE];
    _mm512_store_ps(shrunk, power_of_two(_mm512_sub_ps(old, now)));
    const __mmask16 grown = _mm512_mask_cmp_ps_mask(sees, old, now, _CMP_NEQ_UQ);
    _mm512_store_ps(best, now);
    for (int row = 0; row < SIDE; row++) {
        if (grown >> row & 1) {
            const __m512 less = _mm512_set1_ps(shrunk[row]);
            pass->total[tile * SIDE + row] = _mm512_mul_ps(pass->total[tile * SIDE + row], less);
            if (old[row] != -INFINITY)
                for (int64_t i = 0; i < head_dim / SIDE; i++) {
                    float *sums = (float *)pass->sums[tile][i] + row * SIDE;
                    _mm512_store_ps(sums, _mm512_mul_ps(_mm512_load_ps(sums), less));
                }
        }
        const float *const at = scores + row * SIDE;
        const __m512 top = _mm512_set1_ps(best[row]);
        __m512 total = pass->total[tile * SIDE + row], other = _mm512_setzero_ps();
        int pair = 0;
        for (; pair < begins[row]; pair++) chances[pair * SIDE + row] = _mm512_setzero_si512();
        for (; pair < ends[row]; pair++) {
            const __m512 low = power_of_two(_mm512_fmsub_ps(_mm512_load_ps(at + pair * 2 * SIDE * SIDE), by, top));
            const __m512 high =
                power_of_two(_mm512_fmsub_ps(_mm512_load_ps(at + (pair * 2 + 1) * SIDE * SIDE), by, top));
            total = _mm512_add_ps(total, low);
            other = _mm512_add_ps(other, high);
            chances[pair * SIDE + row] = narrowed(low, high);
        }
        for (; pair < pairs; pair++) chances[pair * SIDE + row] = _mm512_setzero_si512();
        pass->total[tile * SIDE + row] = _mm512_add_ps(total, other);
    }
}

/* What `count` queries, from number `query` of a chunk's KV head on, see; what there is past them sees nothing. */
static void bound(struct pass *pass, const struct chunk *chunk, int64_t query, int64_t count, int64_t group,
                  int64_t window) {
    const int64_t before = chunk->num_slots - chunk->num_tokens;
    for (int i = 0; i < QUERIES; i++) {
        const int64_t last = i < count ? before + (query + i) / group + 1 : 0;
        pass->last_key[i] = last;
        pass->first_key[i] = window > 0 && window < last ? last - window : 0;
    }
}

/* About how many keys the QUERIES from this one on have to be multiplied by. */
INLINE int64_t cost(const struct chunk *chunk, int64_t query, int64_t group) {
    return chunk->num_slots - chunk->num_tokens + query / group + KEYS;
}

INLINE int64_t below(int64_t number) {
    return number / KEYS * KEYS;
}

INLINE char *address(const char *rows, const struct chunk *chunk, int64_t query, int64_t kv_head,
                     const struct shape *shape) {
    const int64_t row = chunk->first_row + query / shape->group;
    const int64_t head = kv_head * shape->group + query % shape->group;
    return (char *)rows + (row * shape->heads + head) * shape->head_dim * 2;
}

INLINE void attend(struct pass *pass, const int tiles, const struct packed *packed, int64_t first, int64_t last,
                   int64_t head_dim, float scale, float cap) {
    for (int i = 0; i < QUERIES; i++) {
        pass->best[i] = -INFINITY;
        pass->total[i] = _mm512_setzero_ps();
    }
    for (int64_t at = first; at < last; at += BLOCK_KEYS) {
        const int64_t count = last - at < BLOCK_KEYS ? last - at : BLOCK_KEYS;
        score(pass, tiles, packed->keys + (at - packed->first) / SIDE * (head_dim / 32) * TILE, count, head_dim);
        for (int tile = 0; tile < tiles; tile++) soften(pass, tile, at, count, head_dim, scale, cap);
        weigh(pass, tiles, packed->values + (at - packed->first) / KEYS * (head_dim / SIDE) * TILE, count, head_dim,
              at == first);
    }
}

static void answer(struct pass *pass, char *out, const struct chunk *chunk, int64_t query, int64_t count,
                   int64_t kv_head, const struct shape *shape, const struct packed *packed) {
    for (int64_t i = 0; i < count; i++) {
        const int64_t tile = i / SIDE, row = i % SIDE;
        float inverse = 1 / _mm512_reduce_add_ps(pass->total[i]);
        if (packed->has_broken)
            for (int64_t key = pass->first_key[i]; key < pass->last_key[i]; key++)
                if (packed->is_broken[key]) inverse = NAN;
        char *to = address(out, chunk, query + i, kv_head, shape);
        const __m512 by = _mm512_set1_ps(inverse);
        for (int64_t part = 0; part < shape->head_dim / SIDE; part += 2) {
            const __m512 low = _mm512_load_ps((const float *)pass->sums[tile][part] + row * SIDE);
            const __m512 high = _mm512_load_ps((const float *)pass->sums[tile][part + 1] + row * SIDE);
            _mm512_storeu_si512(to + part * 2 * SIDE, narrowed(_mm512_mul_ps(low, by), _mm512_mul_ps(high, by)));
        }
    }
}

/* queries, out: [rows, heads, head_dim] in bf16 without gaps, head_dim a multiple of 32. Chunk c: num_tokens[c] rows
 * from first_rows[c] on, which see up to slots[starts[c]] .. slots[ends[c]] (not included). window: keys that a query
 * sees, its own included; 0: all. cap: 0: none. The thread with number `share` does its part of the queries, of
 * `shares` about equal ones; a query's bits do not depend on that. Returns 0; -1 without memory. */
int32_t firsttoken_attention_prefill(char *out, const char *queries, int64_t share, int64_t shares, int64_t num_chunks,
                                     const int64_t *first_rows, const int64_t *num_tokens, int64_t heads,
                                     const struct cache *cache, const int64_t *slots, const int64_t *starts,
                                     const int64_t *ends, int64_t window, float scale, float cap) {
    const int64_t kv_heads = cache->kv_heads, head_dim = cache->head_dim;
    const struct shape shape = {heads, kv_heads, heads / kv_heads, head_dim};
    int64_t longest = 0, all = 0, done = 0;
    for (int64_t i = 0; i < num_chunks; i++) {
        const struct chunk chunk = {first_rows[i], num_tokens[i], ends[i] - starts[i], slots + starts[i]};
        if (chunk.num_slots > longest) longest = chunk.num_slots;
        for (int64_t query = 0; query < chunk.num_tokens * shape.group; query += QUERIES)
            all += kv_heads * cost(&chunk, query, shape.group);
    }
    longest = below(longest + KEYS - 1);
    char *const memory = aligned_alloc(64, (longest * (4 * head_dim + 1) + 63) / 64 * 64);
    if (memory == NULL) return -1;
    struct packed packed = {memory, memory + longest * 2 * head_dim, memory + longest * 4 * head_dim, 0, 0, 0};
    struct pass pass;
    struct tiles_config whole = {.palette = 1}, before;
    for (int tile = 0; tile < 8; tile++) {
        whole.row_bytes[tile] = 64;
        whole.rows[tile] = SIDE;
    }
    configure(&whole, &before);
    for (int64_t i = 0; i < num_chunks; i++) {
        const struct chunk chunk = {first_rows[i], num_tokens[i], ends[i] - starts[i], slots + starts[i]};
        const int64_t num_queries = chunk.num_tokens * shape.group;
        for (int64_t kv_head = 0; kv_head < kv_heads; kv_head++) {
            packed.last = packed.has_broken = 0;
            for (int64_t query = 0; query < num_queries; query += QUERIES) {
                const int64_t count = num_queries - query < QUERIES ? num_queries - query : QUERIES;
                const int is_mine = done * shares / all == share;
                done += cost(&chunk, query, shape.group);
                if (!is_mine) continue;
                bound(&pass, &chunk, query, count, shape.group, window);
                const int64_t first = below(pass.first_key[0]);
                const int64_t last = below(pass.last_key[count - 1] + KEYS - 1);
                if (packed.last == 0) packed.first = packed.last = first;
                while (packed.last < last) pack(&packed, cache, &chunk, kv_head);
                memset(pass.queries, 0, QUERIES * 2 * head_dim);
                for (int64_t at = 0; at < count; at++)
                    memcpy(pass.queries + at * 2 * head_dim, address(queries, &chunk, query + at, kv_head, &shape),
                           2 * head_dim);
                if (count > SIDE) attend(&pass, 2, &packed, first, last, head_dim, scale, cap);
                else attend(&pass, 1, &packed, first, last, head_dim, scale, cap);
                answer(&pass, out, &chunk, query, count, kv_head, &shape, &packed);
            }
        }
    }
    configure(&before, NULL);
    free(memory);
    return 0;
}
#else
int32_t firsttoken_has_tiles(void) {
    return 0;
}
#endif
