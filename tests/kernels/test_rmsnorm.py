"""RMSNorm against its formula: every way, odd sizes, all types, and what a row must not do to another."""

import pytest
import torch

from firsttoken_kernels import rmsnorm, row_shares
from kernels import ways

TOLERANCE = {torch.float32: 1e-6, torch.float16: 2**-10, torch.bfloat16: 2**-7}


@pytest.mark.parametrize("way", ways.ALL)
@pytest.mark.parametrize("dtype", list(TOLERANCE), ids=str)
@pytest.mark.parametrize("is_weight_wide", [False, True])
@pytest.mark.parametrize("shape", [(1, 576), (7, 33), (3, 5, 64), (2, 7), (0, 48)])
def test_matches_the_formula(
    shape: tuple[int, ...], is_weight_wide: bool, dtype: torch.dtype, way: str
) -> None:
    torch.manual_seed(0)
    x = (torch.randn(shape) * 30).to(dtype)
    weight = torch.randn(shape[-1]).to(torch.float32 if is_weight_wide else dtype)
    kept = x.clone()
    with ways.taken(way):
        actual = rmsnorm.rmsnorm(x, weight, 1e-5)
    assert actual.dtype == dtype
    tolerance = TOLERANCE[dtype]
    torch.testing.assert_close(actual, rmsnorm.reference(x, weight, 1e-5), rtol=tolerance, atol=tolerance)
    assert torch.equal(x, kept), "the input is left alone"


@pytest.mark.parametrize("way", ways.COMPILED)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("length", [64, 583, 4096])
def test_16_bit_has_the_bits_of_the_operations(length: int, dtype: torch.dtype, way: str) -> None:
    """Fails where the library adds in another order than now: then nothing is wrong, but answers may differ
    with and without kernels."""
    torch.manual_seed(0)
    x, weight = torch.randn(200, length).to(dtype), torch.randn(length).to(dtype)
    with ways.taken(way):
        actual = rmsnorm.rmsnorm(x, weight, 1e-5)
    with ways.taken(ways.OPERATIONS):
        assert torch.equal(actual, rmsnorm.rmsnorm(x, weight, 1e-5))


@pytest.mark.parametrize("way", ways.ALL)
def test_a_row_of_zeros_stays_zero(way: str) -> None:
    with ways.taken(way):
        assert torch.equal(rmsnorm.rmsnorm(torch.zeros(2, 8), torch.ones(8), 1e-5), torch.zeros(2, 8))


@pytest.mark.parametrize("way", ways.ALL)
@pytest.mark.parametrize("dtype", list(TOLERANCE), ids=str)
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_not_finite_stays_in_its_row(bad: float, dtype: torch.dtype, way: str) -> None:
    torch.manual_seed(0)
    x, weight = torch.randn(5, 40).to(dtype), torch.ones(40, dtype=dtype)
    x[3, 37] = bad
    with ways.taken(way):
        broken = rmsnorm.rmsnorm(x, weight, 1e-5).isfinite().logical_not()
    assert broken[3, 37]
    assert broken[3].all() or bad == float("inf"), "beside infinity the others are 0; NaN spoils its row"
    assert not broken[[0, 1, 2, 4]].any()


@pytest.mark.parametrize("way", ways.COMPILED)
def test_no_bits_of_a_row_depend_on_others_or_on_threads(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    x, weight = torch.randn(37, 100).bfloat16(), torch.randn(100).bfloat16()
    with ways.taken(way):
        together = rmsnorm.rmsnorm(x, weight, 1e-5)
        alone = torch.cat([rmsnorm.rmsnorm(row[None], weight, 1e-5) for row in x])
        monkeypatch.setattr(row_shares, "_LEAST_ELEMENTS_A_THREAD", 100)
        monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
        shared = rmsnorm.rmsnorm(x, weight, 1e-5)
    assert torch.equal(alone, together)
    assert torch.equal(shared, together)


@pytest.mark.parametrize("way", ways.COMPILED)
def test_rows_with_gaps_between_them(way: str) -> None:
    torch.manual_seed(0)
    x, weight = torch.randn(6, 64), torch.randn(32)
    with ways.taken(way):
        assert torch.equal(
            rmsnorm.rmsnorm(x[:, 16:48], weight, 1e-5), rmsnorm.rmsnorm(x[:, 16:48].clone(), weight, 1e-5)
        )
