"""Two whole sidecars with API keys, and every kind of good and bad request: no secret and no prompt is told.

All keys, prompts and header values that clients send hold one of two words. Neither may be in a log line of
any logger at any level, in one of its fields, in a traceback, in /state or in a metric.
"""

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest

from firsttoken_api import json_log, names
from firsttoken_sidecar import auth, logs
from sidecar import fakes, ports

KEY = "s3cr3t-key-0123456789"
PROMPT = "Why is marjoram in the soup? "
WORDS = ("s3cr3t", "marjoram")
HOSTS = ("127.0.0.2", "127.0.0.3")
CHAT = "/v1/chat/completions"
ENTRIES = (
    f"- {{name: good, key: {KEY}}}\n"
    f"- {{name: slow, key: {KEY}-slow, requestsPerMinute: 1}}\n"
    f"- {{name: office, key: {KEY}-office, tenant: office, maxClass: batch}}\n"
)


class Told(logging.Handler):
    """Everything that is logged, as both formatters write it, and with its arguments."""

    def __init__(self) -> None:
        super().__init__(logging.NOTSET)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        forms = (logs.TextFormatter(), json_log.JsonFormatter(), logging.Formatter())
        self.lines += [form.format(record) for form in forms]
        self.lines.append(repr(vars(record)))


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Told:
    """Of all loggers, at debug."""
    handler = Told()
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [handler])
    monkeypatch.setattr(root, "level", logging.DEBUG)
    monkeypatch.setattr(logging.getLogger(logs.PACKAGE), "level", logging.DEBUG)
    logging.getLogger(logs.PACKAGE).manager._clear_cache()  # type: ignore[attr-defined]
    return handler


@dataclass
class Pair:
    """Two sidecars, each beside an engine of its own, that know each other."""

    engines: tuple[fakes.FakeEngine, fakes.FakeEngine]
    sidecars: tuple[fakes.Beside, fakes.Beside]
    secret: fakes.Mounts

    async def ask(
        self,
        expected: int,
        *,
        path: str = CHAT,
        key: str = KEY,
        body: bytes | None = None,
        method: str = "POST",
        at: int = 0,
        **headers: str,
    ) -> bytes:
        """One request, which must be answered with that status."""
        sent = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"} | {
            name.replace("_", "-"): value for name, value in headers.items()
        }
        asked = self.sidecars[at]
        async with asked.client.request(
            method, asked.url(path), data=chat() if body is None else body, headers=sent
        ) as answer:
            content = await answer.read()
            assert answer.status == expected, content
            return content


def chat(prompt: str = PROMPT, **fields: object) -> bytes:
    messages = [{"role": "user", "content": prompt}]
    return json.dumps({"model": "s3cr3t", "messages": messages, "stream": True} | fields).encode()


@contextlib.asynccontextmanager
async def pair(folder: Path) -> AsyncIterator[Pair]:
    secret = fakes.Mounts(folder)
    secret.write_keys(ENTRIES.encode())
    http_port, ops_port = map(str, ports.free(HOSTS, 2))

    def beside(engine: fakes.FakeEngine, host: str) -> contextlib.AbstractAsyncContextManager[fakes.Beside]:
        return fakes.beside(
            engine,
            HOST=host,
            HTTP_PORT=http_port,
            OPS_PORT=ops_port,
            PEERS_HOST=",".join(HOSTS),
            AUTH_FOLDER=str(secret.auth),
            MAX_BODY_BYTES="100000",
        )

    async with (
        fakes.engine() as first,
        fakes.engine() as second,
        beside(first, HOSTS[0]) as one,
        beside(second, HOSTS[1]) as other,
    ):
        yield Pair((first, second), (one, other), secret)


async def raw(at_work: Pair, request: bytes, *, is_left: bool = False) -> bytes:
    """What comes back for these bytes. is_left: the client goes away at once."""
    async with at_work.sidecars[0].raw() as (reader, writer):
        writer.write(request)
        await writer.drain()
        if is_left:
            await asyncio.sleep(0.1)
            return b""
        with contextlib.suppress(TimeoutError, ConnectionError):
            return await asyncio.wait_for(reader.read(65536), 5)
        return b""


def head(*lines: str, path: str = CHAT) -> bytes:
    first = (f"POST {path} HTTP/1.1", "Host: x", f"Authorization: Bearer {KEY}")
    return ("\r\n".join((*first, *lines)) + "\r\n\r\n").encode()


async def good(at_work: Pair) -> None:
    """Streams and whole answers, with every header that means something."""
    await at_work.ask(200)
    await at_work.ask(200, body=chat(stream=False))
    await at_work.ask(200, X_Request_Id="s3cr3t", Idempotency_Key="s3cr3t", traceparent="s3cr3t")
    await at_work.ask(200, X_Firsttoken_Timing="true", Cookie="s3cr3t", key=f"{KEY}-office")
    await at_work.ask(200, method="GET", path="/v1/models?key=s3cr3t", body=b"")
    await at_work.ask(200, path="/tokenize", body=chat())
    equal = chat(temperature=0, cache_salt="s3cr3t")
    await asyncio.gather(*(at_work.ask(200, body=equal) for _ in range(3)))


