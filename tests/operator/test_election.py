"""The election against an in-memory Lease, with the faults that a network has."""

import asyncio
import copy
from collections.abc import Callable
from typing import Any

import pytest

from firsttoken_operator import client, kinds
from firsttoken_operator.election import Election, Fence, LeadershipLostError, Terms

Object = dict[str, Any]
TERMS = Terms(duration_s=0.30, renew_deadline_s=0.20, retry_s=0.03)


class FakeLeases:
    """One Lease with optimistic locking. `fault` may raise or hang before a call takes effect."""

    def __init__(self) -> None:
        self.lease: Object | None = None
        self.version = 0
        self.fault: Callable[[str], Any] | None = None
        self.writes: list[str] = []

    async def _maybe_fail(self, verb: str) -> None:
        if self.fault is not None:
            result = self.fault(verb)
            if asyncio.iscoroutine(result):
                await result

    async def get(self, kind: kinds.Kind, namespace: str, name: str, timeout_s: float) -> Object:
        await self._maybe_fail("get")
        if self.lease is None:
            raise client.NotFoundError("no lease", 404)
        return copy.deepcopy(self.lease)

    async def create(self, kind: kinds.Kind, body: Object, *, timeout_s: float) -> Object:
        await self._maybe_fail("create")
        if self.lease is not None:
            raise client.ConflictError("exists", 409)
        return self._store(body)

    async def replace(self, kind: kinds.Kind, body: Object, *, timeout_s: float) -> Object:
        await self._maybe_fail("replace")
        if self.lease is None:
            raise client.NotFoundError("no lease", 404)
        if body["metadata"]["resourceVersion"] != self.lease["metadata"]["resourceVersion"]:
            raise client.ConflictError("changed meanwhile", 409)
        return self._store(body)

    def _store(self, body: Object) -> Object:
        self.version += 1
        self.lease = copy.deepcopy(body)
        self.lease["metadata"]["resourceVersion"] = str(self.version)
        self.writes.append(body["spec"]["holderIdentity"])
        return copy.deepcopy(self.lease)

    @property
    def holder(self) -> str:
        return str(self.lease["spec"]["holderIdentity"]) if self.lease else ""


def candidate(leases: FakeLeases, identity: str) -> Election:
    clock = asyncio.get_running_loop().time
    return Election(leases, "system", "operator", identity, clock, TERMS, jitter=lambda: 0.0)


class Work:
    """A leading task that notes when it began and ended."""

    def __init__(self, error: Exception | None = None, slow_end_s: float = 0.0) -> None:
        self.began = asyncio.Event()
        self.ended = False
        self._error = error
        self._slow_end_s = slow_end_s

    async def __call__(self) -> None:
        self.began.set()
        try:
            if self._error is not None:
                raise self._error
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(self._slow_end_s)
            self.ended = True


async def test_one_leads_and_gives_the_lease_back_after_its_work_ended() -> None:
    leases, work, stop = FakeLeases(), Work(slow_end_s=0.05), asyncio.Event()
    campaign = candidate(leases, "a")
    running = asyncio.create_task(campaign.lead(work, stop))
    await asyncio.wait_for(work.began.wait(), 1)
    assert campaign.is_leader
    assert leases.holder == "a"
    stop.set()
    await asyncio.wait_for(running, 1)
    assert work.ended
    assert not campaign.is_leader
    assert leases.holder == ""
    assert leases.lease is not None
    assert leases.lease["spec"]["leaseDurationSeconds"] >= 1


async def test_the_standby_takes_over_at_once_after_a_release() -> None:
    leases, first, second, stop = FakeLeases(), Work(), Work(), asyncio.Event()
    leader = asyncio.create_task(candidate(leases, "a").lead(first, stop))
    await asyncio.wait_for(first.began.wait(), 1)
    standby_stop = asyncio.Event()
    standby = asyncio.create_task(candidate(leases, "b").lead(second, standby_stop))
    await asyncio.sleep(0.1)
    assert not second.began.is_set()
    stop.set()
    await leader
    await asyncio.wait_for(second.began.wait(), 0.2)
    standby_stop.set()
    await standby


async def test_a_dead_leader_is_replaced_only_after_its_lease_ran_out() -> None:
    leases, work, stop = FakeLeases(), Work(), asyncio.Event()
    loop = asyncio.get_running_loop()
    leases._store({"metadata": {"name": "operator"}, "spec": {"holderIdentity": "dead"}})
    begin = loop.time()
    standby = asyncio.create_task(candidate(leases, "b").lead(work, stop))
    await asyncio.wait_for(work.began.wait(), 2)
    assert loop.time() - begin > TERMS.duration_s
    assert leases.lease is not None
    assert leases.lease["spec"]["leaseTransitions"] == 1
    stop.set()
    await standby


async def test_a_leader_without_answers_stops_before_anyone_takes_over() -> None:
    """Connection errors while renewing: the work is cancelled and awaited, and nothing may be written."""
    leases, first, second = FakeLeases(), Work(), Work()
    campaign = candidate(leases, "a")
    leader = asyncio.create_task(campaign.lead(first, asyncio.Event()))
    await asyncio.wait_for(first.began.wait(), 1)
    standby_leases = FakeLeases()
    standby_leases.lease, standby_leases.version = leases.lease, leases.version
    stop = asyncio.Event()
    standby = asyncio.create_task(candidate(standby_leases, "b").lead(second, stop))

    def unreachable(_: str) -> None:
        raise client.UnreachableError("no route")

    leases.fault = unreachable
    with pytest.raises(LeadershipLostError):
        await asyncio.wait_for(leader, 2)
    assert first.ended
    assert not second.began.is_set()  # the margin between renewal deadline and duration
    with pytest.raises(LeadershipLostError):
        campaign.fence.remaining_s()
    await asyncio.wait_for(second.began.wait(), 2)
    stop.set()
    await standby


