"""Which of the operator's replicas acts: a Lease, held and renewed.

Written here because the client library's election has faults that matter to us: its leading task goes on
after a connection error while renewing, the crash of that task is never noticed, its calls may last longer
than the lease, and it reads the wall clock. Here every error of a call is a failed renewal, every call ends
before the renewal deadline, time is monotonic, the leading task is awaited before the lease is given back,
and `Fence` lets nothing be written once the deadline has passed. After `lead` returns the process exits.

A lease is someone else's only for as long as we saw it unchanged for its whole duration on our own clock:
clocks of different machines are never compared.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

from firsttoken_operator import client, kinds

Object = dict[str, Any]
log = logging.getLogger(__name__)


class LeadershipLostError(Exception):
    """The lease could not be renewed in time; nothing may be written any more."""


class Leases(Protocol):
    """The part of the API client that an election needs."""

    async def get(self, kind: kinds.Kind, namespace: str, name: str, timeout_s: float) -> Object: ...
    async def create(self, kind: kinds.Kind, body: Object, *, timeout_s: float) -> Object: ...
    async def replace(self, kind: kinds.Kind, body: Object, *, timeout_s: float) -> Object: ...


@dataclass(frozen=True)
class Terms:
    """Times of the lease. A holder stops writing well before anyone else may take over."""

    duration_s: float = 15.0
    renew_deadline_s: float = 10.0
    retry_s: float = 2.0

    def __post_init__(self) -> None:
        assert self.retry_s < self.renew_deadline_s < self.duration_s


class Fence:
    """Says until when writing is allowed. `apply` asks it before each write and for the write's timeout."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._until = float("-inf")

    def extend(self, until: float) -> None:
        self._until = until

    def close(self) -> None:
        self._until = float("-inf")

    def remaining_s(self) -> float:
        """Seconds left for a write. LeadershipLostError when there are none."""
        left = self._until - self._clock()
        if left <= 0:
            raise LeadershipLostError("the renewal deadline has passed")
        return left

    def is_open(self) -> bool:
        return self._until > self._clock()


