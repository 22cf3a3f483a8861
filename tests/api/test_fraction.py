from typing import Annotated

import pytest
from pydantic import TypeAdapter, ValidationError

from firsttoken_api import fraction

ADAPTER: TypeAdapter[str] = TypeAdapter(Annotated[str, fraction.Within("spec.x", "0.05", "0.8")])


@pytest.mark.parametrize("text", ["0.05", "0.050", "0.8", "0.5"])
def test_accepts(text: str) -> None:
    assert ADAPTER.validate_python(text) == text


@pytest.mark.parametrize("text", ["0", "0.049", "0.801", "1", ".5", "0.5000", "5e-1", "half", "", "0.5\n"])
def test_refuses_with_the_bounds(text: str) -> None:
    with pytest.raises(ValidationError, match=r"spec\.x must be a decimal from 0\.05 to 0\.8"):
        ADAPTER.validate_python(text)


def test_the_api_server_compares_numbers_not_texts() -> None:
    (rule,) = ADAPTER.json_schema()["x-kubernetes-validations"]
    assert "double(self) >= double('0.05')" in rule["rule"]
