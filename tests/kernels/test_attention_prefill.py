"""The compiled kernel for prompts against one query at a time in fp64, and beside the library's attention.

Outside the tests of `can_run` nothing here runs on a CPU without AMX: there is no kernel to test.
"""

import functools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from firsttoken_kernels import attention, attention_prefill, native, paged_cache
from kernels import caches, steps
from kernels.steps import CPU, build

BF16 = torch.bfloat16
HAS_TILES = attention_prefill.can_run(CPU, BF16, 64)
needs_tiles = pytest.mark.skipif(not HAS_TILES, reason="no AMX here")
assert_as_reference = functools.partial(steps.assert_as_reference, scale=0.125)


def test_what_it_cannot_do_it_says() -> None:
    assert not attention_prefill.can_run(torch.device("cuda"), BF16, 64)
    assert not attention_prefill.can_run(CPU, torch.float32, 64)
    assert not attention_prefill.can_run(CPU, BF16, 80), "no whole tiles"


def test_kernels_that_are_switched_off_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "library", lambda: None)
    attention_prefill._has_tiles.cache_clear()
    try:
        assert not attention_prefill.can_run(CPU, BF16, 64)
    finally:
        attention_prefill._has_tiles.cache_clear()


@pytest.mark.skipif(not HAS_TILES, reason="no AMX here")
def test_the_system_is_asked_for_tiles() -> None:
    library = native.library()
    assert library is not None
    assert library.firsttoken_has_tiles() == 1


def built(
    contexts: list[int], prefills: list[tuple[int, int]], **changes: object
) -> tuple[torch.Tensor, paged_cache.LayerCache, attention.Plan]:
    given = {"block_size": 8, "head_dim": 64, "dtype": BF16, "kind": "full", "are_prefills_ragged": True}
    return build(contexts, prefills, **(given | changes))  # type: ignore[arg-type]


@needs_tiles
@pytest.mark.parametrize(
    "prefills",
    [
        [(1, 1)],
        [(15, 15), (16, 16), (17, 17)],
        [(33, 33), (1, 90), (31, 64)],
        [(40, 1_050)],
        [(100, 100), (5, 1_024), (5, 1_025)],
    ],
)
def test_chunks_of_any_length_after_any_context(prefills: list[tuple[int, int]]) -> None:
    """Units of 32 rows and blocks of 1,024 keys are begun and filled."""
    assert_as_reference(*built([], prefills))


@needs_tiles
@pytest.mark.parametrize("head_dim", [32, 64, 96, 128, 256, 512])
def test_every_width_of_a_head(head_dim: int) -> None:
    assert_as_reference(*built([], [(20, 33), (7, 7)], head_dim=head_dim))


@needs_tiles
@pytest.mark.parametrize(("heads", "kv_heads"), [(1, 1), (9, 3), (14, 2), (8, 1), (5, 5)])
def test_every_number_of_heads(heads: int, kv_heads: int) -> None:
    assert_as_reference(*built([], [(20, 33), (7, 7)], heads=heads, kv_heads=kv_heads))


@needs_tiles
@pytest.mark.parametrize("window", [1, 7, 16, 33, 500])
def test_a_window_sees_only_its_last_keys(window: int) -> None:
    queries, cache, plan = built([], [(70, 70), (20, 90), (3, 600)], windows=(window,))
    assert_as_reference(queries, cache, plan, window=window)


@needs_tiles
@pytest.mark.parametrize("softcap", [0.5, 30.0])
def test_scores_are_capped(softcap: float) -> None:
    queries, cache, plan = built([], [(20, 37)])
    assert_as_reference(40 * queries, cache, plan, softcap=softcap)


@needs_tiles
@pytest.mark.parametrize("kind", caches.KINDS)
@pytest.mark.parametrize("window", [None, 7, 33])
def test_every_stored_type(kind: str, window: int | None) -> None:
    """Contexts of which a part, from any block on, is compact."""
    queries, cache, plan = built([3], [(9, 9), (20, 37), (70, 300)], kind=kind, windows=(7, 33))
    assert_as_reference(queries, cache, plan, window=window)


