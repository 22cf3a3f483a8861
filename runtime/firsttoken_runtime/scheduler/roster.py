"""Where every sequence is: waiting, held or running, with its blocks. Each move keeps the books.

The rules of who moves when are in `scheduler` and `prefills`; here is what a move does. What the books of
cached prefixes say of a move is in `reuse`.
"""

from firsttoken_runtime.cache import blocks, host
from firsttoken_runtime.scheduler import classes, memory, order, queue, record, reuse, rules, running
from firsttoken_runtime.scheduler import limits as scheduler_limits
from firsttoken_runtime.scheduler.prefixes import Hits
from firsttoken_runtime.scheduler.sequence import NEVER, Sequence


class Roster:
    """All open sequences."""

    def __init__(
        self,
        limits: scheduler_limits.Limits,
        pool: blocks.Pool,
        table: classes.ClassTable,
        lineage: bytes = b"",
        host_index: host.HostIndex | None = None,
        break_even: rules.BreakEven | None = None,
    ) -> None:
        self.limits = limits
        self.memory = memory.Memory(pool)
        self.order = order.Order(limits.priority, table)
        self.sequences: dict[int, Sequence] = {}
        self.waiting = queue.WaitingQueue()
        self.held: dict[int, Sequence] = {}
        self.running = running.Running()
        self.record = record.Record()
        self.reuse = reuse.Reuse(pool, limits, self.record, lineage, host_index, break_even)
        self.computed_tokens = 0
        """Of running sequences, those whose KV is in the cache; what is shared counts for each."""
        self.debt_tokens = 0
        """Of all sequences, tokens that were computed, lost and not computed again yet."""

    @property
    def has_work(self) -> bool:
        """Held sequences alone are none."""
        return len(self.sequences) > len(self.held)

    def longest_tokens(self, sequence: Sequence) -> int:
        """As long could it become if it had the whole pool."""
        sequence.num_full_blocks = self.reuse.prefixes.precision(
            sequence.shared_prefix_tokens
        ).num_full_blocks
        return self.memory.longest_tokens(sequence)

    def open(self, sequence: Sequence) -> None:
        self.sequences[sequence.sequence_id] = sequence
        self.record.note_open(len(self.sequences))
        self.enqueue(sequence)

    def close(self, sequence: Sequence) -> None:
        """It ended, wherever it is."""
        if sequence in self.running:
            self._leave(sequence)
        elif self.held.pop(sequence.sequence_id, None) is None:
            self._leave_line(sequence)
        self.reuse.forget(sequence)
        self.pay(sequence, sequence.owed_tokens)
        del self.sequences[sequence.sequence_id]
        self._note_if_idle()

    def enqueue(self, sequence: Sequence) -> None:
        """It waits from now on; it is nowhere else."""
        self.reuse.prefixes.lay_out(sequence)
        found = self.reuse.find(sequence)
        sequence.expected_cached_tokens = found.num_blocks * self.memory.pool.block_size_tokens
        self._push(sequence)

    def rank(self, sequence: Sequence) -> None:
        """What is left of it, or who waits for it, has changed. Not while it waits."""
        own = self.order.rank(sequence, self.record.speed, self.record.lengths)
        followers = sequence.followers_rank
        sequence.rank = own if followers is None else min(own, followers)

    def find(self, sequence: Sequence) -> Hits:
        """What of a waiting one need not be computed, as of now."""
        return self.reuse.find(sequence)

    def has_to_wait(self, sequence: Sequence, hits: Hits) -> bool:
        """True if somebody computes its prefix: then it leaves the line until that is done."""
        shared = self.reuse.shared(sequence, hits, self.limits)
        if shared is None:
            return False
        self.waiting.remove(sequence)
        sequence.expected_cached_tokens = shared.num_tokens
        self.rank(sequence)
        self.waiting.push(sequence)
        self.waiting.park(sequence)
        self.reuse.in_flight.follow(sequence, shared.leader, shared.last_key)
        self.record.decisions[rules.Reason.SHARING_WAITS] += 1
        self._place_again(shared.leader)
        return True

    def end_lead(self, leader: Sequence, why: rules.Reason) -> None:
        """Nobody waits for it any more."""
        for follower in self.reuse.in_flight.stop(leader):
            self.record.decisions[why] += 1
            self.waiting.unpark(follower)
        if leader in self.running:
            self._place_again(leader)

    def reserve(self, sequence: Sequence, hits: Hits) -> None:
        """What was found stays where it is, whoever gives way next; `admit` must follow."""
        self.memory.hold(sequence, hits.device)
        self.reuse.transfers.lock(hits.host)

    def admit(self, sequence: Sequence, hits: Hits, now: float) -> None:
        """From waiting to running, with what was found and reserved, and a promise of its other blocks."""
        self.waiting.remove(sequence)
        sequence.expected_cached_tokens = 0
        self.memory.promise(sequence, self.memory.needed(sequence, self.limits))
        num_tokens = hits.num_blocks * self.memory.pool.block_size_tokens
        if hits.host:
            self.memory.grow(sequence, num_tokens)
        sequence.num_computed_tokens = num_tokens
        self.computed_tokens += num_tokens
        self.pay(sequence, num_tokens)
        self.reuse.admitted(sequence, hits, self.limits, now)
        self.rank(sequence)
        sequence.place = self.order.place(sequence)
        self.running.add(sequence)

    def publish(self, sequence: Sequence) -> None:
        """Blocks of it were filled: they can be found, and who waited for them is in line again."""
        for leader, ready in self.reuse.publish(sequence):
            for follower in ready:
                self.waiting.unpark(follower)
            if ready:
                self._place_again(leader)

    def pay(self, sequence: Sequence, num_tokens: int) -> None:
        """So many of its known tokens need not be computed again any more."""
        paid = min(num_tokens, sequence.owed_tokens)
        sequence.owed_tokens -= paid
        self.debt_tokens -= paid

    def preempt(self, sequence: Sequence, now: float) -> None:
        """From running to waiting, to be computed again; its output stays."""
        sequence.preemptions += 1
        self.record.preemptions_total += 1
        self.reuse.note_victim(sequence)
        self.put_back(sequence, now)

    def put_back(self, sequence: Sequence, now: float) -> None:
        """From running to waiting, and nobody's fault."""
        self._stop(sequence, now)
        self.enqueue(sequence)

    def hold(self, sequence_id: int) -> None:
        """It waits, but nobody looks at it. Ids that do not wait are ignored."""
        sequence = self.sequences.get(sequence_id)
        if sequence is not None and sequence not in self.running and sequence_id not in self.held:
            self._leave_line(sequence)
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
        self.reuse.in_flight.clear()
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
        self.reuse.settings_changed(self.running)

    def restart(
        self, limits: scheduler_limits.Limits, pool: blocks.Pool | None, lineage: bytes, now: float
    ) -> int:
        """Everybody that runs is to be computed again, under that lineage and in other blocks if there are.
        `reorder` must follow. -> the known tokens that are lost."""
        lost_tokens = self.computed_tokens
        self.reuse.in_flight.clear()
        stopped = list(self.running)
        for sequence in stopped:
            self._stop(sequence, now)
            sequence.is_switched = True
        if pool is not None:
            self.memory = memory.Memory(pool)
        self.reuse.restart(self.memory.pool, limits, lineage)
        for sequence in self.sequences.values():
            sequence.chain = None
        waiting, self.waiting = self.waiting, queue.WaitingQueue()
        for sequence in (*stopped, *waiting):
            self.enqueue(sequence)
        return lost_tokens

    @property
    def live_slots(self) -> int:
        """Slots that hold the KV of a token of a running sequence. Shared blocks, always full, count once."""
        pool = self.memory.pool
        return self.computed_tokens - pool.num_extra_holds * pool.block_size_tokens

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
        """Assert that blocks, promises and counts account for each other; idle, nobody holds a block."""
        everyone = self.sequences.values()
        self.memory.pool.check_integrity(block_id for one in everyone for block_id in one.block_table)
        assert self.memory.promised == sum((one.promised for one in everyone), memory.NONE)
        assert memory.NONE.fits(self.memory.available)
        waiting = {one.sequence_id for one in self.waiting}
        places = [*waiting, *self.held, *self.running.ids]
        assert sorted(places) == sorted(self.sequences), "a sequence is nowhere, or in two places"
        assert self.computed_tokens == sum(one.num_computed_tokens for one in everyone)
        assert self.debt_tokens == sum(one.owed_tokens for one in everyone)
        assert self.waiting.backlog_by_class.total() == sum(one.backlog_tokens for one in self.waiting)
        assert self.waiting.num_in_line + self.waiting.num_parked == len(self.waiting)
        self.reuse.check_integrity(self.waiting.parked_ids, self.running.ids)
        assert self.sequences or self.memory.pool.num_used == 0

    def _push(self, sequence: Sequence) -> None:
        self.order.classify(sequence)
        self.rank(sequence)
        self.waiting.push(sequence)

    def _leave_line(self, sequence: Sequence) -> None:
        self.waiting.remove(sequence)
        leader = self.reuse.in_flight.leader_of(sequence)
        if leader is not None:
            self.reuse.in_flight.leave(sequence)
            self._place_again(leader)

    def _place_again(self, leader: Sequence) -> None:
        """Others wait for it than before."""
        self.rank(leader)
        self.running.move(leader, self.order.place(leader))

    def _stop(self, sequence: Sequence, now: float) -> None:
        """It runs no more and holds nothing; the caller says where it goes."""
        lost_tokens = sequence.num_computed_tokens
        self._leave(sequence)
        sequence.owed_tokens += lost_tokens
        self.debt_tokens += lost_tokens
        sequence.is_returning = True
        sequence.waiting_since_s = now

    def _note_if_idle(self) -> None:
        if not self.has_work:
            self.record.note_idle()

    def _leave(self, sequence: Sequence) -> None:
        self.running.remove(sequence)
        self.end_lead(sequence, rules.Reason.SHARING_GONE)
        self.memory.release(sequence)
        self.computed_tokens -= sequence.num_computed_tokens
        sequence.num_computed_tokens = 0
        sequence.publish_at_tokens = NEVER
