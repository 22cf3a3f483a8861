"""Builders of tiny random instances of every model family, made and saved by transformers itself.

Sizes are small and odd, windows are shorter than the prompts, and biases and norms are random too:
ones and zeros would hide a dropped tensor.
"""

import functools
import importlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from firsttoken_kernels import attention, paged_cache
from firsttoken_runtime.model import architecture, checkpoint, decoder, layers, weights
from firsttoken_runtime.model import config as model_config

VOCABULARY = 131
SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 48,
    "intermediate_size": 76,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 512,
    "initializer_range": 0.2,
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": None,
}
WINDOW = {"sliding_window": 37}
EXPERTS = {
    "num_experts": 5,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 28,
    "shared_expert_intermediate_size": 44,
}
GEMMA = {"num_hidden_layers": 4, "query_pre_attn_scalar": 11, "pad_token_id": 0, "tie_word_embeddings": True}
BLOCK_SIZE = 16


@dataclass(frozen=True)
class Case:
    """One instance: a family and what its configuration says beyond `SIZES`."""

    name: str
    model_type: str
    changes: dict[str, Any] = field(default_factory=dict)


def rope(kind: str, **parameters: Any) -> dict[str, Any]:
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 10000.0} | parameters}


LLAMA3 = rope(
    "llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64
)
YARN = rope("yarn", factor=4.0, original_max_position_embeddings=128)
QWEN_WINDOW = {"use_sliding_window": True, "max_window_layers": 1} | WINDOW
LOCAL_AND_GLOBAL = {
    "rope_parameters": {
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
    }
}

CASES = (
    Case("llama", "llama"),
    Case(
        "llama-tied-biases", "llama", {"tie_word_embeddings": True, "attention_bias": True, "mlp_bias": True}
    ),
    Case("llama-llama3-rope", "llama", LLAMA3),
    Case("llama-linear-rope", "llama", rope("linear", factor=3.0)),
    Case("llama-dynamic-rope", "llama", rope("dynamic", factor=2.0)),
    Case("llama-yarn", "llama", YARN),
    Case(
        "llama-yarn-all-parameters",
        "llama",
        rope(
            "yarn",
            factor=4.0,
            original_max_position_embeddings=128,
            beta_fast=20.0,
            beta_slow=2.0,
            mscale=0.7,
            mscale_all_dim=1.3,
            truncate=False,
        ),
    ),
    Case("mistral", "mistral", {"sliding_window": None}),
    Case("mistral-window", "mistral", WINDOW),
    Case("mixtral", "mixtral", {"num_local_experts": 5, "num_experts_per_tok": 2}),
    Case("mixtral-window", "mixtral", {"num_local_experts": 5, "num_experts_per_tok": 3} | WINDOW),
    Case("qwen2", "qwen2"),
    Case("qwen2-window-tied", "qwen2", QWEN_WINDOW | {"tie_word_embeddings": True}),
    Case("qwen2-moe", "qwen2_moe", EXPERTS),
    Case(
        "qwen2-moe-mixed",
        "qwen2_moe",
        EXPERTS
        | {"norm_topk_prob": True, "qkv_bias": False, "mlp_only_layers": [1], "num_hidden_layers": 4}
        | {"use_sliding_window": True, "max_window_layers": 3}
        | WINDOW,
    ),
    Case("qwen3", "qwen3", YARN),
    Case("qwen3-window-bias", "qwen3", QWEN_WINDOW | {"attention_bias": True}),
    Case("qwen3-moe", "qwen3_moe", EXPERTS | {"norm_topk_prob": True}),
    Case("qwen3-moe-every-second", "qwen3_moe", EXPERTS | {"decoder_sparse_step": 2} | QWEN_WINDOW),
    Case("smollm3", "smollm3", {"num_hidden_layers": 5, "tie_word_embeddings": True}),
    Case(
        "smollm3-window",
        "smollm3",
        {"no_rope_layers": [1, 0, 1], "use_sliding_window": True, "attention_bias": True, "mlp_bias": True}
        | WINDOW,
    ),
    Case(
        "gemma2",
        "gemma2",
        GEMMA | WINDOW | {"attn_logit_softcapping": 3.0, "final_logit_softcapping": 5.0},
    ),
    Case(
        "gemma2-untied-bias",
        "gemma2",
        GEMMA | {"tie_word_embeddings": False, "attention_bias": True, "final_logit_softcapping": None},
    ),
    Case("gemma3", "gemma3_text", GEMMA | WINDOW | {"num_hidden_layers": 7}),
    Case("gemma3-linear-global", "gemma3_text", GEMMA | WINDOW | LOCAL_AND_GLOBAL | {"num_hidden_layers": 7}),
)


