"""A tiny pool and a tiny host tier under many requests: no block ever has another one's bytes."""

import random
from collections import deque
from collections.abc import Sequence

import pytest

from firsttoken_runtime.cache import blocks as cache_blocks
from firsttoken_runtime.cache import host, keys
from firsttoken_runtime.cache.formats import Counts, Format
from firsttoken_runtime.engine import block_mover
from runtime.host_tier import BLOCK_SIZE, LINEAGE, block_bytes, contents, expected, fill, tier

Pair = block_mover.Pair


class Requests:
    """A scheduler in small: texts of a few blocks under a tiny pool and a tiny host tier.

    A load is executed some steps after it was scheduled, as copies on a GPU are, while other requests go
    on saving. Each block has contents that only its key has, so a wrong byte shows whose it is.
    """

    def __init__(self, counts: Counts, num_records: int, *, seed: int) -> None:
        self.random = random.Random(seed)
        self.blocks = block_bytes(counts)
        self.pool = cache_blocks.Pool(
            counts.full,
            BLOCK_SIZE,
            num_quantized=counts.quantized,
            caching=cache_blocks.Caching(1.0, 0.8),
        )
        self.pool.on_evict = self._evict
        self.copying = tier(self.blocks, num_records)
        self.saves: list[Pair] = []
        self.late: deque[tuple[list[Pair], list[int], list[bytes]]] = deque()
        self.tokens: dict[bytes, tuple[int, ...]] = {}
        """Of each key."""
        self.num_host_hits = 0

    def _evict(self, block: cache_blocks.Evicted) -> None:
        if (slot := self.copying.index.store(block)) is not None:
            self.saves.append(Pair(block.block_id, slot))

    def request(self, fmt: Format) -> None:
        """One step: find what is cached, load or compute the rest, let go of an earlier request."""
        length = self.random.randint(1, 3)
        texts = [(self.random.choice((1, 2)), 0)] + [(self.random.randint(3, 6), n) for n in range(1, length)]
        chain = [keys.root(LINEAGE, "")]
        tokens = []
        for name, place in texts:
            tokens.append((name, place, 0, 1))
            chain.append(keys.chain(chain[-1], tokens[-1], fmt))
        held: list[int] = []
        for key, token_ids in zip(chain[1:], tokens, strict=True):
            if (block_id := self.pool.find(key, token_ids)) is None:
                break
            held.append(block_id)
        self.pool.hold(held)
        index, slots = self.copying.index, []
        for key, token_ids in list(zip(chain[1:], tokens, strict=True))[len(held) :]:
            if (slot := index.find(key, token_ids, fmt)) is None:
                break
            slots.append(slot)
        if not self.pool.can_allocate(length - len(held), fmt):
            self.pool.release(held)
            self.complete(len(self.late))
            return
        index.lock(slots)
        loaded_from = len(held)
        held += self.pool.allocate(length - len(held), fmt)
        loads = [Pair(block_id, slot) for block_id, slot in zip(held[loaded_from:], slots, strict=False)]
        saves, self.saves = self.saves, []
        self.copying.run(saves, [])
        for place in range(loaded_from + len(loads), length):
            fill(self.blocks, held[place], chain[place + 1])
        self.num_host_hits += len(loads)
        self.late.append((loads, held, chain))
        self.tokens.update(zip(chain[1:], tokens, strict=True))
        if len(self.late) > self.random.randint(0, 2):
            self.complete(1)

    def complete(self, count: int) -> None:
        """The copies of the oldest requests take place: then every block must be what its key says."""
        for _ in range(count):
            loads, held, chain = self.late.popleft()
            saves, self.saves = self.saves, []
            self.copying.run(saves, loads)
            for place, block_id in enumerate(held):
                fmt, _ = self.blocks.locate(block_id)
                key, parent = chain[place + 1], chain[place]
                size = self.blocks.bytes_of[fmt]
                assert contents(self.blocks, block_id) == expected(key, size), "another block's bytes"
                if not self.pool.is_findable(block_id):
                    self.pool.publish(block_id, key, parent, self.tokens[key])
            self.pool.release(held)
            self.copying.index.check_integrity()

    def run(self, num_requests: int, formats: Sequence[Format]) -> None:
        for _ in range(num_requests):
            self.request(self.random.choice(formats))
        self.complete(len(self.late))
        assert self.copying.index.num_locked == 0
        self.pool.check_integrity()


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("counts", "formats", "num_records"),
    [(Counts(8, 0), [Format.FULL], 3), (Counts(8, 9), [Format.FULL, Format.QUANTIZED], 4)],
)
def test_a_tiny_host_tier_under_stress_never_gives_another_blocks_bytes(
    counts: Counts, formats: list[Format], num_records: int, seed: int
) -> None:
    requests = Requests(counts, num_records, seed=seed)
    requests.run(300, formats)
    assert requests.num_host_hits > 10, "nothing was tested"


def test_the_stress_sees_a_slot_that_is_overwritten_during_its_load(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above can fail: without the locks of loads it does."""

    def unlock(self: host.HostIndex, slots: Sequence[int]) -> None:
        for slot in slots:
            if slot in self._by_slot:
                self._by_slot[slot].num_locks = 0

    monkeypatch.setattr(host.HostIndex, "lock", lambda self, slots: None)
    monkeypatch.setattr(host.HostIndex, "unlock", unlock)
    requests = Requests(Counts(8, 0), 3, seed=0)
    with pytest.raises(AssertionError, match="another block's bytes"):
        requests.run(300, [Format.FULL])
