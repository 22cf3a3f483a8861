"""RMSNorm: `y = x / sqrt(mean(x^2) + eps) * w`, statistics in fp32.

The norm before every attention and MLP block, and of queries and keys in some families. On a CPU there is
a compiled kernel (`kernels/native/rmsnorm.c`): one call for PyTorch's seven operations and conversions.
"""

import ctypes
import functools
from typing import Any

import torch

from firsttoken_kernels import native, row_shares


def reference(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """The formula, word for word, in fp32.  x: [..., H], weight: [H] -> [..., H] in the type of `x`."""
    wide = x.float()
    normed = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return (normed * weight.float()).to(x.dtype)


def rmsnorm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """x: [..., H], weight: [H] in the type of `x` or in fp32 -> [..., H] in the type of `x`."""
    library = native.library() if x.is_cpu else None
    if library is None or x.dtype not in native.COMPUTED:
        return _by_operations(x, weight, eps)
    is_weight_wide = weight.dtype == torch.float32
    assert is_weight_wide or weight.dtype == x.dtype, weight.dtype
    assert weight.is_contiguous(), weight.stride()
    x = x.contiguous()
    out = torch.empty_like(x)
    length = x.shape[-1]
    before = (out.data_ptr(), x.data_ptr(), native.COMPUTED[x.dtype], weight.data_ptr(), is_weight_wide, eps)
    kernel = _kernel(library)
    row_shares.run(
        lambda first_row, last_row: kernel(*before, first_row, last_row, length),
        x.numel() // length,
        length,
    )
    return out


@functools.cache
def _kernel(library: ctypes.CDLL) -> Any:
    kernel = library.firsttoken_rmsnorm
    pointer, number, size = ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64
    kernel.argtypes = (pointer, pointer, number, pointer, number, ctypes.c_float, size, size, size)
    kernel.restype = None
    return kernel


def _by_operations(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """The library's own is a chain of eight operations, each with a tensor of its own; in place, and with the
    length of a row in one pass, a prompt's norms take half of the time."""
    wide = x.float() if x.dtype != torch.float32 else x
    scale = torch.linalg.vector_norm(wide, dim=-1, keepdim=True).square_()
    scale = scale.mul_(1 / x.shape[-1]).add_(eps).rsqrt_()
    normed = wide.mul_(scale) if wide is not x else wide * scale
    return normed.mul_(weight).to(x.dtype)
