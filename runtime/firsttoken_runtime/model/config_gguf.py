"""A model's configuration from the metadata and the tensor shapes of a .gguf file. No torch.

What the format leaves to the program that reads it (the pattern of windows, the scale of attention in
the largest Gemmas, the base of local RoPE) is as in llama.cpp, for which these files are made.
"""

import math
from typing import Any

from firsttoken_runtime.model import architecture, errors, families, gguf_file, layer_windows, rope_config
from firsttoken_runtime.model import config_values as values

_LARGEST_GEMMA = {"gemma2": 46, "gemma3": 62}
"""Layers of the 27B models, which scale attention by hidden size over heads instead of the head size."""
_ROPE_ADJUSTMENTS = ("attn_factor", "yarn_log_multiplier", "yarn_ext_factor", "yarn_attn_factor")
_EXPERT_ADJUSTMENTS = ("expert_weights_scale", "expert_group_count", "expert_gating_func")


def from_gguf(file: gguf_file.File) -> architecture.ModelConfig:
    """Raises `errors.ModelError`."""
    name = str(file.get("general.architecture", ""))
    family = families.by_gguf_architecture(
        name,
        has_experts=bool(file.get(f"{name}.expert_count")),
        has_window=bool(file.get(f"{name}.attention.sliding_window")),
    )
    if family is None:
        raise values.unsupported_architecture(name)
    return _Reader(file, family).read()


