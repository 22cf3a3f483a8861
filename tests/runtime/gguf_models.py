"""Writes a tiny transformers model as llama.cpp's converter would: names from the gguf library, rows of Q
and K interleaved for Llama, Gemma's norms with 1 added, experts stacked, Llama 3's scaling as a tensor."""

import math
import re
from pathlib import Path
from typing import Any

import gguf
import torch

ARCHITECTURES = {
    "llama": gguf.MODEL_ARCH.LLAMA,
    "mistral": gguf.MODEL_ARCH.LLAMA,
    "mixtral": gguf.MODEL_ARCH.LLAMA,
    "qwen2": gguf.MODEL_ARCH.QWEN2,
    "qwen2_moe": gguf.MODEL_ARCH.QWEN2MOE,
    "qwen3": gguf.MODEL_ARCH.QWEN3,
    "qwen3_moe": gguf.MODEL_ARCH.QWEN3MOE,
    "smollm3": gguf.MODEL_ARCH.SMOLLM3,
    "gemma2": gguf.MODEL_ARCH.GEMMA2,
    "gemma3_text": gguf.MODEL_ARCH.GEMMA3,
}
EXPERT = re.compile(r"(.*\.experts)\.(\d+)\.(.*)")


def write(path: Path, config: Any, tensors: dict[str, torch.Tensor]) -> Path:
    """`config` is a transformers configuration, `tensors` what its model saves in a folder."""
    model_type = config.model_type
    architecture = ARCHITECTURES[model_type]
    writer = gguf.GGUFWriter(path, gguf.MODEL_ARCH_NAMES[architecture])
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    if getattr(config, "sliding_window", None):
        writer.add_sliding_window(config.sliding_window)
    if model_type == "gemma2":
        writer.add_attn_logit_softcapping(config.attn_logit_softcapping)
        writer.add_final_logit_softcapping(config.final_logit_softcapping)
    if model_type.startswith("gemma"):
        writer.add_attention_scale(config.query_pre_attn_scalar**-0.5)
    experts = getattr(config, "num_local_experts", getattr(config, "num_experts", 0))
    if "moe" in model_type or model_type == "mixtral":
        writer.add_expert_count(experts)
        writer.add_expert_used_count(config.num_experts_per_tok)
    rope = config.rope_parameters
    _rope(writer, rope.get("full_attention", rope), config.head_dim)
    names = gguf.get_tensor_name_map(architecture, config.num_hidden_layers)
    for name, tensor in _converted(config, tensors).items():
        stored = names.get_name(name, try_suffixes=(".weight", ".bias"))
        assert stored is not None, name
        writer.add_tensor(stored, tensor.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _rope(writer: Any, rope: dict[str, Any], head_dim: int) -> None:
    writer.add_rope_freq_base(rope["rope_theta"])
    if rope["rope_type"] == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(rope["factor"])
    if rope["rope_type"] == "yarn":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(rope["factor"])
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    if rope["rope_type"] == "llama3":
        writer.add_tensor("rope_freqs.weight", torch.tensor(_llama3_divisors(rope, head_dim)).numpy())


def _llama3_divisors(rope: dict[str, Any], head_dim: int) -> list[float]:
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    length, factor = rope["original_max_position_embeddings"], rope["factor"]
    divisors = []
    for pair in range(head_dim // 2):
        wave = 2 * math.pi * rope["rope_theta"] ** (2 * pair / head_dim)
        if wave < length / high:
            divisors.append(1.0)
        elif wave > length / low:
            divisors.append(factor)
        else:
            share = (length / wave - low) / (high - low)
            divisors.append(1 / ((1 - share) / factor + share))
    return divisors


def _converted(config: Any, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Under transformers' names, experts without their number."""
    interleaves = ARCHITECTURES[config.model_type] in (gguf.MODEL_ARCH.LLAMA, gguf.MODEL_ARCH.SMOLLM3)
    found: dict[str, torch.Tensor] = {}
    stacks: dict[str, dict[int, torch.Tensor]] = {}
    for name, tensor in tensors.items():
        if match := EXPERT.fullmatch(name):
            prefix, index, kind = match.groups()
            stacks.setdefault(f"{prefix}.{kind}", {})[int(index)] = tensor
            continue
        if interleaves and ".q_proj." in name:
            tensor = _interleaved(tensor, config.num_attention_heads)
        if interleaves and ".k_proj." in name:
            tensor = _interleaved(tensor, config.num_key_value_heads)
        if config.model_type.startswith("gemma") and name.endswith("norm.weight"):
            tensor = tensor + 1
        found[name] = tensor
    for name, stack in stacks.items():
        found[name] = torch.stack([stack[index] for index in sorted(stack)])
    return found


def _interleaved(tensor: torch.Tensor, num_heads: int) -> torch.Tensor:
    halves = tensor.reshape(num_heads, 2, tensor.shape[0] // num_heads // 2, *tensor.shape[1:])
    return halves.swapaxes(1, 2).reshape(tensor.shape).contiguous()
