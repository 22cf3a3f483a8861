"""An engine that is a real HTTP server on loopback, paced by the test, and a sidecar beside it."""

import asyncio
import contextlib
import json
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
from aiohttp import web
from yarl import URL

from firsttoken_api import hot_settings, names
from firsttoken_api import state as api_state
from firsttoken_sidecar import settings, sidecar

LOOPBACK = "127.0.0.1"


def document(
    generation: int = 1,
    *,
    enabled: bool = True,
    slo_s: float = 0.5,
    window_s: float = 300.0,
    flag: str = "chunked-prefill",
) -> bytes:
    """A flags document as the operator writes it."""
    return (
        hot_settings.HotSettings(
            generation=generation,
            flags=(hot_settings.EffectiveFlag(name=flag, enabled=enabled),),
            objective=hot_settings.Objective(ttft_p95_s=slo_s, window_s=window_s),
        )
        .sealed()
        .to_json()
        .encode()
    )


def chunk(delta: dict[str, object], finish_reason: str | None = None) -> bytes:
    """One chat completion chunk as an SSE event."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    event = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "choices": [choice]}
    return b"data: " + json.dumps(event, ensure_ascii=False).encode() + b"\n\n"


def _stamp(kind: bytes, said: dict[str, object]) -> bytes:
    return b": firsttoken-" + kind + b" " + json.dumps(said).encode() + b"\n\n"


@dataclass
class Seen:
    """One request as the engine got it."""

    method: str
    path: str
    headers: list[tuple[str, str]]
    body: bytes = b""
    was_cancelled: bool = False


@dataclass
class FakeEngine:
    """Answers like our engine. What it does next is set by the test on its fields."""

    api_port: int = 0
    ops_port: int = 0
    phase: api_state.Phase = api_state.Phase.READY
    is_live: bool = True
    prefill_tokens_per_s: float = 0.0
    """As it reports; 0: not known, and everything is let in."""
    flags: api_state.FlagsState = field(default_factory=api_state.FlagsState)
    refuse_flags: str = ""
    fail_flags: int = 0
    """So many PUTs are answered with 500."""
    puts: list[bytes] = field(default_factory=list)
    seen: list[Seen] = field(default_factory=list)
    tokens: int = 3
    first_token_s: float = 0.0
    token_s: float = 0.0
    starts_with_token: bool = False
    """A stream begins, status and all, with its first token; else at once, with a comment and the role."""
    status: int = 200
    """Of the answers to chats; other than 200 is an error body."""
    break_after: int | None = None
    """Cut the connection after so many tokens."""
    stages_ms: dict[str, float] = field(default_factory=lambda: {"queue": 1.0, "prefill": 2.0})
    """Of its stamps, which a sidecar gets that asks for them. Empty: it knows of none, as other engines."""
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)
    runners: list[web.AppRunner] = field(default_factory=list)

    @property
    def api_url(self) -> URL:
        return URL(f"http://{LOOPBACK}:{self.api_port}")

    @property
    def ops_url(self) -> URL:
        return URL(f"http://{LOOPBACK}:{self.ops_port}")

    async def start(self) -> None:
        """Listens; on the same ports as before after a `stop`."""
        self.api_port = await self._listen(self._api(), self.api_port)
        self.ops_port = await self._listen(self._ops(), self.ops_port)

    async def stop(self) -> None:
        for runner in self.runners:
            await runner.cleanup()
        self.runners.clear()

    def sent_bytes(self) -> bytes:
        """What a client gets of a whole stream."""
        events = [b": keep-alive\n\n", chunk({"role": "assistant", "content": ""})]
        events += [chunk({"content": f"töken{i} "}) for i in range(self.tokens)]
        return b"".join([*events, chunk({}, "stop"), b"data: [DONE]\n\n"])

    async def _listen(self, application: web.Application, port: int) -> int:
        runner = web.AppRunner(
            application,
            access_log=None,
            handler_cancellation=True,
            auto_decompress=False,
            shutdown_timeout=0.01,
        )
        await runner.setup()
        await web.TCPSite(runner, LOOPBACK, port, reuse_address=True).start()
        self.runners.append(runner)
        bound: int = runner.addresses[0][1]
        return bound

    def _api(self) -> web.Application:
        application = web.Application(client_max_size=2**30)
        application.router.add_post("/v1/chat/completions", self._chat)
        application.router.add_route("*", "/{path:.*}", self._echo)
        return application

    def _ops(self) -> web.Application:
        application = web.Application()
        application.router.add_get("/livez", self._livez)
        application.router.add_get("/state", self._state)
        application.router.add_get("/metrics", self._metrics)
        application.router.add_put("/flags", self._put_flags)
        return application

    async def _record(self, request: web.Request) -> Seen:
        seen = Seen(request.method, request.raw_path, list(request.headers.items()))
        self.seen.append(seen)
        seen.body = await request.read()
        return seen

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        seen = await self._record(request)
        try:
            return await self._answer_chat(request, json.loads(seen.body))
        except asyncio.CancelledError:
            seen.was_cancelled = True
            self.cancelled.set()
            raise

    async def _answer_chat(self, request: web.Request, asked: dict[str, object]) -> web.StreamResponse:
        if self.status != 200:
            return web.json_response({"error": {"message": "no"}}, status=self.status)
        wanted = request.headers.get(names.HEADER_TIMING, "").split(",")
        is_stamped = bool(self.stages_ms) and names.TIMING_STAMPS in wanted
        if not asked.get("stream"):
            await asyncio.sleep(self.first_token_s)
            message = {"role": "assistant", "content": "Paris"}
            headers = {names.HEADER_STAMPS: json.dumps(self._first() | self._end())} if is_stamped else None
            body = {"id": "1", "choices": [{"index": 0, "message": message}]}
            return web.json_response(body, headers=headers)
        if self.starts_with_token:
            await asyncio.sleep(self.first_token_s)
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        await answer.prepare(request)
        await answer.write(b": keep-alive\n\n")
        await answer.write(chunk({"role": "assistant", "content": ""}))
        if not self.starts_with_token:
            await asyncio.sleep(self.first_token_s)
        for i in range(self.tokens):
            if i == self.break_after:
                assert request.transport is not None
                request.transport.abort()
                return answer
            stamp = _stamp(b"first", self._first()) if is_stamped and i == 0 else b""
            await answer.write(chunk({"content": f"töken{i} "}) + stamp)
            await asyncio.sleep(self.token_s)
        stamp = _stamp(b"end", self._end()) if is_stamped else b""
        await answer.write(chunk({}, "stop") + stamp)
        await answer.write(b"data: [DONE]\n\n")
        return answer

    def _first(self) -> dict[str, object]:
        ttft_ms = sum(self.stages_ms.values())
        return {"prompt_tokens": 20, "cached_tokens": 8, "ttft_ms": ttft_ms, "stages_ms": self.stages_ms}

    def _end(self) -> dict[str, object]:
        return {"completion_tokens": self.tokens, "cached_tokens": 8}

    async def _echo(self, request: web.Request) -> web.StreamResponse:
        seen = await self._record(request)
        return web.Response(body=seen.body, status=200, headers={"X-Path": request.raw_path})

    async def _livez(self, request: web.Request) -> web.Response:
        return web.Response(status=200 if self.is_live else 503, text="" if self.is_live else "no progress\n")

    async def _state(self, request: web.Request) -> web.Response:
        state = api_state.EngineState(
            phase=self.phase,
            model="fake",
            flags=self.flags,
            prefill_tokens_per_s=self.prefill_tokens_per_s,
        )
        return web.Response(text=state.model_dump_json(), content_type="application/json")

    async def _metrics(self, request: web.Request) -> web.Response:
        return web.Response(text="# TYPE engine_thing gauge\nengine_thing 7\n")

    async def _put_flags(self, request: web.Request) -> web.Response:
        body = await request.read()
        self.puts.append(body)
        if self.fail_flags > 0:
            self.fail_flags -= 1
            return web.Response(status=500, text="busy")
        if self.refuse_flags:
            return web.json_response({"error": {"message": self.refuse_flags}}, status=400)
        wanted = hot_settings.HotSettings.model_validate_json(body)
        self.flags = api_state.FlagsState(
            generation=wanted.generation,
            hash=wanted.content_hash(),
            enabled=tuple(flag.name for flag in wanted.flags if flag.enabled),
        )
        return web.Response(text=self.flags.model_dump_json(), content_type="application/json")


@contextlib.asynccontextmanager
async def engine(**fields: object) -> AsyncIterator[FakeEngine]:
    """A running fake engine."""
    fake = FakeEngine(**fields)  # type: ignore[arg-type]
    await fake.start()
    try:
        yield fake
    finally:
        await fake.stop()


async def until(holds: Callable[[], object], timeout_s: float = 5.0) -> None:
    """Waits until it holds."""
    async with asyncio.timeout(timeout_s):
        while not holds():  # noqa: ASYNC110 (what is waited for knows no events)
            await asyncio.sleep(0.01)


async def until_async(ask: Callable[[], Awaitable[object]], expected: object, timeout_s: float = 5.0) -> None:
    """Waits until the answer is the expected one."""
    async with asyncio.timeout(timeout_s):
        while await ask() != expected:  # noqa: ASYNC110 (what is waited for is over there)
            await asyncio.sleep(0.02)


@contextlib.asynccontextmanager
async def raw(
    port: int, host: str = LOOPBACK
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A bare connection, for what no HTTP client would send."""
    reader, writer = await asyncio.open_connection(host, port)
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


