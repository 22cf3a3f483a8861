"""What is found in the cache changes no bit: text and logprobs of a request are those of a cold engine.

The engine is batch-invariant, so answers are compared for equality, never closeness: for every KV type,
for prompts around the borders of blocks, chunks and the context, with and without a declared shared
prefix. The cold answers come from an engine without prefix cache, so that both ways are compared.
"""

import random
from pathlib import Path

import pytest

from firsttoken_runtime.engine import flags
from firsttoken_runtime.engine.local import LocalEngine
from runtime import cached_engine, tiny_model
from runtime.cached_engine import BLOCK, CHUNK, KV_TYPES, MAX_MODEL_LEN, VOCABULARY

LENGTHS = (1, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, CHUNK - 1, CHUNK, CHUNK + 1, 131, MAX_MODEL_LEN - 4)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model.write(tmp_path_factory.mktemp("model"), num_hidden_layers=cached_engine.NUM_LAYERS)


class Pair:
    """One cold engine, and one with a cache: the same model under the same KV type."""

    def __init__(self, folder: Path, kv_type: flags.KvType) -> None:
        self.kv_type = kv_type
        self.cold = cached_engine.engine(folder, cached_engine.in_force(kv_type, cached=False))
        self.cached = cached_engine.engine(
            folder, cached_engine.in_force(kv_type, kv_tiering=True), host_memory_bytes=8 << 20
        )

    def expected(self, prompt: list[int], shared: int) -> cached_engine.Answer:
        sequence_id = cached_engine.ask(self.cold, prompt, shared_prefix_tokens=shared)
        assert self.cold.cached_tokens[sequence_id] == 0
        return cached_engine.answer(self.cold, sequence_id)

    def check(
        self, prompt: list[int], shared: int, expected: cached_engine.Answer, cached: int, **how: str
    ) -> None:
        """Ask the engine with a cache: so many tokens are found, and the answer is the expected one."""
        sequence_id = cached_engine.ask(self.cached, prompt, shared_prefix_tokens=shared, **how)
        assert self.cached.cached_tokens[sequence_id] == cached
        assert cached_engine.answer(self.cached, sequence_id) == expected


@pytest.fixture(scope="module", params=KV_TYPES)
def loaded(request: pytest.FixtureRequest, folder: Path) -> Pair:
    return Pair(folder, request.param)


@pytest.fixture
def pair(loaded: Pair) -> Pair:
    """Nothing is cached: what was hit in another test would be protected from what is new."""
    forget(loaded.cached)
    return loaded


@pytest.fixture
def draw() -> random.Random:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    return random.Random(seed)


def drawn(draw: random.Random, length: int) -> list[int]:
    return draw.choices(range(3, VOCABULARY), k=length)


def forget(local: LocalEngine) -> None:
    """Nothing is findable any more, in no tier."""
    in_force = local.engine.in_force
    local.engine.switch(cached_engine.in_force(in_force.kv_type, cached=False))
    local.engine.switch(in_force)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("declared", ["nothing", "half", "all"])
