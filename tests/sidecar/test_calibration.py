import pytest
from hypothesis import given
from hypothesis import strategies as st

from firsttoken_sidecar import calibration


def test_starts_with_the_prior_and_learns() -> None:
    made = calibration.Calibration()
    assert made.bytes_per_token("chat") == calibration.PRIOR_BYTES_PER_TOKEN
    for _ in range(200):
        made.learn("chat", 3100, 1000)
    assert made.bytes_per_token("chat") == pytest.approx(3.1, rel=0.01)
    assert made.bytes_per_token() == pytest.approx(3.1, rel=0.01)


def test_models_are_apart_and_an_unknown_one_is_like_all() -> None:
    made = calibration.Calibration()
    for _ in range(100):
        made.learn("a", 2000, 1000)
        made.learn("b", 6000, 1000)
    assert made.bytes_per_token("a") == pytest.approx(2.0, rel=0.05)
    assert made.bytes_per_token("b") == pytest.approx(6.0, rel=0.05)
    assert 3.5 < made.bytes_per_token("c") < 4.5


def test_one_odd_prompt_moves_little() -> None:
    made = calibration.Calibration()
    made.learn("a", 1, 8)
    assert made.bytes_per_token("a") == pytest.approx(4.0, rel=0.1)


def test_without_both_numbers_nothing_is_learned() -> None:
    made = calibration.Calibration()
    made.learn("a", 0, 5)
    made.learn("a", 5, 0)
    assert made.bytes_per_token("a") == calibration.PRIOR_BYTES_PER_TOKEN


def test_clients_cannot_make_it_grow() -> None:
    made = calibration.Calibration()
    for i in range(1000):
        made.learn(f"model-{i}", 400, 100)
    assert len(made._sums) <= calibration.MOST_MODELS + 1


@given(st.lists(st.tuples(st.integers(0, 10**7), st.integers(0, 10**7)), max_size=30))
def test_it_stays_within_reason(prompts: list[tuple[int, int]]) -> None:
    made = calibration.Calibration()
    for prompt_bytes, tokens in prompts:
        made.learn("a", prompt_bytes, tokens)
        assert calibration.LEAST <= made.bytes_per_token("a") <= calibration.MOST
