"""Which flags are in force, and why: an ordered list of small rules, each with a reason. Pure.

The spec says what a user asks; the answer goes to `status.optimizations` and, sealed with a generation, into
the flags document that sidecars hand to their engines. The spec itself is never edited.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from firsttoken_api import duration, flags, hot_settings, inference_service, slo, vllm
from firsttoken_api.optimizations import Optimization
from firsttoken_api.reasons import Reason
from firsttoken_api.runtime_spec import Engine

DEFAULT = "Default"
"""What `requested` says of a flag that the spec does not list."""


@dataclass(frozen=True)
class Decision:
    """One flag as it is to be in force."""

    name: str
    requested: str
    enabled: bool
    reason: Reason
    message: str = ""
    params: tuple[tuple[str, str], ...] = ()


def decide(
    optimizations: Iterable[Optimization],
    forced_off: frozenset[str],
    engine: Engine = Engine.FIRSTTOKEN,
) -> tuple[Decision, ...]:
    """A decision for every built flag, in the order of `flags.FLAGS`."""
    asked = {each.name: each for each in optimizations}
    first = tuple(_asked(flag, asked.get(flag.name), forced_off) for flag in flags.FLAGS if flag.built)
    if engine is Engine.VLLM:
        first = tuple(_of_vllm(each) for each in first)
    return _with_needs(first)


def _asked(flag: flags.Flag, optimization: Optimization | None, forced_off: frozenset[str]) -> Decision:
    requested = optimization.mode.value if optimization else DEFAULT
    given: Mapping[str, str] = optimization.params if optimization else {}
    params = tuple(
        (parameter.name, given.get(parameter.name, parameter.default))
        for parameter in flag.parameters
        if parameter.built and not parameter.cold
    )

    def answer(enabled: bool, reason: Reason, message: str = "") -> Decision:
        return Decision(flag.name, requested, enabled, reason, message, params)

    if flag.name in forced_off:
        return answer(
            False, Reason.FORCED_OFF_BY_FLEET, "forceFlagsOff of the operator's chart names this flag"
        )
    if optimization is None:
        return answer(flag.on_by_default, Reason.DEFAULT)
    if optimization.mode is flags.FlagMode.DISABLED:
        return answer(False, Reason.USER_DISABLED)
    if optimization.mode is flags.FlagMode.FORCED:
        return answer(True, Reason.FORCED)
    return answer(
        False,
        Reason.NOT_JUDGED,
        "Gated flags stay off until a regression eval has passed; this version has none. "
        "Forced switches the flag on unjudged",
    )


def _of_vllm(decision: Decision) -> Decision:
    """What vLLM has no counterpart of is off, what it cannot be without is on, whoever asks."""
    if decision.name in vllm.ALWAYS_ON and not decision.enabled:
        message = "vLLM cannot be started without it"
        return replace(decision, enabled=True, reason=Reason.NOT_IN_ENGINE, message=message)
    if decision.name not in vllm.HAS and decision.reason is not Reason.USER_DISABLED:
        message = f"vLLM has no counterpart of {decision.name}"
        return replace(decision, enabled=False, reason=Reason.NOT_IN_ENGINE, message=message)
    return decision


def _with_needs(decisions: tuple[Decision, ...]) -> tuple[Decision, ...]:
    """A flag whose need is off is off; repeated, since a need may fall this way as well."""
    current = {decision.name: decision for decision in decisions}
    changed = True
    while changed:
        changed = False
        for decision in current.values():
            if not decision.enabled:
                continue
            missing = next(
                (
                    need
                    for need in flags.BY_NAME[decision.name].needs
                    if need in current and not current[need].enabled
                ),
                None,
            )
            if missing is not None:
                current[decision.name] = replace(
                    decision,
                    enabled=False,
                    reason=Reason.NEEDS_FLAG,
                    message=f"{decision.name} needs {missing}, which is off",
                )
                changed = True
                break
    return tuple(current[decision.name] for decision in decisions)


def cold_parameters(
    optimizations: Iterable[Optimization], engine: Engine = Engine.FIRSTTOKEN
) -> dict[str, dict[str, str]]:
    """Cold parameters that are not at their defaults, by flag and name: part of the revision, whatever the
    flag's mode, so that a hot switch stays one. With vLLM every parameter is cold."""
    is_every = engine is Engine.VLLM
    found = {each.name: _cold(flags.BY_NAME[each.name], each.params, is_every) for each in optimizations}
    return {name: found[name] for name in sorted(found) if found[name]}


