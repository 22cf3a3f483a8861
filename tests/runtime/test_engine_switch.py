"""Hot switches of KV type and cache: streams go on, and afterwards the engine is one that started so."""

import random
from dataclasses import replace
from pathlib import Path

import pytest

from firsttoken_api import hot_settings
from firsttoken_runtime import core
from firsttoken_runtime.engine import flags
from firsttoken_runtime.engine.local import LocalEngine
from runtime import cached_engine, tiny_model
from runtime.cached_engine import BLOCK, KV_TYPES, VOCABULARY, in_force

Colds = dict[flags.KvType, LocalEngine]
OTHERS = [(before, after) for before in KV_TYPES for after in KV_TYPES if before != after]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model.write(tmp_path_factory.mktemp("model"), num_hidden_layers=cached_engine.NUM_LAYERS)


@pytest.fixture(scope="module")
def cold_by_type(folder: Path) -> Colds:
    """Engines without a cache."""
    return {kv_type: cached_engine.engine(folder, in_force(kv_type, cached=False)) for kv_type in KV_TYPES}


@pytest.fixture
def draw() -> random.Random:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    return random.Random(seed)


def drawn(draw: random.Random, length: int) -> list[int]:
    return draw.choices(range(3, VOCABULARY), k=length)


def greedy(max_tokens: int) -> core.SamplingParams:
    return cached_engine.sampling(max_tokens, temperature=0.0)


def put(local: LocalEngine, flag_set: flags.InForce) -> None:
    local.engine.switch(flag_set)
    local.loop.scheduler.check_integrity()


@pytest.mark.parametrize(("before", "after"), OTHERS)
def test_a_request_after_a_switch_is_answered_as_by_an_engine_started_so(
    folder: Path, cold_by_type: Colds, draw: random.Random, before: flags.KvType, after: flags.KvType
) -> None:
    cold = cold_by_type[after]
    local = cached_engine.engine(folder, in_force(before))
    prompts = [drawn(draw, length) for length in (1, BLOCK, 65, 150)]
    for prompt in prompts:
        cached_engine.ask(local, prompt, shared_prefix_tokens=40)
    put(local, in_force(after))
    for prompt in prompts:
        expected = cached_engine.ask(cold, prompt, shared_prefix_tokens=40)
        actual = cached_engine.ask(local, prompt, shared_prefix_tokens=40)
        assert cached_engine.answer(local, actual) == cached_engine.answer(cold, expected)
        assert local.cached_tokens[actual] == 0, "nothing of before the switch is found"


@pytest.mark.parametrize(("before", "after"), OTHERS)
def test_running_sequences_keep_their_tokens_and_go_on_under_the_new_set(
    folder: Path, cold_by_type: Colds, draw: random.Random, before: flags.KvType, after: flags.KvType
) -> None:
    local = cached_engine.engine(folder, in_force(before), max_num_seqs=8)
    cold = cold_by_type[after]
    prompts = [drawn(draw, length) for length in (1, 15, 16, 40, 65, 90)]
    ids = [local.submit(prompt, greedy(24), shared_prefix_tokens=32) for prompt in prompts]
    for _ in range(draw.randint(6, 20)):
        local.step()
    kept = {one: list(local.tokens[one]) for one in ids}
    assert all(kept.values())
    put(local, in_force(after))
    local.run()
    for one, prompt in zip(ids, prompts, strict=True):
        assert local.tokens[one][: len(kept[one])] == kept[one]
        assert len(local.tokens[one]) == 24, "no stream ends early"
        # What a cold engine says after the same text.
        left = 24 - len(kept[one])
        expected = cached_engine.ask(cold, prompt + kept[one], greedy(left), shared_prefix_tokens=32)
        assert local.tokens[one][len(kept[one]) :] == cold.tokens[expected]
        assert local.logprobs[one][len(kept[one]) :] == cold.logprobs[expected]


def test_sixteen_streams_run_through_a_switch(folder: Path, draw: random.Random) -> None:
    local = cached_engine.engine(folder, in_force(), max_num_seqs=16, kv_blocks=200)
    ids = [local.submit(drawn(draw, draw.randint(5, 100)), greedy(60)) for _ in range(16)]
    while not all(local.tokens[one] for one in ids):
        local.step()
    applied = local.set_flags(settings(generation=2, kv_int8={"fullPrecisionLayers": "1"}))
    assert applied.error == ""
    before = [len(local.tokens[one]) for one in ids]
    local.step()
    assert local.stats is not None
    assert 0 < local.stats.switch_pause_s <= 1.0
    assert local.stats.recompute_debt_tokens > 0
    local.run()
    assert [len(local.tokens[one]) for one in ids] == [60] * 16
    assert not local.failures
    assert local.stats.recompute_debt_tokens == 0
    assert local.stats.switch_gap_s >= local.stats.switch_pause_s
    assert applied.recompute_tokens >= sum(before)
    assert (local.stats.kv_type, local.stats.flag_generation) == ("int8", 2)


