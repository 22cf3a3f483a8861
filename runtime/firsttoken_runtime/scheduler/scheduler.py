"""The scheduler: hands out the tokens of each step under one budget.

There is no prefill or decode phase. Every sequence has `num_computed_tokens`; a step moves some of
them closer to `num_tokens`. Order within a step:

1. decodes, in order of arrival; who needs a block when none is free takes it from the latest arrival
   (preemption: blocks are freed, the output is kept, the sequence waits in its old place and is
   computed again);
2. prefills that run already, then those that wait, first come first served. A prompt's blocks are
   all taken at admission, so that prefills never preempt anybody.

Because victims are the latest arrivals and decodes are visited in order of arrival, nobody who was
given tokens in this step can become a victim in it. A sequence preempted `MAX_PREEMPTIONS` times is
admitted again only with every block it may ever need, so it never needs another victim, and nobody
can wait for ever.
"""

from collections.abc import Mapping, Set

from firsttoken_runtime import core
from firsttoken_runtime.cache import blocks
from firsttoken_runtime.scheduler import admission, queue
from firsttoken_runtime.scheduler import limits as scheduler_limits
from firsttoken_runtime.scheduler.sequence import Committed, ScheduledStep, Sequence, Work


class NeverFits(Exception):  # noqa: N818
    """A sequence that can never run; the message says why."""


