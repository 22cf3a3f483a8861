"""The packed linear equals the plain one."""

import pytest
import torch
from torch.nn import functional

from firsttoken_runtime.model import layers


@pytest.mark.parametrize("rows", [1, 2, 3, 8, 257])
@pytest.mark.parametrize("bias", [True, False])
def test_matches_functional_linear(rows: int, bias: bool) -> None:
    torch.manual_seed(0)
    weight, x = torch.randn(33, 20), torch.randn(rows, 20)
    added = torch.randn(33) if bias else None
    with torch.inference_mode():
        actual = layers.Linear(weight, added)(x)
    torch.testing.assert_close(actual, functional.linear(x, weight, added), rtol=1e-5, atol=1e-5)