async def sent_on(at_work: Pair) -> None:
    """Prompts at both sidecars, until one has found the other and sends them on to their homes.

    An odd number of them, so that each at its home is not as many as each where it came.
    """
    async with asyncio.timeout(30):
        answered = [0, 0]
        while answered[0] == answered[1]:
            for number in range(9):
                for at in (0, 1):
                    await at_work.ask(200, body=chat(f"{number} " + PROMPT * 40), at=at)
            answered = [sum(len(seen.body) > 1000 for seen in engine.seen) for engine in at_work.engines]


async def forged(at_work: Pair) -> None:
    """Headers that only sidecars may set, and names that nobody declared."""
    await at_work.ask(200, X_Firsttoken_Tenant="s3cr3t", X_Firsttoken_Hop="1;age_ms=s3cr3t")
    await at_work.ask(200, X_Firsttoken_Class="s3cr3t", X_Firsttoken_Route="s3cr3t")
    tenants = [value for engine in at_work.engines for seen in engine.seen for name, value in seen.headers
               if name.lower() == names.HEADER_TENANT.lower()]  # fmt: skip
    assert set(tenants) == {"good", "office"}


async def unknown(at_work: Pair) -> None:
    """Keys that open nothing."""
    await at_work.ask(401, key=f"{KEY}-wrong")
    nobody = head().replace(b"Authorization", b"X-Authorization")
    assert b" 401 " in await raw(at_work, nobody.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
    await at_work.ask(401, method="GET", path="/v1/models", key=f"{KEY}-wrong", body=b"")
    await at_work.ask(401, Authorization="Basic s3cr3t")
    await at_work.ask(200, key=f"{KEY}-slow")
    await at_work.ask(429, key=f"{KEY}-slow")
    await at_work.ask(404, path="/nothing/s3cr3t?key=s3cr3t")


async def malformed(at_work: Pair) -> None:
    """Bodies and bytes that are not what they should be."""
    await at_work.ask(413, body=chat(PROMPT * 10_000))
    with contextlib.suppress(aiohttp.ClientError):
        await at_work.ask(500, body=b'{"messages": "marjoram')
    assert b" 400 " in await raw(at_work, f"s3cr3t {PROMPT}\r\n\r\n".encode())
    assert b" 400 " in await raw(at_work, head("s3cr3t without a colon"))
    assert b" 40" in await raw(at_work, head("Content-Length: s3cr3t"))
    assert b" 40" in await raw(at_work, head(*(f"X-{n}: s3cr3t" for n in range(500))))
    assert b" 40" in await raw(at_work, head("X-Large: " + "s3cr3t" * 20_000))
    await raw(at_work, head("Transfer-Encoding: chunked") + f"zz\r\n{PROMPT}\r\n".encode())
    await raw(at_work, head("Content-Length: 1000") + PROMPT.encode(), is_left=True)
    await raw(at_work, head("Authorization: Bearer s3cr3t\xff"))


async def broken(at_work: Pair) -> None:
    """Engines that refuse, break off, or are not there, and clients that leave."""
    first, second = at_work.engines
    for engine in at_work.engines:
        engine.status = 400
    await at_work.ask(400)
    for engine in at_work.engines:
        engine.status, engine.break_after = 200, 1
    with contextlib.suppress(aiohttp.ClientError):
        await at_work.ask(200)
    for engine in at_work.engines:
        engine.break_after, engine.token_s, engine.tokens = None, 0.05, 100
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(at_work.ask(200), 0.3)
    for engine in at_work.engines:
        engine.token_s, engine.tokens = 0.0, 3
    await second.stop()
    await at_work.ask(200)
    await first.stop()
    await at_work.ask(503)
    for engine in at_work.engines:
        await engine.start()


async def keys_that_do_not_parse(at_work: Pair) -> None:
    """Values where they do not belong, and what YAML makes of them."""
    texts = [
        f"- {{name: good, key: {KEY}, s3cr3t: x}}",
        f"- {{name: good, sha256: {KEY}}}",
        f"- *{KEY}",
        f"- 'never closed {KEY}",
        f"{KEY}: {KEY}",
    ]
    for text in texts:
        at_work.secret.write_keys(text.encode())
        for sidecar in at_work.sidecars:
            await sidecar.until(lambda state: state.auth_error)
        await asyncio.sleep(3 * auth.INTERVAL_S)
    at_work.secret.write_keys(ENTRIES.encode())
    for sidecar in at_work.sidecars:
        await sidecar.until(lambda state: not state.auth_error)


async def test_neither_secrets_nor_prompts_are_told(
    tmp_path: Path, told: Told, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(auth, "INTERVAL_S", 0.02)
    async with pair(tmp_path) as at_work:
        for kind in (good, sent_on, forged, unknown, malformed, broken, keys_that_do_not_parse, good):
            await kind(at_work)
        reported = []
        for sidecar in at_work.sidecars:
            for path in ("/state", "/metrics", "/readyz"):
                async with sidecar.client.get(sidecar.ops(path)) as answer:
                    reported.append(await answer.text())
        await fakes.ask_to_drain(at_work.sidecars[0].drain_socket)
        await at_work.ask(503)
    got = {name.lower() for engine in at_work.engines for seen in engine.seen for name, _ in seen.headers}
    assert "authorization" not in got
    captured = capfd.readouterr()
    for word in WORDS:
        lines = [line for line in told.lines if word in line]
        assert lines == []
        assert [text for text in reported if word in text] == []
        assert word not in captured.out + captured.err
    messages = " ".join(told.lines)
    for expected in (
        "wrong API key",
        "no API key",
        "API keys kept out",
        "malformed request",
        "over the limit",
    ):
        assert expected in messages, "the test would not see what it looks for"
