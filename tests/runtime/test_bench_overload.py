"""`bench overload` by hand: the search, the arrivals, the figures and the bars; and one phase over HTTP."""

import contextlib
import dataclasses
from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from firsttoken_runtime.bench import client as bench_client
from firsttoken_runtime.bench import overload, overload_load, overload_report, summary
from runtime.bench_results import context, record

LIMITS = overload.Limits(1.0)
IDS = range(1000, 2000)


def attempt(
    ttft_s: float | None, name: str = overload.INTERACTIVE, due_s: float = 0.0, **changes: object
) -> overload.Attempt:
    door = {"status": 200, "answered_s": 0.01} | changes.pop("door", {})
    sent_s, is_retry = changes.pop("sent_s", due_s), changes.pop("is_retry", False)
    error = "" if door["status"] == 200 else f"HTTP {door['status']}"
    seen = record(ttft_s or 0.0, group=name, door=summary.Door(**door), error=error)
    seen = dataclasses.replace(seen, ttft_s=ttft_s)
    return overload.Attempt(name, due_s, sent_s, seen, is_retry)


def refused(due_s: float = 0.0, **door: object) -> overload.Attempt:
    return attempt(None, due_s=due_s, door={"status": 429, "retry_after_s": 2.0} | door)


def phase(attempts: list[overload.Attempt], name: str = overload.WITH) -> overload.Phase:
    return overload.Phase(name, 1.0, 10.0, tuple(attempts), len(attempts))


@given(st.floats(0.2, 5.0), st.integers(1, 12))
def test_the_search_keeps_to_its_tries_and_ends_beside_the_capacity(true_per_s: float, holds: int):
    search = overload.Search(1.0, holds)
    tried = []
    while (rate := search.next_rate()) is not None:
        tried.append(rate)
        search.tell(rate, rate <= true_per_s)
    assert len(tried) <= holds
    assert search.held_per_s <= true_per_s < search.failed_per_s
    if holds == 12:
        assert search.failed_per_s / search.held_per_s <= search.closeness


def test_another_rate_stretches_the_same_arrivals():
    slow, fast = (overload.times(3, rate, 40.0 / rate) for rate in (1.0, 4.0))
    assert slow == pytest.approx([4 * at_s for at_s in fast])
    assert 20 < len(slow) < 60


def test_a_longer_load_begins_with_the_shorter_one():
    short, long = (overload.requests(1, count, 0.2, IDS) for count in (5, 300))
    assert long[:5] == short
    share = sum(one.request_class == overload.INTERACTIVE for one in long) / len(long)
    assert 0.1 < share < 0.3


def test_p95_holds_up_to_one_in_twenty_of_a_class():
    good = [attempt(0.5) for _ in range(38)]
    assert overload.is_held([*good, attempt(1.1), attempt(None)], LIMITS)
    assert not overload.is_held([*good, attempt(1.1), attempt(None), attempt(3.0)], LIMITS)
    # Batch has four times the limit, and is judged by itself.
    assert overload.is_held([*good, attempt(3.9, overload.BATCH)], LIMITS)
    assert not overload.is_held([*good, attempt(4.1, overload.BATCH)], LIMITS)
    assert not overload.is_held([], LIMITS)


def test_figures_of_a_phase():
    made = overload.figures(
        phase(
            [
                attempt(0.5),
                attempt(2.0),
                attempt(0.5, due_s=9.8),  # its first token comes when the phase is over
                refused(answered_s=0.03),
                refused(answered_s=0.01),
                attempt(0.3, due_s=3.0, is_retry=True),
                attempt(None, is_retry=True, door={"status": 429}),
                attempt(None, door={"status": 500}),
            ]
        ),
        LIMITS,
    )
    assert (made.arrivals, made.refused, made.failed) == (6, 2, 1)
    assert made.goodput_per_s == pytest.approx(0.2)
    assert made.refusal_p99_ms == pytest.approx(30, rel=0.05)
    assert (made.retries, made.retries_accepted) == (2, 0.5)
    urgent = made.classes[overload.INTERACTIVE]
    assert (urgent.in_time.part, urgent.in_time.whole) == (3, 5)
    assert (urgent.retries_accepted.part, urgent.retries_accepted.whole) == (1, 2)
    assert made.classes[overload.BATCH].retries_accepted.share is None
    assert made.classes[overload.BATCH].ttft_p95_s is None


def test_calibration_counts_predictions_near_their_limit_only():
    def expected(p90_ms: float, ttft_s: float) -> overload.Attempt:
        return attempt(ttft_s, door={"p90_ms": p90_ms, "limit_ms": 1000.0})

    made = overload.figures(
        phase([expected(790, 1.5), expected(810, 1.5), expected(990, 0.9), expected(1000, 0.2)]), LIMITS
    )
    assert (made.near_limit, made.near_limit_breached) == (3, pytest.approx(1 / 3))
    near = made.classes[overload.INTERACTIVE].near_limit_breached
    assert (near.part, near.whole) == (1, 3)