def test_the_shortest_is_recomputed_first(folder: Path, draw: random.Random) -> None:
    local = cached_engine.engine(folder, in_force(), kv_blocks=100, max_num_batched_tokens=64)
    lengths = (150, 20, 90)
    ids = [local.submit(drawn(draw, length), greedy(30)) for length in lengths]
    while not all(local.tokens[one] for one in ids):
        local.step()
    so_far = {one: len(local.tokens[one]) for one in ids}
    put(local, in_force("int8"))
    order: list[int] = []
    while len(order) < len(ids):
        local.step()
        order += [one for one in ids if one not in order and len(local.tokens[one]) > so_far[one]]
    assert order == [ids[1], ids[2], ids[0]]


def test_the_cache_alone_recomputes_nothing(folder: Path, draw: random.Random) -> None:
    local = cached_engine.engine(folder)
    prompt = drawn(draw, 5 * BLOCK + 1)
    running = local.submit(prompt, greedy(40))
    for _ in range(6):
        local.step()
    for flag_set in (
        in_force(cached=False),
        in_force(prefix_cache=flags.PrefixCache(0.25, 0.5)),
        in_force(kv_tiering=True),
        in_force(affinity_max_wait_s=0.01),
        in_force(priority=False),
    ):
        put(local, flag_set)
        local.step()
        stats = local.loop.stats()
        assert (stats.lineage_changes_total, stats.recompute_debt_tokens) == (0, 0)
        assert stats.running == 1
    local.run()
    alone = cached_engine.engine(folder, in_force(cached=False))
    expected = cached_engine.ask(alone, prompt, greedy(40))
    assert cached_engine.answer(local, running) == cached_engine.answer(alone, expected)


def test_a_host_tier_that_is_switched_on_later_is_measured_beside_what_runs(
    folder: Path, draw: random.Random
) -> None:
    local = cached_engine.engine(folder, host_memory_bytes=8 << 20)
    prompt = drawn(draw, 5 * BLOCK + 1)
    running = local.submit(prompt, greedy(40))
    for _ in range(6):
        local.step()
    host = local.engine.host
    assert host.break_even is None
    put(local, in_force(kv_tiering=True))
    measured = host.break_even
    assert measured is not None
    assert measured.prefill_tokens_per_s == local.loop.scheduler.prefill_tokens_per_s > 0
    put(local, in_force())
    put(local, in_force(kv_tiering=True))
    assert host.break_even is measured, "once is enough"
    local.run()
    alone = cached_engine.engine(folder, in_force(cached=False))
    expected = cached_engine.ask(alone, prompt, greedy(40))
    assert cached_engine.answer(local, running) == cached_engine.answer(alone, expected), "its KV was kept"
    put(local, in_force("int8", kv_tiering=True))
    assert host.break_even is not measured, "smaller blocks cost less"
    assert local.loop.scheduler._roster.reuse.prefixes.break_even is host.break_even


