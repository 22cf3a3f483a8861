"""What is in every slot, without numbers: a fact for each token, so that a test sees who reads what.

The KV of a token depends on the lineage, on all tokens up to it, and on how those are stored. A slot here
holds just these and the salt they were computed under, and every step checks that it reads what its sequence
would have computed itself, and nothing of another tenant's: only what is pinned is everybody's.
"""

from dataclasses import dataclass, field

from firsttoken_runtime.cache import formats
from firsttoken_runtime.cache import host as cache_host
from firsttoken_runtime.scheduler import scheduler as scheduling
from firsttoken_runtime.scheduler.sequence import ScheduledStep, Sequence

Fact = tuple[bytes, int, int, str]


@dataclass
class KvModel:
    """The bytes of the device and of the host tier."""

    host: cache_host.HostIndex | None = None
    slots: dict[int, Fact] = field(default_factory=dict)
    host_blocks: dict[int, list[Fact | None]] = field(default_factory=dict)

    def execute(self, one: scheduling.Scheduler, step: ScheduledStep) -> None:
        """Copies, then writes and reads; all of them checked."""
        size = one.pool.block_size_tokens
        for save in step.saves:
            self.host_blocks[save.host_slot] = [
                self.slots.get(save.block_id * size + offset) for offset in range(size)
            ]
        for load in step.loads:
            for offset, fact in enumerate(self.host_blocks[load.host_slot]):
                assert fact is not None
                self.slots[load.block_id * size + offset] = fact
        if self.host is not None:
            self.host.unlock(save.host_slot for save in step.saves)
            self.host.unlock(load.host_slot for load in step.loads)
        for work in step.work:
            self._write(one, work.sequence, work.first_token, work.num_tokens)
        for work in step.work:
            self._read(one, work.sequence, work.first_token + work.num_tokens)

    def fail(self, one: scheduling.Scheduler, step: ScheduledStep) -> None:
        """The step ends before anything was copied, and so do its sequences."""
        if self.host is not None:
            self.host.unlock(load.host_slot for load in step.loads)
            for save in step.saves:
                self.host.discard(save.host_slot)
        for work in step.work:
            one.abort(work.sequence.sequence_id)

    def forget(self) -> None:
        """The memory was cut anew."""
        self.slots.clear()

    def _write(self, one: scheduling.Scheduler, sequence: Sequence, first: int, num_tokens: int) -> None:
        size = one.pool.block_size_tokens
        for position in range(first, first + num_tokens):
            block_id = sequence.block_table[position // size]
            assert one.pool.is_writable(block_id), "writes where others read"
            assert one.pool.format_of(block_id) is sequence.format_of(position // size)
            fact = _fact(one, sequence, position, sequence.cache_salt)
            self.slots[block_id * size + position % size] = fact

    def _read(self, one: scheduling.Scheduler, sequence: Sequence, num_tokens: int) -> None:
        size = one.pool.block_size_tokens
        for position in range(num_tokens):
            slot = sequence.block_table[position // size] * size + position % size
            allowed = [_fact(one, sequence, position, sequence.cache_salt)]
            if position // size < sequence.num_public_blocks:
                allowed.append(_fact(one, sequence, position, ""))
            assert self.slots.get(slot) in allowed, f"{sequence} reads what is not its own"


def _fact(one: scheduling.Scheduler, sequence: Sequence, position: int, salt: str) -> Fact:
    known = tuple(sequence.token_ids[: position + 1])
    num_full = min(sequence.num_full_blocks * one.pool.block_size_tokens, position + 1)
    return one.lineage, hash(known), num_full, salt


def host_index(num_blocks: int) -> cache_host.HostIndex:
    """Room for so many blocks of the compute dtype; a quantized one takes half of it."""
    return cache_host.HostIndex(num_blocks * 64, {formats.Format.FULL: 64, formats.Format.QUANTIZED: 32})
