"""Stops the time of one answer at its first content, when that has been written."""

from collections.abc import Callable

import aiohttp

from firsttoken_sidecar import content, timing


class Stopwatch:
    """Times one answer's first content, if anybody asked for it and the answer is one."""

    def __init__(
        self,
        upstream: aiohttp.ClientResponse,
        timed: timing.OpenRequest | None,
        ledger: timing.Ledger,
        clock: Callable[[], float],
    ) -> None:
        self._timed = timed
        self._ledger = ledger
        self._clock = clock
        self._verdict: content.Verdict | None = None
        self._detector: content.Detector | None = None
        if timed is not None and upstream.status == 200:
            content_type = upstream.headers.get("Content-Type", "")
            timed.streamed = content_type.startswith("text/event-stream")
            self._detector = content.detector_for(content_type, upstream.headers.get("Content-Encoding", ""))

    def watch(self, chunk: bytes) -> None:
        """Before a chunk is written."""
        if self._detector is not None:
            self._verdict = self._detector.feed(chunk)

    def written(self) -> None:
        """After it was written: the clock stops here."""
        if self._verdict is not None:
            self._stop(self._verdict)

    def ended(self) -> None:
        """The answer is complete."""
        if self._detector is not None:
            self._stop(self._detector.finish())

    def _stop(self, verdict: content.Verdict) -> None:
        self._detector = None
        self._verdict = None
        if self._timed is not None and verdict is not content.Verdict.ERROR:
            self._ledger.first_content(self._timed, self._clock())
