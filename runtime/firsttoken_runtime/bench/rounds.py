"""Runs an experiment on one server: its variants interleaved, every repeat in the opposite order of the
one before, so that a drift of the machine weighs on all of them alike.

Before each round the engine is idle, its cache empty, the variant is switched on and a small request has
gone through it; counters are read before and after.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import aiohttp

from firsttoken_api.errors import UserError
from firsttoken_runtime.bench import client as bench_client
from firsttoken_runtime.bench import ending, experiment, exposition, load, summary, workload
from firsttoken_runtime.bench.server import Ops, Target

IDLE_LIMIT_S = 60.0
LEAST_ROUND_S = 5.0
CACHE_FLAG = "prefix-cache"
EMPTY = experiment.Variant("everything off", ())


@dataclass(frozen=True)
class Progress:
    """Where a run is, for whoever shows it."""

    variant: str
    repeat: int
    done: int
    total: int


Report = Callable[[Progress], None]


class Done(NamedTuple):
    """What has been run."""

    rounds: list[summary.Round]
    ended: str
    """Why it ended before its last round; else empty."""


def order(names: Sequence[str], repeats: int) -> Iterator[tuple[int, str]]:
    """(repeat, variant): A B C, C B A, A B C, ..."""
    for repeat in range(repeats):
        for name in names if repeat % 2 == 0 else reversed(names):
            yield repeat, name


async def run(
    wanted: experiment.Experiment,
    target: Target,
    http: aiohttp.ClientSession,
    *,
    repeats: int,
    time_limit_s: float,
    report: Report = lambda progress: None,
) -> Done:
    """Every round gets an even share of the time that is left; one that runs out of it says so."""
    wanted.check_built()
    rounds: list[summary.Round] = []
    ended = await ending.until_ended(
        _run(wanted, target, http, repeats, time.monotonic() + time_limit_s, report, rounds)
    )
    return Done(rounds, ended)


async def _run(
    wanted: experiment.Experiment,
    target: Target,
    http: aiohttp.ClientSession,
    repeats: int,
    deadline_s: float,
    report: Report,
    rounds: list[summary.Round],
) -> None:
    """Appends each round to `rounds` when it is over."""
    variants = {variant.name: variant for variant in wanted.variants}
    client = bench_client.Client(http, target.url, await bench_client.model_name(http, target.url))
    ops = Ops(http, target.ops_url)
    plan = list(order(list(variants), repeats))
    for index, (repeat, name) in enumerate(plan):
        await ops.until_idle(IDLE_LIMIT_S)
        lanes = wanted.lanes_of(variants[name])
        per_round = sum(len(lane.requests) for lane in lanes if not lane.is_background)
        if CACHE_FLAG in variants[name].flags_on:
            # Another block size is another pool: nothing stays in the cache, nor protected in it.
            await ops.put(EMPTY.settings(ops.generation + 1))
        await ops.put(variants[name].settings(ops.generation + 1))
        client.salt = ""
        await _warm(client, lanes[0].requests[0])
        # Nor is anything found that a host tier still has.
        client.salt = f"{name}/{repeat}"
        share_s = max(LEAST_ROUND_S, (deadline_s - time.monotonic()) / (len(plan) - index))
        done = 0

        def count(name: str = name, repeat: int = repeat, per_round: int = per_round) -> None:
            nonlocal done
            done += 1
            report(Progress(name, repeat, done, per_round))

        report(Progress(name, repeat, 0, per_round))
        before = await ops.samples()
        outcome = await load.run(client, lanes, share_s, count)
        after = await ops.samples()
        rounds.append(round_of(name, repeat, outcome, before, after))


async def drive(
    asking: bench_client.Client,
    lane: workload.Lane,
    deadline_s: float,
    rounds_left: int,
    *,
    variant: str = "",
    repeat: int = 0,
    on_done: Callable[[], None] = lambda: None,
) -> summary.Round:
    """One lane to a server as it is, in an even share of the time that is left until `deadline_s`."""
    share_s = max(LEAST_ROUND_S, (deadline_s - time.monotonic()) / rounds_left)
    outcome = await load.run(asking, [lane], share_s, on_done)
    return round_of(variant, repeat, outcome, {}, {})


async def _warm(client: bench_client.Client, request: workload.Request) -> None:
    """One short request, so that no round pays for what happens once. Raises UserError if it fails."""
    short = workload.Request(request.prompt_token_ids[:32], 2, request_class=request.request_class)
    record = await client.ask(short)
    if record.error:
        raise UserError(f"a first request failed: {record.error}")


def round_of(
    variant: str,
    repeat: int,
    outcome: load.Outcome,
    before: dict[str, float],
    after: dict[str, float],
) -> summary.Round:
    slots = (exposition.slots(before), exposition.slots(after))
    preemptions = (exposition.preemptions(before), exposition.preemptions(after))
    reuse = (exposition.reuse(before), exposition.reuse(after))
    return summary.Round(
        variant=variant,
        repeat=repeat,
        duration_s=outcome.duration_s,
        records=outcome.records,
        slots=slots[1] - slots[0] if slots[0] is not None and slots[1] is not None else None,
        preemptions=(
            preemptions[1] - preemptions[0]
            if preemptions[0] is not None and preemptions[1] is not None
            else None
        ),
        is_complete=outcome.is_complete,
        send_delay_s=outcome.send_delay_s,
        reuse=reuse[1] - reuse[0] if reuse[0] is not None and reuse[1] is not None else None,
    )
