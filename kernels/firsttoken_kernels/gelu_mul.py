"""GELU-mul: `y = gelu(gate) * up` with the tanh form of GELU, the middle of Gemma's MLP.

`gelu(x) = x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))`. Gate and up come out of one linear,
side by side in the last dimension.
"""

import math

import torch
from torch.nn import functional

from firsttoken_kernels import rows


def reference(gate_up: torch.Tensor) -> torch.Tensor:
    """The formula in fp64.  gate_up: [T, 2 I] -> [T, I] in the type of `gate_up`."""
    gate, up = gate_up.double().chunk(2, dim=-1)
    inner = math.sqrt(2 / math.pi) * (gate + 0.044715 * gate**3)
    return (gate / 2 * (1 + inner.tanh()) * up).to(gate_up.dtype)


def gelu_mul(gate_up: torch.Tensor, *, alike: bool = False) -> torch.Tensor:
    """gate_up: [T, 2 I] -> [T, I] in the type of `gate_up`.

    alike: a row's bits must not depend on the others (`rows.alike`).
    """
    gate, up = gate_up.chunk(2, dim=-1)
    activated = rows.alike(_gelu, gate) if alike else _gelu(gate)
    return activated.mul_(up)


def _gelu(x: torch.Tensor) -> torch.Tensor:
    return functional.gelu(x, approximate="tanh")
