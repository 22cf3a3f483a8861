"""Which layers have a sliding window, from a family's rule or from a list in the configuration. No torch."""

from typing import Any

from firsttoken_runtime.model import errors, families
from firsttoken_runtime.model.families import Windows

_WINDOWED = {"full_attention": False, "sliding_attention": True}


def by_rule(
    family: families.Family, num_layers: int, *, period: int, from_layer: int, rotates: list[bool]
) -> list[bool]:
    """One entry a layer. `period`, `from_layer` and `rotates` count for the rules that ask for them."""
    layers = range(num_layers)
    match family.windows:
        case Windows.NONE:
            return [False for _ in layers]
        case Windows.ALL:
            return [True for _ in layers]
        case Windows.FROM_LAYER:
            return [layer >= from_layer for layer in layers]
        case Windows.EVEN_BELOW:
            return [layer % 2 == 0 and layer < from_layer for layer in layers]
        case Windows.PERIODIC:
            return [(layer + 1) % period != 0 for layer in layers]
        case Windows.WITHOUT_ROPE:
            return [not rotates[layer] for layer in layers]


def by_types(where: str, types: Any, num_layers: int) -> list[bool]:
    """From `layer_types`. Raises ModelError."""
    if not isinstance(types, list) or len(types) != num_layers:
        raise errors.ModelUnreadable(f"{where}: layer_types does not name the type of {num_layers} layers")
    for name in map(str, types):
        if name not in _WINDOWED:
            raise errors.Unsupported(
                f"{where}: layer type {name!r} is not built; {' and '.join(_WINDOWED)} are"
            )
    return [_WINDOWED[name] for name in types]
