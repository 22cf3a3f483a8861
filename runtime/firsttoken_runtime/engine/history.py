"""Which tokens one sequence has had and how often: the state of its penalties.

It grows by the new tokens of each step and is never rebuilt. Tokens of a sequence are only ever appended
to, preempted or not, so catching up with them is all there is to do.
"""

import torch

from firsttoken_kernels import penalties
from firsttoken_runtime import core
from firsttoken_runtime.scheduler.sequence import Sequence

_SPARE = 64


class History:
    """Distinct token ids with their counts in the output, on the device of the logits."""

    def __init__(self, sequence: Sequence, device: torch.device) -> None:
        counts_prompt = sequence.sampling.repetition_penalty != 1.0
        prompt = sequence.token_ids[: sequence.num_prompt_tokens] if counts_prompt else []
        self._places = {token_id: place for place, token_id in enumerate(dict.fromkeys(prompt))}
        self._ids = torch.tensor(list(self._places), dtype=torch.int64, device=device)
        self._counts = torch.zeros(len(self._places), dtype=torch.float64, device=device)
        self._num_taken = sequence.num_prompt_tokens

    def penalize(self, logits: torch.Tensor, sequence: Sequence) -> None:
        """logits: [V], changed in place by everything the sequence has so far."""
        for token_id in sequence.token_ids[self._num_taken :]:
            self._take(token_id)
        self._num_taken = sequence.num_tokens
        size = len(self._places)
        sampling = sequence.sampling
        penalties.apply(
            logits,
            self._ids[:size],
            self._counts[:size],
            repetition=sampling.repetition_penalty,
            frequency=sampling.frequency_penalty,
            presence=sampling.presence_penalty,
        )

    def _take(self, token_id: int) -> None:
        place = self._places.setdefault(token_id, len(self._places))
        if place == len(self._ids):
            spare = max(_SPARE, place)
            self._ids = torch.cat((self._ids, self._ids.new_zeros(spare)))
            self._counts = torch.cat((self._counts, self._counts.new_zeros(spare)))
        self._ids[place] = token_id
        self._counts[place] += 1


def is_needed(sampling: core.SamplingParams) -> bool:
    return (
        sampling.presence_penalty != 0.0
        or sampling.frequency_penalty != 0.0
        or sampling.repetition_penalty != 1.0
    )
