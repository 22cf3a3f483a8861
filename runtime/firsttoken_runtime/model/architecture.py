"""What a model is made of: sizes, constants, and what each layer does. No torch.

The decoder, the tensors to load, and the memory they need all follow from these facts.
"""

import math
from dataclasses import dataclass

from firsttoken_runtime.model import errors, families, shapes
from firsttoken_runtime.model.rope_config import Rope


@dataclass(frozen=True)
class Experts:
    """The MLPs of a mixture: every token passes the `per_token` best of `count`."""

    count: int
    per_token: int
    intermediate_size: int
    normalized: bool
    """The weights of the chosen ones are scaled to sum to 1."""
    shared_intermediate_size: int | None = None
    """Of the expert that every token passes; None: there is none."""


@dataclass(frozen=True)
class Layer:
    """What one layer does differently from its neighbours."""

    window: int | None = None
    """A token sees only so many of the last ones, itself included; None: all."""
    rope: Rope | None = None
    """None: queries and keys are not rotated."""
    has_experts: bool = False


@dataclass(frozen=True)
class ModelConfig:
    """Sizes and constants of one decoder."""

    family: families.Family
    vocabulary_size: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rms_norm_eps: float
    trained_length: int
    """Longest context the model was trained for, in tokens."""
    tied_embeddings: bool
    layers: tuple[Layer, ...]
    attention_scale: float
    activation: str
    experts: Experts | None = None
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    attention_softcap: float | None = None
    final_softcap: float | None = None
    is_text_part: bool = False
    """The checkpoint also holds a vision tower, which is not loaded."""

    @property
    def architecture(self) -> str:
        return self.family.model_type

    @property
    def num_layers(self) -> int:
        return len(self.layers)

    @property
    def windows(self) -> tuple[int, ...]:
        """Every window that some layer has."""
        return tuple(sorted({layer.window for layer in self.layers if layer.window is not None}))

    @property
    def ropes(self) -> tuple[Rope, ...]:
        """Every way some layer rotates."""
        return tuple(dict.fromkeys(layer.rope for layer in self.layers if layer.rope is not None))

    @property
    def num_parameters(self) -> int:
        """Weights of all tensors, a tied embedding counted once."""
        return sum(math.prod(shape) for shape in shapes.expected(self).values())

    def kv_bytes_per_token(self, bytes_per_element: int) -> int:
        """A layer with a window keeps all tokens too: what left the window is not read, nor freed."""
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim * bytes_per_element


def checked(where: str, config: ModelConfig) -> ModelConfig:
    """Sizes that do not go together would only fail in the first forward pass."""
    if config.num_heads % config.num_kv_heads:
        raise errors.ModelUnreadable(
            f"{where}: {config.num_heads} heads cannot share {config.num_kv_heads} KV heads evenly"
        )
    if config.head_dim % 2:
        raise errors.ModelUnreadable(f"{where}: a head of {config.head_dim} has no pairs to rotate")
    experts = config.experts
    if experts is not None and experts.per_token > experts.count:
        raise errors.ModelUnreadable(
            f"{where}: {experts.per_token} experts a token of {experts.count} that there are"
        )
    return config
