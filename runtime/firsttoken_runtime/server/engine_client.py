"""The server's side of the engine process: what a handler asks of it, and what its messages change.

It joins the nouns of this folder: the process (`engine_child`), its end (`engine_watch`, `life`), the
requests' tokens (`sequences`) and hot settings (`flag_switch`). The engine's messages are always drained,
so it never waits for a client; its end, however it comes, ends every open sequence.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager

import msgspec

from firsttoken_api import errors
from firsttoken_api.hot_settings import HotSettings
from firsttoken_api.state import EngineState, FlagsState, Phase
from firsttoken_runtime import core
from firsttoken_runtime.server import (
    engine_child,
    engine_state,
    engine_watch,
    flag_switch,
    life,
    prefix_index,
    sequence,
    sequences,
)

log = logging.getLogger(__name__)

ENGINE_MODULE = "firsttoken_runtime.engine.process"
SHUTDOWN_GRACE_S = 5.0

OnStep = Callable[[core.StepOutput], None]


class EngineClient:
    """One engine process. `start`, then wait for `settled`; `close` ends it."""

    def __init__(
        self,
        settings: core.EngineSettings,
        initial: HotSettings | None = None,
        *,
        engine_module: str = ENGINE_MODULE,
        log_format: str = "text",
        limits: life.Limits | None = None,
        on_step: OnStep = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._initial = initial
        self._engine_module = engine_module
        self._log_format = log_format
        self._on_step = on_step
        self._clock = clock
        self.life = life.Life(limits or life.Limits(), clock())
        self.ready: core.Ready | None = None
        self.load_failure: core.LoadFailed | None = None
        self.settled = asyncio.Event()
        """Set when loading has ended, well or badly."""
        self.stats: core.Stats | None = None
        self._kv_bytes_per_token = 0
        """Of the layout in force, which only a switch of flags changes; 0 until the engine is ready."""
        self._prefixes = prefix_index.PrefixIndex()
        self._sequences = sequences.Sequences(self._send, self._note_computed)
        self._flag_switch = flag_switch.FlagSwitch(initial, send=self._send, check_ready=self.check_ready)
        self._process: engine_child.EngineChild | None = None
        self._watch: engine_watch.EngineWatch | None = None
        self._closing = False

    async def start(self) -> None:
        self._process = await engine_child.start(
            self._engine_module, self._settings, self._initial, self._log_format
        )
        self._watch = engine_watch.EngineWatch(
            self._process,
            self.life,
            self.settled,
            longest_prompt_tokens=lambda: self._sequences.longest_prompt_tokens,
            clock=self._clock,
            fail=self._fail,
        )
        self._watch.start(self._receive(self._process))

    async def close(self) -> None:
        """End the engine: in order if it serves, else by force. Open sequences fail."""
        self._closing = True
        grace_s = SHUTDOWN_GRACE_S if self.life.is_ready else 0.0
        self._fail("the server is shutting down")
        if self._process is None:
            return
        await self._process.end(grace_s)
        assert self._watch is not None
        await self._watch.stop()
        await self._process.close()

    @property
    def flags(self) -> FlagsState:
        """What is in force."""
        return self._flag_switch.state

    @property
    def settings_in_force(self) -> HotSettings | None:
        """The hot settings document in force; None: the engine's defaults."""
        return self._flag_switch.settings

    @property
    def open_sequences(self) -> int:
        return len(self._sequences)

    @property
    def unseen_tokens(self) -> Mapping[str, int]:
        """Prompt tokens by class that `stats` may not count yet."""
        return self._sequences.unseen_tokens

    @property
    def token_capacity(self) -> int:
        """Most tokens, prompt and answer together, that one sequence can hold."""
        assert self.ready is not None
        pool = (self.ready.kv_blocks, self.ready.block_size_tokens)
        if self.stats is not None:
            pool = (self.stats.blocks_total, self.stats.block_size_tokens)
        return min(self.ready.max_model_len, pool[0] * pool[1])

    def probably_cached(self, token_ids: list[int], salt: str) -> int:
        """Tokens of a prompt that the engine will probably find in its cache. Advice; nobody is asked."""
        size = self.stats.block_size_tokens if self.stats is not None else 0
        return self._prefixes.cached_tokens(token_ids, salt, block_size_tokens=size)

    def group(
        self,
        wanted: list[sequence.Wanted],
        arrival_s: float,
        on_overflow: Callable[[], None] | None = None,
    ) -> AbstractContextManager[sequence.Group]:
        """Submit the sequences of one request, and abort those that go on when the block is left.

        Raises UnavailableError. `on_overflow` is called when the caller has left too many tokens unread; it
        must end the block.
        """
        self.check_ready()
        return self._sequences.submitted(wanted, arrival_s, on_overflow)

    def check_ready(self) -> None:
        """Raises UnavailableError while the model loads and after the engine's end."""
        if self.life.phase is Phase.LOADING:
            raise errors.ModelLoadingError(
                f"the model is loading ({self.life.progress:.0%})", retry_after_s=5
            )
        if self.life.phase is Phase.FAILED:
            raise errors.UnavailableError(f"the engine is not running: {self.life.error}")

    async def set_flags(self, settings: HotSettings) -> FlagsState:
        """Switch hot settings at a step boundary; returns what is in force then.

        Raises BadRequestError with the engine's reason, UnavailableError if it does not answer in time.
        """
        return await self._flag_switch.set(settings)

    def pin(self, prompts: list[list[int]]) -> None:
        """Keep the KV of these prompts, once computed, instead of earlier ones. Raises UnavailableError."""
        self.check_ready()
        self._send(core.Pin(prompts=prompts))

    def state(self) -> EngineState:
        """The document of `GET /state`."""
        return engine_state.document(
            self.life, self.ready, self.stats, self.flags, kv_bytes_per_token=self._kv_bytes_per_token
        )

    def is_live(self) -> bool:
        return self.life.is_live(self._clock())

    def _send(self, message: core.ToEngine) -> None:
        assert self._process is not None
        self._process.send(message)

    async def _receive(self, process: engine_child.EngineChild) -> None:
        while True:
            self._take(await process.receive())

    def _take(self, message: core.FromEngine) -> None:
        now = self._clock()
        match message:
            case core.StepOutput():
                self.life.beat(now)
                self.stats = message.stats
                self._sequences.take(message)
                self._on_step(message)
            case core.Loading():
                self.life.load(message.progress, now)
            case core.Ready():
                self.ready = message
                self._kv_bytes_per_token = message.kv_bytes_per_token
                self._flag_switch.become_ready(message.flags_enabled)
                self.life.become_ready(now)
                self.settled.set()
            case core.FlagsApplied():
                self._kv_bytes_per_token = message.kv_bytes_per_token
                if not message.error:
                    self._note_switch(message)
                self._flag_switch.take(message)
            case core.LoadFailed():
                self.load_failure = message
                self._fail(message.message)

    def _note_computed(self, token_ids: list[int], salt: str) -> None:
        if self.stats is not None:
            self._prefixes.note(
                token_ids,
                salt,
                block_size_tokens=self.stats.block_size_tokens,
                most_blocks=self.stats.blocks_total,
            )

    def _note_switch(self, applied: core.FlagsApplied) -> None:
        """The next report may be a step away: until then nobody is to see new flags over old numbers."""
        if self.stats is not None and applied.lineage:
            if applied.lineage != self.stats.lineage:
                self._prefixes.clear()
            self.stats = msgspec.structs.replace(
                self.stats,
                lineage=applied.lineage,
                kv_type=applied.kv_type,
                recompute_debt_tokens=applied.recompute_tokens,
                flag_generation=applied.generation,
            )

    def _fail(self, reason: str) -> None:
        if self.life.is_ready and not self._closing:  # a failed load is told by whoever waits for it
            log.error("%s", reason)
        self.life.fail(reason)
        self._sequences.fail(reason)
        self.settled.set()
