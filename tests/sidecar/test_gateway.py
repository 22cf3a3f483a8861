import asyncio
import io
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from firsttoken_api import hot_settings, names
from firsttoken_sidecar import body_memory, inspection
from sidecar import fakes

KEY = "ft-" + "k" * 40
CHAT = {"stream": True, "messages": [{"role": "user", "content": "hi"}]}
CLASSES = hot_settings.HotSettings(
    generation=1,
    flags=(),
    objective=hot_settings.Objective(ttft_p95_s=0.5),
    classes=(
        hot_settings.ClassSettings(name="live", priority=10, ttft_p99_s=0.5),
        hot_settings.ClassSettings(name="batch", priority=0, ttft_p99_s=30.0),
    ),
    default_class="live",
)


def with_keys(folder: Path, **fields: object) -> str:
    """A folder with one key of tenant `a`."""
    entry = {"name": "one", "key": KEY, "tenant": "a"} | fields
    (folder / names.KEYS_FILE).write_text(json.dumps([entry]))
    return str(folder)


def bearer(key: str = KEY) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("GET", "/health", 200),
        ("GET", "/v1/models", 401),
        ("POST", "/tokenize", 401),
        ("POST", "/v1/chat/completions", 401),
        ("POST", "/v1/completions", 401),
    ],
)
async def test_everything_but_health_asks_for_the_key(
    tmp_path: Path, method: str, path: str, expected: int
) -> None:
    folder = with_keys(tmp_path)
    async with fakes.engine() as engine, fakes.beside(engine, AUTH_FOLDER=folder) as sidecar:
        for headers in ({}, bearer("ft-wrong")):
            async with sidecar.client.request(method, sidecar.url(path), headers=headers) as response:
                assert response.status == expected
        assert len(engine.seen) == (2 if expected == 200 else 0)
        assert (await sidecar.state()).arrivals_total == 0
        data = json.dumps(CHAT) if method == "POST" else None
        async with sidecar.client.request(method, sidecar.url(path), headers=bearer(), data=data) as response:
            assert response.status == 200


async def test_the_engine_knows_the_tenant_and_not_the_key(tmp_path: Path) -> None:
    folder = with_keys(tmp_path)
    async with fakes.engine() as engine, fakes.beside(engine, AUTH_FOLDER=folder) as sidecar:
        forged = bearer() | {names.HEADER_TENANT: "root"}
        async with await sidecar.chat(headers=forged) as response:
            await response.read()
        async with sidecar.client.get(sidecar.url("/v1/models"), headers=forged) as response:
            await response.read()
    for seen in engine.seen:
        sent = dict(seen.headers)
        assert "Authorization" not in sent
        assert [value for name, value in seen.headers if name.lower() == names.HEADER_TENANT.lower()] == ["a"]


async def test_a_ceiling_is_what_the_engine_is_told(tmp_path: Path) -> None:
    folder = with_keys(tmp_path, maxClass="batch")
    document = CLASSES.sealed().to_json().encode()
    async with fakes.engine() as engine, fakes.beside(engine, flags=document, AUTH_FOLDER=folder) as sidecar:
        for headers in (bearer(), bearer() | {names.HEADER_CLASS: "live"}):
            async with await sidecar.chat(headers=headers) as response:
                await response.read()
    for seen in engine.seen:
        assert [value for name, value in seen.headers if name == names.HEADER_CLASS] == ["batch"]


async def test_a_limit_of_requests_holds_for_all_that_works_the_engine(tmp_path: Path) -> None:
    folder = with_keys(tmp_path, requestsPerMinute=2)
    async with fakes.engine() as engine, fakes.beside(engine, AUTH_FOLDER=folder) as sidecar:
        statuses = []
        for path in ("/tokenize", "/v1/chat/completions", "/v1/chat/completions", "/tokenize"):
            async with sidecar.client.post(sidecar.url(path), json=CHAT, headers=bearer()) as response:
                await response.read()
                statuses.append(response.status)
                if response.status == 429:
                    assert int(response.headers["Retry-After"]) >= 1
        assert statuses == [200, 200, 429, 429]
        async with sidecar.client.get(sidecar.url("/v1/models"), headers=bearer()) as response:
            assert response.status == 200
        assert (await sidecar.state()).arrivals_total == 1, "what a limit refuses is no demand on the engine"


