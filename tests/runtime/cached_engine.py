"""Builders for tests of the cache in the whole engine: flag sets, and what one request was answered."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from firsttoken_runtime import core
from firsttoken_runtime.cache import blocks, formats
from firsttoken_runtime.engine import flags
from firsttoken_runtime.engine.local import LocalEngine
from runtime import tiny_model

BLOCK = 16
CHUNK = 64
MAX_MODEL_LEN = 192
NUM_LAYERS = 3
VOCABULARY = 131
KV_TYPES: tuple[flags.KvType, ...] = ("full", "int8", "fp8")


@dataclass(frozen=True)
class Answer:
    """All that a client sees."""

    tokens: list[int]
    logprobs: list[core.TokenLogprobs | None]


def in_force(kv_type: flags.KvType = "full", *, cached: bool = True, **changes: Any) -> flags.InForce:
    """Chunks of 64; one layer of three in full precision where the KV is quantized."""
    given = replace(
        flags.defaults(),
        chunk_tokens=CHUNK,
        kv_type=kv_type,
        full_precision_layers=0 if kv_type == "full" else 1,
        prefix_cache=flags.PrefixCache() if cached else None,
    )
    return replace(given, **changes)


def engine(folder: Path, flag_set: flags.InForce | None = None, **changes: Any) -> LocalEngine:
    """Batch-invariant, three layers, contexts of up to 192 tokens."""
    if not (folder / "config.json").exists():
        tiny_model.write(folder, num_hidden_layers=NUM_LAYERS)
    given = {
        "kv_blocks": 256,
        "max_model_len": MAX_MODEL_LEN,
        "max_num_batched_tokens": 128,
        "batch_invariant": True,
    } | changes
    return tiny_model.engine(folder, flag_set or in_force(), **given)


def sampling(max_tokens: int = 4, **changes: Any) -> core.SamplingParams:
    given = {"max_tokens": max_tokens, "temperature": 0.8, "seed": 11, "ignore_eos": True, "logprobs": 3}
    return core.SamplingParams(**given | changes)


def ask(local: LocalEngine, prompt: list[int], params: core.SamplingParams | None = None, **how: Any) -> int:
    """Answer one request alone; returns its id."""
    sequence_id = local.submit(prompt, params or sampling(), **how)
    local.run()
    assert sequence_id not in local.failures, local.failures[sequence_id]
    local.loop.scheduler.check_integrity()
    return sequence_id


def answer(local: LocalEngine, sequence_id: int) -> Answer:
    return Answer(local.tokens[sequence_id], local.logprobs[sequence_id])


def hits(local: LocalEngine, tier: str) -> int:
    """Tokens found so far."""
    return local.loop.stats().prefix_hit_tokens_total.get(tier, 0)


def largest_hit(length: int) -> int:
    """Tokens that a prompt of this length can find of itself: whole blocks, and one token is computed."""
    return (length - 1) // BLOCK * BLOCK


def crowd_out(local: LocalEngine) -> None:
    """What was cached makes way, but for pins: others take every block there is, and leave NaN behind."""
    pool = local.loop.scheduler.pool
    for taken in take_all(pool):
        pool.release(taken)
    ask(local, [3], sampling(1))  # a step, in which the host tier saves what has made way
    full, quantized = take_all(pool)
    for layer in local.engine.runner.layers:
        poison(layer.full, full)
        if layer.compact is not None:
            behind = [block_id - pool.totals.full for block_id in quantized]
            scales = layer.compact.scales
            poison(layer.compact.stored if scales is None else scales, behind)
    for taken in (full, quantized):
        pool.release(taken)
    pool.check_integrity()


def take_all(pool: blocks.Pool) -> list[list[int]]:
    """All that can be had of each format."""
    return [pool.allocate(pool.num_available(fmt), fmt) for fmt in formats.FORMATS]


def poison(stored: torch.Tensor, block_ids: list[int]) -> None:
    """stored: [2, slots, ...]."""
    if block_ids:
        with torch.inference_mode():
            whole = stored[:, : stored.shape[1] // BLOCK * BLOCK].view(2, -1, BLOCK, *stored.shape[2:])
            whole.index_fill_(1, torch.tensor(block_ids), torch.nan)
