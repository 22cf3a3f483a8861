"""Whole numbers that may also be `auto`: the engine decides and says what it decided.

On the wire an integer or the word; a number in quotes is accepted as well.
"""

from dataclasses import dataclass
from typing import Any, Literal

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import core_schema

from firsttoken_api import cel

AUTO: Literal["auto"] = "auto"
IntOrAuto = int | Literal["auto"]


@dataclass(frozen=True)
class Within:
    """Type annotation: `Annotated[IntOrAuto, auto.Within("spec.runtime.maxModelLen", 16, 1048576)]`."""

    field: str
    minimum: int
    maximum: int

    @property
    def rule(self) -> cel.Rule:
        number = f"int(self) >= {self.minimum} && int(self) <= {self.maximum}"
        return cel.Rule(
            f"type(self) == int ? {number}"
            f" : string(self) == 'auto' || (string(self).matches('^[0-9]{{1,9}}$') && {number})",
            f"{self.field} must be auto or a whole number from {self.minimum} to {self.maximum}",
        )

    def check(self, value: Any) -> Any:
        if value == AUTO:
            return value
        if isinstance(value, str) and value.isdecimal():
            value = int(value)
        self.rule.check(isinstance(value, int) and self.minimum <= value <= self.maximum)
        return value

    def __get_pydantic_core_schema__(
        self, source: type[Any], handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        return core_schema.no_info_before_validator_function(self.check, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {
            "x-kubernetes-int-or-string": True,
            "maxLength": 9,
            **cel.rules(self.rule),
        }
