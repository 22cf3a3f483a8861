"""The sampler: greedy and drawn rows side by side, masks, and a row that is not finite."""

import pytest
import torch

from firsttoken_runtime import core
from firsttoken_runtime.engine import sampler
from firsttoken_runtime.scheduler.sequence import ScheduledStep, Sequence, Work


def step_of(*rows: core.SamplingParams, stop_ids: frozenset[int] = frozenset()) -> ScheduledStep:
    """One decoding sequence a row; ids are 1, 2, ..."""
    work = []
    for number, sampling in enumerate(rows, start=1):
        sequence = Sequence(number, [5, 6], sampling, 0.0, stop_ids)
        sequence.token_ids.append(7)
        work.append(Work(sequence, 2, 1, samples=True))
    return ScheduledStep(1, decodes=tuple(work))


GREEDY = core.SamplingParams(max_tokens=5, temperature=0.0)


def drawn(seed: int, **changes: float) -> core.SamplingParams:
    return core.SamplingParams(max_tokens=5, seed=seed, **changes)  # type: ignore[arg-type]


def test_greedy_takes_the_largest() -> None:
    logits = torch.tensor([[0.0, 2.0, 1.0], [3.0, 2.0, 1.0]])
    assert sampler.sample(step_of(GREEDY, GREEDY), logits).tokens == {1: 1, 2: 0}


def test_a_draw_depends_on_seed_and_position_not_on_the_batch() -> None:
    torch.manual_seed(0)
    logits = torch.randn(1, 200)
    alone = [sampler.sample(step_of(drawn(seed)), logits.clone()).tokens[1] for seed in range(8)]
    batch = step_of(*[drawn(seed) for seed in range(8)], GREEDY)
    together = sampler.sample(batch, logits.repeat(9, 1)).tokens
    assert [together[number] for number in range(1, 9)] == alone
    assert together[9] == int(logits.argmax())
    assert len(set(alone)) > 3
    later = step_of(drawn(0))
    later.decodes[0].sequence.token_ids += [7] * 20
    positions = {sampler.sample(later, logits.clone()).tokens[1]}
    later.decodes[0].sequence.token_ids += [7]
    positions |= {sampler.sample(later, logits.clone()).tokens[1]}
    assert len(positions | {alone[0]}) > 1


def test_top_k_of_one_is_greedy() -> None:
    logits = torch.tensor([[0.0, 2.0, 1.9]])
    assert sampler.sample(step_of(drawn(3, top_k=1)), logits).tokens == {1: 1}


def test_min_tokens_masks_the_stop_ids() -> None:
    logits = torch.tensor([[0.0, 2.0, 1.0]])
    masked = core.SamplingParams(max_tokens=5, temperature=0.0, min_tokens=2)
    assert sampler.sample(step_of(masked, stop_ids=frozenset({1})), logits).tokens == {1: 2}
    done = core.SamplingParams(max_tokens=5, temperature=0.0, min_tokens=1)
    logits = torch.tensor([[0.0, 2.0, 1.0]])
    assert sampler.sample(step_of(done, stop_ids=frozenset({1})), logits).tokens == {1: 1}


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("params", [GREEDY, drawn(1)], ids=["greedy", "drawn"])
def test_a_row_that_is_not_finite_fails_alone(bad: float, params: core.SamplingParams) -> None:
    logits = torch.tensor([[0.0, bad, 1.0], [0.0, 0.0, 60.0]])
    sampled = sampler.sample(step_of(params, params), logits)
    assert sampled.not_finite == (1,)
    assert sampled.tokens == {2: 2}


def test_a_step_that_samples_nothing() -> None:
    assert sampler.sample(ScheduledStep(1), torch.empty(0, 10)) == sampler.Sampled()
