"""Paged attention against one-query-at-a-time fp64, with every slot that nobody wrote full of NaN."""

import functools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from firsttoken_kernels import attention, attention_decode
from kernels import caches, steps
from kernels.steps import CPU, build

assert_as_reference = functools.partial(steps.assert_as_reference, tolerance=1e-5)

CASES = [
    pytest.param([1], [], id="one token of context"),
    pytest.param([5, 31, 16, 17], [], id="decodes of odd lengths"),
    pytest.param([16, 16], [], id="decodes of equal lengths"),
    pytest.param([], [(1, 1)], id="prompt of one token"),
    pytest.param([], [(33, 33), (16, 16)], id="whole prompts"),
    pytest.param([], [(7, 40), (1, 17)], id="chunks with history"),
    pytest.param([3, 50], [(9, 9), (20, 37)], id="mixed step"),
]


@pytest.mark.parametrize("block_size", [1, 16, 64])
@pytest.mark.parametrize(("decodes", "prefills"), CASES)
def test_matches_the_reference(decodes: list[int], prefills: list[tuple[int, int]], block_size: int) -> None:
    queries, cache, plan = build(decodes, prefills, block_size=block_size)
    assert_as_reference(queries, cache, plan, 0.3)


@pytest.mark.parametrize("is_ragged", [False, True])
@pytest.mark.parametrize(("decodes", "prefills"), CASES)
def test_rows_behind_the_queries_are_zero(
    decodes: list[int], prefills: list[tuple[int, int]], is_ragged: bool
) -> None:
    is_compiled = is_ragged and attention_decode.can_run(CPU, torch.float32, 6, 16)
    queries, cache, plan = build(decodes, prefills, block_size=16, head_dim=16, is_ragged=is_compiled)
    padded = attention.attention(queries, cache, plan, 0.3, num_rows=len(queries) + 3)
    assert torch.equal(padded[: len(queries)], attention.attention(queries, cache, plan, 0.3))
    assert torch.equal(padded[len(queries) :], torch.zeros(3, 6, 16))


@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 4), (8, 1), (9, 3)])
def test_head_groups(heads: int, kv_heads: int) -> None:
    queries, cache, plan = build([21, 4], [(6, 19)], block_size=16, heads=heads, kv_heads=kv_heads)
    torch.testing.assert_close(
        attention.attention(queries, cache, plan, 0.3),
        attention.reference(queries, cache, plan, 0.3),
        rtol=1e-5,
        atol=1e-5,
    )


@pytest.mark.parametrize("window", [None, 9])
@pytest.mark.parametrize("prefills", [[(33, 33)], [(7, 40)], [(7, 40), (12, 12)]])
def test_slots_one_behind_the_other_are_read_in_place(
    prefills: list[tuple[int, int]], window: int | None
) -> None:
    queries, cache, plan = build([], prefills, block_size=16, windows=(9,), is_scattered=False)
    assert all(chunk.context.first is not None for chunk in plan.layout(window).prefills)
    torch.testing.assert_close(
        attention.attention(queries, cache, plan, 0.3, window=window),
        attention.reference(queries, cache, plan, 0.3, window=window),
        rtol=1e-5,
        atol=1e-5,
    )


@pytest.mark.parametrize("invariant", [False, True], ids=["normal", "invariant"])
@pytest.mark.parametrize("softcap", [None, 1.5])
@pytest.mark.parametrize("window", [None, 1, 7, 16, 33, 5000])
@pytest.mark.parametrize(("decodes", "prefills"), CASES)
def test_windows_and_soft_capping(
    decodes: list[int],
    prefills: list[tuple[int, int]],
    window: int | None,
    softcap: float | None,
    invariant: bool,
) -> None:
    queries, cache, plan = build(
        decodes, prefills, block_size=16, windows=(1, 7, 16, 33, 5000), invariant=invariant
    )
    assert_as_reference(queries, cache, plan, 0.9, window=window, softcap=softcap)


@pytest.mark.parametrize("kind", caches.KINDS)
@pytest.mark.parametrize("invariant", [False, True], ids=["normal", "invariant"])
@pytest.mark.parametrize(("window", "softcap"), [(None, None), (7, None), (33, 1.5), (None, 1.5)])
@pytest.mark.parametrize(("decodes", "prefills"), CASES)
def test_both_formats_in_one_context(
    decodes: list[int],
    prefills: list[tuple[int, int]],
    window: int | None,
    softcap: float | None,
    invariant: bool,
    kind: str,
) -> None:
    for seed in range(3):
        queries, cache, plan = build(
            decodes, prefills, block_size=4, windows=(7, 33), invariant=invariant, kind=kind, seed=seed
        )
        assert_as_reference(queries, cache, plan, 0.9, window=window, softcap=softcap)


