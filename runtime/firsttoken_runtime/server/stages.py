"""The parts of the time to the first token. Pure arithmetic on points of one monotonic clock.

A request passes arrival -> queued -> scheduled -> loaded -> prefilled -> sampled -> written; a stage is the
time between two neighbours, so the stages of a request add up to its TTFT exactly, whatever their lengths.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from firsttoken_runtime import core


class Stage(StrEnum):
    """What a request waits for, in order."""

    TOKENIZE = "tokenize"
    """From arrival until it is sent to the engine: reading, checking, tokenizing."""
    QUEUE = "queue"
    """Until it is first given tokens, the rest of the step that ran when it came included."""
    TIER_LOAD = "tier_load"
    """Until its blocks from the host tier are in place; 0 where it has none."""
    PREFILL = "prefill"
    """Until the forward pass of its last prompt token has ended."""
    FIRST_SAMPLE = "first_sample"
    """Until its first token is chosen."""
    WRITE = "write"
    """Until its first text is written: the way back, detokenizing, what a stop string held back."""


@dataclass(frozen=True)
class Timing:
    """The TTFT of one request and its parts, which add up to it."""

    ttft_s: float
    stages_s: Mapping[Stage, float]

    def document(self) -> dict[str, Any]:
        """As clients get it on demand. Milliseconds."""
        return {
            "ttft_ms": self.ttft_s * 1000,
            "stages_ms": {stage.value: seconds * 1000 for stage, seconds in self.stages_s.items()},
        }


@dataclass(frozen=True, kw_only=True)
class Ended:
    """A request that is over, as the tracer sees it."""

    arrival_s: float
    ended_s: float
    reason: str
    """`stop`, `length`, `tool_calls`, `abort` or `error`."""
    prompt_tokens: int
    completion_tokens: int
    times: core.FirstTokenTimes | None
    """None: no token was generated."""
    timing: Timing | None
    """None: nothing was written."""
    operation: str = "chat"
    """`chat` or `text_completion`, OpenTelemetry's words."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Of its trace context, lower case; empty = it has none."""

    @property
    def latency_s(self) -> float:
        return self.ended_s - self.arrival_s


def split(arrival_s: float, times: core.FirstTokenTimes | None, written_s: float) -> dict[Stage, float]:
    """Seconds of each stage; their sum is `written_s - arrival_s`.

    Points that a request never passed, or that lie outside, give a stage of length 0.
    """
    points = [arrival_s]
    if times is not None:
        loaded_s = times.loaded_s or times.scheduled_s
        points += [times.queued_s, times.scheduled_s, loaded_s, times.prefilled_s, times.sampled_s]
    else:
        points += [arrival_s] * 5
    points.append(written_s)
    for index in range(1, len(points)):
        points[index] = min(max(points[index], points[index - 1]), written_s)
    return {stage: points[index + 1] - points[index] for index, stage in enumerate(Stage)}
