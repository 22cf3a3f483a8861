"""Every tensor a decoder needs, by the names of transformers' checkpoints without the `model.` prefix."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from firsttoken_runtime.model.architecture import ModelConfig

Shapes = dict[str, tuple[int, ...]]


def expected(config: ModelConfig) -> Shapes:
    """Name to shape."""
    hidden = config.hidden_size
    found: Shapes = {
        "embed_tokens.weight": (config.vocabulary_size, hidden),
        "norm.weight": (hidden,),
    }
    if not config.tied_embeddings:
        found["lm_head.weight"] = (config.vocabulary_size, hidden)
    for index, layer in enumerate(config.layers):
        part = _attention(config) | _norms(config)
        part |= _experts(config) if layer.has_experts else _mlp(config, "mlp.", config.intermediate_size)
        found |= {f"layers.{index}.{name}": shape for name, shape in part.items()}
    return found


def _attention(config: ModelConfig) -> Shapes:
    hidden, queries = config.hidden_size, config.num_heads * config.head_dim
    kv = config.num_kv_heads * config.head_dim
    found: Shapes = {f"self_attn.{name}_proj.weight": (n, hidden) for name, n in _qkv(queries, kv)}
    found["self_attn.o_proj.weight"] = (hidden, queries)
    if config.qkv_bias:
        found |= {f"self_attn.{name}_proj.bias": (n,) for name, n in _qkv(queries, kv)}
    if config.output_bias:
        found["self_attn.o_proj.bias"] = (hidden,)
    if config.family.query_key_norm:
        found |= {f"self_attn.{name}_norm.weight": (config.head_dim,) for name in "qk"}
    return found


def _qkv(queries: int, kv: int) -> tuple[tuple[str, int], ...]:
    return ("q", queries), ("k", kv), ("v", kv)


def _norms(config: ModelConfig) -> Shapes:
    names = ["input", "post_attention"]
    if config.family.sandwich_norms:
        names += ["pre_feedforward", "post_feedforward"]
    return {f"{name}_layernorm.weight": (config.hidden_size,) for name in names}


def _mlp(config: ModelConfig, prefix: str, inner: int) -> Shapes:
    hidden = config.hidden_size
    found: Shapes = {
        f"{prefix}gate_proj.weight": (inner, hidden),
        f"{prefix}up_proj.weight": (inner, hidden),
        f"{prefix}down_proj.weight": (hidden, inner),
    }
    if config.mlp_bias:
        found |= {name.replace(".weight", ".bias"): shape[:1] for name, shape in found.items()}
    return found


def _experts(config: ModelConfig) -> Shapes:
    experts = config.experts
    assert experts is not None
    found: Shapes = {"mlp.gate.weight": (experts.count, config.hidden_size)}
    for index in range(experts.count):
        found |= _mlp(config, f"mlp.experts.{index}.", experts.intermediate_size)
    if experts.shared_intermediate_size is not None:
        found |= _mlp(config, "mlp.shared_expert.", experts.shared_intermediate_size)
        found["mlp.shared_expert_gate.weight"] = (1, config.hidden_size)
    return found
