"""The linear layer, with its weight packed for the CPU's matrix units.

oneDNN reorders a plain weight at every call once there is more than one row; packed once at load, a
bf16 linear of 8 rows was 1.6 to 2.7 times faster. A packed layer keeps no plain copy. What follows a
linear element by element is done by the library on the sums, before they are rounded and written.

In the batch-invariant mode a call has one of a few row counts, on which the library was seen to add in the
same order: rows are padded to the next, or cut into tiles of the largest. Which counts agree depends on
processor, library, type, shapes and threads: `engine/invariance.py` finds out.
"""

from dataclasses import dataclass

import torch
from torch.nn import functional

_PACKED_FOR_ROWS = 256
"""The row count oneDNN is told to expect; the layout it picks serves other counts as well."""

FUSED_ACTIVATIONS = {"silu": ("swish", ""), "gelu_pytorch_tanh": ("gelu", "tanh")}
"""By the name of a model's configuration: oneDNN's names."""


@dataclass(frozen=True)
class Numerics:
    """What the numbers of a row may depend on."""

    batch_invariant: bool = False
    """True: not on which or how many other rows share a call."""
    least_rows: int = 1
    most_rows: int = 128
    """With it: a linear is only ever called with `least_rows`, or twice, four times … as many, up to
    `most_rows`."""

    def tiles(self, rows: int) -> list[int]:
        """Row counts of the calls that compute so many rows; the last may need padding."""
        tiles = [self.most_rows] * (rows // self.most_rows)
        left = rows % self.most_rows
        if left:
            count = self.least_rows
            while count < left:
                count *= 2
            tiles.append(count)
        return tiles


class Linear:
    """`y = x W^T + b`."""

    def __init__(
        self,
        weight: torch.Tensor,
        bias: torch.Tensor | None = None,
        *,
        numerics: Numerics = Numerics(),
    ) -> None:
        """weight: [out, in], bias: [out]."""
        self.numerics = numerics
        self.out_features, self.in_features = weight.shape
        self._bias = bias
        self._is_packed: bool = weight.device.type == "cpu" and bool(torch.backends.mkldnn.enabled)
        self._weight = (
            torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), _PACKED_FOR_ROWS)
            if self._is_packed
            else weight
        )

    def __call__(self, x: torch.Tensor, added: torch.Tensor | None = None) -> torch.Tensor:
        """x: [T, in] -> [T, out]; `added` [T, out] is added to it."""
        if self.can_fuse and added is not None:
            return self._binary(x, added, "add")
        y = self._invariant(x) if self.numerics.batch_invariant else self._multiply(x)
        return y if added is None else added + y

    @property
    def can_fuse(self) -> bool:
        """Whether the library does the next element by element operation in the same pass."""
        return self._is_packed and not self.numerics.batch_invariant

    def activated(self, x: torch.Tensor, activation: str) -> torch.Tensor:
        """Only where `can_fuse`.  x: [T, in] -> [T, out]."""
        name, algorithm = FUSED_ACTIVATIONS[activation]
        y: torch.Tensor = torch.ops.mkldnn._linear_pointwise(x, self._weight, self._bias, name, [], algorithm)
        return y

    def times(self, x: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
        """Only where `can_fuse`.  x: [T, in] -> [T, out], element by element times `factor` [T, out]."""
        return self._binary(x, factor, "mul")

    def _binary(self, x: torch.Tensor, other: torch.Tensor, operation: str) -> torch.Tensor:
        y: torch.Tensor = torch.ops.mkldnn._linear_pointwise.binary(
            x, other, self._weight, self._bias, operation
        )
        return y

    def _invariant(self, x: torch.Tensor) -> torch.Tensor:
        rows = len(x)
        tiles = self.numerics.tiles(rows)
        padding = sum(tiles) - rows
        # Contiguous even where nothing is padded: another stride may mean another kernel.
        x = functional.pad(x, (0, 0, 0, padding)) if padding else x.contiguous()
        if len(tiles) <= 1:
            return self._multiply(x)[:rows]
        return torch.cat([self._multiply(tile) for tile in torch.split(x, tiles)])[:rows]

    def _multiply(self, x: torch.Tensor) -> torch.Tensor:
        if self._is_packed:
            packed: torch.Tensor = torch.ops.mkldnn._linear_pointwise(
                x, self._weight, self._bias, "none", [], ""
            )
            return packed
        return functional.linear(x, self._weight, self._bias)
