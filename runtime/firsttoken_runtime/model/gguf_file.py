"""Reading a .gguf file: metadata as plain values, weights one tensor at a time.

Everything that knows the file format is behind this module; the `gguf` library maps the file into
memory, so that only what is touched is read.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

from firsttoken_runtime.model import errors

_ELEMENTS_AT_ONCE = 4_000_000
"""Dequantizing makes several temporary copies; this keeps them at some tens of MiB."""


class Reader(gguf.GGUFReader):
    """The library's reader over a plain array. Its own `memmap` spends most of opening a file in
    bookkeeping for every one of some hundred thousand slices; the mapped bytes are the same."""

    @property  # type: ignore[override]  # a plain attribute in the library
    def data(self) -> NDArray[np.uint8]:
        return self._mapped

    @data.setter
    def data(self, mapped: NDArray[np.uint8]) -> None:
        self._mapped = np.asarray(mapped)


@dataclass(frozen=True)
class File:
    """An open .gguf file."""

    path: Path
    reader: Any

    @cached_property
    def metadata(self) -> dict[str, Any]:
        """Every key with its value as Python scalars, strings and lists."""
        return {name: field.contents() for name, field in self.reader.fields.items()}

    def get(self, key: str, default: Any = None) -> Any:
        """The metadata value of `key`: a scalar, a string or a list."""
        field = self.reader.fields.get(key)
        return default if field is None else field.contents()

    def tensor_shapes(self) -> dict[str, tuple[int, ...]]:
        """Name to shape in PyTorch order (rows first)."""
        return {tensor.name: _shape(tensor) for tensor in self.reader.tensors}

    def values(self, name: str) -> tuple[float, ...]:
        """All numbers of one small tensor."""
        tensor = next(tensor for tensor in self.reader.tensors if tensor.name == name)
        return tuple(_dequantize(tensor).reshape(-1).tolist())

    def tensors(self) -> Iterator[tuple[str, NDArray[np.float32]]]:
        """Each tensor dequantized to fp32, in file order, one in memory at a time. Raises Unsupported."""
        for tensor in self.reader.tensors:
            yield tensor.name, _dequantize(tensor)


def _shape(tensor: Any) -> tuple[int, ...]:
    return tuple(int(size) for size in reversed(tensor.shape))


def _dequantize(tensor: Any) -> NDArray[np.float32]:
    """Some rows at a time, as one long row: the library would otherwise loop over 16 rows at a time."""
    shape = _shape(tensor)
    rows = np.atleast_2d(tensor.data)
    wide = np.empty((len(rows), tensor.n_elements // len(rows)), dtype=np.float32)
    rows_at_once = max(1, _ELEMENTS_AT_ONCE // wide.shape[1])
    for first in range(0, len(rows), rows_at_once):
        part = slice(first, first + rows_at_once)
        try:
            flat = gguf.quants.dequantize(rows[part].reshape(1, -1), tensor.tensor_type)
        except NotImplementedError as error:
            raise errors.Unsupported(f"{tensor.name}: {error}") from error
        wide[part] = flat.reshape(-1, wide.shape[1])
    return wide.reshape(shape)


def open_file(path: Path) -> File:
    """Raises ModelNotFound or ModelUnreadable."""
    if not path.is_file():
        raise errors.ModelNotFound(f"no such model file: {path}")
    try:
        return File(path, Reader(path, "r"))
    except (ValueError, IndexError, KeyError, OSError) as error:
        raise errors.ModelUnreadable(f"{path} is not a readable .gguf file: {error}") from error
