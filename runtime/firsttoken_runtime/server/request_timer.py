"""The clock of one request: when it arrived, when its first text was written, when it ended.

TTFT runs from the arrival of the request to the moment its first text was written (for a whole answer:
was ready); a request without text counts at its end. All times are on the monotonic clock of this
machine, which the engine shares. Reports to `Metrics` as things happen, and to the tracer at the end.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from firsttoken_runtime import core
from firsttoken_runtime.server import stages
from firsttoken_runtime.server.metrics import Metrics


@dataclass
class _Pace:
    """How the tokens of one choice have come."""

    first_s: float
    last_s: float
    tokens: int


class RequestTimer:
    """Of one request with one or more choices."""

    def __init__(
        self,
        metrics: Metrics,
        clock: Callable[[], float] = time.monotonic,
        on_end: Callable[[stages.Ended], None] = lambda _: None,
        operation: str = "chat",
        trace_headers: Mapping[str, str] | None = None,
    ) -> None:
        self._metrics = metrics
        self._clock = clock
        self._on_end = on_end
        self._operation = operation
        self._trace_headers = trace_headers or {}
        self.arrival_s = clock()
        self.timing: stages.Timing | None = None
        """Set when the first text has been written."""
        self._times: core.FirstTokenTimes | None = None
        self._paces: dict[int, _Pace] = {}

    def tokens(self, tokens: Sequence[core.Token], choice: int = 0) -> None:
        """Tokens of one choice, at least one, have arrived from the engine."""
        now = self._clock()
        pace = self._paces.get(choice)
        if pace is not None:
            self._metrics.token_gap(now - pace.last_s, len(tokens))
            pace.last_s = now
            pace.tokens += len(tokens)
            return
        self._paces[choice] = _Pace(now, now, len(tokens))
        if (times := tokens[0].times) is not None:
            self._metrics.scheduled(max(0.0, times.scheduled_s - self.arrival_s))
            if self._times is None:
                self._times = times

    def text(self) -> None:
        """Text, or the end without any, has been written."""
        if self.timing is None:
            self.timing = self.timing_now()
            self._metrics.first_text(self.timing)

    def timing_now(self) -> stages.Timing:
        """What it would be if the first text were written now; once it was, what it is."""
        if self.timing is not None:
            return self.timing
        now = self._clock()
        return stages.Timing(now - self.arrival_s, stages.split(self.arrival_s, self._times, now))

    def since_first_text_s(self) -> float:
        """How long ago the first text was written; 0 before."""
        if self.timing is None:
            return 0.0
        return max(0.0, self._clock() - self.arrival_s - self.timing.ttft_s)

    def end(self, reason: str, prompt_tokens: int, completion_tokens: int) -> None:
        """The request is over; call it once."""
        ended = stages.Ended(
            arrival_s=self.arrival_s,
            ended_s=self._clock(),
            reason=reason,
            prompt_tokens=prompt_tokens,
            completion_tokens=completion_tokens,
            times=self._times,
            timing=self.timing,
            operation=self._operation,
            headers=self._trace_headers,
        )
        for pace in self._paces.values():
            if pace.tokens > 1:
                self._metrics.pace((pace.last_s - pace.first_s) / (pace.tokens - 1))
        self._metrics.ended(ended)
        self._on_end(ended)