class Scheduler:
    """Owns every sequence and every block from submit to the end."""

    def __init__(self, limits: scheduler_limits.Limits, pool: blocks.Pool) -> None:
        self.limits = limits
        self.pool = pool
        self.preemptions_total = 0
        self._sequences: dict[int, Sequence] = {}
        self._waiting = queue.WaitingQueue()
        self._running: dict[int, Sequence] = {}
        self._step_number = 0

    def submit(self, sequence: Sequence) -> None:
        """Queue a sequence. Raises NeverFits."""
        assert sequence.sequence_id not in self._sequences, f"id {sequence.sequence_id} is in use"
        pool_tokens = self.pool.num_blocks * self.pool.block_size_tokens
        reason = admission.refusal(sequence.num_prompt_tokens, sequence.sampling, self.limits, pool_tokens)
        if reason is not None:
            raise NeverFits(reason)
        self._sequences[sequence.sequence_id] = sequence
        self._waiting.push(sequence)

    def abort(self, sequence_id: int) -> None:
        """Forget a sequence and free its blocks; unknown and finished ids are ignored."""
        sequence = self._sequences.get(sequence_id)
        if sequence is not None:
            self._remove(sequence)

    @property
    def has_work(self) -> bool:
        return bool(self._sequences)

    def running_ids(self) -> Set[int]:
        return self._running.keys()

    def schedule(self, now: float) -> ScheduledStep:
        """Decide the next step; its tokens count as computed only at `commit`. `now`: monotonic clock."""
        self._step_number += 1
        if not self.limits.continuous_batching and not self._running:
            self._admit_batch()
        budget = self.limits.step_budget_tokens
        running = sorted(self._running.values(), key=lambda sequence: sequence.order)
        preempted: list[Sequence] = []
        decodes: list[Work] = []
        for sequence in running:
            if sequence.is_decoding and sequence.sequence_id in self._running:
                preempted += self._make_room(sequence)
                if sequence.sequence_id in self._running:
                    decodes.append(Work(sequence, sequence.num_computed_tokens, 1, samples=True))
        assert not any(work.sequence in preempted for work in decodes)
        budget -= len(decodes)

        candidates = [s for s in running if s.sequence_id in self._running and not s.is_decoding]
        prefills: list[Work] = []
        prompts_in_line = len(candidates) + len(self._waiting)
        share = self._largest_chunk(budget, prompts_in_line)
        for sequence in candidates[: self.limits.max_prefill_batch]:
            budget -= self._add_prefill(prefills, sequence, budget, share)
        while self.limits.continuous_batching and not preempted:
            waiting = self._waiting.first()
            if (
                waiting is None
                or len(self._running) >= self.limits.max_num_seqs
                or len(prefills) >= self.limits.max_prefill_batch
                or self._next_chunk(waiting, budget, share) == 0
                or not self._can_admit(waiting)
            ):
                break
            self._admit(waiting)
            budget -= self._add_prefill(prefills, waiting, budget, share)
        return ScheduledStep(self._step_number, tuple(decodes), tuple(prefills), tuple(preempted))

    def commit(self, step: ScheduledStep, sampled: Mapping[int, int], now: float) -> Committed:
        """Take the results of a step.  sampled: sequence id -> its new token, for all work that samples.

        Sequences that were aborted meanwhile are passed over. Finished ones are forgotten.
        """
        tokens: list[core.Token] = []
        for work in step.work:
            sequence = work.sequence
            if self._running.get(sequence.sequence_id) is not sequence:
                continue
            sequence.num_computed_tokens += work.num_tokens
            if not work.samples:
                continue
            token_id = sampled[sequence.sequence_id]
            sequence.token_ids.append(token_id)
            finish_reason = self._finish_reason(sequence, token_id)
            if finish_reason:
                self._remove(sequence)
            tokens.append(
                core.Token(
                    sequence_id=sequence.sequence_id,
                    token_id=token_id,
                    finish_reason=finish_reason,
                    times=sequence.first_token_times(now) if sequence.num_output_tokens == 1 else None,
                )
            )
        return Committed(tokens, [])

    def switch(self, limits: scheduler_limits.Limits, pool: blocks.Pool | None = None) -> None:
        """Change limits at a step boundary. With another pool all that run are computed again."""
        self.limits = limits
        if pool is not None:
            for sequence in list(self._running.values()):
                self._release(sequence)
                self._waiting.push(sequence)
            self.pool = pool

    def stats(self) -> core.Stats:
        in_line = [s for s in self._running.values() if not s.is_decoding] + list(self._waiting)
        return core.Stats(
            running=len(self._running),
            waiting=len(self._waiting),
            backlog_tokens=sum(sequence.num_uncomputed_tokens for sequence in in_line),
            blocks_used=self.pool.num_used,
            blocks_total=self.pool.num_blocks,
            block_size_tokens=self.pool.block_size_tokens,
            preemptions_total=self.preemptions_total,
        )

    def check_integrity(self) -> None:
        """Assert that blocks and sequences account for each other; when idle every block is free."""
        held = [block_id for s in self._sequences.values() for block_id in s.block_table]
        self.pool.check_integrity(held)
        waiting = {sequence.sequence_id for sequence in self._waiting}
        assert waiting | self._running.keys() == self._sequences.keys()
        assert not waiting & self._running.keys()
        assert self._sequences or self.pool.num_free == self.pool.num_blocks

    def _make_room(self, sequence: Sequence) -> list[Sequence]:
        """Get the block for the newest token, preempting if needed. Returns the victims; the sequence
        itself may be among them."""
        victims: list[Sequence] = []
        missing = self.pool.blocks_for(sequence.num_tokens) - len(sequence.block_table)
        while missing > self.pool.num_free:
            victim = self._victim()
            victims.append(victim)
            self._preempt(victim)
            if victim is sequence:
                return victims
        sequence.block_table += self.pool.allocate(missing)
        return victims

    def _victim(self) -> Sequence:
        """The latest arrival that may still be preempted."""
        return max(
            (s for s in self._running.values() if s.preemptions < scheduler_limits.MAX_PREEMPTIONS),
            key=lambda sequence: sequence.order,
        )

    def _preempt(self, sequence: Sequence) -> None:
        sequence.preemptions += 1
        self.preemptions_total += 1
        self._release(sequence)
        self._waiting.push(sequence)

    def _largest_chunk(self, prefill_budget: int, prompts_in_line: int) -> int:
        """Most tokens of one prompt in this step: while another waits, at most half of the budget."""
        if self.limits.chunk_tokens is None:
            return prefill_budget
        share = prefill_budget
        if prompts_in_line > 1:
            share = max(prefill_budget // 2, scheduler_limits.MIN_CHUNK_TOKENS)
        return min(self.limits.chunk_tokens, share)

    def _next_chunk(self, sequence: Sequence, budget: int, share: int) -> int:
        """Tokens the sequence gets now; 0 when nothing, or not all of an uncut prompt, fits."""
        if self.limits.chunk_tokens is None:
            return sequence.num_uncomputed_tokens if sequence.num_uncomputed_tokens <= budget else 0
        return min(sequence.num_uncomputed_tokens, budget, share)

    def _add_prefill(self, prefills: list[Work], sequence: Sequence, budget: int, share: int) -> int:
        """Give a sequence its chunk and return its size."""
        num_tokens = self._next_chunk(sequence, budget, share)
        if num_tokens:
            first = sequence.num_computed_tokens
            samples = first + num_tokens == sequence.num_tokens
            prefills.append(Work(sequence, first, num_tokens, samples))
        return num_tokens

    def _admit_batch(self) -> None:
        """Static batching: fill the empty engine with all that fit."""
        while (waiting := self._waiting.first()) and len(self._running) < self.limits.max_num_seqs:
            if not self._can_admit(waiting):
                break
            self._admit(waiting)

    def _blocks_at_admission(self, sequence: Sequence) -> int:
        if sequence.preemptions < scheduler_limits.MAX_PREEMPTIONS:
            return self.pool.blocks_for(sequence.num_tokens)
        longest = admission.most_tokens(
            sequence.num_prompt_tokens, sequence.sampling, self.limits.max_model_len
        )
        return self.pool.blocks_for(longest)

    def _can_admit(self, sequence: Sequence) -> bool:
        watermark = self.limits.watermark_blocks(self.pool.num_blocks, len(self._running))
        return self.pool.can_allocate(self._blocks_at_admission(sequence) + watermark)

    def _admit(self, sequence: Sequence) -> None:
        self._waiting.remove(sequence)
        sequence.block_table = self.pool.allocate(self._blocks_at_admission(sequence))
        self._running[sequence.sequence_id] = sequence

    def _release(self, sequence: Sequence) -> None:
        self.pool.release(sequence.block_table)
        sequence.block_table = []
        sequence.num_computed_tokens = 0
        del self._running[sequence.sequence_id]

    def _remove(self, sequence: Sequence) -> None:
        if sequence.sequence_id in self._running:
            self._release(sequence)
        else:
            self._waiting.remove(sequence)
        del self._sequences[sequence.sequence_id]

    def _finish_reason(self, sequence: Sequence, token_id: int) -> str:
        if token_id in sequence.stop_ids and sequence.num_output_tokens >= sequence.sampling.min_tokens:
            return "stop"
        if (
            sequence.num_output_tokens >= sequence.sampling.max_tokens
            or sequence.num_tokens >= self.limits.max_model_len
        ):
            return "length"
        return ""
