"""Sizing: what fits, what does not, and which option the message names."""

from dataclasses import replace
from typing import Any

import pytest

from firsttoken_runtime.cache import pool

MIB = 1024**2
FACTS = pool.Facts(
    memory_limit_bytes=2048 * MIB,
    available_bytes=2000 * MIB,
    memory_fraction=0.9,
    weight_bytes=269 * MIB,
    kv_bytes_per_token=23_040,
    trained_length=8192,
    max_num_seqs=64,
    block_size_tokens=16,
    max_model_len=None,
    kv_blocks=None,
    is_cpu=True,
)


def test_the_rest_of_the_fraction_becomes_slots() -> None:
    size = pool.decide(FACTS)
    budget = int(2048 * MIB * 0.9) - 269 * MIB - pool.RESERVE_BYTES
    assert size.num_slots == budget // 23_040 // 16 * 16
    assert size.max_model_len == 8192


def test_what_others_use_is_not_ours() -> None:
    assert pool.decide(replace(FACTS, available_bytes=1500 * MIB)).num_slots < pool.decide(FACTS).num_slots


def test_a_cpu_takes_no_more_than_can_be_in_use() -> None:
    large = replace(FACTS, memory_limit_bytes=10**12, available_bytes=10**12)
    assert pool.decide(replace(large, max_num_seqs=2, max_model_len=1000)).num_slots == 2000
    assert pool.decide(large).num_slots * 23_040 <= pool.CPU_CAP_BYTES
    assert pool.decide(replace(large, is_cpu=False)).num_slots > pool.CPU_CAP_BYTES // 23_040


def test_a_small_pool_shortens_the_automatic_context() -> None:
    size = pool.decide(replace(FACTS, kv_blocks=40))
    assert size == pool.Size(640, 640)


def test_explicit_length_is_kept_and_fits_in_whole_blocks() -> None:
    size = pool.decide(replace(FACTS, max_model_len=1001, kv_blocks=63))
    assert size == pool.Size(1008, 1001)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"memory_limit_bytes": 900 * MIB}, ["--memory-fraction 0.90", "spec.resources.memory", "MiB"]),
        ({"available_bytes": 800 * MIB}, ["800 MiB available"]),
        ({"kv_blocks": 100_000}, ["lower --kv-blocks"]),
        ({"kv_blocks": 10, "max_model_len": 1000}, ["--kv-blocks 10", "--max-model-len"]),
        ({"kv_blocks": 10}, ["raise --kv-blocks"]),
    ],
)
def test_too_little_memory_names_the_option(change: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(pool.NotEnough) as error:
        pool.decide(replace(FACTS, **change))
    for word in words:
        assert word in str(error.value)


def test_longer_than_trained_is_refused() -> None:
    with pytest.raises(pool.TooLong, match="--max-model-len 9000 is above the 8192"):
        pool.decide(replace(FACTS, max_model_len=9000))


def test_the_reference_formula_rounds_up() -> None:
    assert pool.reference_blocks(32, 172.0, 16) == 344
    assert pool.reference_blocks(3, 50.1, 16) == 10
    assert pool.reference_blocks(0, 0.0, 16) == 0


@pytest.mark.parametrize(("paged", "expected"), [(True, (62, 16)), (False, (2, 400))])
def test_partition_cuts_the_same_slots(paged: bool, expected: tuple[int, int]) -> None:
    assert pool.partition(1000, 16, 400, paged=paged) == expected