async def test_the_engines_stamps_are_not_for_clients() -> None:
    async with fakes.engine(tokens=4) as engine, fakes.beside(engine) as sidecar:
        async with await sidecar.chat() as response:
            assert await response.read() == engine.sent_bytes()
        async with await sidecar.chat(stream=False) as response:
            await response.read()
            assert names.HEADER_STAMPS not in response.headers
        assert {dict(seen.headers)[names.HEADER_TIMING] for seen in engine.seen} == {"stamps"}
        async with await sidecar.chat(headers={names.HEADER_TIMING: "true"}) as response:
            assert await response.read() == engine.sent_bytes()
        assert dict(engine.seen[-1].headers)[names.HEADER_TIMING] == "true,stamps"


@pytest.mark.parametrize("is_chunked", [True, False])
@pytest.mark.parametrize("size", [inspection.INSPECTED_BYTES, inspection.INSPECTED_BYTES + 1])
async def test_a_large_body_passes_whole(is_chunked: bool, size: int) -> None:
    body = json.dumps(CHAT).encode()
    body += b" " * (size - len(body))

    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, size, 100_000):
            yield body[start : start + 100_000]

    async with fakes.engine() as engine, fakes.beside(engine) as sidecar:
        async with sidecar.client.post(
            sidecar.url("/v1/chat/completions"), data=pieces() if is_chunked else io.BytesIO(body)
        ) as response:
            assert response.status == 200
            assert await response.read() == engine.sent_bytes()
        assert engine.seen[-1].body == body
        assert (await sidecar.state()).arrivals_total == 1


async def test_a_body_of_100_mb_is_refused_before_it_has_come() -> None:
    async with fakes.engine() as engine, fakes.beside(engine) as sidecar, sidecar.raw() as (reader, writer):
        writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100000000\r\n\r\nab")
        async with asyncio.timeout(2):
            assert b" 413 " in await reader.readline()
        assert engine.seen == []


async def test_bodies_together_are_bounded_and_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forty clients with half a body each must not fill the memory, nor keep it."""
    monkeypatch.setattr(body_memory, "WAIT_S", 0.2)
    half = b" " * (inspection.INSPECTED_BYTES // 2)
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {2 * len(half)}\r\n\r\n"
    async with fakes.engine() as engine, fakes.beside(engine) as sidecar:

        async def stop_halfway() -> bytes:
            async with sidecar.raw() as (reader, writer):
                writer.write(head.encode() + half)
                await writer.drain()
                try:
                    async with asyncio.timeout(3):
                        return await reader.readline()
                except TimeoutError:
                    return b""

        answers = await asyncio.gather(*(stop_halfway() for _ in range(80)))
        assert sum(b" 503 " in answer for answer in answers) >= 10
        assert engine.seen == []
        await sidecar.until(lambda state: state.in_flight == 0)
        whole = json.dumps(CHAT).encode() + half
        for _ in range(3):
            async with sidecar.client.post(sidecar.url("/v1/chat/completions"), data=whole) as response:
                assert response.status == 200
                await response.read()


async def test_a_wrong_body_is_the_engines_to_refuse() -> None:
    async with fakes.engine(status=400) as engine, fakes.beside(engine) as sidecar:
        async with sidecar.client.post(sidecar.url("/v1/completions"), data=b"{nonsense") as response:
            assert await response.read() == b"{nonsense", "as it came"
        assert engine.seen[-1].body == b"{nonsense"


async def test_a_client_that_leaves_while_its_body_is_read_leaves_nothing() -> None:
    async with fakes.engine() as engine, fakes.beside(engine) as sidecar:
        async with sidecar.raw() as (_, writer):
            writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{")
            await sidecar.until(lambda state: state.in_flight == 1)
        await sidecar.until(lambda state: state.in_flight == 0)
        assert engine.seen == []
