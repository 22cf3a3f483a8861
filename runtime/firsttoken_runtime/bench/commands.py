"""`firsttoken bench …`: its options; the work is elsewhere.

Imports what a command needs when it runs, so that `--help` stays quick and a missing extra is one line.
Exit status: 0 the run is whole (whether or not a bar is reached: the table says so), 1 requests failed or
the time was up, 2 wrong input.
"""

import asyncio
import os
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from firsttoken_api.errors import UserError

if TYPE_CHECKING:
    from firsttoken_runtime.bench import conduct, result

app = typer.Typer(no_args_is_help=True, help="Measure the engine under load.")

Source = Annotated[str, typer.Argument(help="A folder of safetensors, or a .gguf file.")]
Out = Annotated[Path | None, typer.Option(help="Folder for result.json, table.md and plot.png.")]
Repeats = Annotated[int, typer.Option(min=1, help="How often each variant is run, interleaved.")]
Seed = Annotated[int, typer.Option(help="Makes requests and arrival times.")]
Threads = Annotated[
    str, typer.Option(metavar="N|auto", help="CPU threads of the engine; all cores but one by default.")
]
DType = Annotated[str, typer.Option(help="auto, bfloat16, float16 or float32.")]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
Minutes = Annotated[
    float, typer.Option("--time-limit", min=0.1, metavar="MINUTES", help="Bound on all rounds together.")
]
Requests = Annotated[int, typer.Option(min=1, help="Requests of a round.")]
Concurrency = Annotated[int, typer.Option(min=1, max=1000, help="Clients that ask at once.")]
TokenIds = Annotated[str, typer.Option(metavar="LOW:HIGH", help="Token ids that prompts are made of.")]

SPARE_CORE = "spare"
"""Default of --threads: one core stays with the client."""


@app.command()
def table(
    source: Source,
    profile: Annotated[str, typer.Option(help="cpu, reference or long-tail.")] = "cpu",
    requests: Annotated[int | None, typer.Option(min=1, help="Requests of a round; the profile's.")] = None,
    concurrency: Annotated[int | None, typer.Option(min=1, max=1000, help="Clients; the profile's.")] = None,
    rate: Annotated[
        float | None, typer.Option(min=0.001, help="Open loop: Poisson arrivals a second instead of clients.")
    ] = None,
    trace: Annotated[
        Path | None, typer.Option(help="Open loop: arrivals and lengths of a trace (.csv or .jsonl, .gz).")
    ] = None,
    time_factor: Annotated[float, typer.Option(min=0.0, help="Stretches the trace's times.")] = 1.0,
    length_factor: Annotated[float, typer.Option(min=0.0, help="Scales the trace's lengths.")] = 1.0,
    repeats: Repeats = 2,
    out: Out = None,
    seed: Seed = 1,
    threads: Threads = SPARE_CORE,
    dtype: DType = "auto",
    device: Device = "auto",
    time_limit: Annotated[
        float | None,
        typer.Option(min=0.1, metavar="MINUTES", help="Bound on all rounds together; the profile's."),
    ] = None,
    token_ids: TokenIds = "1000:30000",
) -> None:
    """Baseline, paged, continuous, chunked: one server, interleaved, the same KV bytes."""
    from firsttoken_runtime.bench import arrivals, conduct, steps, workload

    if profile not in steps.PROFILES:
        raise UserError(f"--profile: {profile!r} is not one of {', '.join(steps.PROFILES)}")
    chosen = steps.PROFILES[profile]
    ids = _token_ids(token_ids)
    count = requests or chosen.requests
    clients = concurrency or chosen.concurrency
    if trace is not None and rate is not None:
        raise UserError("--rate: the times come from --trace already")
    notes = []
    if trace is not None:
        scaled = arrivals.scaled(
            arrivals.read(trace, count),
            time_factor=time_factor,
            length_factor=length_factor,
            most_tokens=chosen.max_model_len - 1,
        )
        lane = steps.trace_lane(scaled, seed, ids)
        notes.append(
            f"open loop: {trace.name}, times x {time_factor:g}, lengths x {length_factor:g}, "
            f"{scaled.cut} of {count} requests cut to the context"
        )
    elif rate is not None:
        lane = steps.poisson_lane(steps.requests(chosen, seed, count, ids), rate, seed)
        notes.append(f"open loop: {count} requests, Poisson arrivals, {rate:g} a second")
    else:
        lane = workload.closed(steps.requests(chosen, seed, count, ids), clients)
        notes.append(f"closed loop: {count} requests, {clients} clients")
    minutes = time_limit if time_limit is not None else chosen.time_limit_s / 60
    wish = _wish(source, out, repeats, seed, minutes, threads, dtype, device)
    _finish(asyncio.run(conduct.run(steps.build(chosen, lane, notes), wish)))