async def test_a_hanging_api_server_counts_as_a_failed_renewal() -> None:
    leases, work = FakeLeases(), Work()
    campaign = candidate(leases, "a")
    leader = asyncio.create_task(campaign.lead(work, asyncio.Event()))
    await asyncio.wait_for(work.began.wait(), 1)
    leases.fault = lambda _: asyncio.sleep(60)
    begin = asyncio.get_running_loop().time()
    with pytest.raises(LeadershipLostError):
        await asyncio.wait_for(leader, 2)
    assert asyncio.get_running_loop().time() - begin < TERMS.duration_s + 0.1
    assert work.ended


async def test_one_lost_renewal_is_survived() -> None:
    leases, work, stop = FakeLeases(), Work(), asyncio.Event()
    campaign = candidate(leases, "a")
    leader = asyncio.create_task(campaign.lead(work, stop))
    await asyncio.wait_for(work.began.wait(), 1)
    failures = 0

    def fail_twice(_: str) -> None:
        nonlocal failures
        failures += 1
        if failures <= 2:
            raise client.ApiError("503", 503)

    leases.fault = fail_twice
    await asyncio.sleep(TERMS.duration_s * 1.5)
    assert failures > 2
    assert campaign.is_leader
    assert not work.ended
    stop.set()
    await leader


async def test_the_crash_of_the_work_ends_the_leadership_and_is_raised() -> None:
    leases = FakeLeases()
    with pytest.raises(ZeroDivisionError):
        await asyncio.wait_for(
            candidate(leases, "a").lead(Work(error=ZeroDivisionError()), asyncio.Event()), 1
        )
    assert leases.holder == ""


async def test_a_stolen_lease_ends_the_leadership() -> None:
    leases, work = FakeLeases(), Work()
    leader = asyncio.create_task(candidate(leases, "a").lead(work, asyncio.Event()))
    await asyncio.wait_for(work.began.wait(), 1)
    leases._store({"metadata": {"name": "operator"}, "spec": {"holderIdentity": "thief"}})
    with pytest.raises(LeadershipLostError):
        await asyncio.wait_for(leader, 1)
    assert work.ended
    assert leases.holder == "thief"  # what is not ours is not released


async def test_two_that_create_at_once_have_one_winner() -> None:
    leases, stop = FakeLeases(), asyncio.Event()
    works = [Work(), Work()]
    tasks = [
        asyncio.create_task(candidate(leases, name).lead(work, stop))
        for name, work in zip("ab", works, strict=True)
    ]
    await asyncio.sleep(0.15)
    assert sum(work.began.is_set() for work in works) == 1
    stop.set()
    await asyncio.gather(*tasks)


async def test_never_two_leaders_while_answers_get_lost() -> None:
    """Three candidates, each with a bad line of its own: at no moment do two fences stand open."""
    leases = FakeLeases()
    stop = asyncio.Event()
    calls = 0

    class BadLine(FakeLeases):
        def __init__(self, phase: int) -> None:
            super().__init__()
            self.phase = phase

        async def get(self, *args: Any, **kwargs: Any) -> Object:
            await self._drop()
            return await leases.get(*args, **kwargs)

        async def create(self, *args: Any, **kwargs: Any) -> Object:
            await self._drop()
            return await leases.create(*args, **kwargs)

        async def replace(self, *args: Any, **kwargs: Any) -> Object:
            answer = await leases.replace(*args, **kwargs)
            await self._drop()  # the write took effect, the answer is lost
            return answer

        async def _drop(self) -> None:
            nonlocal calls
            calls += 1
            if (calls // 8) % 4 == self.phase:
                raise client.UnreachableError("lost")

    campaigns = [
        Election(BadLine(n), "system", "operator", f"c{n}", asyncio.get_running_loop().time, TERMS)
        for n in range(3)
    ]

    async def again_and_again(campaign: Election) -> None:
        while not stop.is_set():
            try:
                await campaign.lead(Work(), stop)
            except LeadershipLostError:
                continue

    tasks = [asyncio.create_task(again_and_again(campaign)) for campaign in campaigns]
    leaders: set[int] = set()
    for _ in range(300):
        await asyncio.sleep(0.005)
        now = [n for n, campaign in enumerate(campaigns) if campaign.is_leader]
        assert len(now) <= 1
        leaders.update(now)
    stop.set()
    await asyncio.wait_for(asyncio.gather(*tasks), 3)
    assert leaders


def test_the_fence_counts_down_and_closes() -> None:
    now = 10.0
    fence = Fence(lambda: now)
    with pytest.raises(LeadershipLostError):
        fence.remaining_s()
    fence.extend(15.0)
    assert fence.remaining_s() == 5.0
    now = 15.0
    assert not fence.is_open()
    with pytest.raises(LeadershipLostError):
        fence.remaining_s()


def test_terms_must_leave_a_margin() -> None:
    with pytest.raises(AssertionError):
        Terms(duration_s=10, renew_deadline_s=10, retry_s=2)
