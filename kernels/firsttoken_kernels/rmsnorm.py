"""RMSNorm: `y = x / sqrt(mean(x^2) + eps) * w`, statistics in fp32.

The norm before every attention and MLP block, and of queries and keys in some families.
"""

import torch
from torch.nn import functional


def reference(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """The formula, word for word, in fp32.  x: [..., H], weight: [H] -> [..., H] in the type of `x`."""
    wide = x.float()
    normed = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return (normed * weight.float()).to(x.dtype)


def rmsnorm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """x: [..., H], weight: [H] -> [..., H] in the type of `x`."""
    return functional.rms_norm(x, (x.shape[-1],), weight, eps)
