"""The host tier over a restart: what the folder has is found again or is a miss, never wrong."""

import random
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch

from firsttoken_runtime.engine import flags
from firsttoken_runtime.engine.local import LocalEngine
from runtime import cached_engine, tiny_model
from runtime.cached_engine import BLOCK, KV_TYPES, VOCABULARY, in_force

PATIENCE_S = 20.0


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model.write(tmp_path_factory.mktemp("model"), num_hidden_layers=cached_engine.NUM_LAYERS)


@pytest.fixture
def prompt() -> list[int]:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    return random.Random(seed).choices(range(3, VOCABULARY), k=5 * BLOCK + 3)


def start(model: Path, folder: Path, kv_type: flags.KvType = "full", **changes: Any) -> LocalEngine:
    """With a folder; returns when what is in there was read."""
    local = cached_engine.engine(
        model,
        in_force(kv_type, kv_tiering=True),
        host_memory_bytes=8 << 20,
        host_folder=str(folder),
        **changes,
    )
    give_up = time.monotonic() + PATIENCE_S
    while local.engine.host.is_restoring:
        assert time.monotonic() < give_up
        local.engine.host.settle(is_idle=True)
        time.sleep(0.005)
    return local


def leave_behind(
    model: Path, folder: Path, prompt: list[int], kv_type: flags.KvType = "full"
) -> cached_engine.Answer:
    """An engine that was asked twice, so that the prompt is worth keeping, and ended in order."""
    local = start(model, folder, kv_type)
    first = cached_engine.ask(local, prompt, shared_prefix_tokens=2 * BLOCK)
    cached_engine.ask(local, prompt, shared_prefix_tokens=2 * BLOCK)
    local.engine.close()
    assert any(folder.iterdir())
    return cached_engine.answer(local, first)


def ask_again(local: LocalEngine, prompt: list[int], expected: cached_engine.Answer) -> int:
    """Tokens that were found; the answer is the expected one."""
    sequence_id = cached_engine.ask(local, prompt, shared_prefix_tokens=2 * BLOCK)
    assert cached_engine.answer(local, sequence_id) == expected
    found = local.cached_tokens[sequence_id]
    local.engine.close()
    return found


@pytest.mark.parametrize("kv_type", KV_TYPES)
def test_a_restart_finds_what_was_kept(
    model: Path, tmp_path: Path, prompt: list[int], kv_type: flags.KvType
) -> None:
    folder = tmp_path / "kv"
    expected = leave_behind(model, folder, prompt, kv_type)
    local = start(model, folder, kv_type)
    assert local.loop.stats().host_blocks > 0
    assert ask_again(local, prompt, expected) == 5 * BLOCK


def test_another_kv_type_finds_nothing(model: Path, tmp_path: Path, prompt: list[int]) -> None:
    folder = tmp_path / "kv"
    leave_behind(model, folder, prompt)
    cold = cached_engine.engine(model, in_force("int8", cached=False))
    asked = cached_engine.ask(cold, prompt, shared_prefix_tokens=2 * BLOCK)
    local = start(model, folder, "int8")
    assert ask_again(local, prompt, cached_engine.answer(cold, asked)) == 0


def test_other_weights_find_nothing(model: Path, tmp_path: Path, prompt: list[int]) -> None:
    folder, other = tmp_path / "kv", tmp_path / "other"
    leave_behind(model, folder, prompt)
    shutil.copytree(model, other)
    tensors = safetensors.torch.load_file(other / "model.safetensors")
    tensors["model.norm.weight"] *= 1.5
    safetensors.torch.save_file(tensors, other / "model.safetensors")
    cold = cached_engine.engine(other, in_force(cached=False))
    asked = cached_engine.ask(cold, prompt, shared_prefix_tokens=2 * BLOCK)
    local = start(other, folder)
    assert ask_again(local, prompt, cached_engine.answer(cold, asked)) == 0


def test_damaged_files_are_misses(model: Path, tmp_path: Path, prompt: list[int]) -> None:
    folder = tmp_path / "kv"
    expected = leave_behind(model, folder, prompt)
    for file in folder.rglob("*"):
        if file.is_file():
            content = bytearray(file.read_bytes())
            content[-1] ^= 1
            file.write_bytes(content)
    local = start(model, folder)
    assert sum(local.loop.stats().host_problems.values()) > 0
    assert ask_again(local, prompt, expected) == 0


def test_a_folder_that_cannot_be_written_costs_hits_only(
    model: Path, tmp_path: Path, prompt: list[int]
) -> None:
    folder = tmp_path / "kv"
    folder.write_text("a file, not a folder")
    local = start(model, folder)
    first = cached_engine.ask(local, prompt)
    second = cached_engine.ask(local, prompt)
    assert cached_engine.answer(local, first) == cached_engine.answer(local, second)
    assert local.cached_tokens[second] == 5 * BLOCK, "the device has it"
    local.engine.close()
    assert folder.read_text() == "a file, not a folder"
