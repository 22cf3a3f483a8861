"""The sampler against plain Python: every filter and penalty together, masks, logprobs, failing rows."""

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from firsttoken_kernels import logprobs, penalties, philox, sampling
from firsttoken_runtime import core, guidance
from firsttoken_runtime.engine.sampler import Sampled, Sampler
from firsttoken_runtime.scheduler.sequence import ScheduledStep, Sequence, Work


def sequence_of(
    number: int,
    sampling: core.SamplingParams,
    *,
    prompt: tuple[int, ...] = (5, 6),
    output: tuple[int, ...] = (7,),
    stop_ids: frozenset[int] = frozenset(),
) -> Sequence:
    sequence = Sequence(number, list(prompt), sampling, 0.0, stop_ids)
    sequence.token_ids += output
    return sequence


def step_of_sequences(*sequences: Sequence) -> ScheduledStep:
    return ScheduledStep(
        1, decodes=tuple(Work(one, one.num_tokens - 1, 1, samples=True) for one in sequences)
    )


def step_of(*rows: core.SamplingParams, stop_ids: frozenset[int] = frozenset()) -> ScheduledStep:
    """One decoding sequence a row; ids are 1, 2, ..."""
    return step_of_sequences(
        *(sequence_of(number, one, stop_ids=stop_ids) for number, one in enumerate(rows, start=1))
    )


def sample(step: ScheduledStep, logits: torch.Tensor) -> Sampled:
    return Sampler().sample(step, logits)


GREEDY = core.SamplingParams(max_tokens=5, temperature=0.0)


def greedy(**changes: Any) -> core.SamplingParams:
    return core.SamplingParams(**{"max_tokens": 5, "temperature": 0.0} | changes)


def drawn(seed: int, **changes: Any) -> core.SamplingParams:
    return core.SamplingParams(**{"max_tokens": 5, "seed": seed} | changes)


def reference(sequence: Sequence, logits: list[float]) -> int:
    """What one row gives, in plain Python; the order is that of `adjustment` and `sampling`."""
    params = sequence.sampling
    row = list(logits)
    if sequence.masks_stop_ids:
        row = [-math.inf if token in sequence.stop_ids else value for token, value in enumerate(row)]
    for token, bias in params.logit_bias.items():
        row[token] = float(np.float32(row[token]) + np.float32(bias))
    prompt = sequence.token_ids[: sequence.num_prompt_tokens]
    output = sequence.token_ids[sequence.num_prompt_tokens :]
    only_output = params.repetition_penalty == 1.0
    row = penalties.reference(
        row,
        [] if only_output else prompt,
        output,
        params.repetition_penalty,
        params.frequency_penalty,
        params.presence_penalty,
    )
    if params.temperature == 0:
        return row.index(max(row))
    uniform = float(philox.uniforms([params.seed], [params.choice], [sequence.num_output_tokens])[0])
    return sampling.reference(row, params.temperature, params.top_k, params.top_p, params.min_p, uniform)


VOCABULARY = 11
PARAMS = st.builds(
    core.SamplingParams,
    max_tokens=st.just(20),
    temperature=st.sampled_from([0.0, 0.5, 1.0, 1.7]),
    top_k=st.sampled_from([0, 1, 3, 100, 2**64 - 1]),
    top_p=st.sampled_from([0.11, 0.53, 0.9, 1.0]),
    min_p=st.sampled_from([0.0, 0.013, 0.37]),
    seed=st.integers(-5, 2**63),
    choice=st.integers(0, 3),
    presence_penalty=st.sampled_from([0.0, 0.7, -1.3]),
    frequency_penalty=st.sampled_from([0.0, 0.3, -0.4]),
    repetition_penalty=st.sampled_from([1.0, 1.1, 0.8]),
    logit_bias=st.dictionaries(
        st.integers(0, VOCABULARY - 1), st.sampled_from([-100.0, 0.1, 3.0]), max_size=3
    ),
    logprobs=st.sampled_from([None, 0, 2]),
    min_tokens=st.sampled_from([0, 3]),
)
TOKENS = st.lists(st.integers(0, VOCABULARY - 1), max_size=6).map(tuple)
ROWS = st.lists(
    st.tuples(
        PARAMS, TOKENS, TOKENS, st.lists(st.integers(-16, 16), min_size=VOCABULARY, max_size=VOCABULARY)
    ),
    min_size=1,
    max_size=4,
)


