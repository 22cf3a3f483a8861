"""Text whose value has bounds: durations, quantities, fractions, whole numbers.

`Values` and `Range` say which texts are meant, to the API server (CEL) and to Python in the same words. Each
kind has its own; fields of the spec (`BoundedText`) and parameters of flags (`flags.Parameter`) share them.
"""

import re
from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import core_schema

from firsttoken_api import cel


@dataclass(frozen=True)
class Values:
    """Texts of one kind."""

    pattern: ClassVar[str]
    max_length: ClassVar[int]
    kind: ClassVar[str]
    """What a value is, with its article."""

    def number(self, text: str) -> float:
        """The value, in the unit that code works with. Only called with text that matches the pattern."""
        raise NotImplementedError

    def canonical(self, text: str) -> str:
        """The same value as we would write it: another spelling is no other value."""
        return text

    def holds(self, text: str) -> bool:
        """Whether `text` is one of the values."""
        return bool(re.fullmatch(self.pattern, text))

    def expression(self, value: str) -> str:
        """The same as `holds` for the API server, about the CEL expression `value`."""
        return f"{value}.matches('{self.pattern}')"

    @property
    def span(self) -> str:
        """The bounds alone; empty where there are none."""
        return ""

    @property
    def allowed(self) -> str:
        """Kind and bounds, as messages say them."""
        return self.kind


@dataclass(frozen=True)
class Range(Values):
    """Values from `minimum` to `maximum`, both in the kind's own spelling; no `maximum`: no upper bound."""

    minimum: str
    maximum: str = ""

    units: ClassVar[str] = ""
    """How the sentence about the range ends."""

    def compared(self, value: str, sign: str, bound: str) -> str:
        """CEL that compares the expression `value` with a bound; `sign` is `>=` or `<=`."""
        raise NotImplementedError

    def holds(self, text: str) -> bool:
        if not super().holds(text):
            return False
        value = self.number(text)
        return self.number(self.minimum) <= value and (not self.maximum or value <= self.number(self.maximum))

    def expression(self, value: str) -> str:
        parts = [super().expression(value), self.compared(value, ">=", self.minimum)]
        if self.maximum:
            parts.append(self.compared(value, "<=", self.maximum))
        return " && ".join(parts)

    @property
    def span(self) -> str:
        return f"{self.minimum} to {self.maximum}" if self.maximum else f"at least {self.minimum}"

    @property
    def allowed(self) -> str:
        joint = "from" if self.maximum else "of"
        return f"{self.kind} {joint} {self.span}{self.units}"


@dataclass(frozen=True)
class BoundedText:
    """Annotation of a field with text from `minimum` to `maximum`.

    The message names the field and the bounds, in the API server and here.
    """

    field: str
    minimum: str
    maximum: str

    range_type: ClassVar[type[Range]]

    @property
    def range(self) -> Range:
        return self.range_type(self.minimum, self.maximum)

    @property
    def rule(self) -> cel.Rule:
        """The same bounds for the API server."""
        return cel.Rule(self.range.expression("self"), f"{self.field} must be {self.range.allowed}")

    def check(self, text: str) -> str:
        """The text itself. Raises ValueError with the rule's message."""
        self.rule.check(self.range.holds(text))
        return text

    def __get_pydantic_core_schema__(
        self, source: type[Any], handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        return core_schema.no_info_after_validator_function(self.check, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {**handler(schema), "maxLength": self.range_type.max_length, **cel.rules(self.rule)}
