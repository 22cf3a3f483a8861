"""`firsttoken bench …`: the options of the KV cache's commands; the work is elsewhere."""

from pathlib import Path
from typing import Annotated

import typer

from firsttoken_runtime.bench import ending, options

cache = typer.Typer()


def add_to(app: typer.Typer) -> None:
    app.registered_commands += cache.registered_commands


@options.register(cache)
def prefix(
    shared: options.TimedRounds,
    requests: Annotated[int, typer.Option(min=2, help="Prompts after the first, of the client alone.")] = 8,
    mixed_requests: Annotated[int, typer.Option(min=8, help="Requests of the mixed load.")] = 30,
    concurrency: Annotated[int, typer.Option(min=2, max=1000, help="Clients of the mixed load.")] = 8,
) -> None:
    """A shared system prompt of 1,200 tokens, and a mixed load: with the prefix cache, and without."""
    from firsttoken_runtime.bench import reuse

    shared.measure(reuse.prefix(shared.seed, requests, mixed_requests, concurrency, shared.ids))


@options.register(cache)
def affinity(
    shared: options.TimedRounds,
    prefixes: Annotated[int, typer.Option(min=2, help="Shared prefixes that alternate.")] = 6,
    requests: Annotated[int, typer.Option(min=1, help="Requests of each prefix.")] = 8,
    max_wait: Annotated[str, typer.Option(help="The flag's maxWait, such as 20ms.")] = "30s",
) -> None:
    """More shared prefixes than the pool can keep: with prefix affinity, and without."""
    from firsttoken_runtime.bench import affinity as alternating

    shared.measure(alternating.affinity(shared.seed, prefixes, requests, max_wait, shared.ids))


@options.register(cache)
def tiers(
    shared: options.TimedRounds,
    sessions: Annotated[int, typer.Option(min=1, help="Conversations that fit the device pool.")] = 4,
    pause: Annotated[
        float, typer.Option(min=0.1, metavar="SECONDS", help="Mean pause between two turns of one.")
    ] = 20.0,
) -> None:
    """Twice the conversations: with a host tier of twice the device pool, and without."""
    from firsttoken_runtime.bench import model_facts
    from firsttoken_runtime.bench import tiers as host_tier

    wish = shared.wish()
    kv_bytes = model_facts.kv_bytes_per_token(wish.source, wish.device, wish.dtype)
    shared.measure(host_tier.tiers(shared.seed, sessions, pause, kv_bytes, shared.ids))


@options.register(cache, time_limit=45.0)
def pairs(
    shared: options.TimedRounds, requests: options.Requests = 24, concurrency: options.Concurrency = 12
) -> None:
    """Every pair of flags beside the better of its parts; the published rule of precision beside ours."""
    from firsttoken_runtime.bench import conduct, model_facts, pairs_run
    from firsttoken_runtime.bench import pairs as flag_pairs

    wish = shared.wish()
    kv_bytes = model_facts.kv_bytes_per_token(wish.source, wish.device, wish.dtype)
    wanted = flag_pairs.build(shared.seed, requests, concurrency, kv_bytes, shared.ids)
    ending.leave(conduct.reasons(ending.run(pairs_run.run(wanted, wish)).result))


@options.register(cache)
def kv(
    shared: options.Engine,
    count: Annotated[int, typer.Option(min=1, help="Passages that are scored.")] = 200,
    tokens: Annotated[int, typer.Option(min=16, max=4096, help="Tokens of a passage.")] = 256,
    passages: Annotated[
        Path | None,
        typer.Option(help="Text of your own, a passage a line (.jsonl: `text`); Python's help by default."),
    ] = None,
    full_precision_layers: Annotated[int, typer.Option(min=0, help="Last layers kept in 16 bit.")] = 2,
    deviation_passages: Annotated[int, typer.Option(min=1, help="Passages whose layers are measured.")] = 16,
    time_limit: options.Minutes = 30.0,
) -> None:
    """Quantized KV: bytes, capacity, perplexity and the deviation of each layer, against 16 bit."""
    from firsttoken_runtime.bench import kv_run

    wish = kv_run.Wish(
        shared.wish_within(time_limit), passages, count, tokens, full_precision_layers, deviation_passages
    )
    done = ending.run(kv_run.run(wish))
    ending.leave([done.ended] if done.ended else [])


@options.register(cache)
def switch(
    shared: options.Engine,
    flag: Annotated[str, typer.Option(help="The flag that is switched on and off.")] = "kv-int8",
    repeats: options.Repeats = 3,
    seed: options.Seed = 1,
    time_limit: options.Minutes = 30.0,
) -> None:
    """A hot switch of the KV's layout while 16 streams run: the pause, and the gap of each stream."""
    from firsttoken_runtime.bench import switch as hot_switch
    from firsttoken_runtime.bench import switch_run

    plan = hot_switch.plan(flag)
    plan.after.check_built()
    wish = shared.wish_within(time_limit, repeats=repeats, seed=seed)
    done = ending.run(switch_run.run(plan, wish))
    ending.leave(ending.reasons(done.errors, not done.ended, done.ended))


@options.register(cache)
def timing(
    shared: options.Load,
    pairs: Annotated[int, typer.Option(min=1, help="Cold and cached under another salt, in turn.")] = 120,
    time_limit: options.Minutes = 30.0,
) -> None:
    """Whether the time to the first token tells a tenant what another one has cached."""
    from firsttoken_runtime.bench import timing_run

    wish = shared.wish_within(time_limit, seed=shared.seed)
    done = ending.run(timing_run.run(pairs, wish, shared.ids))
    ending.leave([done.ended] if done.ended else [])
