"""Looks for the capacity of an engine behind a sidecar, then asks for more; writes what came of it."""

import asyncio
import os
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

import aiohttp

from firsttoken_api.errors import UserError
from firsttoken_runtime.bench import (
    beginning,
    beside,
    client,
    ending,
    experiment,
    gateway,
    load,
    overload,
    overload_load,
    overload_plot,
    overload_report,
    rounds,
    server,
    show,
    summary,
    workload,
)

NEVER_S = 3600.0
"""A limit that refuses nobody."""
ALONE_REQUESTS = 12
BUSY_CLIENTS = 8
BUSY_REQUESTS = 48
START_FACTOR = 0.8
"""Of the rate at which an engine works that always has something to do."""
SPARE_GRACE_S = 2.0
SETTLE_S = 2.0
"""Between two rates: a sidecar looks at its engine every half second."""
PROBE_S = 120.0
"""Most that the rate of an engine that is always busy is looked at."""


@dataclass(frozen=True)
class Plan:
    """What `bench overload` was asked for, beside the rest."""

    hold_s: float
    holds: int
    slo_s: float | None
    interactive_share: float
    obeying: float


async def run(wish: gateway.Wish, plan: Plan) -> overload_report.Measured:
    """Raises UserError where a process does not start, or nothing holds. Leaves this process on its core."""
    folder = show.folder(wish.out, "overload")
    console = show.console()
    began = beginning.Beginning.now()
    sha256 = await gateway.digest(wish)
    needs = experiment.ServerNeeds(
        max_model_len=overload.MAX_MODEL_LEN, kv_tokens=16 * overload.MAX_MODEL_LEN, max_num_seqs=32
    )
    async with AsyncExitStack() as stack:
        console.print(f"Starting engine and sidecar (their logs: {folder})", soft_wrap=True)
        target = await stack.enter_async_context(gateway.engine(wish, needs, folder / "server.log"))
        http = await stack.enter_async_context(client.session())
        os.sched_setaffinity(0, {wish.client_core})
        ops = server.Ops(http, target.ops_url)
        state = await ops.state()
        enabled = beside.enabled_flags(state)
        running = await stack.enter_async_context(
            beside.running(
                target,
                beside.settings(enabled, NEVER_S),
                folder / "sidecar.log",
                http,
                cores=(wish.sidecar_core,),
            )
        )
        model = await client.model_name(http, running.url)
        with show.progress(console, plan.holds + 3) as report:
            run_ = _Run(wish, plan, http, ops, running, enabled, model, report)
            ended = await ending.until_ended(run_.measure(), wish.time_limit_s)
    done = overload_report.Measured(
        phases=run_.phases,
        holds=tuple(run_.holds),
        limits=run_.limits,
        busy_per_s=run_.busy_per_s,
        obeying=plan.obeying,
        interactive_share=plan.interactive_share,
        context=began.context(
            model=wish.model,
            sha256=sha256,
            device=f"{state['device']}, {wish.cores()}",
            dtype=state["dtype"],
            server_command=target.command,
            seed=wish.seed,
            repeats=1,
            extra={"flags": ", ".join(enabled) or "none"},
        ),
        ended=ended,
    )
    document, text = overload_report.document(done), overload_report.markdown(done)
    show.leave(folder, console, document, text, lambda file: overload_plot.draw(done, file))
    gateway.leave_flat(wish.json_file, overload_report.flat(done))
    return done


