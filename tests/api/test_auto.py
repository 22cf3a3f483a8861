from typing import Annotated

import pytest
from pydantic import TypeAdapter, ValidationError

from firsttoken_api import auto

ADAPTER: TypeAdapter[auto.IntOrAuto] = TypeAdapter(Annotated[auto.IntOrAuto, auto.Within("spec.n", 2, 9)])


@pytest.mark.parametrize(("given", "read"), [("auto", "auto"), (2, 2), ("9", 9)])
def test_reads(given: object, read: object) -> None:
    assert ADAPTER.validate_python(given) == read


@pytest.mark.parametrize("given", [1, 10, "10", "", "Auto", "-3", 2.5, None])
def test_refuses_with_the_range(given: object) -> None:
    with pytest.raises(ValidationError, match=r"spec.n must be auto or a whole number from 2 to 9"):
        ADAPTER.validate_python(given)
