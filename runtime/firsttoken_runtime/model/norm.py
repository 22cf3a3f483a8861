"""RMSNorm with its weight. Gemma's weights are fp32 in every compute type: there a norm multiplies by
1 + w before it rounds, and 1 + w has more digits than w."""

import torch

from firsttoken_kernels import rmsnorm


class Norm:
    """`y = x / sqrt(mean(x^2) + eps) * w`."""

    def __init__(self, weight: torch.Tensor, eps: float) -> None:
        """weight: [H], in the compute type or in fp32."""
        self.weight = weight
        self.eps = eps

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """x: [..., H] -> [..., H] in the type of `x`."""
        return rmsnorm.rmsnorm(x, self.weight, self.eps)
