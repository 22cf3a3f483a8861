"""Runs `bench timing`: one request at a time, under two salts in turn."""

from firsttoken_api.errors import UserError
from firsttoken_runtime.bench import (
    client,
    conduct,
    ending,
    experiment,
    rounds,
    server,
    show,
    timing,
    timing_report,
    workload,
)

EVERY_CONTROL = 4
WARM = 3
"""Pairs that are asked and not counted."""


async def run(pairs: int, wish: conduct.Wish, token_ids: range) -> timing_report.Measured:
    """Raises UserError where the server does not start or a request fails."""

    async def measured(conductor: conduct.Conductor) -> timing_report.Measured:
        state = await conductor.state()
        samples: list[timing.Sample] = []
        with show.progress(conductor.console, 1) as report:
            measuring = measure(pairs, conductor, samples, report, token_ids)
            ended = await ending.until_ended(measuring, wish.time_limit_s)
        done = timing_report.Measured(tuple(samples), conductor.context(state), ended)
        document, text = timing_report.document(done), timing_report.markdown(done)
        show.leave(
            conductor.folder, conductor.console, document, text, lambda file: timing_report.draw(done, file)
        )
        return done

    return await conduct.with_server("timing", timing.NEEDS, wish, measured)


async def measure(
    pairs: int,
    conductor: conduct.Conductor,
    samples: list[timing.Sample],
    report: rounds.Report,
    token_ids: range,
) -> None:
    """Appends each pair to `samples`."""
    ops = server.Ops(conductor.http, conductor.target.ops_url)
    await ops.state()
    await ops.put(experiment.Variant("cached", timing.FLAGS).settings(ops.generation + 1))
    name = await client.model_name(conductor.http, conductor.target.url)
    asking = client.Client(conductor.http, conductor.target.url, name)

    async def ask(request: workload.Request, salt: str) -> tuple[float, int | None]:
        asking.salt = salt
        record = await asking.ask(request)
        if record.error or record.ttft_s is None:
            raise UserError(f"a request failed: {record.error}")
        return record.ttft_s, record.cached_tokens

    for index, probe in enumerate(timing.probes(conductor.wish.seed, pairs + WARM, token_ids), -WARM):
        report(rounds.Progress("pairs", 0, max(0, index), pairs))
        await ask(probe.asked, timing.OTHER)
        if probe.is_cold_first:
            cold_s, _ = await ask(probe.cold, timing.OWN)
        other_s, other_cached = await ask(probe.asked, timing.OWN)
        if not probe.is_cold_first:
            cold_s, _ = await ask(probe.cold, timing.OWN)
        is_control = index % EVERY_CONTROL == 0
        hit_s = (await ask(probe.cold, timing.OWN))[0] if is_control else None
        if index >= 0:
            samples.append(timing.Sample(index, cold_s, other_s, hit_s, probe.is_cold_first, other_cached))
