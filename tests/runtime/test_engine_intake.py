"""What an engine takes: checks that keep one request from harming others, and grammars that compile."""

import math
from concurrent.futures import Future
from typing import Any

import pytest
import torch

from firsttoken_runtime import core, guidance
from firsttoken_runtime.engine import intake
from firsttoken_runtime.engine.local import LocalEngine
from runtime import tiny_model


def submit_of(**changes: Any) -> core.Submit:
    sampling = core.SamplingParams(**{"max_tokens": 4} | changes)
    return core.Submit(sequence_id=1, prompt_token_ids=[1, 2], sampling=sampling, arrival_s=0.0)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"logit_bias": {131: 1.0}}, "logit_bias: token id 131"),
        ({"logit_bias": {-1: 1.0}}, "logit_bias: token id -1"),
        ({"logit_bias": {3: math.inf}}, "logit_bias"),
        ({"temperature": math.nan}, "temperature"),
        ({"top_p": math.nan}, "top_p"),
        ({"min_p": math.inf}, "min_p"),
        ({"presence_penalty": math.nan}, "presence_penalty"),
        ({"frequency_penalty": -math.inf}, "frequency_penalty"),
        ({"repetition_penalty": math.nan}, "repetition_penalty"),
        ({"repetition_penalty": 0.0}, "repetition_penalty"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"logprobs": -1}, "logprobs"),
        ({"prompt_logprobs": -1}, "prompt_logprobs"),
    ],
)
def test_what_would_harm_the_logits_is_refused(changes: dict[str, Any], named: str) -> None:
    reason = intake.refusal(submit_of(**changes), 131)
    assert reason is not None
    assert named in reason


@pytest.mark.parametrize(
    "changes",
    [{}, {"logit_bias": {0: -100.0, 130: 100.0}}, {"top_k": 10**9}, {"max_tokens": 0, "prompt_logprobs": 0}],
)
def test_what_can_be_served_is_taken(changes: dict[str, Any]) -> None:
    assert intake.refusal(submit_of(**changes), 131) is None


class Allow:
    """A grammar: these tokens, then nothing."""

    def __init__(self, tokens: list[int]) -> None:
        self._left = list(tokens)

    def mask(self, unwanted: Any = ()) -> torch.Tensor:
        allowed = torch.zeros(131, dtype=torch.bool)
        allowed[self._left[0] if self._left else tiny_model.EOS] = True
        return allowed

    def accept(self, token_id: int) -> None:
        assert token_id == self._left.pop(0)

    @property
    def is_finished(self) -> bool:
        return not self._left


class FakeGrammars:
    """Futures that the test resolves."""

    def __init__(self) -> None:
        self.futures: list[Future[Any]] = []
        self.polls = 0

    def compile(self, grammar: str) -> Future[Any]:
        self.futures.append(Future())
        return self.futures[-1]

    def poll(self) -> None:
        self.polls += 1


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return tiny_model.engine(tiny_model.write(tmp_path_factory.mktemp("tiny"))).engine


def with_grammars(loaded: Any) -> tuple[LocalEngine, FakeGrammars]:
    grammars = FakeGrammars()
    return LocalEngine(loaded, grammars), grammars


def test_a_sequence_waits_for_its_grammar_and_others_do_not(loaded: Any) -> None:
    engine, grammars = with_grammars(loaded)
    constrained = engine.submit([5, 6], tiny_model.greedy(grammar="g"))
    free = engine.submit([5, 6], tiny_model.greedy(4))
    for _ in range(6):
        engine.step()
    assert len(engine.tokens[free]) == 4
    assert engine.tokens[constrained] == []
    assert engine.loop.has_work
    assert not engine.loop.scheduler.has_work, "the loop waits in the mailbox"
    assert grammars.polls > 0
    grammars.futures[0].set_result(Allow([9, 8, 7]))
    engine.run()
    assert engine.tokens[constrained] == [9, 8, 7]
    assert engine.finish_reasons[constrained] == "stop"
    assert engine.loop.scheduler.stats().lengths_by_class == {"": 3.5}, "it counts as an answer of 3 tokens"
    engine.loop.scheduler.check_integrity()
    assert not engine.loop.has_work


def test_a_complete_grammar_ends_after_a_token_of_text(loaded: Any) -> None:
    engine, grammars = with_grammars(loaded)
    sequence_id = engine.submit([5, 6], tiny_model.greedy(grammar="g", max_tokens=2))
    engine.loop.turn()
    grammars.futures[0].set_result(Allow([9, 8]))
    tokens: list[core.Token] = []
    while engine.loop.has_work:
        engine.loop.turn()
        tokens += [t for m in engine.mailbox.outbox if isinstance(m, core.StepOutput) for t in m.tokens]
        engine.mailbox.outbox.clear()
    assert [(t.sequence_id, t.token_id, t.finish_reason, t.ends_after) for t in tokens] == [
        (sequence_id, 9, "", False),
        (sequence_id, 8, "stop", True),
    ]


@pytest.mark.parametrize("error", [guidance.GrammarError("a loop"), ValueError("a loop")])
def test_a_grammar_that_does_not_compile_ends_its_request(loaded: Any, error: Exception) -> None:
    engine, grammars = with_grammars(loaded)
    bad = engine.submit([5, 6], tiny_model.greedy(grammar="g"))
    engine.step()
    grammars.futures[0].set_exception(error)
    good = engine.submit([5, 6], tiny_model.greedy(3))
    engine.run()
    assert "a loop" in engine.failures[bad]
    assert engine.failure_codes[bad] == "grammar"
    assert engine.tokens[bad] == [], "never unconstrained"
    assert len(engine.tokens[good]) == 3
    engine.loop.scheduler.check_integrity()


def test_a_compiler_that_hangs_is_not_waited_for(loaded: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "COMPILE_TIMEOUT_S", 0.0)
    engine, grammars = with_grammars(loaded)
    sequence_id = engine.submit([5, 6], tiny_model.greedy(grammar="g"))
    engine.run()
    assert engine.failure_codes[sequence_id] == "grammar"
    assert grammars.futures[0].cancelled()


def test_an_abort_while_its_grammar_compiles(loaded: Any) -> None:
    engine, grammars = with_grammars(loaded)
    sequence_id = engine.submit([5, 6], tiny_model.greedy(grammar="g"))
    engine.step()
    engine.abort(sequence_id)
    engine.step()
    assert grammars.futures[0].cancelled()
    assert not engine.loop.has_work
    engine.loop.scheduler.check_integrity()
