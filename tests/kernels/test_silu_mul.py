"""SiLU-mul against its formula."""

from collections.abc import Iterator

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


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("inner", [77, 1000, 9000])
def test_rowwise_a_row_depends_on_nothing_else(inner: int, dtype: torch.dtype, threads: None) -> None:
    torch.manual_seed(0)
    gate_up = (torch.randn(300, 2 * inner) * 3).to(dtype)
    every = silu_mul.silu_mul(gate_up, rowwise=True)
    for first, count in ((0, 1), (3, 63), (7, 65), (40, 257)):
        rows = slice(first, first + count)
        assert torch.equal(silu_mul.silu_mul(gate_up[rows].clone(), rowwise=True), every[rows])


@pytest.fixture
def threads() -> Iterator[None]:
    """Two of them, as only then the library cuts."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)
