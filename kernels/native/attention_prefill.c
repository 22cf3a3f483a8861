/* Attention of prompt chunks over a paged KV cache with AMX tiles, on a CPU that has them.
 *
 *     out[t, h] = sum_{s <= position(t)} softmax_s(scale * q[t, h] . K[slot(s), h / group]) * V[slot(s), h / group]
 *
 * The queries of all heads that share a KV head are rows of one matrix. Its products with keys and values are bf16
 * with fp32 sums (tdpbf16ps); the softmax between them is fp32, and its weights are rounded to bf16. Keys are taken
 * in blocks with a running maximum and sum (online softmax, Milakov and Gimelshein 2018; FlashAttention, Dao et al.
 * 2022); a block's keys and values are packed once for all rows, into the order in which a tile wants them.
 * Tiles that no row may see are skipped. NaN in a score gives NaN in the output, of this sequence only.
 */
#include <cpuid.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "vectors.h"

#ifdef __AVX512F__
#include "softmax.h"

#define AMX __attribute__((target("amx-tile,amx-bf16,avx512bf16")))
#define ROWS 32   /* queries of a unit: two tiles */
#define BLOCK 1024 /* keys of a block: with values, scores and weights of a unit they stay in the second-level cache */
#define PITCH (BLOCK + 32) /* elements between rows of scores and weights: rows that lie a page apart push each other out */
#define TILE 512  /* bf16 elements of a tile: 16 rows of 64 bytes */

typedef uint16_t bf16;

/* One chunk and one KV head. */
struct task {
    const char *keys, *values; /* of this head in slot 0 */
    int64_t slot_bytes, head_dim, group, window;
    const int64_t *slots;
    int64_t context, num_tokens; /* keys; queries, which are the last ones of them */
    float scale, cap;
};

/* What one call works with; rows: of queries, rounded up to whole units. */
struct space {
    bf16 *queries;         /* [rows, head_dim] */
    bf16 *keys, *values;   /* tiles of a block */
    float *scores;         /* [ROWS, PITCH] */
    bf16 *weights;         /* [ROWS, PITCH] */
    float *sums;           /* [rows, head_dim] */
    float *best, *total;   /* [rows] */
};

/* rows[i] lane j <-> rows[j] lane i */
INLINE void transpose(words rows[16]) {
    for (int apart = 1; apart < 16; apart *= 2) {
        ints low, high;
        for (int lane = 0; lane < 16; lane++) {
            low[lane] = lane & apart ? lane - apart + 16 : lane;
            high[lane] = lane & apart ? lane + 16 : lane + apart;
        }
        for (int i = 0; i < 16; i++) {
            if (i & apart) continue;
            const words a = rows[i], b = rows[i + apart];
            rows[i] = __builtin_shuffle(a, b, low);
            rows[i + apart] = __builtin_shuffle(a, b, high);
        }
    }
}

/* Keys `first` .. `first + count` as tiles of 16 keys and 32 elements of the head: [pair of elements][key]. Past the
 * last key, up to `padded`, zeros. */
static void pack_keys(const struct task *task, int64_t first, int64_t count, int64_t padded, bf16 *to) {
    for (int64_t key = 0; key < padded; key += 16)
        for (int64_t d = 0; d < task->head_dim; d += 32, to += TILE) {
            words rows[16];
            for (int i = 0; i < 16; i++) {
                rows[i] = (words){0};
                if (key + i < count)
                    memcpy(&rows[i], task->keys + task->slots[first + key + i] * task->slot_bytes + 2 * d, 64);
            }
            transpose(rows);
            memcpy(to, rows, sizeof rows);
        }
}

/* Values as tiles of 32 keys and 16 elements of the head: [pair of keys][element]. */
static void pack_values(const struct task *task, int64_t first, int64_t count, int64_t padded, bf16 *to) {
    for (int64_t key = 0; key < padded; key += 2) {
        const char *pair[2];
        for (int i = 0; i < 2; i++)
            pair[i] = key + i < count ? task->values + task->slots[first + key + i] * task->slot_bytes : NULL;
        for (int64_t d = 0; d < task->head_dim; d += 16) {
            words both = {0};
            for (int i = 0; i < 2 && pair[i]; i++) {
                halves stored;
                memcpy(&stored, pair[i] + 2 * d, sizeof stored);
                both |= __builtin_convertvector(stored, words) << (16 * i);
            }
            memcpy(to + (key / 32 * (task->head_dim / 16) + d / 16) * TILE + key % 32 / 2 * 32, &both, sizeof both);
        }
    }
}

