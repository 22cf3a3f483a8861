"""TTFT as clients see it, from arrival at the sidecar to the first content byte written. Pure.

Every request that asks for tokens is opened at its arrival and closed once. It is *decided* when its
first content is written, or when it ends without content after the objective had already passed (then
at its age, a breach). One that ends earlier without content (the client left, an error) is undecided
and counted apart. While a request waits longer than the objective it is *overdue*; readers add the
overdue ones to the window, so that each breach counts once and none hides until it ends.

An answer that is not streamed shows its first token with its last, and that is what is measured.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from firsttoken_api import metrics
from firsttoken_api.hot_settings import Objective
from firsttoken_api.state import TtftWindow

# Renard series R10, 1 ms to 125 s: neighbours differ by 26 %, so an interpolated quantile by a few.
_STEPS = (1.0, 1.25, 1.6, 2.0, 2.5, 3.15, 4.0, 5.0, 6.3, 8.0)
WINDOW_EDGES_S = tuple(
    round(step * 10.0**power, 6) for power in range(-3, 3) for step in _STEPS if step * 10.0**power <= 125
)
WINDOW_LIMIT = 50_000
"""Most decided requests that a window keeps; beyond it the oldest leave early."""


def edges_with(edges_s: Iterable[float], slo_s: float | None) -> tuple[float, ...]:
    """The edges in order, one of them exactly at the objective. Seconds."""
    return tuple(sorted({*edges_s} if slo_s is None else {*edges_s, slo_s}))


class Histogram:
    """Counts since start. `counts[i]` had edges[i-1] < value <= edges[i]; the last is past all edges."""

    def __init__(self, edges_s: tuple[float, ...]) -> None:
        self.edges_s = edges_s
        self.counts = [0] * (len(edges_s) + 1)
        self.sum_s = 0.0

    def observe(self, value_s: float) -> None:
        self.counts[bisect_left(self.edges_s, value_s)] += 1
        self.sum_s += value_s


class Window:
    """The decided TTFTs of the last `window_s` seconds. Keeps values, so a new objective recounts exactly."""

    def __init__(self, objective: Objective) -> None:
        self._samples: deque[tuple[float, float]] = deque()  # (decided at, TTFT), seconds
        self._objective = objective
        self._edges_s = edges_with(WINDOW_EDGES_S, objective.ttft_p95_s)
        self._counts = [0] * (len(self._edges_s) + 1)

    def set_objective(self, objective: Objective) -> None:
        self._objective = objective
        self._edges_s = edges_with(WINDOW_EDGES_S, objective.ttft_p95_s)
        self._counts = [0] * (len(self._edges_s) + 1)
        for _, ttft_s in self._samples:
            self._counts[bisect_left(self._edges_s, ttft_s)] += 1

    def observe(self, ttft_s: float, now: float) -> None:
        if len(self._samples) == WINDOW_LIMIT:
            self._forget_oldest()
        self._samples.append((now, ttft_s))
        self._counts[bisect_left(self._edges_s, ttft_s)] += 1

    def snapshot(self, now: float) -> TtftWindow:
        self._expire(now)
        return TtftWindow(
            window_s=self._objective.window_s,
            slo_s=self._objective.ttft_p95_s,
            edges_s=self._edges_s,
            counts=tuple(self._counts),
        )

    def _expire(self, now: float) -> None:
        while self._samples and self._samples[0][0] <= now - self._objective.window_s:
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        _, ttft_s = self._samples.popleft()
        self._counts[bisect_left(self._edges_s, ttft_s)] -= 1


@dataclass(slots=True, eq=False)
class OpenRequest:
    """One request that asks for tokens and has not ended."""

    arrival_s: float
    streamed: bool = False
    """Known from the answer's headers; False before."""
    is_decided: bool = False


class Ledger:
    """All requests that ask for tokens, open and ended. Times are of one monotonic clock, in seconds."""

    def __init__(self) -> None:
        self.arrivals_total = 0
        self.undecided_total = 0
        self.breaches_total = 0
        self.objective: Objective | None = None
        self.window: Window | None = None
        self.histograms = _histograms(None)
        """By `streamed`. Starts anew when the objective moves its edge: to a reader, a counter reset."""
        self._waiting: dict[OpenRequest, None] = {}  # without a first token, in order of arrival

    def set_objective(self, objective: Objective) -> None:
        """Takes effect at once; the window is recounted under the new edges."""
        if objective == self.objective:
            return
        moved = self.objective is None or objective.ttft_p95_s != self.objective.ttft_p95_s
        self.objective = objective
        if self.window is None:
            self.window = Window(objective)
        else:
            self.window.set_objective(objective)
        if moved:
            self.histograms = _histograms(objective.ttft_p95_s)

    def open(self, now: float) -> OpenRequest:
        request = OpenRequest(arrival_s=now)
        self.arrivals_total += 1
        self._waiting[request] = None
        return request

    def first_content(self, request: OpenRequest, now: float) -> None:
        """The first content byte was written at `now`."""
        if not request.is_decided:
            self._decide(request, now)

    def close(self, request: OpenRequest, now: float) -> None:
        """The request ended, with or without an answer. Closing twice is harmless."""
        if request.is_decided or request not in self._waiting:
            return
        if self.objective is not None and now - request.arrival_s > self.objective.ttft_p95_s:
            self._decide(request, now)
            return
        del self._waiting[request]
        self.undecided_total += 1

    def overdue(self, now: float) -> int:
        """Requests that have waited longer than the objective without a first token."""
        if self.objective is None:
            return 0
        count = 0
        for request in self._waiting:
            if now - request.arrival_s <= self.objective.ttft_p95_s:
                break
            count += 1
        return count

    def _decide(self, request: OpenRequest, now: float) -> None:
        ttft_s = now - request.arrival_s
        request.is_decided = True
        self._waiting.pop(request, None)
        self.histograms[request.streamed].observe(ttft_s)
        if self.window is not None:
            self.window.observe(ttft_s, now)
        if self.objective is not None and ttft_s > self.objective.ttft_p95_s:
            self.breaches_total += 1


def _histograms(slo_s: float | None) -> dict[bool, Histogram]:
    edges_s = edges_with(metrics.SIDECAR_TTFT.buckets, slo_s)
    return {streamed: Histogram(edges_s) for streamed in (True, False)}
