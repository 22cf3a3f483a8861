"""The second half of a step: which prompts get a chunk, and who is admitted.

One line for all whose known tokens are not computed, running or waiting. It is followed until the
budget or the number of prompts of a step is used up; what is left of the budget then goes to the first
ones in line. Who waits is looked up in the cache when its turn comes: what is found need not be computed,
and if somebody is computing its prefix it leaves the line until that is done.

Who cannot be admitted keeps all behind it waiting, so that it gets what becomes free. Only where it lacks
nothing but FULL blocks, those go on that need none of them.
"""

from firsttoken_runtime.cache.formats import Counts
from firsttoken_runtime.scheduler import affinity, memory, order, pace, preemption, rules, turns
from firsttoken_runtime.scheduler.prefixes import Hits
from firsttoken_runtime.scheduler.roster import Roster
from firsttoken_runtime.scheduler.sequence import Sequence
from firsttoken_runtime.scheduler.step import Draft


def admit_batch(roster: Roster, now: float) -> None:
    """Static batching: fill the empty engine with all that fit."""
    limits, kv = roster.limits, roster.memory
    while len(roster.running) < limits.max_num_seqs and roster.waiting:
        (first,) = roster.waiting.first(1)
        hits = roster.find(first)
        watermark = kv.watermark(len(roster.running), limits)
        if not (kv.cost(kv.needed(first, limits), hits.device) + watermark).fits(kv.available):
            break
        roster.reserve(first, hits)
        roster.admit(first, hits, now)


class Prefills:
    """Keeps, from step to step, whose turn it is and what preemption may still cost."""

    def __init__(self, step_tokens: int) -> None:
        self.credit = preemption.Credit(step_tokens)
        self.budget_tokens = step_tokens
        """Prompt tokens that the last step could have taken."""
        self._turns = turns.Turns()
        self._pace = pace.PrefillPace()

    def add(self, draft: Draft, roster: Roster, now: float) -> None:
        """Fill the draft, which has its decodes."""
        self.budget_tokens = draft.budget_tokens
        running = roster.running.prefilling
        waiting = self._waiting(roster)
        num_in_line = len(running)
        if roster.limits.continuous_batching:
            num_in_line += roster.waiting.num_in_line
        if num_in_line == 0:
            return
        in_line = _merged(running, self._arranged(waiting, roster, now))
        overdue = self._overdue(roster, now)
        turn = overdue if self._turns.is_due() else None
        if roster.limits.prefill_only_when_idle and draft.decodes:
            turn, in_line = overdue, []
        if turn is not None:
            in_line = [turn, *(sequence for sequence in in_line if sequence is not turn)]
        self.budget_tokens = budget_tokens = self._budget(draft, roster, now)
        visit = _Visit(draft, roster, budget_tokens, num_in_line, turn, self.credit, now)
        visit.run(in_line)
        if draft.prefills:
            for leader in roster.reuse.in_flight.note_step(draft.prefills):
                roster.end_lead(leader, rules.Reason.SHARING_STALLED)
        if roster.limits.prefix_affinity_max_wait_s is not None:
            left = [one for one in waiting if one in roster.running or roster.waiting.is_in_line(one)]
            affinity.note_passed_over(left, roster.running.__contains__, now)
        if overdue is not None:
            served = overdue.sequence_id in draft.prefills
            self._turns.note(has_prefills=bool(draft.prefills), is_served=served)

    def _waiting(self, roster: Roster) -> list[Sequence]:
        """The first of those that wait, by rank; more of them than can be admitted."""
        limits = roster.limits
        if not limits.continuous_batching:
            return []
        count = limits.max_prefill_batch + 1
        if limits.prefix_affinity_max_wait_s is not None or roster.memory.is_quantizing:
            count = max(count, affinity.WINDOW)
        return roster.waiting.first(count)

    def _arranged(self, waiting: list[Sequence], roster: Roster, now: float) -> list[Sequence]:
        """In the order in which they are to be considered."""
        max_wait_s = roster.limits.prefix_affinity_max_wait_s
        prefixes = roster.reuse.prefixes
        is_full = len(roster.running) >= roster.limits.max_num_seqs
        if max_wait_s is None or is_full or not prefixes.is_caching:
            return waiting
        return affinity.arrange(waiting, prefixes.is_mostly_cached, max_wait_s, now)

    def _budget(self, draft: Draft, roster: Roster, now: float) -> int:
        limits = roster.limits
        if not draft.decodes or limits.chunk_tokens is None:
            return draft.budget_tokens
        return self._pace.budget_tokens(draft.budget_tokens, limits.tpot_p95_s, roster.record.speed, now)

    def _overdue(self, roster: Roster, now: float) -> Sequence | None:
        """The longest waiting of those that wait too long; first come, first served needs no such turn. The
        turn of one that waits for a prefix is for who computes that."""
        if not roster.limits.priority and not roster.limits.prefill_only_when_idle:
            return None
        candidates = roster.running.prefilling
        longest = roster.waiting.longest_waiting()
        if longest is not None and roster.limits.continuous_batching:
            candidates.append(longest)
        overdue = turns.overdue(candidates, now)
        leader = roster.reuse.in_flight.leader_of(overdue) if overdue is not None else None
        return overdue if leader is None else leader