@needs_tiles
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("which", [0, 1], ids=["key", "value"])
def test_what_is_not_a_number_shows_from_its_own_token_on(which: int, value: float) -> None:
    queries, cache, plan = built([], [(40, 50), (40, 40)], windows=(7,))
    cache.full[which, plan.prefills[0].context_slots[30], 0, 3] = value
    for window, after in ((None, 40), (7, 27)):
        out = attention.attention(queries.abs(), cache, plan, 0.125, window=window)
        assert out[20:after, :3].isnan().all(), "the three heads of the first KV head"
        out[20:after, :3] = 0
        assert out.isfinite().all()


@needs_tiles
def test_decodes_are_computed_beside() -> None:
    queries, cache, plan = built([3, 50], [(5, 5), (7, 7), (20, 37)], kind="int8", is_ragged=True, seed=1)
    assert plan.full.prefills
    assert_as_reference(queries, cache, plan)


@needs_tiles
def test_it_is_as_near_to_the_truth_as_the_library() -> None:
    queries, cache, plan = built([], [(90, 200)])
    library = build([], [(90, 200)], block_size=8, head_dim=64, dtype=BF16, kind="full")[2]
    expected = attention.reference(queries.double(), cache, plan, 0.125)
    ours, theirs = (
        (attention.attention(queries, cache, each, 0.125).double() - expected).square().mean().sqrt()
        for each in (plan, library)
    )
    assert ours <= 1.02 * theirs


@needs_tiles
def test_threads_share_the_chunks_and_change_no_bit() -> None:
    queries, cache, plan = built([], [(100, 100), (60, 600), (5, 5), (150, 400)])
    before = torch.get_num_threads()
    alone = attention.attention(queries, cache, plan, 0.125)
    try:
        torch.set_num_threads(3)
        assert torch.equal(attention.attention(queries, cache, plan, 0.125), alone)
    finally:
        torch.set_num_threads(before)


@needs_tiles
def test_the_library_s_products_are_right_after_it() -> None:
    """Tiles have a shape that is the thread's; whoever uses them next finds his own again."""
    queries, cache, plan = built([], [(33, 33)])
    torch.manual_seed(1)
    x, weight = torch.randn(48, 256).to(BF16), torch.randn(128, 256).to(BF16)
    before = torch.nn.functional.linear(x, weight)
    for _ in range(3):
        attention.attention(queries, cache, plan, 0.125)
        assert torch.equal(torch.nn.functional.linear(x, weight), before)


@needs_tiles
def test_what_is_not_a_number_stays_in_its_sequence() -> None:
    queries, cache, plan = built([], [(40, 40), (40, 40)])
    cache.full[0, plan.prefills[1].context_slots[10], 0, 3] = float("nan")
    out = attention.attention(queries, cache, plan, 0.125)
    assert out[:40].isfinite().all()
    assert out[50:, :3].isnan().all(), "the three heads of the first KV head"
    assert out[40:, 3:].isfinite().all()


@needs_tiles
def test_scores_far_apart_neither_overflow_nor_vanish() -> None:
    queries, cache, plan = built([], [(50, 200)])
    assert_as_reference(300 * queries, cache, plan)


@needs_tiles
@settings(max_examples=20, deadline=None)
@given(
    prefills=st.lists(st.tuples(st.integers(1, 60), st.integers(0, 80)), min_size=1, max_size=4),
    block_size=st.sampled_from([1, 8, 16]),
    seed=st.integers(0, 1000),
)
def test_any_step(prefills: list[tuple[int, int]], block_size: int, seed: int) -> None:
    shapes = [(tokens, tokens + earlier) for tokens, earlier in prefills]
    assert_as_reference(*built([], shapes, block_size=block_size, seed=seed))
