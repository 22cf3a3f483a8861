"""Eight-bit keys and values: stored bytes equal the plain reference, edges included."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from firsttoken_kernels import kv_quant
from kernels import caches

QUANTIZE = {"int8": kv_quant.quantize_int8, "fp8": kv_quant.quantize_fp8}
KINDS = pytest.mark.parametrize("kind", list(QUANTIZE))


def bits(x: torch.Tensor) -> torch.Tensor:
    return x.contiguous().view(torch.uint8 if x.dtype.itemsize == 1 else torch.int16)


def check(x: torch.Tensor, kind: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes and scales, equal to those of the reference to the last bit."""
    codes, scales = QUANTIZE[kind](x)
    expected_codes, expected_scales = kv_quant.reference(x, kind)
    assert codes.shape == x.shape
    assert scales.shape == x.shape[:-1]
    assert scales.dtype == torch.float16
    assert torch.equal(scales.isnan(), expected_scales.isnan())
    assert torch.equal(bits(scales.nan_to_num(0)), bits(expected_scales.nan_to_num(0)))
    assert torch.equal(bits(codes), bits(expected_codes))
    return codes, scales


@KINDS
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("shape", [(7, 3, 64), (1, 1, 2), (2, 5, 4, 6), (3, 1, 130)], ids=str)
def test_bytes_equal_the_reference(shape: tuple[int, ...], dtype: torch.dtype, kind: str) -> None:
    torch.manual_seed(len(shape))
    check(caches.spread(*shape).to(dtype), kind)


@KINDS
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_numbers(kind: str, data: st.DataObject) -> None:
    number = st.floats(width=32) | st.sampled_from([0.0, -0.0, 127.5, 448.0, 1e-8, 6e-8, 3.9e-6, 8.4e6, 3e38])
    size = data.draw(st.integers(1, 9))
    heads = data.draw(st.lists(st.lists(number, min_size=size, max_size=size), min_size=1, max_size=4))
    check(torch.tensor(heads), kind)


@KINDS
@pytest.mark.parametrize("size", [1e-3, 1.0, 1e4])
def test_what_is_read_back_is_close(kind: str, size: float) -> None:
    torch.manual_seed(1)
    x = torch.randn(50, 3, 20) * size
    back = kv_quant.dequantize(*QUANTIZE[kind](x), torch.float32)
    largest = x.abs().amax(-1, keepdim=True)
    if kind == "int8":
        assert ((back - x).abs() <= largest / 127 * 0.51).all()
    else:
        assert ((back - x).abs() <= (x.abs() / 16).clamp(min=largest / 448 / 512) * 1.01).all()


def test_int8_rounds_halves_to_even() -> None:
    x = torch.tensor([[127.0, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 126.5, 0.49]])  # the scale is 1
    codes, scales = kv_quant.quantize_int8(x)
    assert scales.item() == 1.0
    assert codes.tolist() == [[127, 0, 2, 2, 0, -2, -2, 126, 0]]


def test_fp8_rounds_halves_to_even() -> None:
    x = torch.tensor([[448.0, 17.0, 19.0, -17.0, 2**-10, 3 * 2**-10, 432.0]])
    codes, scales = kv_quant.quantize_fp8(x)
    assert scales.item() == 1.0
    assert codes.float().tolist() == [[448.0, 16.0, 20.0, -16.0, 0.0, 2**-8, 448.0]]


def test_every_fp8_code_is_widened_exactly() -> None:
    codes = torch.tensor([code for code in range(256) if code & 0x7F != 0x7F], dtype=torch.uint8)
    codes = codes.view(torch.float8_e4m3fn)
    for scale in (1.0, 3.140625, 2**-24, 65504.0):
        scales = torch.tensor([scale], dtype=torch.float16)
        back = kv_quant.dequantize(codes[None], scales, torch.float32)
        assert torch.equal(back[0], codes.float() * scales.float())


@KINDS
def test_the_rounded_scale_divides(kind: str) -> None:
    """With the scale before its rounding, codes near the ends would be others."""
    largest = 127.0 if kind == "int8" else 448.0
    for extent in torch.linspace(1.0, 2.0, 40).tolist():
        x = torch.linspace(-extent, extent, 255)[None]
        codes, scales = check(x, kind)
        assert scales.item() != extent / largest or extent in (1.0, 2.0)
        assert codes.float().abs().max() == largest


@KINDS
def test_zeros_and_constants(kind: str) -> None:
    codes, scales = check(torch.zeros(2, 3, 5), kind)
    assert not codes.float().any()
    assert not scales.any()
    assert not kv_quant.dequantize(codes, scales, torch.float32).any()
    for constant in (3.0, -0.07, 1e4):
        back = kv_quant.dequantize(*check(torch.full((1, 2, 6), constant), kind), torch.float32)
        assert (back == back[0, 0, 0]).all()
        assert abs(back[0, 0, 0].item() / constant - 1) < 1e-3


@KINDS
@pytest.mark.parametrize("bad", [torch.inf, -torch.inf, torch.nan])
def test_what_is_not_finite_stays_seen_and_in_its_head(kind: str, bad: float) -> None:
    x = torch.randn(4, 3, 8)
    x[1, 2, 5] = bad
    codes, scales = check(x, kind)
    back = kv_quant.dequantize(codes, scales, torch.float32)
    assert back[1, 2].isnan().all()
    back[1, 2] = 0
    assert back.isfinite().all()


@KINDS
def test_too_large_for_a_scale_is_clamped(kind: str) -> None:
    back = kv_quant.dequantize(*check(torch.tensor([[3e38, -1e30, 1.0]]), kind), torch.float32)
    largest = (127.0 if kind == "int8" else 448.0) * 65504
    assert back.tolist() == [[largest, -largest, 0.0]]


@KINDS
def test_a_token_does_not_depend_on_its_neighbours(kind: str) -> None:
    torch.manual_seed(2)
    x = caches.spread(97, 3, 20)
    codes, scales = QUANTIZE[kind](x)
    for first, last in ((0, 1), (5, 22), (96, 97)):
        some_codes, some_scales = QUANTIZE[kind](x[first:last])
        assert torch.equal(bits(some_codes), bits(codes[first:last]))
        assert torch.equal(some_scales, scales[first:last])
