"""Builders of tiny random checkpoints and engines, so that tests need no real model."""

import json
from pathlib import Path
from typing import Any

import safetensors.torch
import torch

from firsttoken_runtime import core
from firsttoken_runtime.engine import flags
from firsttoken_runtime.engine.local import LocalEngine
from firsttoken_runtime.model import checkpoint, shapes
from firsttoken_runtime.model import config as model_config

EOS = 2


def document(**changes: Any) -> dict[str, Any]:
    """A config.json of a small Llama with odd sizes."""
    return {
        "model_type": "llama",
        "vocab_size": 131,
        "hidden_size": 48,
        "intermediate_size": 80,
        "num_hidden_layers": 2,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "max_position_embeddings": 512,
        "tie_word_embeddings": True,
        "eos_token_id": EOS,
    } | changes


def write(folder: Path, *, shards: int = 1, **changes: Any) -> Path:
    """A folder with config.json and random weights, in `shards` safetensors files."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(document(**changes)))
    config = model_config.read(checkpoint.open_checkpoint(folder))
    generator = torch.Generator().manual_seed(1)
    tensors = {}
    for name, shape in shapes.expected(config).items():
        random = torch.randn(shape, generator=generator)
        stored = name if name.startswith("lm_head") else f"model.{name}"
        tensors[stored] = 1 + random / 10 if "norm" in name else random / shape[-1] ** 0.5
    names = list(tensors)
    files: dict[str, str] = {}
    for shard in range(shards):
        file = f"model-{shard + 1:05}-of-{shards:05}.safetensors" if shards > 1 else "model.safetensors"
        part = {name: tensors[name] for name in names[shard::shards]}
        safetensors.torch.save_file(part, folder / file)
        files |= dict.fromkeys(part, file)
    if shards > 1:
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": files}))
    return folder


def settings(folder: Path, **changes: Any) -> core.EngineSettings:
    """fp32 on one thread with a small pool."""
    given: dict[str, Any] = {
        "dtype": "float32",
        "device": "cpu",
        "threads": 1,
        "kv_blocks": 64,
        "max_num_seqs": 8,
    } | changes
    return core.EngineSettings(model_path=str(folder), **given)


def engine(folder: Path, in_force: flags.InForce | None = None, **changes: Any) -> LocalEngine:
    if not (folder / "config.json").exists():
        write(folder)
    return LocalEngine.load(settings(folder, **changes), in_force)


def greedy(max_tokens: int = 12, **changes: Any) -> core.SamplingParams:
    return core.SamplingParams(**{"max_tokens": max_tokens, "temperature": 0.0, "ignore_eos": True} | changes)
