"""The attention block of a layer: project, normalize, rotate, store, attend, project back.

Q, K and V share one linear: fewer, larger products.
"""

from collections.abc import Callable

import torch

from firsttoken_kernels import attention, paged_cache, rope_store
from firsttoken_runtime.model import architecture, layers
from firsttoken_runtime.model.mlp import Take

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
        self.head_norms = None
        if config.family.query_key_norm:
            self.head_norms = rope_store.HeadNorms(
                take("q_norm.weight"), take("k_norm.weight"), config.rms_norm_eps
            )

    def __call__(
        self,
        x: torch.Tensor,
        rotation: rope_store.Rotation | None,
        cache_layer: paged_cache.LayerCache,
        plan: attention.Plan,
        added: torch.Tensor | None = None,
        observe: Observe | None = None,
    ) -> torch.Tensor:
        """x: [T, H] -> [T, H]; `added` [T, H] is added. Rows past those of the plan are padding: nothing is
        stored for them."""
        config = self.config
        heads = self.qkv(x).view(len(x), -1, config.head_dim)  # [T, heads + 2 KV heads, D]
        where = plan.own_slots
        if observe is None:
            queries = rope_store.rope_store(heads, cache_layer, where, rotation, self.head_norms)
        else:
            queries, keys, values = rope_store.turned(
                heads, len(where.all), config.num_kv_heads, rotation, self.head_norms
            )
            cache_layer.write(keys, values, where)
            observe(queries, keys, values, cache_layer)
        attended = attention.attention(
            queries,
            cache_layer,
            plan,
            config.attention_scale,
            window=self.layer.window,
            softcap=config.attention_softcap,
            num_rows=len(x),
        )
        return self.output(attended.reshape(len(x), -1), added)

    def compile_linears(self, x: torch.Tensor, added: torch.Tensor | None) -> None:
        """x: [T, H], any numbers; `added` as in a call."""
        self.qkv(x)
        self.output(x.new_zeros(len(x), self.output.in_features), added)
