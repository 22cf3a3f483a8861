"""The host tier over a restart of the engine: what comes back is exact, what is damaged is a miss.

Every answer is compared to the last bit with that of an engine that caches nothing.
"""

import random
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from firsttoken_runtime.cache import disk_folder
from firsttoken_runtime.engine import flags, host_tier
from firsttoken_runtime.engine.local import LocalEngine
from firsttoken_runtime.server import engine_client
from runtime import cached_engine, tiny_model
from runtime.cached_engine import BLOCK

PROMPT = random.Random(5).choices(range(3, cached_engine.VOCABULARY), k=9 * BLOCK + 3)
SHARED = 4 * BLOCK
WHOLE = cached_engine.largest_hit(len(PROMPT))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model.write(tmp_path_factory.mktemp("model"), num_hidden_layers=cached_engine.NUM_LAYERS)


@pytest.fixture(scope="module")
def cold(model: Path) -> dict[flags.KvType, cached_engine.Answer]:
    """What a request is answered without a cache."""
    answers = {}
    for kv_type in cached_engine.KV_TYPES:
        local = cached_engine.engine(model, cached_engine.in_force(kv_type, cached=False))
        sequence_id = cached_engine.ask(local, PROMPT, shared_prefix_tokens=SHARED)
        answers[kv_type] = cached_engine.answer(local, sequence_id)
    return answers


def started(
    model: Path, folder: Path, kv_type: flags.KvType = "full", host_bytes: int = 8 << 20
) -> LocalEngine:
    """An engine that has taken in what the folder had."""
    local = cached_engine.engine(
        model,
        cached_engine.in_force(kv_type, kv_tiering=True),
        host_memory_bytes=host_bytes,
        host_folder=str(folder),
    )
    deadline = time.monotonic() + 30
    while local.engine.host.is_restoring:
        local.engine.host.settle(is_idle=True)
        assert time.monotonic() < deadline
    return local


def asked(local: LocalEngine) -> tuple[int, cached_engine.Answer]:
    """Tokens that were found, and the answer."""
    sequence_id = cached_engine.ask(local, PROMPT, shared_prefix_tokens=SHARED)
    return local.cached_tokens[sequence_id], cached_engine.answer(local, sequence_id)


def filled(model: Path, folder: Path, kv_type: flags.KvType = "full") -> list[Path]:
    """Serve, end, and return the files that were left, in no order."""
    local = started(model, folder, kv_type)
    asked(local)
    asked(local)  # hit once: worth keeping
    local.engine.close()
    return list(folder.glob("[!.]*.kv"))


@pytest.mark.parametrize("kv_type", cached_engine.KV_TYPES)
def test_blocks_come_back_after_a_restart(
    model: Path, tmp_path: Path, cold: dict[flags.KvType, cached_engine.Answer], kv_type: flags.KvType
) -> None:
    assert len(filled(model, tmp_path, kv_type)) == WHOLE // BLOCK
    local = started(model, tmp_path, kv_type)
    assert asked(local) == (WHOLE, cold[kv_type])
    assert cached_engine.hits(local, "host") == WHOLE
    stats = local.loop.stats()
    assert (stats.loads_total, stats.host_problems) == (WHOLE // BLOCK, {})
    local.engine.close()


def test_what_another_flag_set_left_is_not_used(
    model: Path, tmp_path: Path, cold: dict[flags.KvType, cached_engine.Answer]
) -> None:
    files = filled(model, tmp_path, "int8")
    local = started(model, tmp_path, "fp8")
    assert asked(local) == (0, cold["fp8"])
    assert local.loop.stats().host_problems == {"other_lineage": len(files)}
    local.engine.close()


def test_a_hot_switch_brings_back_what_its_flag_set_left(
    model: Path, tmp_path: Path, cold: dict[flags.KvType, cached_engine.Answer]
) -> None:
    filled(model, tmp_path, "int8")
    local = started(model, tmp_path, "full")
    local.engine.switch(cached_engine.in_force("int8", kv_tiering=True))
    while local.engine.host.is_restoring:
        local.engine.host.settle(is_idle=True)
    assert asked(local) == (WHOLE, cold["int8"])
    local.engine.close()


def flip_a_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 16
    path.write_bytes(data)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:1000])


def make_other_version(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[4] += 1
    path.write_bytes(data)


def exchange(path: Path) -> None:
    """The contents of another block under this name."""
    other = next(one for one in sorted(path.parent.glob("[!.]*.kv")) if one != path)
    path.write_bytes(other.read_bytes())


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (flip_a_bit, "damaged"),
        (cut, "damaged"),
        (make_other_version, "other_version"),
        (exchange, "damaged"),
    ],
)
def test_a_bad_file_costs_its_hit_and_nothing_else(
    model: Path,
    tmp_path: Path,
    cold: dict[flags.KvType, cached_engine.Answer],
    spoil: Callable[[Path], None],
    reason: str,
) -> None:
    files = filled(model, tmp_path)
    spoiled = sorted(files)[len(files) // 2]
    spoil(spoiled)
    local = started(model, tmp_path)
    found, answer = asked(local)
    assert answer == cold["full"]
    assert 0 <= found < WHOLE
    assert local.loop.stats().host_problems == {reason: 1}
    assert asked(local) == (WHOLE, cold["full"])
    local.engine.close()


def test_a_folder_that_cannot_be_used_is_served_without(
    model: Path,
    tmp_path: Path,
    cold: dict[flags.KvType, cached_engine.Answer],
    caplog: pytest.LogCaptureFixture,
) -> None:
    blocked = tmp_path / "kv"
    blocked.write_text("a file where the folder should be")
    local = started(model, blocked)
    assert asked(local) == (0, cold["full"])
    assert asked(local) == (WHOLE, cold["full"])
    assert local.loop.stats().host_problems == {"unreadable": 1}
    local.engine.close()
    assert "host tier, unwritable" in caplog.text
    assert blocked.read_text() == "a file where the folder should be"


def test_a_slow_disk_does_not_hold_up_the_end(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert host_tier.CLOSING_S < engine_client.SHUTDOWN_GRACE_S, "else the engine is killed in the middle"
    monkeypatch.setattr(host_tier, "CLOSING_S", 0.4)
    is_quick = threading.Event()
    monkeypatch.setattr(disk_folder.Folder, "write", lambda *_: is_quick.wait(30.0))
    local = started(model, tmp_path)
    asked(local)
    asked(local)
    began_s = time.monotonic()
    local.engine.close()
    assert time.monotonic() - began_s < 3.0
    is_quick.set()


def test_a_tier_smaller_than_what_the_folder_holds_takes_what_fits(
    model: Path, tmp_path: Path, cold: dict[flags.KvType, cached_engine.Answer]
) -> None:
    filled(model, tmp_path)
    record_bytes = 3 * 2 * BLOCK * 2 * 8 * 4  # layers, keys and values, tokens, heads, elements, fp32
    local = started(model, tmp_path, host_bytes=4 * record_bytes)
    assert local.loop.stats().host_blocks == 4
    found, answer = asked(local)
    assert answer == cold["full"]
    assert found <= 4 * BLOCK
    local.engine.close()
