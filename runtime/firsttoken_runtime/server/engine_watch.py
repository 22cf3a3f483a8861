"""Notices that the engine has ended or hangs, or that the server no longer hears it.

Death is seen by the process's exit, a hang by the heartbeat (`life`). A task of the server's own that
breaks is said as such: it must not look like a silent engine.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress

from firsttoken_api.state import Phase
from firsttoken_runtime.server import engine_child, life

log = logging.getLogger(__name__)

LAST_WORDS_S = 0.5
WATCH_PERIOD_S = 0.5


class EngineWatch:
    """Calls `fail` with the reason, once the engine is of no use any more, and kills it if it still runs."""

    def __init__(
        self,
        child: engine_child.EngineChild,
        pulse: life.Life,
        settled: asyncio.Event,
        *,
        longest_prompt_tokens: Callable[[], int],
        clock: Callable[[], float],
        fail: Callable[[str], None],
    ) -> None:
        self._child = child
        self._life = pulse
        self._settled = settled
        self._longest_prompt_tokens = longest_prompt_tokens
        self._clock = clock
        self._fail = fail
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, receive: Coroutine[None, None, None]) -> None:
        """Watch the child, and `receive`, which hears it."""
        self._tasks = [
            asyncio.create_task(receive, name="engine-receive"),
            asyncio.create_task(self._await_exit(), name="engine-exit"),
            asyncio.create_task(self._await_silence(), name="engine-watch"),
        ]
        for task in self._tasks:
            task.add_done_callback(self._notice_end)

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _notice_end(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            log.critical("%s broke", task.get_name(), exc_info=error)
            self._fail(f"the server's task {task.get_name()} broke: {error}")
            self._child.kill()

    async def _await_exit(self) -> None:
        code = await self._child.wait()
        if self._life.phase is Phase.FAILED:
            return  # it was closed, or its failure is known
        with suppress(TimeoutError):  # its last message may still be on the way
            await asyncio.wait_for(self._settled.wait(), LAST_WORDS_S)
        self._fail(f"the engine process ended {_describe_exit(code)}")

    async def _await_silence(self) -> None:
        while self._life.phase is not Phase.FAILED:
            await asyncio.sleep(WATCH_PERIOD_S)
            longest = self._longest_prompt_tokens()
            if self._life.has_hung(self._clock(), longest):
                self._fail(f"the engine has given no sign of life for {self._life.deadline_s(longest):.0f} s")
                self._child.kill()


def _describe_exit(code: int) -> str:
    if code == -9:
        return "by SIGKILL (often: out of memory)"
    return f"by signal {-code}" if code < 0 else f"with exit code {code}"
