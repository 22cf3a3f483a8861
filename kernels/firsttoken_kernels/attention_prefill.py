"""Attention of a step's prompt chunks over the paged cache by a compiled kernel, on a CPU with AMX.

The library's attention wants keys and values gathered, takes one chunk a call, and masks what a chunk
does not see of its context; here all chunks are one call that reads the cache and skips what is not seen
(`kernels/README.md` has the figures). Formula, order of sums and number format:
`kernels/native/attention_prefill.c`. It computes what `attention` does for prompts, in bf16 only.
"""

import ctypes
import functools
import itertools
from typing import Any

import torch

from firsttoken_kernels import native, paged_cache
from firsttoken_kernels.attention_plan import RaggedPrefills

_WIDTH = 32
"""Elements of a head in one row of a tile."""
_MOST_HEAD_DIM = 512
_LEAST_SCORES_A_THREAD = 16_384
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
    full = cache_layer.full
    for each in (queries, out, full[0]):
        assert each.dtype == torch.bfloat16, each.dtype
        assert each.is_contiguous(), each.stride()
    kernel = _kernel(library)

    def run(first_chunk: int, last_chunk: int) -> None:
        failed = kernel(
            *(out.data_ptr(), queries.data_ptr(), first_chunk, last_chunk),
            *(prefills.first_rows.data_ptr(), prefills.num_tokens.data_ptr()),
            *(heads, cache_layer.num_kv_heads, head_dim, full[0].data_ptr(), full[1].data_ptr()),
            *(prefills.slots.data_ptr(), prefills.starts.data_ptr(), prefills.ends.data_ptr()),
            *(window or 0, scale, softcap or 0.0),
        )
        if failed:
            raise MemoryError("not enough memory for the attention of a prompt")

    chunks = len(prefills.num_tokens)
    most_threads = torch.get_num_threads()
    if min(most_threads, chunks) == 1:
        run(0, chunks)
        return
    scores = prefills.num_tokens * (prefills.ends - prefills.starts)
    threads = min(most_threads, chunks, int(scores.sum()) * heads // _LEAST_SCORES_A_THREAD)
    if threads <= 1:
        run(0, chunks)
        return
    wanted = torch.arange(1, threads) * int(scores.sum()) // threads
    shares = [0, *torch.searchsorted(scores.cumsum(0), wanted).tolist(), chunks]
    mine, *others = itertools.pairwise(shares)
    running = [native.workers(most_threads - 1).submit(run, *chunks_of_one) for chunks_of_one in others]
    run(*mine)
    for one in running:
        one.result()


@functools.cache
def _kernel(library: ctypes.CDLL) -> Any:
    kernel = library.firsttoken_attention_prefill
    pointer, size, number = ctypes.c_void_p, ctypes.c_int64, ctypes.c_float
    kernel.argtypes = (
        *(pointer, pointer, size, size, pointer, pointer, size, size, size),
        *(pointer, pointer, pointer, pointer, pointer, size, number, number),
    )
    kernel.restype = ctypes.c_int32
    return kernel
