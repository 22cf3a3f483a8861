"""Logprobs of answers and prompts through the whole engine: against the model, chunked, preempted, alone."""

import random
from pathlib import Path
from typing import Any

import pytest
import torch

from firsttoken_runtime import core
from firsttoken_runtime.engine import runner
from firsttoken_runtime.engine.local import LocalEngine
from firsttoken_runtime.scheduler.sequence import ScheduledStep, Sequence, Work
from runtime import tiny_model

PROMPT = random.Random(4).choices(range(3, 131), k=201)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model.write(tmp_path_factory.mktemp("tiny"))


def rows_of(engine: LocalEngine, tokens: list[int]) -> torch.Tensor:
    """[T, V] log-softmax of a whole sequence in one step."""
    sequence = Sequence(1, tokens, core.SamplingParams(max_tokens=1), 0.0)
    sequence.block_table = list(range(len(tokens) // 16 + 1))
    step = ScheduledStep(1, prefills=(Work(sequence, 0, len(tokens), samples=True),))
    with torch.inference_mode():
        rows = runner.step_input(step, 16, torch.device("cpu"))
        model = engine.engine.runner.model
        return model.logits(model.hidden(rows, engine.engine.runner.layers)).double().log_softmax(-1)


def close(scores: list[core.TokenLogprobs | None], expected: torch.Tensor, tokens: list[int]) -> None:
    """scores[i] is of tokens[i], which row i of `expected` foretells."""
    for one, row, token in zip(scores, expected, tokens, strict=True):
        assert one is not None
        assert one.logprob == pytest.approx(float(row[token]), abs=1e-4)
        assert one.logprob < 0.0
        assert one.rank == int((row > row[token]).sum()) + 1
        top = row.topk(len(one.top_ids))
        assert one.top_ids == top.indices.tolist()
        assert one.top_logprobs == pytest.approx(top.values.tolist(), abs=1e-4)


@pytest.mark.parametrize("changes", [{}, {"max_num_batched_tokens": 64}, {"block_size_tokens": 7}])
def test_a_prompt_is_scored_whole_and_in_chunks(folder: Path, changes: dict[str, Any]) -> None:
    engine = tiny_model.engine(folder, **changes)
    scores = engine.score(PROMPT, 3)
    assert scores[0] is None
    close(scores[1:], rows_of(tiny_model.engine(folder), PROMPT)[:-1], PROMPT[1:])
    assert engine.finish_reasons == {1: "length"}
    assert engine.tokens[1] == []
    engine.loop.scheduler.check_integrity()


def test_prompts_of_one_token_and_of_tile_lengths(folder: Path) -> None:
    engine = tiny_model.engine(folder)
    assert engine.score(PROMPT[:1]) == [None]
    for length in (2, 64, 65, 66, 129):
        assert len(engine.score(PROMPT[:length])) == length


def test_the_output_layer_sees_a_prompt_in_tiles(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = tiny_model.engine(folder)
    model = engine.engine.runner.model
    whole, seen = model.logits, []

    def logits(hidden: torch.Tensor) -> torch.Tensor:
        seen.append(len(hidden))
        return whole(hidden)

    monkeypatch.setattr(model, "logits", logits)
    engine.score(PROMPT)
    assert max(seen) <= runner.TILE_ROWS
    assert sum(seen) == len(PROMPT) - 1


def test_echo_gives_both_the_prompt_and_the_answer(folder: Path) -> None:
    engine = tiny_model.engine(folder)
    sampling = tiny_model.greedy(9, logprobs=2, prompt_logprobs=0)
    ids = [engine.submit(PROMPT[:50], sampling), engine.submit(PROMPT[:20], tiny_model.greedy(9))]
    engine.run()
    answer = engine.tokens[ids[0]]
    rows = rows_of(tiny_model.engine(folder), PROMPT[:50] + answer)
    scores = engine.prompt_scores[ids[0]]
    assert scores.finish_reason == ""
    assert scores.scores[0] is None
    close(scores.scores[1:], rows[:49], PROMPT[1:50])
    close(engine.logprobs[ids[0]], rows[49:58], answer)
    assert engine.logprobs[ids[1]] == [None] * 9, "only who asked"
    assert ids[1] not in engine.prompt_scores


def test_preemption_changes_neither_tokens_nor_scores(folder: Path) -> None:
    prompts = [PROMPT[start : start + 20] for start in range(0, 120, 20)]
    answers = []
    for changes in ({}, {"kv_blocks": 10, "max_model_len": 100}):
        engine = tiny_model.engine(folder, **changes)
        ids = [
            engine.submit(
                prompt,
                tiny_model.greedy(
                    60,
                    temperature=0.9,
                    top_p=0.95,
                    seed=5,
                    choice=number,
                    frequency_penalty=0.4,
                    repetition_penalty=1.2,
                    logit_bias={7: 2.0},
                    min_tokens=30,
                    ignore_eos=False,
                    logprobs=1,
                    prompt_logprobs=1,
                ),
            )
            for number, prompt in enumerate(prompts)
        ]
        engine.run()
        preemptions = engine.loop.scheduler.stats().preemptions_total
        engine.loop.scheduler.check_integrity()
        assert not engine.failures
        answers.append(
            (
                [engine.tokens[one] for one in ids],
                [engine.logprobs[one] for one in ids],
                [engine.prompt_scores[one].scores for one in ids],
            )
        )
    assert preemptions > 0
    (tokens, logprobs, scores), others = answers
    assert others[0] == tokens
    assert all(len(answer) >= 30 for answer in tokens)
    for mine, theirs in ((logprobs, others[1]), (scores, others[2])):
        for left, right in zip(mine, theirs, strict=True):
            assert [one and (one.rank, one.top_ids) for one in left] == [
                one and (one.rank, one.top_ids) for one in right
            ]
            assert [one.logprob for one in left if one] == pytest.approx(
                [one.logprob for one in right if one], abs=1e-4
            )


def test_choices_of_one_prompt_differ_and_repeat(folder: Path) -> None:
    def run() -> list[list[int]]:
        engine = tiny_model.engine(folder)
        ids = [
            engine.submit(PROMPT[:9], tiny_model.greedy(8, temperature=1.0, seed=1, choice=number))
            for number in range(4)
        ]
        engine.run()
        return [engine.tokens[one] for one in ids]

    first = run()
    assert len({tuple(answer) for answer in first}) == 4
    assert run() == first


def test_nan_in_the_middle_of_a_prompt_ends_its_scoring_alone(folder: Path) -> None:
    engine = tiny_model.engine(folder)
    with torch.inference_mode():
        engine.engine.runner.model.embedding[130] = float("nan")
    clean = [token for token in PROMPT[:40] if token != 130]
    bad = engine.submit([*clean[:10], 130, *clean[10:]], core.SamplingParams(max_tokens=0, prompt_logprobs=1))
    good = engine.submit(clean, tiny_model.greedy(5, prompt_logprobs=1))
    engine.run()
    assert engine.failure_codes == {bad: "not_finite"}
    assert bad not in engine.prompt_scores
    assert len(engine.prompt_scores[good].scores) == len(clean)
    assert len(engine.tokens[good]) == 5
    engine.loop.scheduler.check_integrity()


@pytest.mark.parametrize("changes", [{"max_num_batched_tokens": 64}, {"kv_blocks": 14, "max_model_len": 140}])
def test_batch_invariant_logprobs_are_equal_to_the_last_bit(folder: Path, changes: dict[str, Any]) -> None:
    """Alone, against a batch that is cut into chunks or preempted."""
    sampling = tiny_model.greedy(
        20, temperature=0.8, seed=3, frequency_penalty=0.3, logprobs=2, prompt_logprobs=2
    )
    prompts = [PROMPT[start : start + 9 + 13 * start // 20] for start in range(0, 100, 20)]

    def run(engine: LocalEngine, some: list[list[int]]) -> list[Any]:
        ids = [engine.submit(prompt, sampling) for prompt in some]
        engine.run()
        return [(engine.tokens[one], engine.logprobs[one], engine.prompt_scores[one].scores) for one in ids]

    alone = tiny_model.engine(folder, batch_invariant=True)
    expected = [run(alone, [prompt])[0] for prompt in prompts]
    assert run(tiny_model.engine(folder, batch_invariant=True, **changes), prompts) == expected