def _merged(running: list[Sequence], waiting: list[Sequence]) -> list[Sequence]:
    """One line by rank, in which those that wait keep their order among each other."""
    running.sort(key=lambda sequence: sequence.rank)
    line: list[Sequence] = []
    for sequence in waiting:
        while running and running[0].rank < sequence.rank:
            line.append(running.pop(0))
        line.append(sequence)
    return line + running


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
        self._short_of_full: Sequence | None = None
        """The first that lacks FULL blocks and nothing else."""
        self._is_kept = False
        """What is free is kept for who has waited longest; others may only take the place of victims."""
        self._is_turn_taken = False
        """Who waited longest was admitted; nobody is preempted in a step that admits a less urgent one."""
        self._victims: list[Sequence] = []
        self._is_done = False
        """Budget or prompts of the step are used up, or one that may not be cut does not fit."""

    def run(self, in_line: list[Sequence]) -> None:
        served: list[Sequence] = []
        visited: set[int] = set()
        while in_line:
            num_parked = self._roster.waiting.num_parked
            self._walk(in_line, served)
            if self._is_done or self._is_full or self._roster.waiting.num_parked == num_parked:
                break
            # Some wait for a prefix now, so others are the first in line.
            visited.update(sequence.sequence_id for sequence in in_line)
            first = self._roster.waiting.first(self._roster.limits.max_prefill_batch + 1)
            in_line = [sequence for sequence in first if sequence.sequence_id not in visited]
        if self._roster.limits.chunk_tokens is not None:
            self._hand_out_rest(served)

    def _walk(self, in_line: list[Sequence], served: list[Sequence]) -> None:
        roster = self._roster
        size = roster.memory.pool.block_size_tokens
        for sequence in in_line:
            if len(served) >= roster.limits.max_prefill_batch or self._budget_tokens <= 0:
                self._is_done = True
                return
            wanted = sequence.num_uncomputed_tokens
            hits: Hits | None = None
            if sequence not in roster.running:
                if self._is_full or self._is_held_up(sequence) or not self._may_be_admitted(sequence):
                    continue
                hits = roster.find(sequence)
                if roster.has_to_wait(sequence, hits):
                    continue
                wanted -= hits.num_blocks * size
            num_tokens = self._next_chunk(wanted)
            if num_tokens == 0:  # a prompt that may not be cut and does not fit; those behind it wait too
                self._is_done = True
                return
            if hits is None or self._admit(sequence, hits):
                self._give(sequence, num_tokens)
                served.append(sequence)

    def _next_chunk(self, wanted: int) -> int:
        """Tokens it gets now of those it wants; 0 when not all of an uncut prompt fits."""
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

    def _is_held_up(self, sequence: Sequence) -> bool:
        """By one that lacks FULL blocks. What passes it takes none of them, and is one that the order could
        have put before it."""
        first = self._short_of_full
        if first is None:
            return False
        return sequence.num_full_blocks > 0 or sequence.arrival_s > first.arrival_s + order.MAX_HEAD_START_S

    def _may_be_admitted(self, sequence: Sequence) -> bool:
        """False if it would take what a victim, no less urgent than itself, was preempted for."""
        order = self._roster.order
        return all(order.is_more_urgent(sequence, victim) for victim in self._victims)

    def _admit(self, sequence: Sequence, hits: Hits) -> bool:
        """Find a slot and blocks for a waiting one, at the cost of a lower class if need be."""
        slots, blocks = self._missing(sequence, hits)
        is_short = slots > 0 or not blocks.fits(memory.NONE)
        victims = self._less_urgent(sequence, slots, blocks, hits) if is_short else []
        if is_short and not victims:
            if sequence is self._turn:
                self._is_kept = True
            elif slots <= 0 and blocks.quantized <= 0:
                self._short_of_full = sequence
            else:
                self._is_full = True
            return False
        self._roster.reserve(sequence, hits)
        self._preempt(victims)
        self._roster.admit(sequence, hits, self._now)
        self._is_turn_taken = self._is_turn_taken or sequence is self._turn
        return True

    def _missing(self, sequence: Sequence, hits: Hits) -> tuple[int, Counts]:
        """Slots and blocks that must become free before it can run."""
        limits, kv, num_running = self._roster.limits, self._roster.memory, len(self._roster.running)
        cost = kv.cost(kv.needed(sequence, limits), hits.device)
        if self._is_kept:
            return 1, cost
        return (
            num_running + 1 - limits.max_num_seqs,
            cost + kv.watermark(num_running, limits) - kv.available,
        )

    def _less_urgent(self, sequence: Sequence, slots: int, blocks: Counts, hits: Hits) -> list[Sequence]:
        """Whom to preempt for it; nobody, if that is not enough."""
        roster = self._roster
        if not roster.order.has_less_urgent(sequence) or self._is_turn_taken:
            return []
        candidates = (
            other
            for other in roster.running.last_first()
            if roster.order.is_more_urgent(sequence, other) and other.sequence_id not in self._draft.prefills
        )
        return preemption.victims(
            candidates, slots, blocks, roster.memory, self._credit, kept=set(hits.device)
        )

    def _preempt(self, victims: list[Sequence]) -> None:
        for victim in victims:
            self._credit.spend(victim.num_computed_tokens)
            self._budget_tokens += self._draft.withdraw(victim)
            self._roster.preempt(victim, self._now)
        self._victims += victims
