"""Every family of the table against transformers' eager model, tiny and random, in fp32."""

import importlib
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from firsttoken_runtime import core
from firsttoken_runtime.engine import runner
from firsttoken_runtime.engine.local import LocalEngine
from firsttoken_runtime.model import families
from firsttoken_runtime.scheduler.sequence import ScheduledStep, Sequence, Work
from runtime import tiny_model

SIZES = {
    "vocab_size": 131,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 512,
    "rope_theta": 10000.0,
    "initializer_range": 0.3,
}


def transformers_model(model_type: str, *, tied: bool) -> Any:
    transformers: Any = importlib.import_module("transformers")

    extra = {"sliding_window": None} if model_type == "mistral" else {}
    config = transformers.AutoConfig.for_model(model_type, **SIZES, **extra, tie_word_embeddings=tied)
    torch.manual_seed(3)
    model = transformers.AutoModelForCausalLM.from_config(
        config, attn_implementation="eager", dtype=torch.float32
    )
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias") or "norm" in name:  # ones and zeros would hide a dropped tensor
                parameter += torch.randn_like(parameter) / 3
    return model.eval()


def logits_of(engine: LocalEngine, ids: list[int], cuts: list[int]) -> torch.Tensor:
    """Logits of every position, computed in chunks that end at `cuts`; single tokens as decodes."""
    sequence = Sequence(1, ids, core.SamplingParams(max_tokens=1), 0.0)
    sequence.block_table = random.Random(0).sample(range(60), -(-len(ids) // 16))
    rows = []
    first = 0
    for cut in cuts:
        work = (Work(sequence, first, cut - first, samples=True),)
        is_decode = cut - first == 1 and first > 0
        step = ScheduledStep(1, decodes=work) if is_decode else ScheduledStep(1, prefills=work)
        step_input = runner.step_input(step, 16, torch.device("cpu"))
        step_input = replace(step_input, logit_rows=torch.arange(cut - first))
        with torch.inference_mode():
            rows.append(engine.engine.runner.model(step_input, engine.engine.runner.cache))
        first = cut
    return torch.cat(rows)


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
@pytest.mark.parametrize("model_type", [family.model_type for family in families.FAMILIES])
def test_parity(model_type: str, tied: bool, tmp_path: Path) -> None:
    theirs = transformers_model(model_type, tied=tied)
    theirs.save_pretrained(tmp_path)
    ours = tiny_model.engine(tmp_path)
    ids = random.Random(5).choices(range(131), k=201)
    with torch.inference_mode():
        expected = theirs(torch.tensor([ids])).logits[0]
    for cuts in ([201], [100, 199, 200, 201]):
        difference = (logits_of(ours, ids, cuts) - expected).abs().max()
        assert difference <= 2e-5 * expected.abs().max(), (cuts, float(difference))
