"""Stops the time of one answer at its first content, when that has been written, and takes its stamps out."""

from collections.abc import Callable, Mapping

from firsttoken_api import names
from firsttoken_sidecar import cadence, content, stages, stamp_filter, timing

OnFirst = Callable[[float, stages.Stamps | None], None]


class Stopwatch:
    """One answer on its way to one client: `feed` what came, write what that gives, say `written`."""

    def __init__(
        self,
        status: int,
        headers: Mapping[str, str],
        timed: timing.OpenRequest | None,
        ledger: timing.Ledger,
        clock: Callable[[], float],
        *,
        keeps_stamps: bool = False,
        on_first: OnFirst | None = None,
        arrival_s: float | None = None,
    ) -> None:
        """`timed`: its entry in the ledger; None for an answer that is only watched. `keeps_stamps`: they go
        on, to the sidecar that asked for them. `on_first` gets the time from arrival to the first content
        once that was written; `arrival_s` is when that arrival was, where there is no entry."""
        self._timed = timed
        self._ledger = ledger
        self._clock = clock
        self._on_first = on_first
        self._keeps_stamps = keeps_stamps
        if timed is not None:
            arrival_s = timed.arrival_s
        self._arrival_s = clock() if arrival_s is None else arrival_s
        self._fed_s = self._arrival_s
        self._written: bytes = b""
        self._verdict: content.Verdict | None = None
        self._detector: content.Detector | None = None
        self._filter: stamp_filter.StampFilter | None = None
        self._cadence: cadence.Cadence | None = None
        self._stamps: stages.Stamps | None = None
        self._unexplained: tuple[float, float] | None = None
        """TTFT, and the part of it in which its first content was written, until the stages are known."""
        if said := headers.get(names.HEADER_STAMPS):
            self._stamps = stages.first(said)
        content_type = headers.get("Content-Type", "")
        is_stream = content_type.startswith("text/event-stream")
        encoding = headers.get("Content-Encoding", "")
        if is_stream and encoding in ("", "identity"):
            self._filter = stamp_filter.StampFilter()
        if timed is not None:
            timed.streamed = is_stream
            timed.has_failed = status != 200
        if status == 200 and (timed is not None or on_first is not None):
            self._detector = content.detector_for(content_type, encoding)

    @property
    def stamps(self) -> stages.Stamps | None:
        """What the engine has said so far; None: nothing."""
        return self._stamps

    def feed(self, chunk: bytes) -> bytes:
        """What is to be written of what came from the engine; maybe nothing."""
        self._fed_s = self._clock()
        passed = chunk
        if self._filter is not None:
            passed = self._filter.feed(chunk)
            if self._filter.taken:
                self._take_stamps(self._filter)
            self._explain()
        if self._detector is not None and self._verdict is None:
            self._verdict = self._detector.feed(passed)
        self._written = passed
        return chunk if self._keeps_stamps else passed

    def written(self) -> None:
        """After it was written: the clock stops here."""
        if self._verdict is not None:
            self._stop(self._verdict)
        elif self._cadence is not None and self._timed is not None:
            self._go_on(self._cadence, self._timed)

    def finish(self) -> bytes:
        """What was held back, to be written before the end of the answer."""
        if self._filter is None or self._keeps_stamps:
            return b""
        return self._filter.finish()

    def ended(self) -> None:
        """The answer is complete."""
        if self._detector is not None:
            self._stop(self._detector.finish())
        self._explain()
        timed = self._timed
        if self._cadence is not None and timed is not None:
            tpot_s = self._cadence.tpot_s(self._stamps)
            if tpot_s is not None:
                self._ledger.tpot.observe(
                    (timed.request_class, timed.tenant), tpot_s, trace_id=timed.trace_id
                )
            self._cadence = None

    def _take_stamps(self, found: stamp_filter.StampFilter) -> None:
        for kind, document in found.taken:
            if kind == stamp_filter.FIRST:
                self._stamps = stages.first(document)
            else:
                self._stamps = stages.completed(self._stamps, document)
        found.taken.clear()

    def _stop(self, verdict: content.Verdict) -> None:
        self._detector = None
        self._verdict = None
        if verdict is content.Verdict.ERROR:
            return
        now = self._clock()
        timed = self._timed
        if timed is not None:
            self._ledger.first_content(timed, now)
            self._unexplained = (now - timed.arrival_s, now - self._fed_s)
            if self._stamps is not None:
                self._explain()
            if timed.streamed and verdict is content.Verdict.CONTENT:
                self._cadence = cadence.Cadence(now)
        if self._on_first is not None:
            self._on_first(now - self._arrival_s, self._stamps)

    def _explain(self) -> None:
        if self._unexplained is not None and self._timed is not None:
            ttft_s, write_s = self._unexplained
            self._unexplained = None
            self._ledger.explained(self._timed, ttft_s, write_s, self._stamps)

    def _go_on(self, following: cadence.Cadence, timed: timing.OpenRequest) -> None:
        now = self._clock()
        gap = following.wrote(self._written, now)
        if gap is not None and (self._stamps is None or self._stamps.choices == 1):
            seconds, pieces = gap
            self._ledger.itl.observe((timed.request_class, timed.tenant), seconds, pieces)
