"""What every request for tokens goes through, whatever it asks: admission, submission, count."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from aiohttp import web

from firsttoken_api import errors, names
from firsttoken_runtime.server.classes import Resolved
from firsttoken_runtime.server.request_timer import RequestTimer
from firsttoken_runtime.server.sequence import Group, Wanted
from firsttoken_runtime.server.service import Service


@dataclass(frozen=True)
class TimingWanted:
    """Who is to hear where the time to the first token went: the client in the answer, and its sidecar."""

    is_in_answer: bool = False
    is_stamped: bool = False


NO_TIMING = TimingWanted()


def timing_wanted(request: web.Request) -> TimingWanted:
    """What the request's header asks for: `true` or `false`, and a sidecar adds `stamps` after a comma.

    Raises BadRequestError.
    """
    value = request.headers.get(names.HEADER_TIMING, "false")
    asked = {part.strip() for part in value.split(",")}
    is_stamped = names.TIMING_STAMPS in asked
    asked.discard(names.TIMING_STAMPS)
    if not asked <= {"true", "false"} or len(asked) > 1:
        raise errors.BadRequestError(
            f"{names.HEADER_TIMING} is true or false, not {value[:64]!r}", param=names.HEADER_TIMING
        )
    return TimingWanted(is_in_answer="true" in asked, is_stamped=is_stamped)


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
