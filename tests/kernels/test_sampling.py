"""Token choice against one row of plain Python, and as a distribution."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from firsttoken_kernels import sampling


def filters(
    temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0
) -> dict[str, float]:
    return {"temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p}


def pick(logits: list[list[float]], rows: list[dict[str, float]], uniforms: list[float]) -> list[int]:
    batch = sampling.Filters(
        temperatures=torch.tensor([row["temperature"] for row in rows], dtype=torch.float64),
        top_k=torch.tensor([int(row["top_k"]) for row in rows]),
        top_p=torch.tensor([row["top_p"] for row in rows], dtype=torch.float64),
        min_p=torch.tensor([row["min_p"] for row in rows], dtype=torch.float64),
    )
    picked: list[int] = sampling.sample(
        torch.tensor(logits), batch, torch.tensor(uniforms, dtype=torch.float64)
    ).tolist()
    return picked


def test_greedy_takes_the_first_of_equal_largest() -> None:
    assert sampling.greedy(torch.tensor([[1.0, 3.0, 3.0], [0.0, -1.0, -2.0]])).tolist() == [1, 0]


@settings(max_examples=150, deadline=None)
@given(
    logits=st.lists(st.integers(-40, 40).map(lambda n: n / 4), min_size=1, max_size=12),
    temperature=st.sampled_from([0.25, 0.5, 1.0, 2.0]),
    top_k=st.sampled_from([0, 1, 2, 5, 100]),
    top_p=st.sampled_from([0.11, 0.53, 0.97, 1.0]),
    min_p=st.sampled_from([0.0, 0.013, 0.37, 1.0]),
    uniform=st.integers(0, 996).map(lambda n: n / 997),
)
def test_matches_plain_python(
    logits: list[float], temperature: float, top_k: int, top_p: float, min_p: float, uniform: float
) -> None:
    row = filters(temperature, top_k, top_p, min_p)
    # A neighbour with other filters must not matter.
    both = pick([logits, logits[::-1]], [row, filters(top_k=1)], [uniform, 0.5])
    assert both[0] == sampling.reference(logits, temperature, top_k, top_p, min_p, uniform)


def test_ties_go_to_the_lower_id() -> None:
    assert pick([[2.0, 2.0, 2.0]], [filters(top_k=2)], [0.0]) == [0]
    assert pick([[2.0, 2.0, 2.0]], [filters(top_k=2)], [0.999999]) == [1]


def test_masked_tokens_are_never_drawn() -> None:
    minus = float("-inf")
    for uniform in (0.0, 0.5, np.nextafter(1.0, 0.0)):
        assert pick([[minus, 0.0, minus]], [filters()], [uniform]) == [1]


def test_largest_uniform_stays_in_the_kept_set() -> None:
    almost_one = float(np.nextafter(1.0, 0.0))
    assert pick([[0.0] * 1000], [filters(top_k=999)], [almost_one]) == [998]


@pytest.mark.parametrize("spread", [0.0, 0.3, 1.0, 6.0])
@pytest.mark.parametrize(
    "row",
    [
        filters(),
        filters(0.3),
        filters(top_k=1),
        filters(top_k=50),
        filters(top_k=1023),
        filters(top_k=1024),
        filters(top_k=3000),
        filters(top_k=10**6),
        filters(top_p=0.5),
        filters(1.7, top_p=0.97),
        filters(min_p=0.05),
        filters(min_p=0.9),
        filters(0.8, top_k=900, top_p=0.95, min_p=0.01),
    ],
)
def test_a_large_vocabulary_gives_what_plain_python_gives(spread: float, row: dict[str, float]) -> None:
    """Flat rows have more equal tokens than the likeliest part holds; steep ones are cut early."""
    generator = torch.Generator().manual_seed(4)
    logits = ((torch.randn(5000, generator=generator) * spread * 4).round() / 4).tolist()
    uniforms = [0.0, 0.13, 0.5, 0.87, 0.997, 0.9999]
    picked = pick([logits] * len(uniforms), [row] * len(uniforms), uniforms)
    assert picked == [
        sampling.reference(logits, row["temperature"], int(row["top_k"]), row["top_p"], row["min_p"], uniform)
        for uniform in uniforms
    ]


@pytest.mark.parametrize("temperature", [0.7, 1.0, 1.9])
def test_frequencies_follow_the_probabilities(temperature: float) -> None:
    logits = [1.0, 0.0, 2.0, -1.0, 0.5]
    draws = 4000
    uniforms = [(i + 0.5) / draws for i in range(draws)]
    counts = np.bincount(pick([logits] * draws, [filters(temperature)] * draws, uniforms), minlength=5)
    expected = torch.softmax(torch.tensor(logits, dtype=torch.float64) / temperature, 0).numpy() * draws
    assert np.abs(counts - expected).max() <= 1.0


def test_filters_are_exact_where_fp32_is_not() -> None:
    """Masses of equal tokens meet these limits; in fp32 the limits would lie beside them."""
    logits = [0.0] * 10
    almost_one = float(np.nextafter(1.0, 0.0))
    for top_p in (0.3, 0.6, 0.7, 0.9):
        expected = sampling.reference(logits, 1.0, 0, top_p, 0.0, almost_one)
        assert pick([logits], [filters(top_p=top_p)], [almost_one]) == [expected]


@pytest.mark.parametrize("vocabulary", [1500, 40_000])
def test_a_row_does_not_depend_on_its_neighbours_nor_on_threads(vocabulary: int) -> None:
    generator = torch.Generator().manual_seed(8)
    logits = torch.randn(7, vocabulary, generator=generator).tolist()
    rows = [
        filters(),
        filters(0.7, top_p=0.9),
        filters(top_k=40),
        filters(1.3, min_p=0.02),
        filters(1.9),
        filters(top_p=0.999),
        filters(top_k=3000),
    ]
    uniforms = torch.rand(7, generator=generator, dtype=torch.float64).tolist()
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        together = pick(logits, rows, uniforms)
        order = [4, 2, 6, 0, 5, 1, 3]
        turned = pick([logits[i] for i in order], [rows[i] for i in order], [uniforms[i] for i in order])
        alone = [pick([logits[i]], [rows[i]], [uniforms[i]])[0] for i in range(7)]
        torch.set_num_threads(1)
        on_one = pick(logits, rows, uniforms)
    finally:
        torch.set_num_threads(threads)
    assert together == alone == on_one
    assert turned == [together[i] for i in order]
