"""What a switch of the layout costs the streams that run through it: the pause and the largest gap. Pure.

The pause is from taking the settings to the start of the first forward pass under the new layout. The
gap of a stream is between its last token before the switch and its first after it: recomputing it is in
there too.
"""

from collections.abc import Callable, Iterable, Mapping


class SwitchMeter:
    """Of the last switch that made running sequences compute again."""

    def __init__(self) -> None:
        self.pause_s = 0.0
        self.gap_s = 0.0
        """Largest so far."""
        self._accepted_s: float | None = None
        """None: no first step is awaited."""
        self._last_token_s: dict[int, float] = {}
        """Of streams that have had no token since."""

    def note_switch(self, accepted_s: float, last_token_s: Mapping[int, float]) -> None:
        """last_token_s: of every running sequence that has had a token."""
        self._accepted_s = accepted_s
        self._last_token_s = dict(last_token_s)
        self.pause_s = self.gap_s = 0.0

    def note_step(self, now: float) -> None:
        """A forward pass starts."""
        if self._accepted_s is not None:
            self.pause_s = now - self._accepted_s
            self._accepted_s = None

    def note_tokens(self, sequence_ids: Iterable[int], now: float) -> None:
        if not self._last_token_s:
            return
        for sequence_id in sequence_ids:
            before_s = self._last_token_s.pop(sequence_id, None)
            if before_s is not None:
                self.gap_s = max(self.gap_s, now - before_s)

    def forget_all_but(self, is_open: Callable[[int], bool]) -> None:
        """Drop streams that have ended without another token."""
        for sequence_id in [one for one in self._last_token_s if not is_open(one)]:
            del self._last_token_s[sequence_id]
