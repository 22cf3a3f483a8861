"""`python -m firsttoken_operator`: settings, logs, ports, election; while leading, watches and queue.

Exit status: 0 after SIGTERM or SIGINT; 1 when the lease was lost or anything that should run for ever ended;
2 for a setting that cannot be used.
"""

import asyncio
import logging
import os
import signal
import sys
import time

import aiohttp
from prometheus_client import CollectorRegistry

from firsttoken_api import names
from firsttoken_operator import (
    apply,
    client,
    controller,
    election,
    endpoints,
    events,
    freshness,
    gather,
    handlers,
    kinds,
    logs,
    metrics,
    queue,
    scrape,
    settings,
)
from firsttoken_operator.store import Store

log = logging.getLogger("firsttoken_operator")

LEASE_NAME = "firsttoken-operator"
CRD_RETRY_S = 5.0


class _Process:
    """What the health and metrics ports look at; the parts exist only while leading."""

    def __init__(self, counters: metrics.Metrics) -> None:
        self.counters = counters
        self.campaign: election.Election | None = None
        self.fresh: freshness.Freshness | None = None
        self.work: queue.Queue | None = None
        self.store: Store | None = None

    def unhealthy(self) -> str:
        return self.fresh.problem if self.fresh else ""

    def collect(self) -> None:
        self.counters.leader.set(1 if self.campaign and self.campaign.is_leader else 0)
        self.counters.watch_staleness.set(self.fresh.staleness_s() if self.fresh else 0)
        self.counters.queue_depth.set(self.work.depth() if self.work else 0)
        self.counters.queue_age.set(self.work.oldest_s() if self.work else 0)
        self.counters.services.set(len(self.store.services()) if self.store else 0)


async def _crds_exist(api: client.Client, chosen: settings.Settings, stop: asyncio.Event) -> None:
    """Wait for the CRD: an operator that was installed first must not end in a crash loop."""
    namespace = chosen.watch_namespaces[0] if chosen.watch_namespaces else None
    said = ""
    while not stop.is_set():
        try:
            await api.list(kinds.INFERENCE_SERVICE, namespace, metadata_only=True)
        except client.ApiError as error:
            if str(error) != said:
                log.warning("waiting for %s to be served: %s", names.SERVICE_PLURAL, error)
                said = str(error)
        else:
            return
        try:
            async with asyncio.timeout(CRD_RETRY_S):
                await stop.wait()
        except TimeoutError:
            continue


async def _lead(
    api: client.Client,
    chosen: settings.Settings,
    process: _Process,
    fence: election.Fence,
    stop: asyncio.Event,
) -> None:
    """Everything a leader does, until cancelled or until a part of it ends."""
    store = Store()
    work = queue.Queue()
    fresh = freshness.Freshness(api, store, chosen.watch_namespaces)
    process.store, process.work, process.fresh = store, work, fresh

    def failed(key: queue.Key, error: BaseException, delay_s: float) -> None:
        process.counters.errors.labels(_reason(error)).inc()
        log.warning("%s/%s: %s; again in %.1f s", *key, error, delay_s)

    async with aiohttp.ClientSession(trust_env=False) as session:
        scraper = scrape.Scraper(
            session, lambda: gather.targets(store), work.nudge, process.counters, chosen.scrape_interval_s
        )
        applier = apply.Applier(api, store, fence, process.counters)
        brain = controller.Controller(chosen, store, scraper, events.Events(api), applier, process.counters)
        # kopf ends, at its end, every task that did not exist when it began: ours must exist by then.
        parts = [
            asyncio.create_task(
                work.run(brain.reconcile, failed, controller.EXPECTED, chosen.workers), name="queue"
            ),
            asyncio.create_task(scraper.run(), name="scrape"),
            asyncio.create_task(scraper.run_watch(), name="watch states"),
            asyncio.create_task(fresh.run(), name="freshness"),
        ]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        parts.append(
            asyncio.create_task(
                handlers.watch(store, work, chosen, lambda: _on_signals(stop)), name="watches"
            )
        )
        try:
            await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for part in parts:
                part.cancel()
            ended = await asyncio.gather(*parts, return_exceptions=True)
            process.store, process.work, process.fresh = None, None, None
    for part, how in zip(parts, ended, strict=True):
        if isinstance(how, BaseExceptionGroup) and how.subgroup(election.LeadershipLostError):
            raise election.LeadershipLostError("a write was due when the lease could not be renewed") from how
        if isinstance(how, BaseException) and not isinstance(how, asyncio.CancelledError):
            raise RuntimeError(f"{part.get_name()} failed") from how


def _reason(error: BaseException) -> str:
    name = type(error).__name__
    if isinstance(error, queue.RetryAfterError):
        return client.TooManyRequestsError.__name__
    return name if name in metrics.REASONS else client.ApiError.__name__


def _on_signals(stop: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)


async def _run(chosen: settings.Settings) -> int:
    stop = asyncio.Event()
    _on_signals(stop)
    process = _Process(metrics.Metrics(CollectorRegistry()))
    async with (
        client.connect() as api,
        endpoints.serving(
            process.counters,
            chosen.health_port,
            chosen.metrics_port,
            process.unhealthy,
            process.collect,
        ),
    ):
        await _crds_exist(api, chosen, stop)
        campaign = election.Election(api, chosen.namespace, LEASE_NAME, chosen.identity, time.monotonic)
        process.campaign = campaign
        try:
            await campaign.lead(lambda: _lead(api, chosen, process, campaign.fence, stop), stop)
        except election.LeadershipLostError as error:
            log.error("%s", error)
            return 1
    if not stop.is_set():
        log.error("the work ended by itself")
        return 1
    log.info("stopped")
    return 0


def main() -> int:
    """Run until a signal. Returns the exit status."""
    try:
        chosen = settings.from_environment(os.environ)
    except settings.SettingsError as error:
        print(error, file=sys.stderr)  # noqa: T201 - there is no logging yet
        return 2
    logs.configure(chosen.log_level, chosen.log_format)
    try:
        return asyncio.run(_run(chosen))
    except Exception:
        log.exception("ended by an error")
        return 1


if __name__ == "__main__":
    sys.exit(main())
