"""From settings to a warm engine: choose, check, load, size the cache, warm up.

Everything that can be known before the weights are read is checked before: an unsupported
architecture or too little memory is said in a second, not after minutes.
"""

import logging
import time
from collections.abc import Callable
from pathlib import Path

import torch

from firsttoken_runtime import core
from firsttoken_runtime.cache import blocks, formats, storage
from firsttoken_runtime.cache import layout as cache_layout
from firsttoken_runtime.cache import pool as cache_pool
from firsttoken_runtime.engine import device as engine_device
from firsttoken_runtime.engine import flags as engine_flags
from firsttoken_runtime.engine import invariance, machine, options
from firsttoken_runtime.engine.runner import Runner
from firsttoken_runtime.model import checkpoint, decoder, eos, layers, shapes, weights
from firsttoken_runtime.model import config as model_config
from firsttoken_runtime.scheduler import limits
from firsttoken_runtime.scheduler import scheduler as scheduling
from firsttoken_runtime.scheduler.sequence import ScheduledStep, Sequence, Work

_REPORT_EVERY_S = 0.2
_log = logging.getLogger(__name__)


class Engine:
    """A loaded model with its scheduler."""

    def __init__(
        self,
        settings: core.EngineSettings,
        config: model_config.ModelConfig,
        eos_token_ids: tuple[int, ...],
        choice: engine_device.Choice,
        size: cache_pool.Size,
        in_force: engine_flags.InForce,
        runner: Runner,
        numerics: layers.Numerics = layers.Numerics(),  # noqa: B008 - frozen
    ) -> None:
        self.settings = settings
        self.config = config
        self.eos_token_ids = eos_token_ids
        self.choice = choice
        self.size = size
        self.in_force = in_force
        self.runner = runner
        self.numerics = numerics
        self.scheduler = scheduling.Scheduler(self._limits(in_force), self._pool(in_force), in_force.classes)

    def switch(self, in_force: engine_flags.InForce) -> None:
        """Bring other flags and classes into force, between two steps."""
        pool = None if in_force.paged_kv == self.in_force.paged_kv else self._pool(in_force)
        self.scheduler.switch(self._limits(in_force), pool, in_force.classes)
        self.in_force = in_force

    def ready(self) -> core.Ready:
        return core.Ready(
            architecture=self.config.architecture,
            device=self.choice.device.type,
            dtype=self.choice.dtype_name,
            dtype_reason=self.choice.reason,
            max_model_len=self.size.max_model_len,
            kv_blocks=self.scheduler.pool.num_blocks,
            block_size_tokens=self.scheduler.pool.block_size_tokens,
            vocabulary_size=self.config.vocabulary_size,
            flags_enabled=self.in_force.enabled,
            batch_invariant=self.numerics.batch_invariant,
        )

    def _limits(self, in_force: engine_flags.InForce) -> limits.Limits:
        return options.scheduler_limits(
            self.settings, in_force, self.size.max_model_len, is_cpu=self.choice.device.type == "cpu"
        )

    def _pool(self, in_force: engine_flags.InForce) -> blocks.Pool:
        num_blocks, block_size_tokens = cache_pool.partition(
            self.size.num_slots,
            self.settings.block_size_tokens,
            self.size.max_model_len,
            paged=in_force.paged_kv,
        )
        return blocks.Pool(num_blocks, block_size_tokens)


def load(
    settings: core.EngineSettings,
    in_force: engine_flags.InForce,
    report: Callable[[float], None],
) -> Engine:
    """Read the model and get ready to serve; `report` is told the progress, 0..1, every so often.

    Raises `errors.ModelError`, `cache.pool.{NotEnough, TooLong}`, `device.BadOption` or `options.BadOption`.
    """
    torch.set_num_threads(settings.threads or machine.threads())
    source = checkpoint.open_checkpoint(Path(settings.model_path))
    config = model_config.read(source)
    choice = engine_device.choose(settings.device, settings.dtype)
    size = cache_pool.decide(_facts(settings, config, choice))
    # A wrong option is said now, not after the load.
    options.scheduler_limits(settings, in_force, size.max_model_len, is_cpu=choice.device.type == "cpu")

    numerics = _numerics(settings, config, choice)
    last_report_s = 0.0

    def throttled(progress: float) -> None:
        nonlocal last_report_s
        now = time.monotonic()
        if now - last_report_s >= _REPORT_EVERY_S:
            last_report_s = now
            report(progress)

    with torch.inference_mode():
        tensors = weights.load(source, config, choice.dtype, choice.device, throttled)
        model = decoder.Decoder(config, tensors, numerics)
        shape = cache_layout.Shape(
            config.num_layers, config.num_kv_heads, config.head_dim, choice.dtype.itemsize
        )
        layout = cache_layout.Layout(shape, 1, formats.Counts(size.num_slots))
        buffer = storage.allocate(layout.num_bytes, config.num_layers, choice.device)
        cache = storage.carve(buffer, layout, choice.dtype)
    runner = Runner(model, cache, batch_invariant=numerics.batch_invariant)
    engine = Engine(settings, config, eos.read(source), choice, size, in_force, runner, numerics)
    _warm_up(runner, settings.block_size_tokens, size.max_model_len)
    report(1.0)
    return engine


def _numerics(
    settings: core.EngineSettings, config: model_config.ModelConfig, choice: engine_device.Choice
) -> layers.Numerics:
    if not settings.batch_invariant:
        return layers.Numerics()
    probe = invariance.probe(invariance.linear_shapes(shapes.expected(config)), choice.dtype, choice.device)
    _log.info("batch-invariant: %s", probe)
    return probe.numerics


def _facts(
    settings: core.EngineSettings, config: model_config.ModelConfig, choice: engine_device.Choice
) -> cache_pool.Facts:
    is_cpu = choice.device.type == "cpu"
    if is_cpu:
        memory = machine.memory()
        limit, available = memory.limit_bytes, memory.available_bytes
    else:
        available, limit = torch.cuda.mem_get_info(choice.device)
    # A tied table is stored twice on a CPU: plain for the look-up, packed for the output layer.
    tied_copy = config.vocabulary_size * config.hidden_size if is_cpu and config.tied_embeddings else 0
    return cache_pool.Facts(
        memory_limit_bytes=limit,
        available_bytes=available,
        memory_fraction=settings.memory_fraction,
        weight_bytes=(config.num_parameters + tied_copy) * choice.dtype.itemsize,
        kv_bytes_per_token=config.kv_bytes_per_token(choice.dtype.itemsize),
        trained_length=config.trained_length,
        max_num_seqs=settings.max_num_seqs,
        block_size_tokens=settings.block_size_tokens,
        max_model_len=settings.max_model_len,
        kv_blocks=settings.kv_blocks,
        is_cpu=is_cpu,
    )


def _warm_up(runner: Runner, block_size_tokens: int, max_model_len: int) -> None:
    """Run a prompt and a few decodes over slots nobody owns yet, so that the first request is not the
    one that waits for the libraries to set themselves up."""
    length = min(64, max_model_len - 1)
    params = core.SamplingParams(max_tokens=2)
    sequence = Sequence(0, [0] * length, params, 0.0)
    sequence.block_table = list(range(-(-(length + 1) // block_size_tokens)))
    prefill = Work(sequence, 0, length, samples=True)
    runner.execute(ScheduledStep(0, prefills=(prefill,)), block_size_tokens)
    sequence.token_ids.append(0)
    for rows in (1, 2):
        decode = Work(sequence, length, 1, samples=True)
        runner.execute(ScheduledStep(0, decodes=(decode,) * rows), block_size_tokens)
