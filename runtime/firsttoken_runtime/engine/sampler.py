"""From logits to tokens. A sequence whose logits are not finite fails alone; the others go on.

A token is a pure function of its logits and of (seed, choice, position): no random state exists, so
batching, preemption and neighbours cannot change what is drawn. Rows that ask for nothing more than that
pay for nothing more: masks, bias and penalties touch only their own rows (`adjustment`).

Logprobs are those of the model: log-softmax of its logits as they are, before masks, bias, penalties,
temperature and filters, as OpenAI and vLLM report them.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from firsttoken_kernels import logprobs, philox, sampling
from firsttoken_runtime import core, guidance
from firsttoken_runtime.engine.adjustment import Adjustment, is_needed
from firsttoken_runtime.engine.matching import Matcher
from firsttoken_runtime.scheduler.sequence import ScheduledStep, Sequence

NOT_FINITE = "the model's output was not finite (NaN or infinity)"


@dataclass
class Sampled:
    """What each sequence of a step got, by its id: a token or a failure."""

    tokens: dict[int, int] = field(default_factory=dict)
    logprobs: dict[int, core.TokenLogprobs] = field(default_factory=dict)
    failures: dict[int, core.Failure] = field(default_factory=dict)
    complete: set[int] = field(default_factory=set)
    """Their grammar is complete: nothing may follow the token."""


class Sampler:
    """Keeps what masks and penalties need to know about the sequences that have any."""

    def __init__(self) -> None:
        self._matchers: dict[int, Matcher] = {}
        self._adjustments: dict[int, Adjustment] = {}

    def constrain(self, sequence_id: int, matcher: Matcher) -> None:
        """From its first token on the sequence follows this grammar."""
        self._matchers[sequence_id] = matcher

    @property
    def num_kept(self) -> int:
        """Sequences that have a state here."""
        return len(self._matchers.keys() | self._adjustments.keys())

    def forget_all_but(self, is_open: Callable[[int], bool]) -> None:
        """Drop the state of sequences that have ended, however that came."""
        for states in (self._matchers, self._adjustments):
            for sequence_id in [one for one in states if not is_open(one)]:
                del states[sequence_id]

    @torch.inference_mode()
    def sample(self, step: ScheduledStep, logits: torch.Tensor) -> Sampled:
        """logits: [R, V] fp32, one row for each work that samples, in step order; changed in place."""
        sequences = [work.sequence for work in step.work if work.samples]
        assert len(sequences) == len(logits), (len(sequences), logits.shape)
        sampled = Sampled()
        if not sequences:
            return sampled
        largest, tokens = logits.max(dim=-1)  # the largest is NaN if any is
        for row, is_finite in enumerate(largest.isfinite().tolist()):
            if not is_finite:
                _fail(sampled, sequences[row], "not_finite", NOT_FINITE)
        scored = [row for row, sequence in enumerate(sequences) if sequence.sampling.logprobs is not None]
        unchanged = logits[scored] if scored else logits[:0]  # a copy
        self._adjust(sequences, logits, tokens, sampled)
        drawn = [
            row
            for row, sequence in enumerate(sequences)
            if sequence.sampling.temperature > 0 and sequence.sequence_id not in sampled.failures
        ]
        if drawn:
            tokens[drawn] = _draw([sequences[row] for row in drawn], logits[drawn])
        chosen = tokens.tolist()
        for sequence, token_id in zip(sequences, chosen, strict=True):
            if sequence.sequence_id not in sampled.failures:
                self._take(sequence, token_id, sampled)
        if scored:
            rows = [(sequences[row], chosen[row]) for row in scored]
            scores = score(unchanged, [token_id for _, token_id in rows], [_num_top(one) for one, _ in rows])
            for (sequence, _), one in zip(rows, scores, strict=True):
                if one is not None:
                    sampled.logprobs[sequence.sequence_id] = one
        return sampled

    def _adjust(
        self, sequences: list[Sequence], logits: torch.Tensor, tokens: torch.Tensor, sampled: Sampled
    ) -> None:
        """Mask, bias and penalize the rows that need it, and find their likeliest tokens again."""
        rows = []
        for row, sequence in enumerate(sequences):
            if not is_needed(sequence) or sequence.sequence_id in sampled.failures:
                continue
            try:
                self._adjustment(sequence, logits.device).apply(logits[row], sequence)
            except guidance.GrammarError as error:
                _fail(sampled, sequence, "grammar", str(error))
                continue
            rows.append(row)
        if not rows:
            return
        largest, tokens[rows] = logits[rows].max(dim=-1)
        for row, value in zip(rows, largest.tolist(), strict=True):
            if value == float("-inf"):
                _fail(sampled, sequences[row], "no_token", "grammar, min_tokens and bias leave no token")
            elif value - value != 0.0:  # NaN or infinity
                _fail(sampled, sequences[row], "not_finite", NOT_FINITE)

    def _adjustment(self, sequence: Sequence, device: torch.device) -> Adjustment:
        found = self._adjustments.get(sequence.sequence_id)
        if found is None:
            matcher = self._matchers.get(sequence.sequence_id)
            if sequence.sampling.grammar and matcher is None:
                raise guidance.GrammarError("the grammar was lost")  # never unconstrained
            found = self._adjustments[sequence.sequence_id] = Adjustment(sequence, matcher, device)
        return found

    def _take(self, sequence: Sequence, token_id: int, sampled: Sampled) -> None:
        matcher = self._matchers.get(sequence.sequence_id)
        if matcher is not None:
            try:
                matcher.accept(token_id)
            except guidance.GrammarError as error:
                _fail(sampled, sequence, "grammar", str(error))
                return
            if matcher.is_finished:
                sampled.complete.add(sequence.sequence_id)
        sampled.tokens[sequence.sequence_id] = token_id


def score(logits: torch.Tensor, chosen: list[int], num_top: list[int]) -> list[core.TokenLogprobs | None]:
    """logits: [R, V], as the model gave them. None where they are not finite."""
    return [
        core.TokenLogprobs(
            logprob=one.logprob, rank=one.rank, top_ids=one.top_ids, top_logprobs=one.top_logprobs
        )
        if one is not None
        else None
        for one in logprobs.score(logits, chosen, num_top)
    ]


def _num_top(sequence: Sequence) -> int:
    return sequence.sampling.logprobs or 0


def _fail(sampled: Sampled, sequence: Sequence, code: str, message: str) -> None:
    sampled.failures[sequence.sequence_id] = core.Failure(
        sequence_id=sequence.sequence_id, message=message, code=code
    )


def _draw(sequences: list[Sequence], logits: torch.Tensor) -> torch.Tensor:
    params = [sequence.sampling for sequence in sequences]
    uniforms = philox.uniforms(
        [one.seed for one in params],
        [one.choice for one in params],
        [sequence.num_output_tokens for sequence in sequences],
    )
    device = logits.device

    def fp64(values: list[float]) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.float64, device=device)

    filters = sampling.Filters(
        temperatures=fp64([one.temperature for one in params]),
        # No more than there are: a huge number is as good as off, and would not fit into 64 bits.
        top_k=torch.tensor([min(one.top_k, logits.shape[-1]) for one in params], device=device),
        top_p=fp64([one.top_p for one in params]),
        min_p=fp64([one.min_p for one in params]),
    )
    return sampling.sample(logits, filters, torch.from_numpy(uniforms).to(device))
