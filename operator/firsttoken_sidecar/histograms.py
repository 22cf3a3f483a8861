"""Histograms since the start, one for each set of labels, and the trace that each bucket saw last. Pure.

All histograms of a family have the same edges, so that they can be added up over their labels. When an edge
moves they start anew: to a reader that is a counter reset.
"""

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass

Labels = tuple[str, ...]


def edges_with(edges_s: Iterable[float], *limits_s: float | None) -> tuple[float, ...]:
    """The edges in order, one of them exactly at each limit. Seconds."""
    return tuple(sorted({*edges_s} | {limit_s for limit_s in limits_s if limit_s is not None}))


@dataclass(frozen=True)
class Exemplar:
    """One measured value, and the trace in which it can be looked at."""

    trace_id: str
    value_s: float


class Histogram:
    """`counts[i]` had edges[i-1] < value <= edges[i]; the last is past all edges."""

    def __init__(self, edges_s: tuple[float, ...]) -> None:
        self.edges_s = edges_s
        self.counts = [0] * (len(edges_s) + 1)
        self.sum_s = 0.0
        self.exemplars: dict[int, Exemplar] = {}
        """By bucket; the newest."""

    def observe(self, value_s: float, times: int = 1, trace_id: str = "") -> None:
        bucket = bisect_left(self.edges_s, value_s)
        self.counts[bucket] += times
        self.sum_s += value_s * times
        if trace_id:
            self.exemplars[bucket] = Exemplar(trace_id, value_s)


class Family:
    """Histograms of one kind, by the values of their labels."""

    def __init__(self, edges_s: tuple[float, ...]) -> None:
        self.series: dict[Labels, Histogram] = {}
        self._edges_s = edges_s

    def observe(self, labels: Labels, value_s: float, times: int = 1, trace_id: str = "") -> None:
        self.of(labels).observe(value_s, times, trace_id)

    def of(self, labels: Labels) -> Histogram:
        """Made with the first look at it."""
        found = self.series.get(labels)
        if found is None:
            found = self.series[labels] = Histogram(self._edges_s)
        return found

    def set_edges(self, edges_s: tuple[float, ...]) -> None:
        if edges_s != self._edges_s:
            self._edges_s = edges_s
            self.series.clear()
