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


def silu_mul(gate_up: torch.Tensor, *, alike: bool = False) -> torch.Tensor:
    """gate_up: [T, 2 I] -> [T, I] in the type of `gate_up`.

    alike: a row's bits must not depend on the others (`rows.alike`).
    """
    gate, up = gate_up.chunk(2, dim=-1)
    activated = rows.alike(functional.silu, gate) if alike else functional.silu(gate)
    return activated.mul_(up)
