"""The scheduler: hands out the tokens of each step under one budget.

There is no prefill or decode phase. Every sequence has `num_computed_tokens`; a step moves some of
them closer to `num_tokens`. Order within a step:

1. decodes, in order of class and arrival; who needs a block when none is free takes it from the last
   in that order (preemption: blocks are freed, the output is kept, the sequence waits at the front of
   its class and is computed again);
2. prefills, running or waiting, in one line (`order`), each with a chunk; one turn in some belongs to
   who has waited longest (`turns`), so that nobody starves. Who waits is admitted when all its known
   tokens fit (`memory`); if they do not, a more urgent class may take slots and blocks of a lower one
   (`preemption`), and nobody behind it is admitted.

Victims of 1 come last in the order in which decodes are visited, so they were given nothing yet;
victims of 2 give their token back. After a preemption for a decode nobody is admitted in that step;
after one for a prompt only those more urgent than all its victims, so no victim returns at once. A
sequence preempted MAX_PREEMPTIONS times is never a victim again and is promised every block it may
ever need. Hence somebody can always go on, and everybody ends.
"""

from collections.abc import Mapping, Set

from firsttoken_api.step_time import StepTime
from firsttoken_runtime import core
from firsttoken_runtime.cache import blocks
from firsttoken_runtime.cache import host as cache_host
from firsttoken_runtime.scheduler import admission, decodes, prefills, rules, statistics
from firsttoken_runtime.scheduler import classes as request_classes
from firsttoken_runtime.scheduler import limits as scheduler_limits
from firsttoken_runtime.scheduler.roster import Roster
from firsttoken_runtime.scheduler.sequence import Sequence
from firsttoken_runtime.scheduler.step import Committed, Draft, ScheduledStep


class NeverFits(Exception):  # noqa: N818
    """A sequence that can never run; the message says why."""


class Unchanged:
    """As before, where None has a meaning of its own."""


UNCHANGED = Unchanged()


