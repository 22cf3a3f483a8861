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
    addresses,
    admitter,
    auth,
    connections,
    dispatch,
    drain,
    engine_address,
    engine_choice,
    flags,
    forwarding,
    gateway,
    joining,
    logs,
    metrics,
    ops,
    peers,
    proxy,
    reception,
    relay,
    router,
    servers,
    settings,
    state,
    timing,
    traffic,
    watch,
    zone,
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
    clients = connections.Connections(counts)
    open_requests = drain.OpenRequests()
    async with contextlib.AsyncExitStack() as stack:
        to_engine = await stack.enter_async_context(proxy.session(chosen.engine_url))
        to_ops = await stack.enter_async_context(_ops_session(chosen))
        own_address = chosen.pod_ip or addresses.specific(chosen.host)
        to_peers = await stack.enter_async_context(forwarding.session(own_address))
        place = zone.Zone(chosen.zone, chosen.pod_info_folder, clock)
        keys = auth.Auth(chosen.auth_folder, clock, counts)
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
            on_refusing=clients.close_idle,
        )
        admission = admitter.Admitter(
            state=lambda: watched.state,
            settings=lambda: follower.settings,
            ask=engine.estimate,
            clock=clock,
            counts=counts.admission,
        )
        reporter = state.Reporter(
            chosen.pod_name,
            watched,
            follower,
            draining,
            open_requests,
            ledger,
            clock,
            zone=place.name,
            load=admission.load,
            authenticator=keys,
        )
        known = peers.Peers(
            chosen.peers_hosts,
            own_address,
            lambda: ops_server.port,
            to_peers,
            counts.routes,
            clock,
            on_state=keys.heard,
        )
        routes = router.Router(
            chosen.routing_strategy,
            place.name,
            known,
            counts.routes,
            clock,
            own_load=admission.load,
            is_own_accepting=lambda: not reporter.why_not_ready(),
            settings=lambda: follower.settings,
        )
        joiner = joining.Joiner(counts)
        stack.push_async_callback(joiner.close)
        forward = proxy.Proxy(to_engine, chosen.engine_url, counts, clock)
        dispatcher = dispatch.Dispatch(
            routes,
            forwarding.Forwarding(to_peers, lambda: http.port, clock),
            admission,
            forward,
            engine,
            lambda: follower.settings,
            hides_keys=keys.is_on,
        )
        receiving = reception.Reception(
            keys,
            routes,
            dispatcher,
            ledger,
            lambda: follower.settings,
            max_body_bytes=chosen.max_body_bytes,
            is_traced=chosen.is_traced,
        )
        behind = gateway.Gateway(
            receiving,
            keys,
            joiner,
            forward,
            relay.Relay(counts),
            ledger,
            clock,
            max_body_bytes=chosen.max_body_bytes,
        )
        door = traffic.Traffic(behind, draining, open_requests, counts, clock)

        def gauges() -> metrics.Gauges:
            return metrics.Gauges(
                now_s=clock(),
                in_flight=open_requests.count,
                connections=len(clients),
                is_ready=not reporter.why_not_ready(),
                is_draining=draining.is_draining,
                is_engine_up=watched.is_ready,
                flags_generation=follower.report().generation,
                peers=len(known.accepting(clock())),
            )

        back_office = ops.Ops(reporter, watched, engine, metrics.SidecarCollector(counts, ledger, gauges))
        work = {"watch": watched.run(), "flags": follower.run()}
        if keys.is_on:
            work["auth"] = keys.run()
        background = tuple([await _background(stack, each, name) for name, each in work.items()])
        ops_server = await servers.start(
            back_office.application(), "ops", chosen.host, chosen.ops_port, connections.Connections(counts)
        )
        stack.push_async_callback(ops_server.close)
        http = await servers.start(door.application(), "http", chosen.host, chosen.http_port, clients)
        stack.push_async_callback(http.close)
        if not known.is_alone:
            background += (await _background(stack, known.run(), "peers"),)
        await stack.enter_async_context(drain.DrainSocket(chosen.drain_socket, draining))
        logger.info(
            "listening", extra=logs.fields(http=http.port, ops=ops_server.port, drain=chosen.drain_socket)
        )
        yield Sidecar(http.port, ops_server.port, draining, background)


def _ops_session(chosen: settings.Settings) -> aiohttp.ClientSession:
    """To where the engine is asked about itself; vLLM has one port for everything."""
    url = chosen.engine_url if chosen.engine == "vllm" else chosen.engine_ops_url
    return aiohttp.ClientSession(connector=engine_address.connector(url))


async def _background(
    stack: contextlib.AsyncExitStack, work: Coroutine[Any, Any, None], name: str
) -> asyncio.Task[None]:
    task = asyncio.create_task(work, name=name)

    async def end() -> None:
        task.cancel()
        await asyncio.wait([task])

    stack.push_async_callback(end)
    return task
