"""Where a layer's cache lies, as the compiled kernels want it: made once, then one address in every call."""

import ctypes

import torch

from firsttoken_kernels import native


class _Pool(ctypes.Structure):
    """`struct pool` of `kernels/native/cache.h`, field by field."""

    _fields_ = [
        ("rows", ctypes.c_void_p * 2),
        ("scales", ctypes.c_void_p * 2),
        ("first_slot", ctypes.c_int64),
        ("num_slots", ctypes.c_int64),
        ("type", ctypes.c_int64),
    ]


class _Cache(ctypes.Structure):
    """`struct cache`."""

    _fields_ = [
        ("full", _Pool),
        ("compact", _Pool),
        ("kv_heads", ctypes.c_int64),
        ("head_dim", ctypes.c_int64),
    ]


class CacheMemory:
    """One layer's slots of both formats."""

    def __init__(
        self, full: torch.Tensor, compact: torch.Tensor | None = None, scales: torch.Tensor | None = None
    ) -> None:
        """full, compact: [2 (keys, values), slots, KV heads, D], scales: [2, slots, KV heads]; either half
        without gaps, in memory that stays where it is."""
        num_full, kv_heads, head_dim = full.shape[1:]
        later = _pool(full[:, :0], None, num_full) if compact is None else _pool(compact, scales, num_full)
        self.full, self.compact, self.scales = full, compact, scales
        self._cache = _Cache(_pool(full, None, 0), later, kv_heads, head_dim)
        self.address = ctypes.addressof(self._cache)

    def takes_rows(self) -> bool:
        """Every slot can hold rows of the type of the full ones: compact ones are of that type, or codes."""
        return self.compact is None or self.scales is not None or self.compact.dtype == self.full.dtype


def _pool(rows: torch.Tensor, scales: torch.Tensor | None, first_slot: int) -> _Pool:
    for each in (*rows, *(() if scales is None else scales)):
        assert each.is_contiguous(), each.stride()
    return _Pool(
        _addresses(rows),
        (None, None) if scales is None else _addresses(scales),
        first_slot,
        rows.shape[1],
        native.TYPES[rows.dtype],
    )


def _addresses(both: torch.Tensor) -> tuple[int, int]:
    """Of keys and of values."""
    return both[0].data_ptr(), both[1].data_ptr()
