"""SiLU-mul: `y = silu(gate) * up`, the middle of a gated MLP.

Gate and up come out of one linear, side by side in the last dimension.
"""

import torch
from torch.nn import functional

from firsttoken_kernels import rows


def reference(gate_up: torch.Tensor) -> torch.Tensor:
    """The formula in fp32.  gate_up: [T, 2 I] -> [T, I] in the type of `gate_up`."""
    gate, up = gate_up.float().chunk(2, dim=-1)
    return (gate * torch.sigmoid(gate) * up).to(gate_up.dtype)


def silu_mul(gate_up: torch.Tensor, *, rowwise: bool = False) -> torch.Tensor:
    """gate_up: [T, 2 I] -> [T, I] in the type of `gate_up`.

    rowwise: a row's bits must not depend on the others (`rows.apart`).
    """
    return rows.apart(_silu_mul, gate_up) if rowwise else _silu_mul(gate_up)


def _silu_mul(gate_up: torch.Tensor) -> torch.Tensor:
    gate, up = gate_up.chunk(2, dim=-1)
    return functional.silu(gate).mul_(up)
