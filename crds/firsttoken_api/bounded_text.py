"""Annotations of text fields whose value has bounds: durations and quantities.

How such an annotation enters pydantic and the CRD is the same for all; what the bounds mean is each one's.
"""

import re
from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import core_schema

from firsttoken_api import cel


@dataclass(frozen=True)
class BoundedText:
    """Text from `minimum` to `maximum`.

    The message names the field and the bounds, in the API server and here.
    """

    field: str
    minimum: str
    maximum: str

    pattern: ClassVar[str]
    max_length: ClassVar[int]

    def parse(self, text: str) -> int:
        """A number that orders values. Only called with text that matches the pattern."""
        raise NotImplementedError

    @property
    def rule(self) -> cel.Rule:
        """The same bounds for the API server."""
        raise NotImplementedError

    def check(self, text: str) -> str:
        """The text itself. Raises ValueError with the rule's message."""
        low, high = self.parse(self.minimum), self.parse(self.maximum)
        self.rule.check(bool(re.fullmatch(self.pattern, text)) and low <= self.parse(text) <= high)
        return text

    def __get_pydantic_core_schema__(
        self, source: type[Any], handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        return core_schema.no_info_after_validator_function(self.check, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {**handler(schema), "maxLength": self.max_length, **cel.rules(self.rule)}
