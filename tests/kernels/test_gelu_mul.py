"""GELU-mul against its formula."""

import pytest
import torch

from firsttoken_kernels import gelu_mul


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.bfloat16, 2**-6)])
@pytest.mark.parametrize("rows", [0, 1, 7])
def test_matches_the_formula(rows: int, dtype: torch.dtype, tolerance: float) -> None:
    torch.manual_seed(0)
    gate_up = (3 * torch.randn(rows, 2 * 37)).to(dtype)
    actual = gelu_mul.gelu_mul(gate_up)
    assert actual.shape == (rows, 37)
    torch.testing.assert_close(actual, gelu_mul.reference(gate_up), rtol=tolerance, atol=tolerance)


def test_the_input_is_left_alone() -> None:
    gate_up = torch.randn(3, 14)
    before = gate_up.clone()
    gelu_mul.gelu_mul(gate_up)
    assert torch.equal(gate_up, before)
