"""The gated MLP of a layer, of an expert, and of a shared expert.

Where the library multiplies and activates in the same pass, gate and up are two linears; else they are one.
"""

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
        def linear(*names: str) -> layers.Linear:
            weight, bias = (
                torch.cat([take(f"{name}_proj.{kind}") for name in names])
                if kind == "weight" or has_bias
                else None
                for kind in ("weight", "bias")
            )
            assert weight is not None
            return layers.Linear(weight, bias, numerics=numerics)

        self.down = linear("down")
        self.activation = activation
        self.gate_up: layers.Linear | None = None
        if self.down.can_fuse:
            self.gate, self.up = linear("gate"), linear("up")
        else:
            self.gate_up = linear("gate", "up")
            activate = ACTIVATIONS[activation]
            self.activate = functools.partial(activate, alike=True) if numerics.batch_invariant else activate

    def __call__(self, x: torch.Tensor, added: torch.Tensor | None = None) -> torch.Tensor:
        """x: [T, H] -> [T, H]; `added` [T, H] is added to it."""
        if self.gate_up is None:
            inner = self.up.times(x, self.gate.activated(x, self.activation))
        else:
            inner = self.activate(self.gate_up(x))
        return self.down(inner, added)
