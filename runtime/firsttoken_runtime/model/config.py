"""What a model is made of, read from `config.json` or from .gguf metadata. No torch.

Whatever the decoder could not honour (another RoPE scaling, a sliding window shorter than the
context, experts, pre-quantized weights) is refused here with the reason: a setting that is silently
ignored would only show as worse answers.
"""

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

    def value(key: str, default: Any = None) -> Any:
        found = file.get(f"{architecture}.{key}", default)
        if found is None:
            raise errors.ModelUnreadable(f"{file.path} lacks the metadata key {architecture}.{key}")
        return found

    scaling = file.get(f"{architecture}.rope.scaling.type", "none")
    shapes = file.tensor_shapes()
    if scaling != "none" or "rope_freqs.weight" in shapes:
        raise errors.Unsupported(f"RoPE scaling ({scaling}) in {file.path} is not built; plain RoPE is")
    if file.get(f"{architecture}.expert_count"):
        raise errors.Unsupported(f"{file.path} is a mixture of experts; only dense models are built")
    if "token_embd.weight" not in shapes:
        raise errors.ModelUnreadable(f"{file.path} holds no tensor token_embd.weight")
    vocabulary_size, hidden_size = shapes["token_embd.weight"]
    num_heads = int(value("attention.head_count"))
    return ModelConfig(
        family=family,
        vocabulary_size=vocabulary_size,
        hidden_size=hidden_size,
        intermediate_size=int(value("feed_forward_length")),
        num_layers=int(value("block_count")),
        num_heads=num_heads,
        num_kv_heads=int(value("attention.head_count_kv", num_heads)),
        head_dim=int(value("attention.key_length", hidden_size // num_heads)),
        rms_norm_eps=float(value("attention.layer_norm_rms_epsilon")),
        rope_theta=float(value("rope.freq_base", 10000.0)),
        trained_length=int(value("context_length")),
        tied_embeddings="output.weight" not in shapes,
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
    rope = document.get("rope_parameters") or document.get("rope_scaling") or {}
    rope_type = rope.get("rope_type", rope.get("type", "default"))
    if rope_type != "default":
        raise errors.Unsupported(f"{where}: RoPE scaling {rope_type!r} is not built; plain RoPE is")
    activation = document.get("hidden_act", "silu")
    if activation != "silu":
        raise errors.Unsupported(f"{where}: activation {activation!r} is not built; silu is")
    if document.get("mlp_bias") or (document.get("attention_bias") and not family.qkv_bias):
        raise errors.Unsupported(f"{where}: biases in {model_type} checkpoints are not built")
    try:
        num_heads = int(document["num_attention_heads"])
        hidden_size = int(document["hidden_size"])
        trained_length = int(document["max_position_embeddings"])
        config = ModelConfig(
            family=family,
            vocabulary_size=int(document["vocab_size"]),
            hidden_size=hidden_size,
            intermediate_size=int(document["intermediate_size"]),
            num_layers=int(document["num_hidden_layers"]),
            num_heads=num_heads,
            num_kv_heads=int(document.get("num_key_value_heads") or num_heads),
            head_dim=int(document.get("head_dim") or hidden_size // num_heads),
            rms_norm_eps=float(document["rms_norm_eps"]),
            rope_theta=float(rope.get("rope_theta", document.get("rope_theta", 10000.0))),
            trained_length=trained_length,
            tied_embeddings=bool(document.get("tie_word_embeddings", False)),
        )
    except KeyError as error:
        raise errors.ModelUnreadable(f"{where} lacks {error.args[0]!r}") from error
    except (TypeError, ValueError) as error:
        raise errors.ModelUnreadable(f"{where}: a size is not a number: {error}") from error
    window = document.get("sliding_window")
    if window and document.get("use_sliding_window", True) and int(window) < trained_length:
        raise errors.Unsupported(
            f"{where}: a sliding window of {window} tokens below the context of {trained_length} is not built"
        )
    return config


def _unsupported(architecture: str) -> str:
    return (
        f"architecture {architecture!r} is not supported; supported: {families.SUPPORTED_TEXT} "
        "(SmolLM2 and Llama 2 are of family llama)"
    )