class _Reader:
    """One file."""

    def __init__(self, file: gguf_file.File, family: families.Family) -> None:
        self.file = file
        self.where = str(file.path)
        self.family = family
        self.shapes = file.tensor_shapes()

    def key(self, name: str) -> str:
        return f"{self.family.gguf_architecture}.{name}"

    def value(self, name: str, default: Any = None) -> Any:
        return self.file.get(self.key(name), default)

    def size(self, name: str, default: Any = None) -> int:
        return values.size(self.where, self.key(name), self.value(name, default))

    def number(self, name: str, default: Any = None) -> float:
        return values.positive(self.where, self.key(name), self.value(name, default))

    def has(self, tensor: str) -> bool:
        return tensor in self.shapes

    def read(self) -> architecture.ModelConfig:
        family = self.family
        table = self.shapes.get("token_embd.weight", ())
        if len(table) != 2:
            raise errors.ModelUnreadable(f"{self.where} holds no tensor token_embd.weight of two dimensions")
        vocabulary_size, hidden_size = table
        num_heads = self.size("attention.head_count")
        head_dim = self.size("attention.key_length", hidden_size // num_heads)
        if self.size("rope.dimension_count", head_dim) != head_dim:
            raise errors.Unsupported(f"{self.where}: RoPE over a part of each head is not built")
        if self.size("attention.value_length", head_dim) != head_dim:
            raise errors.Unsupported(f"{self.where}: values of another size than keys are not built")
        rope = self._rope()
        trained_length = max(self.size("context_length"), rope.reach)
        layers = self._layers(rope, trained_length)
        experts = self._experts([index for index, layer in enumerate(layers) if layer.has_experts])
        return architecture.checked(
            self.where,
            architecture.ModelConfig(
                family=family,
                vocabulary_size=vocabulary_size,
                hidden_size=hidden_size,
                intermediate_size=self.size("feed_forward_length"),
                num_heads=num_heads,
                num_kv_heads=self.size("attention.head_count_kv", num_heads),
                head_dim=head_dim,
                rms_norm_eps=self.number("attention.layer_norm_rms_epsilon"),
                trained_length=trained_length,
                tied_embeddings=not self.has("output.weight"),
                layers=layers,
                attention_scale=self._attention_scale(hidden_size, num_heads, head_dim, len(layers)),
                activation=family.activation,
                experts=experts,
                qkv_bias=self.has("blk.0.attn_q.bias"),
                output_bias=self.has("blk.0.attn_output.bias"),
                mlp_bias=self.has("blk.0.ffn_up.bias"),
                attention_softcap=self._softcap(families.ATTENTION_SOFTCAP),
                final_softcap=self._softcap(families.FINAL_SOFTCAP),
            ),
        )

    def _rope(self) -> rope_config.Rope:
        """Of layers without a window."""
        theta = self.number("rope.freq_base", 10000.0)
        factor = self.value("rope.scaling.factor", self.value("rope.scale_linear")) or 1.0
        factor = values.positive(self.where, self.key("rope.scaling.factor"), factor)
        kind = self.value("rope.scaling.type", "linear")
        for name in _ROPE_ADJUSTMENTS:
            if self.value(f"rope.scaling.{name}") not in (None, 0, 1):
                raise errors.Unsupported(f"{self.where}: {self.key(f'rope.scaling.{name}')} is not built")
        divisors = self.file.values("rope_freqs.weight") if self.has("rope_freqs.weight") else ()
        if kind == "yarn" and not divisors:
            named = self.value("rope.scaling.original_context_length")
            original = self.size("rope.scaling.original_context_length", self.size("context_length"))
            return rope_config.yarn(
                theta,
                factor,
                original,
                beta_fast=self.number("rope.scaling.yarn_beta_fast", 32.0),
                beta_slow=self.number("rope.scaling.yarn_beta_slow", 1.0),
                reach=int(factor * original) if named else 0,
            )
        if kind not in ("none", "linear"):
            raise errors.Unsupported(f"{self.where}: RoPE scaling {kind!r} in this .gguf file is not built")
        if kind == "none" or factor == 1:
            return rope_config.Rope(theta, divisors=divisors)
        return rope_config.Rope(theta, "linear", factor, divisors=divisors)

    def _layers(self, rope: rope_config.Rope, trained_length: int) -> tuple[architecture.Layer, ...]:
        family = self.family
        num_layers = self.size("block_count")
        interval = family.nope_interval
        rotates = [not interval or (index + 1) % interval != 0 for index in range(num_layers)]
        window = self._window(trained_length)
        windowed = self._windowed(num_layers, rotates)
        local = rope
        if family.local_rope_theta is not None:
            local = rope_config.Rope(self.number("rope.freq_base_swa", family.local_rope_theta))
        return tuple(
            architecture.Layer(
                window=window if windowed[index] else None,
                rope=(local if windowed[index] else rope) if rotates[index] else None,
                has_experts=self.has(f"blk.{index}.ffn_gate_inp.weight"),
            )
            for index in range(num_layers)
        )

    def _window(self, trained_length: int) -> int | None:
        default = self.family.defaults.get("sliding_window")
        is_always_on = self.family.windows is families.Windows.PERIODIC
        found = self.value("attention.sliding_window", default if is_always_on else None)
        if not found or self.size("attention.sliding_window", default) >= trained_length:
            return None
        if self.family.windows not in (families.Windows.ALL, families.Windows.PERIODIC):
            raise errors.Unsupported(
                f"{self.where}: a sliding window of {found} tokens in {self.family.gguf_architecture} files "
                "is not built"
            )
        return int(found)

    def _windowed(self, num_layers: int, rotates: list[bool]) -> list[bool]:
        pattern = self.value("attention.sliding_window_pattern")
        if isinstance(pattern, list):
            if len(pattern) != num_layers:
                raise errors.ModelUnreadable(
                    f"{self.where}: {self.key('attention.sliding_window_pattern')} does not name "
                    f"{num_layers} layers"
                )
            return [bool(entry) for entry in pattern]
        period = self.size("attention.sliding_window_pattern", self.family.window_period or 1)
        return layer_windows.by_rule(self.family, num_layers, period=period, from_layer=0, rotates=rotates)

    def _experts(self, layers: list[int]) -> architecture.Experts | None:
        """The sizes are those of the first stack; `weights.py` checks all others against them."""
        if not layers:
            return None
        keys = self.family.experts
        stack = self.shapes.get(f"blk.{layers[0]}.ffn_gate_exps.weight", ())
        if keys is None or len(stack) != 3:
            raise errors.Unsupported(
                f"{self.where}: experts in {self.family.gguf_architecture} files are built only as stacks "
                "(ffn_gate_exps, …)"
            )
        for name in _EXPERT_ADJUSTMENTS:
            if self.value(name) not in (None, 0, 1):
                raise errors.Unsupported(f"{self.where}: {self.key(name)} {self.value(name)} is not built")
        shared = self.shapes.get(f"blk.{layers[0]}.ffn_up_shexp.weight")
        return architecture.Experts(
            count=stack[0],
            per_token=self.size("expert_used_count"),
            intermediate_size=stack[1],
            normalized=bool(self.value("expert_weights_norm", keys.normalized_in_gguf)),
            shared_intermediate_size=shared[0] if shared else None,
        )

    def _attention_scale(self, hidden_size: int, num_heads: int, head_dim: int, num_layers: int) -> float:
        if self.value("attention.scale"):
            return self.number("attention.scale")
        is_largest = _LARGEST_GEMMA.get(self.family.gguf_architecture) == num_layers
        return 1 / math.sqrt(hidden_size // num_heads if is_largest else head_dim)

    def _softcap(self, name: str) -> float | None:
        found = self.value(name, self.family.defaults.get(name))
        if not found:
            return None
        if name not in self.family.softcap_keys:
            raise errors.Unsupported(f"{self.where}: {self.key(name)} is not built")
        return values.positive(self.where, self.key(name), found)
