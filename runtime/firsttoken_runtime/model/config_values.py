"""Single values of a configuration, checked; errors name the file and the key. No torch."""

import math
from typing import Any

from firsttoken_runtime.model import errors, families

ACTIVATIONS = ("silu", "gelu_pytorch_tanh")


def size(where: str, key: str, value: Any) -> int:
    found = number(where, key, value)
    if found < 1 or found != int(found):
        raise errors.ModelUnreadable(f"{where}: {key} is {value}, not a whole number above 0")
    return int(found)


def number(where: str, key: str, value: Any) -> float:
    if value is None:
        raise errors.ModelUnreadable(f"{where} lacks {key!r}")
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise errors.ModelUnreadable(f"{where}: {key} is {value!r}, not a number")
    return value


def positive(where: str, key: str, value: Any) -> float:
    found = number(where, key, value)
    if found <= 0:
        raise errors.ModelUnreadable(f"{where}: {key} is {value}, not above 0")
    return found


def activation(where: str, name: Any) -> str:
    if name not in ACTIVATIONS:
        raise errors.Unsupported(
            f"{where}: activation {name!r} is not built; {' and '.join(ACTIVATIONS)} are"
        )
    return str(name)


def unsupported_architecture(architecture_name: str) -> errors.Unsupported:
    return errors.Unsupported(
        f"architecture {architecture_name!r} is not supported; supported: {families.SUPPORTED_TEXT} "
        "(SmolLM2, Llama 2 and 3 are of family llama)"
    )
