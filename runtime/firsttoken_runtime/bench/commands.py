"""`firsttoken bench …`: its options; the work is elsewhere.

Imports what a command needs when it runs, so that `--help` stays quick and a missing extra is one line.
Exit status: 0 the run is whole (whether or not a bar is reached: the table says so), 1 requests failed or
the time was up, 2 wrong input.
"""

import asyncio
import signal
from collections.abc import Collection, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from firsttoken_api.errors import UserError
from firsttoken_runtime.bench import options

if TYPE_CHECKING:
    from firsttoken_runtime.bench import conduct, result

T = TypeVar("T")

app = typer.Typer(no_args_is_help=True, help="Measure the engine under load.")


@app.command()
def table(
    source: options.Source,
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
    repeats: options.Repeats = 2,
    out: options.Out = None,
    seed: options.Seed = 1,
    threads: options.Threads = options.SPARE_CORE,
    dtype: options.DType = "auto",
    device: options.Device = "auto",
    time_limit: Annotated[
        float | None,
        typer.Option(min=0.1, metavar="MINUTES", help="Bound on all rounds together; the profile's."),
    ] = None,
    token_ids: options.TokenIds = "1000:30000",
) -> None:
    """Baseline, paged, continuous, chunked: one server, interleaved, the same KV bytes."""
    from firsttoken_runtime.bench import arrivals, conduct, steps, workload

    if profile not in steps.PROFILES:
        raise UserError(f"--profile: {profile!r} is not one of {', '.join(steps.PROFILES)}")
    chosen = steps.PROFILES[profile]
    ids = options.token_ids(token_ids)
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
    wish = options.wish(source, out, repeats, seed, minutes, threads, dtype, device)
    _finish(_run(conduct.run(steps.build(chosen, lane, notes), wish)))


@app.command()
def priority(
    source: options.Source,
    requests: options.Requests = 512,
    concurrency: options.Concurrency = 256,
    repeats: options.Repeats = 3,
    out: options.Out = None,
    seed: options.Seed = 1,
    threads: options.Threads = options.SPARE_CORE,
    dtype: options.DType = "auto",
    device: options.Device = "auto",
    time_limit: options.Minutes = 30.0,
) -> None:
    """10 % interactive among batch requests: with the flag priority, and without."""
    from firsttoken_runtime.bench import conduct, scenarios

    wish = options.wish(source, out, repeats, seed, time_limit, threads, dtype, device)
    _finish(_run(conduct.run(scenarios.priority(seed, requests, concurrency), wish)))


@app.command()
def chunked(
    source: options.Source,
    requests: options.Requests = 100,
    concurrency: options.Concurrency = 8,
    chunk_tokens: Annotated[int, typer.Option(min=64, max=4096, help="Tokens of a chunk.")] = 256,
    repeats: options.Repeats = 3,
    out: options.Out = None,
    seed: options.Seed = 1,
    threads: options.Threads = options.SPARE_CORE,
    dtype: options.DType = "auto",
    device: options.Device = "auto",
    time_limit: options.Minutes = 30.0,
) -> None:
    """20 % long prompts: what short requests wait, with chunked prefill and without."""
    from firsttoken_runtime.bench import conduct, scenarios

    wish = options.wish(source, out, repeats, seed, time_limit, threads, dtype, device)
    _finish(_run(conduct.run(scenarios.chunked(seed, requests, concurrency, chunk_tokens), wish)))


@app.command()
def length(
    source: options.Source,
    requests: options.Requests = 200,
    concurrency: options.Concurrency = 48,
    repeats: options.Repeats = 3,
    out: options.Out = None,
    seed: options.Seed = 1,
    threads: options.Threads = options.SPARE_CORE,
    dtype: options.DType = "auto",
    device: options.Device = "auto",
    time_limit: options.Minutes = 30.0,
) -> None:
    """A mixed load: first come first served, short answers first, and that with length limits."""
    from firsttoken_runtime.bench import conduct, scenarios

    wish = options.wish(source, out, repeats, seed, time_limit, threads, dtype, device)
    _finish(_run(conduct.run(scenarios.length(seed, requests, concurrency), wish)))


