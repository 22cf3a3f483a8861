"""Every family against transformers' eager model, tiny and random, in fp32."""

import random
from dataclasses import replace
from pathlib import Path

import pytest
import safetensors.torch
import torch

from firsttoken_runtime.engine import flags
from runtime import families, gguf_models, tiny_model

LENGTH = 512
NEW_TOKENS = 64


@pytest.mark.parametrize("case", families.CASES, ids=lambda case: case.name)
def test_parity(case: families.Case, tmp_path: Path) -> None:
    """In one piece, and in chunks with decodes between; longer than every window."""
    torch.set_num_threads(1)
    theirs = families.transformers_model(case.name)
    ours = families.load(families.save(theirs, tmp_path))
    ids = random.Random(5).choices(range(families.VOCABULARY), k=LENGTH)
    with torch.inference_mode():
        expected = theirs(torch.tensor([ids])).logits[0]
    largest = expected.abs().max()
    for cuts in ([LENGTH], [100, 199, 200, 201, LENGTH]):
        difference = (families.logits(ours, ids, cuts) - expected).abs().max()
        print(f"{case.name} {cuts}: largest {largest:.2f}, difference {difference / largest:.1e} of it")
        assert difference <= 2e-5 * largest, (cuts, float(difference / largest))


@pytest.mark.parametrize("case", families.CASES, ids=lambda case: case.name)
def test_greedy_text_is_equal(case: families.Case, tmp_path: Path) -> None:
    """Two sequences at once through the whole engine, prompts in chunks that end inside a window."""
    theirs = families.transformers_model(case.name)
    in_force = replace(flags.defaults(), chunk_tokens=64)
    ours = tiny_model.engine(families.save(theirs, tmp_path), in_force)
    prompts = [random.Random(length).choices(range(families.VOCABULARY), k=length) for length in (31, 133)]
    outputs = ours.generate(prompts, tiny_model.greedy(NEW_TOKENS))
    for prompt, output in zip(prompts, outputs, strict=True):
        # Equal to its own greedy text exactly when it would say each token after those before it.
        with torch.inference_mode():
            logits = theirs(torch.tensor([prompt + output[:-1]])).logits[0]
        assert len(output) == NEW_TOKENS
        assert logits[len(prompt) - 1 :].argmax(-1).tolist() == output


@pytest.mark.parametrize("name", ["llama", "mixtral", "qwen2-moe", "gemma3"])
def test_shards_are_the_same_model(name: str, tmp_path: Path) -> None:
    theirs = families.transformers_model(name)
    one = families.load(families.save(theirs, tmp_path / "one"))
    folder = families.save(theirs, tmp_path / "many", max_shard_size="40KB")
    assert len(list(folder.glob("*.safetensors"))) > 2
    many = families.load(folder)
    ids = random.Random(6).choices(range(families.VOCABULARY), k=51)
    assert torch.equal(families.logits(one, ids, [51]), families.logits(many, ids, [51]))


GGUF = (
    "llama",
    "llama-tied-biases",
    "llama-llama3-rope",
    "llama-linear-rope",
    "llama-yarn",
    "mistral-window",
    "mixtral",
    "qwen2",
    "qwen2-moe",
    "qwen3",
    "qwen3-moe",
    "smollm3",
    "gemma2",
    "gemma3",
    "gemma3-linear-global",
)


@pytest.mark.parametrize("name", GGUF)
def test_a_gguf_file_is_the_same_model(name: str, tmp_path: Path) -> None:
    theirs = families.transformers_model(name)
    folder = families.save(theirs, tmp_path)
    stored = safetensors.torch.load_file(folder / "model.safetensors")
    path = gguf_models.write(tmp_path / "model.gguf", theirs.config, stored)
    ids = random.Random(6).choices(range(families.VOCABULARY), k=201)
    one, other = families.load(folder), families.load(path)
    assert other.config.architecture == one.config.architecture
    assert other.config.layers == one.config.layers or name == "llama-llama3-rope"
    assert other.config.num_parameters == one.config.num_parameters
    expected, actual = families.logits(one, ids, [201]), families.logits(other, ids, [201])
    # Metadata is fp32: the epsilon of the norms and the scale of attention are rounded.
    assert (actual - expected).abs().max() <= 1e-5 * expected.abs().max()
