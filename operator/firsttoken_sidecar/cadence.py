"""How fast the rest of a streamed answer comes, as its client gets it: ITL and TPOT. Pure.

Pieces of text are counted in the bytes: each is an event of a choice that has not finished. What comes in one
write counts as evenly spread over the time since the write before. Several choices in one stream interleave:
the gaps between their pieces say nothing, so those answers have a TPOT only.
"""

import re

from firsttoken_sidecar.stages import Stamps

_PIECE = re.compile(rb'"finish_reason": ?null')


class Cadence:
    """Of one answer, from its first content on."""

    def __init__(self, first_s: float) -> None:
        self._first_s = first_s
        self._last_s = first_s
        self._pieces = 1

    def wrote(self, chunk: bytes, now: float) -> tuple[float, int] | None:
        """A chunk after the first content was written: the time per piece in it and their number, if any."""
        pieces = len(_PIECE.findall(chunk))
        if not pieces:
            return None
        gap_s = (now - self._last_s) / pieces
        self._last_s = now
        self._pieces += pieces
        return gap_s, pieces

    def tpot_s(self, stamps: Stamps | None) -> float | None:
        """Mean time per token after the first; None for fewer than two. Pieces count where the engine does
        not say how many tokens they were."""
        tokens: float = self._pieces
        if stamps is not None and stamps.completion_tokens is not None:
            tokens = stamps.completion_tokens / stamps.choices
        return (self._last_s - self._first_s) / (tokens - 1) if tokens > 1 else None
