"""Resource quantities as Kubernetes spells them: bytes (`16Gi`) and CPU (`500m`, `4`).

Only the part of the grammar that people use for these two, so that one pattern describes it.
"""

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from firsttoken_api import cel
from firsttoken_api.bounded_text import BoundedText

BYTES_PATTERN = r"^[0-9]{1,15}([.][0-9]{1,3})?(Ki|Mi|Gi|Ti|k|M|G|T)?$"
CPU_PATTERN = r"^([0-9]{1,4}([.][0-9]{1,3})?|[0-9]{1,7}m)$"
MAX_LENGTH = 24
_UNITS = {
    "": 1,
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "Ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
    "Ti": 2**40,
}


def to_bytes(text: str) -> int:
    """Whole bytes of a quantity such as `1.5Gi`, rounded up. ValueError if it is not one."""
    if not re.fullmatch(BYTES_PATTERN, text):
        raise ValueError(f'"{text}" is not an amount of memory such as 512Mi or 16Gi')
    number = text.rstrip("KMGTki")
    exact = Fraction(number) * _UNITS[text[len(number) :]]
    return -(-exact.numerator // exact.denominator)


def to_millicores(text: str) -> int:
    """Thousandths of a core of a quantity such as `500m` or `1.5`. ValueError if it is not one."""
    if not re.fullmatch(CPU_PATTERN, text):
        raise ValueError(f'"{text}" is not an amount of CPU such as 500m or 4')
    return int(text[:-1]) if text.endswith("m") else int(Fraction(text) * 1_000)


def from_bytes(amount: int) -> str:
    """A readable spelling, rounded up to whole MiB: 734003200 -> `700Mi`."""
    return f"{-(-amount // 2**20)}Mi"


@dataclass(frozen=True)
class _Within(BoundedText):
    units: ClassVar[str]
    max_length = MAX_LENGTH

    @property
    def rule(self) -> cel.Rule:
        return cel.Rule(
            f"self.matches('{self.pattern}') && quantity(self).compareTo(quantity('{self.minimum}')) >= 0"
            f" && quantity(self).compareTo(quantity('{self.maximum}')) <= 0",
            f"{self.field} must be a quantity from {self.minimum} to {self.maximum} in {self.units}",
        )


@dataclass(frozen=True)
class BytesWithin(_Within):
    """Type annotation of a memory field: `Annotated[str, quantity.BytesWithin(field, "64Mi", "4Ti")]`."""

    pattern = BYTES_PATTERN
    units = "bytes, k, M, G, T, Ki, Mi, Gi or Ti"

    def parse(self, text: str) -> int:
        return to_bytes(text)


@dataclass(frozen=True)
class CpuWithin(_Within):
    """Type annotation of a CPU field: `Annotated[str, quantity.CpuWithin(field, "10m", "512")]`."""

    pattern = CPU_PATTERN
    units = "cores or m (thousandths)"

    def parse(self, text: str) -> int:
        return to_millicores(text)
