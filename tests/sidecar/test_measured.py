"""What a sidecar measures of real answers on their way, and that nobody can see it in them."""

import asyncio
import math

import pytest

from builders import openmetrics
from firsttoken_api import names
from sidecar import fakes

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
Sums = dict[str, float]


async def scraped(sidecar: fakes.Beside) -> list[tuple[str, dict[str, str], float, str]]:
    """Name, labels, value and trace of every sample, as a scraper that takes exemplars gets them."""
    headers = {"Accept": "application/openmetrics-text"}
    async with sidecar.client.get(sidecar.ops("/metrics"), headers=headers) as response:
        assert response.content_type == "application/openmetrics-text"
        text = await response.read()
    return [
        (
            sample.name,
            sample.labels,
            sample.value,
            sample.exemplar.labels["trace_id"] if sample.exemplar else "",
        )
        for family in openmetrics.families(text)
        for sample in family.samples
    ]


async def stages_and_ttft(sidecar: fakes.Beside, streamed: str) -> tuple[Sums, float, float]:
    """Sums of the stages, and sum and count of the TTFT."""
    samples = await scraped(sidecar)
    parts = {
        labels["stage"]: value
        for name, labels, value, _ in samples
        if name == "firsttoken_ttft_stage_seconds_sum"
    }
    sums = {
        name.rpartition("_")[2]: value
        for name, labels, value, _ in samples
        if name.startswith("firsttoken_ttft_seconds_")
        and labels.get("streamed") == streamed
        and "le" not in labels
    }
    return parts, sums["sum"], sums["count"]


async def test_the_stages_of_a_stream_add_up_and_its_bytes_are_the_engines() -> None:
    async with fakes.engine(first_token_s=0.02, token_s=0.005) as engine, fakes.beside(engine) as sidecar:
        async with await sidecar.chat() as response:
            assert await response.read() == engine.sent_bytes()
        parts, ttft_s, count = await stages_and_ttft(sidecar, "true")
        assert count == 1
        assert math.isclose(math.fsum(parts.values()), ttft_s, rel_tol=1e-9)
        assert parts["queue"] == pytest.approx(0.001)
        assert parts["prefill"] == pytest.approx(0.002)
        assert parts["forward"] > 0.01, "what the engine does not explain"
        assert dict(engine.seen[0].headers)[names.HEADER_TIMING] == "stamps"
        samples = await scraped(sidecar)
        values = {name: value for name, labels, value, _ in samples if "le" not in labels}
        assert values["firsttoken_inter_token_latency_seconds_count"] == engine.tokens - 1
        assert values["firsttoken_time_per_output_token_seconds_count"] == 1
        assert values["firsttoken_demand_tokens_total"] == 12
        state = await sidecar.state()
        assert [(each.name, each.hits, each.breaches) for each in state.by_class] == [("", 1, 0)]
        assert (state.arrivals_total, state.demand_tokens_total) == (1, 12)


async def test_a_whole_answer_shows_none_of_it_either() -> None:
    stages_ms = {"queue": 1.0, "prefill": 2.0, "decode": 4.0}
    async with (
        fakes.engine(first_token_s=0.02, stages_ms=stages_ms) as engine,
        fakes.beside(engine) as sidecar,
    ):
        async with await sidecar.chat(stream=False) as response:
            assert names.HEADER_STAMPS not in response.headers
            assert (await response.json())["choices"][0]["message"]["content"] == "Paris"
        parts, ttft_s, count = await stages_and_ttft(sidecar, "false")
        assert count == 1
        assert math.isclose(math.fsum(parts.values()), ttft_s, rel_tol=1e-9)
        assert parts["prefill"] == pytest.approx(0.002)
        assert parts["decode"] == pytest.approx(0.004)


async def test_an_engine_without_stamps_is_all_the_way() -> None:
    async with fakes.engine(stages_ms={}) as engine, fakes.beside(engine) as sidecar:
        async with await sidecar.chat() as response:
            assert await response.read() == engine.sent_bytes()
        parts, ttft_s, _ = await stages_and_ttft(sidecar, "true")
        assert math.isclose(math.fsum(parts.values()), ttft_s, rel_tol=1e-9)
        assert parts["prefill"] == 0
        assert parts["forward"] > 0


async def test_errors_before_and_in_the_middle() -> None:
    async with fakes.engine(status=400) as engine, fakes.beside(engine) as sidecar:
        async with await sidecar.chat() as response:
            assert response.status == 400
        (window,) = (await sidecar.state()).by_class
        assert (window.hits, window.breaches, window.undecided_total) == (0, 0, 1)
        engine.status = 200
        engine.break_after = 1
        async with await sidecar.chat() as response:
            body = await response.read()
        assert b"firsttoken-" not in body
        assert b"middle of the answer" in body
        (window,) = (await sidecar.state()).by_class
        assert (window.hits, window.breaches, window.undecided_total) == (1, 0, 1)
        _, _, count = await stages_and_ttft(sidecar, "true")
        assert count == 1


async def test_a_client_that_asks_for_the_timing_gets_it_from_the_engine() -> None:
    async with fakes.engine() as engine, fakes.beside(engine) as sidecar:
        async with await sidecar.chat(headers={names.HEADER_TIMING: "true"}) as response:
            assert await response.read() == engine.sent_bytes()
        assert dict(engine.seen[0].headers)[names.HEADER_TIMING] == "true,stamps"
        async with await sidecar.chat(headers={names.HEADER_TIMING: "please"}) as response:
            await response.read()
        assert dict(engine.seen[1].headers)[names.HEADER_TIMING] == "please", "which the engine refuses"


async def test_a_trace_passes_and_its_id_is_beside_what_was_measured_of_it() -> None:
    async with fakes.engine() as engine, fakes.beside(engine) as sidecar:
        context = {"traceparent": f"00-{TRACE}-00f067aa0ba902b7-01", "tracestate": "vendor=1"}
        async with await sidecar.chat(headers=context) as response:
            await response.read()
        assert context.items() <= {name.lower(): value for name, value in engine.seen[0].headers}.items()
        async with await sidecar.chat() as response:
            await response.read()
        assert "traceparent" not in {name.lower() for name, _ in engine.seen[1].headers}
        traced = {name for name, _, _, trace in await scraped(sidecar) if trace == TRACE}
        assert "firsttoken_ttft_seconds_bucket" in traced


async def test_equal_requests_that_are_computed_once_are_one_demand_and_three_first_tokens() -> None:
    async with fakes.engine(first_token_s=0.3) as engine, fakes.beside(engine) as sidecar:

        async def ask() -> bytes:
            async with await sidecar.chat(headers={"Idempotency-Key": "mine"}) as response:
                return await response.read()

        assert set(await asyncio.gather(ask(), ask(), ask())) == {engine.sent_bytes()}
        assert len(engine.seen) == 1
        state = await sidecar.state()
        assert (state.arrivals_total, state.demand_tokens_total) == (3, 12)
        parts, ttft_s, count = await stages_and_ttft(sidecar, "true")
        assert count == 3
        assert math.isclose(math.fsum(parts.values()), ttft_s, rel_tol=1e-9)
