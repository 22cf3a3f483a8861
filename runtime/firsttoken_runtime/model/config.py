"""What a model is made of, read from `config.json` or from .gguf metadata. No torch.

Whatever the decoder could not honour (another RoPE scaling, a sliding window shorter than the
context, experts, pre-quantized weights) is refused here with the reason: a setting that is silently
ignored would only show as worse answers.
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from firsttoken_runtime.model import checkpoint, errors, families, gguf_file


@dataclass(frozen=True)
class ModelConfig:
    """Sizes and constants of one decoder."""

    family: families.Family
    vocabulary_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rms_norm_eps: float
    rope_theta: float
    trained_length: int
    """Longest context the model was trained for, in tokens."""
    tied_embeddings: bool

    @property
    def architecture(self) -> str:
        return self.family.model_type

    @property
    def num_parameters(self) -> int:
        """Weights of all tensors, a tied embedding counted once."""
        queries, kv = self.num_heads * self.head_dim, self.num_kv_heads * self.head_dim
        layer = self.hidden_size * (2 * queries + 2 * kv + 3 * self.intermediate_size + 2)
        if self.family.qkv_bias:
            layer += queries + 2 * kv
        if self.family.query_key_norm:
            layer += 2 * self.head_dim
        tables = 1 if self.tied_embeddings else 2
        embeddings = tables * self.vocabulary_size * self.hidden_size
        return self.num_layers * layer + embeddings + self.hidden_size

    def kv_bytes_per_token(self, bytes_per_element: int) -> int:
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim * bytes_per_element


def read(source: checkpoint.Checkpoint) -> ModelConfig:
    """Raises `errors.ModelError`."""
    return from_gguf(source.gguf) if source.gguf else from_folder(source.path)


def from_gguf(file: gguf_file.File) -> ModelConfig:
    architecture = str(file.get("general.architecture", ""))
    family = families.by_gguf_architecture(architecture)
    if family is None:
        raise errors.Unsupported(_unsupported(architecture))
    where = str(file.path)

    def value(key: str, default: Any = None) -> Any:
        return file.get(f"{architecture}.{key}", default)

    def size(key: str, default: Any = None) -> int:
        return _size(where, f"{architecture}.{key}", value(key, default))

    scaling = value("rope.scaling.type", "none")
    factors = [value(f"rope.{key}") for key in ("scaling.factor", "scale_linear")]
    shapes = file.tensor_shapes()
    if scaling != "none" or any(f not in (None, 0, 1) for f in factors) or "rope_freqs.weight" in shapes:
        raise errors.Unsupported(f"RoPE scaling ({scaling}) in {where} is not built; plain RoPE is")
    if value("expert_count"):
        raise errors.Unsupported(f"{where} is a mixture of experts; only dense models are built")
    table = shapes.get("token_embd.weight", ())
    if len(table) != 2:
        raise errors.ModelUnreadable(f"{where} holds no tensor token_embd.weight of two dimensions")
    vocabulary_size, hidden_size = table
    num_heads = size("attention.head_count")
    head_dim = size("attention.key_length", hidden_size // num_heads)
    if size("rope.dimension_count", head_dim) != head_dim:
        raise errors.Unsupported(f"{where}: RoPE over a part of each head is not built")
    trained_length = size("context_length")
    _check_window(where, value("attention.sliding_window"), trained_length)
    return _checked(
        where,
        ModelConfig(
            family=family,
            vocabulary_size=vocabulary_size,
            hidden_size=hidden_size,
            intermediate_size=size("feed_forward_length"),
            num_layers=size("block_count"),
            num_heads=num_heads,
            num_kv_heads=size("attention.head_count_kv", num_heads),
            head_dim=head_dim,
            rms_norm_eps=_number(
                where,
                f"{architecture}.attention.layer_norm_rms_epsilon",
                value("attention.layer_norm_rms_epsilon"),
            ),
            rope_theta=_number(where, f"{architecture}.rope.freq_base", value("rope.freq_base", 10000.0)),
            trained_length=trained_length,
            tied_embeddings="output.weight" not in shapes,
        ),
    )


def from_folder(folder: Path) -> ModelConfig:
    file = folder / "config.json"
    if not file.is_file():
        raise errors.ModelNotFound(f"{folder} holds no config.json")
    return from_document(checkpoint.read_json(file), str(file))


def from_document(document: dict[str, Any], where: str) -> ModelConfig:
    """`document` is the content of a config.json; `where` names it in errors."""
    model_type = str(document.get("model_type", ""))
    family = families.by_model_type(model_type)
    if family is None:
        raise errors.Unsupported(_unsupported(model_type))
    if document.get("quantization_config"):
        raise errors.Unsupported(f"{where}: pre-quantized checkpoints are not built; use 16-bit or .gguf")
    rope = _plain_rope(document, where)
    activation = document.get("hidden_act", "silu")
    if activation != "silu":
        raise errors.Unsupported(f"{where}: activation {activation!r} is not built; silu is")
    if document.get("mlp_bias") or (document.get("attention_bias") and not family.qkv_bias):
        raise errors.Unsupported(f"{where}: biases in {model_type} checkpoints are not built")

    def size(key: str, default: Any = None) -> int:
        found = document.get(key)
        return _size(where, key, default if found is None else found)

    num_heads, hidden_size = size("num_attention_heads"), size("hidden_size")
    trained_length = size("max_position_embeddings")
    if document.get("use_sliding_window", True):
        _check_window(where, document.get("sliding_window"), trained_length)
    return _checked(
        where,
        ModelConfig(
            family=family,
            vocabulary_size=size("vocab_size"),
            hidden_size=hidden_size,
            intermediate_size=size("intermediate_size"),
            num_layers=size("num_hidden_layers"),
            num_heads=num_heads,
            num_kv_heads=size("num_key_value_heads", num_heads),
            head_dim=size("head_dim", hidden_size // num_heads),
            rms_norm_eps=_number(where, "rms_norm_eps", document.get("rms_norm_eps")),
            rope_theta=_number(
                where, "rope_theta", rope.get("rope_theta", document.get("rope_theta", 10000.0))
            ),
            trained_length=trained_length,
            tied_embeddings=bool(document.get("tie_word_embeddings", False)),
        ),
    )


_PLAIN_ROPE = {"rope_type", "type", "rope_theta", "partial_rotary_factor"}


def _plain_rope(document: dict[str, Any], where: str) -> dict[str, Any]:
    """What either spelling says of RoPE. Raises Unsupported unless it is the plain one."""
    rope: dict[str, Any] = {}
    for spelling in ("rope_scaling", "rope_parameters"):
        part = document.get(spelling) or {}
        if not isinstance(part, dict):
            raise errors.ModelUnreadable(f"{where}: {spelling} is not an object")
        rope_type = part.get("rope_type", part.get("type", "default"))
        if rope_type != "default":
            raise errors.Unsupported(f"{where}: RoPE scaling {rope_type!r} is not built; plain RoPE is")
        if others := sorted(part.keys() - _PLAIN_ROPE):
            raise errors.Unsupported(f"{where}: {others[0]!r} in {spelling} is not built; plain RoPE is")
        rope |= part
    if rope.get("partial_rotary_factor", document.get("partial_rotary_factor")) not in (None, 1):
        raise errors.Unsupported(f"{where}: RoPE over a part of each head is not built")
    return rope


def _check_window(where: str, window: Any, trained_length: int) -> None:
    if window and _size(where, "sliding_window", window) < trained_length:
        raise errors.Unsupported(
            f"{where}: a sliding window of {window} tokens below the context of {trained_length} is not built"
        )


def _checked(where: str, config: ModelConfig) -> ModelConfig:
    """Sizes that do not go together would only fail in the first forward pass."""
    if config.num_heads % config.num_kv_heads:
        raise errors.ModelUnreadable(
            f"{where}: {config.num_heads} heads cannot share {config.num_kv_heads} KV heads evenly"
        )
    if config.head_dim % 2:
        raise errors.ModelUnreadable(f"{where}: a head of {config.head_dim} has no pairs to rotate")
    return config


def _size(where: str, key: str, value: Any) -> int:
    number = _number(where, key, value)
    if number < 1 or number != int(number):
        raise errors.ModelUnreadable(f"{where}: {key} is {value}, not a whole number above 0")
    return int(number)


def _number(where: str, key: str, value: Any) -> float:
    if value is None:
        raise errors.ModelUnreadable(f"{where} lacks {key!r}")
    if not isinstance(value, int | float) or not math.isfinite(value):
        raise errors.ModelUnreadable(f"{where}: {key} is {value!r}, not a number")
    return value


def _unsupported(architecture: str) -> str:
    return (
        f"architecture {architecture!r} is not supported; supported: {families.SUPPORTED_TEXT} "
        "(SmolLM2 and Llama 2 are of family llama)"
    )