@app.command()
def tpot(
    source: options.Source,
    requests: Annotated[int, typer.Option(min=4, help="Decoding requests of a round.")] = 24,
    objective_ms: Annotated[
        float | None, typer.Option(min=0.1, help="TPOT P95 to hold; 1.5 times that of decodes alone.")
    ] = None,
    repeats: options.Repeats = 3,
    out: options.Out = None,
    seed: options.Seed = 1,
    threads: options.Threads = options.SPARE_CORE,
    dtype: options.DType = "auto",
    device: options.Device = "auto",
    time_limit: options.Minutes = 30.0,
) -> None:
    """Steady decodes while prompts pour in: with a TPOT objective, and without."""
    from firsttoken_runtime.bench import conduct, scenarios, summary

    wish = options.wish(source, out, repeats, seed, time_limit, threads, dtype, device)

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
    _finish(_run(conduct.with_server("tpot", needs, wish, run)))


@app.command()
def peers(
    source: options.Source,
    dtypes: Annotated[
        str, typer.Option(help="Number formats, each tried with both engines.")
    ] = "bfloat16,float32",
    repeats: options.Repeats = 3,
    alone_requests: Annotated[int, typer.Option(min=1, help="Requests of the one client, a repeat.")] = 5,
    server_core: options.ServerCore = 0,
    client_core: options.ClientCore = 1,
    vllm_python: Annotated[
        Path | None,
        typer.Option(help="Python of an environment with vLLM; by default one is made in the cache."),
    ] = None,
    out: options.Out = None,
    seed: options.Seed = 1,
    time_limit: options.Minutes = 40.0,
) -> None:
    """Our engine beside vLLM on a CPU: one core each, interleaved, 256 tokens in and 64 out."""
    from firsttoken_runtime.bench import peers_run

    options.check_cores(server_core, client_core)
    allowed = ("bfloat16", "float16", "float32")
    formats = tuple(dtypes.split(","))
    for dtype in formats:
        if dtype not in allowed:
            raise UserError(f"--dtypes: {dtype!r} is not one of {', '.join(allowed)}")
    wish = peers_run.Wish(
        source=options.path_of(source),
        out=out,
        dtypes=formats,
        repeats=repeats,
        alone_requests=alone_requests,
        seed=seed,
        time_limit_s=time_limit * 60,
        server_core=server_core,
        client_core=client_core,
        vllm_python=vllm_python,
    )
    done = _run(peers_run.run(wish))
    _exit([f"{done.errors} requests failed"] if done.errors else [])


@app.command()
def stages(
    source: options.Source,
    requests: Annotated[
        int, typer.Option(min=1, help="Requests of a round; each load has one a repeat.")
    ] = 20,
    repeats: options.Repeats = 3,
    server_core: options.ServerCore = 0,
    client_core: options.ClientCore = 1,
    dtype: options.DType = "auto",
    out: options.Out = None,
    seed: options.Seed = 1,
    time_limit: options.Minutes = 10.0,
    token_ids: options.TokenIds = "1000:30000",
) -> None:
    """Where the time to the first token goes, and how much of it the server does not see."""
    from firsttoken_runtime.bench import stages_run

    options.check_cores(server_core, client_core)
    wish = stages_run.Wish(
        source=options.path_of(source),
        out=out,
        requests=requests,
        repeats=repeats,
        seed=seed,
        time_limit_s=time_limit * 60,
        server_core=server_core,
        client_core=client_core,
        dtype=dtype,
        token_ids=options.token_ids(token_ids),
    )
    done = _run(stages_run.run(wish))
    reasons = [f"{done.errors} requests failed"] if done.errors else []
    if not done.is_complete:
        reasons.append("the time was up before the load was through")
    _exit(reasons)


def _run(work: Coroutine[Any, Any, T]) -> T:
    """Runs it to its end. SIGTERM cancels it, as Ctrl-C does, so that the servers are ended too."""

    async def cancellable() -> T:
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        return await work

    try:
        return asyncio.run(cancellable())
    except asyncio.CancelledError as error:
        raise typer.Exit(128 + signal.SIGTERM) from error


def _finish(done: "result.Result") -> None:
    from firsttoken_runtime.bench import conduct

    _exit(conduct.check([done]))


def _exit(reasons: Collection[str]) -> None:
    for reason in reasons:
        typer.echo(f"firsttoken bench: {reason}", err=True)
    if reasons:
        raise typer.Exit(1)
