"""From logits to tokens. A sequence whose logits are not finite fails alone; the others go on.

A token is a pure function of its logits and of (seed, choice, position): no random state exists, so
batching, preemption and neighbours cannot change what is drawn.
"""

from dataclasses import dataclass, field

import torch

from firsttoken_kernels import philox, sampling
from firsttoken_runtime.scheduler.sequence import ScheduledStep, Sequence


@dataclass(frozen=True)
class Sampled:
    """Sequence id -> token, and the ids whose logits were not finite."""

    tokens: dict[int, int] = field(default_factory=dict)
    not_finite: tuple[int, ...] = ()


@torch.inference_mode()
def sample(step: ScheduledStep, logits: torch.Tensor) -> Sampled:
    """logits: [R, V] fp32, one row for each work that samples, in step order; changed in place."""
    sequences = [work.sequence for work in step.work if work.samples]
    assert len(sequences) == len(logits), (len(sequences), logits.shape)
    if not sequences:
        return Sampled()
    for row, sequence in enumerate(sequences):
        if sequence.masks_stop_ids and sequence.stop_ids:
            logits[row, sorted(sequence.stop_ids)] = float("-inf")
    largest, tokens = logits.max(dim=-1)  # the largest is NaN if any is
    is_finite = largest.isfinite().tolist()
    rows = [row for row, one in enumerate(sequences) if one.sampling.temperature > 0 and is_finite[row]]
    if rows:
        tokens[rows] = _draw([sequences[row] for row in rows], logits[rows])
    chosen = {
        sequence.sequence_id: token
        for sequence, token, finite in zip(sequences, tokens.tolist(), is_finite, strict=True)
        if finite
    }
    failed = tuple(s.sequence_id for s, finite in zip(sequences, is_finite, strict=True) if not finite)
    return Sampled(chosen, failed)


def _draw(sequences: list[Sequence], logits: torch.Tensor) -> torch.Tensor:
    params = [sequence.sampling for sequence in sequences]
    uniforms = philox.uniforms(
        [one.seed for one in params],
        [0] * len(params),
        [sequence.num_output_tokens for sequence in sequences],
    )
    device = logits.device
    filters = sampling.Filters(
        temperatures=torch.tensor([one.temperature for one in params], device=device),
        top_k=torch.tensor([one.top_k for one in params], device=device),
        top_p=torch.tensor([one.top_p for one in params], device=device),
        min_p=torch.tensor([one.min_p for one in params], device=device),
    )
    return sampling.sample(logits, filters, torch.from_numpy(uniforms).to(device))