/* scores[r, key] = q[r] . k[key] for the keys of some tiles. */
AMX static void score(const bf16 *queries, const bf16 *keys, int64_t first, int64_t last, int64_t head_dim,
                      float *scores) {
    for (int64_t key = first; key < last; key += 32) {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
        for (int64_t d = 0; d < head_dim; d += 32) {
            const bf16 *tile = keys + (key / 16 * (head_dim / 32) + d / 32) * TILE;
            _tile_loadd(4, queries + d, 2 * head_dim);
            _tile_loadd(5, queries + 16 * head_dim + d, 2 * head_dim);
            _tile_loadd(6, tile, 64);
            _tile_loadd(7, tile + head_dim / 32 * TILE, 64);
            _tile_dpbf16ps(0, 4, 6);
            _tile_dpbf16ps(1, 4, 7);
            _tile_dpbf16ps(2, 5, 6);
            _tile_dpbf16ps(3, 5, 7);
        }
        _tile_stored(0, scores + key, 4 * PITCH);
        _tile_stored(1, scores + key + 16, 4 * PITCH);
        _tile_stored(2, scores + 16 * PITCH + key, 4 * PITCH);
        _tile_stored(3, scores + 16 * PITCH + key + 16, 4 * PITCH);
    }
}

/* sums[r] += sum_key weights[r, key] * value[key] */
AMX static void weigh(const bf16 *weights, const bf16 *values, int64_t first, int64_t last, int64_t head_dim,
                      float *sums) {
    for (int64_t d = 0; d < head_dim; d += 32) {
        float *upper = sums + d, *lower = sums + 16 * head_dim + d;
        _tile_loadd(0, upper, 4 * head_dim);
        _tile_loadd(1, upper + 16, 4 * head_dim);
        _tile_loadd(2, lower, 4 * head_dim);
        _tile_loadd(3, lower + 16, 4 * head_dim);
        for (int64_t key = first; key < last; key += 32) {
            const bf16 *tile = values + (key / 32 * (head_dim / 16) + d / 16) * TILE;
            _tile_loadd(4, weights + key, 2 * PITCH);
            _tile_loadd(5, weights + 16 * PITCH + key, 2 * PITCH);
            _tile_loadd(6, tile, 64);
            _tile_loadd(7, tile + TILE, 64);
            _tile_dpbf16ps(0, 4, 6);
            _tile_dpbf16ps(1, 4, 7);
            _tile_dpbf16ps(2, 5, 6);
            _tile_dpbf16ps(3, 5, 7);
        }
        _tile_stored(0, upper, 4 * head_dim);
        _tile_stored(1, upper + 16, 4 * head_dim);
        _tile_stored(2, lower, 4 * head_dim);
        _tile_stored(3, lower + 16, 4 * head_dim);
    }
}

/* 2^x for x <= 0: 2^n times a polynomial of degree 5 in [-1/2, 1/2], relative error below 2e-7. */
INLINE __m512 power_of_two(__m512 x) {
    const __m512 n = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const __m512 f = x - n;
    __m512 r = f * 1.33335581e-3f + 9.61812911e-3f;
    r = f * r + 5.55041087e-2f;
    r = f * r + 2.40226507e-1f;
    r = f * r + 6.93147181e-1f;
    r = f * r + 1.0f;
    return _mm512_scalef_ps(r, n);
}

