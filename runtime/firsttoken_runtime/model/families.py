"""The table that drives the one decoder: what each model family does differently.

A family is named as in `config.json` (`model_type`) and in GGUF metadata (`general.architecture`).
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Family:
    """What one family needs from the decoder beyond the plain Llama block."""

    model_type: str
    """`model_type` of config.json."""
    gguf_architecture: str
    """`general.architecture` of a .gguf file."""
    qkv_bias: bool = False
    query_key_norm: bool = False
    gguf_permutes_query_key: bool = False
    """The .gguf converter reorders the rows of Q and K for another RoPE layout; we undo it."""


FAMILIES: tuple[Family, ...] = (
    Family("llama", "llama", gguf_permutes_query_key=True),
    Family("mistral", "llama", gguf_permutes_query_key=True),
    Family("qwen2", "qwen2", qkv_bias=True),
    Family("qwen3", "qwen3", query_key_norm=True),
)

SUPPORTED_TEXT = ", ".join(family.model_type for family in FAMILIES)


def by_model_type(model_type: str) -> Family | None:
    return next((family for family in FAMILIES if family.model_type == model_type), None)


def by_gguf_architecture(architecture: str) -> Family | None:
    return next((family for family in FAMILIES if family.gguf_architecture == architecture), None)
