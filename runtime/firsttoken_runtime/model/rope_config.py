"""How queries and keys are rotated, as a configuration says it. No torch.

The variants and their parameters are those of transformers' `rope_parameters` (before version 5:
`rope_scaling`). `dynamic` changes nothing up to the trained length, and no longer context is served:
frequencies that grow with each sequence would make cached keys depend on what came after them.
"""

import math
from dataclasses import dataclass
from typing import Any

from firsttoken_runtime.model import config_values as values
from firsttoken_runtime.model import errors

_KEYS: dict[str, frozenset[str]] = {
    "default": frozenset(),
    "linear": frozenset({"factor"}),
    "dynamic": frozenset({"factor"}),
    "llama3": frozenset(
        {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"}
    ),
    "yarn": frozenset(
        {
            "factor",
            "original_max_position_embeddings",
            "attention_factor",
            "beta_fast",
            "beta_slow",
            "mscale",
            "mscale_all_dim",
            "truncate",
            "finetuned",  # what the published YaRN checkpoints say of themselves; changes nothing
        }
    ),
}
_OF_EVERY_KIND = {"rope_type", "type", "rope_theta", "partial_rotary_factor"}


@dataclass(frozen=True)
class Rope:
    """One set of frequencies. Which fields count depends on `kind`; see `rope_frequencies.py`."""

    theta: float
    kind: str = "default"
    """default, linear, llama3 or yarn."""
    factor: float = 1.0
    original_length: int = 0
    """Tokens of context before the extension."""
    low_frequency_factor: float = 1.0
    high_frequency_factor: float = 4.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True
    attention_factor: float = 1.0
    """Cosine and sine are multiplied by it."""
    reach: int = 0
    """Context in tokens that the extension is made for; 0: no longer than the model says anyway."""
    divisors: tuple[float, ...] = ()
    """One a pair, from a .gguf file, which stores Llama 3's scaling as a tensor; empty: none."""


def from_parameters(where: str, given: dict[str, Any], theta: Any, document: dict[str, Any]) -> Rope:
    """`given` is one flat set of parameters; `theta` counts where it names none."""
    kind = str(given.get("rope_type", given.get("type", "default")))
    if kind not in _KEYS:
        raise errors.Unsupported(f"{where}: RoPE scaling {kind!r} is not built; built: {', '.join(_KEYS)}")
    if others := sorted(given.keys() - _OF_EVERY_KIND - _KEYS[kind]):
        raise errors.Unsupported(f"{where}: {others[0]!r} with RoPE of type {kind!r} is not built")
    if given.get("partial_rotary_factor", document.get("partial_rotary_factor")) not in (None, 1):
        raise errors.Unsupported(f"{where}: RoPE over a part of each head is not built")
    theta = values.positive(where, "rope_theta", given.get("rope_theta", theta))

    def optional(key: str, default: float) -> float:
        found = given.get(key)
        return default if found is None else values.positive(where, key, found)

    if kind == "default":
        return Rope(theta)
    factor = values.positive(where, "factor", given.get("factor"))
    if kind == "dynamic":
        return Rope(theta)
    if kind == "linear":
        return Rope(theta, kind, factor)
    key = "original_max_position_embeddings"
    named = document.get(key) or given.get(key)
    original_length = values.size(where, key, named or document.get("max_position_embeddings"))
    if kind == "llama3":
        return Rope(
            theta,
            kind,
            factor,
            original_length,
            low_frequency_factor=values.positive(where, "low_freq_factor", given.get("low_freq_factor")),
            high_frequency_factor=values.positive(where, "high_freq_factor", given.get("high_freq_factor")),
        )
    truncate = given.get("truncate", True)
    if not isinstance(truncate, bool):
        raise errors.ModelUnreadable(f"{where}: truncate is {truncate!r}, neither true nor false")
    return yarn(
        theta,
        factor,
        original_length,
        attention_factor=optional("attention_factor", 0.0),
        mscale=optional("mscale", 0.0),
        mscale_all_dim=optional("mscale_all_dim", 0.0),
        beta_fast=optional("beta_fast", 32.0),
        beta_slow=optional("beta_slow", 1.0),
        truncate=truncate,
        reach=int(factor * original_length) if named else 0,
    )


def yarn(
    theta: float,
    factor: float,
    original_length: int,
    *,
    attention_factor: float = 0.0,
    mscale: float = 0.0,
    mscale_all_dim: float = 0.0,
    beta_fast: float = 32.0,
    beta_slow: float = 1.0,
    truncate: bool = True,
    reach: int = 0,
) -> Rope:
    """YaRN (arXiv 2309.00071); a scale or an attention factor of 0 stands for what the paper gives."""
    if not attention_factor:
        attention_factor = _attention_factor(factor, 1.0)
        if mscale and mscale_all_dim:
            attention_factor = _attention_factor(factor, mscale) / _attention_factor(factor, mscale_all_dim)
    return Rope(
        theta,
        "yarn",
        factor,
        original_length,
        beta_fast=beta_fast,
        beta_slow=beta_slow,
        truncate=truncate,
        attention_factor=attention_factor,
        reach=reach,
    )


def _attention_factor(factor: float, scale: float) -> float:
    return 1.0 if factor <= 1 else 0.1 * scale * math.log(factor) + 1.0
