import asyncio
import json
from pathlib import Path

import pytest
from multidict import CIMultiDict

from firsttoken_api import names
from firsttoken_sidecar import arrivals, inspection, joining, keys
from firsttoken_sidecar.caller import ANONYMOUS, Caller
from sidecar import fakes

ALICE = Caller(name="alice", tenant="a")
BODY = {"stream": True, "messages": [{"role": "user", "content": "hi"}], "temperature": 0}


def keys_of(
    caller: Caller = ALICE,
    body: object = BODY,
    target: str = "/v1/chat/completions",
    headers: dict[str, str] | None = None,
) -> tuple[object, ...]:
    sent = CIMultiDict(headers or {})
    inspected = inspection.inspect(sent, json.dumps(body).encode(), tenant=caller.tenant, settings=None)
    arrival = arrivals.Arrival("id", 0.0, caller, inspected, client=caller.name)
    return joining.keys(arrival, target, sent)


def can_join(one: tuple[object, ...], other: tuple[object, ...]) -> bool:
    return bool(set(one) & set(other))


def test_equal_requests_of_one_key_with_one_answer() -> None:
    assert can_join(keys_of(), keys_of())
    assert not can_join(keys_of(), keys_of(Caller("bob", "a"))), "another key"
    random = BODY | {"temperature": 1}
    assert keys_of(body=random) == ()
    assert can_join(keys_of(body=random | {"seed": 3}), keys_of(body=random | {"seed": 3}))
    assert keys_of(ANONYMOUS) == (), "everybody is nobody in particular"


@pytest.mark.parametrize("header", ["Idempotency-Key", "X-Request-Id"])
def test_a_client_may_say_that_they_are_one(header: str) -> None:
    random = BODY | {"temperature": 1}
    one = keys_of(ANONYMOUS, random, headers={header: "k"})
    assert can_join(one, keys_of(ANONYMOUS, random, headers={header: "k"}))
    assert not can_join(one, keys_of(ANONYMOUS, random, headers={header: "l"}))
    assert not can_join(one, keys_of(ANONYMOUS, random | {"n": 2}, headers={header: "k"})), "another body"
    assert not can_join(one, keys_of(Caller("b", "b"), random, headers={header: "k"})), "another tenant"
    assert not can_join(one, keys_of(ANONYMOUS, random, "/v1/completions", headers={header: "k"}))


def test_the_two_kinds_of_names_are_not_confused() -> None:
    random = BODY | {"temperature": 1}
    assert not can_join(
        keys_of(ANONYMOUS, random, headers={"Idempotency-Key": "k"}),
        keys_of(ANONYMOUS, random, headers={"X-Request-Id": "k"}),
    )


@pytest.mark.parametrize("name", [names.HEADER_CLASS, names.HEADER_ROUTE, names.HEADER_TIMING])
def test_headers_that_change_an_answer_count(name: str) -> None:
    changed = keys_of(headers={name: "true"})
    assert not can_join(keys_of(), changed)
    assert can_join(changed, keys_of(headers={name: "true"}))


def test_what_is_not_in_memory_is_not_joined() -> None:
    inspected = inspection.Inspected(is_repeatable=True, idempotency_key="k")
    arrival = arrivals.Arrival("id", 0.0, ALICE, inspected, client="alice")
    assert joining.keys(arrival, "/v1/completions", CIMultiDict({"X-Request-Id": "r"})) == ()


async def ask(sidecar: fakes.Beside, body: object = BODY, **headers: str) -> bytes:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    async with sidecar.client.post(sidecar.url("/v1/chat/completions"), json=body, headers=sent) as response:
        assert response.status == 200, await response.text()
        return await response.read()


