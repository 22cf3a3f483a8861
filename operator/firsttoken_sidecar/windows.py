"""What was decided in the last minutes: as a histogram of TTFTs, and as hits and breaches. Pure."""

from bisect import bisect_left
from collections import deque

from firsttoken_api.state import TtftWindow
from firsttoken_sidecar.histograms import edges_with

# Renard series R10, 1 ms to 125 s: neighbours differ by 26 %, so an interpolated quantile by a few.
_STEPS = (1.0, 1.25, 1.6, 2.0, 2.5, 3.15, 4.0, 5.0, 6.3, 8.0)
EDGES_S = tuple(
    round(step * 10.0**power, 6) for power in range(-3, 3) for step in _STEPS if step * 10.0**power <= 125
)
LIMIT = 20_000
"""Most decided requests that a window of values keeps, about 2 MB; beyond it the oldest leave early. A window
of five minutes is cut short from 67 requests a second on, and what is left is plenty for a percentile."""
LONGEST_S = 3600
"""Of a window of decisions; the API allows no longer one."""


class Values:
    """The TTFTs of the last `window_s` seconds. Keeps values, so a new objective recounts exactly."""

    def __init__(self, slo_s: float, window_s: float) -> None:
        self._samples: deque[tuple[float, float]] = deque()  # (decided at, TTFT), seconds
        self.set_objective(slo_s, window_s)

    def set_objective(self, slo_s: float, window_s: float) -> None:
        self._slo_s = slo_s
        self._window_s = window_s
        self._edges_s = edges_with(EDGES_S, slo_s)
        self._counts = [0] * (len(self._edges_s) + 1)
        for _, ttft_s in self._samples:
            self._counts[bisect_left(self._edges_s, ttft_s)] += 1

    def observe(self, ttft_s: float, now: float) -> None:
        self._forget_before(now - self._window_s)
        if len(self._samples) == LIMIT:
            self._forget_oldest()
        self._samples.append((now, ttft_s))
        self._counts[bisect_left(self._edges_s, ttft_s)] += 1

    def snapshot(self, now: float) -> TtftWindow:
        self._forget_before(now - self._window_s)
        return TtftWindow(
            window_s=self._window_s, slo_s=self._slo_s, edges_s=self._edges_s, counts=tuple(self._counts)
        )

    def __len__(self) -> int:
        return len(self._samples)

    def _forget_before(self, start_s: float) -> None:
        while self._samples and self._samples[0][0] <= start_s:
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        _, ttft_s = self._samples.popleft()
        self._counts[bisect_left(self._edges_s, ttft_s)] -= 1


class Decisions:
    """Hits and breaches of the last `window_s` seconds, to the second."""

    def __init__(self) -> None:
        self._by_second: dict[int, list[int]] = {}  # hits, breaches

    def add(self, *, is_breach: bool, at_s: float) -> None:
        self._by_second.setdefault(int(at_s), [0, 0])[is_breach] += 1
        if len(self._by_second) > LONGEST_S:  # nobody has asked for a long time
            del self._by_second[next(iter(self._by_second))]

    def within(self, window_s: float, now: float) -> tuple[int, int]:
        """How many hits and how many breaches."""
        for second in [each for each in self._by_second if each <= now - window_s]:
            del self._by_second[second]
        hits = sum(each[0] for each in self._by_second.values())
        breaches = sum(each[1] for each in self._by_second.values())
        return hits, breaches

    def clear(self) -> None:
        self._by_second.clear()
