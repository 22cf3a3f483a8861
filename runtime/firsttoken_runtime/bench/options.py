"""The options that the bench's commands share, and what becomes of them. A wrong value is a UserError."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from firsttoken_api.errors import UserError

if TYPE_CHECKING:
    from firsttoken_runtime.bench import conduct

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

ServerCore = Annotated[int, typer.Option(min=0, help="The core of all servers.")]
ClientCore = Annotated[int, typer.Option(min=0, help="The core of the client.")]

SPARE_CORE = "spare"
"""Default of --threads: one core stays with the client."""


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


def wish(
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

    if threads == SPARE_CORE:
        threads = str(max(1, len(os.sched_getaffinity(0)) - 1))
    return conduct.Wish(path_of(source), out, repeats, seed, minutes * 60, threads, dtype, device)


def token_ids(text: str) -> range:
    low, _, high = text.partition(":")
    if not (low.isdecimal() and high.isdecimal() and int(low) < int(high)):
        raise UserError(f"--token-ids: {text!r} is not of the form LOW:HIGH")
    return range(int(low), int(high))
