"""Whole numbers as text: parameters of flags, which all travel as strings."""

from dataclasses import dataclass

from firsttoken_api import bounded_text

PATTERN = "^[0-9]{1,9}$"


@dataclass(frozen=True)
class Range(bounded_text.Range):
    """Whole numbers."""

    pattern = PATTERN
    max_length = 9
    kind = "a whole number"

    def number(self, text: str) -> int:
        return int(text)

    def compared(self, value: str, sign: str, bound: str) -> str:
        return f"int({value}) {sign} {bound}"

    def canonical(self, text: str) -> str:
        return str(int(text))
