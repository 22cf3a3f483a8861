"""Parameters of flags from their text to numbers, each with its own form and range. Pure.

Values travel as strings, as everywhere in the API: whole numbers, decimals ("0.50") and durations
("20ms"). The names are those of `firsttoken_api.flags`; a test holds both together.
"""

import re
from collections.abc import Callable

_SECONDS_PER_UNIT = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0}
_DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)(us|ms|s|m)")
_DECIMAL = re.compile(r"\d{1,9}(?:\.\d{1,9})?")
_WHOLE = re.compile(r"[0-9]{1,18}")

Number = int | float


class BadValue(ValueError):  # noqa: N818
    """A text that is no such number, or one out of range; the message says which was expected."""


def whole(text: str) -> int:
    if _WHOLE.fullmatch(text) is None:
        raise BadValue(f"{text!r}, not a whole number")
    return int(text)


def fraction(text: str) -> float:
    """ "0.50" -> 0.5."""
    if _DECIMAL.fullmatch(text) is None:
        raise BadValue(f"{text!r}, not a decimal like 0.50")
    value = float(text)
    if not 0 < value <= 1:
        raise BadValue(f"{text}, allowed is above 0 up to 1")
    return value


def wait_s(text: str) -> float:
    """ "20ms" -> 0.02. A wait is at most a minute: everything else would be a mistake."""
    match = _DURATION.fullmatch(text)
    if match is None:
        raise BadValue(f"{text!r}, not a duration like 20ms")
    seconds = float(match[1]) * _SECONDS_PER_UNIT[match[2]]
    if seconds > 60:
        raise BadValue(f"{text}, allowed is up to 60s")
    return seconds


READERS: dict[tuple[str, str], Callable[[str], Number]] = {
    ("chunked-prefill", "chunkTokens"): whole,
    ("prefix-cache", "maxFraction"): fraction,
    ("prefix-cache", "protectedFraction"): fraction,
    ("prefix-affinity", "maxWait"): wait_s,
    ("kv-int8", "fullPrecisionLayers"): whole,
    ("kv-fp8", "fullPrecisionLayers"): whole,
}
"""Of every hot parameter that the engine takes."""
