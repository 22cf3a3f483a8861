"""Requests of every kind under everything that may happen: each answer is the one it has alone, or a failure.

A tiny pool preempts and evicts, a tiny host tier is overwritten; aborts, switches of flags and classes, steps
that run out of memory and rows that are not finite come at random, at every stage: waiting, held for a
grammar, in the middle of a scored prompt, following a leader, decoding. The engine is batch-invariant, so
answers, logprobs and prompt scores are compared to the last bit, with those of an engine without cache.

A second storm switches the KV type too, so that answers change on their way; it looks at what is left
behind: no block held, no lock, no memory. FIRSTTOKEN_STORM_MINUTES makes it longer.
"""

import gc
import logging
import os
import random
import time
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any

import psutil
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
CACHE = flags.PrefixCache(max_fraction=0.6)
SWITCHES = [
    flags.InForce(enabled=(), paged_kv=paged, continuous_batching=continuous, chunk_tokens=chunk, **more)
    for paged, continuous, chunk, more in (
        (True, True, 64, {"priority": True, "classes": TABLE, "length_control": True}),
        (True, True, 512, {"tpot_p95_s": 0.001}),
        (False, True, None, {}),
        (False, False, None, {}),
        (True, True, None, {"priority": True}),
        (True, True, 64, {"prefix_cache": CACHE, "kv_tiering": True}),
        (True, True, 30, {"prefix_cache": CACHE, "kv_tiering": True, "priority": True, "classes": TABLE}),
        (True, True, 64, {"prefix_cache": CACHE, "affinity_max_wait_s": 0.005}),
        (True, True, None, {"prefix_cache": flags.PrefixCache(0.3, 0.5)}),
        (True, False, 64, {"prefix_cache": CACHE}),
    )
]
COLD = SWITCHES[1]
KV_TYPES: tuple[flags.KvType, ...] = ("full", "int8", "fp8")


def under(in_force: flags.InForce, kv_type: flags.KvType) -> flags.InForce:
    return replace(in_force, kv_type=kv_type, full_precision_layers=0 if kv_type == "full" else 1)


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
    cache_salt: str = ""
    shared_prefix_tokens: int = 0

    @property
    def always_fails(self) -> bool:
        return self.sampling.grammar == "bad" or POISON in self.prompt


def bases(draw: random.Random) -> list[list[int]]:
    """Beginnings that requests of one storm share."""
    return [draw.choices(range(3, POISON), k=draw.choice((16, 33, 48, 70))) for _ in range(4)]


