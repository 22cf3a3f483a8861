"""The compiled kernel against one query at a time in fp64: stored types, odd heads, windows, threads, NaN."""

import ctypes
from collections.abc import Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from firsttoken_kernels import attention, attention_decode, native
from kernels import caches
from kernels.steps import CPU, TOLERANCE, assert_as_reference, build

pytestmark = pytest.mark.skipif(not native.instruction_set(), reason="neither AVX2 nor AVX-512 here")


@pytest.fixture(
    scope="module",
    autouse=True,
    params=[
        pytest.param(
            "avx512", marks=pytest.mark.skipif(native.instruction_set() != "avx512", reason="no AVX-512")
        ),
        "avx2",
    ],
)
def of_each_instruction_set(request: pytest.FixtureRequest) -> Iterator[None]:
    """A machine with AVX-512 runs the kernels for AVX2 too."""
    with pytest.MonkeyPatch.context() as patch:
        library = ctypes.CDLL(str(native.FOLDER / f"{request.param}.so"))
        patch.setattr(native, "instruction_set", lambda: request.param)
        patch.setattr(native, "library", lambda: library)
        yield


def test_this_machine_has_its_kernels() -> None:
    assert attention_decode.can_run(CPU, torch.bfloat16, 9, 64)


def test_what_it_cannot_do_it_says() -> None:
    assert not attention_decode.can_run(torch.device("cuda"), torch.bfloat16, 9, 64)
    assert not attention_decode.can_run(CPU, torch.float64, 9, 64)
    assert not attention_decode.can_run(CPU, torch.float32, 9, 20), "no whole vectors"
    assert not attention_decode.can_run(CPU, torch.float32, 512, 128), "more than its stack"


@pytest.mark.parametrize("kind", caches.KINDS)
@pytest.mark.parametrize("dtype", list(TOLERANCE))
def test_every_stored_type(kind: str, dtype: torch.dtype) -> None:
    """Contexts that end anywhere in a tile, one of them in both formats."""
    queries, cache, plan = build(
        [1, 15, 16, 17, 31, 70], [], block_size=8, head_dim=32, dtype=dtype, kind=kind, is_ragged=True
    )
    assert_as_reference(queries, cache, plan)


@pytest.mark.parametrize("head_dim", [16, 48, 64, 80, 128, 256])
def test_every_width_of_a_head(head_dim: int) -> None:
    queries, cache, plan = build([33, 5], [], block_size=16, head_dim=head_dim, is_ragged=True)
    assert_as_reference(queries, cache, plan)


@pytest.mark.parametrize(("heads", "kv_heads"), [(1, 1), (9, 3), (14, 2), (8, 1), (5, 5), (12, 3)])
def test_every_number_of_heads(heads: int, kv_heads: int) -> None:
    queries, cache, plan = build(
        [40, 3], [], block_size=16, head_dim=16, heads=heads, kv_heads=kv_heads, is_ragged=True
    )
    assert_as_reference(queries, cache, plan)


@pytest.mark.parametrize("window", [1, 7, 16, 33, 500])
def test_a_window_sees_only_its_last_keys(window: int) -> None:
    queries, cache, plan = build(
        [1, 40, 90], [], block_size=16, head_dim=16, windows=(window,), kind="int8", is_ragged=True
    )
    assert_as_reference(queries, cache, plan, window=window)


@pytest.mark.parametrize("softcap", [0.5, 30.0])
def test_scores_are_capped(softcap: float) -> None:
    queries, cache, plan = build([1, 40], [], block_size=16, head_dim=16, is_ragged=True)
    assert_as_reference(40 * queries, cache, plan, softcap=softcap)


def test_beside_prompts_it_computes_the_decodes_only() -> None:
    queries, cache, plan = build([3, 50], [(9, 9), (20, 37)], block_size=16, head_dim=16, is_ragged=True)
    assert_as_reference(queries, cache, plan)


def test_queries_with_gaps_are_read_right() -> None:
    queries, cache, plan = build([3, 50], [], block_size=16, head_dim=16, is_ragged=True)
    apart = torch.full((2, 6, 32), float("nan"))
    apart[..., ::2] = queries
    expected = attention.attention(queries, cache, plan, 0.3)
    assert torch.equal(attention.attention(apart[..., ::2], cache, plan, 0.3), expected)


@pytest.mark.parametrize("threads", [2, 3])
def test_threads_share_the_rows_and_change_no_bit(threads: int) -> None:
    queries, cache, plan = build(
        [900, 3, 5, 400, 600, 2], [], block_size=16, head_dim=16, kind="int8", is_ragged=True
    )
    before = torch.get_num_threads()
    alone = attention.attention(queries, cache, plan, 0.3)
    try:
        torch.set_num_threads(threads)
        assert torch.equal(attention.attention(queries, cache, plan, 0.3), alone)
    finally:
        torch.set_num_threads(before)


def test_a_row_depends_on_no_other() -> None:
    queries, cache, plan = build([70, 20], [], block_size=16, head_dim=64, is_ragged=True)
    together = attention.attention(queries, cache, plan, 0.3)
    queries[1] *= 5
    assert torch.equal(attention.attention(queries, cache, plan, 0.3)[0], together[0])


@pytest.mark.parametrize("place", [0, 20, 39])
def test_what_is_not_a_number_shows(place: int) -> None:
    for value in (float("nan"), float("inf")):
        queries, cache, plan = build([40, 40], [], block_size=8, head_dim=16, is_ragged=True)
        assert plan.full.ragged is not None
        cache.full[0, plan.full.ragged.rows()[1][place], 0, 3] = value
        out = attention.attention(queries.abs(), cache, plan, 0.3)
        assert out[0].isfinite().all()
        assert out[1, :3].isnan().all(), "the three heads of the first KV head"
        assert out[1, 3:].isfinite().all()


def test_scores_far_apart_neither_overflow_nor_vanish() -> None:
    queries, cache, plan = build([200], [], block_size=16, head_dim=16, is_ragged=True)
    assert_as_reference(300 * queries, cache, plan)


@settings(max_examples=30, deadline=None)
@given(
    contexts=st.lists(st.integers(1, 100), min_size=1, max_size=6),
    block_size=st.sampled_from([1, 8, 16]),
    kind=st.sampled_from(caches.KINDS),
    seed=st.integers(0, 1000),
)
def test_any_step(contexts: list[int], block_size: int, kind: str, seed: int) -> None:
    queries, cache, plan = build(
        contexts, [], block_size=block_size, head_dim=16, kind=kind, seed=seed, is_ragged=True
    )
    assert_as_reference(queries, cache, plan)
