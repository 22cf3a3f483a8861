"""Runs the simulated engine of `pacing` in real time and hands each sequence its tokens."""

import asyncio
import time
from dataclasses import dataclass, field

from firsttoken_runtime.bench import pacing

MOST_BEHIND_S = 0.25
"""A loop that is woken late makes up for it up to here; beyond it time is lost, and counted."""


@dataclass(eq=False)
class Generation:
    """One request in the loop."""

    sequence: pacing.Simulated
    tokens: asyncio.Queue[bool] = field(default_factory=asyncio.Queue)
    """An entry for each token; True with the last one."""


class Loop:
    """One engine. Steps end when the rates say so, however late the event loop gets to them."""

    def __init__(self, pace: pacing.Pace) -> None:
        self.scheduler = pacing.Scheduler(pace)
        self.lost_s = 0.0
        """The machine was too busy to keep the pace: figures are too slow by so much."""
        self._open: dict[pacing.Simulated, Generation] = {}
        self._has_work = asyncio.Event()

    def add(self, sequence: pacing.Simulated) -> Generation:
        generation = Generation(sequence)
        self._open[sequence] = generation
        self.scheduler.add(sequence)
        self._has_work.set()
        return generation

    def drop(self, generation: Generation) -> None:
        self.scheduler.drop(generation.sequence)
        self._open.pop(generation.sequence, None)

    async def run(self) -> None:
        """Until it is cancelled."""
        clock = time.monotonic
        while True:
            if not self.scheduler.has_work:
                self._has_work.clear()
                await self._has_work.wait()
                due_s = clock()
            step = self.scheduler.begin(due_s)
            due_s += step.duration_s
            await asyncio.sleep(max(0.0, due_s - clock()))
            if (behind_s := clock() - due_s) > MOST_BEHIND_S:
                self.lost_s += behind_s - MOST_BEHIND_S
                due_s += behind_s - MOST_BEHIND_S
            for sequence in self.scheduler.end(step, clock()):
                generation = self._open[sequence]
                generation.tokens.put_nowait(sequence.is_done)
                if sequence.is_done:
                    del self._open[sequence]
