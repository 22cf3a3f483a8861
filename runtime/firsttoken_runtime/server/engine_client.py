"""The server's side of the engine process: starts it, watches it, and gives each request its own tokens.

One queue a sequence, so tokens cannot mix; a sequence that is left before its end is aborted. The sockets
are bound here before the engine starts and are always drained, so the engine never waits for a client.
Death is seen by the process's exit, a hang by the heartbeat (`life`); both end every open sequence.
"""

import asyncio
import logging
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
import zmq
import zmq.asyncio

from firsttoken_api import errors
from firsttoken_api.hot_settings import HotSettings
from firsttoken_api.state import EngineState, FlagsState, KvState, Phase
from firsttoken_runtime import core
from firsttoken_runtime.server import engine_entry, life

log = logging.getLogger(__name__)

ENGINE_MODULE = "firsttoken_runtime.engine.process"
FLAGS_TIMEOUT_S = 10.0
CLIENT_BUFFER_TOKENS = 1024
LAST_WORDS_S = 0.5
SHUTDOWN_GRACE_S = 5.0
WATCH_PERIOD_S = 0.5

OnStep = Callable[[core.StepOutput], None]


class Sequence:
    """The tokens of one request, as they come."""

    def __init__(
        self, sequence_id: int, prompt_tokens: int, on_overflow: Callable[[], None] | None = None
    ) -> None:
        self.sequence_id = sequence_id
        self.prompt_tokens = prompt_tokens
        self.has_finished = False
        self._on_overflow = on_overflow
        self._pending: list[core.Token] = []
        self._error: errors.ApiError | None = None
        self._arrived = asyncio.Event()

    async def next_tokens(self) -> list[core.Token]:
        """All tokens that arrived since the last call, at least one. Raises ApiError if it failed."""
        await self._arrived.wait()
        if self._pending:
            tokens, self._pending = self._pending, []
            if self._error is None:
                self._arrived.clear()
            return tokens
        assert self._error is not None
        raise self._error

    def put(self, token: core.Token) -> None:
        self._pending.append(token)
        self.has_finished = bool(token.finish_reason)
        self._arrived.set()

    @property
    def has_failed(self) -> bool:
        return self._error is not None

    @property
    def has_overflowed(self) -> bool:
        """Whether the client reads so slowly that its unread tokens pass the buffer."""
        return self._on_overflow is not None and len(self._pending) > CLIENT_BUFFER_TOKENS

    def fail(self, error: errors.ApiError) -> None:
        self._error = error
        self.has_finished = True
        self._arrived.set()

    def drop(self) -> None:
        """Its client reads too slowly: forget what it has not read, and cut its connection."""
        self._pending.clear()
        self.fail(errors.TooManyRequestsError("the client reads too slowly"))
        if self._on_overflow is not None:
            self._on_overflow()


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
        self.flags = FlagsState()
        self.stats: core.Stats | None = None
        self._sequences: dict[int, Sequence] = {}
        self._next_id = 1
        self._flags_lock = asyncio.Lock()
        self._flags_asked: tuple[int, str, asyncio.Future[core.FlagsApplied]] | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._process: asyncio.subprocess.Process | None = None
        self._closing = False

    async def start(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="firsttoken-"))
        to_engine, from_engine = (f"ipc://{self._folder}/{name}.sock" for name in ("to", "from"))
        self._context = zmq.asyncio.Context()
        self._inbox = self._context.socket(zmq.PULL)
        self._inbox.set_hwm(0)
        self._inbox.bind(from_engine)
        self._outbox: zmq.Socket[bytes] = zmq.Context.shadow(self._context.underlying).socket(zmq.PUSH)
        self._outbox.set_hwm(0)
        self._outbox.bind(to_engine)
        launch = engine_entry.Launch(
            module=self._engine_module,
            settings=self._settings,
            initial_settings_json=self._initial.model_dump_json().encode() if self._initial else None,
            log_format=self._log_format,
            to_engine_address=to_engine,
            from_engine_address=from_engine,
        )
        # A session of its own: Ctrl-C in the terminal reaches the server only.
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", engine_entry.__name__),
            stdin=asyncio.subprocess.PIPE,
            start_new_session=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        )
        assert self._process.stdin is not None
        self._process.stdin.write(msgspec.json.encode(launch) + b"\n")
        self._tasks = [
            asyncio.create_task(self._receive(), name="engine-receive"),
            asyncio.create_task(self._await_exit(self._process), name="engine-exit"),
            asyncio.create_task(self._watch(self._process), name="engine-watch"),
        ]
        for task in self._tasks:
            task.add_done_callback(self._notice_end)

    async def close(self) -> None:
        """End the engine: in order if it serves, else by force. Open sequences fail."""
        self._closing = True
        grace_s = SHUTDOWN_GRACE_S if self.life.is_ready else 0.0
        self._fail("the server is shutting down")
        if self._process is None:
            return
        with suppress(zmq.Again):
            self._send(core.Shutdown())
        with suppress(TimeoutError):
            await asyncio.wait_for(self._process.wait(), grace_s)
        if self._process.returncode is None:
            if grace_s:
                log.warning("the engine did not end in %.0f s and is killed", grace_s)
            self._kill(self._process)
            await self._process.wait()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        assert self._process.stdin is not None
        self._process.stdin.close()
        with suppress(BrokenPipeError, ConnectionResetError):
            await self._process.stdin.wait_closed()
        self._inbox.close(linger=0)
        self._outbox.close(linger=0)
        self._context.term()
        shutil.rmtree(self._folder)

    @property
    def open_sequences(self) -> int:
        return len(self._sequences)

    @property
    def token_capacity(self) -> int:
        """Most tokens, prompt and answer together, that one sequence can hold."""
        assert self.ready is not None
        pool = (self.ready.kv_blocks, self.ready.block_size_tokens)
        if self.stats is not None:
            pool = (self.stats.blocks_total, self.stats.block_size_tokens)
        return min(self.ready.max_model_len, pool[0] * pool[1])

    @contextmanager
    def sequence(
        self,
        prompt_token_ids: list[int],
        sampling: core.SamplingParams,
        arrival_s: float,
        on_overflow: Callable[[], None] | None = None,
    ) -> Iterator[Sequence]:
        """Submit, and abort if the block is left before the last token. Raises UnavailableError.

        `on_overflow` is called when the caller has left too many tokens unread; it must end the block.
        """
        self.check_ready()
        sequence = Sequence(self._next_id, len(prompt_token_ids), on_overflow)
        self._next_id += 1
        try:
            self._send(
                core.Submit(
                    sequence_id=sequence.sequence_id,
                    prompt_token_ids=prompt_token_ids,
                    sampling=sampling,
                    arrival_s=arrival_s,
                )
            )
        except zmq.Again as error:
            raise errors.UnavailableError("the engine is gone") from error
        self._sequences[sequence.sequence_id] = sequence
        try:
            yield sequence
        finally:
            del self._sequences[sequence.sequence_id]
            if not sequence.has_finished:
                self._abort(sequence)

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
        async with self._flags_lock:
            self.check_ready()
            answered: asyncio.Future[core.FlagsApplied] = asyncio.get_running_loop().create_future()
            self._flags_asked = (settings.generation, settings.content_hash(), answered)
            try:
                self._send(core.SetFlags(settings_json=settings.model_dump_json().encode()))
                answer = await asyncio.wait_for(answered, FLAGS_TIMEOUT_S)
            except zmq.Again as error:
                raise errors.UnavailableError("the engine is gone") from error
            except TimeoutError as error:
                raise errors.UnavailableError(
                    f"the engine has not switched within {FLAGS_TIMEOUT_S:.0f} s"
                ) from error
            finally:
                self._flags_asked = None
        if answer.error:
            raise errors.BadRequestError(answer.error, param="flags")
        return self.flags

    def state(self) -> EngineState:
        """The document of `GET /state`."""
        ready, stats = self.ready, self.stats
        kv = KvState()
        if ready is not None:
            kv = KvState(block_size_tokens=ready.block_size_tokens, blocks_total=ready.kv_blocks)
        if stats is not None:
            kv = KvState(
                block_size_tokens=stats.block_size_tokens,
                blocks_total=stats.blocks_total,
                blocks_used=stats.blocks_used,
            )
        return EngineState(
            phase=self.life.phase,
            load_progress=self.life.progress,
            error=self.life.error,
            architecture=ready.architecture if ready else "",
            device=ready.device if ready else "",
            dtype=ready.dtype if ready else "",
            max_model_len=ready.max_model_len if ready else 0,
            kv=kv,
            flags=self.flags,
            running=stats.running if stats else 0,
            waiting=stats.waiting if stats else 0,
            backlog_tokens=stats.backlog_tokens if stats else 0,
            preemptions_total=stats.preemptions_total if stats else 0,
        )

    def is_live(self) -> bool:
        return self.life.is_live(self._clock())

    def _send(self, message: core.ToEngine) -> None:
        """Raises zmq.Again when no engine is connected; with no high-water mark it never waits."""
        self._outbox.send(msgspec.msgpack.encode(message), zmq.NOBLOCK)

    def _abort(self, sequence: Sequence) -> None:
        with suppress(zmq.Again):  # an engine that is gone holds nothing
            self._send(core.Abort(sequence.sequence_id))

    def _notice_end(self, task: asyncio.Task[None]) -> None:
        """A task of ours that breaks must not look like a silent engine."""
        if not task.cancelled() and (error := task.exception()) is not None:
            log.critical("%s broke", task.get_name(), exc_info=error)
            self._fail(f"the server's task {task.get_name()} broke: {error}")
            assert self._process is not None
            self._kill(self._process)

    async def _receive(self) -> None:
        decoder = msgspec.msgpack.Decoder(core.FromEngine)
        while True:
            self._take(decoder.decode(await self._inbox.recv()))

    def _take(self, message: core.FromEngine) -> None:
        now = self._clock()
        match message:
            case core.StepOutput():
                self.life.beat(now)
                self._take_step(message)
            case core.Loading():
                self.life.load(message.progress, now)
            case core.Ready():
                self.ready = message
                self.flags = _flags_at_start(self._initial, message.flags_enabled)
                self.life.become_ready(now)
                self.settled.set()
            case core.FlagsApplied():
                self._take_flags(message)
            case core.LoadFailed():
                self.load_failure = message
                self._fail(message.message)

    def _take_step(self, step: core.StepOutput) -> None:
        self.stats = step.stats
        for token in step.tokens:
            sequence = self._sequences.get(token.sequence_id)
            if sequence is None or sequence.has_finished:
                continue  # aborted a moment ago
            sequence.put(token)
            if sequence.has_overflowed:
                log.warning("sequence %d: its client reads too slowly and is dropped", token.sequence_id)
                sequence.drop()
                self._abort(sequence)
        for failure in step.failures:
            if (sequence := self._sequences.get(failure.sequence_id)) is not None:
                sequence.fail(errors.InternalError(failure.message, code="sequence_failed"))
        self._on_step(step)

    def _take_flags(self, answer: core.FlagsApplied) -> None:
        if answer.error:
            self.flags = self.flags.model_copy(update={"error": answer.error})
        else:
            self.flags = FlagsState(generation=answer.generation, hash=answer.hash, enabled=answer.enabled)
        if self._flags_asked is None:
            return
        generation, content_hash, answered = self._flags_asked
        # A late answer to a switch that was given up must not stand for the next one.
        if (answer.generation, answer.hash) == (generation, content_hash) and not answered.done():
            answered.set_result(answer)

    async def _await_exit(self, process: asyncio.subprocess.Process) -> None:
        code = await process.wait()
        if self._closing:
            return
        with suppress(TimeoutError):  # its last message may still be on the way
            await asyncio.wait_for(self.settled.wait(), LAST_WORDS_S)
        self._fail(f"the engine process ended {_describe_exit(code)}")

    async def _watch(self, process: asyncio.subprocess.Process) -> None:
        while self.life.phase is not Phase.FAILED:
            await asyncio.sleep(WATCH_PERIOD_S)
            longest = max((one.prompt_tokens for one in self._sequences.values()), default=0)
            if self.life.has_hung(self._clock(), longest):
                self._fail(f"the engine has given no sign of life for {self.life.deadline_s(longest):.0f} s")
                self._kill(process)

    def _fail(self, reason: str) -> None:
        if self.life.is_ready and not self._closing:  # a failed load is told by whoever waits for it
            log.error("%s", reason)
        self.life.fail(reason)
        for sequence in self._sequences.values():
            if not sequence.has_finished:
                sequence.fail(errors.UnavailableError(reason))
        self.settled.set()

    def _kill(self, process: asyncio.subprocess.Process) -> None:
        with suppress(ProcessLookupError):
            process.kill()


def _flags_at_start(initial: HotSettings | None, enabled: tuple[str, ...]) -> FlagsState:
    if initial is None:
        return FlagsState(enabled=enabled)
    return FlagsState(generation=initial.generation, hash=initial.content_hash(), enabled=enabled)


def _describe_exit(code: int) -> str:
    if code == -9:
        return "by SIGKILL (often: out of memory)"
    return f"by signal {-code}" if code < 0 else f"with exit code {code}"
