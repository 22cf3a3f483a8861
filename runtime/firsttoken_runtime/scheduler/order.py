"""Who comes first: class, then vLLM's integer priority, then aged expected work.

A waiting second must count for something, or a long prompt behind a stream of short ones never runs.
Expected work less ageing, `work_s - AGEING * (now - arrival_s)`, orders everybody as `start_by_s =
arrival_s + work_s / AGEING` does, and that does not move while time passes: nothing is sorted again.
The head start is cut at MAX_HEAD_START_S, which gives the bound:

**Inside a class and an integer priority, nobody who arrives more than MAX_HEAD_START_S after a request
is ever ordered before it**, except victims, who return first and are at most MAX_PREEMPTIONS times that.
What holds across classes and integer priorities is said in `turns`.
"""

from firsttoken_runtime.scheduler import classes, lengths, speed
from firsttoken_runtime.scheduler.sequence import Place, Rank, Sequence

AGEING = 1.0
"""Seconds of expected work that a second of waiting outweighs. At 1 nobody waits longer than in order of
arrival by more than its own work; less ageing serves the median better, but the objective is a P95, and at
0.2 a load with one longer answer in six had twice the P95 of first come, first served."""
MAX_HEAD_START_S = 30.0
DEFAULT_OUTPUT_TOKENS = 128
"""Expected of a request that says nothing, in a class that has not finished one yet."""


class Order:
    """Ranks sequences by what is known about classes, speed and lengths now."""

    def __init__(self, by_class: bool, table: classes.ClassTable) -> None:
        self.by_class = by_class
        """False: one class, first come, first served."""
        self.table = table

    def classify(self, sequence: Sequence) -> None:
        """Look up what its class means now."""
        found = self.table.find(sequence.request_class)
        sequence.class_in_force = self.table.below(found) if sequence.is_lowered else found

    def rank(self, sequence: Sequence, measured: speed.Speed, medians: lengths.OutputLengths) -> Rank:
        """Its place in the line of prompts."""
        arrival_s, sequence_id = sequence.arrival_s, sequence.sequence_id
        urgency = -sequence.class_in_force.priority if self.by_class else 0
        if sequence.is_switched:  # before all others of its class, the shortest recompute first
            return (urgency, -1, 0, float(sequence.num_uncomputed_tokens), arrival_s, sequence_id)
        if not self.by_class:
            return (0, 0, 0, 0.0, arrival_s, sequence_id)
        work_s = measured.work_s(sequence.backlog_tokens, expected_tokens(sequence, medians))
        start_by_s = arrival_s + min(work_s / AGEING, MAX_HEAD_START_S)
        return (
            urgency,
            0 if sequence.is_returning else 1,
            sequence.priority,
            start_by_s,
            arrival_s,
            sequence_id,
        )

    def place(self, sequence: Sequence) -> Place:
        """Its place among those that run; the last are the first victims."""
        return (-self.priority(sequence), sequence.arrival_s, sequence.sequence_id)

    def priority(self, sequence: Sequence) -> int:
        """Of its class, or of the highest class of those that wait for what it computes."""
        if not self.by_class:
            return 0
        own, followers = sequence.class_in_force.priority, sequence.followers_rank
        return own if followers is None else max(own, -followers[0])

    def is_more_urgent(self, sequence: Sequence, than: Sequence) -> bool:
        """By class alone."""
        return self.by_class and self.priority(sequence) > self.priority(than)

    def has_less_urgent(self, sequence: Sequence) -> bool:
        """False when nobody's class can be below its own."""
        mine = sequence.class_in_force
        return self.by_class and self.table.below(mine) is not mine


def expected_tokens(sequence: Sequence, medians: lengths.OutputLengths) -> float:
    """Output that is still to come: what was asked for, else what its class usually gets."""
    expected: float | None = sequence.expected_output_tokens
    if expected is None:
        expected = medians.median(sequence.class_in_force.name)
    if expected is None:
        expected = DEFAULT_OUTPUT_TOKENS
    return max(min(expected, sequence.sampling.max_tokens) - sequence.num_output_tokens, 0)