def session() -> aiohttp.ClientSession:
    """A client that decodes nothing."""
    return aiohttp.ClientSession(auto_decompress=False)


class Mounts:
    """The two mounted folders, swapped as the kubelet swaps them."""

    def __init__(self, folder: Path) -> None:
        self.flags = folder / "flags"
        self.pod = folder / "pod"
        self.auth = folder / "auth"
        self._swaps = 0
        for place in (self.flags, self.pod, self.auth):
            place.mkdir(parents=True)

    def write_flags(self, content: bytes) -> None:
        self._swap(self.flags, names.FLAGS_KEY, content)

    def write_keys(self, content: bytes) -> None:
        self._swap(self.auth, names.KEYS_FILE, content)

    def annotate(self, value: str) -> None:
        lines = ['example.dev/other="with \\"quotes\\""', f'{names.ANNOTATION_FLAGS}="{value}"']
        self._swap(self.pod, names.POD_ANNOTATIONS_FILE, "\n".join(lines).encode())

    def _swap(self, folder: Path, name: str, content: bytes) -> None:
        self._swaps += 1
        fresh = folder / f"..{self._swaps}"
        fresh.mkdir()
        (fresh / name).write_bytes(content)
        (folder / "..data_tmp").symlink_to(fresh.name)
        (folder / "..data_tmp").rename(folder / "..data")
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(Path("..data") / name)


