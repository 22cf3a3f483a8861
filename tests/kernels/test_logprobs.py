"""Logprobs, ranks and tops against one row of plain Python, with ties and with rows that are not finite."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from firsttoken_kernels import logprobs


@settings(max_examples=150, deadline=None)
@given(
    logits=st.lists(st.integers(-8, 8).map(lambda n: n / 2), min_size=1, max_size=12),
    chosen=st.integers(0, 11),
    num_top=st.integers(0, 14),
)
def test_matches_plain_python(logits: list[float], chosen: int, num_top: int) -> None:
    chosen %= len(logits)
    neighbour = logits[::-1]
    scores = logprobs.score(torch.tensor([neighbour, logits]), [0, chosen], [3, num_top])
    expected = logprobs.reference(logits, chosen, num_top)
    found = scores[1]
    assert found is not None
    assert (found.rank, found.top_ids) == (expected.rank, expected.top_ids)
    assert found.logprob == pytest.approx(expected.logprob, abs=1e-12)
    assert found.top_logprobs == pytest.approx(expected.top_logprobs, abs=1e-12)


def test_the_top_starts_with_rank_one() -> None:
    (score,) = logprobs.score(torch.tensor([[1.0, 4.0, 4.0, 0.0]]), [2], [2])
    assert score is not None
    assert (score.rank, score.top_ids) == (2, [1, 2])
    assert score.logprob == score.top_logprobs[1] < 0


def test_a_row_that_is_not_finite_has_no_scores() -> None:
    rows = torch.tensor([[1.0, float("nan")], [float("inf"), 0.0], [1.0, 0.0]])
    first, second, third = logprobs.score(rows, [0, 0, 0], [1, 2, 0])
    assert first is None
    assert second is None
    assert third is not None
    assert third.top_ids == []


def test_a_row_does_not_depend_on_its_neighbours_nor_on_threads() -> None:
    logits = torch.randn(11, 40_013, generator=torch.Generator().manual_seed(3)) * 3
    chosen = [17 * row for row in range(11)]
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        together = logprobs.score(logits, chosen, [5] * 11)
        alone = [logprobs.score(logits[row : row + 1], [chosen[row]], [5])[0] for row in range(11)]
        torch.set_num_threads(1)
        on_one = logprobs.score(logits, chosen, [5] * 11)
    finally:
        torch.set_num_threads(threads)
    assert together == alone == on_one
