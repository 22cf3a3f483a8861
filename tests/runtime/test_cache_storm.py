"""Any order of calls: the block pool does what the plain model does, and its counts hold after each."""

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from firsttoken_runtime.cache import blocks, keys
from firsttoken_runtime.cache.formats import Counts, Format
from runtime.naive_pool import NaivePool, Path

TOTALS = Counts(7, 9)
ONE_FORMAT = Counts(11, 0)
SIZE = 2
BLOCKS = [(1, 1), (1, 2), (2, 1)]
PROMPTS = st.lists(st.sampled_from(BLOCKS), min_size=1, max_size=6)
INDEX = st.integers(0, 40)


@dataclass
class Sequence:
    """Its blocks as a path: the salt, then tokens and format of each."""

    path: Path
    table: list[int] = field(default_factory=list)


def key_of(path: Path) -> bytes:
    key = b""
    for part in path:
        key = keys.root(b"lineage", part) if isinstance(part, str) else keys.chain(key, *part)
    return key


class PoolMachine(RuleBasedStateMachine):
    def __init__(self, totals: Counts = TOTALS) -> None:
        super().__init__()
        caching = blocks.Caching(max_fraction=1.0, protected_fraction=1.0)
        self.pool = blocks.Pool(totals.full, SIZE, num_quantized=totals.quantized, caching=caching)
        self.naive = NaivePool(totals)
        self.sequences: list[Sequence] = []
        self.evicted: list[blocks.Evicted] = []
        self.pool.on_evict = self.note_evicted

    def note_evicted(self, evicted: blocks.Evicted) -> None:
        self.evicted.append(evicted)
        held = [block_id for one in self.sequences for block_id in one.table]
        assert evicted.block_id not in held, "a held block was evicted"

    @rule(prompt=PROMPTS, num_full=st.integers(0, 4), salt=st.sampled_from(["", "tenant"]))
    def admit(self, prompt: list[tuple[int, int]], num_full: int, salt: str) -> None:
        """Find the longest prefix, hold it, take blocks for the rest."""
        if not self.pool.totals.quantized:
            num_full = len(prompt)
        formats = [Format.FULL if i < num_full else Format.QUANTIZED for i in range(len(prompt))]
        path: Path = (salt, *zip(prompt, formats, strict=True))
        found: list[int] = []
        for end in range(2, len(path) + 1):
            block_id = self.pool.find(key_of(path[:end]), prompt[end - 2])
            assert block_id == self.naive.of(path[:end])
            if block_id is None:
                break
            found.append(block_id)
        self.pool.hold(found)
        self.naive.hold(found)
        sequence = Sequence(path, found)
        self.sequences.append(sequence)
        for fmt in formats[len(found) :]:
            assert self.pool.can_allocate(1, fmt) == (self.naive.available(fmt) >= 1)
            if not self.pool.can_allocate(1, fmt):
                break
            taken = self.pool.allocate(1, fmt)
            assert taken == self.naive.allocate(1, fmt)
            sequence.table += taken

    @precondition(lambda self: self.sequences)
    @rule(which=INDEX, block=INDEX)
    def publish(self, which: int, block: int) -> None:
        sequence = self.sequences[which % len(self.sequences)]
        if not sequence.table:
            return
        index = block % len(sequence.table)
        path = sequence.path[: index + 2]
        tokens = path[-1][0]
        assert not isinstance(tokens, str)
        block_id = sequence.table[index]
        is_published = self.pool.publish(block_id, key_of(path), key_of(path[:-1]), tokens)
        assert is_published == self.naive.publish(block_id, path)

    @precondition(lambda self: self.sequences)
    @rule(which=INDEX)
    def publish_all(self, which: int) -> None:
        for block in range(len(self.sequences[which % len(self.sequences)].table)):
            self.publish(which, block)

    @precondition(lambda self: self.sequences)
    @rule(which=INDEX)
    def release(self, which: int) -> None:
        table = self.sequences.pop(which % len(self.sequences)).table
        self.pool.release(table)
        self.naive.release(table)

    @precondition(lambda self: self.sequences)
    @rule(which=INDEX, length=st.integers(1, 6))
    def pin(self, which: int, length: int) -> None:
        path = self.sequences[which % len(self.sequences)].path
        for end in range(2, min(length + 2, len(path) + 1)):
            fmt = path[end - 1][1]
            assert isinstance(fmt, Format)
            assert self.pool.pin(key_of(path[:end]), fmt) == self.naive.pin(path[:end], fmt)

    @rule()
    def unpin_all(self) -> None:
        self.pool.unpin_all()
        for path, _ in list(self.naive.pinned):
            self.naive.unpin(path)
        self.naive.keep_to_share()

    @rule(share=st.sampled_from([0.0, 0.3, 0.6, 1.0]))
    def set_share(self, share: float) -> None:
        self.pool.cache_share = share
        self.naive.share = share
        self.naive.keep_to_share()

    @rule(most=st.sampled_from([0.0, 0.5, 0.8, 1.0]), protected=st.sampled_from([0.0, 0.4, 1.0]))
    def set_caching(self, most: float, protected: float) -> None:
        self.pool.set_caching(blocks.Caching(most, protected))
        self.naive.is_caching, self.naive.max_fraction, self.naive.protected_fraction = True, most, protected
        self.naive.keep_bounds()
        self.naive.bound_pins()
        self.naive.keep_to_share()

    @rule()
    def stop_caching(self) -> None:
        self.pool.set_caching(None)
        self.naive.is_caching = False
        self.naive.pinned = []
        self.naive.forget_all()

    @rule()
    def forget_all(self) -> None:
        self.pool.forget_all()
        self.naive.forget_all()

    @invariant()
    def counts_hold(self) -> None:
        held = [block_id for one in self.sequences for block_id in one.table]
        self.pool.check_integrity(held)
        assert self.pool.free == Counts(*(len(self.naive.free[fmt]) for fmt in Format))
        assert self.pool.cached == Counts(*(len(self.naive.cached(fmt)) for fmt in Format))
        assert self.pool.available == Counts(*(self.naive.available(fmt) for fmt in Format))
        assert Counts(*map(self.pool.num_available, Format)) == self.pool.available
        assert self.pool.num_used == len(set(held))
        assert self.pool.num_extra_holds == len(held) - len(set(held))
        assert self.pool.num_findable == len(self.naive.named)
        assert self.pool.num_pinned == len(self.naive.pinned)
        assert self.pool.key_mismatches_total == 0
        assert {one.key for one in self.pool.findable()} == {
            key_of(one.path) for one in self.naive.named.values()
        }
        for block_id in range(self.pool.num_blocks):
            assert self.pool.is_findable(block_id) == (block_id in self.naive.named)
            assert self.pool.num_holds(block_id) == self.naive.holds[block_id]
            fmt = self.naive.format_of(block_id)
            assert self.pool.is_evictable(block_id) == (block_id in self.naive.evictable(fmt))
            alone = self.naive.holds[block_id] == 1 and block_id not in self.naive.named
            assert self.pool.is_writable(block_id) == alone

    @invariant()
    def the_same_was_evicted(self) -> None:
        assert [one.key for one in self.evicted] == [key_of(path) for path in self.naive.evicted]
        assert self.pool.evictions_total == len(self.evicted)
        for one, path in zip(self.evicted, self.naive.evicted, strict=True):
            assert (one.token_ids, one.fmt) == path[-1]
            assert one.parent_key == key_of(path[:-1])

    def teardown(self) -> None:
        """When all have left, every block is free or cached."""
        while self.sequences:
            self.pool.release(self.sequences.pop().table)
        self.pool.check_integrity()
        assert self.pool.num_free + self.pool.num_cached == self.pool.num_blocks


