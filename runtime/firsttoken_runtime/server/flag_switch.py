"""Hot settings on their way to the engine, and what is in force there.

One switch at a time; the engine answers each at a step boundary, in the order in which they were sent.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable

from firsttoken_api import errors
from firsttoken_api.hot_settings import HotSettings
from firsttoken_api.state import FlagsState
from firsttoken_runtime import core

log = logging.getLogger(__name__)

FLAGS_TIMEOUT_S = 10.0


class FlagSwitch:
    """`send` and `check_ready` raise UnavailableError when there is no engine to ask."""

    def __init__(
        self,
        initial: HotSettings | None,
        *,
        send: Callable[[core.ToEngine], None],
        check_ready: Callable[[], None],
    ) -> None:
        self._initial = initial
        self._send = send
        self._check_ready = check_ready
        self.state = FlagsState()
        self.settings = initial
        """The document in force; None: the engine's defaults."""
        self._lock = asyncio.Lock()
        self._sent: deque[tuple[HotSettings, asyncio.Future[core.FlagsApplied]]] = deque()
        """What the engine has not answered; one that was given up stays until its late answer comes."""

    def become_ready(self, enabled: tuple[str, ...]) -> None:
        """The engine serves, with the settings it was started with."""
        if self._initial is None:
            self.state = FlagsState(enabled=enabled)
        else:
            self.state = FlagsState(
                generation=self._initial.generation, hash=self._initial.content_hash(), enabled=enabled
            )

    async def set(self, settings: HotSettings) -> FlagsState:
        """Switch hot settings at a step boundary; returns what is in force then.

        Raises BadRequestError with the engine's reason, UnavailableError if it does not answer in time.
        """
        async with self._lock:
            self._check_ready()
            answered: asyncio.Future[core.FlagsApplied] = asyncio.get_running_loop().create_future()
            self._send(core.SetFlags(settings_json=settings.model_dump_json().encode()))
            self._sent.append((settings, answered))
            try:
                answer = await asyncio.wait_for(answered, FLAGS_TIMEOUT_S)
            except TimeoutError as error:
                raise errors.UnavailableError(
                    f"the engine has not switched within {FLAGS_TIMEOUT_S:.0f} s"
                ) from error
        if answer.error:
            raise errors.BadRequestError(answer.error, param="flags")
        return self.state

    def take(self, answer: core.FlagsApplied) -> None:
        asked, answered = self._sent.popleft()
        if answer.error:
            self.state = self.state.model_copy(update={"error": answer.error})
        else:
            self.state = FlagsState(generation=answer.generation, hash=answer.hash, enabled=answer.enabled)
            self.settings = asked
            log.info(
                "flags of generation %d are in force: KV in %s, lineage %s, %d tokens to compute again",
                answer.generation,
                answer.kv_type,
                answer.lineage or "none",
                answer.recompute_tokens,
            )
        if not answered.done():  # given up meanwhile
            answered.set_result(answer)
