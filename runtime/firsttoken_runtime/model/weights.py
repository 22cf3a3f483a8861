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

from firsttoken_runtime.model import architecture, checkpoint, errors, gguf_file, shapes, tensor_names

Progress = Callable[[float], None]
"""Called with the loaded share, 0..1."""


def load(
    source: checkpoint.Checkpoint,
    config: architecture.ModelConfig,
    dtype: torch.dtype,
    device: torch.device,
    progress: Progress,
) -> dict[str, torch.Tensor]:
    """All tensors of `shapes.expected`. Raises `errors.ModelError` when one is missing or misshapen."""
    expected = shapes.expected(config)
    tensors: dict[str, torch.Tensor] = {}
    path = source.path
    found = _from_gguf(source.gguf, config) if source.gguf else _from_folder(path, config)
    for name, tensor in found:
        if name not in expected:
            if _may_be_left_out(name, config):
                continue
            raise errors.Unsupported(f"{path} holds a tensor the decoder has no place for: {name}")
        if tuple(tensor.shape) != expected[name]:
            raise errors.ModelUnreadable(
                f"{path}: {name} has shape {tuple(tensor.shape)}, the configuration says {expected[name]}"
            )
        if not tensor.is_floating_point() or tensor.dtype.itemsize < 2:
            raise errors.Unsupported(f"{path}: {name} is {tensor.dtype}; pre-quantized weights are not built")
        kept = torch.float32 if config.family.norm_adds_one and tensor_names.is_norm(name) else dtype
        tensors[name] = tensor.to(device=device, dtype=kept, copy=True)
        progress(len(tensors) / len(expected))
    if missing := sorted(expected.keys() - tensors.keys()):
        raise errors.ModelUnreadable(f"{path} lacks {len(missing)} tensors, the first is {missing[0]}")
    return tensors


def _may_be_left_out(name: str, config: architecture.ModelConfig) -> bool:
    """Derived from the configuration, a tied table stored twice, or a part that is not served."""
    if tensor_names.is_derived(name) or (name == "lm_head.weight" and config.tied_embeddings):
        return True
    return config.is_text_part and tensor_names.is_vision(name)


def _from_gguf(file: gguf_file.File, config: architecture.ModelConfig) -> Iterator[tuple[str, torch.Tensor]]:
    for gguf_name, array in file.tensors():
        name = tensor_names.from_gguf(gguf_name, config.family)
        tensor = torch.from_numpy(array)
        if config.family.gguf_permutes_query_key:
            if ".q_proj." in name:
                tensor = _unpermute(tensor, config.num_heads)
            elif ".k_proj." in name:
                tensor = _unpermute(tensor, config.num_kv_heads)
        if name.endswith(".shared_expert_gate.weight"):
            tensor = tensor.reshape(1, -1)
        yield from tensor_names.unstacked(name, tensor)


def _unpermute(weight: torch.Tensor, num_heads: int) -> torch.Tensor:
    """Undo llama.cpp's converter, which interleaves the two halves of each head's rows.

    weight: [heads x D, in] -> the same shape, pairs (i, i + D/2) again.
    """
    rows = weight.shape[0] // num_heads // 2
    return weight.view(num_heads, rows, 2, *weight.shape[1:]).transpose(1, 2).reshape(weight.shape)


def _from_folder(folder: Path, config: architecture.ModelConfig) -> Iterator[tuple[str, torch.Tensor]]:
    for file in _safetensors_files(folder):
        try:
            with safetensors.safe_open(file, framework="pt") as handle:
                for stored_name in handle.keys():  # noqa: SIM118 - not a mapping
                    name = tensor_names.from_folder(stored_name)
                    if config.is_text_part and tensor_names.is_vision(name):
                        continue  # never read: it may be as large as a small model
                    tensor = handle.get_tensor(stored_name)
                    if config.family.norm_adds_one and tensor_names.is_norm(name):
                        tensor = tensor.float() + 1
                    yield from tensor_names.unstacked(name, tensor)
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
