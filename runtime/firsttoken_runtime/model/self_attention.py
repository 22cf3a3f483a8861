"""The attention block of a layer: project, normalize, rotate, store, attend, project back.

Q, K and V share one linear: fewer, larger products.
"""

from collections.abc import Callable

import torch
from torch.nn import functional

from firsttoken_kernels import attention, paged_cache, rope
from firsttoken_runtime.model import architecture, layers
from firsttoken_runtime.model.mlp import Take
from firsttoken_runtime.model.norm import Norm

Rotation = tuple[torch.Tensor, torch.Tensor]
"""Cosine and sine of one step, each [T, 1, D]."""
Observe = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, paged_cache.LayerCache], None]
"""Is shown queries [T, heads, D], keys and values [T, KV heads, D] before they were stored, and the cache
they were stored in."""


class SelfAttention:
    """Attention of one layer, with the layer's window and rotation."""

    def __init__(
        self,
        config: architecture.ModelConfig,
        layer: architecture.Layer,
        take: Take,
        *,
        numerics: layers.Numerics,
    ) -> None:
        self.config = config
        self.layer = layer
        weight = torch.cat([take(f"{name}_proj.weight") for name in "qkv"])
        bias = torch.cat([take(f"{name}_proj.bias") for name in "qkv"]) if config.qkv_bias else None
        self.qkv = layers.Linear(weight, bias, numerics=numerics)
        self.output = layers.Linear(
            take("o_proj.weight"), take("o_proj.bias") if config.output_bias else None, numerics=numerics
        )
        self.query_norm = self.key_norm = None
        if config.family.query_key_norm:
            self.query_norm = Norm(take("q_norm.weight"), config.rms_norm_eps)
            self.key_norm = Norm(take("k_norm.weight"), config.rms_norm_eps)

    def __call__(
        self,
        x: torch.Tensor,
        rotation: Rotation | None,
        cache_layer: paged_cache.LayerCache,
        plan: attention.Plan,
        added: torch.Tensor | None = None,
        observe: Observe | None = None,
    ) -> torch.Tensor:
        """x: [T, H] -> [T, H]; `added` [T, H] is added. Rows past those of the plan are padding: nothing is
        stored for them."""
        config = self.config
        num_tokens = len(plan.own_slots.all)
        heads = self.qkv(x).view(len(x), -1, config.head_dim)  # [T, heads + 2 KV heads, D]
        num_rotated = config.num_heads + config.num_kv_heads
        queries_keys, values = heads[:, :num_rotated], heads[:, num_rotated:]
        if self.query_norm is not None and self.key_norm is not None:
            queries, keys = queries_keys.tensor_split([config.num_heads], dim=1)
            queries_keys = torch.cat((self.query_norm(queries), self.key_norm(keys)), dim=1)
        if rotation is not None:
            queries_keys = rope.rotate(queries_keys, *rotation)
        queries_keys, values = queries_keys[:num_tokens], values[:num_tokens]
        queries, keys = queries_keys.tensor_split([config.num_heads], dim=1)
        cache_layer.write(keys, values, plan.own_slots)
        if observe is not None:
            observe(queries, keys, values, cache_layer)
        attended = attention.attention(
            queries,
            cache_layer,
            plan,
            config.attention_scale,
            window=self.layer.window,
            softcap=config.attention_softcap,
        )
        attended = attended.reshape(num_tokens, -1)
        if num_tokens < len(x):
            attended = functional.pad(attended, (0, 0, 0, len(x) - num_tokens))
        return self.output(attended, added)

    def compile_linears(self, x: torch.Tensor, added: torch.Tensor | None) -> None:
        """x: [T, H], any numbers; `added` as in a call."""
        self.qkv(x)
        self.output(x.new_zeros(len(x), self.output.in_features), added)
