import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import objectives as builders
from firsttoken_sidecar import stages, stopwatch, timing
from firsttoken_sidecar.stages import Stage

ROLE = b'data: {"choices":[{"delta":{"role":"assistant"}}]}\n\n'
TEXT = b'data: {"choices":[{"delta":{"content":"a"},"finish_reason":null}]}\n\n'
FINAL = b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\n'
DONE = b"data: [DONE]\n\n"
ERROR = b'data: {"error":{"message":"x"}}\n\n'
FIRST = (
    b': firsttoken-first {"prompt_tokens":30,"cached_tokens":16,"ttft_ms":150.0,'
    b'"stages_ms":{"queue":50.0,"prefill":100.0}}\n\n'
)
END = b': firsttoken-end {"completion_tokens":5,"cached_tokens":16}\n\n'
STREAM = {"Content-Type": "text/event-stream; charset=utf-8"}


class Rig:
    def __init__(
        self,
        status: int = 200,
        headers: dict[str, str] | None = None,
        *,
        keeps_stamps: bool = False,
        is_entered: bool = True,
    ) -> None:
        self.now = 10.0
        self.ledger = timing.Ledger()
        self.ledger.set_settings(builders.settings(1.0))
        self.request = self.ledger.open(self.now)
        self.firsts: list[tuple[float, stages.Stamps | None]] = []
        self.watch = stopwatch.Stopwatch(
            status,
            STREAM if headers is None else headers,
            self.request if is_entered else None,
            self.ledger,
            lambda: self.now,
            keeps_stamps=keeps_stamps,
            on_first=lambda ttft_s, stamps: self.firsts.append((ttft_s, stamps)),
            arrival_s=None if is_entered else 9.0,
        )

    def write(self, chunk: bytes, takes_s: float = 0.0, *, after_s: float = 0.0) -> bytes:
        self.now += after_s
        passed = self.watch.feed(chunk)
        self.now += takes_s
        self.watch.written()
        return passed

    def end(self) -> bytes:
        rest = self.watch.finish()
        self.watch.ended()
        return rest

    def ttfts(self) -> list[float]:
        return [made.sum_s for made in self.ledger.ttft.series.values() if sum(made.counts)]

    def first(self) -> tuple[object, object]:
        """What was said of the first content, once."""
        (first,) = self.firsts
        return first

    def stage(self, stage: Stage) -> float:
        return self.ledger.stages.of((stage, "")).sum_s


def test_time_stops_when_the_first_content_was_written() -> None:
    rig = Rig()
    rig.write(ROLE, 0.1)
    assert rig.firsts == []
    rig.write(TEXT, 0.2)
    assert rig.ttfts() == pytest.approx([0.3])
    assert rig.first() == (pytest.approx(0.3), None)
    rig.write(TEXT, 5.0)
    rig.end()
    assert rig.ttfts() == pytest.approx([0.3])
    assert len(rig.firsts) == 1
    assert rig.request.streamed


def test_stamps_are_taken_out_and_explain_the_time() -> None:
    rig = Rig()
    rig.request.sent(10.02)
    passed = rig.write(ROLE + TEXT + FIRST, 0.01, after_s=0.2)
    passed += rig.write(TEXT + FINAL + END + DONE)
    assert passed + rig.end() == ROLE + TEXT + TEXT + FINAL + DONE
    ((ttft_s, stamps),) = rig.firsts
    assert stamps is not None
    assert (stamps.prompt_tokens, stamps.uncached_tokens) == (30, 14)
    assert sum(rig.stage(stage) for stage in Stage) == pytest.approx(ttft_s) == pytest.approx(0.21)
    assert rig.stage(Stage.SIDECAR_QUEUE) == pytest.approx(0.02)
    assert rig.stage(Stage.QUEUE) == pytest.approx(0.05)
    assert rig.stage(Stage.PREFILL) == pytest.approx(0.1)
    assert rig.stage(Stage.SIDECAR_WRITE) == pytest.approx(0.01)
    assert rig.stage(Stage.FORWARD) == pytest.approx(0.21 - 0.18)
    assert rig.ledger.demand.tokens_total == 14
    assert rig.watch.stamps is not None
    assert rig.watch.stamps.completion_tokens == 5


def test_a_stamp_that_comes_after_its_content_explains_it_too() -> None:
    rig = Rig()
    rig.write(TEXT, after_s=0.2)
    assert rig.first() == (pytest.approx(0.2), None)
    rig.write(FIRST)
    assert rig.stage(Stage.PREFILL) == pytest.approx(0.1)
    rig.write(TEXT, after_s=1.0)
    rig.end()
    assert sum(rig.ledger.stages.of((Stage.PREFILL, "")).counts) == 1


