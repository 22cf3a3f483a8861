"""Bytes per token by the formula, and one budget split between two formats."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firsttoken_runtime.cache import layout as cache_layout
from firsttoken_runtime.cache.formats import Counts, Format

SMOLLM2 = {"num_layers": 30, "num_kv_heads": 3, "head_dim": 64}


def smollm2(itemsize: int, kv_type: cache_layout.KvType = "int8") -> cache_layout.Layout:
    shape = cache_layout.Shape(**SMOLLM2, itemsize=itemsize)
    kept = 0 if kv_type == "full" else 2
    return cache_layout.within(600 * 1024**2, shape, 16, 8192, kv_type=kv_type, full_precision_layers=kept)


@pytest.mark.parametrize("itemsize", [2, 4])
def test_bytes_of_a_known_model(itemsize: int) -> None:
    layout = smollm2(itemsize)
    assert layout.shape.half_token_bytes == 23_040
    assert layout.token_bytes(Format.FULL) == 30 * 2 * 3 * 64 * itemsize
    # 28 layers of one byte an element and a scale of two bytes a head; 2 layers in 16 bit.
    assert layout.token_bytes(Format.QUANTIZED) == 28 * 2 * 3 * (64 + 2) + 2 * 2 * 3 * 64 * 2 == 12_624
    assert layout.private_token_bytes / layout.shape.half_token_bytes < 1 - 0.45
    assert layout.shape.half_token_bytes / layout.private_token_bytes > 1.8


def test_the_sentence_of_a_known_model() -> None:
    said = smollm2(4).sentence()
    assert "2 x 3 KV heads x (28 layers x (64 + 2) + 2 layers x 64 x 2) = 12,624 bytes" in said
    assert "45.2 % less than 23,040 in 16 bit, so 1.83 times the tokens" in said
    said = smollm2(4, "full").sentence()
    assert "KV cache in 32 bit: a token takes 2 x 30 layers x 3 KV heads x 64 x 4 = 46,080 bytes" in said


def test_without_quantization_all_is_one_pool() -> None:
    layout = smollm2(2, "full")
    assert layout.counts == Counts(600 * 1024**2 // (16 * 23_040), 0)
    assert layout.num_full_slots is None
    assert layout.private_token_bytes == 23_040


SHAPES = st.builds(
    cache_layout.Shape,
    num_layers=st.integers(1, 40),
    num_kv_heads=st.integers(1, 9),
    head_dim=st.integers(1, 70).map(lambda half: 2 * half),
    itemsize=st.sampled_from([2, 4]),
)


@settings(deadline=None)
@given(
    shape=SHAPES,
    block=st.sampled_from([1, 5, 16, 500]),
    max_model_len=st.integers(1, 3000),
    spare=st.integers(0, 10**7),
    kv_type=st.sampled_from(["int8", "fp8"]),
    share=st.floats(0, 1),
    data=st.data(),
)
def test_every_split_has_room_for_the_longest_sequence(
    shape: cache_layout.Shape,
    block: int,
    max_model_len: int,
    spare: int,
    kv_type: cache_layout.KvType,
    share: float,
    data: st.DataObject,
) -> None:
    kept = data.draw(st.integers(0, shape.num_layers - 1))
    longest = -(-max_model_len // block)
    full_block = block * 2 * shape.num_layers * shape.num_kv_heads * shape.head_dim * shape.itemsize
    budget = longest * full_block + spare  # as much as is needed without quantization
    layout = cache_layout.within(
        budget, shape, block, max_model_len, kv_type=kv_type, full_precision_layers=kept, full_share=share
    )
    assert layout.num_bytes <= budget
    assert layout.counts.quantized >= longest
    assert layout.counts.full * block >= layout.max_full_prefix_tokens
    assert layout.max_full_prefix_tokens % block == 0
    assert layout.max_full_prefix_tokens <= max_model_len // 2
    if spare > longest * layout.block_bytes(Format.QUANTIZED):
        assert layout.max_full_prefix_tokens == max_model_len // 2 // block * block
    assert budget - layout.num_bytes < layout.block_bytes(Format.QUANTIZED), "room for one more"
    again = cache_layout.within(
        budget, shape, block, max_model_len, kv_type=kv_type, full_precision_layers=kept, full_share=0.0
    )
    assert again.max_full_prefix_tokens == layout.max_full_prefix_tokens, "precision follows no demand"


def test_the_share_that_is_asked_for() -> None:
    shape = cache_layout.Shape(**SMOLLM2, itemsize=2)

    def counts(share: float) -> Counts:
        return cache_layout.within(
            10**9, shape, 16, 2048, kv_type="int8", full_precision_layers=2, full_share=share
        ).counts

    for share in (0.2, 0.5, 0.9):
        assert counts(share).full / sum(counts(share)) == pytest.approx(share, abs=0.01)
    assert counts(0.0).full == 64, "half of the longest sequence"
    assert counts(1.0).quantized >= 128, "the longest sequence"


@pytest.mark.parametrize("kv_type", ["full", "int8"])
def test_too_little_for_one_sequence(kv_type: cache_layout.KvType) -> None:
    shape = cache_layout.Shape(**SMOLLM2, itemsize=2)
    with pytest.raises(cache_layout.DoesNotFit, match=r"2,048 tokens needs .* 1,000,000 are there"):
        cache_layout.within(1_000_000, shape, 16, 2048, kv_type=kv_type)


def test_a_layout_that_quantizes_nothing_is_our_mistake() -> None:
    shape = cache_layout.Shape(2, 1, 8, 4)
    with pytest.raises(AssertionError, match="none would be quantized"):
        cache_layout.within(10**6, shape, 16, 64, kv_type="int8", full_precision_layers=2)
