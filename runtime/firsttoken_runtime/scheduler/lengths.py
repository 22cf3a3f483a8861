"""How long answers are, by class: what a request that does not say is expected to need."""

import bisect
from collections import deque

WINDOW = 101
"""Answers a median is taken over."""


class OutputLengths:
    """Running medians of the finished answers of each class, and the mean of all sequences."""

    def __init__(self) -> None:
        self._recent: dict[str, deque[int]] = {}
        self._sorted: dict[str, list[int]] = {}
        self._finished = 0
        self._total_tokens = 0

    def add(self, class_name: str, num_output_tokens: int, num_tokens: int) -> None:
        """An answer ended by itself. `num_tokens`: with its prompt."""
        self._finished += 1
        self._total_tokens += num_tokens
        recent = self._recent.setdefault(class_name, deque())
        ordered = self._sorted.setdefault(class_name, [])
        if len(recent) == WINDOW:
            del ordered[bisect.bisect_left(ordered, recent.popleft())]
        recent.append(num_output_tokens)
        bisect.insort(ordered, num_output_tokens)

    def median(self, class_name: str) -> float | None:
        ordered = self._sorted.get(class_name)
        if not ordered:
            return None
        middle = len(ordered) // 2
        return float(ordered[middle]) if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2

    def medians(self) -> dict[str, float]:
        return {name: middle for name in self._sorted if (middle := self.median(name)) is not None}

    @property
    def mean_tokens(self) -> float:
        """Prompt and answer, of all that ended; 0 = none did."""
        return self._total_tokens / self._finished if self._finished else 0.0
