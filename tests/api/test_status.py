from firsttoken_api.conditions import Condition, ConditionStatus
from firsttoken_api.status import InferenceServiceStatus, OptimizationStatus


def test_the_wire_has_no_null() -> None:
    status = InferenceServiceStatus(
        conditions=(
            Condition(
                type="Ready",
                status=ConditionStatus.TRUE,
                reason="Serving",
                last_transition_time="2026-01-01T00:00:00Z",
            ),
        ),
        optimizations=(
            OptimizationStatus(name="paged-kv", requested="Default", effective=True, reason="Default"),
        ),
    )
    wire = status.model_dump(mode="json", by_alias=True, exclude_none=True)
    assert wire["conditions"][0]["lastTransitionTime"] == "2026-01-01T00:00:00Z"
    assert wire["conditions"][0]["status"] == "True"
    assert "null" not in status.model_dump_json(by_alias=True, exclude_none=True)
    assert InferenceServiceStatus.model_validate(wire) == status


def test_a_newer_operators_fields_are_ignored() -> None:
    assert InferenceServiceStatus.model_validate({"later": 1, "flags": "3/3"}).flags == "3/3"