/* scores[first .. last] of one row become powers of e by the best one so far; 0 for the others of from .. to. */
AMX static void soften(float *scores, bf16 *weights, int64_t from, int64_t to, int64_t first, int64_t last,
                       float scale, float cap, int64_t head_dim, float *sums, float *best, float *total) {
    const int64_t start = first / 16 * 16, end = (last + 15) / 16 * 16;
    if (cap > 0) {
        for (int64_t key = start; key < end; key += 16)
            *(floats *)(scores + key) = capped(*(floats *)(scores + key) * scale, cap);
        scale = 1;
    }
    for (int64_t key = start; key < first; key++) scores[key] = -__builtin_inff();
    for (int64_t key = last; key < end; key++) scores[key] = -__builtin_inff();
    __m512 most = _mm512_set1_ps(-__builtin_inff());
    for (int64_t key = start; key < end; key += 16) most = _mm512_max_ps(_mm512_loadu_ps(scores + key), most);
    scale *= 1.44269504088896f; /* log2(e) */
    const float now_best = _mm512_reduce_max_ps(most) * scale;
    if (now_best > *best) {
        const floats shrunk = (floats)power_of_two(_mm512_set1_ps(*best - now_best)); /* 0 at the first block */
        *best = now_best;
        *total *= shrunk[0];
        for (int64_t d = 0; d < head_dim; d += 16) *(floats *)(sums + d) *= shrunk;
    }
    __m512 all = _mm512_setzero_ps();
    const __m512 scales = _mm512_set1_ps(scale), bests = _mm512_set1_ps(*best);
    memset(weights + from, 0, 2 * (start - from));
    for (int64_t key = start; key < end; key += 16) {
        const __m512 chances = power_of_two(_mm512_fmsub_ps(_mm512_loadu_ps(scores + key), scales, bests));
        all += chances;
        const __m256bh narrow = _mm512_cvtneps_pbh(chances);
        memcpy(weights + key, &narrow, sizeof narrow);
    }
    memset(weights + end, 0, 2 * (to - end));
    *total += _mm512_reduce_add_ps(all);
}

INLINE int64_t clamped(int64_t value, int64_t low, int64_t high) {
    return value < low ? low : value > high ? high : value;
}

/* The rows of a unit against the keys of a block, which begins at `block` and has `count`. */
static void attend(const struct task *task, const struct space *space, int64_t first_row, int64_t last_row,
                   int64_t block, int64_t count) {
    const int64_t head_dim = task->head_dim;
    const int64_t before = task->context - task->num_tokens - block; /* of the first query's own key */
    const int64_t earliest = before + first_row / task->group, latest = before + (last_row - 1) / task->group;
    const int64_t from = task->window ? clamped(earliest - task->window + 1, 0, count) / 32 * 32 : 0;
    const int64_t to = (clamped(latest + 1, 0, count) + 31) / 32 * 32;
    if (from >= to) return;
    score(space->queries + first_row * head_dim, space->keys, from, to, head_dim, space->scores);
    for (int64_t row = first_row; row < first_row + ROWS; row++) {
        bf16 *weights = space->weights + (row - first_row) * PITCH;
        const int64_t own = before + row / task->group;
        const int64_t last = clamped(own + 1, 0, count);
        const int64_t first = task->window ? clamped(own - task->window + 1, 0, count) : 0;
        if (row >= last_row || first >= last) {
            memset(weights + from, 0, 2 * (to - from));
            continue;
        }
        soften(space->scores + (row - first_row) * PITCH, weights, from, to, first, last, task->scale, task->cap,
               head_dim, space->sums + row * head_dim, space->best + row, space->total + row);
    }
    weigh(space->weights, space->values, from, to, head_dim, space->sums + first_row * head_dim);
}

static void run(const struct task *task, const struct space *space, const bf16 *queries, bf16 *out,
                int64_t row_elements) {
    const int64_t head_dim = task->head_dim, group = task->group, rows = task->num_tokens * group;
    const int64_t padded = (rows + ROWS - 1) / ROWS * ROWS;
    for (int64_t row = 0; row < rows; row++)
        memcpy(space->queries + row * head_dim, queries + row / group * row_elements + row % group * head_dim,
               2 * head_dim);
    memset(space->queries + rows * head_dim, 0, 2 * (padded - rows) * head_dim);
    memset(space->sums, 0, 4 * padded * head_dim);
    for (int64_t row = 0; row < rows; row++) {
        space->best[row] = -__builtin_inff();
        space->total[row] = 0;
    }
    for (int64_t block = 0; block < task->context; block += BLOCK) {
        const int64_t count = clamped(task->context - block, 0, BLOCK), whole = (count + 31) / 32 * 32;
        pack_keys(task, block, count, whole, space->keys);
        pack_values(task, block, count, whole, space->values);
        for (int64_t row = 0; row < rows; row += ROWS)
            attend(task, space, row, clamped(row + ROWS, 0, rows), block, count);
    }
    for (int64_t row = 0; row < rows; row++) {
        const float inverse = 1 / space->total[row];
        bf16 *to = out + row / group * row_elements + row % group * head_dim;
        for (int64_t d = 0; d < head_dim; d += 16)
            store(BF16, (char *)(to + d), *(floats *)(space->sums + row * head_dim + d) * inverse);
    }
}

