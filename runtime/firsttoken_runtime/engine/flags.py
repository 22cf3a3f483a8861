"""The optimization flags as the engine understands them: a hot settings document -> switches. Pure.

Classes and the TPOT objective come with the flags, because all of them change at the same step.
"""

from dataclasses import dataclass, replace
from typing import Literal

from firsttoken_api import flags as api_flags
from firsttoken_api import hot_settings
from firsttoken_runtime.scheduler import classes as request_classes

KvType = Literal["full", "int8", "fp8"]
KV_TYPES: dict[str, KvType] = {"kv-int8": "int8", "kv-fp8": "fp8"}
"""Flag -> what it makes of the KV."""


@dataclass(frozen=True)
class PrefixCache:
    """Blocks stay findable after their sequences."""

    max_fraction: float = 0.5
    """Largest share of the pool that blocks nobody holds may keep."""
    protected_fraction: float = 0.8
    """Largest share of those that is protected because it was hit again."""


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
    prefix_cache: PrefixCache | None = None
    kv_type: KvType = "full"
    full_precision_layers: int = 0
    """The last so many layers of quantized blocks are in the compute type; 0 where nothing is quantized."""
    affinity_max_wait_s: float | None = None
    """None: prefix-affinity is off."""
    kv_tiering: bool = False
    generation: int = 0
    """Of the document; 0 = what the engine started with."""


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
    return replace(
        from_settings(settings.flags),
        classes=table,
        tpot_p95_s=settings.objective.tpot_p95_s,
        generation=settings.generation,
    )


def from_settings(settings: tuple[hot_settings.EffectiveFlag, ...]) -> InForce:
    """Flags that are not listed have their default. Raises BadFlags."""
    asked = {flag.name: flag for flag in settings}
    on = _switched_on(asked)
    given = {
        name: _parameters(api_flags.BY_NAME[name], flag.params) for name, flag in asked.items() if name in on
    }

    def parameter(flag: str, name: str) -> float:
        if (value := given.get(flag, {}).get(name)) is not None:
            return value
        return default(flag, name)

    prefix_cache = None
    if "prefix-cache" in on:
        prefix_cache = PrefixCache(
            max_fraction=parameter("prefix-cache", "maxFraction"),
            protected_fraction=parameter("prefix-cache", "protectedFraction"),
        )
    kv_flag = next((name for name in KV_TYPES if name in on), None)
    return InForce(
        enabled=tuple(name for name in api_flags.BUILT if name in on),
        paged_kv="paged-kv" in on,
        continuous_batching="continuous-batching" in on,
        chunk_tokens=int(parameter("chunked-prefill", "chunkTokens")) if "chunked-prefill" in on else None,
        priority="priority" in on,
        length_control="length-control" in on,
        prefix_cache=prefix_cache,
        kv_type="full" if kv_flag is None else KV_TYPES[kv_flag],
        full_precision_layers=0 if kv_flag is None else int(parameter(kv_flag, "fullPrecisionLayers")),
        affinity_max_wait_s=parameter("prefix-affinity", "maxWait") if "prefix-affinity" in on else None,
        kv_tiering="kv-tiering" in on,
    )


def check_model(in_force: InForce, num_layers: int) -> None:
    """Raises BadFlags where a model has no layer left that a KV type could make smaller."""
    if in_force.kv_type != "full" and in_force.full_precision_layers >= num_layers:
        raise BadFlags(
            f"parameter 'fullPrecisionLayers' of flag 'kv-{in_force.kv_type}' is "
            f"{in_force.full_precision_layers}, the model has {num_layers} layers: none would be quantized"
        )


def default(flag: str, parameter: str) -> float:
    """Of a parameter the engine takes."""
    found = next(one for one in api_flags.BY_NAME[flag].parameters if one.name == parameter)
    return found.number(found.default)


def _switched_on(asked: dict[str, hot_settings.EffectiveFlag]) -> set[str]:
    """Names of the flags in force. Raises BadFlags."""
    on = {name for name in api_flags.BUILT if api_flags.BY_NAME[name].on_by_default}
    for name, flag in asked.items():
        if not flag.enabled:
            on.discard(name)
            continue
        if name not in api_flags.BUILT:
            raise BadFlags(f"flag {name!r} is not built; built are {', '.join(api_flags.BUILT)}")
        on.add(name)
    # In the table's order a flag comes after what it needs, so a default that gives way takes along
    # the defaults that need it.
    for row in api_flags.FLAGS:
        for needed in row.needs if row.name in on else ():
            if needed not in on:
                if row.name in asked:
                    raise BadFlags(f"rule {api_flags.needs_rule(row.name, needed)}: {needed} is off")
                on.discard(row.name)
        for excluded in row.excludes if row.name in on else ():
            if excluded in on:
                rule = api_flags.excludes_rule(row.name, excluded)
                raise BadFlags(f"rule {rule}: both are on; switch one of them off")
    return on


def _parameters(flag: api_flags.Flag, given: dict[str, str]) -> dict[str, float]:
    known = {one.name: one for one in flag.parameters if one.built and not one.cold}
    values = {}
    for name, text in given.items():
        parameter = known.get(name)
        if parameter is None:
            raise BadFlags(f"parameter {name!r} of flag {flag.name!r} cannot be set while serving")
        try:
            values[name] = parameter.number(text)
        except ValueError as error:
            raise BadFlags(f"parameter {name!r} of flag {flag.name!r}: {error}") from error
    return values
