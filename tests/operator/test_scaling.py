"""How many replicas each mode wants."""

from typing import Any

import pytest

from builders import observed as build
from firsttoken_api.reasons import Reason
from firsttoken_operator import scaling


@pytest.mark.parametrize(
    ("spec", "replicas", "is_limited", "reason"),
    [
        ({"mode": "Fixed", "replicas": 3}, 3, False, Reason.FIXED_SCALE),
        ({"mode": "Fixed", "replicas": 0}, 0, False, Reason.FIXED_SCALE),
        ({"mode": "Fixed", "replicas": 9, "max": 4}, 9, False, Reason.FIXED_SCALE),
        ({"mode": "External", "replicas": 3, "max": 4}, 3, False, Reason.EXTERNAL_SCALE),
        ({"mode": "External", "replicas": 9, "max": 4}, 4, True, Reason.SCALE_CLAMPED),
        ({"mode": "External", "replicas": 0, "min": 2}, 2, True, Reason.SCALE_CLAMPED),
        ({"mode": "SLO", "min": 2}, 2, True, Reason.SCALER_NOT_BUILT),
        ({"mode": "SLO", "min": 2, "replicas": 5}, 2, True, Reason.SCALE_IGNORED),
    ],
)
def test_modes(spec: dict[str, Any], replicas: int, is_limited: bool, reason: Reason) -> None:
    wanted = scaling.wanted(build.service(scaling=spec).spec)
    assert (wanted.replicas, wanted.is_limited, wanted.reason) == (replicas, is_limited, reason)
    assert bool(wanted.message) == is_limited


def test_suspend_wins() -> None:
    wanted = scaling.wanted(build.service(suspend=True, scaling={"mode": "Fixed", "replicas": 3}).spec)
    assert (wanted.replicas, wanted.reason) == (0, Reason.SUSPENDED)
