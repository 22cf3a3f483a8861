"""RMSNorm against its formula, at odd sizes and in both types."""

import pytest
import torch

from firsttoken_kernels import rmsnorm


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.bfloat16, 2**-7)], ids=["fp32", "bf16"]
)
@pytest.mark.parametrize("shape", [(1, 576), (7, 33), (3, 5, 64)])
def test_matches_the_formula(shape: tuple[int, ...], dtype: torch.dtype, tolerance: float) -> None:
    torch.manual_seed(0)
    x = (torch.randn(shape) * 30).to(dtype)
    weight = torch.randn(shape[-1]).to(dtype)
    actual, expected = rmsnorm.rmsnorm(x, weight, 1e-5), rmsnorm.reference(x, weight, 1e-5)
    assert actual.dtype == dtype
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


def test_a_row_of_zeros_stays_zero() -> None:
    assert torch.equal(rmsnorm.rmsnorm(torch.zeros(2, 8), torch.ones(8), 1e-5), torch.zeros(2, 8))
