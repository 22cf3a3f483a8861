"""The decoder: one Llama-shaped model for every family of the table.

Q, K and V share one linear, gate and up another: fewer, larger products. Activations are [T, H] over
all tokens of a step, whichever sequences they belong to; only attention knows about sequences.
"""

from dataclasses import dataclass

import torch
from torch.nn import functional

from firsttoken_kernels import attention, rmsnorm, rope, silu_mul
from firsttoken_runtime.model import config as model_config
from firsttoken_runtime.model import layers


@dataclass(frozen=True)
class StepInput:
    """All a forward pass needs to know about one step of T tokens."""

    token_ids: torch.Tensor  # [T] int64
    positions: torch.Tensor  # [T] int64
    slots: torch.Tensor  # [T] int64, where each token's KV is stored
    attention_plan: attention.Plan
    logit_rows: torch.Tensor  # [R] int64, the rows whose logits are wanted


class Block:
    """One layer."""

    def __init__(
        self, config: model_config.ModelConfig, tensors: dict[str, torch.Tensor], index: int
    ) -> None:
        prefix = f"layers.{index}."

        def take(name: str) -> torch.Tensor:
            return tensors.pop(prefix + name)

        self.config = config
        self.input_norm = take("input_layernorm.weight")
        qkv = torch.cat([take(f"self_attn.{name}_proj.weight") for name in "qkv"])
        bias = None
        if config.family.qkv_bias:
            bias = torch.cat([take(f"self_attn.{name}_proj.bias") for name in "qkv"])
        self.qkv = layers.Linear(qkv, bias)
        self.query_norm = take("self_attn.q_norm.weight") if config.family.query_key_norm else None
        self.key_norm = take("self_attn.k_norm.weight") if config.family.query_key_norm else None
        self.attention_output = layers.Linear(take("self_attn.o_proj.weight"))
        self.mlp_norm = take("post_attention_layernorm.weight")
        self.gate_up = layers.Linear(torch.cat([take("mlp.gate_proj.weight"), take("mlp.up_proj.weight")]))
        self.down = layers.Linear(take("mlp.down_proj.weight"))

    def __call__(
        self,
        hidden: torch.Tensor,
        cos: torch.Tensor,
        sin: torch.Tensor,
        cache_layer: torch.Tensor,
        step: StepInput,
    ) -> torch.Tensor:
        """hidden: [T, H], cos and sin: [T, 1, D], cache_layer: [2, slots, KV heads, D] -> [T, H]."""
        config = self.config
        normed = rmsnorm.rmsnorm(hidden, self.input_norm, config.rms_norm_eps)
        heads = self.qkv(normed).view(len(hidden), -1, config.head_dim)  # [T, heads + 2 KV heads, D]
        rotated_heads = config.num_heads + config.num_kv_heads
        unrotated = heads[:, :rotated_heads]
        if self.query_norm is not None and self.key_norm is not None:
            queries, keys = unrotated.tensor_split([config.num_heads], dim=1)
            queries = rmsnorm.rmsnorm(queries, self.query_norm, config.rms_norm_eps)
            keys = rmsnorm.rmsnorm(keys, self.key_norm, config.rms_norm_eps)
            unrotated = torch.cat((queries, keys), dim=1)
        rotated = rope.rotate(unrotated, cos, sin)
        queries, keys = rotated.tensor_split([config.num_heads], dim=1)
        rope.write_cache(cache_layer, keys, heads[:, rotated_heads:], step.slots)
        attended = attention.attention(queries, cache_layer, step.attention_plan, config.head_dim**-0.5)
        hidden = hidden + self.attention_output(attended.reshape(len(hidden), -1))
        normed = rmsnorm.rmsnorm(hidden, self.mlp_norm, config.rms_norm_eps)
        return hidden + self.down(silu_mul.silu_mul(self.gate_up(normed)))


class Decoder:
    """Token ids in, logits out."""

    def __init__(self, config: model_config.ModelConfig, tensors: dict[str, torch.Tensor]) -> None:
        """Takes the tensors out of `tensors`, so that packing never holds the model twice."""
        self.config = config
        self.embedding = tensors.pop("embed_tokens.weight")
        self.blocks = [Block(config, tensors, index) for index in range(config.num_layers)]
        self.final_norm = tensors.pop("norm.weight")
        self.head = layers.Linear(self.embedding if config.tied_embeddings else tensors.pop("lm_head.weight"))
        self.inverse_frequencies = rope.frequencies(config.head_dim, config.rope_theta, self.embedding.device)

    @property
    def device(self) -> torch.device:
        return self.embedding.device

    @property
    def dtype(self) -> torch.dtype:
        return self.embedding.dtype

    def hidden(self, step: StepInput, cache: torch.Tensor) -> torch.Tensor:
        """cache: [layers, 2, slots, KV heads, D], written in place -> [T, H] before the final norm."""
        hidden = functional.embedding(step.token_ids, self.embedding)  # [T, H]
        cos, sin = rope.cos_sin(step.positions, self.inverse_frequencies, self.dtype)
        for block, cache_layer in zip(self.blocks, cache, strict=True):
            hidden = block(hidden, cos, sin, cache_layer, step)
        return hidden

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Rows of `hidden` [R, H] -> [R, V] fp32."""
        return self.head(rmsnorm.rmsnorm(hidden, self.final_norm, self.config.rms_norm_eps)).float()

    def __call__(self, step: StepInput, cache: torch.Tensor) -> torch.Tensor:
        """Logits [R, V] fp32 of `step.logit_rows`."""
        return self.logits(self.hidden(step, cache).index_select(0, step.logit_rows))
