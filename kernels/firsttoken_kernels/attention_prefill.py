"""Attention of a step's prompt chunks over the paged cache by a compiled kernel, on a CPU with AMX.

The library's attention wants keys and values gathered, takes one chunk a call, and masks what a chunk
does not see of its context; here all chunks are one call that reads the cache and skips what is not seen
(`kernels/README.md` has the figures). Formula, order of sums and number format:
`kernels/native/attention_prefill.c`. It computes what `attention` does for prompts, of queries
in bf16 only; keys and values may be stored in any type.
"""

import ctypes
import functools
from typing import Any

import torch

from firsttoken_kernels import native, paged_cache, row_shares
from firsttoken_kernels.attention_plan import RaggedPrefills

_WIDTH = 32
"""Elements of a head in one row of a tile."""
_MOST_HEAD_DIM = 512
_LEAST_SCORES_A_THREAD = 1 << 17
"""Fewer are done sooner than another thread has woken up."""


def can_run(device: torch.device, dtype: torch.dtype, head_dim: int) -> bool:
    """Whether there is a kernel for queries of this type and width on this machine."""
    return (
        device.type == "cpu"
        and dtype == torch.bfloat16
        and head_dim % _WIDTH == 0
        and head_dim <= _MOST_HEAD_DIM
        and _has_tiles()
    )


@functools.cache
def _has_tiles() -> bool:
    """Asks the system for them, once for all threads."""
    library = native.library()
    return library is not None and bool(library.firsttoken_has_tiles())


def attention_prefill(
    queries: torch.Tensor,
    cache_layer: paged_cache.LayerCache,
    prefills: RaggedPrefills,
    scale: float,
    window: int | None,
    softcap: float | None,
    out: torch.Tensor,
) -> None:
    """queries, out: [T, heads, D] without gaps; the chunks' rows are read and written."""
    library = native.library()
    assert library is not None, "ask can_run first"
    _, heads, head_dim = queries.shape
    for each in (queries, out):
        assert each.dtype == torch.bfloat16, each.dtype
        assert each.is_contiguous(), each.stride()
    assert scale > 0, scale
    assert cache_layer.head_dim == head_dim, queries.shape
    kernel = _kernel(library)

    def run(share: int, shares: int) -> None:
        failed = kernel(
            *(out.data_ptr(), queries.data_ptr(), share, shares),
            *(len(prefills.starts), prefills.first_rows.data_ptr(), prefills.num_tokens.data_ptr()),
            *(heads, cache_layer.memory.address, prefills.slots.data_ptr()),
            *(prefills.starts.data_ptr(), prefills.ends.data_ptr()),
            *(window or 0, scale, softcap or 0.0),
        )
        if failed:
            raise MemoryError("not enough memory for the attention of a prompt")

    most = prefills.num_scores * heads // _LEAST_SCORES_A_THREAD
    threads = max(1, min(torch.get_num_threads(), most))
    row_shares.at_once(run, [(share, threads) for share in range(threads)])


@functools.cache
def _kernel(library: ctypes.CDLL) -> Any:
    kernel = library.firsttoken_attention_prefill
    pointer, size, number = ctypes.c_void_p, ctypes.c_int64, ctypes.c_float
    kernel.argtypes = (
        *(pointer, pointer, size, size),
        *(size, pointer, pointer),
        *(size, pointer, pointer),
        *(pointer, pointer),
        *(size, number, number),
    )
    kernel.restype = ctypes.c_int32
    return kernel
