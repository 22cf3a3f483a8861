"""Batch-invariant mode in the whole engine: the same request gives the same bits whatever happens around it.

Tokens and logprobs (fp32 numbers made of the logits) are compared for equality, never closeness, between
a request that is alone and the same one in a batch of 8, cut into chunks, preempted, with neighbours
that leave. Each test prints the seed of its draw.
"""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import pytest

from firsttoken_runtime import core
from firsttoken_runtime.engine import flags
from firsttoken_runtime.engine.local import LocalEngine
from firsttoken_runtime.scheduler import preemption
from runtime import tiny_model

VOCABULARY = 131


@dataclass(frozen=True)
class Request:
    prompt: list[int]
    sampling: core.SamplingParams


@dataclass(frozen=True)
class Answer:
    tokens: list[int]
    logprobs: list[core.TokenLogprobs | None]


@pytest.fixture(scope="module", params=["float32", "bfloat16"])
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LocalEngine:
    return tiny_model.engine(
        tiny_model.write(tmp_path_factory.mktemp("model"), max_position_embeddings=1024),
        dtype=request.param,
        kv_blocks=250,
        max_num_batched_tokens=700,
        batch_invariant=True,
    )


def drawn_requests(draw: random.Random) -> list[Request]:
    """8 of them, short, odd and long, greedy and sampled."""
    lengths = [1, draw.randint(2, 63), 64, 100, draw.randint(101, 300), 512, draw.randint(513, 700), 33]
    return [
        Request(
            draw.choices(range(3, VOCABULARY), k=length),
            core.SamplingParams(
                max_tokens=draw.randint(8, 20),
                temperature=draw.choice((0.0, 0.9)),
                seed=draw.randrange(2**31),
                ignore_eos=True,
                logprobs=3,
            ),
        )
        for length in lengths
    ]


def run(
    engine: LocalEngine,
    requests: list[Request],
    between: Callable[[LocalEngine, list[int]], None] = lambda engine, ids: None,
) -> list[Answer]:
    """Answers of requests that are submitted together; `between` runs between any two steps."""
    ids = [engine.submit(request.prompt, request.sampling) for request in requests]
    while engine.mailbox.inbox or engine.loop.has_work:
        engine.step()
        between(engine, ids)
    engine.loop.scheduler.check_integrity()
    return [Answer(engine.tokens[one], engine.logprobs[one]) for one in ids]


def alone(engine: LocalEngine, requests: list[Request]) -> list[Answer]:
    """Each by itself, its prompt in one piece."""
    engine.engine.switch(chunks_of(None))
    return [run(engine, [request])[0] for request in requests]


def chunks_of(tokens: int | None) -> flags.InForce:
    return replace(flags.defaults(), chunk_tokens=tokens)


def preempt_at_random(draw: random.Random) -> Callable[[LocalEngine, list[int]], None]:
    def between(engine: LocalEngine, ids: list[int]) -> None:
        roster = engine.loop.scheduler._roster
        running = [one for one in roster.running if preemption.can_be_victim(one)]
        if running and draw.random() < 0.3:
            roster.preempt(draw.choice(running), time.monotonic())

    return between


def seeded() -> random.Random:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    return random.Random(seed)


def test_what_happens_around_a_request_changes_no_bit(engine: LocalEngine) -> None:
    draw = seeded()
    requests = drawn_requests(draw)
    expected = alone(engine, requests)
    assert [len(answer.tokens) for answer in expected] == [one.sampling.max_tokens for one in requests]
    assert all(logprobs is not None for answer in expected for logprobs in answer.logprobs)
    assert len({tuple(answer.tokens) for answer in expected}) == len(expected)

    for chunk in (None, 512, 100, draw.randint(1, 90)):
        engine.engine.switch(chunks_of(chunk))
        assert run(engine, requests) == expected, f"in a batch, chunks of {chunk}"
        shuffled = draw.sample(range(8), 8)
        preempted_before = engine.loop.scheduler.stats().preemptions_total
        actual = run(engine, [requests[index] for index in shuffled], preempt_at_random(draw))
        assert actual == [expected[index] for index in shuffled], f"preempted, chunks of {chunk}"
        assert engine.loop.scheduler.stats().preemptions_total > preempted_before


def test_neighbours_that_leave_change_no_bit(engine: LocalEngine) -> None:
    draw = seeded()
    requests = drawn_requests(draw)
    expected = alone(engine, requests)
    engine.engine.switch(chunks_of(draw.choice((100, 512))))
    leaving = draw.sample(range(8), 5)

    def between(engine: LocalEngine, ids: list[int]) -> None:
        if draw.random() < 0.4:
            engine.abort(ids[draw.choice(leaving)])

    actual = run(engine, requests, between)
    for index in set(range(8)) - set(leaving):
        assert actual[index] == expected[index], index
    for index in leaving:  # what they got before they left
        count = len(actual[index].tokens)
        assert actual[index].tokens == expected[index].tokens[:count]


def test_the_scores_of_a_prompt_do_not_depend_on_its_chunks(engine: LocalEngine) -> None:
    draw = seeded()
    prompt = draw.choices(range(3, VOCABULARY), k=draw.randint(200, 600))
    engine.engine.switch(chunks_of(None))
    expected = engine.score(prompt, 2)
    assert len(expected) == len(prompt)
    for chunk in (100, 512, draw.randint(1, 90)):
        engine.engine.switch(chunks_of(chunk))
        assert engine.score(prompt, 2) == expected, f"chunks of {chunk}"


def test_two_threads(tmp_path: Path) -> None:
    draw = seeded()
    folder = tiny_model.write(tmp_path, max_position_embeddings=1024)
    engine = tiny_model.engine(
        folder, threads=2, kv_blocks=250, max_num_batched_tokens=700, batch_invariant=True
    )
    # Few answers: two threads that share a core with other processes wait for each other at every token.
    requests = [
        Request(one.prompt[:300], msgspec.structs.replace(one.sampling, max_tokens=4))
        for one in drawn_requests(draw)[2:6]
    ]
    expected = alone(engine, requests)
    engine.engine.switch(chunks_of(100))
    assert run(engine, requests) == expected


def test_without_the_mode_bits_do_change(tmp_path: Path) -> None:
    """Else the tests above show nothing."""
    engine = tiny_model.engine(
        tiny_model.write(tmp_path, max_position_embeddings=1024), kv_blocks=250, max_num_batched_tokens=700
    )
    requests = drawn_requests(random.Random(3))
    expected = alone(engine, requests)
    engine.engine.switch(chunks_of(100))
    assert run(engine, requests) != expected


def test_ready_says_that_the_mode_is_on(engine: LocalEngine) -> None:
    assert engine.engine.ready().batch_invariant
