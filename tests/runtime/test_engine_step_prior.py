"""What is timed at the start is taken apart into prices, on machines with any limits."""

import pytest

from firsttoken_runtime.engine import step_prior


class Machine:
    """Its clock moves by what work costs."""

    def __init__(self, fixed_s: float, token_s: float, row_s: float, first_s: float = 0.0) -> None:
        self.now = 5.0
        self._fixed_s, self._token_s, self._row_s, self._first_s = fixed_s, token_s, row_s, first_s
        self.largest = (0, 0)

    def clock(self) -> float:
        return self.now

    def prefill(self, tokens: int) -> None:
        self.largest = (max(self.largest[0], tokens), self.largest[1])
        self._work(tokens * self._token_s)

    def decode(self, rows: int) -> None:
        self.largest = (self.largest[0], max(self.largest[1], rows))
        self._work(rows * self._row_s)

    def _work(self, seconds: float) -> None:
        self.now += self._fixed_s + seconds + self._first_s
        self._first_s = 0.0


@pytest.mark.parametrize(("most_tokens", "most_rows"), [(512, 64), (100, 3), (33, 2)])
def test_prices_are_those_of_the_machine(most_tokens: int, most_rows: int) -> None:
    machine = Machine(0.040, 0.00045, 0.0025, first_s=3.0)
    found = step_prior.measure(
        machine.prefill, machine.decode, most_tokens=most_tokens, most_rows=most_rows, clock=machine.clock
    )
    assert found.fixed_s == pytest.approx(0.040)
    assert found.per_prefill_token_s == pytest.approx(0.00045)
    assert found.per_decode_s == pytest.approx(0.0025)
    assert machine.largest <= (most_tokens, most_rows)


def test_one_sequence_and_a_context_of_a_token_are_enough() -> None:
    machine = Machine(0.01, 0.001, 0.002)
    found = step_prior.measure(
        machine.prefill, machine.decode, most_tokens=1, most_rows=1, clock=machine.clock
    )
    assert found.seconds(1, 0, 0) == pytest.approx(0.012, rel=0.2)


def test_a_machine_that_is_quicker_with_more_gives_no_negative_price() -> None:
    machine = Machine(0.05, -0.00001, -0.0001)
    found = step_prior.measure(
        machine.prefill, machine.decode, most_tokens=512, most_rows=64, clock=machine.clock
    )
    assert found.per_prefill_token_s == found.per_decode_s == 0.0
    assert found.fixed_s > 0.04
