"""Starts an engine and a sidecar beside it, asks both ways in turns, writes what came of it."""

import os
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

import aiohttp

from firsttoken_api import metrics
from firsttoken_api.errors import UserError
from firsttoken_runtime.bench import (
    beginning,
    beside,
    child,
    client,
    ending,
    experiment,
    gateway,
    others,
    rounds,
    server,
    show,
    sidecar,
    sidecar_plot,
    sidecar_report,
)

TTFT = metrics.SIDECAR_TTFT.name
STAGES = "firsttoken_ttft_stage_seconds"


async def run(wish: gateway.Wish, requests: int, streams: int, repeats: int) -> sidecar_report.Measured:
    """Raises UserError where a process does not start. Leaves this process on the client's core."""
    folder = show.folder(wish.out, "sidecar")
    console = show.console()
    began = beginning.Beginning.now()
    sha256 = await gateway.digest(wish)
    needs = experiment.ServerNeeds(max_model_len=256, kv_tokens=streams * 256, max_num_seqs=streams)
    samples: list[sidecar.Sample] = []
    async with AsyncExitStack() as stack:
        console.print(f"Starting engine and sidecar (their logs: {folder})", soft_wrap=True)
        target = await stack.enter_async_context(gateway.engine(wish, needs, folder / "server.log"))
        http = await stack.enter_async_context(client.session())
        os.sched_setaffinity(0, {wish.client_core})
        state = await server.Ops(http, target.ops_url).state()
        document = beside.settings(beside.enabled_flags(state), experiment.NEVER_S)
        log = folder / "sidecar.log"
        running = await stack.enter_async_context(
            beside.running(target, document, log, http, cores=(wish.sidecar_core,))
        )
        with show.progress(console, repeats * len(sidecar.WAYS)) as report:
            measuring = _Measuring(wish, requests, streams, repeats, target, running, http, report, samples)
            ended = await ending.until_ended(measuring.run())
        cost = await measuring.cost()
    done = sidecar_report.Measured(
        samples=tuple(samples),
        streams=streams,
        cost=cost,
        context=began.context(
            model=wish.model,
            sha256=sha256,
            device=f"{state['device']}, {wish.cores()}",
            dtype=state["dtype"],
            server_command=target.command,
            seed=wish.seed,
            repeats=repeats,
            extra={"flags": ", ".join(state["flags"]["enabled"]) or "none"},
        ),
        ended=ended,
    )
    document_, text = sidecar_report.document(done), sidecar_report.markdown(done)
    show.leave(folder, console, document_, text, lambda file: sidecar_plot.draw(done, file))
    gateway.leave_flat(wish.json_file, sidecar_report.flat(done))
    return done


@dataclass
class _Measuring:
    wish: gateway.Wish
    requests: int
    streams: int
    repeats: int
    target: server.Target
    running: beside.Sidecar
    http: aiohttp.ClientSession
    report: rounds.Report
    samples: list[sidecar.Sample]
    _before: dict[str, float] = field(default_factory=dict)

    async def run(self) -> None:
        """Both ways in turns, every repeat in the opposite order; each round is appended when it is over."""
        ops = server.Ops(self.http, self.target.ops_url)
        urls = {"direct": self.target.url, "through": self.running.url}
        model = await client.model_name(self.http, self.running.url)
        deadline_s = time.monotonic() + self.wish.time_limit_s
        plan = list(rounds.order(sidecar.WAYS, self.repeats))
        for way in sidecar.WAYS:
            await self._warm(client.Client(self.http, urls[way], model, wants_timing=True), deadline_s)
        self._before = await self.running.samples()
        for index, (repeat, way) in enumerate(plan):
            await ops.until_idle(rounds.IDLE_LIMIT_S)
            asking = client.Client(self.http, urls[way], model, wants_timing=True)
            asking.salt = f"{way}/{repeat}"
            lane = sidecar.lane(self.wish.seed, repeat, self.requests, self.streams, self.wish.token_ids)
            done = 0

            def count(way: str = way, repeat: int = repeat) -> None:
                nonlocal done
                done += 1
                self.report(rounds.Progress(way, repeat, done, self.requests))

            self.report(rounds.Progress(way, repeat, 0, self.requests))
            use, cpu_s = others.use(self._belonging()), child.cpu_seconds(self.running.pid)
            made = await rounds.drive(
                asking, lane, deadline_s, len(plan) - index, variant=way, repeat=repeat, on_done=count
            )
            self.samples.append(
                sidecar.Sample(
                    made,
                    child.cpu_seconds(self.running.pid) - cpu_s,
                    others.use(self._belonging()).since(use),
                )
            )

    async def cost(self) -> sidecar.Cost:
        """Of the sidecar, over all that went through it in the rounds."""
        after = await self.running.samples()
        counted, ttft_s, stages_s = (
            after[name] - self._before[name] if name in after and name in self._before else None
            for name in (f"{TTFT}_count", f"{TTFT}_sum", f"{STAGES}_sum")
        )
        seen_ms = sidecar.client_ttfts_ms(self.samples)
        mean_ms = ttft_s * 1e3 / counted if counted and ttft_s is not None else None
        return sidecar.Cost(
            peak_rss_bytes=self.running.peak_rss_bytes(),
            has_torch=self.running.has_torch(),
            stage_difference_ms=(
                abs(stages_s - ttft_s) * 1e3 / counted
                if counted and ttft_s is not None and stages_s is not None
                else None
            ),
            unseen_ms=sum(seen_ms) / len(seen_ms) - mean_ms if seen_ms and mean_ms is not None else None,
        )

    async def _warm(self, asking: client.Client, deadline_s: float) -> None:
        lane = sidecar.lane(self.wish.seed, -1, self.streams, self.streams, self.wish.token_ids)
        made = await rounds.drive(asking, lane, deadline_s, 1)
        for record in made.records:
            if record.error:
                raise UserError(f"a first request failed: {record.error}")

    def _belonging(self) -> dict[int, list[int]]:
        belonging: dict[int, list[int]] = {}
        for core, pid in (
            (self.wish.server_core, self.target.pid),
            (self.wish.sidecar_core, self.running.pid),
            (self.wish.client_core, os.getpid()),
        ):
            belonging.setdefault(core, [])
            if pid is not None:
                belonging[core].append(pid)
        return belonging
