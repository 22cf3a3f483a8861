"""How one budget is cut under each flag set."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from firsttoken_runtime.cache import layout as cache_layout
from firsttoken_runtime.cache.formats import Counts, Format
from firsttoken_runtime.engine import flags, kv_memory

SHAPE = cache_layout.Shape(num_layers=5, num_kv_heads=3, head_dim=24, itemsize=4)
INT8 = replace(flags.defaults(), kv_type="int8", full_precision_layers=2)


def memory(num_slots: int = 4096, max_model_len: int = 300) -> kv_memory.KvMemory:
    return kv_memory.KvMemory(SHAPE, num_slots, 16, max_model_len, torch.float32, torch.device("cpu"))


def test_everything_is_full_without_a_kv_type() -> None:
    assert memory().layout(flags.defaults()).counts == Counts(256, 0)
    slabs = memory().layout(replace(flags.defaults(), paged_kv=False))
    assert (slabs.counts, slabs.block_size_tokens) == (Counts(4096 // 300, 0), 300)


def test_declared_prefixes_get_an_eighth_of_the_bytes() -> None:
    layout = memory().layout(INT8)
    part = layout.counts.full * layout.block_bytes(Format.FULL) / layout.num_bytes
    assert part == pytest.approx(kv_memory.INITIAL_FULL_PART, rel=0.05)
    assert layout.counts.total > 256


def test_demand_for_more_is_followed() -> None:
    layout = memory().layout(INT8, full_share=0.5)
    assert layout.counts.full == pytest.approx(layout.counts.total / 2, abs=2)
    assert memory().layout(INT8, full_share=0.001) == memory().layout(INT8), "never less than at the start"


@pytest.mark.parametrize("lengths", [[150], [400, 33, 7], [90] * 20])
def test_pins_find_room(lengths: list[int]) -> None:
    kv = memory(num_slots=8192)
    pinned = [[0] * length for length in lengths]
    layout = kv.layout(INT8, pinned=pinned)
    pool = kv.pool(layout, INT8)
    wanted = sum(min(length, layout.max_full_prefix_tokens) // 16 for length in lengths)
    assert sum(pool.pin(bytes([index]) * 32, Format.FULL) for index in range(wanted)) == wanted


@given(st.integers(320, 20_000), st.floats(0, 1), st.sampled_from(["int8", "fp8"]), st.integers(0, 4))
def test_every_layout_stays_within_the_budget_and_holds_the_longest(
    num_slots: int, share: float, kv_type: flags.KvType, full_precision_layers: int
) -> None:
    kv = memory(num_slots)
    in_force = replace(INT8, kv_type=kv_type, full_precision_layers=full_precision_layers)
    layout = kv.layout(in_force, share, [[0] * 100])
    assert layout.num_bytes <= kv.budget_bytes
    assert layout.counts.quantized * 16 >= 300
    assert layout.counts.full * 16 >= layout.max_full_prefix_tokens
    kv.carve(layout)


@given(st.integers(0, 100))
def test_a_share_is_of_so_many_blocks(num_full: int) -> None:
    kv = memory()
    block = kv.layout(INT8)
    share = kv_memory.share_of(num_full, block, kv.budget_bytes)
    full, quantized = block.block_bytes(Format.FULL), block.block_bytes(Format.QUANTIZED)
    num_blocks = kv.budget_bytes / (share * full + (1 - share) * quantized)
    assert share * num_blocks == pytest.approx(num_full)


def test_a_layout_is_the_same_only_while_every_byte_keeps_its_meaning() -> None:
    for changes in ({"kv_type": "int8"}, {"full_precision_layers": 1}, {"paged_kv": False}):
        assert not kv_memory.is_same_layout(flags.defaults(), replace(flags.defaults(), **changes))
    others = replace(flags.defaults(), prefix_cache=None, kv_tiering=True, chunk_tokens=None)
    assert kv_memory.is_same_layout(flags.defaults(), others)
