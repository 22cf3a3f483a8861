"""Requests of every kind under everything that may happen: each answer is the one it has alone, or a failure.

A tiny pool preempts; aborts, switches of flags and classes, steps that run out of memory and rows that are
not finite come at random, at every stage: waiting, held for a grammar, in the middle of a scored prompt,
decoding. The engine is batch-invariant, so answers, logprobs and prompt scores are compared to the last bit.
"""

import random
import time
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch

from firsttoken_runtime import core, guidance
from firsttoken_runtime.engine import flags
from firsttoken_runtime.engine.local import LocalEngine
from firsttoken_runtime.scheduler import classes, preemption
from runtime import tiny_model

VOCABULARY = 131
POISON = 130
"""Its embedding is NaN."""
TABLE = classes.ClassTable(
    (classes.RequestClass("urgent", 2, max_tokens=5), classes.RequestClass("batch", 0)), "batch"
)
SWITCHES = [
    flags.InForce(enabled=(), paged_kv=paged, continuous_batching=continuous, chunk_tokens=chunk, **more)
    for paged, continuous, chunk, more in (
        (True, True, 64, {"priority": True, "classes": TABLE, "length_control": True}),
        (True, True, 512, {"tpot_p95_s": 0.001}),
        (False, True, None, {}),
        (False, False, None, {}),
        (True, True, None, {"priority": True}),
    )
]


class Alternating:
    """A grammar: even and odd tokens in turn, 7 of them."""

    def __init__(self) -> None:
        self._taken = 0

    def mask(self, unwanted: Any = ()) -> torch.Tensor:
        return torch.arange(VOCABULARY) % 2 == self._taken % 2

    def accept(self, token_id: int) -> None:
        assert token_id % 2 == self._taken % 2
        self._taken += 1

    @property
    def is_finished(self) -> bool:
        return self._taken == 7


class SlowGrammars:
    """Grammars that are ready some polls later, or never."""

    def __init__(self, draw: random.Random) -> None:
        self._draw = draw
        self._waiting: list[tuple[str, Future[Any]]] = []

    def compile(self, grammar: str) -> Future[Any]:
        self._waiting.append((grammar, Future()))
        return self._waiting[-1][1]

    def poll(self) -> None:
        for job in list(self._waiting):
            if self._draw.random() < 0.3:
                self._waiting.remove(job)
                grammar, future = job
                if not future.set_running_or_notify_cancel():
                    continue
                if grammar == "bad":
                    future.set_exception(guidance.GrammarError("bad"))
                else:
                    future.set_result(Alternating())


@dataclass(frozen=True)
class Request:
    prompt: list[int]
    sampling: core.SamplingParams

    @property
    def always_fails(self) -> bool:
        return self.sampling.grammar == "bad" or POISON in self.prompt


def drawn_request(draw: random.Random) -> Request:
    kind = draw.choice(("plain", "penalties", "score", "echo", "grammar", "stops", "bad", "poison"))
    length = draw.choice((1, 15, 16, 17, 32, 64, draw.randint(1, 90)))
    prompt = draw.choices(range(3, POISON), k=length)
    changes: dict[str, Any] = {
        "penalties": {
            "repetition_penalty": 1.3,
            "frequency_penalty": 0.4,
            "presence_penalty": -0.2,
            "logit_bias": {7: 2.5, 9: -100.0, POISON: -100.0},
            "choice": draw.randrange(3),
            "top_k": draw.choice((0, 5, 10**6)),
            "top_p": 0.9,
        },
        "score": {"max_tokens": 0, "prompt_logprobs": draw.choice((0, 5, 10**6))},
        "echo": {"prompt_logprobs": 2, "logprobs": 2},
        "grammar": {"grammar": "alternating", "min_tokens": 3, "logprobs": 0},
        "stops": {"ignore_eos": False, "stop_token_ids": tuple(range(0, 131, 9)), "min_tokens": 4},
        "bad": {"grammar": "bad"},
    }.get(kind, {})
    if kind == "poison":
        prompt.insert(draw.randrange(length), POISON)
        changes = draw.choice(({}, {"max_tokens": 0, "prompt_logprobs": 3}))
    given = {
        "max_tokens": draw.randint(1, 25),
        "temperature": draw.choice((0.0, 1.0)),
        "seed": draw.randrange(2**40),
        "ignore_eos": True,
        "logit_bias": {POISON: -100.0},
    }
    return Request(prompt, core.SamplingParams(**given | changes))


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tiny_model.write(tmp_path_factory.mktemp("tiny"))
    local = tiny_model.engine(
        folder, kv_blocks=14, max_model_len=120, max_num_batched_tokens=90, batch_invariant=True
    )
    with torch.inference_mode():
        local.engine.runner.model.embedding[POISON] = float("nan")
    return local.engine