def by_name(name: str) -> Case:
    return next(case for case in CASES if case.name == name)


@functools.cache
def transformers_model(name: str) -> Any:
    """The case of this name: eager, fp32, random. Shared by tests; leave it as it is."""
    case = by_name(name)
    transformers: Any = importlib.import_module("transformers")
    config = transformers.AutoConfig.for_model(case.model_type, **SIZES | case.changes)
    torch.manual_seed(3)
    model = transformers.AutoModelForCausalLM.from_config(
        config, attn_implementation="eager", dtype=torch.float32
    )
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias") or "norm" in name:
                parameter += torch.randn_like(parameter) / 3
    return model.eval()


def save(model: Any, folder: Path, **how: Any) -> Path:
    model.save_pretrained(folder, **how)
    return folder


def load(
    path: Path,
    dtype: torch.dtype = torch.float32,
    numerics: layers.Numerics = layers.Numerics(),  # noqa: B008
) -> decoder.Decoder:
    """The model at `path`, on the CPU."""
    source = checkpoint.open_checkpoint(path)
    config = model_config.read(source)
    with torch.inference_mode():
        tensors = weights.load(source, config, dtype, torch.device("cpu"), lambda _: None)
        found = decoder.Decoder(config, tensors, numerics)
    assert not tensors, f"loaded and not used: {sorted(tensors)}"
    return found


def cache(
    config: architecture.ModelConfig, dtype: torch.dtype = torch.float32
) -> list[paged_cache.LayerCache]:
    """Room for 40 blocks, full of NaN."""
    shape = (config.num_layers, 2, 40 * BLOCK_SIZE, config.num_kv_heads, config.head_dim)
    return [paged_cache.LayerCache(layer) for layer in torch.full(shape, float("nan"), dtype=dtype)]


class Run:
    """One sequence over a cache of its own."""

    def __init__(self, model: decoder.Decoder, ids: Sequence[int]) -> None:
        self.model = model
        self.ids = list(ids)
        self.cache = cache(model.config, model.dtype)
        self.computed = 0

    def to(self, last: int) -> torch.Tensor:
        """Logits of the tokens up to `last` not computed yet; a single one is a decode.  -> [T, V]."""
        first = self.computed
        self.computed = last
        table = list(range(39, 39 - -(-last // BLOCK_SIZE), -1))  # not in order of memory
        is_decode = last - first == 1 and first > 0
        plan = attention.plan(
            torch.tensor([table], dtype=torch.int64)[: int(is_decode)],
            torch.tensor([last] if is_decode else [], dtype=torch.int64),
            [] if is_decode else [attention.Prefill(table, last - first, last)],
            BLOCK_SIZE,
            torch.device("cpu"),
            windows=self.model.config.windows,
        )
        step = decoder.StepInput(
            token_ids=torch.tensor(self.ids[first:last]),
            positions=torch.arange(first, last),
            attention_plan=plan,
            logit_rows=torch.arange(last - first),
        )
        with torch.inference_mode():
            return self.model(step, self.cache)


def logits(model: decoder.Decoder, ids: Sequence[int], cuts: Sequence[int]) -> torch.Tensor:
    """Of every position, computed in chunks that end at `cuts`.  -> [T, V]."""
    run = Run(model, ids)
    return torch.cat([run.to(cut) for cut in cuts])


def greedy(model: decoder.Decoder, ids: Sequence[int], num_tokens: int) -> list[int]:
    """The likeliest tokens after `ids`."""
    run = Run(model, ids)
    for _ in range(num_tokens):
        run.ids.append(int(run.to(len(run.ids))[-1].argmax()))
    return run.ids[len(ids) :]
