"""`firsttoken bench …`: the options of scheduling's commands; the work is elsewhere, and so are the cache's.

Imports what a command needs when it runs, so that `--help` stays quick and a missing extra is one line.
Exit status: 0 the run is whole (whether or not a bar is reached: the table says so), 1 requests failed, the
time was up or somebody stopped it, 2 wrong input.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from firsttoken_api.errors import UserError
from firsttoken_runtime.bench import cache_commands, ending, gateway_commands, options

if TYPE_CHECKING:
    from firsttoken_runtime.bench import conduct, result

app = typer.Typer(no_args_is_help=True, help="Measure the engine under load.")


@options.register(app, repeats=2)
def table(
    shared: options.Rounds,
    profile: Annotated[str, typer.Option(help="cpu, cpu-uniform, reference or long-tail.")] = "cpu",
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
    block_size: Annotated[int, typer.Option(min=8, max=128, help="Tokens per KV block.")] = 16,
    time_limit: Annotated[
        float | None,
        typer.Option(min=0.1, metavar="MINUTES", help="Bound on all rounds together; the profile's."),
    ] = None,
) -> None:
    """Baseline, paged, continuous, chunked: one server, interleaved, the same KV bytes."""
    from firsttoken_runtime.bench import arrivals, steps, workload

    if profile not in steps.PROFILES:
        raise UserError(f"--profile: {profile!r} is not one of {', '.join(steps.PROFILES)}")
    chosen = steps.PROFILES[profile]
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
        lane = steps.trace_lane(scaled, shared.seed, shared.ids)
        notes.append(
            f"open loop: {trace.name}, times x {time_factor:g}, lengths x {length_factor:g}, "
            f"{scaled.cut} of {count} requests cut to the context"
        )
    elif rate is not None:
        lane = steps.poisson_lane(steps.requests(chosen, shared.seed, count, shared.ids), rate, shared.seed)
        notes.append(f"open loop: {count} requests, Poisson arrivals, {rate:g} a second")
    else:
        lane = workload.closed(steps.requests(chosen, shared.seed, count, shared.ids), clients)
        notes.append(f"closed loop: {count} requests, {clients} clients")
    minutes = time_limit if time_limit is not None else chosen.time_limit_s / 60
    shared.measure_within(steps.build(chosen, lane, notes, block_size), minutes)


@options.register(app)
def priority(
    shared: options.TimedRounds, requests: options.Requests = 512, concurrency: options.Concurrency = 256
) -> None:
    """10 % interactive among batch requests: with the flag priority, and without."""
    from firsttoken_runtime.bench import scenarios

    shared.measure(scenarios.priority(shared.seed, requests, concurrency, shared.ids))


@options.register(app)
def chunked(
    shared: options.TimedRounds,
    requests: options.Requests = 100,
    concurrency: options.Concurrency = 8,
    chunk_tokens: Annotated[int, typer.Option(min=64, max=4096, help="Tokens of a chunk.")] = 256,
) -> None:
    """20 % long prompts: what short requests wait, with chunked prefill and without."""
    from firsttoken_runtime.bench import scenarios

    shared.measure(scenarios.chunked(shared.seed, requests, concurrency, chunk_tokens, shared.ids))


@options.register(app)
def length(
    shared: options.TimedRounds, requests: options.Requests = 200, concurrency: options.Concurrency = 48
) -> None:
    """A mixed load: first come first served, short answers first, and that with length limits."""
    from firsttoken_runtime.bench import scenarios

    shared.measure(scenarios.length(shared.seed, requests, concurrency, shared.ids))


@options.register(app)
def tpot(
    shared: options.TimedRounds,
    requests: Annotated[int, typer.Option(min=4, help="Decoding requests of a round.")] = 24,
    objective_ms: Annotated[
        float | None, typer.Option(min=0.1, help="TPOT P95 to hold; 2.5 times that of decodes alone.")
    ] = None,
) -> None:
    """Steady decodes while prompts pour in: with a TPOT objective, and without."""
    from firsttoken_runtime.bench import conduct, scenarios, summary

    wish = shared.wish()

    async def run(conductor: "conduct.Conductor") -> "result.Result":
        objective_s = None if objective_ms is None else objective_ms / 1e3
        if objective_s is None:
            wanted = scenarios.tpot(shared.seed, requests, token_ids=shared.ids)
            alone = await conductor.rounds(wanted, 1, wish.time_limit_s / 4)
            undisturbed_s = summary.figures(alone.rounds).tpot_p95_s
            if undisturbed_s is None or alone.ended:
                raise UserError("decodes alone could not be measured; give --objective-ms")
            objective_s = scenarios.OBJECTIVE_FACTOR * undisturbed_s
        return await conductor.run(scenarios.tpot(shared.seed, requests, objective_s, shared.ids))

    needs = scenarios.tpot(shared.seed, requests).server
    ending.leave(conduct.reasons(ending.run(conduct.with_server("tpot", needs, wish, run))))


@options.register(app, time_limit=40.0)
def peers(
    shared: options.OnCores,
    dtypes: Annotated[
        str, typer.Option(help="Number formats, each tried with both engines.")
    ] = "bfloat16,float32",
    alone_requests: Annotated[int, typer.Option(min=1, help="Requests of the one client, a repeat.")] = 5,
    vllm_python: Annotated[
        Path | None,
        typer.Option(help="Python of an environment with vLLM; by default one is made in the cache."),
    ] = None,
) -> None:
    """Our engine beside vLLM on a CPU: one core each, interleaved, 256 tokens in and 64 out."""
    from firsttoken_runtime.bench import peers_run

    source = shared.path()
    allowed = ("bfloat16", "float16", "float32")
    formats = tuple(dtypes.split(","))
    for dtype in formats:
        if dtype not in allowed:
            raise UserError(f"--dtypes: {dtype!r} is not one of {', '.join(allowed)}")
    wish = peers_run.Wish(
        source=source,
        out=shared.out,
        dtypes=formats,
        repeats=shared.repeats,
        alone_requests=alone_requests,
        seed=shared.seed,
        time_limit_s=shared.time_limit * 60,
        server_core=shared.server_core,
        client_core=shared.client_core,
        vllm_python=vllm_python,
    )
    done = ending.run(peers_run.run(wish))
    ending.leave(ending.reasons(done.errors, done.is_complete, done.ended))


@options.register(app, time_limit=10.0)
def stages(
    shared: options.OnCores,
    requests: Annotated[
        int, typer.Option(min=1, help="Requests of a round; each load has one a repeat.")
    ] = 20,
    dtype: options.DType = "auto",
    token_ids: options.TokenIds = options.TOKEN_IDS,
    sidecar: Annotated[
        bool, typer.Option("--sidecar", help="Ask through a sidecar, and hold its TTFT and stages to it.")
    ] = False,
    sidecar_core: options.SidecarCore = 1,
    json: options.Json = None,
) -> None:
    """Where the time to the first token goes, and how much of it the server does not see."""
    from firsttoken_runtime.bench import stages_run

    if sidecar:
        options.check_cores(sidecar_core)
    wish = stages_run.Wish(
        source=shared.path(),
        out=shared.out,
        requests=requests,
        repeats=shared.repeats,
        seed=shared.seed,
        time_limit_s=shared.time_limit * 60,
        server_core=shared.server_core,
        client_core=shared.client_core,
        dtype=dtype,
        token_ids=options.token_ids(token_ids),
        sidecar_core=sidecar_core if sidecar else None,
        json_file=json,
    )
    done = ending.run(stages_run.run(wish))
    ending.leave(ending.reasons(done.errors, done.is_complete, done.ended))


cache_commands.add_to(app)
gateway_commands.add_to(app)
