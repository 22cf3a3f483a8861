"""Blocks on their way between the device and the host tier: what the next step copies, and what the last
one was to.

Evicted blocks are saved when the host tier takes them: their bytes stay until the next step writes over
them, which is after its saves. A sequence counts blocks that are loaded for it as computed from its
admission on; if the step that loads them is never committed, it has to be put back.
"""

from firsttoken_runtime.cache import blocks, host
from firsttoken_runtime.scheduler.sequence import Sequence
from firsttoken_runtime.scheduler.step import Load, Save


class Transfers:
    """Of one scheduler. Without a host tier nothing moves."""

    def __init__(self, host_index: host.HostIndex | None) -> None:
        self.host = host_index
        self._saves: list[Save] = []
        self._loads: list[Load] = []
        self._loading: dict[int, Sequence] = {}
        self._wanted: dict[int, list[bytes]] = {}

    def replace_host(self, host_index: host.HostIndex | None) -> None:
        """Another host tier, or none."""
        self.drop_saves()
        self.unwant_all()
        self.host = host_index

    def evicted(self, block: blocks.Evicted) -> None:
        """The pool has evicted a block."""
        if self.host is not None:
            slot = self.host.store(block)
            if slot is not None:
                self._saves.append(Save(block.block_id, slot))

    def lock(self, slots: list[int]) -> None:
        """Nothing is written over these slots until they are loaded."""
        if slots:
            assert self.host is not None
            self.host.lock(slots)

    def load(self, sequence: Sequence, slots: list[int], block_ids: list[int]) -> None:
        """The next step copies locked slots to blocks of that sequence."""
        self._loads += [Load(*pair) for pair in zip(slots, block_ids, strict=True)]
        self._loading[sequence.sequence_id] = sequence

    def take(self) -> tuple[tuple[Save, ...], tuple[Load, ...]]:
        """What the step that is now finished copies."""
        taken = tuple(self._saves), tuple(self._loads)
        self._saves.clear()
        self._loads.clear()
        return taken

    def confirm(self) -> None:
        """The step was computed, so its loads have arrived."""
        self._loading.clear()

    def unconfirmed(self) -> list[Sequence]:
        """Whose loads may not have arrived, because their step was not committed."""
        lost = list(self._loading.values())
        self._loading.clear()
        return lost

    def drop_saves(self) -> None:
        """The bytes of evicted blocks are about to be gone."""
        if self.host is not None:
            for save in self._saves:
                self.host.discard(save.host_slot)
        self._saves.clear()

    def want(self, sequence: Sequence, keys: list[bytes]) -> None:
        """A preempted sequence will ask for these blocks."""
        assert self.host is not None
        self.unwant(sequence)
        self.host.want(keys)
        self._wanted[sequence.sequence_id] = keys

    def unwant(self, sequence: Sequence) -> None:
        """It runs again or has ended, whether or not it wanted anything."""
        keys = self._wanted.pop(sequence.sequence_id, None)
        if keys is not None and self.host is not None:
            self.host.unwant(keys)

    def unwant_all(self) -> None:
        if self.host is not None:
            for keys in self._wanted.values():
                self.host.unwant(keys)
        self._wanted.clear()

    @property
    def num_saves(self) -> int:
        """Of the next step, so far: between two steps blocks are evicted too."""
        return len(self._saves)

    @property
    def num_wanting(self) -> int:
        """Preempted sequences whose blocks are wanted."""
        return len(self._wanted)
