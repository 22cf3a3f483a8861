"""What changes one row of logits before a token is chosen, in this order:

1. the grammar: what it does not allow is masked;
2. `min_tokens`: stop ids are masked until then, unless the grammar allows nothing else;
3. `logit_bias`;
4. the penalties.

A mask is minus infinity, which neither bias nor penalty can lift. Rows without any of these never come here.
"""

import torch

from firsttoken_runtime.engine import history
from firsttoken_runtime.engine.matching import Matcher
from firsttoken_runtime.scheduler.sequence import Sequence

_MASKED = float("-inf")


class Adjustment:
    """The state of one sequence."""

    def __init__(self, sequence: Sequence, matcher: Matcher | None, device: torch.device) -> None:
        sampling = sequence.sampling
        self.matcher = matcher
        self._stop_ids = sorted(sequence.stop_ids)
        self._bias_ids = torch.tensor(list(sampling.logit_bias), dtype=torch.int64, device=device)
        self._bias = torch.tensor(list(sampling.logit_bias.values()), dtype=torch.float32, device=device)
        self._history = history.History(sequence, device) if history.is_needed(sampling) else None

    def apply(self, logits: torch.Tensor, sequence: Sequence) -> None:
        """logits: [V], changed in place. Raises `guidance.GrammarError`."""
        unwanted = self._stop_ids if sequence.masks_stop_ids else []
        if self.matcher is not None:
            logits[~self.matcher.mask(unwanted).to(logits.device)] = _MASKED
        elif unwanted:
            logits[unwanted] = _MASKED
        if len(self._bias_ids):
            logits[self._bias_ids] += self._bias
        if self._history is not None:
            self._history.penalize(logits, sequence)


def is_needed(sequence: Sequence) -> bool:
    sampling = sequence.sampling
    return (
        bool(sampling.grammar)
        or sequence.masks_stop_ids
        or bool(sampling.logit_bias)
        or history.is_needed(sampling)
    )
