"""Shares of a whole as the API spells them: decimals from 0 to 1 in quotes, `0.90`.

Text on the wire because floats do not survive every client.
"""

from dataclasses import dataclass
from fractions import Fraction

from firsttoken_api import bounded_text

PATTERN = r"^(0([.][0-9]{1,3})?|1([.]0{1,3})?)$"
MAX_LENGTH = 5


@dataclass(frozen=True)
class Range(bounded_text.Range):
    """Fractions."""

    pattern = PATTERN
    max_length = MAX_LENGTH
    kind = "a decimal"

    def number(self, text: str) -> float:
        return float(Fraction(text))

    def compared(self, value: str, sign: str, bound: str) -> str:
        return f"double({value}) {sign} double('{bound}')"


@dataclass(frozen=True)
class Within(bounded_text.BoundedText):
    """Type annotation: `Annotated[str, fraction.Within("spec.runtime.memoryFraction", "0.05", "1")]`."""

    range_type = Range
