"""What every request for tokens goes through, whatever it asks: admission, submission, count."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from firsttoken_runtime.server.classes import Resolved
from firsttoken_runtime.server.request_timer import RequestTimer
from firsttoken_runtime.server.sequence import Group, Wanted
from firsttoken_runtime.server.service import Service


@asynccontextmanager
async def submitted(
    service: Service,
    wanted: list[Wanted],
    prompt_tokens: int,
    kind: Resolved,
    timer: RequestTimer,
    ended: Callable[[], tuple[str | None, int]],
    on_overflow: Callable[[], None] | None = None,
) -> AsyncIterator[Group]:
    """Submit and count. `prompt_tokens` are those of all prompts, each once;
    `ended` says at the end why the request ended, None if it did not by itself, and how many tokens it made.

    Raises ObjectiveUnreachableError and UnavailableError.
    """
    service.admit([one.uncached_tokens for one in wanted], kind)
    with service.client.group(wanted, timer.arrival_s, on_overflow) as group:
        service.metrics.accepted(prompt_tokens)
        try:
            yield group
        finally:
            reason, completion_tokens = ended()
            timer.end(reason or ("error" if group.has_failed else "abort"), prompt_tokens, completion_tokens)