struct tiles_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} __attribute__((packed, aligned(64)));

/* Tiles have the shapes that others gave them again when this ends: a library may keep its own for long. */
AMX static void configure(const struct tiles_config *wanted, struct tiles_config *before) {
    if (before) _tile_storeconfig(before);
    if (wanted->palette) _tile_loadconfig(wanted);
    else _tile_release();
}

static char *part(char **at, int64_t num_bytes) {
    char *begin = *at;
    *at += (num_bytes + 63) / 64 * 64;
    return begin;
}

/* Chunks first_chunk .. last_chunk (not included), each for all heads. queries and out: [rows, heads, head_dim] bf16
 * without gaps, head_dim a multiple of 32; the rows of chunk c: first_rows[c] .. + num_tokens[c]. keys, values: [slots,
 * kv_heads, head_dim]. Keys of chunk c: slots[starts[c]] .. slots[ends[c]] (not included), its queries the last of
 * them. window: keys that a query sees, its own included; 0: all. cap: 0: none. Returns 0; -1 without memory. */
int32_t firsttoken_attention_prefill(bf16 *out, const bf16 *queries, int64_t first_chunk, int64_t last_chunk,
                                     const int64_t *first_rows, const int64_t *num_tokens, int64_t heads,
                                     int64_t kv_heads, int64_t head_dim, const char *keys, const char *values,
                                     const int64_t *slots, const int64_t *starts, const int64_t *ends, int64_t window,
                                     float scale, float cap) {
    const int64_t group = heads / kv_heads;
    int64_t most_tokens = 0;
    for (int64_t chunk = first_chunk; chunk < last_chunk; chunk++)
        if (num_tokens[chunk] > most_tokens) most_tokens = num_tokens[chunk];
    const int64_t rows = (most_tokens * group + ROWS - 1) / ROWS * ROWS;
    char *memory = aligned_alloc(64, (rows * head_dim * 6 + 8 * rows + BLOCK * head_dim * 4 + ROWS * PITCH * 6 + 1023) / 64 * 64);
    if (!memory) return -1;
    char *at = memory;
    struct space space;
    space.queries = (bf16 *)part(&at, 2 * rows * head_dim);
    space.sums = (float *)part(&at, 4 * rows * head_dim);
    space.best = (float *)part(&at, 4 * rows);
    space.total = (float *)part(&at, 4 * rows);
    space.keys = (bf16 *)part(&at, 2 * BLOCK * head_dim);
    space.values = (bf16 *)part(&at, 2 * BLOCK * head_dim);
    space.scores = (float *)part(&at, 4 * ROWS * PITCH);
    space.weights = (bf16 *)part(&at, 2 * ROWS * PITCH);

    struct tiles_config whole = {.palette = 1}, before;
    for (int tile = 0; tile < 8; tile++) {
        whole.row_bytes[tile] = 64;
        whole.rows[tile] = 16;
    }
    configure(&whole, &before);
    for (int64_t chunk = first_chunk; chunk < last_chunk; chunk++)
        for (int64_t kv_head = 0; kv_head < kv_heads; kv_head++) {
            const int64_t head_bytes = 2 * head_dim * kv_head;
            const struct task task = {
                keys + head_bytes, values + head_bytes, 2 * head_dim * kv_heads, head_dim, group, window,
                slots + starts[chunk], ends[chunk] - starts[chunk], num_tokens[chunk], scale, cap,
            };
            const int64_t first = (first_rows[chunk] * heads + kv_head * group) * head_dim;
            run(&task, &space, queries + first, out + first, heads * head_dim);
        }
    configure(&before, NULL);
    free(memory);
    return 0;
}

/* Whether this process may use the tiles, which the kernel of the system has to be asked for. */
int32_t firsttoken_has_tiles(void) {
    unsigned a, b, c, d;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(d >> 22 & 1) || !(d >> 24 & 1)) return 0; /* amx-bf16, amx-tile */
    if (!__get_cpuid_count(7, 1, &a, &b, &c, &d) || !(a >> 5 & 1)) return 0;                    /* avx512-bf16 */
    const long request_permission = 0x1023, tile_data = 18;
    return syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
}
#else
int32_t firsttoken_has_tiles(void) {
    return 0;
}
#endif