@dataclass
class _Run:
    wish: gateway.Wish
    plan: Plan
    http: aiohttp.ClientSession
    ops: server.Ops
    sidecar: beside.Sidecar
    enabled: tuple[str, ...]
    model: str
    report: rounds.Report
    phases: dict[str, overload.Phase] = field(default_factory=dict)
    holds: list[overload.Phase] = field(default_factory=list)
    limits: overload.Limits = field(default_factory=lambda: overload.Limits(0.0))
    busy_per_s: float = 0.0
    _salts: int = 0

    async def measure(self) -> None:
        """Every phase is noted when it is over."""
        slo_s = self.plan.slo_s
        await self._put(is_admitting=False)
        alone_s = await self._alone_s()
        self.limits = overload.Limits(slo_s if slo_s is not None else overload.SLO_FACTOR * alone_s)
        self.busy_per_s = await self._busy_per_s()
        capacity = await self._capacity()
        self.phases[overload.CAPACITY] = capacity
        for name, factor, is_admitting in (
            (overload.UNDER, overload.BELOW, True),
            (overload.WITH, overload.ABOVE, True),
            (overload.WITHOUT, overload.ABOVE, False),
        ):
            await self._put(is_admitting)
            self.phases[name] = await self._phase(name, factor * capacity.rate_per_s)

    async def _alone_s(self) -> float:
        """Median TTFT of one client."""
        lane = workload.closed(self._requests(ALONE_REQUESTS), 1)
        made = await rounds.drive(self._client(), lane, time.monotonic() + PROBE_S, 1)
        return _median(made)

    async def _busy_per_s(self) -> float:
        """How many requests a second an engine ends that always has some."""
        lane = workload.closed(self._requests(BUSY_REQUESTS), BUSY_CLIENTS)
        made = await load.run(self._client(), [lane], PROBE_S)
        ended = [one for one in made.records if not one.error]
        if not ended:
            raise UserError("no request was answered in time, so there is no rate to begin with")
        return len(ended) / made.duration_s

    async def _capacity(self) -> overload.Phase:
        """The hold at the highest rate that holds. Raises UserError where none does."""
        search = overload.Search(START_FACTOR * self.busy_per_s, self.plan.holds)
        best: overload.Phase | None = None
        while (rate := search.next_rate()) is not None:
            phase = await self._phase(f"hold {search.tried + 1}", rate, stops_when_lost=True)
            is_held = not phase.is_cut and overload.is_held(phase.attempts, self.limits)
            search.tell(rate, is_held)
            self.holds.append(phase)
            if is_held and (best is None or rate > best.rate_per_s):
                best = phase
        if best is None:
            raise UserError(
                f"the objective does not hold at {search.failed_per_s:.2f} requests a second either, after "
                f"{self.plan.holds} holds; give a longer --slo-s or more --holds"
            )
        return best

    async def _phase(self, name: str, rate_per_s: float, *, stops_when_lost: bool = False) -> overload.Phase:
        await self.ops.until_idle(rounds.IDLE_LIMIT_S)
        await asyncio.sleep(SETTLE_S)
        times_s = overload.times(self.wish.seed, rate_per_s, self.plan.hold_s)
        done = 0

        def count() -> None:
            nonlocal done
            done += 1
            self.report(rounds.Progress(f"{name}, {rate_per_s:.2f}/s", 0, done, len(times_s)))

        self.report(rounds.Progress(f"{name}, {rate_per_s:.2f}/s", 0, 0, len(times_s)))
        loop = overload_load.OpenLoop(
            asking=self._client(),
            requests=self._requests(len(times_s)),
            times_s=times_s,
            limits=self.limits,
            seed=self.wish.seed,
            obeying=self.plan.obeying,
            duration_s=self.plan.hold_s,
            grace_s=self.limits.of(overload.BATCH) + SPARE_GRACE_S,
            stops_when_lost=stops_when_lost,
            on_done=count,
        )
        return await loop.run(name, rate_per_s)

    async def _put(self, is_admitting: bool) -> None:
        limits = self.limits if is_admitting else overload.Limits(NEVER_S)
        # The order of the classes is the same in all phases; only what is refused differs.
        await self.sidecar.put(
            beside.settings(self.enabled, limits.interactive_s, limits.classes(), overload.INTERACTIVE)
        )

    def _client(self) -> client.Client:
        """With a salt of its own: nothing is found in the cache."""
        self._salts += 1
        asking = client.Client(self.http, self.sidecar.url, self.model, wants_timing=True, notes_door=True)
        asking.salt = str(self._salts)
        return asking

    def _requests(self, count: int) -> list[workload.Request]:
        return overload.requests(self.wish.seed, count, self.plan.interactive_share, self.wish.token_ids)


def _median(made: summary.Round) -> float:
    ttfts = [one.ttft_s for one in made.records if not one.error and one.ttft_s is not None]
    median = summary.percentile(ttfts, 50)
    if median is None:
        errors = summary.errors([made])
        raise UserError(f"first requests failed: {next(iter(errors), 'none was answered')}")
    return median
