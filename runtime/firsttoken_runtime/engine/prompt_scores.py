"""Logprobs of prompts (`echo`, `/v1/score`): gathered chunk by chunk, published once the prompt is whole.

The row of token p says how likely token p + 1 was, so the first token has no score and the last row none
to give. A prompt that is computed again after a preemption goes on where its scores ended.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from firsttoken_runtime import core
from firsttoken_runtime.engine import sampler
from firsttoken_runtime.engine.runner import Forward, Runner
from firsttoken_runtime.scheduler.sequence import ScheduledStep, Work


@dataclass
class _Progress:
    scores: list[core.TokenLogprobs | None] = field(default_factory=lambda: [None])
    is_published: bool = False


@dataclass
class Scored:
    """What one step gave: prompts that are whole, and sequences whose logits were not finite."""

    prompts: list[core.PromptScores] = field(default_factory=list)
    failures: dict[int, core.Failure] = field(default_factory=dict)


class PromptScorer:
    """Keeps the scores of prompts that are being computed."""

    def __init__(self) -> None:
        self._progress: dict[int, _Progress] = {}

    def score(self, step: ScheduledStep, forward: Forward, runner: Runner) -> Scored:
        """Score the rows of this step's chunks."""
        scored = Scored()
        for work in step.prefills:
            if work.sequence.sequence_id in forward.prompts:
                self._score(work, forward, runner, scored)
        return scored

    def forget_all_but(self, is_open: Callable[[int], bool]) -> None:
        """Drop what belongs to sequences that have ended."""
        for sequence_id in [one for one in self._progress if not is_open(one)]:
            del self._progress[sequence_id]

    def _score(self, work: Work, forward: Forward, runner: Runner, scored: Scored) -> None:
        sequence = work.sequence
        progress = self._progress.setdefault(sequence.sequence_id, _Progress())
        if progress.is_published:
            return
        # The next row wanted is that of the last scored token; without a cache hit none is passed over.
        first = len(progress.scores) - 1
        assert work.first_token <= first or first == sequence.num_prompt_tokens - 1, (work, first)
        last = work.first_token + work.num_tokens
        end = min(last, sequence.num_prompt_tokens - 1)
        hidden = forward.prompts[sequence.sequence_id][first - work.first_token : end - work.first_token]
        num_top = sequence.sampling.prompt_logprobs or 0
        for logits in runner.logits_by_tile(hidden) if end > first else ():
            next_tokens = sequence.token_ids[first + 1 : first + 1 + len(logits)]
            scores = sampler.score(logits, next_tokens, [num_top] * len(logits))
            if None in scores:
                scored.failures[sequence.sequence_id] = core.Failure(
                    sequence_id=sequence.sequence_id, message=sampler.NOT_FINITE, code="not_finite"
                )
                return
            progress.scores += scores
            first += len(logits)
        if last >= sequence.num_prompt_tokens:
            scored.prompts.append(
                core.PromptScores(
                    sequence_id=sequence.sequence_id,
                    scores=progress.scores,
                    finish_reason="length" if sequence.sampling.max_tokens == 0 else "",
                )
            )
            progress.scores, progress.is_published = [], True
