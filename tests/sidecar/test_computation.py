import asyncio
from collections.abc import Callable, Mapping

import pytest

from firsttoken_api import errors
from firsttoken_sidecar import answers, computation, exchange, stopwatch, timing


class Source:
    """Bytes that come when the test says so."""

    status = 200
    reason = "OK"
    headers: Mapping[str, str] = {}

    def __init__(self) -> None:
        self.coming: asyncio.Queue[bytes | Exception] = asyncio.Queue()
        self.read_bytes = 0
        self.is_closed = False

    async def read(self) -> bytes:
        got = await self.coming.get()
        if isinstance(got, Exception):
            raise got
        self.read_bytes += len(got)
        return got

    def close(self) -> None:
        self.is_closed = True


class Computing:
    """A computation over such a source."""

    def __init__(self, memory_bytes: int = computation.ALL_REPLAY_BYTES) -> None:
        self.source = Source()
        self.closed = 0
        self.is_sent = asyncio.Event()
        self.refusal: errors.ApiError | None = None
        self.memory = computation.ReplayMemory(memory_bytes)
        self.of = computation.Computation(self._open, self._watch, self.memory, self._on_closed)
        self.of.task = asyncio.create_task(self.of.run())

    def _on_closed(self) -> None:
        self.closed += 1

    async def _open(self, on_sent: Callable[[], None]) -> exchange.Exchange:
        await self.is_sent.wait()
        on_sent()
        if self.refusal is not None:
            raise self.refusal
        return exchange.Exchange(self.source, None)  # type: ignore[arg-type]

    def _watch(self, source: exchange.Exchange) -> stopwatch.Stopwatch:
        return stopwatch.Stopwatch(200, {}, None, timing.Ledger(), lambda: 0.0, keeps_stamps=True)

    def join(self) -> computation.Reader:
        return self.of.join(lambda: None)

    async def send(self, *chunks: bytes) -> None:
        self.is_sent.set()
        for chunk in chunks:
            self.source.coming.put_nowait(chunk)
        for _ in range(20):
            await asyncio.sleep(0)


async def all_of(reader: computation.Reader) -> bytes:
    await reader.started()
    pieces = []
    while piece := await reader.read():
        pieces.append(piece)
    return b"".join(pieces)


async def test_whoever_joins_gets_the_bytes_from_the_start() -> None:
    computing = Computing()
    first = computing.join()
    await computing.send(b"one ", b"two ")
    second = computing.join()
    reading = [asyncio.create_task(all_of(each)) for each in (first, second)]
    await computing.send(b"three", b"")
    assert await asyncio.gather(*reading) == [b"one two three"] * 2
    assert computing.closed == 1
    assert computing.source.is_closed


async def test_it_goes_on_while_one_is_left_and_ends_with_the_last() -> None:
    computing = Computing()
    first, second = computing.join(), computing.join()
    await computing.send(b"a")
    first.leave()
    await computing.send(b"b")
    assert not computing.source.is_closed
    second.leave()
    assert computing.closed == 1, "nobody joins what is given up"
    async with asyncio.timeout(2):
        while not computing.source.is_closed:  # noqa: ASYNC110 (a task that was cancelled tells nobody)
            await asyncio.sleep(0)


async def test_the_first_may_leave_before_it_is_sent() -> None:
    computing = Computing()
    first, second = computing.join(), computing.join()
    first.leave()
    await computing.send(b"a", b"")
    assert await all_of(second) == b"a"


async def test_a_refusal_is_everybodys() -> None:
    computing = Computing()
    computing.refusal = errors.ObjectiveUnreachableError("later", retry_after_s=3)
    readers = [computing.join(), computing.join()]
    await computing.send()
    for reader in readers:
        with pytest.raises(errors.ObjectiveUnreachableError, match="later"):
            await reader.started()
        reader.leave()


async def test_what_breaks_off_breaks_off_for_all_after_what_had_come() -> None:
    computing = Computing()
    reader = computing.join()
    await computing.send(b"a")
    computing.source.coming.put_nowait(answers.BrokenOffError("gone"))
    await reader.started()
    assert await reader.read() == b"a"
    with pytest.raises(answers.BrokenOffError, match="gone"):
        await reader.read()


async def test_each_is_told_when_it_was_sent() -> None:
    computing = Computing()
    told: list[str] = []
    computing.of.join(lambda: told.append("early"))
    await asyncio.sleep(0)
    assert told == []
    await computing.send()
    computing.of.join(lambda: told.append("late"))
    assert told == ["early", "late"]
    assert computing.of.task is not None
    computing.of.task.cancel()


async def test_the_engine_is_read_only_a_little_ahead_of_the_fastest() -> None:
    computing = Computing()
    reader = computing.join()
    piece = b"x" * 16 * 1024
    await computing.send(*[piece] * 40)
    assert computing.source.read_bytes <= computation.AHEAD_BYTES + len(piece)
    await reader.started()
    for _ in range(20):
        await reader.read()
    for _ in range(20):
        await asyncio.sleep(0)
    assert (
        20 * len(piece)
        < computing.source.read_bytes
        <= 20 * len(piece) + computation.AHEAD_BYTES + len(piece)
    )
    reader.leave()


async def test_what_has_grown_large_is_not_joined_and_not_kept() -> None:
    computing = Computing()
    reader, slow = computing.join(), computing.join()
    reading = asyncio.create_task(all_of(reader))
    piece = b"x" * 16 * 1024
    count = 2 * computation.REPLAY_BYTES // len(piece)
    for _ in range(count):
        await computing.send(piece)
    assert computing.closed == 1
    assert computing.of._kept_bytes <= computation.REPLAY_BYTES + computation.AHEAD_BYTES
    with pytest.raises(answers.BrokenOffError, match="too slow"):
        await slow.read()
    slow.leave()
    await computing.send(b"")
    assert len(await reading) == count * len(piece)
    assert computing.memory.left_bytes == computation.ALL_REPLAY_BYTES


async def test_all_together_keep_no_more_than_the_bound() -> None:
    computing = Computing(memory_bytes=100)
    reader = computing.join()
    reading = asyncio.create_task(all_of(reader))
    await computing.send(b"x" * 80)
    assert computing.closed == 0
    await computing.send(b"y" * 30)
    assert computing.closed == 1
    assert computing.memory.left_bytes == 100
    await computing.send(b"")
    assert await reading == b"x" * 80 + b"y" * 30
