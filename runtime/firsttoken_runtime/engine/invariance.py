"""How many rows a linear needs so that a row's bits do not depend on the others: measured at start.

A library picks its kernel by the shape of the call, and kernels add in different orders. So a few row
counts, each twice the last, are tried on the shapes of the model's own linears, with random numbers,
and only counts that agree are ever used: from about one in fp32, from 32 or more in bf16 on matrix units.
What agrees depends on processor, library version, type and threads. Where nothing does, what is left is
one row a call.
"""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch.nn import functional

from firsttoken_runtime.model import layers

_COUNTS = (1, 2, 4, 8, 16, 32, 64, 128)
_CHEAP_ROWS = 64
"""A lone decode is padded to the smallest count; more than this costs more than long tiles gain."""
_MOST_ELEMENTS = 64 * 2**20
"""Of a probed weight; larger ones are probed with fewer outputs."""
_FUSED = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))


@dataclass(frozen=True)
class Probe:
    """What was found."""

    numerics: layers.Numerics
    failed: Mapping[int, tuple[int, int]]
    """Row counts that are not enough -> the first [out, in] whose bits differed there."""
    seconds: float

    def __str__(self) -> str:
        differed = ", ".join(f"{count} ({out}x{into})" for count, (out, into) in self.failed.items())
        return (
            f"linears have {self.numerics.least_rows} to {self.numerics.most_rows} rows; "
            f"row counts that differed from {self.numerics.most_rows}: {differed or 'none'}; "
            f"probed in {self.seconds:.2f} s"
        )


def linear_shapes(shapes: Mapping[str, tuple[int, ...]]) -> set[tuple[int, int]]:
    """[out, in] of every linear of a model with tensors of these names and shapes; q, k and v are one
    linear, gate and up another."""
    found = set()
    fused: dict[tuple[str, int], dict[str, tuple[int, int]]] = {}
    for name, shape in shapes.items():
        if len(shape) < 2 or not name.endswith(".weight"):
            continue
        out_in = (shape[-2], shape[-1])
        for index, parts in enumerate(_FUSED):
            part = next((part for part in parts if name.endswith(f"{part}.weight")), None)
            if part is not None:
                fused.setdefault((name.removesuffix(f"{part}.weight"), index), {})[part] = out_in
                break
        else:
            found.add(out_in)
    for parts_found in fused.values():
        into = next(iter(parts_found.values()))[1]
        found.add((sum(out for out, _ in parts_found.values()), into))
    return found


def probe(shapes: Iterable[tuple[int, int]], dtype: torch.dtype, device: torch.device) -> Probe:
    """For the number of threads in force."""
    start = time.perf_counter()
    with torch.inference_mode():
        trials = {shape: _Trial(*shape, dtype, device) for shape in sorted(set(shapes))}
        for most in reversed(_COUNTS):
            failed: dict[int, tuple[int, int]] = {}
            for shape, trial in trials.items():
                for count in trial.differing(most):
                    failed.setdefault(count, shape)
            least = min((count for count in _COUNTS if count > max(failed, default=0)), default=most + 1)
            if least <= min(most, _CHEAP_ROWS):
                numerics = layers.Numerics(batch_invariant=True, least_rows=least, most_rows=most)
                return Probe(numerics, dict(sorted(failed.items())), time.perf_counter() - start)
    raise AssertionError("one row always agrees with itself")


class _Trial:
    """One linear, and what it gave for each row in a call of so many rows.

    The numbers are random but for this: every product is there twice, with both signs and in another place.
    The sums are zero but for their rounding, so another order of additions shows in nearly every number.
    With plain random numbers it would show in bf16 only where the last rounding flips: once in ten thousand.
    """

    def __init__(self, out: int, into: int, dtype: torch.dtype, device: torch.device) -> None:
        out = min(out, max(_MOST_ELEMENTS // into, 1))
        generator = torch.Generator().manual_seed(out + into)
        half = into // 2
        order = torch.randperm(half, generator=generator)

        def cancelling(values: torch.Tensor, sign: int) -> torch.Tensor:
            both = torch.cat((values, sign * values[:, order]), dim=1)
            return functional.pad(both, (0, into - 2 * half)).to(device=device, dtype=dtype)

        # Every row of the weight is another window of one random vector: as good, and cheap.
        vector = torch.randn(out + half, generator=generator).to(dtype)
        self._linear = layers.Linear(cancelling(vector.unfold(0, half, 1)[:out], 1))
        rows = torch.randn(_COUNTS[-1] + 1, half, generator=generator).to(dtype)
        self._x = cancelling(rows, -1)
        self._results: dict[tuple[int, int], torch.Tensor] = {}

    def differing(self, most: int) -> list[int]:
        """Counts up to `most` that disagree with it about some row, or in which a row's place matters."""
        differing = []
        for count in _COUNTS:
            if count > most:
                break
            # No row has the place in this call that it has among the `most`; there, one row is not shared.
            first = 1 if count == most else most - count
            end = min(first + count, most)
            if not torch.equal(self._call(first, count)[: end - first], self._call(0, most)[first:end]):
                differing.append(count)
        return differing

    def _call(self, first: int, count: int) -> torch.Tensor:
        key = (first, count)
        if key not in self._results:
            self._results[key] = self._linear(self._x[first : first + count].clone())
        return self._results[key]
