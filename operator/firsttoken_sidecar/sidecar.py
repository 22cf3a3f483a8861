"""Puts the parts of one sidecar together and keeps them running."""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import aiohttp

from firsttoken_sidecar import (
    drain,
    engine_choice,
    flags,
    logs,
    metrics,
    ops,
    proxy,
    servers,
    settings,
    state,
    timing,
    traffic,
    watch,
)

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Sidecar:
    """A running sidecar."""

    http_port: int
    ops_port: int
    drain: drain.Drain
    background: tuple[asyncio.Task[None], ...]

    async def failed(self) -> None:
        """Waits until a background task ends, which none may, and raises its error."""
        done, _ = await asyncio.wait(self.background, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()


@contextlib.asynccontextmanager
async def running(
    chosen: settings.Settings, clock: Callable[[], float] = time.monotonic
) -> AsyncIterator[Sidecar]:
    """A sidecar that listens until the block ends."""
    counts = metrics.Counts()
    ledger = timing.Ledger()
    open_requests = drain.OpenRequests()
    async with contextlib.AsyncExitStack() as stack:
        to_engine = await stack.enter_async_context(proxy.session())
        to_ops = await stack.enter_async_context(aiohttp.ClientSession())
        engine = engine_choice.make(chosen, to_ops, clock)
        watched = watch.Watch(engine, clock, on_loading=lambda: draining.resume())
        follower = flags.Follower(
            engine,
            watched,
            chosen.flags_folder,
            chosen.pod_info_folder,
            clock,
            ledger.set_settings,
            counts,
        )
        draining = drain.Drain(
            chosen.deregister_delay_s,
            chosen.drain_timeout_s,
            open_requests,
            on_refusing=lambda: door.close_idle(http.connections()),
        )
        forward = proxy.Proxy(to_engine, chosen.engine_url, ledger, counts, clock, chosen.max_body_bytes)
        door = traffic.Traffic(forward, draining, open_requests, ledger, counts, clock)
        reporter = state.Reporter(chosen.pod_name, watched, follower, draining, open_requests, ledger, clock)

        def gauges() -> metrics.Gauges:
            return metrics.Gauges(
                in_flight=open_requests.count,
                now_s=clock(),
                is_ready=not reporter.why_not_ready(),
                is_draining=draining.is_draining,
                is_engine_up=watched.is_ready,
                flags_generation=follower.report().generation,
            )

        collector = metrics.SidecarCollector(counts, ledger, gauges)
        back_office = ops.Ops(reporter, watched, engine, collector)
        background = (
            await _background(stack, watched.run(), "watch"),
            await _background(stack, follower.run(), "flags"),
        )
        ops_server = await servers.start(back_office.application(), "ops", chosen.host, chosen.ops_port)
        stack.push_async_callback(ops_server.close)
        http = await servers.start(door.application(), "http", chosen.host, chosen.http_port)
        stack.push_async_callback(http.close)
        await stack.enter_async_context(drain.DrainSocket(chosen.drain_socket, draining))
        logger.info(
            "listening", extra=logs.fields(http=http.port, ops=ops_server.port, drain=chosen.drain_socket)
        )
        yield Sidecar(http.port, ops_server.port, draining, background)


async def _background(
    stack: contextlib.AsyncExitStack, work: Coroutine[Any, Any, None], name: str
) -> asyncio.Task[None]:
    task = asyncio.create_task(work, name=name)

    async def end() -> None:
        task.cancel()
        await asyncio.wait([task])

    stack.push_async_callback(end)
    return task
