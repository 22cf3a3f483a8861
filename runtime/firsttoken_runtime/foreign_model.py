"""Sizes of a model that another engine serves, read from its folder whatever its architecture is. No torch.

Shapes come from the keys of `config.json` that nearly all architectures share; what is counted is what the
headers of the safetensors files say. So a pre-quantized checkpoint has the bytes that it has, and weights in
32 bit count with the 16 that they are served in.
"""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from firsttoken_runtime.model import checkpoint, errors
from firsttoken_runtime.model import config_values as values

LARGEST_HEADER_BYTES = 100_000_000
"""The format's own limit."""
FLOAT_BYTES = {"F64": 2, "F32": 2, "F16": 2, "BF16": 2}
OTHER_BYTES = {"I64": 8, "U64": 8, "I32": 4, "U32": 4, "I16": 2, "U16": 2}
"""Types that are not here take one byte."""


@dataclass(frozen=True)
class Sizes:
    """What the resolver reports of it."""

    architecture: str
    num_parameters: int
    weight_bytes: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    hidden_size: int
    vocabulary_size: int
    trained_length: int


def read(folder: Path) -> Sizes:
    """Raises `errors.ModelError`."""
    file = folder / "config.json"
    if not folder.is_dir() or not file.is_file():
        raise errors.ModelNotFound(f"{folder} is not a folder with a config.json")
    whole = checkpoint.read_json(file)
    part = whole.get("text_config")
    document = part if isinstance(part, dict) else whole

    def size(key: str, default: Any = None) -> int:
        found = document.get(key)
        return values.size(str(file), key, default if found is None else found)

    heads, hidden = size("num_attention_heads"), size("hidden_size")
    parameters, weight_bytes = _weights(folder)
    names = whole.get("architectures")
    named = names[0] if isinstance(names, list) and names else whole.get("model_type", "")
    return Sizes(
        architecture=str(named)[:256],
        num_parameters=parameters,
        weight_bytes=weight_bytes,
        num_layers=size("num_hidden_layers"),
        num_heads=heads,
        num_kv_heads=size("num_key_value_heads", heads),
        head_dim=size("head_dim", max(1, hidden // heads)),
        hidden_size=hidden,
        vocabulary_size=size("vocab_size"),
        trained_length=size("max_position_embeddings"),
    )


def _weights(folder: Path) -> tuple[int, int]:
    """Elements and served bytes of every tensor."""
    elements = served = 0
    for file in sorted(folder.glob("*.safetensors")):
        for name, tensor in _header(file).items():
            if name == "__metadata__":
                continue
            try:
                count = math.prod(int(each) for each in tensor["shape"])
                kind = str(tensor["dtype"])
            except (KeyError, TypeError, ValueError) as error:
                raise errors.ModelUnreadable(f"{file}: {name} has no shape and type") from error
            elements += count
            served += count * (FLOAT_BYTES.get(kind) or OTHER_BYTES.get(kind, 1))
    return elements, served


def _header(file: Path) -> dict[str, Any]:
    """Eight bytes of length, then JSON."""
    with file.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        content = stream.read(length) if 2 <= length <= LARGEST_HEADER_BYTES else b""
    try:
        found = json.loads(content)
    except ValueError as error:
        raise errors.ModelUnreadable(f"{file} is not a safetensors file") from error
    if not isinstance(found, dict):
        raise errors.ModelUnreadable(f"{file} is not a safetensors file")
    return found