@pytest.mark.parametrize("seed", range(6))
def test_a_long_storm(seed: int) -> None:
    """Mostly requests that come, are computed and go, so that the pool is full of what may be evicted."""
    draw, machine = random.Random(seed), PoolMachine(ONE_FORMAT if seed % 2 else TOTALS)
    machine.set_caching(1.0, draw.choice([0.3, 0.6, 1.0]))
    for _ in range(700):
        chance = draw.random()
        many = len(machine.sequences) > draw.randint(0, 3)
        which, block = draw.randrange(40), draw.randrange(40)
        if chance < 0.4 and not many:
            prompt = draw.choices(BLOCKS, k=draw.randint(1, 5))
            machine.admit(prompt, draw.randint(0, 4), draw.choice(["", "", "tenant"]))
        elif chance < 0.95 and machine.sequences:
            call = draw.choice([machine.publish_all, machine.release, machine.publish, machine.publish])
            call(which, block) if call == machine.publish else call(which)
        elif chance < 0.97 and machine.sequences:
            machine.pin(which, draw.randint(1, 3))
        elif chance > 0.99:
            call = draw.choice(
                [machine.unpin_all, machine.forget_all, machine.set_share, machine.set_caching]
            )
            share, protected = draw.choice([0.3, 0.6, 1.0]), draw.choice([0.3, 0.6, 1.0])
            arguments = {machine.set_share: (share,), machine.set_caching: (share, protected)}
            call(*arguments.get(call, ()))
        machine.counts_hold()
        machine.the_same_was_evicted()
    assert machine.pool.evictions_total > 20
    machine.teardown()


TestPool = PoolMachine.TestCase
TestPool.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
