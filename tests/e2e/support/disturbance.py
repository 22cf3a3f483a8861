"""What clients see while replicas come and go, with long streams on each and a steady load of short requests.

The promise is that nothing is seen: every stream gets all of its tokens, and no request fails.
"""

import asyncio
from collections.abc import Callable, Sequence

from e2e.support import clients, services
from e2e.support.kube import Object

STREAM_S = 60
REQUESTS_PER_SECOND = 5.0
MOST_STREAMS = 8
MARGIN = 1.7
"""The machine may be less busy during a stream than when its tokens were timed."""


async def _rate(target: clients.Target) -> float:
    """As much as this machine carries beside the streams: a larger load only makes a queue."""
    return min(REQUESTS_PER_SECOND, 0.6 / await clients.short_request_s(target))


async def _token_s(target: clients.Target, per_second: float) -> float:
    """What a token of a long stream takes beside that load."""
    tried = asyncio.Event()
    load = asyncio.create_task(clients.short_requests(per_second, tried, target))
    token_s = (await clients.long_stream(30, target)).seconds / 30
    tried.set()
    assert (await load).errors == []
    return token_s


async def _streams_on_each(
    pods: Sequence[Object], max_tokens: int, target: clients.Target
) -> list[asyncio.Task[clients.Stream]]:
    """As many streams as it takes until every replica has one; the Service sends them where it likes."""
    streams: list[asyncio.Task[clients.Stream]] = []
    for _ in range(MOST_STREAMS):
        streams.append(asyncio.create_task(clients.long_stream(max_tokens, target)))
        await asyncio.sleep(1)
        states = [await asyncio.to_thread(services.pod_state, pod) for pod in pods]
        if all(state["in_flight"] for state in states):
            return streams
    raise AssertionError("no stream reached one of the replicas")


async def unnoticed(
    pods: Sequence[Object],
    disturb: Callable[[], object],
    settled: Callable[[], object],
    target: clients.Target = clients.CHAT,
) -> None:
    """Streams of at least `STREAM_S` on each pod and the short requests see nothing of the disturbance.

    `settled` returns when it is over; short requests go on until then, and until the last stream has ended.
    """
    per_second = await _rate(target)
    max_tokens = int(MARGIN * STREAM_S / await _token_s(target, per_second))
    streams = await _streams_on_each(pods, max_tokens, target)
    finished = asyncio.Event()
    load = asyncio.create_task(clients.short_requests(per_second, finished, target))
    await asyncio.sleep(3)
    await asyncio.to_thread(disturb)
    seen = await asyncio.gather(*streams)
    await asyncio.to_thread(settled)
    finished.set()
    outcome = await load

    print(
        f"{len(seen)} streams of {', '.join(f'{each.seconds:.0f} s' for each in seen)}; "
        f"{outcome.finished} short requests at {per_second:.1f} a second, longest {outcome.longest_s:.2f} s, "
        f"{len(outcome.errors)} errors"
    )
    assert outcome.errors == []
    assert [each.error for each in seen] == [""] * len(seen)
    assert {each.finish_reason for each in seen} == {"length"}
    assert all(each.tokens == max_tokens for each in seen)
    assert max(each.seconds for each in seen) >= STREAM_S
    assert outcome.finished >= per_second * STREAM_S * 0.8
