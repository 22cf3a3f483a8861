from typing import Any

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


def test_an_older_replicas_state_is_read_with_defaults() -> None:
    state = EngineState.model_validate(
        {"phase": "Ready", "kv": {"block_size_tokens": 16, "blocks_total": 8, "blocks_used": 2}, "waiting": 1}
    )
    assert (state.kv.use_ratio, state.kv.blocks_recommended, state.waiting_by_class) == (0, 0, {})
    assert (state.prefill_tokens_per_s, state.tpot_p95_s, state.batch_invariant) == (0, 0, False)


@pytest.mark.parametrize(
    "fields",
    [
        {"tpot_p95_s": float("nan")},
        {"prefill_tokens_per_s": float("inf")},
        {"waiting_by_class": {"batch": -1}},
        {"kv": {"use_ratio": 1.1}},
        {"kv": {"live_slot_seconds_total": -0.5}},
    ],
)
def test_measures_are_numbers_in_their_range(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        EngineState.model_validate({"phase": "Ready", **fields})


@pytest.mark.parametrize("length", [-1, 2**63])
def test_an_engine_of_somebody_else_reports_nothing_that_a_status_cannot_hold(length: int) -> None:
    with pytest.raises(ValidationError):
        EngineState(phase=Phase.READY, max_model_len=length)
