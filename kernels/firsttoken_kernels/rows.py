"""Element by element operations whose bits do not depend on how the library shares them out.

PyTorch cuts large tensors into equal parts for its threads, in the middle of a row where it falls so, and
the last few elements of a part are computed one by one: exp, tanh and erf then differ in the last bit
from the vectors. Below the size it cuts at, a row that is not joined to the next (the operand is a slice
of a wider tensor) is always computed alike.
"""

from collections.abc import Callable

import torch

_CUT_AT = 32_768
"""at::internal::GRAIN_SIZE: from so many elements on the work is shared among threads."""


def apart(operation: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    """`operation(x)` of a row-wise operation, over pieces of x [T, N] too small to be shared out."""
    if x.device.type != "cpu" or torch.get_num_threads() == 1:
        return operation(x)
    most = max((_CUT_AT - 1) // x.shape[-1], 1)
    if len(x) <= most:
        return operation(x)
    return torch.cat([operation(piece) for piece in torch.split(x, most)])