@settings(max_examples=150, deadline=None)
@given(rows=ROWS)
def test_every_combination_gives_what_plain_python_gives(rows: list[Any]) -> None:
    sequences = [
        sequence_of(number, params, prompt=(1, *prompt), output=output, stop_ids=frozenset({2, 4}))
        for number, (params, prompt, output, _) in enumerate(rows, start=1)
    ]
    logits = [[value / 3 for value in values] for *_, values in rows]
    tensor = torch.tensor(logits)
    exact = tensor.tolist()
    sampled = sample(step_of_sequences(*sequences), tensor)
    assert not sampled.failures
    for sequence, row in zip(sequences, exact, strict=True):
        number = sequence.sequence_id
        assert sampled.tokens[number] == reference(sequence, row)
        if sequence.sampling.logprobs is None:
            assert number not in sampled.logprobs
            continue
        found = sampled.logprobs[number]
        expected = logprobs.reference(row, sampled.tokens[number], sequence.sampling.logprobs)
        assert (found.rank, found.top_ids) == (expected.rank, expected.top_ids)
        assert found.logprob == pytest.approx(expected.logprob, abs=1e-9)
        assert found.top_logprobs == pytest.approx(expected.top_logprobs, abs=1e-9)


def test_greedy_takes_the_largest() -> None:
    logits = torch.tensor([[0.0, 2.0, 1.0], [3.0, 2.0, 1.0]])
    assert sample(step_of(GREEDY, GREEDY), logits).tokens == {1: 1, 2: 0}


def test_a_draw_depends_on_seed_and_position_not_on_the_batch() -> None:
    torch.manual_seed(0)
    logits = torch.randn(1, 200)
    alone = [sample(step_of(drawn(seed)), logits.clone()).tokens[1] for seed in range(8)]
    batch = step_of(*[drawn(seed) for seed in range(8)], GREEDY)
    together = sample(batch, logits.repeat(9, 1)).tokens
    assert [together[number] for number in range(1, 9)] == alone
    assert together[9] == int(logits.argmax())
    assert len(set(alone)) > 3
    later = step_of(drawn(0))
    later.decodes[0].sequence.token_ids += [7] * 20
    positions = {sample(later, logits.clone()).tokens[1]}
    later.decodes[0].sequence.token_ids += [7]
    positions |= {sample(later, logits.clone()).tokens[1]}
    assert len(positions | {alone[0]}) > 1


def test_top_k_of_one_is_greedy() -> None:
    logits = torch.tensor([[0.0, 2.0, 1.9]])
    assert sample(step_of(drawn(3, top_k=1)), logits).tokens == {1: 1}


def test_min_tokens_masks_the_stop_ids() -> None:
    logits = torch.tensor([[0.0, 2.0, 1.0]])
    masked = core.SamplingParams(max_tokens=5, temperature=0.0, min_tokens=2)
    assert sample(step_of(masked, stop_ids=frozenset({1})), logits).tokens == {1: 2}
    done = core.SamplingParams(max_tokens=5, temperature=0.0, min_tokens=1)
    logits = torch.tensor([[0.0, 2.0, 1.0]])
    assert sample(step_of(done, stop_ids=frozenset({1})), logits).tokens == {1: 1}


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("params", [GREEDY, drawn(1)], ids=["greedy", "drawn"])
def test_a_row_that_is_not_finite_fails_alone(bad: float, params: core.SamplingParams) -> None:
    logits = torch.tensor([[0.0, bad, 1.0], [0.0, 0.0, 60.0]])
    sampled = sample(step_of(params, params), logits)
    assert sampled.failures.keys() == {1}
    assert sampled.failures[1].code == "not_finite"
    assert sampled.tokens == {2: 2}


