"""Streaming a checkpoint into named tensors of the compute type.

Both formats arrive under one set of names (those of transformers' checkpoints, without the `model.`
prefix). Tensors are converted one at a time, so that the peak is the model in its compute type plus
one tensor in fp32.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import safetensors
import torch

from firsttoken_runtime.model import checkpoint, errors, gguf_file
from firsttoken_runtime.model import config as model_config

Progress = Callable[[float], None]
"""Called with the loaded share, 0..1."""

_GGUF_TOP = {"token_embd": "embed_tokens", "output_norm": "norm", "output": "lm_head"}
_GGUF_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def expected_shapes(config: model_config.ModelConfig) -> dict[str, tuple[int, ...]]:
    """Every tensor the decoder needs, by name."""
    hidden, queries = config.hidden_size, config.num_heads * config.head_dim
    kv, inner = config.num_kv_heads * config.head_dim, config.intermediate_size
    shapes: dict[str, tuple[int, ...]] = {
        "embed_tokens.weight": (config.vocabulary_size, hidden),
        "norm.weight": (hidden,),
    }
    if not config.tied_embeddings:
        shapes["lm_head.weight"] = (config.vocabulary_size, hidden)
    for layer in range(config.num_layers):
        prefix = f"layers.{layer}."
        shapes |= {
            f"{prefix}input_layernorm.weight": (hidden,),
            f"{prefix}self_attn.q_proj.weight": (queries, hidden),
            f"{prefix}self_attn.k_proj.weight": (kv, hidden),
            f"{prefix}self_attn.v_proj.weight": (kv, hidden),
            f"{prefix}self_attn.o_proj.weight": (hidden, queries),
            f"{prefix}post_attention_layernorm.weight": (hidden,),
            f"{prefix}mlp.gate_proj.weight": (inner, hidden),
            f"{prefix}mlp.up_proj.weight": (inner, hidden),
            f"{prefix}mlp.down_proj.weight": (hidden, inner),
        }
        if config.family.qkv_bias:
            shapes |= {
                f"{prefix}self_attn.{name}_proj.bias": (size,)
                for name, size in (("q", queries), ("k", kv), ("v", kv))
            }
        if config.family.query_key_norm:
            shapes |= {f"{prefix}self_attn.{name}_norm.weight": (config.head_dim,) for name in "qk"}
    return shapes


def load(
    source: checkpoint.Checkpoint,
    config: model_config.ModelConfig,
    dtype: torch.dtype,
    device: torch.device,
    progress: Progress,
) -> dict[str, torch.Tensor]:
    """All tensors of `expected_shapes`. Raises `errors.ModelError` when one is missing or misshapen."""
    expected = expected_shapes(config)
    tensors: dict[str, torch.Tensor] = {}
    path = source.path
    found = _from_gguf(source.gguf, config) if source.gguf else _from_folder(path)
    for name, tensor in found:
        if name not in expected:
            if name.endswith(".rotary_emb.inv_freq") or (name == "lm_head.weight" and config.tied_embeddings):
                continue  # derived from the configuration; a tied table stored twice
            raise errors.Unsupported(f"{path} holds a tensor the decoder has no place for: {name}")
        if tuple(tensor.shape) != expected[name]:
            raise errors.ModelUnreadable(
                f"{path}: {name} has shape {tuple(tensor.shape)}, the configuration says {expected[name]}"
            )
        if not tensor.is_floating_point() or tensor.dtype.itemsize < 2:
            raise errors.Unsupported(f"{path}: {name} is {tensor.dtype}; pre-quantized weights are not built")
        tensors[name] = tensor.to(device=device, dtype=dtype, copy=True)
        progress(len(tensors) / len(expected))
    if missing := sorted(expected.keys() - tensors.keys()):
        raise errors.ModelUnreadable(f"{path} lacks {len(missing)} tensors, the first is {missing[0]}")
    return tensors


def _from_gguf(file: gguf_file.File, config: model_config.ModelConfig) -> Iterator[tuple[str, torch.Tensor]]:
    for gguf_name, array in file.tensors():
        name = gguf_to_name(gguf_name)
        tensor = torch.from_numpy(array)
        if config.family.gguf_permutes_query_key:
            if ".q_proj." in name:
                tensor = _unpermute(tensor, config.num_heads)
            elif ".k_proj." in name:
                tensor = _unpermute(tensor, config.num_kv_heads)
        yield name, tensor


def gguf_to_name(gguf_name: str) -> str:
    """`blk.3.attn_q.weight` -> `layers.3.self_attn.q_proj.weight`; unknown names come back unchanged."""
    stem, _, kind = gguf_name.rpartition(".")
    if stem in _GGUF_TOP:
        return f"{_GGUF_TOP[stem]}.{kind}"
    parts = stem.split(".")
    if len(parts) == 3 and parts[0] == "blk" and parts[2] in _GGUF_LAYER:
        return f"layers.{parts[1]}.{_GGUF_LAYER[parts[2]]}.{kind}"
    return gguf_name


def _unpermute(weight: torch.Tensor, num_heads: int) -> torch.Tensor:
    """Undo llama.cpp's converter, which interleaves the two halves of each head's rows.

    weight: [heads x D, in] -> the same shape, pairs (i, i + D/2) again.
    """
    rows = weight.shape[0] // num_heads // 2
    return weight.view(num_heads, rows, 2, *weight.shape[1:]).transpose(1, 2).reshape(weight.shape)


def _from_folder(folder: Path) -> Iterator[tuple[str, torch.Tensor]]:
    for file in _safetensors_files(folder):
        try:
            with safetensors.safe_open(file, framework="pt") as handle:
                for name in handle.keys():  # noqa: SIM118 - not a mapping
                    yield name.removeprefix("model."), handle.get_tensor(name)
        except (safetensors.SafetensorError, OSError) as error:
            raise errors.ModelUnreadable(f"{file} is not a readable safetensors file: {error}") from error


def _safetensors_files(folder: Path) -> list[Path]:
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        try:
            names = sorted(set(json.loads(index.read_text())["weight_map"].values()))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise errors.ModelUnreadable(f"{index} is not a safetensors index: {error}") from error
        files = [folder / name for name in names]
    else:
        files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise errors.ModelNotFound(f"{folder} holds no *.safetensors file")
    for file in files:
        if not file.is_file():
            raise errors.ModelNotFound(f"{folder}: {file.name} is named by the index but is not there")
    return files
