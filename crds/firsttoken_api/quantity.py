"""Resource quantities as Kubernetes spells them: bytes (`16Gi`) and CPU (`500m`, `4`).

Only the part of the grammar that people use for these two, so that one pattern describes it.
"""

import re
from dataclasses import dataclass
from fractions import Fraction

from firsttoken_api import bounded_text

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
    """A readable spelling, rounded up to whole MiB: 734003200 -> `700Mi`. In the largest unit that needs no
    fraction, as the API server writes it."""
    mebibytes = -(-amount // 2**20)
    for unit, factor in (("Ti", 2**20), ("Gi", 2**10)):
        if mebibytes and mebibytes % factor == 0:
            return f"{mebibytes // factor}{unit}"
    return f"{mebibytes}Mi"


@dataclass(frozen=True)
class _Range(bounded_text.Range):
    max_length = MAX_LENGTH
    kind = "a quantity"

    def compared(self, value: str, sign: str, bound: str) -> str:
        return f"quantity({value}).compareTo(quantity('{bound}')) {sign} 0"


@dataclass(frozen=True)
class BytesRange(_Range):
    """Amounts of memory; their number is bytes."""

    pattern = BYTES_PATTERN
    units = " in bytes, k, M, G, T, Ki, Mi, Gi or Ti"

    def number(self, text: str) -> int:
        return to_bytes(text)

    def canonical(self, text: str) -> str:
        return from_bytes(to_bytes(text))


@dataclass(frozen=True)
class CpuRange(_Range):
    """Amounts of CPU; their number is thousandths of a core."""

    pattern = CPU_PATTERN
    units = " in cores or m (thousandths)"

    def number(self, text: str) -> int:
        return to_millicores(text)


@dataclass(frozen=True)
class BytesWithin(bounded_text.BoundedText):
    """Type annotation of a memory field: `Annotated[str, quantity.BytesWithin(field, "64Mi", "4Ti")]`."""

    range_type = BytesRange


@dataclass(frozen=True)
class CpuWithin(bounded_text.BoundedText):
    """Type annotation of a CPU field: `Annotated[str, quantity.CpuWithin(field, "10m", "512")]`."""

    range_type = CpuRange
