"""The clock of one request: when it arrived, when its first text was written, when it ended.

TTFT runs from the arrival of the request to the moment its first text was written (for a whole answer:
was ready); a request without text counts at its end. All times are on the monotonic clock of this
machine, which the engine shares. Reports to `Metrics` as things happen, and to the tracer at the end.
"""

import time
from collections.abc import Callable, Mapping, Sequence

from firsttoken_runtime import core
from firsttoken_runtime.server import stages
from firsttoken_runtime.server.metrics import Metrics


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
        self._last_token_s: dict[int, float] = {}

    def tokens(self, tokens: Sequence[core.Token], choice: int = 0) -> None:
        """Tokens of one choice, at least one, have arrived from the engine."""
        now = self._clock()
        last = self._last_token_s.get(choice)
        if last is not None:
            self._metrics.token_gap(now - last, len(tokens))
        elif (times := tokens[0].times) is not None:
            self._metrics.scheduled(max(0.0, times.scheduled_s - self.arrival_s))
            if self._times is None:
                self._times = times
        self._last_token_s[choice] = now

    def text(self) -> None:
        """Text, or the end without any, has been written."""
        if self.timing is not None:
            return
        now = self._clock()
        self.timing = stages.Timing(now - self.arrival_s, stages.split(self.arrival_s, self._times, now))
        self._metrics.first_text(self.timing)

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
        self._metrics.ended(ended)
        self._on_end(ended)
