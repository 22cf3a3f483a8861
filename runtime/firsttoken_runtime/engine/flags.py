"""The optimization flags as the engine understands them: a hot settings document -> switches. Pure.

Classes and the TPOT objective come with the flags, because all of them change at the same step.
"""

from dataclasses import dataclass, replace

from firsttoken_api import flags as api_flags
from firsttoken_api import hot_settings
from firsttoken_runtime.scheduler import classes as request_classes


@dataclass(frozen=True)
class InForce:
    """The switches of one flag set, and what else changes while serving."""

    enabled: tuple[str, ...]
    paged_kv: bool
    continuous_batching: bool
    chunk_tokens: int | None
    """None: chunked-prefill is off."""
    priority: bool = False
    length_control: bool = False
    classes: request_classes.ClassTable = request_classes.ONE_CLASS
    tpot_p95_s: float | None = None


class BadFlags(ValueError):  # noqa: N818
    """The document asks for something this engine cannot do; the message names the flag or parameter."""


def defaults() -> InForce:
    return from_settings(())


def from_hot_settings(settings: hot_settings.HotSettings) -> InForce:
    """Everything of a document. Raises BadFlags."""
    table = request_classes.ClassTable(
        classes=tuple(
            request_classes.RequestClass(one.name, one.priority, one.max_tokens) for one in settings.classes
        ),
        default=settings.default_class,
    )
    return replace(from_settings(settings.flags), classes=table, tpot_p95_s=settings.objective.tpot_p95_s)


def from_settings(settings: tuple[hot_settings.EffectiveFlag, ...]) -> InForce:
    """Flags that are not listed have their default. Raises BadFlags."""
    asked = {flag.name: flag for flag in settings}
    on = {name for name in api_flags.BUILT if api_flags.BY_NAME[name].on_by_default}
    for name, flag in asked.items():
        if not flag.enabled:
            on.discard(name)
            continue
        if name not in api_flags.BUILT:
            raise BadFlags(f"flag {name!r} is not built; built are {', '.join(api_flags.BUILT)}")
        on.add(name)
    for name in sorted(on):
        for needed in api_flags.BY_NAME[name].needs:
            if needed not in on:
                if name in asked:
                    raise BadFlags(f"flag {name!r} needs {needed!r}, which is off")
                on.discard(name)  # a default gives way to what was asked for
    params = {
        name: _parameters(api_flags.BY_NAME[name], flag.params) for name, flag in asked.items() if name in on
    }
    chunk = params.get("chunked-prefill", {}).get("chunkTokens", _default("chunked-prefill", "chunkTokens"))
    return InForce(
        enabled=tuple(name for name in api_flags.BUILT if name in on),
        paged_kv="paged-kv" in on,
        continuous_batching="continuous-batching" in on,
        chunk_tokens=chunk if "chunked-prefill" in on else None,
        priority="priority" in on,
        length_control="length-control" in on,
    )


def _default(flag: str, parameter: str) -> int:
    found = next(p for p in api_flags.BY_NAME[flag].parameters if p.name == parameter)
    return int(found.default)


def _parameters(flag: api_flags.Flag, given: dict[str, str]) -> dict[str, int]:
    known = {one.name: one for one in flag.parameters if one.built and not one.cold}
    values = {}
    for name, text in given.items():
        parameter = known.get(name)
        if parameter is None:
            raise BadFlags(f"parameter {name!r} of flag {flag.name!r} cannot be set while serving")
        if not text.isdecimal():
            raise BadFlags(f"parameter {name!r} of flag {flag.name!r} is {text!r}, not a whole number")
        value = int(text)
        low, high = parameter.minimum, parameter.maximum
        if (low is not None and value < low) or (high is not None and value > high):
            raise BadFlags(f"parameter {name!r} of flag {flag.name!r} is {value}, allowed is {low} to {high}")
        values[name] = value
    return values
