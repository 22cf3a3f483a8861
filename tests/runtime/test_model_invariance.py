"""Batch-invariant mode of the families that do more than the plain block: windows, soft-capping, experts.

A request alone, and the same one among others with prompts cut into odd chunks, must have the same tokens
and logprobs, bit for bit.
"""

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from firsttoken_runtime.engine import flags
from firsttoken_runtime.engine.local import LocalEngine
from runtime import tiny_model

WINDOW = {"sliding_window": 37, "head_dim": 8}
EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 28, "shared_expert_intermediate_size": 44}
MODELS: dict[str, dict[str, Any]] = {
    "mixtral": WINDOW | EXPERTS | {"num_local_experts": 5},
    "qwen2_moe": EXPERTS | {"num_experts": 5},
    "smollm3": {"no_rope_layers": [1, 0]},
    "qwen3": {"head_dim": 8},
    "gemma2": WINDOW | {"attn_logit_softcapping": 3.0, "final_logit_softcapping": 5.0},
    "gemma3_text": WINDOW | {"sliding_window_pattern": 2},
}


def answers(engine: LocalEngine, prompts: list[list[int]]) -> list[tuple[list[int], list[Any]]]:
    sampling = tiny_model.greedy(9, logprobs=2)
    ids = [engine.submit(prompt, sampling) for prompt in prompts]
    engine.run()
    return [(engine.tokens[one], engine.logprobs[one]) for one in ids]


@pytest.mark.parametrize("dtype", ["float32"])
@pytest.mark.parametrize("model_type", MODELS)
def test_a_request_has_the_same_bits_alone_and_among_others(
    model_type: str, dtype: str, tmp_path: Path
) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    folder = tiny_model.write(tmp_path, model_type=model_type, **MODELS[model_type])
    prompts = [
        draw.choices(range(3, 131), k=length) for length in (1, 3, 37, 64, 101, draw.randint(102, 300))
    ]
    whole = tiny_model.engine(folder, dtype=dtype, batch_invariant=True)
    cut = tiny_model.engine(
        folder, replace(flags.defaults(), chunk_tokens=draw.randint(5, 60)), dtype=dtype, batch_invariant=True
    )
    alone = [answers(whole, [prompt])[0] for prompt in prompts]
    assert answers(cut, prompts) == alone
