"""A model on disk, opened once: a .gguf file or a folder of safetensors."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from firsttoken_runtime.model import errors, gguf_file


@dataclass(frozen=True)
class Checkpoint:
    """Where the configuration, the EOS ids and the weights are read from."""

    path: Path
    gguf: gguf_file.File | None
    """None: `path` is a folder."""


def open_checkpoint(path: Path) -> Checkpoint:
    """Raises `errors.ModelError`."""
    if path.suffix == ".gguf":
        return Checkpoint(path, gguf_file.open_file(path))
    if not path.is_dir():
        raise errors.ModelNotFound(f"no such model: {path} is neither a folder nor a .gguf file")
    return Checkpoint(path, None)


def read_json(file: Path) -> dict[str, Any]:
    """The object in a JSON file of a checkpoint. Raises ModelUnreadable."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise errors.ModelUnreadable(f"{file} is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise errors.ModelUnreadable(f"{file} is not a JSON object")
    return content
