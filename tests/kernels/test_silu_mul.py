"""SiLU-mul against its formula."""

import pytest
import torch

from firsttoken_kernels import silu_mul


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.bfloat16, 2**-6)], ids=["fp32", "bf16"]
)
@pytest.mark.parametrize(("tokens", "inner"), [(1, 1536), (5, 7)])
def test_matches_the_formula(tokens: int, inner: int, dtype: torch.dtype, tolerance: float) -> None:
    torch.manual_seed(0)
    gate_up = (torch.randn(tokens, 2 * inner) * 5).to(dtype)
    kept = gate_up.clone()
    actual = silu_mul.silu_mul(gate_up)
    torch.testing.assert_close(actual, silu_mul.reference(kept), rtol=tolerance, atol=tolerance)
    assert torch.equal(gate_up, kept), "the input is left alone"
