"""Durations as the API spells them: whole numbers with Go units, `500ms`, `5m`, `1m30s`.

Text on the wire because floats do not survive every client, and because CEL's `duration()` reads it.
"""

import re
from dataclasses import dataclass

from firsttoken_api import cel
from firsttoken_api.bounded_text import BoundedText

PATTERN = r"^([0-9]{1,6}(ms|s|m|h)){1,4}$"
MAX_LENGTH = 20
_PART = re.compile(r"([0-9]{1,6})(ms|s|m|h)")
_MILLISECONDS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000}


def to_milliseconds(text: str) -> int:
    """Milliseconds of a duration such as `1m30s`. ValueError if it is not one."""
    if not re.fullmatch(PATTERN, text):
        raise ValueError(f'"{text}" is not a duration such as 500ms, 30s, 5m or 1h')
    return sum(int(number) * _MILLISECONDS[unit] for number, unit in _PART.findall(text))


def to_seconds(text: str) -> float:
    """Seconds of a duration such as `500ms`. ValueError if it is not one."""
    return to_milliseconds(text) / 1_000


@dataclass(frozen=True)
class Within(BoundedText):
    """Type annotation: `Annotated[str, duration.Within("spec.drain.timeout", "0s", "1h")]`."""

    pattern = PATTERN
    max_length = MAX_LENGTH

    def parse(self, text: str) -> int:
        return to_milliseconds(text)

    @property
    def rule(self) -> cel.Rule:
        return cel.Rule(
            f"self.matches('{PATTERN}') && duration(self) >= duration('{self.minimum}')"
            f" && duration(self) <= duration('{self.maximum}')",
            f"{self.field} must be a duration from {self.minimum} to {self.maximum} (ms, s, m, h)",
        )
