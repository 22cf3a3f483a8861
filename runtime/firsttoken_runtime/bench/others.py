"""What processes that do not belong to a run use of its cores meanwhile."""

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from firsttoken_runtime.bench import child, machine


@dataclass(frozen=True)
class Use:
    """Core -> seconds of others since the machine was started."""

    at_s: float
    seconds: Mapping[int, float]

    def since(self, before: "Use") -> dict[str, float]:
        """Shares of the time between, by core. The kernel counts in ticks: never below 0."""
        elapsed_s = self.at_s - before.at_s
        return {
            str(core): max(0.0, seconds - before.seconds[core]) / elapsed_s
            for core, seconds in self.seconds.items()
        }


def use(belonging: Mapping[int, Sequence[int]]) -> Use:
    """`belonging`: core -> processes (with their children) that are held to it."""
    return Use(
        time.monotonic(),
        {
            core: machine.busy_seconds(core) - sum(_seconds(pid) for pid in pids)
            for core, pids in belonging.items()
        },
    )


def _seconds(pid: int) -> float:
    # This process has children that are held to other cores.
    return time.process_time() if pid == os.getpid() else child.cpu_seconds(pid)