class Election:
    """One candidate for one Lease."""

    def __init__(
        self,
        leases: Leases,
        namespace: str,
        name: str,
        identity: str,
        clock: Callable[[], float],
        terms: Terms | None = None,
        wall_clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.fence = Fence(clock)
        self._leases = leases
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._clock = clock
        self._terms = terms or Terms()
        self._wall_clock = wall_clock
        self._jitter = jitter
        self._seen: tuple[str, float] | None = None  # resourceVersion of the lease, and when we first saw it
        self._lease: Object | None = None

    @property
    def is_leader(self) -> bool:
        return self.fence.is_open()

    async def lead(self, work: Callable[[], Awaitable[None]], stop: asyncio.Event) -> None:
        """Wait for the lease, run `work` while it is held, give the lease back.

        Returns when `stop` was set or the work ended by itself; what the work raises is raised here.
        LeadershipLostError when the lease was lost: the work has been cancelled and awaited by then.
        """
        if not await self._acquire(stop):
            return
        log.info("leading as %s", self._identity)
        working = asyncio.ensure_future(work())
        renewing = asyncio.create_task(self._renew_until_lost(), name="lease renewal")
        stopping = asyncio.create_task(stop.wait(), name="stop")
        try:
            await asyncio.wait({working, renewing, stopping}, return_when=asyncio.FIRST_COMPLETED)
            lost = renewing.done()
            if lost:
                self.fence.close()
            if not working.done():
                working.cancel()
                await asyncio.wait({working})
        finally:
            for task in (working, renewing, stopping):
                task.cancel()
            await asyncio.gather(working, renewing, stopping, return_exceptions=True)
        if lost:
            raise LeadershipLostError(f"{self._identity} could not renew the lease {self._name} in time")
        await self._release()
        if not working.cancelled():
            working.result()

    async def _acquire(self, stop: asyncio.Event) -> bool:
        log.info("waiting for the lease %s/%s as %s", self._namespace, self._name, self._identity)
        while not stop.is_set():
            begin = self._clock()
            if await self._try(begin):
                return True
            # Two standbys that woke together would collide each time.
            await _wait(stop, self._terms.retry_s * (1.0 + 0.2 * self._jitter()))
        return False

    async def _renew_until_lost(self) -> None:
        """Returns only when the lease is lost."""
        while True:
            await asyncio.sleep(self._terms.retry_s)
            begin = self._clock()
            if not self.fence.is_open():
                return
            await self._try(begin)
            if not self.fence.is_open() or self._is_taken():
                return

    async def _try(self, begin: float) -> bool:
        """One attempt to take or renew; every error is a failed attempt. The lease counts from `begin`."""
        # The call itself must end before the deadline it is to extend.
        timeout_s = self._terms.renew_deadline_s / 2
        if self.fence.is_open():
            timeout_s = min(timeout_s, self.fence.remaining_s())
        try:
            async with asyncio.timeout(timeout_s):
                held = await self._take(begin, timeout_s)
        except TimeoutError:
            log.warning("lease %s: no answer within %.0f s", self._name, timeout_s)
            self._lease = None
            return False
        except client.ApiError as error:
            log.warning("lease %s: %s", self._name, error)
            self._lease = None
            return False
        if held:
            self.fence.extend(begin + self._terms.renew_deadline_s)
        return held

    async def _take(self, begin: float, timeout_s: float) -> bool:
        lease = self._lease
        if lease is None:
            try:
                lease = await self._leases.get(kinds.LEASE, self._namespace, self._name, timeout_s=timeout_s)
            except client.NotFoundError:
                self._lease = await self._leases.create(
                    kinds.LEASE, self._document(None), timeout_s=timeout_s
                )
                return True
        if not self._may_take(lease):
            self._lease = None
            return False
        self._lease = await self._leases.replace(kinds.LEASE, self._document(lease), timeout_s=timeout_s)
        return True

    def _may_take(self, lease: Object) -> bool:
        spec = lease.get("spec") or {}
        holder = spec.get("holderIdentity") or ""
        if holder in ("", self._identity):
            self._seen = None
            return True
        version = str(lease["metadata"]["resourceVersion"])
        now = self._clock()
        if self._seen is None or self._seen[0] != version:
            self._seen = (version, now)
            return False
        duration_s = float(spec.get("leaseDurationSeconds") or self._terms.duration_s)
        return now - self._seen[1] > duration_s

    def _is_taken(self) -> bool:
        # `_seen` is set only by a lease that names somebody else.
        return self._seen is not None

    def _document(self, lease: Object | None, holder: str | None = None) -> Object:
        identity = self._identity if holder is None else holder
        spec = dict((lease or {}).get("spec") or {})
        now = self._wall_clock().strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        if spec.get("holderIdentity") != identity:
            spec["acquireTime"] = now
            spec["leaseTransitions"] = int(spec.get("leaseTransitions") or 0) + (
                1 if lease and holder is None else 0
            )
        spec["holderIdentity"] = identity
        spec["leaseDurationSeconds"] = max(1, round(self._terms.duration_s))
        spec["renewTime"] = now
        metadata: Object = {"name": self._name, "namespace": self._namespace}
        if lease is not None:
            metadata["resourceVersion"] = lease["metadata"]["resourceVersion"]
        return {
            "apiVersion": kinds.LEASE.api_version,
            "kind": kinds.LEASE.name,
            "metadata": metadata,
            "spec": spec,
        }

    async def _release(self) -> None:
        """Give the lease back, so that the other replica need not wait. Best effort: it expires anyway."""
        self.fence.close()
        if self._lease is None:
            return
        try:
            await self._leases.replace(
                kinds.LEASE, self._document(self._lease, holder=""), timeout_s=self._terms.retry_s
            )
        except client.ApiError as error:
            log.warning("could not release the lease %s: %s", self._name, error)
        else:
            log.info("released the lease %s", self._name)


async def _wait(event: asyncio.Event, timeout_s: float) -> None:
    try:
        async with asyncio.timeout(timeout_s):
            await event.wait()
    except TimeoutError:
        return
