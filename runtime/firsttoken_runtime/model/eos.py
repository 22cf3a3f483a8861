"""The token ids that end an answer, from every place a model may name them. No torch."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from firsttoken_runtime.model import checkpoint

_GGUF_KEYS = ("eos_token_id", "eot_token_id", "eom_token_id", "eos_token_ids")
"""End of text, of turn, of message."""


def read(source: checkpoint.Checkpoint) -> tuple[int, ...]:
    """Sorted ids; empty when the model names none. Raises `errors.ModelError`."""
    if source.gguf is not None:
        return union(source.gguf.get(f"tokenizer.ggml.{key}") for key in _GGUF_KEYS)
    files = ("generation_config.json", "config.json")
    return union(_document(source.path / file).get("eos_token_id") for file in files)


def union(values: Iterable[int | list[int] | None]) -> tuple[int, ...]:
    """Sorted ids of values that are an id, a list of ids, or missing."""
    ids: set[int] = set()
    for value in values:
        if isinstance(value, list):
            ids.update(int(token_id) for token_id in value)
        elif value is not None:
            ids.add(int(value))
    return tuple(sorted(ids))


def _document(file: Path) -> dict[str, Any]:
    return checkpoint.read_json(file) if file.is_file() else {}