class Scheduler:
    """Owns every sequence and every block from submit to the end."""

    def __init__(
        self,
        limits: scheduler_limits.Limits,
        pool: blocks.Pool,
        classes: request_classes.ClassTable = request_classes.ONE_CLASS,
        *,
        lineage: bytes = b"",
        host: cache_host.HostIndex | None = None,
        break_even: rules.BreakEven | None = None,
    ) -> None:
        """lineage: of all KV in the pool; host: the tier behind it; break_even: None = copies always pay."""
        self._roster = Roster(limits, pool, classes, lineage, host, break_even)
        self._prefills = prefills.Prefills(limits.max_num_batched_tokens)
        self._step_number = 0
        self._now = 0.0

    @property
    def limits(self) -> scheduler_limits.Limits:
        return self._roster.limits

    @property
    def pool(self) -> blocks.Pool:
        return self._roster.memory.pool

    @property
    def classes(self) -> request_classes.ClassTable:
        return self._roster.order.table

    @property
    def lineage(self) -> bytes:
        """What everything in the pool is computed under."""
        return self._roster.reuse.prefixes.lineage

    @property
    def recompute_debt_tokens(self) -> int:
        """Known tokens whose KV a switch or a preemption took, not computed again yet."""
        return self._roster.debt_tokens

    @property
    def has_work(self) -> bool:
        """Held sequences alone are none."""
        return self._roster.has_work

    def is_open(self, sequence_id: int) -> bool:
        """True from submit until it ended or was aborted."""
        return sequence_id in self._roster.sequences

    def running_ids(self) -> Set[int]:
        return self._roster.running.ids

    @property
    def prefill_tokens_per_s(self) -> float:
        """Measured; 0 = not known yet."""
        return self._roster.record.speed.prefill_tokens_per_s

    def assume(self, step_time: StepTime) -> None:
        """What a step costs, as measured before the first one; the steps themselves correct it."""
        self._roster.record.assume(step_time)

    def full_share(self, *, is_caching: bool) -> float:
        """The part of the blocks, 0..1, that is FULL under quantization, or would be, with prefixes cached or
        not."""
        return self._roster.record.demand.full_share(is_caching=is_caching)

    def last_token_times(self) -> dict[int, float]:
        """When each running sequence that has had a token had its newest one."""
        running = self._roster.running
        return {one.sequence_id: one.last_token_at_s for one in running if one.last_token_at_s}

    def submit(self, sequence: Sequence) -> None:
        """Queue a sequence. Raises NeverFits."""
        assert not self.is_open(sequence.sequence_id), f"id {sequence.sequence_id} is in use"
        reason = admission.refusal(
            sequence.num_prompt_tokens,
            sequence.sampling,
            self.limits,
            self._roster.longest_tokens(sequence),
        )
        if reason is not None:
            raise NeverFits(reason)
        self._roster.open(sequence)

    def abort(self, sequence_id: int) -> None:
        """Forget a sequence and free its blocks; unknown and finished ids are ignored."""
        sequence = self._roster.sequences.get(sequence_id)
        if sequence is not None:
            self._roster.close(sequence)

    def hold(self, sequence_id: int) -> None:
        """Do not consider a waiting sequence until `release`; other ids are ignored."""
        self._roster.hold(sequence_id)

    def release(self, sequence_id: int) -> None:
        """Let a held sequence wait in its place; other ids are ignored."""
        self._roster.release(sequence_id)

    def switch(
        self,
        limits: scheduler_limits.Limits,
        pool: blocks.Pool | None = None,
        classes: request_classes.ClassTable | None = None,
        lineage: bytes | None = None,
        host: cache_host.HostIndex | Unchanged | None = UNCHANGED,
    ) -> int:
        """Change limits and classes at a step boundary; None = as before. With another pool or lineage all
        that run keep their tokens and are computed again. -> so many tokens have to be.

        A host tier is asked to forget what was not copied to it yet: `reset` it afterwards, not before.
        """
        roster = self._roster
        wanted_host = roster.reuse.transfers.host if isinstance(host, Unchanged) else host
        if pool is not None or wanted_host is not roster.reuse.transfers.host:
            # What the old pool evicts on its way out is not saved: its bytes go with it, and the tier may
            # already be cut for other formats.
            roster.reuse.replace_host(None)
        lineage = self.lineage if lineage is None else lineage
        lost_tokens = 0
        if pool is not None or lineage != self.lineage:
            lost_tokens = roster.restart(limits, pool, lineage, self._now)
        if wanted_host is not roster.reuse.transfers.host:
            roster.reuse.replace_host(wanted_host)
        roster.reorder(limits, self.classes if classes is None else classes)
        return lost_tokens

    def use_break_even(self, break_even: rules.BreakEven | None) -> None:
        """What copies from and to the host tier were found to cost; None: they always pay."""
        self._roster.reuse.use_break_even(break_even)

    def pin(self, prompts: list[list[int]]) -> int:
        """Keep the blocks of these prompts (salt "") once they are computed, also after a switch, and no
        others. -> how many blocks found no room."""
        return self._roster.reuse.pin(prompts)

    def schedule(self, now: float) -> ScheduledStep:
        """Decide the next step; its tokens count as computed only at `commit`. `now`: monotonic clock."""
        self._now = now
        self._step_number += 1
        roster = self._roster
        roster.record.note_scheduled(now)
        for sequence in roster.reuse.transfers.unconfirmed():
            if sequence in roster.running:
                roster.put_back(sequence, now)
        roster.reuse.sizing.note_running(len(roster.running), self.pool, now)
        draft = Draft(self._step_number, self.limits.step_budget_tokens)
        if not self.limits.continuous_batching and not roster.running:
            prefills.admit_batch(roster, now)
        decodes.add(draft, roster, now)
        self._prefills.add(draft, roster, now)
        return draft.finished(*roster.reuse.transfers.take())

    def commit(
        self, step: ScheduledStep, sampled: Mapping[int, int], now: float, complete: Set[int] = frozenset()
    ) -> Committed:
        """Take the results of a step.  sampled: sequence id -> its new token, for all work that samples;
        complete: ids that end with it, because nothing may follow.

        Sequences that were aborted meanwhile are passed over. Finished ones are forgotten.
        """
        self._now = now
        roster = self._roster
        self._note_computed(step, now)
        roster.reuse.transfers.confirm()
        committed = Committed([], [])
        gaps: dict[float, int] = {}
        for work in step.work:
            sequence = work.sequence
            if sequence not in roster.running:
                continue
            num_computed_tokens = sequence.num_computed_tokens + work.num_tokens
            sequence.num_computed_tokens = num_computed_tokens
            roster.computed_tokens += work.num_tokens
            if sequence.owed_tokens:
                roster.pay(sequence, work.num_tokens)
            if num_computed_tokens >= sequence.publish_at_tokens:
                roster.publish(sequence)
            if work.samples:
                if sequence.last_token_at_s:
                    gap_s = now - sequence.last_token_at_s
                    gaps[gap_s] = gaps.get(gap_s, 0) + 1
                sequence.last_token_at_s = now
                committed.tokens.append(self._take(sequence, sampled, complete, now))
            elif sequence.num_uncomputed_tokens == 0:
                roster.close(sequence)
                committed.ended.append(sequence.sequence_id)
            else:
                roster.rank(sequence)
        for gap_s, count in gaps.items():
            roster.record.speed.note_gaps(now, gap_s, count)
        self._prefills.credit.earn(step.num_tokens)
        return committed

    def stats(self) -> core.Stats:
        """A look at everything; costs little beside a step."""
        return statistics.look(self._roster, self._now, self._prefills.budget_tokens)

    def check_integrity(self) -> None:
        """Assert that blocks and sequences account for each other; when idle nobody holds a block."""
        self._roster.check_integrity()

    def _take(
        self, sequence: Sequence, sampled: Mapping[int, int], complete: Set[int], now: float
    ) -> core.Token:
        """A new token of a sequence whose known tokens are all computed."""
        roster, token_id = self._roster, sampled[sequence.sequence_id]
        if roster.running.is_prefilling(sequence):
            roster.running.start_decoding(sequence)
            sequence.is_returning = sequence.is_switched = False
        sequence.token_ids.append(token_id)
        finish_reason = sequence.finish_reason(token_id, self.limits.max_model_len)
        ends_after = sequence.sequence_id in complete and finish_reason != "stop"
        if ends_after:
            finish_reason = "stop"
        if finish_reason:
            roster.record.note_finished(sequence)
            roster.reuse.note_finished(sequence)
            roster.close(sequence)
        elif self.limits.length_control:
            roster.control_length(sequence)
        is_first = len(sequence.token_ids) == sequence.num_prompt_tokens + 1
        return core.Token(
            sequence_id=sequence.sequence_id,
            token_id=token_id,
            finish_reason=finish_reason,
            cached_tokens=sequence.cached_tokens if is_first else 0,
            ends_after=ends_after,
            times=sequence.first_token_times(now) if is_first else None,
        )

    def _note_computed(self, step: ScheduledStep, now: float) -> None:
        roster = self._roster
        roster.record.note_computed(
            step,
            now,
            waiting=len(roster.waiting) + len(roster.held),
            live_slots=roster.live_slots,
            needed_slots=roster.needed_slots(),
            allocated_slots=roster.allocated_slots,
            prefill_budget_tokens=self._prefills.budget_tokens,
        )
