"""Rows of keys or values to their slots and back in one compiled pass, whatever the formats of the slots.

By operations, quantizing a step's keys and values takes some twenty of them a layer.
`kernels/native/kv_copy.c` stores the bytes of `kv_quant` and reads back its numbers; which slots are of
which format is seen row by row.
"""

import ctypes
import functools
from collections.abc import Sequence
from typing import Any

import torch

from firsttoken_kernels import cache_memory, native, row_shares

Both = Sequence[torch.Tensor]
"""Keys and values, each [n, KV heads, D] in the type of the computation."""
_WIDTH = 16
"""A head is whole vectors of every instruction set."""


def can_run(memory: cache_memory.CacheMemory) -> bool:
    """By formats, the width of a head and the machine, never by the number of rows."""
    full = memory.full
    return (
        full.is_cpu
        and full.dtype in native.COMPUTED
        and memory.takes_rows()
        and full.shape[3] % _WIDTH == 0
        and native.library() is not None
    )


def write(both: Both, memory: cache_memory.CacheMemory, slots: torch.Tensor) -> None:
    """slots: [n], distinct."""
    for which, rows in enumerate(both):
        is_dense = rows.stride()[1:] == (rows.shape[2], 1)
        _run(rows if is_dense else rows.contiguous(), memory, slots, which, is_write=True)


def read(both: Both, memory: cache_memory.CacheMemory, slots: torch.Tensor) -> None:
    """Into `both`, a row without gaps."""
    for which, rows in enumerate(both):
        _run(rows, memory, slots, which, is_write=False)


def _run(
    rows: torch.Tensor, memory: cache_memory.CacheMemory, slots: torch.Tensor, which: int, *, is_write: bool
) -> None:
    library = native.library()
    assert library is not None, "ask can_run first"
    num_rows, heads, head_dim = rows.shape
    assert rows.shape[1:] == memory.full.shape[2:], rows.shape
    assert rows.dtype == memory.full.dtype, rows.dtype
    assert rows.stride()[1:] == (head_dim, 1), rows.stride()
    assert slots.dtype == torch.int64, slots.dtype
    assert slots.is_contiguous(), slots.stride()
    assert len(slots) == num_rows, slots.shape
    before = (is_write, rows.data_ptr(), rows.stride(0) * rows.element_size(), slots.data_ptr())
    kernel = _kernel(library)
    row_shares.run_to_slots(
        lambda first_row, last_row: kernel(*before, first_row, last_row, memory.address, which),
        num_rows,
        heads * head_dim,
    )


@functools.cache
def _kernel(library: ctypes.CDLL) -> Any:
    kernel = library.firsttoken_kv_copy
    pointer, number, size = ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64
    kernel.argtypes = (
        *(number, pointer, size, pointer, size, size),
        *(pointer, number),
    )
    kernel.restype = size
    return kernel