def test_hits_change_no_bit(pair: Pair, draw: random.Random, length: int, declared: str) -> None:
    shared = {"nothing": 0, "half": length // 2, "all": length}[declared]
    prompt = drawn(draw, length)
    expected = pair.expected(prompt, shared)
    whole = cached_engine.largest_hit(length)

    pair.check(prompt, shared, expected, 0)  # cold, in the engine that caches
    pair.check(prompt, shared, expected, whole)
    pair.check(prompt, shared, expected, whole)  # a hit publishes nothing twice
    pair.check(prompt, shared, expected, 0, cache_salt="of another tenant")
    pair.check(prompt, shared, expected, whole, cache_salt="of another tenant")

    # Another prompt with the same beginning finds what is common, in whole blocks.
    common = draw.randint(0, length - 1)
    other = [*prompt[:common], (prompt[common] - 2) % 100 + 3, *drawn(draw, length - common - 1)]
    assert other[common] != prompt[common]
    pair.check(other, shared, pair.expected(other, shared), common // BLOCK * BLOCK)


@pytest.mark.parametrize("length", [BLOCK + 1, CHUNK + 1, 131])
def test_evicted_blocks_are_computed_again(
    pair: Pair, draw: random.Random, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Never hit, so then nothing of it goes to the host.
    monkeypatch.setattr(pair.cached.engine.host.index, "takes_unasked", False)
    prompt = drawn(draw, length)
    expected = pair.expected(prompt, length // 2)
    pair.check(prompt, length // 2, expected, 0)
    before = pair.cached.loop.stats().evictions_total
    cached_engine.crowd_out(pair.cached)
    assert pair.cached.loop.stats().evictions_total > before
    pair.check(prompt, length // 2, expected, 0)


@pytest.mark.parametrize("length", [BLOCK + 1, CHUNK, CHUNK + 1, 131, MAX_MODEL_LEN - 4])
def test_blocks_come_back_from_the_host(pair: Pair, draw: random.Random, length: int) -> None:
    prompt = drawn(draw, length)
    expected = pair.expected(prompt, length // 2)
    whole = cached_engine.largest_hit(length)
    pair.check(prompt, length // 2, expected, 0)
    pair.check(prompt, length // 2, expected, whole)  # hit once: worth a copy
    cached_engine.crowd_out(pair.cached)
    before = cached_engine.hits(pair.cached, "host")
    pair.check(prompt, length // 2, expected, whole)
    assert cached_engine.hits(pair.cached, "host") > before


def test_many_equal_prompts_at_once(pair: Pair, draw: random.Random) -> None:
    """They share while the first is computed, and each gives the answer it has alone."""
    for length in (BLOCK, 3 * BLOCK + 1, 150):
        prompt = drawn(draw, length)
        shared = draw.choice((0, length // 2))
        expected = pair.expected(prompt, shared)
        ids = [
            pair.cached.submit(prompt, cached_engine.sampling(), shared_prefix_tokens=shared)
            for _ in range(8)
        ]
        pair.cached.run()
        pair.cached.loop.scheduler.check_integrity()
        assert [cached_engine.answer(pair.cached, one) for one in ids] == [expected] * 8
        if whole := cached_engine.largest_hit(length):
            assert sorted(pair.cached.cached_tokens[one] for one in ids)[1:] == [whole] * 7


def test_a_longer_turn_finds_the_turn_before_it(pair: Pair, draw: random.Random) -> None:
    """Answers are published too: the next turn of a conversation finds its prompt and its answer."""
    prompt = drawn(draw, 2 * BLOCK + 3)
    params = cached_engine.sampling(2 * BLOCK)
    first = cached_engine.ask(pair.cached, prompt, params, shared_prefix_tokens=BLOCK)
    so_far = prompt + pair.cached.tokens[first]
    longer = so_far + drawn(draw, 5)
    # The last token of an answer is not computed, so its slot is not filled.
    pair.check(longer, BLOCK, pair.expected(longer, BLOCK), (len(so_far) - 1) // BLOCK * BLOCK)


def test_scores_read_nothing_and_publish(pair: Pair, draw: random.Random) -> None:
    prompt = drawn(draw, 3 * BLOCK + 1)
    expected = pair.cold.score(prompt, 2)
    assert pair.cached.score(prompt, 2) == expected
    assert pair.cached.score(prompt, 2) == expected, "a score that read the cache would miss rows"
    pair.check(prompt, 0, pair.expected(prompt, 0), 3 * BLOCK)


def test_nothing_is_found_under_another_lineage(folder: Path, draw: random.Random) -> None:
    local = cached_engine.engine(folder)
    prompt = drawn(draw, 4 * BLOCK + 1)
    cached_engine.ask(local, prompt)
    lineages = [local.loop.stats().lineage]
    for kv_type in ("int8", "fp8", "full"):
        local.engine.switch(cached_engine.in_force(kv_type))
        lineages.append(local.loop.stats().lineage)
        assert local.cached_tokens[cached_engine.ask(local, prompt)] == 0
        assert local.cached_tokens[cached_engine.ask(local, prompt)] == 4 * BLOCK
    assert len(set(lineages)) == 3
    assert lineages[0] == lineages[3], "a lineage is a function of what is in force"
    assert local.loop.stats().lineage_changes_total == 3


def test_what_others_asked_does_not_change_the_precision(pair: Pair, draw: random.Random) -> None:
    """One text in two formats: neither finds the other, and both are answered as by a cold engine."""
    prompt = drawn(draw, 6 * BLOCK)
    declared, undeclared = pair.expected(prompt, 4 * BLOCK), pair.expected(prompt, 0)
    pair.check(prompt, 4 * BLOCK, declared, 0)
    found = cached_engine.largest_hit(len(prompt)) if pair.kv_type == "full" else 0
    pair.check(prompt, 0, undeclared, found)
    if pair.kv_type != "full":
        assert declared != undeclared, "else this shows nothing"


def test_forgetting_forgets(pair: Pair, draw: random.Random) -> None:
    prompt = drawn(draw, 4 * BLOCK)
    expected = pair.expected(prompt, 0)
    pair.check(prompt, 0, expected, 0)
    forget(pair.cached)
    pair.check(prompt, 0, expected, 0)
    pair.check(prompt, 0, expected, 3 * BLOCK)
