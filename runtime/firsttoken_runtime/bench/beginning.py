"""What is noted before anything is started: the time, the machine, its load without us."""

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from firsttoken_runtime.bench import machine
from firsttoken_runtime.bench.result import Context


@dataclass(frozen=True)
class Beginning:
    """Of one run."""

    started_at: str
    load: tuple[float, float, float]
    machine: machine.Machine
    """As it was before this process was held to a core."""

    @staticmethod
    def now() -> "Beginning":
        started_at = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        return Beginning(started_at, machine.load_average(), machine.look())

    def context(
        self,
        *,
        model: str,
        sha256: str,
        device: str,
        dtype: str,
        seed: int,
        repeats: int,
        server_command: Sequence[str] = (),
        extra: Mapping[str, Any] | None = None,
    ) -> Context:
        """With the load as it is now: call it when the measuring is over."""
        return Context(
            machine=self.machine,
            command=machine.command(),
            started_at=self.started_at,
            load_before=self.load,
            load_after=machine.load_average(),
            model=model,
            model_sha256=sha256,
            device=device,
            dtype=dtype,
            server_command=list(server_command),
            seed=seed,
            repeats=repeats,
            extra=dict(extra or {}),
        )
