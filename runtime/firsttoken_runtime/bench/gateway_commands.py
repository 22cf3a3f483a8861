"""`firsttoken bench sidecar | overload | routing`: what stands between clients and engines."""

from typing import Annotated

import typer

from firsttoken_runtime.bench import ending, options


def add_to(app: typer.Typer) -> None:
    """Registers them."""

    @options.register(app, time_limit=20.0)
    def sidecar(
        shared: options.Beside,
        requests: Annotated[int, typer.Option(min=2, help="Requests of a round.")] = 320,
        streams: Annotated[int, typer.Option(min=1, max=1000, help="Streams that are open at once.")] = 64,
        repeats: options.Repeats = 3,
    ) -> None:
        """What the sidecar costs: the same load straight to the engine and through it, in turns."""
        from firsttoken_runtime.bench import sidecar_run

        done = ending.run(sidecar_run.run(shared.wish(), requests, streams, repeats))
        ending.leave(ending.reasons(done.errors, done.is_complete, done.ended))

    @options.register(app, time_limit=45.0)
    def overload(
        shared: options.Beside,
        hold: Annotated[
            float, typer.Option(min=1.0, metavar="SECONDS", help="How long each rate is held.")
        ] = 120.0,
        holds: Annotated[
            int, typer.Option(min=1, max=12, help="Most rates that are tried to find the capacity.")
        ] = 5,
        slo_s: Annotated[
            float | None,
            typer.Option(min=0.001, help="TTFT limit of interactive; 8 times the TTFT of one alone."),
        ] = None,
        interactive: Annotated[
            float, typer.Option(min=0.0, max=1.0, help="Share of the requests that are interactive.")
        ] = 0.2,
        obeying: Annotated[
            float,
            typer.Option(min=0.0, max=1.0, help="Share of refused clients that come back when told to."),
        ] = 0.5,
    ) -> None:
        """4 times the rate that an engine can serve: with admission, and without."""
        from firsttoken_runtime.bench import overload_report, overload_run

        plan = overload_run.Plan(hold, holds, slo_s, interactive, obeying)
        ending.leave(overload_report.reasons(ending.run(overload_run.run(shared.wish(), plan))))

    @app.command()
    def routing(
        duration: Annotated[
            float, typer.Option(min=1.0, metavar="SECONDS", help="How long each load lasts.")
        ] = 60.0,
        out: options.Out = None,
        json: options.Json = None,
        seed: options.Seed = 1,
        time_limit: options.Minutes = 20.0,
    ) -> None:
        """Four paced engines behind four sidecars: in turn, least backlog, prefix-aware; one is killed."""
        from firsttoken_runtime.bench import routing_report, routing_run

        wish = routing_run.Wish(out, json, seed, duration, time_limit * 60)
        ending.leave(routing_report.reasons(ending.run(routing_run.run(wish))))