def test_bars_are_not_measured_before_their_phase_was_run():
    assert all(one.is_reached is None for one in overload.judge({}, LIMITS))
    capacity = phase([attempt(0.5, due_s=float(at)) for at in range(9)], overload.CAPACITY)
    over = phase([*(attempt(0.9, due_s=float(at)) for at in range(9)), refused(answered_s=0.02)])
    reached = {
        one.bar.text: one for one in overload.judge({"capacity": capacity, overload.WITH: over}, LIMITS)
    }
    assert reached[f"{overload.WITH}: goodput : goodput at capacity"].value == pytest.approx(1.0)
    assert reached[f"{overload.WITH}: 429 in, P99 ms"].is_reached
    assert reached["0.8x: refused"].is_reached is None


def test_the_report_says_all_of_it():
    phases = {overload.WITH: phase([attempt(0.5), refused(p90_ms=2.0, limit_ms=1.0)])}
    done = overload_report.Measured(
        phases, (phase([attempt(0.5)], "hold 1"),), LIMITS, 2.0, 0.5, 0.2, context()
    )
    text = overload_report.markdown(done)
    assert "| hold 1 | 1.00 | 1 | yes |" in text
    assert "TTFT limits: interactive 1.00 s, batch 4.00 s" in text
    document = overload_report.document(done)
    (first, _) = document["phases"][overload.WITH]["requests"]
    assert len(first) == len(document["phases"][overload.WITH]["columns"])
    flat = overload_report.flat(done)
    assert flat["with_refused"] == 1
    assert (flat["with_interactive_in_time"], flat["with_interactive_in_time_of"]) == (1, 1)
    assert "1 of 1: 100.0% (20.7% to 100.0%)" in text
    assert overload_report.reasons(done) == []


class Door:
    """Refuses each body once, then answers with one word."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    async def handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.text()
        self.seen.append(body)
        if self.seen.count(body) == 1:
            headers = {"Retry-After": "1", "X-Firsttoken-Estimate": '{"ttft_ms":5,"p90_ms":9,"limit_ms":8}'}
            return web.json_response({"error": {"message": "later"}}, status=429, headers=headers)
        events = (
            '{"choices":[{"text":"w","finish_reason":"length"}]}',
            '{"choices":[],"usage":{"completion_tokens":1},"timing":{"ttft_ms":1,"stages_ms":{}}}',
            "[DONE]",
        )
        text = "".join(f"data: {event}\n\n" for event in events)
        return web.Response(text=text, content_type="text/event-stream")


@contextlib.asynccontextmanager
async def asking_at(door: Door, *, wants_timing: bool = False) -> AsyncIterator[bench_client.Client]:
    application = web.Application()
    application.router.add_post("/v1/completions", door.handle)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        async with bench_client.session() as http:
            yield bench_client.Client(http, url, "m", wants_timing=wants_timing, notes_door=True)
    finally:
        await runner.cleanup()


@pytest.mark.parametrize(("obeying", "sent"), [(0.0, 4), (1.0, 8)])
async def test_who_obeys_comes_back_at_the_retry_after(obeying: float, sent: int):
    door = Door()
    requests = [dataclasses.replace(one, output_tokens=1) for one in overload.requests(1, 4, 0.5, IDS)]
    async with asking_at(door, wants_timing=True) as asking:
        times_s = [0.0, 0.01, 0.02, 0.03]
        loop = overload_load.OpenLoop(
            asking, requests, times_s, LIMITS, 1, obeying, 1.8, 1.0, stops_when_lost=False
        )
        made = await loop.run("x", 1.0)
    assert len(door.seen) == sent
    firsts = [one for one in made.attempts if not one.is_retry]
    assert all(one.record.door.p90_ms == 9 and one.record.door.retry_after_s == 1 for one in firsts)
    retries = [one for one in made.attempts if one.is_retry]
    assert all(one.status == 200 and one.sent_s >= 1.0 for one in retries)
    assert made.client_cpu > 0


async def test_a_hold_that_cannot_be_won_any_more_is_cut_short():
    async with asking_at(Door()) as asking:
        requests = overload.requests(1, 3, 0.5, IDS)
        loop = overload_load.OpenLoop(
            asking, requests, [0.0, 0.01, 100.0], LIMITS, 1, 0.0, 200.0, 1.0, stops_when_lost=True
        )
        made = await loop.run("x", 1.0)
    assert made.is_cut
    assert len(made.attempts) < 3
