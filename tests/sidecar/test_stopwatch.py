from dataclasses import dataclass, field

import pytest

from firsttoken_api.hot_settings import Objective
from firsttoken_sidecar import stopwatch, timing

ROLE = b'data: {"choices":[{"delta":{"role":"assistant"}}]}\n\n'
TEXT = b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n'
ERROR = b'data: {"error":{"message":"x"}}\n\n'


@dataclass
class Upstream:
    status: int = 200
    headers: dict[str, str] = field(default_factory=lambda: {"Content-Type": "text/event-stream"})


class Rig:
    def __init__(self, upstream: Upstream) -> None:
        self.now = 10.0
        self.ledger = timing.Ledger()
        self.ledger.set_objective(Objective(ttft_p95_s=1.0))
        self.request = self.ledger.open(self.now)
        self.watch = stopwatch.Stopwatch(
            upstream,  # type: ignore[arg-type]
            self.request,
            self.ledger,
            lambda: self.now,
        )

    def write(self, chunk: bytes, takes_s: float) -> None:
        self.watch.watch(chunk)
        self.now += takes_s
        self.watch.written()

    def ttfts(self) -> list[float]:
        return [histogram.sum_s for histogram in self.ledger.histograms.values() if sum(histogram.counts)]


def test_time_stops_when_the_first_content_was_written() -> None:
    rig = Rig(Upstream())
    rig.write(ROLE, 0.1)
    assert not rig.request.is_decided
    rig.write(TEXT, 0.2)
    assert rig.ttfts() == pytest.approx([0.3])
    rig.write(TEXT, 5.0)
    rig.watch.ended()
    assert rig.ttfts() == pytest.approx([0.3])
    assert rig.request.streamed


def test_without_content_it_stops_at_the_end() -> None:
    rig = Rig(Upstream())
    rig.write(ROLE, 0.1)
    rig.now += 0.4
    rig.watch.ended()
    assert rig.ttfts() == pytest.approx([0.5])


def test_an_error_event_stops_nothing() -> None:
    rig = Rig(Upstream())
    rig.write(ERROR, 0.1)
    rig.watch.ended()
    assert rig.ttfts() == []


def test_an_answer_that_is_an_error_is_not_timed() -> None:
    rig = Rig(Upstream(status=503))
    rig.write(TEXT, 0.1)
    rig.watch.ended()
    assert rig.ttfts() == []


def test_a_whole_answer_is_not_a_streamed_one() -> None:
    rig = Rig(Upstream(headers={"Content-Type": "application/json"}))
    rig.write(b'{"choices":[{"message":{"content":"a"}}]}', 0.1)
    assert rig.ttfts() == pytest.approx([0.1])
    assert not rig.request.streamed


def test_nothing_asked_nothing_timed() -> None:
    watch = stopwatch.Stopwatch(Upstream(), None, timing.Ledger(), lambda: 0.0)  # type: ignore[arg-type]
    watch.watch(TEXT)
    watch.written()
    watch.ended()
