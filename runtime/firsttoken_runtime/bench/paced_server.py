"""The HTTP side of the paced engine: the part of our server's protocol that a sidecar and the bench use."""

import asyncio
import contextlib
import json
import struct
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from typing import Any

from aiohttp import web
from pydantic import ValidationError

from firsttoken_api import flags, names
from firsttoken_api.hot_settings import ClassSettings, HotSettings
from firsttoken_api.state import EngineState, FlagsState
from firsttoken_runtime.bench import paced_answer, paced_loop, pacing

MODEL = paced_answer.MODEL
MAX_MODEL_LEN = 131_072
ENABLED = tuple(name for name in flags.BUILT if flags.BY_NAME[name].on_by_default)
"""As our engine starts. They are reported, and change nothing: it orders by class whatever they say."""
DEFAULT_OUTPUT_TOKENS = 16
JSON = "application/json"


class Paced:
    """One engine that answers like ours, with words instead of a model's text."""

    def __init__(self, loop: paced_loop.Loop) -> None:
        self._loop = loop
        self._flags = FlagsState(enabled=ENABLED)
        self._classes: dict[str, ClassSettings] = {}
        self._default_class = ""

    def api(self) -> web.Application:
        application = web.Application(client_max_size=2**26)
        application.router.add_post("/v1/chat/completions", self._generate)
        application.router.add_post("/v1/completions", self._generate)
        application.router.add_get("/v1/models", self._models)
        application.router.add_get("/health", self._ok)
        return application

    def ops(self) -> web.Application:
        application = web.Application(client_max_size=2**26)
        application.router.add_get("/livez", self._ok)
        application.router.add_get("/readyz", self._ok)
        application.router.add_get("/state", self._state)
        application.router.add_get("/metrics", self._metrics)
        application.router.add_put("/flags", self._put_flags)
        application.router.add_post("/estimate", self._estimate)
        return application

    def state(self) -> EngineState:
        scheduler, pace = self._loop.scheduler, self._loop.scheduler.pace
        waiting = Counter(one.request_class for one in scheduler.waiting)
        backlog: Counter[str] = Counter()
        for one in (*scheduler.waiting, *scheduler.running):
            backlog[one.request_class] += one.uncomputed_tokens
        size = pace.block_size_tokens
        used = sum(-(-(one.prompt_tokens + one.emitted_tokens) // size) for one in scheduler.running)
        # Fields that this version's document does not have are left out by it.
        return EngineState.model_validate(
            {
                "phase": "Ready",
                "load_progress": 1.0,
                "model": MODEL,
                "architecture": MODEL,
                "device": "none",
                "dtype": "none",
                "max_model_len": MAX_MODEL_LEN,
                "kv": {"block_size_tokens": size, "blocks_total": pace.blocks, "blocks_used": used},
                "cache": {
                    "query_tokens_total": scheduler.cache.query_tokens,
                    "hit_tokens_total": {"device": scheduler.cache.hit_tokens},
                    "cached_blocks": len(scheduler.cache),
                },
                "flags": self._flags,
                "running": len(scheduler.running),
                "waiting": len(scheduler.waiting),
                "waiting_by_class": waiting,
                "backlog_tokens": scheduler.backlog_tokens,
                "backlog_by_class": backlog,
                "prefill_tokens_per_s": pace.prefill_tokens_per_s,
                "step_time": {
                    "fixed_s": pace.fixed_s,
                    "per_prefill_token_s": pace.per_prefill_token_s,
                    "per_decode_s": pace.per_decode_s,
                    "per_context_token_s": 0.0,
                },
                "chunk_tokens": pace.chunk_tokens,
                "decoding": scheduler.decoding,
                "context_tokens": scheduler.context_tokens,
                "max_num_seqs": pace.max_num_seqs,
                "max_prefill_batch": pace.max_num_seqs,
                "tpot_mean_s": pace.step_s(0, scheduler.decoding),
            }
        )

    async def _ok(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _models(self, _: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": MODEL, "object": "model"}]})

    async def _state(self, _: web.Request) -> web.Response:
        return web.Response(text=self.state().model_dump_json(), content_type=JSON)

    async def _metrics(self, _: web.Request) -> web.Response:
        text = f"# TYPE paced_engine_lost_seconds gauge\npaced_engine_lost_seconds {self._loop.lost_s}\n"
        return web.Response(text=text)

    async def _put_flags(self, request: web.Request) -> web.Response:
        try:
            settings = HotSettings.model_validate_json(await request.read())
        except ValidationError as error:
            return web.json_response({"error": {"message": str(error)}}, status=400)
        self._classes = {one.name: one for one in settings.classes}
        first = settings.classes[0].name if settings.classes else ""
        self._default_class = settings.default_class or first
        self._flags = FlagsState(
            generation=settings.generation,
            hash=settings.content_hash(),
            enabled=tuple(flag.name for flag in settings.flags if flag.enabled),
        )
        return web.Response(text=self._flags.model_dump_json(), content_type=JSON)

    async def _estimate(self, request: web.Request) -> web.Response:
        sequence = self._sequence(request.headers, await request.json(), time.monotonic())
        scheduler = self._loop.scheduler
        return web.json_response(
            {
                "prompt_tokens": sequence.prompt_tokens,
                "cached_tokens": scheduler.hit_tokens(sequence.prompt_tokens, sequence.keys),
                "ahead_tokens": scheduler.ahead_tokens(sequence.priority),
                "state": self.state().model_dump(mode="json"),
            }
        )

    def _sequence(self, headers: Mapping[str, str], body: Mapping[str, Any], now: float) -> pacing.Simulated:
        name = headers.get(names.HEADER_CLASS) or self._default_class
        salt = f"{headers.get(names.HEADER_TENANT, '')}/{body.get('cache_salt', '')}"
        prompt = prompt_of(body)
        known = self._classes.get(name)
        return pacing.Simulated(
            prompt_tokens=pacing.tokens_of(prompt),
            output_tokens=output_tokens_of(body),
            keys=pacing.block_keys(prompt, salt, self._loop.scheduler.pace.block_size_tokens),
            priority=known.priority if known else 0,
            request_class=name,
            arrival_s=now,
        )

    async def _generate(self, request: web.Request) -> web.StreamResponse:
        now = time.monotonic()
        try:
            body = json.loads(await request.read())
            sequence = self._sequence(request.headers, body, now)
        except (ValueError, TypeError, AttributeError) as error:
            return web.json_response({"error": {"message": f"not a request: {error}"}}, status=400)
        asked = request.headers.get(names.HEADER_TIMING, "").replace(" ", "").split(",")
        is_chat = request.path.endswith("/chat/completions")
        generation = self._loop.add(sequence)
        answer = paced_answer.Answer(
            generation, is_chat, has_timing="true" in asked, has_stamps="stamps" in asked
        )
        try:
            if body.get("stream"):
                has_usage = bool((body.get("stream_options") or {}).get("include_usage"))
                return await answer.stream(request, has_usage)
            return await answer.whole()
        finally:
            self._loop.drop(generation)


def prompt_of(body: Mapping[str, Any]) -> bytes:
    """The prompt as `pacing.TOKEN_BYTES` a token: ids packed, text as it is."""
    if messages := body.get("messages"):
        text = "".join(f"{one.get('role', '')}\n{one.get('content', '')}\n" for one in messages)
        return text.encode()
    prompt = body.get("prompt", "")
    if isinstance(prompt, list):
        return struct.pack(f"<{len(prompt)}I", *prompt)
    if not isinstance(prompt, str):
        raise TypeError("prompt is neither text nor a list of token ids")
    return prompt.encode()


def output_tokens_of(body: Mapping[str, Any]) -> int:
    asked = body.get("max_tokens") or body.get("max_completion_tokens") or DEFAULT_OUTPUT_TOKENS
    return max(1, int(asked))


@contextlib.asynccontextmanager
async def listening(
    pace: pacing.Pace, host: str = "127.0.0.1", port: int = 0, ops_port: int = 0
) -> AsyncIterator[tuple[int, int]]:
    """Ports of API and ops of an engine that runs until the block ends. Port 0 takes a free one."""
    loop = paced_loop.Loop(pace)
    paced = Paced(loop)
    running = asyncio.create_task(loop.run())
    runners = []
    try:
        ports = []
        for application, wanted in ((paced.api(), port), (paced.ops(), ops_port)):
            runner = web.AppRunner(
                application, access_log=None, handler_cancellation=True, shutdown_timeout=0.1
            )
            await runner.setup()
            runners.append(runner)
            await web.TCPSite(runner, host, wanted).start()
            ports.append(int(runner.addresses[0][1]))
        yield ports[0], ports[1]
    finally:
        for runner in runners:
            await runner.cleanup()
        running.cancel()
        await asyncio.wait([running])