def _cold(flag: flags.Flag, given: Mapping[str, str], is_every: bool) -> dict[str, str]:
    asked = {
        parameter: parameter.canonical(given[parameter.name])
        for parameter in flag.parameters
        if (parameter.cold or is_every) and parameter.name in given
    }
    return {parameter.name: value for parameter, value in asked.items() if value != parameter.default}


KNOWN_TO_EVERY_ENGINE = frozenset({"paged-kv", "continuous-batching", "chunked-prefill"})
"""Flags of the first version. A later one stands in the document only where something was asked of it: an
engine that started before this operator must not refuse a whole document for a name it does not know."""


def document(
    decisions: Iterable[Decision], spec: inference_service.InferenceServiceSpec, generation: int
) -> hot_settings.HotSettings:
    """The sealed document for the flags ConfigMap. vLLM switches nothing while it runs: what its pods were
    started with is part of their revision, and each revision has the same document."""
    return hot_settings.HotSettings(
        generation=generation,
        flags=()
        if spec.runtime.engine is Engine.VLLM
        else tuple(
            hot_settings.EffectiveFlag(name=each.name, enabled=each.enabled, params=dict(each.params))
            for each in decisions
            if each.name in KNOWN_TO_EVERY_ENGINE or each.reason is not Reason.DEFAULT
        ),
        objective=hot_settings.Objective(
            ttft_p95_s=duration.to_seconds(spec.slo.ttft_p95),
            window_s=duration.to_seconds(spec.slo.window),
            tpot_p95_s=duration.to_seconds(spec.slo.tpot_p95) if spec.slo.tpot_p95 else None,
        ),
        classes=tuple(_class(each) for each in spec.slo.classes),
        default_class=_default_class(spec.slo),
        routes=tuple(
            hot_settings.RouteSettings(
                name=each.name, request_class=each.request_class, max_tokens=each.max_tokens
            )
            for each in spec.routes
        ),
    ).sealed()


def _class(request_class: slo.RequestClass) -> hot_settings.ClassSettings:
    return hot_settings.ClassSettings(
        name=request_class.name,
        priority=request_class.priority,
        ttft_p99_s=duration.to_seconds(request_class.ttft_p99),
        max_tokens=request_class.max_tokens,
    )


def _default_class(objective: slo.SloSpec) -> str:
    """What requests without a class belong to: the first class where the spec does not say."""
    first = objective.classes[0].name if objective.classes else ""
    return objective.default_class or first


@dataclass(frozen=True)
class Known:
    """A flags document that exists: its generation and content hash (empty if it cannot be read)."""

    generation: int
    hash: str


def next_generation(
    content_hash: str, documents: Iterable[Known], at_pods: Iterable[int], before: int
) -> int:
    """The generation for this content: the newest document's if it says the same, else one more.

    `at_pods`: generations that pods name: a document deleted by hand must not bring back a number that
    sidecars have already applied with other content. `before`: what the status says. One that is above all
    others was promised and not written yet (paused, refused): it is kept, or each look would promise one more
    and each of these promises would be news.
    """
    known = tuple(documents)
    newest = max((each.generation for each in known), default=0)
    highest = max(newest, *at_pods, 0)
    if not known and highest == 0:
        return max(before, 1)
    if newest == highest and any(each.generation == newest and each.hash == content_hash for each in known):
        return newest
    return max(highest + 1, before)
