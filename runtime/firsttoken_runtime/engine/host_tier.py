"""The host tier of one engine: its memory, its folder and the copies, made when `kv-tiering` is first on.

While the flag is off the tier is not asked, but keeps its memory: pinning it again would hold up a hot
switch. What it holds stays valid for as long as lineage and layout do.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from firsttoken_kernels import paged_cache
from firsttoken_runtime.cache import blocks, disk_store, host, host_problems, host_store
from firsttoken_runtime.cache import layout as cache_layout
from firsttoken_runtime.cache.formats import Format
from firsttoken_runtime.engine import block_bytes, break_even, copies
from firsttoken_runtime.scheduler.sequence import ScheduledStep

IDLE_RESTORE_S = 0.05
"""Of a turn without a step, for taking in what the folder had."""
CLOSING_S = 4.0
"""In which the folder takes what is still to be kept; who waits longer for the engine to end kills it."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Cut:
    """What of a layout the tier needs to know."""

    layout: cache_layout.Layout
    layers: Sequence[paged_cache.LayerCache]
    lineage: bytes

    def blocks(self) -> block_bytes.BlockBytes:
        return block_bytes.BlockBytes(self.layers, self.layout.counts.full, self.layout.block_size_tokens)


class HostTier:
    """Nothing, until it is first switched on."""

    def __init__(self, capacity_bytes: int, folder: str, num_layers: int, device: torch.device) -> None:
        """folder: "" = it ends with the process."""
        self._num_layers = num_layers
        self.capacity_bytes = capacity_bytes
        self.break_even: break_even.BreakEven | None = None
        self._folder = folder
        self._device = device
        self._problems = host_problems.Problems()
        self._copies: copies.Copies | None = None
        self._is_on = False
        self._measured_bytes: dict[Format, int] = {}
        """Of the blocks that `break_even` is of."""

    @property
    def index(self) -> host.HostIndex | None:
        """None: nothing is to be asked or stored."""
        return self._copies.index if self._copies is not None and self._is_on else None

    def turn(self, cut: Cut, *, is_on: bool) -> None:
        """On or off. Raises host_store.TooMuch; then nothing has changed."""
        if is_on and self._copies is None:
            self._copies = self._made(cut)
        self._is_on = is_on

    def replace(self, cut: Cut) -> None:
        """These tensors from now on, after a turn or a layout; what no longer fits is forgotten."""
        if self._copies is not None and self._is_on:
            self._copies.replace(cut.blocks(), cut.lineage)

    def copy(self, step: ScheduledStep) -> None:
        """What the step saves and loads. Its forward pass waits layer by layer, else `hold_computation`."""
        if step.saves or step.loads:
            assert self._copies is not None, "a copy without a tier"
            self._copies.run(step.saves, step.loads)

    def before_layer(self, step: ScheduledStep) -> Callable[[int], None] | None:
        """To be told each layer before it is computed; None: it need not wait."""
        return self._copies.before_layer if self._copies is not None and step.loads else None

    def hold_computation(self) -> None:
        """What is computed from now on starts after all copies that were issued."""
        if self._copies is not None:
            self._copies.before_layer(self._num_layers - 1)

    def settle(self, *, is_idle: bool) -> None:
        """Once a turn: let go of what has ended, take in what the folder had."""
        if self._copies is not None and self._is_on:
            self._copies.settle(IDLE_RESTORE_S if is_idle else copies.RESTORE_BUDGET_S)

    @property
    def is_restoring(self) -> bool:
        return self._copies is not None and self._is_on and self._copies.is_restoring

    def stats(self) -> dict[str, Any]:
        """Fields of `core.Stats`."""
        if self._copies is None:
            return {}
        index = self._copies.index
        return {
            "host_blocks": index.num_blocks if self._is_on else 0,
            "host_bytes": index.num_bytes if self._is_on else 0,
            "host_problems": self._problems.counts,
            "saves_total": self._copies.saves_total,
            "loads_total": self._copies.loads_total,
        }

    def measure(
        self, layout: cache_layout.Layout, prefill: Callable[[int], None] | None, prefill_tokens_per_s: float
    ) -> None:
        """Find out from how many tokens on a copy beats computing, once for each size of a block. Before
        anybody stores in the tier; the blocks of the device keep what they hold.

        prefill: computes a prompt of so many tokens, None: it cannot be. prefill_tokens_per_s: what is known
        without it; 0 = nothing.
        """
        if self._copies is None or not self._is_on or self._copies.index.num_blocks:
            return
        if self._copies.most_rehearsed == 0:
            _log.warning(
                "host tier: its %d bytes hold no block; give it more (--host-memory)", self.capacity_bytes
            )
            return
        block_bytes_of = dict(self._copies.index.cut.bytes_of)
        if block_bytes_of == self._measured_bytes:
            return
        self._measured_bytes = block_bytes_of
        if self.break_even is not None:
            prefill_tokens_per_s = prefill_tokens_per_s or self.break_even.prefill_tokens_per_s or 0.0
        self.break_even = break_even.measure(
            self._copies.rehearse_load,
            self._copies.rehearse_save,
            None if prefill_tokens_per_s else prefill,
            block_size_tokens=layout.block_size_tokens,
            most_blocks=min(break_even.MANY_BLOCKS, self._copies.most_rehearsed),
            prefill_tokens_per_s=prefill_tokens_per_s or None,
        )
        self._copies.index.takes_unasked = self.break_even.is_cheap()
        least = self.break_even.least_tokens()
        _log.info(
            "host tier: a block comes back in %.3f ms, which pays from %s tokens on",
            1e3 * self.break_even.load_s_per_block,
            "no" if least is None else least,
        )

    def close(self, findable: Iterable[blocks.Evicted]) -> None:
        """Keep for the next process what the device still holds and the tier would take, then wait a little
        for the folder."""
        if self._copies is None:
            return
        if self._folder and self._is_on:
            self._copies.keep(findable, CLOSING_S / 2)
        self._copies.close(CLOSING_S / 2)
        self._copies = None

    def _made(self, cut: Cut) -> copies.Copies:
        device_blocks = cut.blocks()
        index = host.HostIndex(self.capacity_bytes, device_blocks.bytes_of)
        store = host_store.HostStore(self.capacity_bytes, index.cut, pinned=self._device.type == "cuda")
        disk = None
        if self._folder:
            disk = disk_store.DiskStore(Path(self._folder), self.capacity_bytes, self._problems)
        return copies.Copies(
            index, store, device_blocks, cut.lineage, self._problems, disk=disk, by_layer=True
        )
