"""The service's P95 TTFT from the pods' histograms. Pure.

A mean of the pods' P95s would be wrong; the counts are added and the quantile is read from the sum, linear
inside a bucket. Requests past the last edge count as at least that edge: the answer is then a lower bound.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from firsttoken_api import state


@dataclass(frozen=True)
class Merged:
    """Counts per bucket of all pods. `counts` has one more entry than `edges_s`: past the last edge."""

    edges_s: tuple[float, ...]
    counts: tuple[float, ...]

    @property
    def total(self) -> float:
        return sum(self.counts)


def merge(windows: Iterable[state.TtftWindow]) -> Merged | None:
    """One histogram over the union of all edges; None without any window.

    Pods may have different edges for a while, since the objective is one of them and changes hot. A bucket
    that another pod's edge divides is shared out evenly along its width.
    """
    known = tuple(windows)
    if not known:
        return None
    edges = tuple(sorted({edge for window in known for edge in window.edges_s}))
    counts = [0.0] * (len(edges) + 1)
    for window in known:
        low = 0.0
        for high, count in zip(window.edges_s, window.counts, strict=False):
            for index, edge in enumerate(edges):
                begin = edges[index - 1] if index else 0.0
                overlap = min(high, edge) - max(low, begin)
                if overlap > 0 and high > low:
                    counts[index] += count * overlap / (high - low)
            low = high
        counts[-1] += sum(window.counts[len(window.edges_s) :])
    return Merged(edges, tuple(counts))


def quantile_s(merged: Merged, share: float) -> float | None:
    """The TTFT in seconds that `share` of the requests stayed within; None without requests."""
    if merged.total <= 0 or not merged.edges_s:
        return None
    wanted = share * merged.total
    seen = 0.0
    for index, count in enumerate(merged.counts[:-1]):
        if count > 0 and seen + count >= wanted - 1e-9:
            low = merged.edges_s[index - 1] if index else 0.0
            high = merged.edges_s[index]
            return low + (high - low) * min(1.0, max(0.0, (wanted - seen) / count))
        seen += count
    return merged.edges_s[-1]


def fraction_above(merged: Merged, limit_s: float) -> float | None:
    """Share of the requests that took longer than `limit_s`; None without requests."""
    if merged.total <= 0:
        return None
    within = 0.0
    low = 0.0
    for high, count in zip(merged.edges_s, merged.counts, strict=False):
        if high <= limit_s:
            within += count
        elif low < limit_s:
            within += count * (limit_s - low) / (high - low)
        low = high
    return max(0.0, 1.0 - within / merged.total)