def test_without_stamps_all_is_the_way() -> None:
    rig = Rig()
    rig.write(TEXT, after_s=0.2)
    rig.write(TEXT, after_s=1.0)
    assert rig.stage(Stage.FORWARD) == pytest.approx(0.2)
    assert sum(rig.ledger.stages.of((Stage.FORWARD, "")).counts) == 1


def test_the_pace_of_the_stream() -> None:
    rig = Rig()
    rig.write(TEXT + FIRST, after_s=0.2)
    for _ in range(2):
        rig.write(TEXT, after_s=0.1)
    rig.write(TEXT + TEXT + FINAL + END + DONE, after_s=0.2)
    rig.end()
    assert rig.ledger.itl.of(("", "")).sum_s == pytest.approx(0.4)
    assert sum(rig.ledger.itl.of(("", "")).counts) == 4
    assert rig.ledger.tpot.of(("", "")).sum_s == pytest.approx(0.4 / 4)


def test_choices_that_interleave_have_no_gaps() -> None:
    rig = Rig()
    rig.write(TEXT + FIRST.replace(b'"prompt', b'"choices":2,"prompt'), after_s=0.2)
    rig.write(TEXT, after_s=0.1)
    rig.end()
    assert sum(rig.ledger.itl.of(("", "")).counts) == 0


def test_an_answer_that_is_cut_has_no_pace() -> None:
    rig = Rig()
    rig.write(TEXT + FIRST)
    rig.write(TEXT)
    assert sum(rig.ledger.tpot.of(("", "")).counts) == 0


def test_a_peer_gets_the_stamps() -> None:
    rig = Rig(keeps_stamps=True, is_entered=False)
    stream = ROLE + TEXT + FIRST + TEXT + END + DONE
    assert rig.write(stream[:70]) + rig.write(stream[70:], after_s=0.5) + rig.end() == stream
    ((ttft_s, stamps),) = rig.firsts
    assert ttft_s == pytest.approx(1.5), "since it arrived where its client is"
    assert stamps is not None
    assert rig.ttfts() == []


def test_without_content_it_stops_at_the_end() -> None:
    rig = Rig()
    rig.write(ROLE, 0.1)
    rig.now += 0.4
    rig.end()
    assert rig.ttfts() == pytest.approx([0.5])
    assert sum(rig.ledger.tpot.of(("", "")).counts) == 0


def test_an_error_event_stops_nothing() -> None:
    rig = Rig()
    rig.write(ERROR, 0.1)
    rig.end()
    assert (rig.ttfts(), rig.firsts) == ([], [])


def test_an_answer_that_is_an_error_is_not_timed() -> None:
    rig = Rig(status=503)
    rig.write(TEXT, 0.1)
    rig.end()
    assert (rig.ttfts(), rig.firsts) == ([], [])
    assert rig.request.has_failed


def test_a_whole_answer_brings_its_stamps_in_a_header() -> None:
    said = '{"prompt_tokens":8,"ttft_ms":50,"stages_ms":{"queue":50,"decode":30},"completion_tokens":4}'
    rig = Rig(headers={"Content-Type": "application/json", "X-Firsttoken-Stamps": said})
    body = b'{"choices":[{"message":{"content":"a: firsttoken-end {}\n\n"}}]}'
    assert rig.write(body, after_s=0.1) + rig.end() == body
    assert rig.ttfts() == pytest.approx([0.1])
    assert not rig.request.streamed
    assert (rig.stage(Stage.QUEUE), rig.stage(Stage.DECODE)) == (0.05, 0.03)
    assert rig.stage(Stage.FORWARD) == pytest.approx(0.02)
    ((_, stamps),) = rig.firsts
    assert stamps is not None
    assert stamps.completion_tokens == 4


def test_compressed_bytes_pass_untouched() -> None:
    rig = Rig(headers=STREAM | {"Content-Encoding": "gzip"})
    assert rig.write(FIRST) == FIRST
    assert rig.firsts == []
    rig.end()
    assert len(rig.firsts) == 1


def test_nobody_asks_nothing_is_timed() -> None:
    watch = stopwatch.Stopwatch(200, STREAM, None, timing.Ledger(), lambda: 0.0)
    assert watch.feed(TEXT) == TEXT
    watch.written()
    assert watch.finish() == b""
    watch.ended()


@given(st.lists(st.integers(0, 700), max_size=9), st.booleans())
def test_however_the_stream_is_split_the_client_gets_the_same(cuts: list[int], is_kept: bool) -> None:
    stream = b": keep-alive\n\n" + ROLE + TEXT + FIRST + TEXT + FINAL + END + DONE
    rig = Rig(keeps_stamps=is_kept)
    places = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    got = b"".join(rig.write(stream[a:b]) for a, b in itertools.pairwise(places)) + rig.end()
    assert got == (stream if is_kept else stream.replace(FIRST, b"").replace(END, b""))
    assert len(rig.firsts) == 1
    assert sum(rig.ledger.stages.of((Stage.PREFILL, "")).counts) == 1
