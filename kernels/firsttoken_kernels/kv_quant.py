"""Eight-bit keys and values: one scale for each (token, KV head), symmetric, by the largest magnitude.

    scale = fp16(max |x| / L),  code = round_half_even(x / scale) clamped to +-L,  read back: code * scale

L is 127 for int8 and 448 for fp8 (e4m3, of which infinities are not part). The scale is rounded before
it divides, so what is read back is a product of the two stored numbers and nothing else. Every operation
is exact or rounds each element alone: the stored bytes of a token depend on that token only.

Edges: an all-zero head has scale 0, and so has one whose scale is below the smallest fp16. A head with an
infinity or a NaN has a NaN scale: it reads back as NaN, so that the request fails as it would in 16 bit,
instead of going on with a plausible wrong number. Magnitudes above L x 65,504 are clamped to that.
"""

import math

import torch

INT8_LARGEST = 127.0
FP8_LARGEST = 448.0
SCALE_DTYPE = torch.float16
_E4M3_TO_FP16 = 256.0
_LARGEST_SCALE = torch.finfo(SCALE_DTYPE).max


def quantize_int8(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """x: [..., D] of any floating type -> codes [..., D] int8, scales [...] fp16."""
    quotients, scales = _divide(x, INT8_LARGEST)
    return quotients.round_().to(torch.int8), scales  # round_ takes halves to even


def quantize_fp8(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """x: [..., D] of any floating type -> codes [..., D] e4m3, scales [...] fp16."""
    quotients, scales = _divide(x, FP8_LARGEST)
    return quotients.to(torch.float8_e4m3fn), scales


def dequantize(codes: torch.Tensor, scales: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """codes: [..., D] int8 or e4m3, scales: [...] fp16 -> [..., D]; one product in fp32, then rounded."""
    factors = scales.float()[..., None]
    if codes.dtype == torch.int8:
        return codes.float().mul_(factors).to(dtype)
    return _widened(codes).float().mul_(factors * _E4M3_TO_FP16).to(dtype)


def _widened(codes: torch.Tensor) -> torch.Tensor:
    """e4m3 / 256 as fp16: the same bits further up, as fp16 has its exponents' zero 8 higher. Exact, also for
    subnormal numbers (NaN, which is no code, becomes 1.875). The library widens e4m3 one by one: ten times
    slower on a CPU."""
    bits = codes.view(torch.int8).to(torch.int16)  # the sign in all of the upper bits
    return bits.bitwise_left_shift_(7).bitwise_and_(~0x4000).view(torch.float16)


def _divide(x: torch.Tensor, largest: float) -> tuple[torch.Tensor, torch.Tensor]:
    """x / scale, clamped, and 0 where the scale is 0 or NaN; the scales."""
    x = x.float()
    extent = x.abs().amax(-1)
    extent = extent.masked_fill_(extent.isinf(), math.nan)
    scales = extent.div_(largest).clamp_(max=_LARGEST_SCALE).to(SCALE_DTYPE)
    divisors = scales.float()
    divisors.masked_fill_(divisors == 0, math.inf)
    return (x / divisors[..., None]).nan_to_num_(0.0).clamp_(-largest, largest), scales


def reference(x: torch.Tensor, kind: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Element by element in plain Python. kind: int8 or fp8. Shapes as above; fp8 codes as e4m3."""
    largest = INT8_LARGEST if kind == "int8" else FP8_LARGEST
    heads = x.float().reshape(-1, x.shape[-1])
    codes, scales = [], []
    for head in heads.tolist():
        scale = _reference_scale(head, largest)
        scales.append(scale)
        codes.append([_reference_code(element, scale, kind, largest) for element in head])
    dtype = torch.int8 if kind == "int8" else torch.float8_e4m3fn
    return (
        torch.tensor(codes).to(dtype).view(x.shape),
        torch.tensor(scales, dtype=SCALE_DTYPE).view(x.shape[:-1]),
    )


def _fp32(value: float) -> float:
    return torch.tensor(value, dtype=torch.float32).item()


def _reference_scale(head: list[float], largest: float) -> float:
    if not all(map(math.isfinite, head)):
        return math.nan
    exact = _fp32(max(map(abs, head)) / largest)
    return torch.tensor(min(exact, _LARGEST_SCALE), dtype=SCALE_DTYPE).item()


def _reference_code(element: float, scale: float, kind: str, largest: float) -> float:
    if math.isnan(scale):
        return 0.0
    if scale == 0:
        return math.copysign(0.0, element)
    quotient = min(max(_fp32(element / scale), -largest), largest)
    if kind == "int8":
        return float(round(quotient))
    # e4m3: 3 bits after the leading one, exponents from -6; below that steps of 2^-9.
    exponent = max(math.frexp(quotient)[1] - 1, -6)
    step = 2.0 ** (exponent - 3)
    return math.copysign(round(quotient / step) * step, element)
