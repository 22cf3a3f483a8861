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


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 2**-6)], ids=str)
@pytest.mark.parametrize("rows", [1, 3, 65])
def test_what_follows_a_linear_is_done_with_it(rows: int, dtype: torch.dtype, tolerance: float) -> None:
    torch.manual_seed(0)
    weight, bias = torch.randn(33, 20).to(dtype), torch.randn(33).to(dtype)
    x, other = torch.randn(rows, 20).to(dtype), torch.randn(rows, 33).to(dtype)
    linear = layers.Linear(weight, bias)
    assert linear.can_fuse
    plain = x.double() @ weight.double().T + bias.double()
    with torch.inference_mode():
        for actual, expected in (
            (linear(x, other), plain + other),
            (linear.times(x, other), plain * other),
            (linear.activated(x, "silu"), functional.silu(plain)),
            (linear.activated(x, "gelu_pytorch_tanh"), functional.gelu(plain, approximate="tanh")),
        ):
            torch.testing.assert_close(actual.double(), expected, rtol=tolerance, atol=tolerance)
