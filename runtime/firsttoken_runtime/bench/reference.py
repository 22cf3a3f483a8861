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

# The prefix cache and its kin.
PREFIX_TTFT_FACTOR = 1 - 0.60
PREFILL_WORK_FACTOR = 0.5
PREFIX_SAYS = (
    "1,200 shared tokens: their prefill is zero, TTFT -280 ms; tiered cache: prefill work about halved"
)
AFFINITY_PREFILL_FACTOR = 1 + 0.25
AFFINITY_TTFT_P95_FACTOR = 1 - 0.41
AFFINITY_SAYS = "prefill throughput +25 to 30 %, P95 TTFT -41 %"

# Quantized KV.
INT8_BYTES_FACTOR = 1 - 0.45
INT8_CAPACITY_FACTOR = 1.8
INT8_DEVIATION = 0.02
INT8_DEVIATION_P999 = 0.10
INT8_OUTPUT_DEVIATION = 0.05
KV_PERPLEXITY_CHANGE = 0.005
INT8_SAYS = (
    "int8 with the last two layers in 16 bit: deviation at most 0.02, bytes -45 %, concurrency about 2x"
)
