from typing import Annotated

import pytest
from pydantic import TypeAdapter, ValidationError

from firsttoken_api import quantity


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("0", 0),
        ("123", 123),
        ("1k", 1000),
        ("1Ki", 1024),
        ("16Gi", 16 * 2**30),
        ("1.5Gi", 3 * 2**29),
        ("2T", 2 * 10**12),
    ],
)
def test_reads_bytes(text: str, amount: int) -> None:
    assert quantity.to_bytes(text) == amount


def test_part_of_a_byte_is_rounded_up() -> None:
    assert quantity.to_bytes("0.001k") == 1
    assert quantity.to_bytes("1.001Ki") == 1026


@pytest.mark.parametrize(
    ("text", "millicores"), [("500m", 500), ("4", 4000), ("1.5", 1500), ("0.001", 1), ("1024", 1_024_000)]
)
def test_reads_cpu(text: str, millicores: int) -> None:
    assert quantity.to_millicores(text) == millicores


@pytest.mark.parametrize("text", ["", "1e3", "1m", "1 Gi", "-1", "1Gb", "Gi"])
def test_refuses_bytes(text: str) -> None:
    with pytest.raises(ValueError, match="amount of memory"):
        quantity.to_bytes(text)


@pytest.mark.parametrize("text", ["", "1Gi", "1.5m", "two", "-1"])
def test_refuses_cpu(text: str) -> None:
    with pytest.raises(ValueError, match="amount of CPU"):
        quantity.to_millicores(text)


def test_writes_whole_mebibytes() -> None:
    assert quantity.from_bytes(700 * 2**20) == "700Mi"
    assert quantity.from_bytes(700 * 2**20 + 1) == "701Mi"


@pytest.mark.parametrize("text", ["0Mi", "1023Mi", "1Gi", "1025Mi", "1023Gi", "3Ti"])
def test_writes_the_unit_that_the_api_server_would(text: str) -> None:
    assert quantity.from_bytes(quantity.to_bytes(text)) == text


def test_another_spelling_is_the_same_value() -> None:
    assert quantity.BytesRange("1Mi").canonical("4096Mi") == "4Gi"


def test_bounds_are_in_the_message() -> None:
    memory = TypeAdapter(Annotated[str, quantity.BytesWithin("spec.m", "64Mi", "1Gi")])
    assert memory.validate_python("1024Mi") == "1024Mi"
    for wrong in ("63Mi", "1025Mi", "much"):
        with pytest.raises(ValidationError, match=r"spec.m must be a quantity from 64Mi to 1Gi"):
            memory.validate_python(wrong)
    cpu = TypeAdapter(Annotated[str, quantity.CpuWithin("spec.c", "10m", "2")])
    with pytest.raises(ValidationError, match=r"spec.c must be a quantity from 10m to 2"):
        cpu.validate_python("2.001")
