"""What admission has counted since the start: whom it refused, and how it asked the engine."""

from collections import Counter
from dataclasses import dataclass, field

from firsttoken_sidecar.admission import Reason


@dataclass
class AdmissionCounts:
    """Every series exists from the start."""

    refused: Counter[Reason] = field(default_factory=Counter)
    asked: int = 0
    asked_in_vain: int = 0
    """Of those, without an answer in time."""
