"""A loaded model with its scheduler, its KV memory and its host tier; what a switch does to them.

The loop steps it; `loading` makes it. A switch happens between two steps: first everything that could be
refused, then one change after the other, none of which can fail.
"""

import logging
from dataclasses import dataclass, replace

import msgspec

from firsttoken_runtime import core
from firsttoken_runtime.cache import host_store
from firsttoken_runtime.cache import layout as cache_layout
from firsttoken_runtime.cache import pool as cache_pool
from firsttoken_runtime.engine import break_even, host_tier, kv_memory, options, step_prior, warm_up
from firsttoken_runtime.engine import device as engine_device
from firsttoken_runtime.engine import flags as engine_flags
from firsttoken_runtime.engine import lineage as lineages
from firsttoken_runtime.engine.runner import Runner
from firsttoken_runtime.model import config as model_config
from firsttoken_runtime.model import layers
from firsttoken_runtime.scheduler import limits
from firsttoken_runtime.scheduler import scheduler as scheduling

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Loaded:
    """What was read and found out at the start, and does not change."""

    config: model_config.ModelConfig
    eos_token_ids: tuple[int, ...]
    choice: engine_device.Choice
    size: cache_pool.Size
    numerics: layers.Numerics
    facts: lineages.Facts
    """Of the lineage; what a flag set changes of them is filled in by `Engine`."""