def test_a_step_that_samples_nothing() -> None:
    assert sample(ScheduledStep(1), torch.empty(0, 10)) == Sampled()


def test_choices_of_one_seed_differ_and_each_repeats() -> None:
    logits = torch.zeros(1, 1000)
    choices = [drawn(3, choice=number) for number in range(6)]
    tokens = [sample(step_of(one), logits.clone()).tokens[1] for one in choices]
    assert len(set(tokens)) > 3
    assert sample(step_of(*choices), logits.repeat(6, 1)).tokens == dict(enumerate(tokens, start=1))


@pytest.mark.parametrize(
    ("changes", "filtered"),
    [
        ({}, [0, 1, 2, 3, 4, 5]),
        ({"temperature": 0.6}, [0, 1, 2, 3, 4, 5]),
        ({"top_k": 3}, [0, 2, 4]),
        ({"top_p": 0.8}, [0, 2, 4]),
        ({"min_p": 0.2}, [0, 2, 4]),
    ],
    ids=["free", "temperature", "top-k", "top-p", "min-p"],
)
def test_draws_follow_the_distribution(changes: dict[str, float], filtered: list[int]) -> None:
    """Chi-square over 3,000 seeds; P = 0.001."""
    logits = torch.tensor([[1.0, -1.0, 2.0, -0.5, 1.5, -2.0]])
    draws = 3000
    rows = [drawn(seed, **changes) for seed in range(draws)]
    counts = Counter(sample(step_of(*rows), logits.repeat(draws, 1)).tokens.values())
    weights = (logits[0].double() / changes.get("temperature", 1.0)).exp()
    expected = {token: draws * float(weights[token] / weights[filtered].sum()) for token in filtered}
    assert set(counts) <= set(filtered)
    chi_square = sum((counts[token] - expected[token]) ** 2 / expected[token] for token in filtered)
    assert chi_square < {2: 13.8, 5: 20.5}[len(filtered) - 1]


def test_penalties_count_on_while_the_output_grows() -> None:
    """One sampler over many steps equals one that sees the whole output at once, preempted or not."""
    params = greedy(max_tokens=300, frequency_penalty=1.9, repetition_penalty=1.2, presence_penalty=0.1)
    logits = torch.randn(1, 150, generator=torch.Generator().manual_seed(2)) * 2
    keeps = Sampler()
    sequence = sequence_of(1, params, prompt=(3, 3, 8), output=())
    for _ in range(200):
        token = keeps.sample(step_of_sequences(sequence), logits.clone()).tokens[1]
        assert token == sample(step_of_sequences(sequence), logits.clone()).tokens[1]
        sequence.token_ids.append(token)
    assert len(set(sequence.token_ids)) > 100, "penalties make it wander"


def test_the_state_of_ended_sequences_is_dropped() -> None:
    keeps = Sampler()
    step = step_of(greedy(frequency_penalty=1.0), GREEDY, greedy(logit_bias={1: 1.0}))
    keeps.sample(step, torch.randn(3, 20))
    assert keeps.num_kept == 2, "a plain row keeps nothing"
    keeps.forget_all_but(lambda sequence_id: sequence_id == 1)
    assert keeps.num_kept == 1
    keeps.forget_all_but(lambda _: False)
    assert keeps.num_kept == 0


def test_logprobs_are_the_models_own_whatever_was_done_to_the_row() -> None:
    """A filter that keeps one token does not make it certain, nor does a greedy choice."""
    logits = torch.tensor([[1.0, 3.0, 2.0, 0.0, -9.0, -9.0, -9.0, -9.0]])
    expected = logits.double().log_softmax(-1)[0].tolist()
    for params in (
        greedy(logprobs=1),
        drawn(1, logprobs=1, top_k=1),
        drawn(1, logprobs=1, temperature=0.01),
        greedy(logprobs=1, logit_bias={0: 0.5}, frequency_penalty=0.1),
    ):
        found = sample(step_of(params), logits.clone()).logprobs[1]
        assert found.logprob == pytest.approx(expected[1])
        assert found.logprob < -0.3
        assert (found.rank, found.top_ids) == (1, [1])
    biased = sample(step_of(greedy(logprobs=2, logit_bias={0: 50.0})), logits.clone()).logprobs[1]
    assert (biased.rank, biased.top_ids) == (3, [1, 2])
    assert biased.logprob == pytest.approx(expected[0])


