"""The angle per position of each pair, for every way a `Rope` scales it.

Formulas and their order of operations are those of transformers' `modeling_rope_utils`, so that the
frequencies are equal bit for bit: at long positions a rounding of the frequency is a visible angle.
"""

import math

import torch

from firsttoken_kernels import rope
from firsttoken_runtime.model.rope_config import Rope


def inverse_frequencies(config: Rope, head_dim: int, device: torch.device) -> torch.Tensor:
    """-> [head_dim / 2] fp32."""
    plain = rope.frequencies(head_dim, config.theta, device)
    if config.divisors:
        plain = plain / torch.tensor(config.divisors, device=device)
    match config.kind:
        case "linear":
            return plain / config.factor
        case "llama3":
            return _llama3(config, plain)
        case "yarn":
            return _yarn(config, head_dim, device)
        case _:
            return plain


def _llama3(config: Rope, plain: torch.Tensor) -> torch.Tensor:
    """Short waves stay, long ones are stretched by the factor, those between by a part of it."""
    low, high = config.low_frequency_factor, config.high_frequency_factor
    length = config.original_length
    waves = 2 * math.pi / plain
    stretched = torch.where(waves > length / low, plain / config.factor, plain)
    share = (length / waves - low) / (high - low)
    between = (1 - share) * stretched / config.factor + share * stretched
    is_between = ~(waves < length / high) & ~(waves > length / low)
    return torch.where(is_between, between, stretched)


def _yarn(config: Rope, head_dim: int, device: torch.device) -> torch.Tensor:
    """Pairs that turn often within the original length stay, those that turn little are stretched."""

    def pair_turning(rotations: float) -> float:
        wide = config.original_length / (rotations * 2 * math.pi)
        return (head_dim * math.log(wide)) / (2 * math.log(config.theta))

    first, last = pair_turning(config.beta_fast), pair_turning(config.beta_slow)
    if config.truncate:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, head_dim - 1)
    if first == last:
        last += 0.001
    ramp = (torch.arange(head_dim // 2, dtype=torch.float32) - first) / (last - first)
    kept = 1 - ramp.clamp(0, 1).to(device)
    exponent = torch.arange(0, head_dim, 2).to(device=device, dtype=torch.float32) / head_dim
    powers = config.theta**exponent
    return (1.0 / (config.factor * powers)) * (1 - kept) + (1.0 / powers) * kept