@pytest.mark.parametrize("kind", caches.KINDS)
@pytest.mark.parametrize("invariant", [False, True], ids=["normal", "invariant"])
@pytest.mark.parametrize("is_scattered", [False, True], ids=["in a row", "scattered"])
@pytest.mark.parametrize(
    ("heads", "kv_heads", "head_dim"), [(4, 4, 6), (8, 1, 10), (9, 3, 64), (7, 7, 2), (1, 1, 18), (10, 2, 80)]
)
def test_shapes_of_both_formats(
    heads: int, kv_heads: int, head_dim: int, is_scattered: bool, invariant: bool, kind: str
) -> None:
    for block_size in (1, 5, 16):
        queries, cache, plan = build(
            [21, 4],
            [(6, 19), (40, 40)],
            block_size=block_size,
            heads=heads,
            kv_heads=kv_heads,
            head_dim=head_dim,
            is_scattered=is_scattered,
            invariant=invariant,
            kind=kind,
            seed=block_size,
        )
        torch.testing.assert_close(
            attention.attention(queries, cache, plan, 0.3),
            attention.reference(queries, cache, plan, 0.3),
            rtol=1e-5,
            atol=1e-5,
        )


@pytest.mark.parametrize("kind", caches.KINDS)
def test_both_formats_in_bf16(kind: str) -> None:
    queries, cache, plan = build([40, 9], [(12, 30)], block_size=4, dtype=torch.bfloat16, kind=kind)
    actual = attention.attention(queries, cache, plan, 0.3)
    assert actual.dtype == torch.bfloat16
    torch.testing.assert_close(actual, attention.reference(queries, cache, plan, 0.3), rtol=0.03, atol=0.03)


def test_a_window_reads_only_what_it_sees() -> None:
    _, _, plan = build([500, 31], [(20, 300)], block_size=16, windows=(24,))
    layout = plan.layout(24)
    assert [batch.slots.shape[1] for batch in layout.decodes] == [24]
    assert [len(chunk.context_slots) for chunk in layout.prefills] == [20 + 23]


def test_soft_capping_in_bf16() -> None:
    queries, cache, plan = build([40, 9], [(12, 30)], block_size=16, dtype=torch.bfloat16)
    actual = attention.attention(queries, cache, plan, 0.9, softcap=2.0)
    expected = attention.reference(queries, cache, plan, 0.9, softcap=2.0)
    torch.testing.assert_close(actual, expected, rtol=0.03, atol=0.03)


def test_bf16_stays_within_its_rounding() -> None:
    queries, cache, plan = build([40, 9], [(12, 30)], block_size=16, dtype=torch.bfloat16)
    actual = attention.attention(queries, cache, plan, 0.3)
    assert actual.dtype == torch.bfloat16
    torch.testing.assert_close(actual, attention.reference(queries, cache, plan, 0.3), rtol=0.03, atol=0.03)


def test_a_chunk_sees_only_up_to_itself() -> None:
    queries, cache, plan = build([], [(4, 12)], block_size=16)
    before = attention.attention(queries, cache, plan, 0.3)
    cache.full[:, plan.prefills[0].context_slots[-1]] += 5.0  # the last token
    after = attention.attention(queries, cache, plan, 0.3)
    assert torch.equal(before[:3], after[:3])
    assert not torch.equal(before[3], after[3])


def test_own_slots_are_those_of_the_steps_own_tokens() -> None:
    _, _, plan = build([5, 1], [(3, 8)], block_size=4)
    assert plan.own_slots.all.tolist() == [
        plan.decodes[0].slots[0, 4].item(),
        plan.decodes[0].slots[1, 0].item(),
        *plan.prefills[0].context_slots[5:].tolist(),
    ]


def test_contexts_of_very_different_lengths_are_not_padded_to_the_longest() -> None:
    contexts = [9, 3000, 12, 1, 2900] + [15] * 20
    queries, cache, plan = build(contexts, [(2, 5)], block_size=16)
    assert len(plan.decodes) == 2
    assert sum(batch.slots.numel() for batch in plan.decodes) < 2 * sum(contexts)
    torch.testing.assert_close(
        attention.attention(queries, cache, plan, 0.3),
        attention.reference(queries, cache, plan, 0.3),
        rtol=1e-5,
        atol=1e-5,
    )


@given(st.lists(st.integers(1, 9000), max_size=70))
def test_batches_hold_every_row_once_and_bound_the_padding(contexts: list[int]) -> None:
    groups = attention.batches(contexts)
    assert sorted(row for group in groups for row in group) == list(range(len(contexts)))
    for group in groups:
        lengths = [contexts[row] for row in group]
        assert len(group) * max(lengths) <= max(2 * sum(lengths), 4096)
