"""Attention of one query a sequence over the paged cache on a CPU, by a compiled kernel.

Keys and values are read where they lie and as they are stored, once; gathering them into rows that the
library's attention takes costs several times as much (`kernels/README.md` has the figures). Formula, order of
sums and number format: `kernels/native/attention_decode.c`. It computes what `attention` does for decodes.
"""

import ctypes
import functools
import itertools
from typing import Any

import torch

from firsttoken_kernels import native, paged_cache, row_shares
from firsttoken_kernels.attention_plan import RaggedDecodes

MOST_QUERY_FLOATS = 32768
"""Query heads x head_dim that fit on the kernel's stack."""
_LEAST_KEYS_A_THREAD = 256
"""Fewer are done sooner than another thread has woken up."""


def can_run(device: torch.device, dtype: torch.dtype, heads: int, head_dim: int) -> bool:
    """Whether there is a kernel for queries of this type and shape on this machine."""
    return (
        device.type == "cpu"
        and dtype in native.COMPUTED
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
    assert queries.is_contiguous(), queries.stride()
    assert out.is_contiguous(), out.stride()
    assert out.dtype == queries.dtype, out.dtype
    assert cache_layer.head_dim == head_dim, queries.shape
    kernel = _kernel(library)
    before = (out.data_ptr(), queries.data_ptr(), native.COMPUTED[queries.dtype])
    behind = (
        *(heads, cache_layer.memory.address, decodes.slots.data_ptr()),
        *(decodes.starts.data_ptr(), decodes.ends.data_ptr(), scale, softcap or 0.0),
    )

    def run(first_row: int, last_row: int) -> None:
        kernel(*before, first_row, last_row, *behind)

    threads = min(torch.get_num_threads(), rows, len(decodes.slots) // _LEAST_KEYS_A_THREAD)
    if threads <= 1:
        run(0, rows)
        return
    row_shares.at_once(run, list(itertools.pairwise(_shares(decodes, threads))))


def _shares(decodes: RaggedDecodes, threads: int) -> list[int]:
    """Rows at which one thread's share ends and the next begins, so that all have about as many keys."""
    done = (decodes.ends - decodes.starts).cumsum(0)
    wanted = torch.arange(1, threads) * int(done[-1]) // threads
    return [0, *torch.searchsorted(done, wanted).tolist(), len(done)]


@functools.cache
def _kernel(library: ctypes.CDLL) -> Any:
    kernel = library.firsttoken_attention_decode
    pointer, size, number = ctypes.c_void_p, ctypes.c_int64, ctypes.c_float
    kernel.argtypes = (
        *(pointer, pointer, ctypes.c_int32, size, size),
        *(size, pointer, pointer, pointer, pointer, number, number),
    )
    kernel.restype = None
    return kernel
