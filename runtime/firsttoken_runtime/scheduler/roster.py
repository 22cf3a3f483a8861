"""Where every sequence is: waiting, held or running, with its blocks. Each move keeps the books.

The rules of who moves when are in `scheduler` and `prefills`; here is what a move does.
"""

from firsttoken_runtime.cache import blocks
from firsttoken_runtime.scheduler import classes, memory, order, queue, record, running
from firsttoken_runtime.scheduler import limits as scheduler_limits
from firsttoken_runtime.scheduler.sequence import Sequence


class Roster:
    """All open sequences."""

    def __init__(self, limits: scheduler_limits.Limits, pool: blocks.Pool, table: classes.ClassTable) -> None:
        self.limits = limits
        self.memory = memory.Memory(pool)
        self.order = order.Order(limits.priority, table)
        self.sequences: dict[int, Sequence] = {}
        self.waiting = queue.WaitingQueue()
        self.held: dict[int, Sequence] = {}
        self.running = running.Running()
        self.record = record.Record()
        self.live_slots = 0
        """Tokens of running sequences whose KV is in the cache."""

    @property
    def has_work(self) -> bool:
        """Held sequences alone are none."""
        return len(self.sequences) > len(self.held)

    def open(self, sequence: Sequence) -> None:
        self.sequences[sequence.sequence_id] = sequence
        self.record.note_open(len(self.sequences))
        self.enqueue(sequence)

    def close(self, sequence: Sequence) -> None:
        """It ended, wherever it is."""
        if sequence in self.running:
            self._leave(sequence)
        elif self.held.pop(sequence.sequence_id, None) is None:
            self.waiting.remove(sequence)
        del self.sequences[sequence.sequence_id]
        self._note_if_idle()

    def enqueue(self, sequence: Sequence) -> None:
        """It waits from now on; it is nowhere else."""
        self.order.classify(sequence)
        self.rank(sequence)
        self.waiting.push(sequence)

    def rank(self, sequence: Sequence) -> None:
        """What is left of it has changed. Not while it waits."""
        sequence.rank = self.order.rank(sequence, self.record.speed, self.record.lengths)

    def admit(self, sequence: Sequence) -> None:
        """From waiting to running, with a promise of its blocks."""
        self.waiting.remove(sequence)
        self.memory.promise(sequence, self.memory.needed_blocks(sequence, self.limits))
        sequence.place = self.order.place(sequence)
        self.running.add(sequence)

    def preempt(self, sequence: Sequence, now: float) -> None:
        """From running to waiting, to be computed again; its output stays."""
        sequence.preemptions += 1
        self.record.preemptions_total += 1
        self.stop(sequence, now)
        self.enqueue(sequence)

    def stop(self, sequence: Sequence, now: float) -> None:
        """It runs no more and holds nothing; the caller says where it goes."""
        self._leave(sequence)
        sequence.is_returning = True
        sequence.waiting_since_s = now

    def hold(self, sequence_id: int) -> None:
        """It waits, but nobody looks at it. Ids that do not wait are ignored."""
        sequence = self.sequences.get(sequence_id)
        if sequence is not None and sequence not in self.running and sequence_id not in self.held:
            self.waiting.remove(sequence)
            self.held[sequence_id] = sequence
            self._note_if_idle()

    def release(self, sequence_id: int) -> None:
        sequence = self.held.pop(sequence_id, None)
        if sequence is not None:
            self.enqueue(sequence)

    def control_length(self, sequence: Sequence) -> None:
        """Past the output budget of its class it goes on one class lower, for the rest of its life."""
        most = sequence.class_in_force.max_tokens
        if sequence.is_lowered or most is None or sequence.num_output_tokens <= most:
            return
        sequence.is_lowered = True
        self.order.classify(sequence)
        self.running.move(sequence, self.order.place(sequence))

    def reorder(self, limits: scheduler_limits.Limits, table: classes.ClassTable) -> None:
        """Other limits or classes: everybody keeps what it holds and finds its new place."""
        self.limits = limits
        self.order = order.Order(limits.priority, table)
        waiting, self.waiting = self.waiting, queue.WaitingQueue()
        for sequence in waiting:
            self.enqueue(sequence)
        for sequence in self.held.values():
            self.order.classify(sequence)
        for sequence in list(self.running):
            self.order.classify(sequence)
            self.rank(sequence)
            self.running.move(sequence, self.order.place(sequence))

    def replace_pool(self, pool: blocks.Pool, now: float) -> None:
        """Everybody that runs is to be computed again in other blocks."""
        stopped = list(self.running)
        for sequence in stopped:
            self.stop(sequence, now)
        self.memory = memory.Memory(pool)
        for sequence in stopped:
            self.enqueue(sequence)

    @property
    def allocated_slots(self) -> int:
        """Slots of all blocks that sequences hold."""
        return self.memory.pool.num_used * self.memory.pool.block_size_tokens

    def needed_slots(self) -> int:
        """Of the slots held, those of a token that is known. Exact while a step runs; between two steps a
        newest token whose block is still to be taken counts too."""
        block_size = self.memory.pool.block_size_tokens
        growing = sum(
            min(one.num_tokens, len(one.block_table) * block_size) - one.num_computed_tokens
            for one in self.running.prefilling
        )
        return min(self.live_slots + len(self.running.decoding) + growing, self.allocated_slots)

    def check_integrity(self) -> None:
        """Assert that blocks, promises and counts account for each other; idle, every block is free."""
        everyone = self.sequences.values()
        self.memory.pool.check_integrity(block_id for one in everyone for block_id in one.block_table)
        assert self.memory.promised_blocks == sum(one.promised_blocks for one in everyone)
        assert self.memory.available_blocks >= 0
        waiting = {one.sequence_id for one in self.waiting}
        places = [*waiting, *self.held, *self.running.ids]
        assert sorted(places) == sorted(self.sequences), "a sequence is nowhere, or in two places"
        assert self.live_slots == sum(one.num_computed_tokens for one in everyone)
        assert self.waiting.uncomputed_by_class.total() == sum(
            one.num_uncomputed_tokens for one in self.waiting
        )
        assert self.sequences or self.memory.pool.num_free == self.memory.pool.num_blocks

    def _note_if_idle(self) -> None:
        if not self.has_work:
            self.record.note_idle()

    def _leave(self, sequence: Sequence) -> None:
        self.running.remove(sequence)
        self.memory.release(sequence)
        self.live_slots -= sequence.num_computed_tokens
        sequence.num_computed_tokens = 0
