"""Figures published for the same techniques, to be compared in their ratios: hardware and load differ.

The run they are from: one A100 with 80 GB, a 27B model with 4-bit weights, 500 requests, 32 at once, most
prompts 128 to 512 tokens, some above 2,048.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Step:
    """One step of the reference run."""

    name: str
    """As the variant of `steps` is called; `fused` has none yet."""
    ttft_p50_s: float
    ttft_p99_s: float
    requests_per_s: float
    kv_use: float | None


STEPS = (
    Step("baseline", 0.420, 1.250, 18.0, 0.47),
    Step("paged", 0.280, 0.620, 31.0, 0.82),
    Step("continuous", 0.190, 0.380, 45.0, None),
    Step("fused", 0.150, 0.290, 52.0, 0.88),
)
BY_NAME = {step.name: step for step in STEPS}

TTFT_P99_FACTOR = 1 - 0.77
THROUGHPUT_FACTOR = 1 + 1.89
KV_USE = 0.88
KV_WASTE = 0.05
