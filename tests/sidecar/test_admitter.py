"""Arrivals against a desk whose engine is asked only when its answer matters, and never waited for long."""

import asyncio
import contextlib
import time
from collections.abc import Mapping
from typing import Any

import pytest

from firsttoken_api import errors, hot_settings, names
from firsttoken_api.state import EngineState, FlagsState
from firsttoken_sidecar import admitter, arrivals, caller, engines, inspection, stages
from sidecar.admission_builders import engine

TEXT = b"a long shared beginning " * 200


def settings(**changes: Any) -> hot_settings.HotSettings:
    known: dict[str, Any] = {
        "generation": 1,
        "flags": (),
        "objective": hot_settings.Objective(ttft_p95_s=1.0),
    }
    return hot_settings.HotSettings(**known | changes)


CLASSES = (
    hot_settings.ClassSettings(name="chat", priority=10, ttft_p99_s=2.0),
    hot_settings.ClassSettings(name="batch", priority=0, ttft_p99_s=30.0),
)


def arrival(tokens: int = 50, text: bytes = b"", tenant: str = "", **changes: Any) -> arrivals.Arrival:
    known: dict[str, Any] = {
        "body": b'{"prompt": "x"}',
        "body_hash": b"hash",
        "prompt_bytes": len(text) or tokens * 4,
        "estimated_prompt_tokens": tokens,
        "max_tokens": 10,
        "prefix_keys": inspection.prefix_keys(tenant, text),
    }
    return arrivals.Arrival(
        request_id="1",
        arrival_s=100.0,
        caller=caller.Caller(name="", tenant=tenant),
        inspected=inspection.Inspected(**known | changes),
        client="somebody",
    )


class Setup:
    """What an admitter is told; time stands at 100 s unless a test moves it."""

    def __init__(self, state: EngineState | None = None, **changes: Any) -> None:
        self.state: EngineState | None = state or engine(max_num_seqs=64)
        self.settings: hot_settings.HotSettings | None = settings(**changes)
        self.now = 100.0
        self.asked: list[Mapping[str, str]] = []
        self.answer: bytes | Exception | None = b'{"prompt_tokens": 50, "cached_tokens": 0}'
        self.answer_after_s = 0.0
        self.admitter = admitter.Admitter(
            lambda: self.state, lambda: self.settings, self._ask, lambda: self.now
        )

    async def _ask(self, body: bytes, headers: Mapping[str, str], timeout_s: float) -> bytes | None:
        self.asked.append(headers)
        await asyncio.sleep(self.answer_after_s)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    async def fill(self, **changes: Any) -> admitter.RefusedError:
        """Until the first one is refused."""
        for number in range(200):
            try:
                await self.admitter.admit(arrival(body_hash=b"%d" % number, **changes))
            except admitter.RefusedError as refused:
                return refused
        raise AssertionError("everybody was let in")


async def test_a_full_line_is_a_429_with_its_reason_and_a_time() -> None:
    setup = Setup()
    refused = await setup.fill()
    assert isinstance(refused, errors.ObjectiveUnreachableError)
    assert refused.status == 429
    assert refused.headers()["Retry-After"] == str(refused.retry_after_s)
    assert refused.retry_after_s is not None
    assert refused.retry_after_s >= 1
    assert refused.uncached_tokens == 50
    assert refused.estimate.likely_s > refused.estimate.limit_s == 1.0
    assert "the first token would come too late" in refused.message
    assert not setup.asked, "nothing of it was ever seen: its cache is not asked about"


async def test_everybody_is_let_in_while_nothing_limits_or_nothing_is_known() -> None:
    without_document = Setup()
    without_document.settings = None
    without_speed = Setup(engine(step_time=None, prefill_tokens_per_s=0.0))
    without_engine = Setup()
    without_engine.state = None
    for each in (without_document, without_speed, without_engine):
        tickets = [await each.admitter.admit(arrival()) for _ in range(50)]
        assert all(ticket.estimate is None for ticket in tickets)
        for ticket in tickets:
            ticket.sent()
            ticket.first_content(0.1, None)
            ticket.closed()
    assert without_engine.admitter.load() is None


async def test_each_class_has_its_limit_and_the_default_one_that_of_the_service() -> None:
    setup = Setup(classes=CLASSES, default_class="chat")
    for name, limit_s in (("chat", 1.0), ("batch", 30.0), ("nobody-knows", 1.0)):
        ticket = await setup.admitter.admit(arrival(request_class=name))
        assert ticket.estimate is not None
        assert ticket.estimate.limit_s == limit_s
        ticket.closed()
    await setup.fill(request_class="chat")
    assert (await setup.admitter.admit(arrival(request_class="batch"))).estimate is not None


