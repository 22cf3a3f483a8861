"""Runs `bench switch`: streams that note when each piece of text came, and flags that are put between."""

import asyncio
import statistics
from dataclasses import dataclass, field

from firsttoken_api.errors import UserError
from firsttoken_runtime.bench import (
    client,
    conduct,
    ending,
    experiment,
    passages,
    rounds,
    server,
    show,
    summary,
    switch,
    switch_report,
    workload,
)

POLL_S = 0.02


@dataclass
class Stream:
    """One request on its way."""

    request: workload.Request
    pieces_s: list[float] = field(default_factory=list)
    record: summary.Record | None = None

    @property
    def is_running(self) -> bool:
        return bool(self.pieces_s) and self.record is None

    def has(self, pieces: int) -> bool:
        """So many pieces, or no more to come."""
        return len(self.pieces_s) >= pieces or self.record is not None


@dataclass(frozen=True)
class Seen:
    """What has been measured so far."""

    switches: list[switch.Switch]
    streams: list[switch.Streams]


async def run(plan: switch.Plan, wish: conduct.Wish) -> switch_report.Measured:
    """Raises UserError where the server does not start or refuses the flags."""

    async def measured(conductor: conduct.Conductor) -> switch_report.Measured:
        state = await conductor.state()
        seen = Seen([], [])
        with show.progress(conductor.console, wish.repeats) as report:
            measuring = measure(plan, conductor, seen, report)
            ended = await ending.until_ended(measuring, wish.time_limit_s)
        done = switch_report.Measured(
            plan, tuple(seen.switches), tuple(seen.streams), conductor.context(state), ended
        )
        document, text = switch_report.document(done), switch_report.markdown(done)
        show.leave(
            conductor.folder, conductor.console, document, text, lambda file: switch_report.draw(done, file)
        )
        return done

    return await conduct.with_server("switch", plan.server, wish, measured)


async def measure(plan: switch.Plan, conductor: conduct.Conductor, seen: Seen, report: rounds.Report) -> None:
    """Appends each switch to `seen` when all streams have gone on, and each repeat's streams at their end."""
    ops = server.Ops(conductor.http, conductor.target.ops_url)
    name = await client.model_name(conductor.http, conductor.target.url)
    asking = client.Client(conductor.http, conductor.target.url, name)
    text = await client.tokens_of(conductor.http, conductor.target.url, passages.longest())
    rates = {}
    for variant in (plan.before, plan.after):
        await _put(ops, variant)
        rates[variant.name] = await _prefill_rate(asking, switch.rate_prompts(text, conductor.wish.seed))
    for repeat in range(conductor.wish.repeats):
        asking.salt = f"repeat {repeat}"
        await ops.until_idle(rounds.IDLE_LIMIT_S)
        await _put(ops, plan.before)
        streams = [Stream(one) for one in switch.streams(text, conductor.wish.seed, repeat)]
        async with asyncio.TaskGroup() as asked:
            for stream in streams:
                asked.create_task(_follow(asking, stream))
            for number, (title, variant) in enumerate(plan.named.items()):
                report(rounds.Progress(title, repeat, number, len(plan.named)))
                await _until_all_have(streams, switch.PIECES_BETWEEN)
                made = await _switch(title, variant, repeat, rates[variant.name], streams, asking, ops)
                seen.switches.append(made)
        records = [one.record for one in streams if one.record is not None]
        errors = tuple(one.error for one in records if one.error)
        seen.streams.append(switch.Streams(repeat, len(streams), len(errors), errors))


async def _follow(asking: client.Client, stream: Stream) -> None:
    stream.record = await asking.ask(stream.request, on_content=stream.pieces_s.append)


async def _switch(
    title: str,
    variant: experiment.Variant,
    repeat: int,
    rate: float,
    streams: list[Stream],
    asking: client.Client,
    ops: server.Ops,
) -> switch.Switch:
    running = [one for one in streams if one.is_running]
    sent_s = asking.now_s()
    await _put(ops, variant)
    pause_s = asking.now_s() - sent_s
    recomputed = sum(len(one.request.prompt_token_ids) + len(one.pieces_s) for one in running)
    await _until_all_have(running, switch.PIECES_BETWEEN, more=True)
    gaps = [switch.gap_s(one.pieces_s, sent_s) for one in running]
    said = (await ops.state()).get("cache", {})
    return switch.Switch(
        title,
        repeat,
        len(running),
        pause_s,
        tuple(value for value in gaps if value is not None),
        recomputed,
        rate,
        said.get("switch_pause_s"),
        said.get("switch_gap_s"),
    )


async def _put(ops: server.Ops, variant: experiment.Variant) -> None:
    if not ops.generation:
        await ops.state()
    await ops.put(variant.settings(ops.generation + 1))


async def _until_all_have(streams: list[Stream], pieces: int, *, more: bool = False) -> None:
    """Or until one has four times as many: what is held back must not let the others end meanwhile."""
    before = [len(one.pieces_s) if more else 0 for one in streams]

    def have(count: int) -> list[bool]:
        return [one.has(start + count) for one, start in zip(streams, before, strict=True)]

    while not all(have(pieces)) and not any(have(4 * pieces)):  # noqa: ASYNC110
        await asyncio.sleep(POLL_S)


async def _prefill_rate(asking: client.Client, prompts: list[workload.Request]) -> float:
    """Tokens/s of prompts alone, the median; a first one is not counted. Raises UserError."""
    found = []
    for number, request in enumerate([prompts[0], *prompts]):
        asking.salt = f"rate {number} at {asking.now_s()}"
        record = await asking.ask(request)
        if record.error or record.ttft_s is None:
            raise UserError(f"a first request failed: {record.error}")
        found.append(record.prompt_tokens / record.ttft_s)
    return statistics.median(found[1:])