class Engine:
    """A loaded model that serves under one flag set at a time."""

    def __init__(
        self,
        settings: core.EngineSettings,
        loaded: Loaded,
        memory: kv_memory.KvMemory,
        layout: cache_layout.Layout,
        runner: Runner,
        host: host_tier.HostTier,
        in_force: engine_flags.InForce,
    ) -> None:
        """layout: what the runner's layers were carved by. Raises host_store.TooMuch."""
        self.settings = settings
        self.loaded = loaded
        self.in_force = in_force
        self.memory = memory
        self.layout = layout
        self.runner = runner
        self.host = host
        self.lineage = self._lineage(in_force)
        self.lineage_changes_total = 0
        self._pinned: list[list[int]] = []
        self.host.turn(self._cut, is_on=in_force.kv_tiering)
        self.scheduler = scheduling.Scheduler(
            self._limits(in_force, layout),
            memory.pool(layout, in_force),
            in_force.classes,
            lineage=self.lineage,
            host=self.host.index,
        )
        self._measure_copies()

    @property
    def config(self) -> model_config.ModelConfig:
        return self.loaded.config

    @property
    def eos_token_ids(self) -> tuple[int, ...]:
        return self.loaded.eos_token_ids

    def switch(self, in_force: engine_flags.InForce) -> int:
        """Bring other flags and classes into force, between two steps. Returns the known tokens of running
        sequences that have to be computed again. Raises BadFlags; then nothing has changed."""
        engine_flags.check_model(in_force, self.config.num_layers)
        try:
            if kv_memory.is_same_layout(in_force, self.in_force) and not self._can_split_anew(in_force):
                recompute_tokens = self._switch_in_place(in_force)
            else:
                recompute_tokens = self._switch_layout(in_force)
        except host_store.TooMuch as error:
            raise engine_flags.BadFlags(f"flag 'kv-tiering': {error}") from error
        self.in_force = in_force
        return recompute_tokens

    def _can_split_anew(self, in_force: engine_flags.InForce) -> bool:
        """Whether the formats should share the memory differently, and nobody loses anything by it: prefixes
        begin or cease to be cached, so nothing is, and nobody runs."""
        is_turned = (in_force.prefix_cache is None) != (self.in_force.prefix_cache is None)
        return is_turned and self.layout.is_quantized and not self.scheduler.has_work

    def _switch_in_place(self, in_force: engine_flags.InForce) -> int:
        """Every block stays what it is."""
        self.host.turn(self._cut, is_on=in_force.kv_tiering)
        self._measure_copies()
        caching = self.memory.caching(self.layout, in_force)
        if caching != self.scheduler.pool.caching:
            self.scheduler.pool.set_caching(caching)
        is_turned = in_force.kv_tiering != self.in_force.kv_tiering
        recompute_tokens = self.scheduler.switch(
            self._limits(in_force, self.layout),
            classes=in_force.classes,
            host=self.host.index if is_turned else scheduling.UNCHANGED,
        )
        if is_turned:
            self.host.replace(self._cut)
        return recompute_tokens

    def _switch_layout(self, in_force: engine_flags.InForce) -> int:
        """The memory is cut anew: everything in it is gone."""
        layout = self.memory.layout(
            in_force, self.scheduler.full_share(is_caching=in_force.prefix_cache is not None), self._pinned
        )
        lineage = self._lineage(in_force)
        cut = host_tier.Cut(layout, self.memory.carve(layout), lineage)
        self.host.turn(cut, is_on=in_force.kv_tiering)
        recompute_tokens = self.scheduler.switch(
            self._limits(in_force, layout),
            self.memory.pool(layout, in_force),
            in_force.classes,
            lineage=lineage,
            host=self.host.index,
        )
        self.runner.replace(cut.layers, layout.num_full_slots)
        self.host.replace(cut)
        self.lineage_changes_total += lineage != self.lineage
        self.layout, self.lineage = layout, lineage
        self._measure_copies()
        _log.info("%s", layout.sentence())
        return recompute_tokens

    def _measure_copies(self) -> None:
        """Where the host tier is on and blocks have a size that was not measured. No evicted block may wait
        to be stored: before the scheduler knows of the tier, or while nothing can be evicted."""
        pool = self.scheduler.pool
        is_unused = pool.num_used == 0 and pool.num_findable == 0
        can_prefill = is_unused and self.loaded.size.max_model_len > break_even.PREFILL_TOKENS

        def prefill(num_tokens: int) -> None:
            warm_up.prefill(self.runner, self.layout, num_tokens)

        self.host.measure(self.layout, prefill if can_prefill else None, self.scheduler.prefill_tokens_per_s)
        self.scheduler.use_break_even(self.host.break_even)

    @property
    def _cut(self) -> host_tier.Cut:
        return host_tier.Cut(self.layout, self.runner.layers, self.lineage)

    def measure_steps(self) -> None:
        """What a step costs, for whoever has to tell before the first one. Nobody may hold a block."""
        most = self.scheduler.limits.max_num_batched_tokens
        self.scheduler.assume(
            step_prior.measure(
                lambda num_tokens: warm_up.prefill(self.runner, self.layout, num_tokens),
                lambda rows: warm_up.decode(self.runner, self.layout, rows),
                most_tokens=min(most, self.loaded.size.max_model_len - 1),
                most_rows=self.settings.max_num_seqs,
            )
        )

    def pin(self, prompts: list[list[int]]) -> None:
        """Keep the blocks of these prompts once they are computed, and of no others. If they find no room and
        nobody runs, declared prefixes get more of the memory."""
        self._pinned = prompts
        refused = self.scheduler.pin(prompts)
        if refused and self.layout.is_quantized and not self.scheduler.running_ids():
            self._switch_layout(self.in_force)
            refused = self.scheduler.pin(prompts)
        if refused:
            _log.warning("pinned prompts: there is no room for %d of their blocks", refused)

    def close(self) -> None:
        """The end: what is worth it goes to the host tier's folder."""
        self.host.close(self.scheduler.pool.findable())

    def stats(self) -> core.Stats:
        """Of the scheduler, with what only the engine knows."""
        return msgspec.structs.replace(
            self.scheduler.stats(),
            flag_generation=self.in_force.generation,
            lineage=lineages.short(self.lineage),
            lineage_changes_total=self.lineage_changes_total,
            kv_type=self.in_force.kv_type,
            kv_deviation=self.runner.kv_deviation(),
            **self.host.stats(),
        )

    def ready(self) -> core.Ready:
        return core.Ready(
            architecture=self.config.architecture,
            device=self.loaded.choice.device.type,
            dtype=self.loaded.choice.dtype_name,
            dtype_reason=self.loaded.choice.reason,
            max_model_len=self.loaded.size.max_model_len,
            kv_blocks=self.scheduler.pool.num_blocks,
            block_size_tokens=self.scheduler.pool.block_size_tokens,
            vocabulary_size=self.config.vocabulary_size,
            flags_enabled=self.in_force.enabled,
            batch_invariant=self.loaded.numerics.batch_invariant,
            kv_type=self.in_force.kv_type,
            kv_bytes_per_token=self.layout.private_token_bytes,
            kv_sentence=self.layout.sentence(),
        )

    def _lineage(self, in_force: engine_flags.InForce) -> bytes:
        return lineages.lineage(
            replace(
                self.loaded.facts,
                kv_type=in_force.kv_type,
                full_precision_layers=in_force.full_precision_layers,
            )
        )

    def _limits(self, in_force: engine_flags.InForce, layout: cache_layout.Layout) -> limits.Limits:
        return options.scheduler_limits(
            self.settings,
            in_force,
            self.loaded.size.max_model_len,
            is_cpu=self.loaded.choice.device.type == "cpu",
            max_full_tokens=layout.max_full_prefix_tokens if layout.is_quantized else None,
        )
