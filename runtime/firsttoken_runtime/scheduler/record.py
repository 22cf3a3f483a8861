"""What the scheduler has seen: speed, lengths, use of memory. It decides nothing."""

from collections import Counter
from collections.abc import Mapping

from firsttoken_api.step_fit import LOADED_SHARE, StepFit
from firsttoken_api.step_time import StepTime
from firsttoken_runtime.scheduler import demand, lengths, speed, usage
from firsttoken_runtime.scheduler.sequence import Sequence
from firsttoken_runtime.scheduler.step import ScheduledStep


class Record:
    """Measurements since the start. All clocks are that of `now`."""

    def __init__(self) -> None:
        self.speed = speed.Speed()
        self.step_fit = StepFit()
        self.lengths = lengths.OutputLengths()
        self.memory_use = usage.MemoryUse()
        self.demand = demand.FormatDemand()
        self.preemptions_total = 0
        self.decisions: Counter[str] = Counter()
        """By `rules.Reason`."""
        self.looked_up_tokens = 0
        self.found_tokens = {"device": 0, "host": 0}
        self.peak_concurrency = 0
        self._scheduled_at_s = 0.0
        self._committed_at_s: float | None = None

    def assume(self, step_time: StepTime) -> None:
        """As measured before the first step."""
        self.step_fit = StepFit(step_time)

    def note_idle(self) -> None:
        """Time until the next step serves nobody and counts for nothing."""
        self._committed_at_s = None

    def note_open(self, num_sequences: int) -> None:
        self.peak_concurrency = max(self.peak_concurrency, num_sequences)

    def note_scheduled(self, now: float) -> None:
        self._scheduled_at_s = now
        if self._committed_at_s is None:
            self._committed_at_s = now

    def note_computed(
        self,
        step: ScheduledStep,
        now: float,
        *,
        waiting: int,
        live_slots: int,
        needed_slots: int,
        allocated_slots: int,
        prefill_budget_tokens: int,
    ) -> None:
        """A step ended. live_slots: before it; the others: while it ran."""
        since_s = self._committed_at_s if self._committed_at_s is not None else self._scheduled_at_s
        self._committed_at_s = now
        num_tokens = step.num_tokens
        self.speed.note_step(step.num_prefill_tokens, num_tokens, now - self._scheduled_at_s)
        if num_tokens:
            # From end to end: what lies between two steps is time that those who wait wait for.
            self.step_fit.note(
                now - since_s,
                prefill_tokens=step.num_prefill_tokens,
                decoding=len(step.decodes),
                context_tokens=live_slots,
                is_loaded=waiting > 0 or step.num_prefill_tokens >= LOADED_SHARE * prefill_budget_tokens,
            )
        if waiting:
            self.memory_use.note(
                now - since_s,
                live_slots=live_slots + num_tokens / 2,
                needed_slots=needed_slots,
                allocated_slots=allocated_slots,
            )

    def note_looked_up(self, num_tokens: int, found_tokens: Mapping[str, int]) -> None:
        """A sequence was admitted for the first time; `found_tokens`: by tier."""
        self.looked_up_tokens += num_tokens
        for tier, found in found_tokens.items():
            self.found_tokens[tier] += found

    def note_finished(self, sequence: Sequence) -> None:
        name = sequence.class_in_force.name
        self.lengths.add(name, sequence.num_output_tokens, sequence.num_tokens)
