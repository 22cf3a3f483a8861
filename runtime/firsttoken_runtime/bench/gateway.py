"""What the commands that measure the sidecar share: what was asked for, the engine, the flat figures."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from firsttoken_api.errors import UserError
from firsttoken_runtime.bench import beside, experiment, machine, paced_server, server


@dataclass(frozen=True)
class Wish:
    """What the command line asked for, the same for all of them."""

    source: Path | None
    """None: the paced engine."""
    out: Path | None
    json_file: Path | None
    seed: int
    time_limit_s: float
    server_core: int
    sidecar_core: int
    client_core: int
    dtype: str
    token_ids: range

    @property
    def model(self) -> str:
        return self.source.name if self.source is not None else f"{paced_server.MODEL} (no real engine)"

    def cores(self) -> str:
        return (
            f"engine on core {self.server_core}, sidecar on core {self.sidecar_core}, "
            f"client on core {self.client_core}"
        )


async def digest(wish: Wish) -> str:
    return await asyncio.to_thread(machine.digest, wish.source) if wish.source is not None else ""


@contextlib.asynccontextmanager
async def engine(wish: Wish, needs: experiment.ServerNeeds, log: Path) -> AsyncIterator[server.Target]:
    """The engine behind the sidecar, on one core. Raises UserError with its own words."""
    cores = (wish.server_core,)
    if wish.source is None:
        options = ["--max-num-seqs", str(needs.max_num_seqs), "--blocks", str(needs.kv_blocks)]
        async with beside.paced_engine(options, log, cores) as target:
            yield target
        return
    options = ["--threads", "1", "--dtype", wish.dtype, "--device", "cpu", "--behind-sidecar"]
    async with server.serving(str(wish.source), [*options, *needs.options()], log, cores) as target:
        yield target


def leave_flat(path: Path | None, flat: Mapping[str, float | int | bool | str | None]) -> None:
    """The figures that a script reads, where it asked for them. Raises UserError."""
    if path is None:
        return
    try:
        path.write_text(json.dumps(flat, indent=1) + "\n")
    except OSError as error:
        raise UserError(f"--json: {path}: {error.strerror}") from error
