"""Attention of one query a sequence over the paged cache on a CPU, by a compiled kernel.

Keys and values are read where they lie and as they are stored, once; gathering them into rows that the
library's attention takes costs several times as much (`kernels/README.md` has the figures). Formula, order of
sums and number format: `kernels/native/attention_decode.c`. It computes what `attention` does for decodes.
"""

import ctypes
import itertools

import torch

from firsttoken_kernels import native, paged_cache
from firsttoken_kernels.attention_plan import RaggedDecodes

TYPES = {
    torch.bfloat16: 0,
    torch.float16: 1,
    torch.float32: 2,
    torch.int8: 3,
    torch.float8_e4m3fn: 4,
}
"""In the order of the kernel's `enum type`."""
MOST_QUERY_FLOATS = 32768
"""Query heads x head_dim that fit on the kernel's stack."""
_LEAST_KEYS_A_THREAD = 256
"""Fewer are done sooner than another thread has woken up."""


def can_run(device: torch.device, dtype: torch.dtype, heads: int, head_dim: int) -> bool:
    """Whether there is a kernel for queries of this type and shape on this machine."""
    return (
        device.type == "cpu"
        and dtype in (torch.bfloat16, torch.float16, torch.float32)
        and heads * head_dim <= MOST_QUERY_FLOATS
        and native.library() is not None
        and head_dim % native.LANES[native.instruction_set()] == 0
    )


def attention_decode(
    queries: torch.Tensor,
    cache_layer: paged_cache.LayerCache,
    decodes: RaggedDecodes,
    scale: float,
    softcap: float | None,
    out: torch.Tensor,
) -> None:
    """queries, out: [at least B, heads, D] without gaps; the first B rows are read and written."""
    library = native.library()
    assert library is not None, "ask can_run first"
    _, heads, head_dim = queries.shape
    rows = len(decodes.starts)
    compact = cache_layer.compact
    num_full_slots = cache_layer.full.shape[1]
    assert queries.is_contiguous(), queries.stride()
    assert out.is_contiguous(), out.stride()
    assert out.dtype == queries.dtype, out.dtype
    cache = addresses(cache_layer)
    full_type = TYPES[cache_layer.full.dtype]
    compact_type = full_type if compact is None else TYPES[compact.stored.dtype]

    def run(first_row: int, last_row: int) -> None:
        library.firsttoken_attention_decode(
            ctypes.c_void_p(out.data_ptr()),
            ctypes.c_void_p(queries.data_ptr()),
            ctypes.c_int32(TYPES[queries.dtype]),
            ctypes.c_int64(first_row),
            ctypes.c_int64(last_row),
            ctypes.c_int64(heads),
            ctypes.c_int64(cache_layer.num_kv_heads),
            ctypes.c_int64(head_dim),
            cache,
            ctypes.c_int32(full_type),
            ctypes.c_int32(compact_type),
            ctypes.c_int64(num_full_slots),
            ctypes.c_void_p(decodes.slots.data_ptr()),
            ctypes.c_void_p(decodes.starts.data_ptr()),
            ctypes.c_void_p(decodes.ends.data_ptr()),
            ctypes.c_float(scale),
            ctypes.c_float(0.0 if softcap is None else softcap),
        )

    most_threads = torch.get_num_threads()
    threads = min(most_threads, rows, len(decodes.slots) // _LEAST_KEYS_A_THREAD)
    if threads <= 1:
        run(0, rows)
        return
    mine, *others = itertools.pairwise(_shares(decodes, threads))
    workers = native.workers(most_threads - 1)
    running = [workers.submit(run, *rows_of_one) for rows_of_one in others]
    run(*mine)
    for one in running:
        one.result()


def addresses(cache_layer: paged_cache.LayerCache) -> ctypes.Array[ctypes.c_void_p]:
    """Of full and of compact slots, as the kernels want them."""
    compact = cache_layer.compact
    found = _addresses(cache_layer.full, None)
    found += [0] * 4 if compact is None else _addresses(compact.stored, compact.scales)
    return (ctypes.c_void_p * 8)(*found)


def _addresses(stored: torch.Tensor, scales: torch.Tensor | None) -> list[int]:
    """Of keys, values and their scales; 0: there are none.  stored: [2, slots, KV heads, D]."""
    assert stored[0].is_contiguous(), stored.stride()
    found = [stored[0].data_ptr(), stored[1].data_ptr()]
    return found + ([0, 0] if scales is None else [scales[0].data_ptr(), scales[1].data_ptr()])


def _shares(decodes: RaggedDecodes, threads: int) -> list[int]:
    """Rows at which one thread's share ends and the next begins, so that all have about as many keys."""
    done = (decodes.ends - decodes.starts).cumsum(0)
    wanted = torch.arange(1, threads) * int(done[-1]) // threads
    return [0, *torch.searchsorted(done, wanted).tolist(), len(done)]