def drawn_request(draw: random.Random, beginnings: list[list[int]]) -> Request:
    kind = draw.choice(("plain", "penalties", "score", "echo", "grammar", "stops", "bad", "poison"))
    length = draw.choice((1, 15, 16, 17, 32, 64, draw.randint(1, 90)))
    prompt = draw.choices(range(3, POISON), k=length)
    if draw.random() < 0.7:
        prompt = (draw.choice(beginnings) + prompt[: draw.randint(0, 20)])[:90]
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
        prompt.insert(draw.randrange(len(prompt)), POISON)
        changes = draw.choice(({}, {"max_tokens": 0, "prompt_logprobs": 3}))
    given = {
        "max_tokens": draw.randint(1, 25),
        "temperature": draw.choice((0.0, 1.0)),
        "seed": draw.randrange(2**40),
        "ignore_eos": True,
        "logit_bias": {POISON: -100.0},
    }
    return Request(
        prompt,
        core.SamplingParams(**given | changes),
        draw.choice(("", "", "of a tenant")),
        draw.choice((0, 0, 16, 33, 48, 200)),
    )


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tiny_model.write(tmp_path_factory.mktemp("tiny"))
    local = tiny_model.engine(
        folder,
        kv_blocks=16,
        max_model_len=120,
        max_num_batched_tokens=90,
        batch_invariant=True,
        host_memory_bytes=100_000,  # some ten blocks
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


def submit(engine: LocalEngine, request: Request, request_class: str = "") -> int:
    return engine.submit(
        request.prompt,
        request.sampling,
        request_class=request_class,
        cache_salt=request.cache_salt,
        shared_prefix_tokens=request.shared_prefix_tokens,
    )


def alone(loaded: Any, request: Request) -> tuple[Any, ...]:
    engine = LocalEngine(loaded, SlowGrammars(random.Random(0)))
    sequence_id = submit(engine, request)
    engine.run()
    assert engine.cached_tokens.get(sequence_id, 0) == 0
    assert (sequence_id in engine.failures) == request.always_fails
    return outcome(engine, sequence_id)


def preempt_one(engine: LocalEngine, draw: random.Random) -> None:
    """More often than the pool alone would make it happen."""
    roster = engine.loop.scheduler._roster
    if victims := [one for one in roster.running if preemption.can_be_victim(one)]:
        roster.preempt(draw.choice(victims), time.monotonic())


class Storm:
    """One engine in a storm, and what became of whom."""

    def __init__(
        self,
        loaded: Any,
        draw: random.Random,
        monkeypatch: pytest.MonkeyPatch,
        switches: list[flags.InForce],
    ) -> None:
        self.engine = LocalEngine(loaded, SlowGrammars(draw))
        self.requests: dict[int, Request] = {}
        self.may_fail: set[int] = set()
        """Sequences of a step that ran out of memory."""
        self.aborted: set[int] = set()
        self._loaded = loaded
        self._draw = draw
        self._monkeypatch = monkeypatch
        self._switches = switches
        self._beginnings = bases(draw)

    def turn(self) -> None:
        """Something happens, then a step."""
        draw, action = self._draw, self._draw.random()
        if action < 0.45:
            request = drawn_request(draw, self._beginnings)
            sequence_id = submit(self.engine, request, draw.choice(("urgent", "batch", "gone", "")))
            self.requests[sequence_id] = request
        elif action < 0.5 and self.requests:
            self.engine.abort(draw.choice(list(self.requests)))
            self.aborted.add(self.engine.mailbox.inbox[-1].sequence_id)
        elif action < 0.54:
            self._loaded.switch(draw.choice(self._switches))
        elif action < 0.65:
            preempt_one(self.engine, draw)
        # A context, since a patch that is undone at the test's end would keep each storm until then.
        with self._monkeypatch.context() as patch:
            if action > 0.99:
                patch.setattr(self._loaded.runner, "execute", self._out_of_memory)
            self.engine.step()
        self.engine.loop.scheduler.check_integrity()
        for sequence_id in self.aborted:
            assert not self.engine.loop.scheduler.is_open(sequence_id), "gone before the next step"

    def end(self) -> None:
        """What is open ends, and nothing is left behind."""
        self.engine.run()
        assert not self.engine.loop.scheduler.has_work
        assert self.engine.loop._sampler.num_kept == 0
        assert not self.engine.loop._scorer._progress
        check_nothing_is_held(self.engine)

    def may_end_otherwise(self, sequence_id: int) -> bool:
        """True if its answer was not to be; asserts that it had a reason."""
        if sequence_id in self.aborted:
            return True
        if self.requests[sequence_id].always_fails:
            assert sequence_id in self.engine.failures
            assert not self.engine.tokens[sequence_id], "never unconstrained"
            return True
        if sequence_id in self.engine.failures:
            assert sequence_id in self.may_fail, self.engine.failures[sequence_id]
            return True
        return False

    def _out_of_memory(self, step: Any, *_: Any) -> Any:
        self.may_fail.update(work.sequence.sequence_id for work in step.work)
        raise MemoryError("not enough memory")


def check_nothing_is_held(engine: LocalEngine) -> None:
    engine.step()  # copies that have ended let go
    engine.loop.scheduler.check_integrity()
    assert engine.loop.scheduler.pool.num_used == 0
    index = engine.engine.host.index
    if index is not None:
        # What the last step evicted is saved by the next one.
        transfers = engine.loop.scheduler._roster.reuse.transfers
        assert index.num_locked == len(transfers._saves)
        assert transfers.num_wanting == 0
        index.check_integrity()


@pytest.mark.parametrize("kv_type", KV_TYPES)
def test_every_answer_is_the_one_it_has_alone(
    loaded: Any, monkeypatch: pytest.MonkeyPatch, kv_type: flags.KvType
) -> None:
    seed = int(os.environ.get("FIRSTTOKEN_STORM_SEED", random.randrange(2**32)))
    print(f"seed {seed}")
    # A declared prefix is whole blocks, and none in a slab: there quantized KV is another, so answers change.
    switches = [under(each, kv_type) for each in SWITCHES if each.paged_kv or kv_type == "full"]
    loaded.switch(under(SWITCHES[5], kv_type))
    preempted_before = loaded.scheduler.stats().preemptions_total
    storm = Storm(loaded, random.Random(seed), monkeypatch, switches)
    for _ in range(70):
        storm.turn()
    storm.end()
    loaded.switch(under(replace(COLD, tpot_p95_s=None), kv_type))
    for sequence_id, request in storm.requests.items():
        if not storm.may_end_otherwise(sequence_id):
            expected = with_id(alone(loaded, request), sequence_id)
            assert outcome(storm.engine, sequence_id) == expected, request
    assert loaded.scheduler.stats().preemptions_total > preempted_before


def test_nothing_is_left_behind(
    loaded: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # Records of failed steps, which pytest keeps, keep all that their tracebacks can reach.
    caplog.set_level(logging.CRITICAL, "firsttoken_runtime")
    seed = int(os.environ.get("FIRSTTOKEN_STORM_SEED", random.randrange(2**32)))
    print(f"seed {seed}")
    draw = random.Random(seed)
    switches = [under(each, kv_type) for each in SWITCHES for kv_type in KV_TYPES]
    minutes = float(os.environ.get("FIRSTTOKEN_STORM_MINUTES", "0.03"))
    start = time.monotonic()
    rss_bytes: list[int] = []
    num_requests = 0
    while not rss_bytes or time.monotonic() - start < minutes * 60:
        storm = Storm(loaded, draw, monkeypatch, switches)
        for _ in range(100):
            storm.turn()
        storm.end()
        for sequence_id, request in storm.requests.items():
            if not storm.may_end_otherwise(sequence_id):
                assert storm.engine.finish_reasons[sequence_id] in ("stop", "length")
                given = storm.engine.tokens[sequence_id]
                assert len(given) <= request.sampling.max_tokens, "no token twice"
                if request.sampling.ignore_eos and not request.sampling.grammar:
                    assert len(given) == request.sampling.max_tokens, "no token lost"
        num_requests += len(storm.requests)
        del storm
        gc.collect()
        rss_bytes.append(psutil.Process().memory_info().rss)
    settled = rss_bytes[len(rss_bytes) // 4]  # by then everything was used once
    print(f"{num_requests} requests, RSS {rss_bytes[0] >> 20} MiB, {settled >> 20}, {rss_bytes[-1] >> 20}")
    assert rss_bytes[-1] - settled < 32 << 20