@dataclass(frozen=True)
class Beside:
    """A sidecar beside a fake engine, and a client's session."""

    running: sidecar.Sidecar
    client: aiohttp.ClientSession
    mounts: Mounts
    drain_socket: Path
    host: str = LOOPBACK

    def url(self, path: str) -> URL:
        return URL(f"http://{self.host}:{self.running.http_port}{path}", encoded=True)

    def ops(self, path: str) -> URL:
        return URL(f"http://{self.host}:{self.running.ops_port}{path}")

    def raw(
        self,
    ) -> contextlib.AbstractAsyncContextManager[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        return raw(self.running.http_port, self.host)

    async def chat(
        self, *, stream: bool = True, headers: dict[str, str] | None = None
    ) -> aiohttp.ClientResponse:
        return await self.client.post(
            self.url("/v1/chat/completions"), json={"stream": stream}, headers=headers
        )

    async def state(self) -> api_state.SidecarState:
        async with self.client.get(self.ops("/state")) as response:
            return api_state.SidecarState.model_validate_json(await response.read())

    async def until(
        self, holds: Callable[[api_state.SidecarState], object], timeout_s: float = 5.0
    ) -> api_state.SidecarState:
        """The first state for which it holds."""
        async with asyncio.timeout(timeout_s):
            while not holds(state := await self.state()):  # noqa: ASYNC110 (the state is over there)
                await asyncio.sleep(0.02)
        return state


@contextlib.asynccontextmanager
async def beside(
    fake: FakeEngine, *, flags: bytes | None = None, is_awaited: bool = True, **changes: str
) -> AsyncIterator[Beside]:
    """A sidecar beside the engine; ready when the block starts, unless `is_awaited` is False."""
    # A Unix socket's path has room for 108 bytes, so not pytest's long folder.
    with tempfile.TemporaryDirectory(prefix="ft-") as name:
        folder = Path(name)
        mounts = Mounts(folder)
        mounts.write_flags(document() if flags is None else flags)
        environment = {
            "POD_NAME": "chat-0",
            "DEREGISTER_DELAY_S": "0.1",
            "DRAIN_TIMEOUT_S": "5",
            "HOST": LOOPBACK,
            "HTTP_PORT": "0",
            "OPS_PORT": "0",
            "ENGINE_URL": str(fake.api_url),
            "ENGINE_OPS_URL": str(fake.ops_url),
            "FLAGS_FOLDER": str(mounts.flags),
            "POD_INFO_FOLDER": str(mounts.pod),
            "DRAIN_SOCKET": str(folder / "drain.sock"),
        } | changes
        chosen = settings.read({settings.PREFIX + key: value for key, value in environment.items()})
        async with (
            sidecar.running(chosen) as running,
            session() as client,
        ):
            at_work = Beside(running, client, mounts, chosen.drain_socket, environment["HOST"])
            if is_awaited:
                await at_work.until(lambda state: state.ready)
            yield at_work


async def ask_to_drain(socket: Path) -> bytes:
    """What the engine's preStop does."""
    reader, writer = await asyncio.open_unix_connection(socket)
    writer.write(b"drain\n")
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer
