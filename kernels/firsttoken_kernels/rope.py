"""Rotary position embedding.

Pairs are (i, i + D/2), the layout of transformers' checkpoints. Angles are computed once a step in
fp32 and shared by all layers.
"""

import torch

from firsttoken_kernels import rows


def frequencies(head_dim: int, theta: float, device: torch.device) -> torch.Tensor:
    """Angle per position of each pair: `theta^(-2i / D)`.  -> [D / 2] fp32."""
    exponent = torch.arange(0, head_dim, 2, dtype=torch.int64).to(device=device, dtype=torch.float32)
    return 1.0 / (theta ** (exponent / head_dim))


def cos_sin(
    positions: torch.Tensor, inverse_frequencies: torch.Tensor, dtype: torch.dtype, factor: float = 1.0
) -> tuple[torch.Tensor, torch.Tensor]:
    """positions: [T] -> cos, sin: [T, 1, D] times `factor`, in fp32, then rounded to `dtype`; the first
    half of sin has the sign that `rotate` needs."""
    angles = positions.float()[:, None] * inverse_frequencies[None, :]  # [T, D / 2]
    angles = torch.cat((angles, angles), dim=-1)[:, None, :]  # [T, 1, D]
    cos, sin = rows.alike(torch.cos, angles), rows.alike(torch.sin, angles)
    if factor != 1:
        cos, sin = cos * factor, sin * factor
    sin[..., : len(inverse_frequencies)].neg_()
    return cos.to(dtype), sin.to(dtype)


def reference(x: torch.Tensor, positions: torch.Tensor, theta: float) -> torch.Tensor:
    """Each pair turned by its angle, in fp64.  x: [T, H, D], positions: [T] -> [T, H, D]."""
    half = x.shape[-1] // 2
    turned = torch.empty_like(x, dtype=torch.float64)
    for pair in range(half):
        angle = positions.double() * theta ** (-2.0 * pair / x.shape[-1])  # [T]
        cos, sin = angle.cos()[:, None], angle.sin()[:, None]
        first, second = x[..., pair].double(), x[..., pair + half].double()
        turned[..., pair] = first * cos - second * sin
        turned[..., pair + half] = second * cos + first * sin
    return turned.to(x.dtype)


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """x: [T, H, D], cos and sin: [T, 1, D] of `cos_sin` -> [T, H, D]."""
    return torch.addcmul(x * cos, x.roll(x.shape[-1] // 2, -1), sin)
