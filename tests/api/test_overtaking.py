"""How long a line takes while others come and go first: the formula against a simulated line."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firsttoken_api.overtaking import NOBODY, Arriving, start_s

PIECE_S, RATE = 0.05, 10.0
"""Half of the engine's time."""
HALF = Arriving(RATE * PIECE_S, RATE * PIECE_S**2)


def simulated_s(numbers: random.Random, line_s: float) -> float:
    """Pieces come at random, and each makes the line longer."""
    done_s = line_s
    at_s = numbers.expovariate(RATE)
    while at_s < done_s:
        done_s += PIECE_S
        at_s += numbers.expovariate(RATE)
    return done_s


@pytest.mark.parametrize("line_s", [1.0, 5.0, 20.0])
@pytest.mark.parametrize(("deviations", "kept"), [(0.0, 0.5), (0.7, 0.75), (1.65, 0.95)])
def test_as_many_lines_are_done_by_then_as_the_deviations_say(
    line_s: float, deviations: float, kept: float
) -> None:
    numbers = random.Random(7)
    lines = [simulated_s(numbers, line_s) for _ in range(4000)]
    found = sum(one <= start_s(line_s, HALF, deviations) for one in lines) / len(lines)
    assert found == pytest.approx(kept, abs=0.07), "waits are skewed, the short ones most"
    assert sum(lines) / len(lines) == pytest.approx(start_s(line_s, HALF), rel=0.05)


@given(
    st.floats(0, 100), st.floats(0, 100), st.floats(0, 3), st.floats(0, 1), st.floats(0, 3), st.floats(0, 3)
)
def test_it_is_finite_and_grows_with_all_that_it_depends_on(
    line_s: float, more_s: float, share: float, variance_s: float, deviations: float, more: float
) -> None:
    plain = start_s(line_s, Arriving(share, variance_s), deviations)
    assert line_s - 1e-6 <= start_s(line_s, NOBODY, deviations) <= line_s + 1e-6
    assert 0 <= plain < 1e9
    assert plain >= line_s * (1 - 1e-9) - 1e-6
    slack = 1 + 1e-9
    assert plain <= start_s(line_s + more_s, Arriving(share, variance_s), deviations) * slack + 1e-6
    assert plain <= start_s(line_s, Arriving(share + more, variance_s), deviations) * slack + 1e-6
    assert plain <= start_s(line_s, Arriving(share, variance_s), deviations + more) * slack + 1e-6
