"""The ways this machine may compute an op: PyTorch's operations, or a kernel of an instruction set."""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from firsttoken_kernels import native

OPERATIONS = "operations"
COMPILED = tuple(
    name for name in native.LANES if native.instruction_set() == "avx512" or name == native.instruction_set()
)
"""A machine with AVX-512 runs the kernels for AVX2 too."""
ALL = (OPERATIONS, *COMPILED)


@contextmanager
def taken(way: str) -> Iterator[None]:
    library = None if way == OPERATIONS else ctypes.CDLL(str(native.FOLDER / f"{way}.so"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "instruction_set", lambda: "" if library is None else way)
        patch.setattr(native, "library", lambda: library)
        yield
