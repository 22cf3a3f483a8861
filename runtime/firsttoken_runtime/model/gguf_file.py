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
        return {tensor.name: tuple(int(n) for n in reversed(tensor.shape)) for tensor in self.reader.tensors}

    def tensors(self) -> Iterator[tuple[str, NDArray[np.float32]]]:
        """Each tensor dequantized to fp32, in file order, one in memory at a time."""
        for tensor in self.reader.tensors:
            wide = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
            shape = tuple(int(n) for n in reversed(tensor.shape))
            yield tensor.name, np.array(wide, dtype=np.float32).reshape(shape)


def open_file(path: Path) -> File:
    """Raises ModelNotFound or ModelUnreadable."""
    if not path.is_file():
        raise errors.ModelNotFound(f"no such model file: {path}")
    try:
        return File(path, gguf.GGUFReader(path, "r"))
    except (ValueError, IndexError, KeyError, OSError) as error:
        raise errors.ModelUnreadable(f"{path} is not a readable .gguf file: {error}") from error
