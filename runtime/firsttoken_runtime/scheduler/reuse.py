"""The books of what is reused: cached prefixes, prefixes in flight and the host tier, for each move of a
sequence. `roster` calls it; the parts know nothing of each other.
"""

from collections.abc import Collection, Iterable
from typing import NamedTuple

from firsttoken_runtime.cache import blocks, host, prefix
from firsttoken_runtime.scheduler import limits as scheduler_limits
from firsttoken_runtime.scheduler import prefixes, rules, sharing, sizing, transfers
from firsttoken_runtime.scheduler.record import Record
from firsttoken_runtime.scheduler.sequence import Sequence


class Shared(NamedTuple):
    """What somebody computes of the prefix of a waiting sequence."""

    leader: Sequence
    last_key: bytes
    """Of the last block they share."""
    num_tokens: int
    """What the waiting one will find then."""


class Reuse:
    """Of one scheduler."""

    def __init__(
        self,
        pool: blocks.Pool,
        limits: scheduler_limits.Limits,
        record: Record,
        lineage: bytes,
        host_index: host.HostIndex | None,
        break_even: rules.BreakEven | None,
    ) -> None:
        self.in_flight = sharing.InFlight()
        self.transfers = transfers.Transfers(host_index)
        self.sizing = sizing.Sizing()
        self.pinned: list[list[int]] = []
        self._record = record
        self._break_even = break_even
        self._evictions_before = 0
        """Of earlier pools."""
        self.prefixes = self._attach(pool, limits, lineage)

    @property
    def evictions_total(self) -> int:
        return self._evictions_before + self.prefixes.pool.evictions_total

    def restart(self, pool: blocks.Pool, limits: scheduler_limits.Limits, lineage: bytes) -> None:
        """Another pool or lineage; nobody runs."""
        before = self.prefixes.pool
        if before is not pool:
            self._evictions_before += before.evictions_total
            before.on_evict = None
            self.transfers.drop_saves()
        self.transfers.unwant_all()
        self.prefixes = self._attach(pool, limits, lineage)

    def replace_host(self, host_index: host.HostIndex | None) -> None:
        self.transfers.replace_host(host_index)
        self.prefixes.host = host_index

    def use_break_even(self, break_even: rules.BreakEven | None) -> None:
        self._break_even = self.prefixes.break_even = break_even

    def settings_changed(self, running: Iterable[Sequence]) -> None:
        """The cache may be on, off or of another size than before."""
        self.sizing.set_largest(self.prefixes.pool)
        for sequence in running:
            self.prefixes.note_published(sequence, 0)
        self.pin(self.pinned)

    def pin(self, prompts: list[list[int]]) -> int:
        """-> blocks for which there is no room."""
        self.pinned = prompts
        return self.prefixes.pin(prompts) if self.prefixes.is_caching else 0

    def find(self, sequence: Sequence) -> prefixes.Hits:
        return self.prefixes.find(sequence, self._record.speed.prefill_tokens_per_s)

    def shared(
        self, sequence: Sequence, hits: prefixes.Hits, limits: scheduler_limits.Limits
    ) -> Shared | None:
        """Who computes the first block that a waiting sequence lacks, and how far they go together."""
        if not self._shares(limits) or not sequence.reads_cache:
            return None
        size = self.prefixes.pool.block_size_tokens
        first, end = len(hits.device), prefix.whole_blocks(sequence.num_tokens, size)
        if first < sequence.num_public_blocks:
            return None
        leader = self.in_flight.leader_of_key(sequence.key(first)) if first < end else None
        if leader is None:
            return None
        last = first
        while last + 1 < end and self.in_flight.leader_of_key(sequence.key(last + 1)) is leader:
            last += 1
        return Shared(leader, sequence.key(last), (last + 1) * size)

    def admitted(
        self, sequence: Sequence, hits: prefixes.Hits, limits: scheduler_limits.Limits, now: float
    ) -> None:
        """It has its blocks; those from the host tier are to be loaded."""
        size = self.prefixes.pool.block_size_tokens
        num_device = len(hits.device)
        if hits.host:
            self.transfers.load(sequence, hits.host, sequence.block_table[num_device:])
        self.transfers.unwant(sequence)
        self.prefixes.note_published(sequence, num_device)
        self._record.decisions[hits.reason] += 1
        if not sequence.was_admitted:
            sequence.was_admitted = True
            sequence.cached_tokens_by_tier = {"device": num_device * size, "host": len(hits.host) * size}
            if self.prefixes.is_caching and sequence.reads_cache:
                self._record.note_looked_up(sequence.num_tokens, sequence.cached_tokens_by_tier)
            self.sizing.note_prompt(sequence.num_tokens, now)
        if self._shares(limits):
            first, end = max(num_device, sequence.num_public_blocks), sequence.num_tokens // size
            self.in_flight.lead(sequence, [sequence.key(index) for index in range(first, end)])

    def publish(self, sequence: Sequence) -> list[tuple[Sequence, list[Sequence]]]:
        """Its newly filled blocks can be found. -> for each that somebody was to compute for others, who that
        is, most often itself, and who waited for it."""
        filled = self.prefixes.publish(sequence)
        if not len(self.in_flight):
            return []
        arrived = (self.in_flight.arrived(sequence.key(index)) for index in filled)
        return [one for one in arrived if one is not None]

    def note_victim(self, sequence: Sequence) -> None:
        """It is about to lose its blocks."""
        num_blocks = sequence.num_published_blocks if self.prefixes.is_caching else 0
        decided = rules.victim(
            has_host_tier=self.transfers.host is not None,
            is_swap_worth_it=rules.is_swap_worth_it(
                num_blocks * self.prefixes.pool.block_size_tokens,
                self._break_even,
                self._record.speed.prefill_tokens_per_s,
            ),
        )
        self._record.decisions[decided] += 1
        if decided is rules.Reason.VICTIM_SWAPPED:
            self.transfers.want(sequence, [sequence.key(index) for index in range(num_blocks)])

    def note_finished(self, sequence: Sequence) -> None:
        """It ended by itself."""
        size = self.prefixes.pool.block_size_tokens
        declared_tokens = min(sequence.shared_prefix_tokens, self.prefixes.most_full_tokens)
        self._record.demand.note(
            declared_blocks=declared_tokens // size,
            found_blocks=sequence.cached_tokens // size,
            num_blocks=-(-sequence.num_tokens // size),
            is_caching=self.prefixes.is_caching,
        )

    def forget(self, sequence: Sequence) -> None:
        """It has ended."""
        self.transfers.unwant(sequence)

    def check_integrity(self, parked: Iterable[int], running: Collection[int]) -> None:
        self.in_flight.check_integrity(parked, running)
        if not running and not parked:
            assert len(self.in_flight) == 0
        host_index = self.transfers.host
        if host_index is not None:
            host_index.check_integrity()

    def _attach(
        self, pool: blocks.Pool, limits: scheduler_limits.Limits, lineage: bytes
    ) -> prefixes.Prefixes:
        self.sizing.set_largest(pool)
        pool.on_evict = self.transfers.evicted
        return prefixes.Prefixes(
            pool,
            lineage,
            limits.most_full_tokens,
            self.transfers.host,
            self._break_even,
            self._record.decisions,
        )

    def _shares(self, limits: scheduler_limits.Limits) -> bool:
        return limits.in_flight_sharing and limits.continuous_batching and self.prefixes.is_caching