def test_a_row_without_a_token_left_fails_alone() -> None:
    everything = frozenset(range(4))
    first = sequence_of(1, greedy(min_tokens=3), stop_ids=everything)
    second = sequence_of(2, GREEDY, stop_ids=everything)
    sampled = sample(step_of_sequences(first, second), torch.tensor([[0.0, 1.0, 2.0, 3.0]] * 2))
    assert sampled.failures[1].code == "no_token"
    assert sampled.tokens == {2: 3}


@dataclass
class Scripted:
    """A grammar that allows the given sets, one after the other; past them only EOS, 0."""

    allowed: list[set[int]]
    taken: list[int] = field(default_factory=list)
    breaks_at: int = -1

    def mask(self, unwanted: Any = ()) -> torch.Tensor:
        if len(self.taken) == self.breaks_at:
            raise guidance.GrammarError("too complex")
        step = self.allowed[len(self.taken)] if len(self.taken) < len(self.allowed) else {0}
        return torch.tensor([token in (step - set(unwanted) or step) for token in range(VOCABULARY)])

    def accept(self, token_id: int) -> None:
        self.taken.append(token_id)

    @property
    def is_finished(self) -> bool:
        return len(self.taken) >= len(self.allowed)


def test_a_grammar_holds_against_bias_and_temperature() -> None:
    constrained = Sampler()
    matcher = Scripted([{3, 4}, {5}])
    constrained.constrain(1, matcher)
    sequence = sequence_of(1, drawn(4, temperature=50.0, logit_bias={9: 100.0}, grammar="g"), output=())
    steps = []
    for _ in range(2):
        row = torch.zeros(1, VOCABULARY)
        row[0, 8] = 40.0
        sampled = constrained.sample(step_of_sequences(sequence), row)
        sequence.token_ids.append(sampled.tokens[1])
        steps.append((sampled.tokens[1], sampled.complete))
    assert steps[0][0] in (3, 4)
    assert steps == [(steps[0][0], set()), (5, {1})]
    assert matcher.taken == [steps[0][0], 5]


def test_a_grammar_that_may_only_end_ends_before_min_tokens() -> None:
    constrained = Sampler()
    constrained.constrain(1, Scripted([]))
    params = greedy(min_tokens=4, grammar="g")
    sampled = constrained.sample(
        step_of_sequences(sequence_of(1, params, stop_ids=frozenset({0}))), torch.zeros(1, VOCABULARY)
    )
    assert sampled.tokens == {1: 0}


def test_a_grammar_that_breaks_or_is_lost_ends_its_request_alone() -> None:
    constrained = Sampler()
    constrained.constrain(1, Scripted([{3}], breaks_at=0))
    rows = [greedy(grammar="g"), greedy(grammar="g"), GREEDY]
    logits = torch.zeros(3, VOCABULARY)
    logits[:, 9] = 1.0
    sampled = constrained.sample(step_of(*rows), logits)
    assert {number: one.code for number, one in sampled.failures.items()} == {1: "grammar", 2: "grammar"}
    assert sampled.tokens == {3: 9}


def test_plain_rows_pay_for_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither copies nor state nor ops of penalties, masks or logprobs; greedy rows are not sorted."""

    def never(*_: object, **__: object) -> None:
        raise AssertionError("not for plain rows")

    monkeypatch.setattr(penalties, "apply", never)
    monkeypatch.setattr(logprobs, "score", never)
    monkeypatch.setattr(sampling, "sample", never)
    keeps = Sampler()
    assert len(keeps.sample(step_of(*[GREEDY] * 8), torch.randn(8, 50)).tokens) == 8
    assert keeps.num_kept == 0
