"""Penalties against one row of plain Python."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from firsttoken_kernels import penalties

VOCABULARY = 9
TOKENS = st.lists(st.integers(0, VOCABULARY - 1), max_size=12)


def penalized(
    logits: list[float],
    prompt: list[int],
    output: list[int],
    repetition: float,
    frequency: float,
    presence: float,
) -> list[float]:
    ids = sorted(set(prompt) | set(output))
    row = torch.tensor(logits)
    penalties.apply(
        row,
        torch.tensor(ids, dtype=torch.int64),
        torch.tensor([output.count(token) for token in ids], dtype=torch.float64),
        repetition=repetition,
        frequency=frequency,
        presence=presence,
    )
    result: list[float] = row.tolist()
    return result


@settings(max_examples=200, deadline=None)
@given(
    logits=st.lists(
        st.floats(-30, 30, width=32).filter(lambda value: value == 0 or abs(value) > 1e-30),
        min_size=VOCABULARY,
        max_size=VOCABULARY,
    ),
    prompt=TOKENS,
    output=TOKENS,
    repetition=st.sampled_from([1.0, 1.1, 0.7, 2.0]),
    frequency=st.sampled_from([0.0, 0.3, -0.9, 2.0]),
    presence=st.sampled_from([0.0, 0.7, -2.0]),
)
def test_matches_plain_python(
    logits: list[float],
    prompt: list[int],
    output: list[int],
    repetition: float,
    frequency: float,
    presence: float,
) -> None:
    given_ = (logits, prompt, output, repetition, frequency, presence)
    assert penalized(*given_) == penalties.reference(*given_)


def test_each_penalty_does_what_its_name_says() -> None:
    logits = [2.0, -2.0, 1.0, 0.5]
    assert penalized(logits, [0, 1], [2, 2], 2.0, 0.0, 0.0) == [1.0, -4.0, 0.5, 0.5]
    assert penalized(logits, [0, 1], [2, 2], 1.0, 0.25, 0.0) == [2.0, -2.0, 0.5, 0.5]
    assert penalized(logits, [0, 1], [2, 2], 1.0, 0.0, 0.25) == [2.0, -2.0, 0.75, 0.5]


def test_masked_tokens_stay_masked() -> None:
    assert penalized([-np.inf, 1.0], [0], [0], 1.5, -2.0, -2.0)[0] == -np.inf
