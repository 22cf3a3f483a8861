"""Element by element functions whose bits do not depend on how the library shares the elements out.

PyTorch computes the last few elements of a tensor one by one, and cuts a large tensor into equal parts
for its threads, each with a last few of its own: exp, tanh or cos then differ in the last bit from those
computed as vectors. In pieces of whole vectors, too small to be cut, every element is computed alike.
"""

from collections.abc import Callable

import torch
from torch.nn import functional

_VECTOR = 64
"""A multiple of the elements of one turn of the library's loops, in any type."""
_PIECE = 16_384
"""Below at::internal::GRAIN_SIZE, from where on threads share the work."""


def alike(function: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    """`function(x)`, for a function of single elements."""
    if x.device.type != "cpu":
        return function(x)
    flat = x.reshape(-1)
    count = flat.numel()
    padded = functional.pad(flat, (0, -count % _VECTOR))
    if len(padded) <= _PIECE:
        return function(padded)[:count].view(x.shape)
    return torch.cat([function(piece) for piece in torch.split(padded, _PIECE)])[:count].view(x.shape)