async def test_a_retry_storm_costs_one_answer() -> None:
    async with (
        fakes.engine(tokens=5, token_s=0.05, first_token_s=0.3) as engine,
        fakes.beside(engine) as sidecar,
    ):
        asking = []
        for _ in range(8):
            asking.append(asyncio.create_task(ask(sidecar, Idempotency_Key="k")))
            await asyncio.sleep(0.02)
        answers = await asyncio.gather(*asking)
        assert answers == [engine.sent_bytes()] * 8
        assert len(engine.seen) == 1
        state = await sidecar.state()
        assert state.arrivals_total == 8
        assert state.ttft is not None
        assert sum(state.ttft.counts) == 8, "each has a time to the first token of its own"
        async with sidecar.client.get(sidecar.ops("/metrics")) as response:
            assert "firsttoken_joined_total 7.0" in await response.text()
        assert await ask(sidecar, Idempotency_Key="k") == engine.sent_bytes()
        assert len(engine.seen) == 2, "what has been answered is not kept"


async def test_one_that_joins_late_waited_less() -> None:
    async with (
        fakes.engine(tokens=2, first_token_s=0.6) as engine,
        fakes.beside(engine, flags=fakes.document(slo_s=0.4)) as sidecar,
    ):
        first = asyncio.create_task(ask(sidecar, X_Request_Id="r"))
        await asyncio.sleep(0.35)
        second = asyncio.create_task(ask(sidecar, X_Request_Id="r"))
        await asyncio.gather(first, second)
        assert len(engine.seen) == 1
        state = await sidecar.state()
        assert state.ttft is not None
        late = sum(
            count
            for edge, count in zip((*state.ttft.edges_s, float("inf")), state.ttft.counts, strict=True)
            if edge > 0.4
        )
        assert late == 1


async def test_it_lives_as_long_as_one_client_does() -> None:
    async with fakes.engine(tokens=20, token_s=0.05) as engine, fakes.beside(engine) as sidecar:
        first = asyncio.create_task(ask(sidecar, Idempotency_Key="k"))
        await fakes.until(lambda: engine.seen)
        second = asyncio.create_task(ask(sidecar, Idempotency_Key="k"))
        await asyncio.sleep(0.2)
        first.cancel()
        assert await second == engine.sent_bytes()
        assert not engine.seen[0].was_cancelled
        third = asyncio.create_task(ask(sidecar, Idempotency_Key="k"))
        await fakes.until(lambda: len(engine.seen) == 2)
        third.cancel()
        async with asyncio.timeout(2):
            await engine.cancelled.wait()
        assert engine.seen[1].was_cancelled


async def test_a_refusal_of_the_engine_is_everybodys() -> None:
    async with fakes.engine(status=400) as engine, fakes.beside(engine) as sidecar:

        async def status() -> int:
            async with await sidecar.chat(headers={"X-Request-Id": "r"}) as response:
                return response.status

        assert set(await asyncio.gather(*(status() for _ in range(5)))) == {400}


async def test_tenants_never_share_an_answer(tmp_path: Path) -> None:
    entries = [
        {"name": name, "key": f"ft-{name}-{'x' * 40}", "tenant": tenant}
        for name, tenant in (("one", "a"), ("two", "b"), ("three", "a"))
    ]
    (tmp_path / names.KEYS_FILE).write_text(json.dumps(entries))
    assert keys.parse((tmp_path / names.KEYS_FILE).read_bytes())
    async with (
        fakes.engine(tokens=3, first_token_s=0.3) as engine,
        fakes.beside(engine, AUTH_FOLDER=str(tmp_path)) as sidecar,
    ):
        asking = [
            ask(sidecar, Authorization=f"Bearer {entry['key']}", Idempotency_Key="k", X_Request_Id="r")
            for entry in entries
        ]
        assert await asyncio.gather(*asking) == [engine.sent_bytes()] * 3
        tenants = sorted(dict(seen.headers)[names.HEADER_TENANT] for seen in engine.seen)
        assert tenants == ["a", "b"]
        assert all("Authorization" not in dict(seen.headers) for seen in engine.seen)
