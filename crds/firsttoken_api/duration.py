"""Durations as the API spells them: whole numbers with Go units, `500ms`, `5m`, `1m30s`.

Text on the wire because floats do not survive every client, and because CEL's `duration()` reads it.
"""

import re
from dataclasses import dataclass

from firsttoken_api import bounded_text

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
class Range(bounded_text.Range):
    """Durations; their number is seconds."""

    pattern = PATTERN
    max_length = MAX_LENGTH
    kind = "a duration"
    units = " (ms, s, m, h)"

    def number(self, text: str) -> float:
        return to_seconds(text)

    def compared(self, value: str, sign: str, bound: str) -> str:
        return f"duration({value}) {sign} duration('{bound}')"


@dataclass(frozen=True)
class Within(bounded_text.BoundedText):
    """Type annotation: `Annotated[str, duration.Within("spec.drain.timeout", "0s", "1h")]`."""

    range_type = Range
