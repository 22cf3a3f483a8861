"""Durations as the API spells them: whole numbers with Go units, `500ms`, `5m`, `1m30s`.

Text on the wire because floats do not survive every client, and because CEL's `duration()` reads it.
"""

import re
from dataclasses import dataclass
from typing import Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import core_schema

from firsttoken_api import cel

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
class Within:
    """Type annotation: `Annotated[str, duration.Within("spec.drain.timeout", "0s", "1h")]`.

    The message names the field and the bounds, in the API server and here.
    """

    field: str
    minimum: str
    maximum: str

    @property
    def rule(self) -> cel.Rule:
        return cel.Rule(
            f"self.matches('{PATTERN}') && duration(self) >= duration('{self.minimum}')"
            f" && duration(self) <= duration('{self.maximum}')",
            f"{self.field} must be a duration from {self.minimum} to {self.maximum} (ms, s, m, h)",
        )

    def check(self, text: str) -> str:
        low, high = to_milliseconds(self.minimum), to_milliseconds(self.maximum)
        self.rule.check(bool(re.fullmatch(PATTERN, text)) and low <= to_milliseconds(text) <= high)
        return text

    def __get_pydantic_core_schema__(
        self, source: type[Any], handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        return core_schema.no_info_after_validator_function(self.check, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {
            **handler(schema),
            "maxLength": MAX_LENGTH,
            **cel.rules(self.rule),
        }
