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
from firsttoken_runtime.cache import host_store
from firsttoken_runtime.cache import layout as cache_layout
from firsttoken_runtime.cache import pool as cache_pool
from firsttoken_runtime.engine import device as engine_device
from firsttoken_runtime.engine import engine as engines
from firsttoken_runtime.engine import flags as engine_flags
from firsttoken_runtime.engine import host_tier, invariance, kv_memory, machine, options, warm_up
from firsttoken_runtime.engine import lineage as lineages
from firsttoken_runtime.engine.runner import Runner
from firsttoken_runtime.model import checkpoint, decoder, eos, layers, shapes, weights
from firsttoken_runtime.model import config as model_config

_REPORT_EVERY_S = 0.2
_HOST_PART = 0.5
"""Of the host's free memory, beside a GPU, that an automatic host tier may take."""
_log = logging.getLogger(__name__)


def load(
    settings: core.EngineSettings,
    in_force: engine_flags.InForce,
    report: Callable[[float], None],
) -> engines.Engine:
    """Read the model and get ready to serve; `report` is told the progress, 0..1, every so often.

    Raises `errors.ModelError`, `cache.pool.{NotEnough, TooLong}`, `device.BadOption`, `options.BadOption`
    or `flags.BadFlags`.
    """
    torch.set_num_threads(settings.threads or machine.threads())
    source = checkpoint.open_checkpoint(Path(settings.model_path))
    config = model_config.read(source)
    engine_flags.check_model(in_force, config.num_layers)
    choice = engine_device.choose(settings.device, settings.dtype)
    facts = _facts(settings, config, choice)
    size = cache_pool.decide(facts)
    # A wrong option is said now, not after the load.
    options.scheduler_limits(settings, in_force, size.max_model_len, is_cpu=facts.is_cpu)

    numerics = _numerics(settings, config, choice)
    throttled = _throttled(report)
    with torch.inference_mode():
        tensors = weights.load(source, config, choice.dtype, choice.device, throttled)
        model = decoder.Decoder(config, tensors, numerics)
        memory = kv_memory.KvMemory(
            cache_layout.Shape(
                config.num_layers, config.num_kv_heads, config.head_dim, choice.dtype.itemsize
            ),
            size.num_slots,
            settings.block_size_tokens,
            size.max_model_len,
            choice.dtype,
            choice.device,
        )
    layout = memory.layout(in_force)
    _log.info("%s", layout.sentence())
    runner = Runner(
        model,
        memory.carve(layout),
        num_full_slots=layout.num_full_slots,
        batch_invariant=numerics.batch_invariant,
    )
    warm_up.run(runner, layout, size.max_model_len)
    loaded = engines.Loaded(
        config,
        eos.read(source),
        choice,
        size,
        numerics,
        _lineage_facts(settings, config, choice, numerics, lambda: throttled(1.0)),
    )
    host = host_tier.HostTier(
        _host_bytes(settings, facts, memory.budget_bytes),
        settings.host_folder,
        config.num_layers,
        choice.device,
    )
    try:
        engine = engines.Engine(settings, loaded, memory, layout, runner, host, in_force)
    except host_store.TooMuch as error:
        raise cache_pool.NotEnough(str(error)) from error
    report(1.0)
    return engine


def _throttled(report: Callable[[float], None]) -> Callable[[float], None]:
    last_report_s = 0.0

    def throttled(progress: float) -> None:
        nonlocal last_report_s
        now = time.monotonic()
        if now - last_report_s >= _REPORT_EVERY_S:
            last_report_s = now
            report(progress)

    return throttled


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
        # One memory for both tiers: what is asked for the host tier is no room for the pool.
        host_bytes = settings.host_memory_bytes or 0
        limit, available = memory.limit_bytes - host_bytes, memory.available_bytes - host_bytes
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


def _host_bytes(settings: core.EngineSettings, facts: cache_pool.Facts, pool_bytes: int) -> int:
    """Of the host tier: as asked, else as much as the pool has, from what is left."""
    if settings.host_memory_bytes is not None:
        return settings.host_memory_bytes
    if facts.is_cpu:
        budget = min(int(facts.memory_limit_bytes * facts.memory_fraction), facts.available_bytes)
        left = budget - facts.weight_bytes - cache_pool.RESERVE_BYTES - pool_bytes
    else:
        left = int(machine.memory().available_bytes * _HOST_PART)
    return max(min(pool_bytes, left), 0)


def _lineage_facts(
    settings: core.EngineSettings,
    config: model_config.ModelConfig,
    choice: engine_device.Choice,
    numerics: layers.Numerics,
    tick: Callable[[], None],
) -> lineages.Facts:
    """What no flag changes. All bytes of the weights count only for a folder that outlives the process."""
    model = Path(settings.model_path)
    files = lineages.weight_files(model)
    return lineages.Facts(
        weights=lineages.content_digest(files, tick)
        if settings.host_folder
        else lineages.quick_digest(files),
        tokenizer=lineages.tokenizer_digest(model),
        compute_type=choice.dtype_name,
        kv_type="full",
        full_precision_layers=0,
        model=repr(config),
        numerics=repr(numerics),
        code=lineages.code_digest(),
        device=lineages.device_class(choice.device, torch.get_num_threads()),
    )