def test_a_host_tier_without_room_says_so(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    local = cached_engine.engine(folder, in_force(kv_tiering=True), host_memory_bytes=100)
    assert "its 100 bytes hold no block" in caplog.text
    assert local.engine.host.break_even is None


def test_without_the_flag_nothing_is_found(folder: Path, draw: random.Random) -> None:
    local = cached_engine.engine(folder)
    prompt = drawn(draw, 5 * BLOCK + 1)
    cached_engine.ask(local, prompt)
    put(local, in_force(cached=False))
    assert local.loop.stats().cached_blocks == 0
    assert local.cached_tokens[cached_engine.ask(local, prompt)] == 0
    put(local, in_force())
    assert local.cached_tokens[cached_engine.ask(local, prompt)] == 0, "nothing was published meanwhile"
    assert local.cached_tokens[cached_engine.ask(local, prompt)] == 5 * BLOCK


def test_more_fits_when_it_is_smaller(folder: Path) -> None:
    local = cached_engine.engine(folder, in_force())
    before = local.loop.scheduler.pool.num_blocks
    put(local, in_force("int8"))
    assert local.loop.scheduler.pool.num_blocks > before
    put(local, in_force())
    assert local.loop.scheduler.pool.num_blocks == before


def test_slabs_with_quantized_kv(folder: Path, cold_by_type: Colds, draw: random.Random) -> None:
    """paged-kv off and kv-int8: one block holds the longest sequence, in one format."""
    local = cached_engine.engine(folder, in_force("int8", cached=False, paged_kv=False))
    cold = cold_by_type["int8"]
    prompt = drawn(draw, 70)
    actual, expected = cached_engine.ask(local, prompt), cached_engine.ask(cold, prompt)
    assert cached_engine.answer(local, actual) == cached_engine.answer(cold, expected)


def settings(generation: int = 1, **enabled: bool | dict[str, str]) -> bytes:
    document = hot_settings.HotSettings(
        generation=generation,
        flags=tuple(
            hot_settings.EffectiveFlag(
                name=name.replace("_", "-"),
                enabled=value is not False,
                params=value if isinstance(value, dict) else {},
            )
            for name, value in enabled.items()
        ),
        objective=hot_settings.Objective(ttft_p95_s=1.0),
    )
    return document.to_json().encode()


def test_the_answer_to_a_switch_says_what_is_in_force(folder: Path) -> None:
    local = cached_engine.engine(folder)
    before = local.loop.stats().lineage
    applied = local.set_flags(settings(7, kv_fp8={"fullPrecisionLayers": "0"}))
    assert (applied.error, applied.generation, applied.kv_type) == ("", 7, "fp8")
    # Layers, keys and values, heads, codes and scale.
    assert applied.kv_bytes_per_token == 3 * 2 * 2 * (8 + 2)
    assert applied.lineage == local.loop.stats().lineage != before
    assert "kv-fp8" in applied.enabled
    refused = local.set_flags(settings(8, kv_fp8={"fullPrecisionLayers": "3"}))
    assert "the model has 3 layers" in refused.error
    assert (refused.kv_type, refused.lineage) == ("fp8", applied.lineage)
    assert refused.kv_bytes_per_token == applied.kv_bytes_per_token
    other = local.set_flags(settings(8, kv_fp8={"fullPrecisionLayers": "1"}))
    assert other.kv_bytes_per_token == 2 * 2 * 2 * (8 + 2) + 2 * 2 * 8 * 2
    refused = local.set_flags(settings(9, kv_fp8=True, kv_int8=True))
    assert "rule kv-int8 excludes kv-fp8" in refused.error
    assert local.loop.stats().flag_generation == 8, "a refused set changes nothing"


def test_full_precision_layers_are_part_of_the_lineage(folder: Path) -> None:
    local = cached_engine.engine(folder)
    seen = set()
    for num_layers in (0, 1, 2):
        put(local, replace(in_force("int8"), full_precision_layers=num_layers))
        seen.add(local.loop.stats().lineage)
    assert len(seen) == 3


def test_pins_outlive_what_crowds_the_cache_and_a_switch(
    folder: Path, cold_by_type: Colds, draw: random.Random
) -> None:
    local = cached_engine.engine(folder, in_force("int8"))
    prompts = [drawn(draw, 5 * BLOCK) for _ in range(4)]
    local.pin(prompts)
    local.step()
    for flag_set in (in_force("int8"), in_force(), in_force("fp8")):
        put(local, flag_set)
        for prompt in prompts:
            cached_engine.ask(local, prompt, cached_engine.sampling(1), shared_prefix_tokens=5 * BLOCK)
        cached_engine.crowd_out(local)
        for prompt in prompts:
            asked = cached_engine.ask(
                local, [*prompt, 5], cached_engine.sampling(1), shared_prefix_tokens=5 * BLOCK
            )
            assert local.cached_tokens[asked] == 5 * BLOCK
    params = cached_engine.sampling()
    cold = cold_by_type["fp8"]
    prompt = [*prompts[0], *drawn(draw, 2 * BLOCK)]
    expected = cached_engine.ask(cold, prompt, params, shared_prefix_tokens=5 * BLOCK)
    for salt, found in (("one", 5), ("other", 5), ("one", 6)):
        asked = cached_engine.ask(local, prompt, params, shared_prefix_tokens=5 * BLOCK, cache_salt=salt)
        assert local.cached_tokens[asked] == found * BLOCK, "pins are everybody's, and nothing else"
        assert cached_engine.answer(local, asked) == cached_engine.answer(cold, expected)


def test_pins_without_room_make_room_while_nobody_runs(folder: Path, draw: random.Random) -> None:
    local = cached_engine.engine(folder, in_force("int8"), kv_blocks=96)
    before = local.engine.layout.counts
    local.pin([drawn(draw, 6 * BLOCK) for _ in range(4)])
    local.step()
    after = local.engine.layout.counts
    assert after.full >= before.full + 24
    assert after.quantized < before.quantized
    assert local.loop.stats().lineage_changes_total == 0
    prompt = drawn(draw, 40)
    cold = cached_engine.engine(folder, in_force("int8", cached=False))
    asked, expected = cached_engine.ask(local, prompt), cached_engine.ask(cold, prompt)
    assert cached_engine.answer(local, asked) == cached_engine.answer(cold, expected)


def test_without_a_prefix_cache_everybody_s_declared_prefix_gets_room_while_nobody_runs(
    folder: Path, draw: random.Random
) -> None:
    local = cached_engine.engine(folder, in_force("int8"), kv_blocks=96)
    before = local.engine.layout.counts
    prompt = drawn(draw, 5 * BLOCK)
    for _ in range(6):
        cached_engine.ask(local, [*prompt, 5], cached_engine.sampling(1), shared_prefix_tokens=5 * BLOCK)
    put(local, in_force("int8", cached=False))
    own = local.engine.layout.counts
    assert own.full > before.full, "each will have its own"
    put(local, in_force("int8"))
    assert local.engine.layout.counts.full < own.full, "one is enough for all"