async def test_more_urgent_ones_go_first_only_while_the_engine_does_so() -> None:
    in_order = engine(max_num_seqs=64, flags=FlagsState(enabled=("priority",)))
    ordered = Setup(in_order, classes=CLASSES, default_class="chat")
    plain = Setup(classes=CLASSES, default_class="chat")
    for setup, is_first in ((ordered, True), (plain, False)):
        for _ in range(20):
            await setup.admitter.admit(arrival(request_class="batch"))
        if is_first:
            assert (await setup.admitter.admit(arrival(request_class="chat"))).estimate is not None
        else:
            with pytest.raises(admitter.RefusedError):
                await setup.admitter.admit(arrival(request_class="chat"))


async def test_a_ticket_that_ended_makes_room() -> None:
    setup = Setup()
    tickets = [await setup.admitter.admit(arrival()) for _ in range(3)]
    waiting = setup.admitter.load()
    assert waiting is not None
    assert waiting.waiting == 3
    tickets[0].first_content(0.2, stages.Stamps(prompt_tokens=60, cached_tokens=0))
    tickets[1].closed()
    after = setup.admitter.load()
    assert after is not None
    assert (after.waiting, after.running) == (1, 1)
    for ticket in tickets:
        ticket.closed(10)
        ticket.closed()
    assert setup.admitter.load() == after.model_copy(
        update={
            "waiting": 0,
            "running": 0,
            "decoding": 0,
            "ahead_tokens_by_priority": {},
            "ahead_requests_by_priority": {},
            "prefill_tokens_per_s": pytest.approx(500.0),
        }
    )


def long_prompt() -> arrivals.Arrival:
    return arrival(1200, TEXT, tenant="t", request_class="", route="r", body_hash=b"long")


async def seen(setup: Setup) -> None:
    """A prompt that shares nearly everything was computed."""
    ticket = await setup.admitter.admit(arrival(1200, TEXT, tenant="t", body_hash=b"first"))
    ticket.first_content(1.0, stages.Stamps(prompt_tokens=1200, cached_tokens=0))
    ticket.closed(10)
    setup.now += 5.0


def later(one: arrivals.Arrival, now: float) -> arrivals.Arrival:
    return arrivals.Arrival(one.request_id, now, one.caller, one.inspected, one.client)


async def busy(setup: Setup) -> None:
    """Others wait, so that a long prompt would be late and a cached one would not."""
    for number in range(3):
        await setup.admitter.admit(later(arrival(60, body_hash=b"b%d" % number), setup.now))


async def test_the_engine_is_asked_when_its_cache_decides() -> None:
    setup = Setup()
    await seen(setup)
    await busy(setup)
    setup.answer = b'{"prompt_tokens": 1200, "cached_tokens": 1190, "ahead_tokens": 0, "new": 1}'
    ticket = await setup.admitter.admit(later(long_prompt(), setup.now))
    assert setup.asked == [{names.HEADER_ROUTE: "r", names.HEADER_TENANT: "t"}]
    assert ticket.estimate is not None
    assert ticket.estimate.likely_s < 1.0
    ticket.closed()
    setup.answer = b'{"prompt_tokens": 1200, "cached_tokens": 0}'
    with pytest.raises(admitter.RefusedError) as refused:
        await setup.admitter.admit(later(long_prompt(), setup.now))
    assert refused.value.uncached_tokens == 1200


@pytest.mark.parametrize(
    "answer",
    [
        None,
        b"what?",
        engines.EngineUnreachableError("gone"),
        b'{"prompt_tokens": 1200, "cached_tokens": 1190}',
    ],
)
async def test_an_engine_that_does_not_say_is_not_waited_for(answer: bytes | Exception | None) -> None:
    setup = Setup()
    await seen(setup)
    await busy(setup)
    setup.answer = answer
    setup.answer_after_s = 30.0 if isinstance(answer, bytes) and answer.startswith(b"{") else 0.0
    start_s = time.monotonic()
    with contextlib.suppress(admitter.RefusedError):
        await setup.admitter.admit(later(long_prompt(), setup.now))
    assert time.monotonic() - start_s < 5.0, "far less than the engine's 30 s"
    assert len(setup.asked) == 1


async def test_who_leaves_while_the_engine_is_asked_is_on_no_book() -> None:
    setup = Setup()
    await seen(setup)
    await busy(setup)
    setup.answer_after_s = 30.0
    asking = asyncio.create_task(setup.admitter.admit(later(long_prompt(), setup.now)))
    while not setup.asked:  # noqa: ASYNC110
        await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    load = setup.admitter.load()
    assert load is not None
    assert load.waiting == 3


async def test_a_new_limit_is_in_force_at_once() -> None:
    setup = Setup()
    await setup.fill()
    setup.settings = settings(generation=2, objective=hot_settings.Objective(ttft_p95_s=3600.0))
    for _ in range(50):
        await setup.admitter.admit(arrival())
    setup.settings = settings(generation=3)
    with pytest.raises(admitter.RefusedError):
        await setup.admitter.admit(arrival())
