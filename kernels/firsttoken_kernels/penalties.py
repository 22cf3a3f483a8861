"""Repetition, frequency and presence penalties on one row of logits, over the tokens that occurred only.

logit' = (logit / r if logit > 0 else logit * r) - frequency * count - presence * [count > 0]

r counts prompt and output, the others the output. In fp64, rounded once: the work is a few hundred
numbers, and the row keeps its own type.
"""

import numpy as np
import torch


def apply(
    logits: torch.Tensor,
    ids: torch.Tensor,
    counts: torch.Tensor,
    *,
    repetition: float,
    frequency: float,
    presence: float,
) -> None:
    """logits: [V], changed in place; ids: [N] int64, distinct; counts: [N] fp64, how often in the output."""
    values = logits[ids].double()
    if repetition != 1.0:
        values = torch.where(values > 0, values / repetition, values * repetition)
    values -= frequency * counts
    values -= presence * (counts > 0).double()
    logits[ids] = values.to(logits.dtype)


def reference(
    logits: list[float],
    prompt: list[int],
    output: list[int],
    repetition: float,
    frequency: float,
    presence: float,
) -> list[float]:
    """One row in plain Python; fp32 values in and out."""
    penalized = list(logits)
    for token in set(prompt) | set(output):
        value = logits[token]
        value = value / repetition if value > 0 else value * repetition
        count = output.count(token)
        value -= frequency * count
        value -= presence * (count > 0)
        penalized[token] = float(np.float32(value))
    return penalized
