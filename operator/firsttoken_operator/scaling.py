"""How many replicas are wanted, and what limits them. Pure.

Until the scaler exists, the mode SLO keeps `spec.scaling.min` and says so.
"""

from dataclasses import dataclass

from firsttoken_api.inference_service import InferenceServiceSpec
from firsttoken_api.reasons import Reason
from firsttoken_api.scaling import ScalingMode, ScalingSpec

_UNTOUCHED_REPLICAS = ScalingSpec().replicas


@dataclass(frozen=True)
class Wanted:
    """The number of replicas, and whether something keeps it from what was asked for."""

    replicas: int
    is_limited: bool
    reason: Reason
    message: str = ""


def wanted(spec: InferenceServiceSpec) -> Wanted:
    """The replicas of a service."""
    scaling = spec.scaling
    if spec.suspend:
        return Wanted(0, False, Reason.SUSPENDED, "spec.suspend is true")
    if scaling.mode is ScalingMode.FIXED:
        return Wanted(scaling.replicas, False, Reason.FIXED_SCALE)
    if scaling.mode is ScalingMode.EXTERNAL:
        inside = min(max(scaling.replicas, scaling.min), scaling.max)
        if inside != scaling.replicas:
            message = (
                f"spec.scaling.replicas is {scaling.replicas}; spec.scaling.min and max allow "
                f"{scaling.min} to {scaling.max}"
            )
            return Wanted(inside, True, Reason.SCALE_CLAMPED, message)
        return Wanted(inside, False, Reason.EXTERNAL_SCALE)
    if scaling.replicas not in (_UNTOUCHED_REPLICAS, scaling.min):
        message = (
            f"spec.scaling.replicas is {scaling.replicas}, which has no effect in the mode SLO; "
            "set spec.scaling.mode to Fixed or External"
        )
        return Wanted(scaling.min, True, Reason.SCALE_IGNORED, message)
    message = "this version does not scale on the objective; spec.scaling.min replicas are kept"
    return Wanted(scaling.min, True, Reason.SCALER_NOT_BUILT, message)
