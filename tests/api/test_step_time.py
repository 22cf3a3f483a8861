"""What a step costs, and how many prompt tokens a second that makes."""

import pytest

from firsttoken_api.state import EngineState
from firsttoken_api.step_time import StepTime

CPU = StepTime(fixed_s=0.040, per_prefill_token_s=0.00045, per_decode_s=0.0025, per_context_token_s=1e-6)


def test_a_step_is_the_sum_of_its_parts() -> None:
    assert CPU.seconds(100, 10, 3_000) == pytest.approx(0.040 + 0.045 + 0.025 + 0.003)


def test_speed_is_that_of_full_chunks_beside_the_answers() -> None:
    assert CPU.prefill_tokens_per_s(512, 0, 0) == pytest.approx(512 / 0.2704)
    assert CPU.prefill_tokens_per_s(512, 64, 0) < CPU.prefill_tokens_per_s(512, 0, 0)
    assert StepTime().prefill_tokens_per_s(512, 3, 9) == 0.0


@pytest.mark.parametrize("wrong", [-0.1, float("nan"), float("inf")])
def test_prices_are_numbers_that_are_not_negative(wrong: float) -> None:
    with pytest.raises(ValueError, match="per_decode_s"):
        StepTime(per_decode_s=wrong)


def test_it_travels_in_the_state_of_an_engine() -> None:
    state = EngineState(phase="Ready", step_time=CPU)
    assert EngineState.model_validate_json(state.model_dump_json()).step_time == CPU
