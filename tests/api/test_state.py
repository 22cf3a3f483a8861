import pytest
from pydantic import ValidationError

from firsttoken_api.state import EngineState, Phase, SidecarState, TtftWindow


def test_what_is_written_is_read() -> None:
    window = TtftWindow(window_s=300, slo_s=0.5, edges_s=(0.1, 0.5), counts=(1, 2, 3))
    state = SidecarState(pod="a", ttft=window, engine=EngineState(phase=Phase.READY, load_progress=1))
    assert SidecarState.model_validate_json(state.model_dump_json()) == state


def test_a_newer_replicas_fields_are_ignored() -> None:
    state = EngineState.model_validate({"phase": "Loading", "later": {"x": 1}})
    assert state.phase is Phase.LOADING


def test_progress_is_a_share() -> None:
    with pytest.raises(ValidationError):
        EngineState(phase=Phase.LOADING, load_progress=1.5)


@pytest.mark.parametrize("length", [-1, 2**63])
def test_an_engine_of_somebody_else_reports_nothing_that_a_status_cannot_hold(length: int) -> None:
    with pytest.raises(ValidationError):
        EngineState(phase=Phase.READY, max_model_len=length)
