"""The options that the bench's commands share, and what becomes of them. A wrong value is a UserError.

Options that go together are fields of a dataclass; `register` makes a command of a function whose first
parameter is one, so that each list stands in one place.
"""

import dataclasses
import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from firsttoken_api.errors import UserError
from firsttoken_runtime.bench import ending

if TYPE_CHECKING:
    from firsttoken_runtime.bench import conduct, experiment, gateway

BodyT = TypeVar("BodyT", bound=Callable[..., None])

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
TOKEN_IDS = "1000:30000"

ServerCore = Annotated[int, typer.Option(min=0, help="The core of all servers.")]
ClientCore = Annotated[int, typer.Option(min=0, help="The core of the client.")]
SidecarCore = Annotated[int, typer.Option(min=0, help="The core of the sidecar.")]
MaybeSource = Annotated[str, typer.Argument(help="A folder of safetensors, or a .gguf file.")]
Paced = Annotated[
    bool, typer.Option("--paced", help="An engine that keeps a pace and computes nothing, instead of SOURCE.")
]
Json = Annotated[Path | None, typer.Option(metavar="FILE", help="The figures for a script, as JSON.")]

SPARE_CORE = "spare"
"""Default of --threads: one core stays with the client."""


@dataclass(frozen=True)
class Engine:
    """Of a command that measures an engine of ours."""

    source: Source
    out: Out = None
    threads: Threads = SPARE_CORE
    dtype: DType = "auto"
    device: Device = "auto"

    def wish_within(self, minutes: float, *, repeats: int = 1, seed: int = 0) -> "conduct.Wish":
        from firsttoken_runtime.bench import conduct

        threads = self.threads
        if threads == SPARE_CORE:
            threads = str(max(1, len(os.sched_getaffinity(0)) - 1))
        return conduct.Wish(
            path_of(self.source), self.out, repeats, seed, minutes * 60, threads, self.dtype, self.device
        )


@dataclass(frozen=True)
class Load(Engine):
    """Of one whose requests are made from a seed."""

    seed: Seed = 1
    token_ids: TokenIds = TOKEN_IDS

    @property
    def ids(self) -> range:
        return token_ids(self.token_ids)


@dataclass(frozen=True)
class Rounds(Load):
    """Of one that repeats them."""

    repeats: Repeats = 3

    def measure_within(self, wanted: "experiment.Experiment", minutes: float) -> None:
        """From the start of the server to the exit status."""
        from firsttoken_runtime.bench import conduct

        wish = self.wish_within(minutes, repeats=self.repeats, seed=self.seed)
        ending.leave(conduct.reasons(ending.run(conduct.run(wanted, wish))))


@dataclass(frozen=True)
class TimedRounds(Rounds):
    """The same, with the time that it may take."""

    time_limit: Minutes = 30.0

    def wish(self) -> "conduct.Wish":
        return self.wish_within(self.time_limit, repeats=self.repeats, seed=self.seed)

    def measure(self, wanted: "experiment.Experiment") -> None:
        self.measure_within(wanted, self.time_limit)


@dataclass(frozen=True)
class OnCores:
    """Of a command whose servers have one core and whose client has another."""

    source: Source
    repeats: Repeats = 3
    server_core: ServerCore = 0
    client_core: ClientCore = 1
    out: Out = None
    seed: Seed = 1
    time_limit: Minutes = 30.0

    def path(self) -> Path:
        """Of the model. Raises UserError for it and for the cores."""
        check_cores(self.server_core, self.client_core)
        return path_of(self.source)


@dataclass(frozen=True)
class Beside:
    """Of a command that measures a sidecar beside an engine, each held to a core."""

    source: MaybeSource = ""
    paced: Paced = False
    server_core: ServerCore = 0
    sidecar_core: SidecarCore = 1
    client_core: ClientCore = 1
    out: Out = None
    json: Json = None
    seed: Seed = 1
    dtype: DType = "auto"
    token_ids: TokenIds = TOKEN_IDS
    time_limit: Minutes = 30.0

    def wish(self) -> "gateway.Wish":
        """Raises UserError."""
        from firsttoken_runtime.bench import gateway

        check_cores(self.server_core, self.sidecar_core, self.client_core)
        if self.paced == bool(self.source):
            raise UserError("give either SOURCE or --paced")
        return gateway.Wish(
            source=None if self.paced else path_of(self.source),
            out=self.out,
            json_file=self.json,
            seed=self.seed,
            time_limit_s=self.time_limit * 60,
            server_core=self.server_core,
            sidecar_core=self.sidecar_core,
            client_core=self.client_core,
            dtype=self.dtype,
            token_ids=token_ids(self.token_ids),
        )


def register(app: typer.Typer, **defaults: Any) -> Callable[[BodyT], BodyT]:
    """Makes a command of `body(shared, …)`: the fields of its first parameter's class become options, with
    `defaults` in place of their own; its other parameters come after the argument and before those."""

    def made(body: BodyT) -> BodyT:
        first, *own = inspect.signature(body).parameters.values()
        fields = dataclasses.fields(first.annotation)
        shared = [
            inspect.Parameter(
                one.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=defaults.get(
                    one.name,
                    one.default if one.default is not dataclasses.MISSING else inspect.Parameter.empty,
                ),
                annotation=one.type,
            )
            for one in fields
        ]
        assert defaults.keys() <= {one.name for one in fields}, defaults

        def call(**given: Any) -> None:
            body(first.annotation(**{one.name: given.pop(one.name) for one in fields}), **given)

        named = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in own]
        call.__dict__["__signature__"] = inspect.Signature([shared[0], *named, *shared[1:]])
        call.__name__, call.__doc__ = body.__name__, body.__doc__
        app.command()(call)
        return body

    return made


def path_of(source: str) -> Path:
    path = Path(source).expanduser()
    if not path.exists():
        raise UserError(f"SOURCE: {path}: no such file or folder")
    return path


def check_cores(*cores: int) -> None:
    """Raises UserError for a core that this process may not use."""
    missing = set(cores) - os.sched_getaffinity(0)
    if missing:
        raise UserError(f"core {missing.pop()} is not one that this process may use")


def token_ids(text: str) -> range:
    low, _, high = text.partition(":")
    if not (low.isdecimal() and high.isdecimal() and int(low) < int(high)):
        raise UserError(f"--token-ids: {text!r} is not of the form LOW:HIGH")
    return range(int(low), int(high))
