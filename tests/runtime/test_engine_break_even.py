"""When a copy beats computing, from what was measured."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firsttoken_runtime.engine import break_even
from firsttoken_runtime.engine.break_even import BreakEven


def test_a_load_pays_from_where_it_is_quicker() -> None:
    costs = BreakEven(load_s_per_block=0.001, fixed_s=0.01, block_size_tokens=16)
    # 16 tokens take 2 ms to compute: each block saves 1 ms, so that 10 blocks pay for the fixed part.
    assert not costs.worth_it(160, 8_000)
    assert costs.worth_it(176, 8_000)
    assert costs.least_tokens(8_000) == 176


def test_swapping_pays_both_ways() -> None:
    costs = BreakEven(0.001, 0.0, 16, save_s_per_block=0.002)
    assert costs.worth_it(16, 8_000)
    assert not costs.worth_swapping(16, 8_000)
    assert costs.worth_swapping(16, 5_000)


def test_on_a_slow_bus_nothing_pays() -> None:
    costs = BreakEven(0.01, 0.0, 16)
    assert not costs.worth_it(100_000, 8_000)
    assert costs.least_tokens(8_000) is None


def test_the_rate_of_now_goes_before_that_of_the_start() -> None:
    costs = BreakEven(0.001, 0.0, 16, prefill_tokens_per_s=8_000.0)
    assert costs.worth_it(16)
    assert not costs.worth_it(16, 32_000)
    assert costs.least_tokens() == 16


def test_without_a_rate_nothing_is_known_to_pay() -> None:
    costs = BreakEven(0.001, 0.0, 16)
    assert not costs.worth_it(16)
    assert not costs.worth_swapping(16)
    assert costs.least_tokens() is None


def test_a_save_on_the_mere_chance_of_a_hit_must_be_cheap() -> None:
    assert BreakEven(1.0, 1.0, 16, save_s_per_block=0.05, prefill_tokens_per_s=16).is_cheap()
    assert not BreakEven(0.0, 0.0, 16, save_s_per_block=0.051, prefill_tokens_per_s=16).is_cheap()
    assert BreakEven(1.0, 1.0, 16, save_s_per_block=1.0).is_cheap(), "it is not known"


@given(
    st.floats(1e-6, 1.0), st.floats(0.0, 1.0), st.integers(1, 128), st.floats(1.0, 1e6), st.integers(0, 400)
)
def test_the_least_tokens_are_where_it_turns(
    load_s: float, fixed_s: float, block_size: int, rate: float, num_blocks: int
) -> None:
    costs = BreakEven(load_s, fixed_s, block_size)
    least = costs.least_tokens(rate)
    if least is None:
        assert not costs.worth_it(num_blocks * block_size, rate)
        return
    assert least % block_size == 0
    assert costs.worth_it(least, rate)
    assert not costs.worth_it(least - block_size, rate)


def measured(load_s: Callable[[int], float], save_s: Callable[[int], float], most_blocks: int) -> BreakEven:
    """With a clock that only what is measured moves."""
    now = 0.0

    def takes(seconds: Callable[[int], float]) -> Callable[[int], None]:
        def run(count: int) -> None:
            nonlocal now
            assert count <= most_blocks or seconds is prefill_s
            now += seconds(count)

        return run

    def prefill_s(num_tokens: int) -> float:
        return num_tokens / 1_000

    return break_even.measure(
        takes(load_s),
        takes(save_s),
        takes(prefill_s),
        block_size_tokens=16,
        most_blocks=most_blocks,
        clock=lambda: now,
    )


def test_the_fixed_part_and_that_of_a_block_are_told_apart() -> None:
    costs = measured(lambda count: 0.5 + 0.25 * count, lambda count: 0.125 + 0.5 * count, 100)
    assert costs.load_s_per_block == pytest.approx(0.25)
    assert costs.save_s_per_block == pytest.approx(0.5)
    assert costs.fixed_s == pytest.approx(0.5)
    assert costs.prefill_tokens_per_s == pytest.approx(1_000)


def test_a_tier_of_one_block_counts_all_of_it_for_the_block() -> None:
    costs = measured(lambda count: 0.5 + 0.25 * count, lambda count: 0.5, 1)
    assert costs.load_s_per_block == pytest.approx(0.75)
    assert costs.fixed_s == 0.0


def test_noise_never_makes_a_copy_free() -> None:
    costs = measured(lambda count: 1.0 / count, lambda count: 1.0 / count, 100)
    assert costs.load_s_per_block > 0
    assert costs.fixed_s >= 0
