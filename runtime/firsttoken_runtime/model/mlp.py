"""The gated MLP of a layer, of an expert, and of a shared expert. Gate and up are one linear."""

import functools
from collections.abc import Callable

import torch

from firsttoken_kernels import gelu_mul, silu_mul
from firsttoken_runtime.model import layers

ACTIVATIONS: dict[str, Callable[..., torch.Tensor]] = {
    "silu": silu_mul.silu_mul,
    "gelu_pytorch_tanh": gelu_mul.gelu_mul,
}

Take = Callable[[str], torch.Tensor]
"""Takes a tensor out of those that were loaded, by its name after a prefix."""


class Mlp:
    """`down(activation(gate(x)) * up(x))`."""

    def __init__(self, take: Take, *, activation: str, has_bias: bool, numerics: layers.Numerics) -> None:
        gate_up = torch.cat([take("gate_proj.weight"), take("up_proj.weight")])
        bias = torch.cat([take("gate_proj.bias"), take("up_proj.bias")]) if has_bias else None
        self.gate_up = layers.Linear(gate_up, bias, numerics=numerics)
        self.down = layers.Linear(
            take("down_proj.weight"), take("down_proj.bias") if has_bias else None, numerics=numerics
        )
        activate = ACTIVATIONS[activation]
        self.activation = functools.partial(activate, alike=True) if numerics.batch_invariant else activate

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """x: [T, H] -> [T, H]."""
        return self.down(self.activation(self.gate_up(x)))
