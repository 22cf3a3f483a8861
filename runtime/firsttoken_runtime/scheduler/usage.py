"""How well the KV memory is used, integrated over the time in which somebody waits for it.

While nobody waits an empty slot costs nobody anything. Slots that the step is writing count half: they
hold nothing when it starts and a token when it ends.
"""

from dataclasses import dataclass


@dataclass
class MemoryUse:
    """Slot seconds since the start."""

    live_slot_seconds: float = 0.0
    needed_slot_seconds: float = 0.0
    allocated_slot_seconds: float = 0.0

    def note(self, seconds: float, *, live_slots: float, needed_slots: int, allocated_slots: int) -> None:
        """So many slots for so long, while at least one request waited."""
        self.live_slot_seconds += live_slots * seconds
        self.needed_slot_seconds += needed_slots * seconds
        self.allocated_slot_seconds += allocated_slots * seconds
