"""The whole decoder against transformers in fp32, on the real SmolLM2 weights of the packaged .gguf."""

import functools
import importlib
import random
from pathlib import Path
from typing import Any

import pytest
import torch

from firsttoken_runtime import core
from firsttoken_runtime.engine.local import LocalEngine
from firsttoken_runtime.model import checkpoint, gguf_file
from firsttoken_runtime.server import tokenizer
from runtime import families

pytestmark = pytest.mark.model

PROMPTS = [
    "The capital of France is",
    "def fibonacci(n):\n    ",
    "Water boils at",
    "In 1961, the first human in space was",
    "Roses are red, violets are",
    "1, 2, 3, 4, 5,",
    "The opposite of hot is",
    "Dear Sir or Madam,\n\nI am writing to",
    "Once upon a time there was a",
    "The three primary colours are",
    "SELECT name FROM users WHERE",
    "Die Hauptstadt von Deutschland ist",
    "To bake bread you need flour,",
    "The speed of light is about",
    "import numpy as np\n\ndef mean(values):\n",
    "A haiku about rain:\n",
    "Q: What is 7 times 8?\nA:",
    "The largest planet of the solar system is",
    "She opened the door and",
    "Photosynthesis is the process by which",
]
NEW_TOKENS = 64


SMOLLM2: dict[str, Any] = {
    "vocab_size": 49152,
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-5,
    "rope_theta": 100000.0,
    "tie_word_embeddings": True,
}


@pytest.fixture(scope="module")
def theirs(packaged_model: Path) -> Any:
    """transformers' eager model with the weights as transformers itself reads them from the .gguf."""
    transformers: Any = importlib.import_module("transformers")
    gguf: Any = importlib.import_module("gguf")
    read: Any = importlib.import_module("transformers.modeling_gguf_pytorch_utils").load_gguf_checkpoint

    torch.set_num_threads(1)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**SMOLLM2, attn_implementation="eager"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gguf.GGUFReader", gguf_file.Reader)  # the same bytes in a third of the time
        # It makes this map anew for each of the model's modules, which takes as long as all the rest.
        patch.setattr("gguf.get_tensor_name_map", functools.cache(gguf.get_tensor_name_map))
        state = read(str(packaged_model), return_tensors=True, model_to_load=model)["tensors"]
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not unexpected
    assert missing == ["lm_head.weight"], "only the output layer may be missing: it is tied"
    model.tie_weights()
    return model.eval()


@pytest.fixture(scope="module")
def ours(packaged_model: Path) -> LocalEngine:
    settings = core.EngineSettings(
        model_path=str(packaged_model), dtype="float32", threads=1, kv_blocks=128, max_model_len=1024
    )
    return LocalEngine.load(settings)


@pytest.mark.parametrize("length", [1, 17, 512])
def test_logits_differ_by_at_most_2e_5_of_the_largest(ours: LocalEngine, theirs: Any, length: int) -> None:
    ids = random.Random(length).choices(range(17, 49152), k=length)
    with torch.inference_mode():
        expected = theirs(torch.tensor([ids])).logits[0]
    actual = families.logits(ours.engine.runner.model, ids, sorted({min(length, 299), length}))
    largest = expected.abs().max()
    difference = (actual - expected).abs().max()
    print(f"{length} tokens: largest logit {largest:.2f}, largest difference {difference:.2e}")
    assert difference <= 2e-5 * largest


def test_greedy_tokens_of_20_prompts_equal(ours: LocalEngine, theirs: Any, packaged_model: Path) -> None:
    text = tokenizer.load(checkpoint.open_checkpoint(packaged_model))
    prompts = [text.encode(prompt, add_special_tokens=False) for prompt in PROMPTS]
    sampling = core.SamplingParams(max_tokens=NEW_TOKENS, temperature=0.0, ignore_eos=True)
    outputs = ours.generate(prompts, sampling)
    assert {len(output) for output in outputs} == {NEW_TOKENS}
    for prompt, output in zip(prompts, outputs, strict=True):
        assert greedy_after(theirs, prompt, output) == output
    ours.loop.scheduler.check_integrity()


def greedy_after(model: Any, ids: list[int], output: list[int]) -> list[int]:
    """What the model would say after each prefix of `output`. Equal to `output` itself exactly when its
    own greedy generation is `output` (by induction over its tokens), in one pass instead of many."""
    with torch.inference_mode():
        logits = model(torch.tensor([ids + output[:-1]])).logits[0]
    tokens: list[int] = logits[len(ids) - 1 :].argmax(-1).tolist()
    return tokens
