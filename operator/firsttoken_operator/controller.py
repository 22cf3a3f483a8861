"""One reconcile: gather -> plan -> apply -> status. Level-based: it never asks what happened, only what is.

Called by the queue, never twice for one key at a time.
"""

import logging
import random
import time
from collections.abc import Callable

from firsttoken_operator import (
    apply,
    causes,
    client,
    events,
    gather,
    kinds,
    metrics,
    plan,
    queue,
    scrape,
    settings,
    slo,
    status,
)
from firsttoken_operator.memory import Memory
from firsttoken_operator.observed import Observed
from firsttoken_operator.store import ServiceKey, Store, controller_uid

log = logging.getLogger(__name__)

RESYNC_S = 300.0
"""Every service is looked at again after this time, and up to half of it more."""


EXPECTED = (client.ApiError,)
"""What a reconcile may raise without being broken."""


class Controller:
    """Everything a reconcile needs, and the memories of all services."""

    def __init__(
        self,
        configuration: settings.Settings,
        store: Store,
        scraper: scrape.Scraper,
        warnings: events.Events,
        applier: apply.Applier,
        counters: metrics.Metrics,
        clock: Callable[[], float] = time.time,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._settings = configuration
        self._store = store
        self._scraper = scraper
        self._events = warnings
        self._applier = applier
        self._metrics = counters
        self._clock = clock
        self._jitter = jitter
        self._memories: dict[ServiceKey, Memory] = {}

    async def reconcile(self, key: queue.Key) -> queue.Retry | None:
        """Bring one service to what its spec says. ApiError: try again later."""
        with self._metrics.reconcile.time():
            try:
                return await self._reconcile(key)
            except client.TooManyRequestsError as error:
                self._metrics.throttled.inc()
                raise queue.RetryAfterError(error.retry_after_s) from error

    async def _reconcile(self, key: ServiceKey) -> queue.Retry | None:
        now = self._clock()
        memory = self._memories.setdefault(key, Memory())
        memory.deleted = {uid for uid in memory.deleted if not self._store.was_deleted(uid)}
        observed = self._gather(key, memory, now)
        if observed is None:
            if self._store.get(kinds.INFERENCE_SERVICE, *key) is None:
                self._memories.pop(key, None)
            return None
        if isinstance(observed, gather.Unreadable):
            await self._report_unreadable(observed, now)
            return self._resync()
        waits_s: list[float] = []
        if await self._read_events(key, observed, now):
            observed = self._gather(key, memory, now)
            if not isinstance(observed, Observed):
                return queue.Retry(0.0)
        if await self._read_unknown(key, observed):
            observed = self._gather(key, memory, now)
            if not isinstance(observed, Observed):
                return queue.Retry(0.0)
        if self._has_pending(observed):
            waits_s.append(events.AGAIN_AFTER_S)

        decided = plan.make(observed, self._settings.images, self._settings.force_flags_off, now)
        outcome = await self._applier.run(observed.service, decided.actions, memory, now)
        self._watch(key, decided)
        if decided.actions:
            # What we wrote is in the store by now: the status is about the newest facts.
            again = self._gather(key, memory, now)
            if isinstance(again, Observed):
                observed = again
        measured = await self._report(observed, decided, outcome, memory, now)
        if measured.again_after_s is not None:
            waits_s.append(measured.again_after_s)

        if outcome.again_s is not None:
            waits_s.append(outcome.again_s - now)
        if decided.conflicts:
            waits_s.append(apply.CONFLICT_RETRY_S)
        if decided.again_after_s is not None:
            waits_s.append(decided.again_after_s)
        resync = self._resync()
        return queue.Retry(min([resync.after_s, *waits_s]))

    def _gather(self, key: ServiceKey, memory: Memory, now: float) -> Observed | gather.Unreadable | None:
        return gather.gather(self._store, key, memory, self._scraper.of, self._events.of, now)

    def _resync(self) -> queue.Retry:
        return queue.Retry(RESYNC_S * (1.0 + 0.5 * self._jitter()))

    def _has_pending(self, observed: Observed) -> bool:
        return any(not pod.ready for pod in observed.live_pods()) or any(
            job.finished_s is None for job in observed.resolvers
        )

    async def _read_events(self, key: ServiceKey, observed: Observed, now: float) -> bool:
        """Read warnings about what hangs without a known cause. True if anything was read."""
        hanging = [
            pod.uid
            for pod in observed.live_pods()
            if not pod.ready
            and now - pod.created_s > causes.PENDING_PATIENCE_S
            and (pod.state is None or pod.state.engine is None)
        ]
        for job in observed.resolvers:
            if job.finished_s is not None or job.answer is not None:
                continue
            body = self._store.get(kinds.JOB, key[0], job.name)
            if (
                body
                and now - gather.time_s(body["metadata"]["creationTimestamp"]) > causes.PENDING_PATIENCE_S
            ):
                pods = [
                    pod["metadata"]["uid"]
                    for pod in self._store.of_service(key, kinds.POD)
                    if controller_uid(pod) == job.uid
                ]
                hanging += pods or [job.uid]
        due = [uid for uid in hanging if self._events.is_due(uid, now)]
        for uid in due:
            await self._events.read(key[0], uid, now)
        return bool(due)

    async def _read_unknown(self, key: ServiceKey, observed: Observed) -> bool:
        """Read replicas that are ready and were never read: a new leader must not report what it forgot."""
        targets = []
        for pod in observed.live_pods():
            body = self._store.get(kinds.POD, key[0], pod.name)
            if pod.ready and pod.state is None and pod.failed_scrapes == 0 and body is not None:
                target = gather.target_of(key, body)
                targets += [target] if target else []
        await self._scraper.read(targets)
        return bool(targets)

    def _watch(self, key: ServiceKey, decided: plan.Plan) -> None:
        """Read pods that are taking new flags at once and often."""
        for pod in decided.progress.watch:
            body = self._store.get(kinds.POD, key[0], pod.name)
            target = gather.target_of(key, body) if body else None
            if target is not None:
                self._scraper.watch(target)
        done = {pod.uid for pod in decided.progress.watch}
        self._scraper.unwatch(
            pod["metadata"]["uid"]
            for pod in self._store.of_service(key, kinds.POD)
            if pod["metadata"]["uid"] not in done
        )

    async def _report(
        self,
        observed: Observed,
        decided: plan.Plan,
        outcome: apply.Outcome,
        memory: Memory,
        now: float,
    ) -> slo.Slo:
        current, measured = status.build(
            observed, decided, tuple(outcome.conflicts), tuple(outcome.refusals), now
        )
        metadata = observed.service.metadata
        await self._applier.write_status(
            metadata.namespace, metadata.name, metadata.uid, observed.previous, current
        )
        if measured.is_news:
            memory.slo_written_s = now
        if measured.was_looked_at:
            memory.traffic_at_slo = observed.traffic()
        return measured

    async def _report_unreadable(self, found: gather.Unreadable, now: float) -> None:
        current = status.unreadable(found.previous, found.generation, found.name, found.message, now)
        await self._applier.write_status(found.namespace, found.name, found.uid, found.previous, current)
