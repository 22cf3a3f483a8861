"""What of an InferenceService the engine vLLM has, in one place: which flags, as which start arguments, and
what is refused, because a field must never be a silent no-op.

Written for vLLM 0.32. The operator renders `arguments`; the API server and `firsttoken validate` check
`RULES`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from firsttoken_api import cel, flags
from firsttoken_api.flags import FlagMode

if TYPE_CHECKING:
    from firsttoken_api.inference_service import InferenceServiceSpec

NAME = "vllm"

ALWAYS_ON = ("paged-kv", "continuous-batching")
"""vLLM has no way to be without them."""


@dataclass(frozen=True)
class Switch:
    """Start arguments that switch a flag."""

    on: tuple[str, ...]
    off: tuple[str, ...] = ()


SWITCHES: dict[str, Switch] = {
    "chunked-prefill": Switch(("--enable-chunked-prefill",), ("--no-enable-chunked-prefill",)),
    "prefix-cache": Switch(("--enable-prefix-caching",), ("--no-enable-prefix-caching",)),
    "priority": Switch(("--scheduling-policy=priority",), ("--scheduling-policy=fcfs",)),
    # Those with dynamic scales: a fixed scale of 1.0 ruins some models.
    "kv-int8": Switch(("--kv-cache-dtype=int8_per_token_head",)),
    "kv-fp8": Switch(("--kv-cache-dtype=fp8_per_token_head",)),
}
PARAMETERS: dict[tuple[str, str], str] = {
    ("paged-kv", "blockSize"): "--block-size={}",
    ("paged-kv", "maxBlocks"): "--num-gpu-blocks-override={}",
    ("chunked-prefill", "chunkTokens"): "--long-prefill-token-threshold={}",
}
"""Arguments that carry parameters which are not at our default; `{}` stands for the value."""
LAYERS_PARAMETER = "fullPrecisionLayers"
"""Of kv-int8 and kv-fp8: `--kv-cache-dtype-skip-layers` names each layer, so the model must be known."""

HAS = (*ALWAYS_ON, *SWITCHES)
RENDERED_ARGUMENTS = (
    "--model",
    "--served-model-name",
    "--gpu-memory-utilization",
    "--kv-cache-memory-bytes",
    "--num-gpu-blocks-override",
    "--long-prefill-token-threshold",
    "--kv-cache-dtype",
    "--kv-cache-dtype-skip-layers",
    "--scheduling-policy",
    "--enable-chunked-prefill",
    "--no-enable-chunked-prefill",
    "--enable-prefix-caching",
    "--no-enable-prefix-caching",
    "--uds",
)
"""Of those that our engine does not have too."""


def arguments(
    enabled: Mapping[str, bool], parameters: Mapping[str, Mapping[str, str]], layers: int
) -> list[str]:
    """Start arguments of these flags. `parameters`: those that are not at their defaults; `layers`: of the
    model."""
    found: list[str] = []
    for name, switch in SWITCHES.items():
        found += switch.on if enabled.get(name) else switch.off
        if enabled.get(name) and name in ("kv-int8", "kv-fp8"):
            default = flags.FULL_PRECISION_LAYERS.default
            kept = min(int(parameters.get(name, {}).get(LAYERS_PARAMETER, default)), layers)
            if kept:
                found += ["--kv-cache-dtype-skip-layers", *map(str, range(layers - kept, layers))]
    for (flag, name), form in PARAMETERS.items():
        is_on = flag in ALWAYS_ON or enabled.get(flag, False)
        if is_on and name in parameters.get(flag, {}):
            found.append(form.format(parameters[flag][name]))
    return found


@dataclass(frozen=True)
class EngineRule:
    """One thing that a service on vLLM must not ask for, judged twice."""

    rule: cel.Rule
    holds: "Callable[[InferenceServiceSpec], bool]"
    """Asked only where the engine is vLLM."""


def _rule(
    expression: str, message: str, field_path: str, holds: "Callable[[InferenceServiceSpec], bool]"
) -> EngineRule:
    whole = f"self.runtime.engine != '{NAME}' || {expression}"
    return EngineRule(cel.Rule(whole, f"where spec.runtime.engine is vllm, {message}", field_path), holds)


RULES: tuple[EngineRule, ...] = (
    _rule(
        "(has(self.runtime.image) && self.runtime.image != '')",
        "spec.runtime.image must name an image with vLLM",
        ".runtime.image",
        lambda spec: bool(spec.runtime.image),
    ),
    _rule(
        "!self.model.source.endsWith('.gguf')",
        "spec.model.source must be a folder of safetensors",
        ".model.source",
        lambda spec: not spec.model.source.endswith(".gguf"),
    ),
    _rule(
        f"!has(self.optimizations) || self.optimizations.all(o, o.mode == 'Disabled'"
        f" || o.name in {cel.quoted_list(HAS)})",
        f"spec.optimizations must not ask for a flag that vLLM does not have; it has {', '.join(HAS)}",
        ".optimizations",
        lambda spec: all(o.mode is FlagMode.DISABLED or o.name in HAS for o in spec.optimizations),
    ),
    _rule(
        f"!has(self.optimizations) || self.optimizations.all(o, o.mode == 'Forced'"
        f" || !(o.name in {cel.quoted_list(ALWAYS_ON)}))",
        f"spec.optimizations must leave {' and '.join(ALWAYS_ON)} on, which vLLM cannot be without",
        ".optimizations",
        lambda spec: all(o.mode is FlagMode.FORCED or o.name not in ALWAYS_ON for o in spec.optimizations),
    ),
    _rule(
        "!has(self.optimizations) || self.optimizations.all(o, o.name != 'prefix-cache'"
        " || !has(o.params) || size(o.params) == 0)",
        "spec.optimizations[].params of prefix-cache must be empty, vLLM has none of them",
        ".optimizations",
        lambda spec: all(o.name != "prefix-cache" or not o.params for o in spec.optimizations),
    ),
    _rule(
        "!has(self.runtime.prefillPriority) || self.runtime.prefillPriority == 'normal'",
        "spec.runtime.prefillPriority must be normal, vLLM has no other",
        ".runtime.prefillPriority",
        lambda spec: spec.runtime.prefill_priority.value == "normal",
    ),
    _rule(
        "!has(self.runtime.maxPrefillBatch) || self.runtime.maxPrefillBatch == 8",
        "spec.runtime.maxPrefillBatch must be absent, vLLM has no such limit",
        ".runtime.maxPrefillBatch",
        lambda spec: spec.runtime.max_prefill_batch == 8,
    ),
    _rule(
        "!has(self.cachePins)",
        "spec.cachePins must be absent, vLLM pins nothing",
        ".cachePins",
        lambda spec: spec.cache_pins is None,
    ),
)


def check(spec: "InferenceServiceSpec") -> None:
    """The Python side of every rule. Raises ValueError."""
    if spec.runtime.engine.value == NAME:
        for each in RULES:
            each.rule.check(each.holds(spec))