@app.command()
def priority(
    source: Source,
    requests: Requests = 512,
    concurrency: Concurrency = 256,
    repeats: Repeats = 3,
    out: Out = None,
    seed: Seed = 1,
    threads: Threads = SPARE_CORE,
    dtype: DType = "auto",
    device: Device = "auto",
    time_limit: Minutes = 30.0,
) -> None:
    """10 % interactive among batch requests: with the flag priority, and without."""
    from firsttoken_runtime.bench import conduct, scenarios

    wish = _wish(source, out, repeats, seed, time_limit, threads, dtype, device)
    _finish(asyncio.run(conduct.run(scenarios.priority(seed, requests, concurrency), wish)))


@app.command()
def chunked(
    source: Source,
    requests: Requests = 100,
    concurrency: Concurrency = 8,
    chunk_tokens: Annotated[int, typer.Option(min=64, max=4096, help="Tokens of a chunk.")] = 256,
    repeats: Repeats = 3,
    out: Out = None,
    seed: Seed = 1,
    threads: Threads = SPARE_CORE,
    dtype: DType = "auto",
    device: Device = "auto",
    time_limit: Minutes = 30.0,
) -> None:
    """20 % long prompts: what short requests wait, with chunked prefill and without."""
    from firsttoken_runtime.bench import conduct, scenarios

    wish = _wish(source, out, repeats, seed, time_limit, threads, dtype, device)
    _finish(asyncio.run(conduct.run(scenarios.chunked(seed, requests, concurrency, chunk_tokens), wish)))


@app.command()
def length(
    source: Source,
    requests: Requests = 200,
    concurrency: Concurrency = 48,
    repeats: Repeats = 3,
    out: Out = None,
    seed: Seed = 1,
    threads: Threads = SPARE_CORE,
    dtype: DType = "auto",
    device: Device = "auto",
    time_limit: Minutes = 30.0,
) -> None:
    """A mixed load: first come first served, short answers first, and that with length limits."""
    from firsttoken_runtime.bench import conduct, scenarios

    wish = _wish(source, out, repeats, seed, time_limit, threads, dtype, device)
    _finish(asyncio.run(conduct.run(scenarios.length(seed, requests, concurrency), wish)))


@app.command()
def tpot(
    source: Source,
    requests: Annotated[int, typer.Option(min=4, help="Decoding requests of a round.")] = 24,
    objective_ms: Annotated[
        float | None, typer.Option(min=0.1, help="TPOT P95 to hold; 1.5 times that of decodes alone.")
    ] = None,
    repeats: Repeats = 3,
    out: Out = None,
    seed: Seed = 1,
    threads: Threads = SPARE_CORE,
    dtype: DType = "auto",
    device: Device = "auto",
    time_limit: Minutes = 30.0,
) -> None:
    """Steady decodes while prompts pour in: with a TPOT objective, and without."""
    from firsttoken_runtime.bench import conduct, scenarios, summary

    wish = _wish(source, out, repeats, seed, time_limit, threads, dtype, device)

    async def run(conductor: "conduct.Conductor") -> "result.Result":
        objective_s = None if objective_ms is None else objective_ms / 1e3
        if objective_s is None:
            alone = await conductor.rounds(scenarios.tpot(seed, requests), 1, wish.time_limit_s / 4)
            undisturbed_s = summary.figures(alone).tpot_p95_s
            if undisturbed_s is None:
                raise UserError("decodes alone could not be measured; give --objective-ms")
            objective_s = scenarios.OBJECTIVE_FACTOR * undisturbed_s
        return await conductor.run(scenarios.tpot(seed, requests, objective_s))

    needs = scenarios.tpot(seed, requests).server
    _finish(asyncio.run(conduct.with_server("tpot", needs, wish, run)))


def _wish(
    source: str,
    out: Path | None,
    repeats: int,
    seed: int,
    minutes: float,
    threads: str,
    dtype: str,
    device: str,
) -> "conduct.Wish":
    from firsttoken_runtime.bench import conduct

    path = Path(source).expanduser()
    if not path.exists():
        raise UserError(f"SOURCE: {path}: no such file or folder")
    if threads == SPARE_CORE:
        threads = str(max(1, len(os.sched_getaffinity(0)) - 1))
    return conduct.Wish(path, out, repeats, seed, minutes * 60, threads, dtype, device)


def _token_ids(text: str) -> range:
    low, _, high = text.partition(":")
    if not (low.isdecimal() and high.isdecimal() and int(low) < int(high)):
        raise UserError(f"--token-ids: {text!r} is not of the form LOW:HIGH")
    return range(int(low), int(high))


def _finish(done: "result.Result") -> None:
    from firsttoken_runtime.bench import conduct

    _exit(conduct.check([done]))


def _exit(reasons: Collection[str]) -> None:
    for reason in reasons:
        typer.echo(f"firsttoken bench: {reason}", err=True)
    if reasons:
        raise typer.Exit(1)
