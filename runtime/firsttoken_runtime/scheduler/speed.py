"""How fast this engine is, measured from its own steps: prompts in tokens per second, answers in
seconds per token. The clock comes in as a parameter.
"""

from firsttoken_runtime.scheduler import intervals

TPOT_WINDOW_S = 30.0
RECENT_WINDOW_S = 1.0
_KEEP = 0.98
"""Weight of the past after one more step."""
_ASSUMED_PREFILL_TOKENS_PER_S = 1000.0
_ASSUMED_TPOT_S = 0.05
"""Until something was measured; only the order of requests depends on them."""


class Speed:
    """Decaying means, and the gaps between tokens of the last seconds."""

    def __init__(self) -> None:
        self._prefill_tokens = 0.0
        self._prefill_s = 0.0
        self._gaps = 0.0
        self._gaps_s = 0.0
        self._last_30_s = intervals.IntervalWindow(TPOT_WINDOW_S)
        self._recent = intervals.IntervalWindow(RECENT_WINDOW_S)

    def note_step(self, prefill_tokens: int, all_tokens: int, duration_s: float) -> None:
        """A mixed step's time is split by tokens."""
        if prefill_tokens == 0 or duration_s <= 0:
            return
        self._prefill_tokens = self._prefill_tokens * _KEEP + prefill_tokens
        self._prefill_s = self._prefill_s * _KEEP + duration_s * prefill_tokens / all_tokens

    def note_gaps(self, now: float, gap_s: float, count: int) -> None:
        """`count` tokens each came `gap_s` after the one before it in its answer."""
        self._last_30_s.add(now, gap_s, count)
        self._recent.add(now, gap_s, count)
        self._gaps = self._gaps * _KEEP + count
        self._gaps_s = self._gaps_s * _KEEP + gap_s * count

    @property
    def prefill_tokens_per_s(self) -> float:
        """0 = not known yet."""
        return self._prefill_tokens / self._prefill_s if self._prefill_s > 0 else 0.0

    @property
    def assumed_prefill_tokens_per_s(self) -> float:
        """Where a number is needed before one is known."""
        return self.prefill_tokens_per_s or _ASSUMED_PREFILL_TOKENS_PER_S

    @property
    def tpot_s(self) -> float:
        """Mean; 0 = not known yet."""
        return self._gaps_s / self._gaps if self._gaps else 0.0

    def tpot_p95_s(self, now: float) -> float:
        """Of the last 30 s; 0 = nothing was generated."""
        return self._last_30_s.p95_s(now)

    def recent_tpot_p95_s(self, now: float) -> float:
        return self._recent.p95_s(now)

    def work_s(self, prompt_tokens: int, output_tokens: float) -> float:
        """How long an engine of its own would need."""
        prefill_s = prompt_tokens / self.assumed_prefill_tokens_per_s
        return prefill_s + output_tokens * (self.tpot_s or _ASSUMED_TPOT_S)
