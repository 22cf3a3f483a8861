"""`bench sidecar` by hand: what is added at P99, what is left out of it, the bars and the report."""

import pytest

from firsttoken_runtime.bench import sidecar, sidecar_report, summary
from runtime.bench_results import context, failed, record, round_

STREAMS = 2


def sample(way: str, ways_ms: list[float], repeat: int = 0, duration_s: float = 10.0) -> sidecar.Sample:
    """Requests whose TTFT is 100 ms in the engine and so much more for the client, one a second."""
    records = [
        record(
            0.1 + way_ms / 1e3,
            start_s=float(at_s),
            server_timing=summary.ServerTiming(100.0, {"queue": 100.0}),
        )
        for at_s, way_ms in enumerate(ways_ms)
    ]
    return sidecar.Sample(round_(way, [], repeat, duration_s, records=tuple(records)), sidecar_cpu_s=0.5)


def test_the_first_request_of_each_stream_is_told_apart():
    made = sidecar.figures([sample("direct", [50.0, 60.0, 1.0, 2.0, 3.0])], STREAMS)
    assert (made.way_p50_ms, made.burst_p50_ms) == (pytest.approx(2.0), pytest.approx(55.0))
    assert made.way_p99_ms == pytest.approx(2.98)
    assert made.sidecar_cpu_ms_per_request == pytest.approx(100.0)


def test_added_is_the_difference_of_the_two_ways():
    samples = [sample("direct", [9.0, 9.0, 1.0, 1.0]), sample("through", [30.0, 30.0, 2.5, 2.5], 0, 12.5)]
    assert sidecar.added_ms(samples, STREAMS) == pytest.approx(1.5)
    assert sidecar.throughput_ratio(samples, STREAMS) == pytest.approx(0.8)
    assert sidecar.added_ms(samples[:1], STREAMS) is None


def test_failed_requests_are_in_no_figure_but_the_errors():
    one = sidecar.Sample(round_("through", [], records=(failed(), failed(), failed())))
    made = sidecar.figures([one], STREAMS)
    assert (made.errors, made.way_p99_ms, made.tokens_per_s) == (3, None, 0.0)


def test_both_ways_get_the_same_requests_of_different_lengths():
    first, second = (sidecar.lane(1, 0, 30, 8, range(1000, 2000)) for _ in range(2))
    assert first == second
    assert len({one.output_tokens for one in first.requests}) > 10
    assert first.concurrency == 8
    assert first != sidecar.lane(1, 1, 30, 8, range(1000, 2000))


def test_bars_and_report():
    samples = (sample("direct", [9.0, 9.0, 1.0, 1.0]), sample("through", [30.0, 30.0, 2.5, 2.5]))
    cost = sidecar.Cost(peak_rss_bytes=54_000_000, has_torch=False, stage_difference_ms=0.0, unseen_ms=0.4)
    done = sidecar_report.Measured(samples, STREAMS, cost, context())
    assert [one.is_reached for one in done.verdicts()] == [True, True, True, True]
    assert sidecar_report.flat(done) == {
        "added_ttft_p99_ms": pytest.approx(1.5),
        "throughput_ratio": pytest.approx(1.0),
        "sidecar_rss_bytes": 54_000_000,
        "torch_imported": False,
        "streams": 2,
        "requests": 8,
        "errors": 0,
        "is_complete": True,
    }
    text = sidecar_report.markdown(done)
    assert "| through | 4 | 2.50 / 2.50 / 2.50 | 30.00 |" in text
    assert "The sidecar held at most 54.0 MB." in text


def test_torch_and_memory_are_bars():
    bad = sidecar.Cost(peak_rss_bytes=101_000_000, has_torch=True)
    memory, torch = sidecar.judge([], STREAMS, bad)[2:]
    assert (memory.is_reached, torch.is_reached) == (False, False)
    assert all(one.is_reached is None for one in sidecar.judge([], STREAMS, None))
