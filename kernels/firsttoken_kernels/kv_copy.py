"""Rows of keys or values to their slots and back in one compiled pass, whatever the formats of the slots.

By operations, quantizing a step's keys and values takes some twenty of them a layer.
`kernels/native/kv_copy.c` stores the bytes of `kv_quant` and reads back its numbers; which slots are of
which format is seen row by row.
"""

import ctypes
import functools
from dataclasses import dataclass
from typing import Any

import torch

from firsttoken_kernels import native, row_shares

_TYPES = {torch.bfloat16: 0, torch.float16: 1, torch.float32: 2}
"""In the order of the kernel's `enum type`."""
_STORED = {torch.int8: 1, torch.float8_e4m3fn: 2}
"""In the order of the kernel's `enum stored`; 0: the type of the computation."""
_WIDTH = 16
"""A head is whole vectors of every instruction set."""


@dataclass(frozen=True)
class Pool:
    """Keys or values of one layer in all slots, each without gaps."""

    full: torch.Tensor
    """[slots, KV heads, D] in the type of the computation."""
    compact: torch.Tensor
    """[slots, KV heads, D]: those behind the full ones."""
    scales: torch.Tensor | None
    """[slots, KV heads] fp16; None: the compact ones are of a plain type."""


def can_run(pool: Pool) -> bool:
    """By formats, the width of a head and the machine, never by the number of rows."""
    full, compact = pool.full, pool.compact
    return (
        full.is_cpu
        and full.dtype in _TYPES
        and (compact.dtype in _STORED or compact.dtype == full.dtype)
        and full.shape[2] % _WIDTH == 0
        and native.library() is not None
    )


def write(rows: torch.Tensor, pool: Pool, slots: torch.Tensor) -> None:
    """rows: [n, KV heads, D] in the type of the computation; slots: [n], distinct."""
    if rows.stride()[1:] != (rows.shape[2], 1):
        rows = rows.contiguous()
    _run(rows, pool, slots, is_write=True)


def read(out: torch.Tensor, pool: Pool, slots: torch.Tensor) -> None:
    """out: [n, KV heads, D] in the type of the computation, a row without gaps."""
    _run(out, pool, slots, is_write=False)


def _run(rows: torch.Tensor, pool: Pool, slots: torch.Tensor, *, is_write: bool) -> None:
    library = native.library()
    assert library is not None, "ask can_run first"
    num_rows, heads, head_dim = rows.shape
    full, compact, scales = pool.full, pool.compact, pool.scales
    assert rows.shape[1:] == full.shape[1:] == compact.shape[1:], rows.shape
    assert rows.dtype == full.dtype, rows.dtype
    assert rows.stride()[1:] == (head_dim, 1), rows.stride()
    assert slots.dtype == torch.int64, slots.dtype
    assert len(slots) == num_rows, slots.shape
    for each in (full, compact, slots):
        assert each.is_contiguous(), each.stride()
    assert (compact.dtype in _STORED) == (scales is not None), compact.dtype
    if scales is not None:
        assert scales.is_contiguous(), scales.stride()
        assert scales.dtype == torch.float16, scales.dtype
    before = (
        *(is_write, _TYPES[rows.dtype], _STORED.get(compact.dtype, 0)),
        *(rows.data_ptr(), rows.stride(0) * rows.element_size(), slots.data_ptr()),
    )
    behind = (
        *(heads, head_dim, full.data_ptr(), compact.data_ptr()),
        *(None if scales is None else scales.data_ptr(), len(full), len(compact)),
    )
    kernel = _kernel(library)

    def run(first_row: int, last_row: int) -> None:
        done = kernel(*before, first_row, last_row, *behind)
        assert done == last_row, f"row {done} has a slot that does not exist"

    row_shares.run(run, num_rows, heads * head_dim)


@functools.cache
def _kernel(library: ctypes.CDLL) -> Any:
    kernel = library.firsttoken_kv_copy
    pointer, number, size = ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64
    kernel.argtypes = (
        *(number, number, number, pointer, size, pointer, size, size, size, size),
        *(pointer, pointer, pointer, size, size),
    )
    kernel.restype = size
    return kernel
