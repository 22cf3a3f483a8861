"""The second half of a step: which prompts get a chunk, and who is admitted.

One line for all whose known tokens are not computed, running or waiting. It is followed until the
budget or the number of prompts of a step is used up; what is left of the budget then goes to the first
ones in line.
"""

from firsttoken_runtime.scheduler import pace, preemption, turns
from firsttoken_runtime.scheduler.roster import Roster
from firsttoken_runtime.scheduler.sequence import Sequence
from firsttoken_runtime.scheduler.step import Draft


def admit_batch(roster: Roster) -> None:
    """Static batching: fill the empty engine with all that fit."""
    limits, memory = roster.limits, roster.memory
    while len(roster.running) < limits.max_num_seqs and roster.waiting:
        (first,) = roster.waiting.first(1)
        watermark = memory.watermark_blocks(len(roster.running), limits)
        if memory.needed_blocks(first, limits) + watermark > memory.available_blocks:
            break
        roster.admit(first)


class Prefills:
    """Keeps, from step to step, whose turn it is and what preemption may still cost."""

    def __init__(self, step_tokens: int) -> None:
        self.credit = preemption.Credit(step_tokens)
        self._turns = turns.Turns()
        self._pace = pace.PrefillPace()

    def add(self, draft: Draft, roster: Roster, now: float) -> None:
        """Fill the draft, which has its decodes."""
        in_line = roster.running.prefilling
        num_in_line = len(in_line)
        if roster.limits.continuous_batching:
            num_in_line += len(roster.waiting)
            in_line += roster.waiting.first(roster.limits.max_prefill_batch + 1)
        if not in_line:
            return
        in_line.sort(key=lambda sequence: sequence.rank)
        overdue = self._overdue(roster, now)
        turn = overdue if self._turns.is_due() else None
        if roster.limits.prefill_only_when_idle and draft.decodes:
            turn, in_line = overdue, []
        if turn is not None:
            in_line = [turn, *(sequence for sequence in in_line if sequence is not turn)]
        budget_tokens = self._budget(draft, roster, now)
        _Visit(draft, roster, budget_tokens, num_in_line, turn, self.credit, now).run(in_line)
        if overdue is not None:
            served = overdue.sequence_id in draft.prefills
            self._turns.note(has_prefills=bool(draft.prefills), is_served=served)

    def _budget(self, draft: Draft, roster: Roster, now: float) -> int:
        limits = roster.limits
        if not draft.decodes or limits.chunk_tokens is None:
            return draft.budget_tokens
        return self._pace.budget_tokens(draft.budget_tokens, limits.tpot_p95_s, roster.record.speed, now)

    def _overdue(self, roster: Roster, now: float) -> Sequence | None:
        """The longest waiting of those that wait too long; first come, first served needs no such turn."""
        if not roster.limits.priority and not roster.limits.prefill_only_when_idle:
            return None
        candidates = roster.running.prefilling
        longest = roster.waiting.longest_waiting()
        if longest is not None and roster.limits.continuous_batching:
            candidates.append(longest)
        return turns.overdue(candidates, now)


class _Visit:
    """One walk along the line."""

    def __init__(
        self,
        draft: Draft,
        roster: Roster,
        budget_tokens: int,
        num_in_line: int,
        turn: Sequence | None,
        credit: preemption.Credit,
        now: float,
    ) -> None:
        self._draft = draft
        self._roster = roster
        self._budget_tokens = budget_tokens
        self._share = roster.limits.largest_chunk(budget_tokens, num_in_line)
        self._turn = turn
        self._credit = credit
        self._now = now
        self._is_full = bool(draft.preempted)
        """Nobody else is admitted: somebody before could not be, or a decode had to take a block."""
        self._is_kept = False
        """What is free is kept for who has waited longest; others may only take the place of victims."""
        self._is_turn_taken = False
        """Who waited longest was admitted; nobody is preempted in a step that admits a less urgent one."""
        self._victims: list[Sequence] = []

    def run(self, in_line: list[Sequence]) -> None:
        served: list[Sequence] = []
        for sequence in in_line:
            if len(served) >= self._roster.limits.max_prefill_batch or self._budget_tokens <= 0:
                break
            num_tokens = self._next_chunk(sequence)
            if num_tokens == 0:  # a prompt that may not be cut and does not fit; those behind it wait too
                break
            if sequence in self._roster.running or self._admit(sequence):
                self._give(sequence, num_tokens)
                served.append(sequence)
        if self._roster.limits.chunk_tokens is not None:
            self._hand_out_rest(served)

    def _next_chunk(self, sequence: Sequence) -> int:
        """Tokens it gets now; 0 when not all of an uncut prompt fits."""
        wanted = sequence.num_uncomputed_tokens
        if self._roster.limits.chunk_tokens is None:
            return wanted if wanted <= self._budget_tokens else 0
        return min(wanted, self._budget_tokens, self._share)

    def _give(self, sequence: Sequence, num_tokens: int) -> None:
        self._draft.add_prefill(sequence, num_tokens)
        self._budget_tokens -= num_tokens
        work = self._draft.prefills[sequence.sequence_id]
        self._roster.memory.grow(sequence, work.first_token + work.num_tokens)

    def _hand_out_rest(self, served: list[Sequence]) -> None:
        """Nobody else can use it in this step."""
        most = self._roster.limits.chunk_tokens
        assert most is not None
        for sequence in served:
            given = self._draft.prefills[sequence.sequence_id].num_tokens
            left = sequence.num_uncomputed_tokens - given
            extra = min(left, most - given, self._budget_tokens)
            if extra > 0:
                self._give(sequence, extra)

    def _admit(self, sequence: Sequence) -> bool:
        """Find a slot and blocks for a waiting one, at the cost of a lower class if need be."""
        order = self._roster.order
        if self._is_full or not all(order.is_more_urgent(sequence, victim) for victim in self._victims):
            return False
        slots, num_blocks = self._missing(sequence)
        if (slots > 0 or num_blocks > 0) and not self._make_way(sequence, slots, num_blocks):
            if sequence is self._turn:
                self._is_kept = True
            else:
                self._is_full = True
            return False
        self._roster.admit(sequence)
        self._is_turn_taken = self._is_turn_taken or sequence is self._turn
        return True

    def _missing(self, sequence: Sequence) -> tuple[int, int]:
        """Slots and blocks that must become free before it can run."""
        limits, memory, num_running = self._roster.limits, self._roster.memory, len(self._roster.running)
        needed = memory.needed_blocks(sequence, limits)
        if self._is_kept:
            return 1, needed
        watermark = memory.watermark_blocks(num_running, limits)
        return num_running + 1 - limits.max_num_seqs, needed + watermark - memory.available_blocks

    def _make_way(self, sequence: Sequence, slots: int, num_blocks: int) -> bool:
        """Preempt less urgent ones, if that is enough for it."""
        roster = self._roster
        if not roster.order.has_less_urgent(sequence) or self._is_turn_taken:
            return False
        candidates = (
            other
            for other in roster.running.last_first()
            if roster.order.is_more_urgent(sequence, other) and other.sequence_id not in self._draft.prefills
        )
        victims = preemption.victims(candidates, slots, num_blocks, roster.memory, self._credit)
        for victim in victims:
            self._credit.spend(victim.num_computed_tokens)
            self._budget_tokens += self._draft.withdraw(victim)
            roster.preempt(victim, self._now)
        self._victims += victims
        return bool(victims)
