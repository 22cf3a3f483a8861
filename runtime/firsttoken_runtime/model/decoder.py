"""The decoder: one model for every family of the table.

Activations are [T, H] over all tokens of a step, whichever sequences they belong to; only attention
knows about sequences.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch.nn import functional

from firsttoken_kernels import attention, paged_cache, rope, rope_store, rows
from firsttoken_runtime.model import architecture, layers, rope_frequencies, row_counts
from firsttoken_runtime.model.experts import MixtureMlp
from firsttoken_runtime.model.mlp import Mlp
from firsttoken_runtime.model.norm import Norm
from firsttoken_runtime.model.rope_config import Rope
from firsttoken_runtime.model.self_attention import Observe, SelfAttention


@dataclass(frozen=True)
class StepInput:
    """All a forward pass needs to know about one step of T tokens."""

    token_ids: torch.Tensor  # [T] int64
    positions: torch.Tensor  # [T] int64
    attention_plan: attention.Plan
    logit_rows: torch.Tensor  # [R] int64, the rows whose logits are wanted
    observed: Mapping[int, Observe] = field(default_factory=dict)  # by layer
    before_layer: Callable[[int], None] | None = None  # called with each layer's number


class Block:
    """One layer."""

    def __init__(
        self,
        config: architecture.ModelConfig,
        tensors: dict[str, torch.Tensor],
        index: int,
        numerics: layers.Numerics,
    ) -> None:
        def norm(name: str) -> Norm:
            return Norm(tensors.pop(f"layers.{index}.{name}_layernorm.weight"), config.rms_norm_eps)

        def take_attention(name: str) -> torch.Tensor:
            return tensors.pop(f"layers.{index}.self_attn.{name}")

        def take_mlp(name: str) -> torch.Tensor:
            return tensors.pop(f"layers.{index}.mlp.{name}")

        self.index = index
        self.layer = config.layers[index]
        self.attention_norm = norm("input")
        self.attention = SelfAttention(config, self.layer, take_attention, numerics=numerics)
        self.after_attention = self.after_mlp = None
        if config.family.sandwich_norms:
            self.after_attention = norm("post_attention")
            self.mlp_norm = norm("pre_feedforward")
            self.after_mlp = norm("post_feedforward")
        else:
            self.mlp_norm = norm("post_attention")
        self.mlp: Mlp | MixtureMlp
        if self.layer.has_experts:
            self.mlp = MixtureMlp(config, take_mlp, numerics=numerics)
        else:
            self.mlp = Mlp(
                take_mlp, activation=config.activation, has_bias=config.mlp_bias, numerics=numerics
            )

    def __call__(
        self,
        hidden: torch.Tensor,
        rotations: Mapping[Rope, rope_store.Rotation],
        cache_layer: paged_cache.LayerCache,
        step: StepInput,
    ) -> torch.Tensor:
        """hidden: [T, H] -> [T, H]."""
        rotation = None if self.layer.rope is None else rotations[self.layer.rope]
        plan, observe = step.attention_plan, step.observed.get(self.index)
        normed = self.attention_norm(hidden)
        if self.after_attention is None or self.after_mlp is None:
            hidden = self.attention(normed, rotation, cache_layer, plan, hidden, observe)
            return self.mlp(self.mlp_norm(hidden), hidden)
        attended = self.attention(normed, rotation, cache_layer, plan, observe=observe)
        hidden = hidden + self.after_attention(attended)
        return hidden + self.after_mlp(self.mlp(self.mlp_norm(hidden)))

    def compile_linears(self, x: torch.Tensor) -> None:
        """x: [T, H], any numbers. Experts are left out: each sees another number of rows every time."""
        self.attention.compile_linears(x, x if self.after_attention is None else None)
        if isinstance(self.mlp, Mlp):
            self.mlp(x, x if self.after_mlp is None else None)


class Decoder:
    """Token ids in, logits out."""

    def __init__(
        self,
        config: architecture.ModelConfig,
        tensors: dict[str, torch.Tensor],
        numerics: layers.Numerics = layers.Numerics(),  # noqa: B008 - frozen
    ) -> None:
        """Takes the tensors out of `tensors`, so that packing never holds the model twice."""
        self.config = config
        self.embedding = tensors.pop("embed_tokens.weight")
        self.embedding_scale = None
        if config.family.scaled_embeddings:
            self.embedding_scale = torch.tensor(
                config.hidden_size**0.5, dtype=self.embedding.dtype, device=self.embedding.device
            )
        self.blocks = [Block(config, tensors, index, numerics) for index in range(config.num_layers)]
        self.final_norm = Norm(tensors.pop("norm.weight"), config.rms_norm_eps)
        self.head = layers.Linear(
            self.embedding if config.tied_embeddings else tensors.pop("lm_head.weight"), numerics=numerics
        )
        # On a GPU nothing is compiled for a row count; batch-invariant linears have few counts of their own.
        self._pads_rows = self.head.can_fuse
        self.inverse_frequencies = {
            each: rope_frequencies.inverse_frequencies(each, config.head_dim, self.embedding.device)
            for each in config.ropes
        }

    @property
    def device(self) -> torch.device:
        return self.embedding.device

    @property
    def dtype(self) -> torch.dtype:
        return self.embedding.dtype

    def hidden(self, step: StepInput, cache: Sequence[paged_cache.LayerCache]) -> torch.Tensor:
        """cache: of each layer, written in place -> [T, H] before the final norm."""
        num_tokens = len(step.token_ids)
        padding = row_counts.padded(num_tokens) - num_tokens if self._pads_rows else 0
        token_ids, positions = step.token_ids, step.positions
        if padding:
            token_ids, positions = (functional.pad(one, (0, padding)) for one in (token_ids, positions))
        hidden = functional.embedding(token_ids, self.embedding)  # [T + padding, H]
        if self.embedding_scale is not None:
            hidden = hidden * self.embedding_scale
        rotations = {
            each: rope.cos_sin(positions, frequencies, self.dtype, each.attention_factor)
            for each, frequencies in self.inverse_frequencies.items()
        }
        for block, cache_layer in zip(self.blocks, cache, strict=True):
            if step.before_layer is not None:
                step.before_layer(block.index)
            hidden = block(hidden, rotations, cache_layer, step)
        return hidden[:num_tokens]

    def compile_linears(self, most_rows: int) -> None:
        """Call the linears of a layer with every row count that a step of so many rows may have; the other
        layers have the same shapes. Nothing where rows are not padded."""
        if not self._pads_rows:
            return
        for count in row_counts.up_to(most_rows):
            self.blocks[0].compile_linears(self.embedding.new_zeros(count, self.config.hidden_size))

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Rows of `hidden` [R, H] -> [R, V] fp32."""
        logits = self.head(self.final_norm(hidden)).float()
        cap = self.config.final_softcap
        return logits if cap is None else rows.alike(torch.tanh, logits / cap) * cap

    def __call__(self, step: StepInput, cache: Sequence[paged_cache.LayerCache]) -> torch.Tensor:
        """Logits [R, V] fp32 of `step.logit_rows`."""
        return self.logits(self.hidden(step, cache).index_select(0, step.logit_rows))