def outcome(engine: LocalEngine, sequence_id: int) -> tuple[Any, ...]:
    return (
        engine.tokens[sequence_id],
        engine.logprobs[sequence_id],
        engine.prompt_scores.get(sequence_id),
        engine.finish_reasons.get(sequence_id),
    )


def with_id(answer: tuple[Any, ...], sequence_id: int) -> tuple[Any, ...]:
    tokens, logprobs, scores, reason = answer
    if scores is not None:
        scores = core.PromptScores(
            sequence_id=sequence_id, scores=scores.scores, finish_reason=scores.finish_reason
        )
    return tokens, logprobs, scores, reason


def alone(loaded: Any, request: Request) -> tuple[Any, ...]:
    engine = LocalEngine(loaded, SlowGrammars(random.Random(0)))
    sequence_id = engine.submit(request.prompt, request.sampling)
    engine.run()
    assert (sequence_id in engine.failures) == request.always_fails
    return outcome(engine, sequence_id)


def preempt_one(engine: LocalEngine, draw: random.Random) -> None:
    """More often than the pool alone would make it happen."""
    roster = engine.loop.scheduler._roster
    if victims := [one for one in roster.running if preemption.can_be_victim(one)]:
        roster.preempt(draw.choice(victims), time.monotonic())


def storm(loaded: Any, draw: random.Random, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = LocalEngine(loaded, SlowGrammars(draw))
    requests: dict[int, Request] = {}
    may_fail: set[int] = set()
    aborted: set[int] = set()
    execute = loaded.runner.execute

    def out_of_memory(step: Any, block_size_tokens: int) -> Any:
        may_fail.update(work.sequence.sequence_id for work in step.work)
        raise MemoryError("not enough memory")

    for _ in range(70):
        action = draw.random()
        if action < 0.45:
            request = drawn_request(draw)
            name = draw.choice(("urgent", "batch", "gone", ""))
            sequence_id = engine.submit(request.prompt, request.sampling, request_class=name)
            requests[sequence_id] = request
        elif action < 0.5 and requests:
            engine.abort(draw.choice(list(requests)))
            aborted.add(engine.mailbox.inbox[-1].sequence_id)
        elif action < 0.54:
            loaded.switch(draw.choice(SWITCHES))
        elif action < 0.65:
            preempt_one(engine, draw)
        is_out_of_memory = action > 0.99
        monkeypatch.setattr(loaded.runner, "execute", out_of_memory if is_out_of_memory else execute)
        engine.step()
        engine.loop.scheduler.check_integrity()
        for sequence_id in aborted:
            assert not engine.loop.scheduler.is_open(sequence_id), "gone before the next step"
    monkeypatch.setattr(loaded.runner, "execute", execute)
    engine.run()
    assert not engine.loop.scheduler.has_work
    assert engine.loop._sampler.num_kept == 0
    assert not engine.loop._scorer._progress
    engine.loop.scheduler.check_integrity()
    loaded.switch(replace(SWITCHES[1], tpot_p95_s=None))
    for sequence_id, request in requests.items():
        if sequence_id in aborted:
            continue
        if request.always_fails:
            assert sequence_id in engine.failures
            assert not engine.tokens[sequence_id], "never unconstrained"
        elif sequence_id in engine.failures:
            assert sequence_id in may_fail, engine.failures[sequence_id]
        else:
            expected = with_id(alone(loaded, request), sequence_id)
            assert outcome(engine, sequence_id) == expected, request


def test_every_answer_is_the_one_it_has_alone(loaded: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    storm(loaded, random.Random(seed), monkeypatch)
    assert loaded.scheduler.stats().preemptions_total > 0
