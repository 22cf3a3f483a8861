"""Builders and checks for the tests of the scheduler."""

from collections.abc import Sequence as Tokens
from dataclasses import replace
from typing import Any

from firsttoken_runtime import core
from firsttoken_runtime.cache import blocks
from firsttoken_runtime.cache import host as cache_host
from firsttoken_runtime.scheduler import classes, rules
from firsttoken_runtime.scheduler import limits as scheduler_limits
from firsttoken_runtime.scheduler import scheduler as scheduling
from firsttoken_runtime.scheduler.sequence import Sequence
from firsttoken_runtime.scheduler.step import ScheduledStep
from runtime import kv_model

LIMITS = scheduler_limits.Limits(
    max_model_len=256, max_num_seqs=8, max_num_batched_tokens=128, max_prefill_batch=4, chunk_tokens=64
)
URGENT, BATCH = "urgent", "batch"
TABLE = classes.ClassTable(
    (
        classes.RequestClass(URGENT, 10),
        classes.RequestClass("middle", 5),
        classes.RequestClass(BATCH, 0),
    ),
    default=BATCH,
)


def scheduler(*, num_blocks: int = 64, block_size: int = 16, **changes: Any) -> scheduling.Scheduler:
    """With the flag `priority` and three classes; changes: of LIMITS."""
    limits = replace(LIMITS, **{"priority": True} | changes)
    return scheduling.Scheduler(limits, blocks.Pool(num_blocks, block_size), TABLE)


def caching_scheduler(
    *,
    num_blocks: int = 64,
    num_quantized: int = 0,
    block_size: int = 16,
    host: cache_host.HostIndex | None = None,
    break_even: rules.BreakEven | None = None,
    max_fraction: float = 1.0,
    **changes: Any,
) -> scheduling.Scheduler:
    """With a prefix cache as well."""
    pool = caching_pool(num_blocks, num_quantized, block_size, max_fraction)
    limits = replace(LIMITS, **{"priority": True} | changes)
    return scheduling.Scheduler(limits, pool, TABLE, lineage=b"one", host=host, break_even=break_even)


def caching_pool(
    num_blocks: int = 64, num_quantized: int = 0, block_size: int = 16, max_fraction: float = 1.0
) -> blocks.Pool:
    caching = blocks.Caching(max_fraction=max_fraction)
    return blocks.Pool(num_blocks, block_size, num_quantized=num_quantized, caching=caching)


def sequence(
    sequence_id: int,
    prompt: int | Tokens[int] = 10,
    max_tokens: int = 4,
    *,
    arrival_s: float = 0.0,
    request_class: str = "",
    priority: int = 0,
    expected: int | None = None,
    salt: str = "",
    shared: int = 0,
    prompt_logprobs: int | None = None,
) -> Sequence:
    """prompt: its tokens, or how many equal ones."""
    return Sequence(
        sequence_id,
        [7] * prompt if isinstance(prompt, int) else list(prompt),
        core.SamplingParams(max_tokens=max_tokens, prompt_logprobs=prompt_logprobs),
        arrival_s,
        request_class=request_class,
        priority=priority,
        expected_output_tokens=expected,
        cache_salt=salt,
        shared_prefix_tokens=shared,
    )


def sampled(step: ScheduledStep, token_id: int = 1) -> dict[int, int]:
    return {work.sequence.sequence_id: token_id for work in step.work if work.samples}


def run_step(
    one: scheduling.Scheduler, now: float = 0.0, kv: kv_model.KvModel | None = None
) -> ScheduledStep:
    """Schedule, check what must hold of every step, commit. kv: what it reads is checked too."""
    running = set(one.running_ids())
    step = one.schedule(now)
    one.check_integrity()
    check_step(one, step, running)
    if kv is not None:
        kv.execute(one, step)
    one.commit(step, sampled(step), now)
    one.check_integrity()
    return step


def check_step(one: scheduling.Scheduler, step: ScheduledStep, running_before: set[int]) -> None:
    assert step.work, "a step without work"
    assert step.num_tokens <= one.limits.step_budget_tokens
    assert len(step.prefills) <= one.limits.max_prefill_batch
    assert len(one.running_ids()) <= one.limits.max_num_seqs
    ids = [work.sequence.sequence_id for work in step.work]
    assert len(set(ids)) == len(ids), "one piece of work a sequence"
    victims = {victim.sequence_id for victim in step.preempted}
    assert not victims & set(one.running_ids()), "a victim is back at once"
    assert not victims & set(ids), "a victim was given tokens"
    admitted = [w.sequence for w in step.prefills if w.sequence.sequence_id not in running_before]
    for newcomer in admitted:
        priorities = [victim.class_in_force.priority for victim in step.preempted]
        assert all(newcomer.class_in_force.priority > priority for priority in priorities)
    for work in step.work:
        slots = len(work.sequence.block_table) * one.pool.block_size_tokens
        assert work.first_token + work.num_tokens <= slots, "no slot for a token"
    if one.limits.chunk_tokens is not None:
        assert all(work.num_tokens <= one.limits.chunk_tokens for work in step.prefills)


def drain(
    one: scheduling.Scheduler, now: float = 0.0, kv: kv_model.KvModel | None = None, at_most: int = 4000
) -> list[ScheduledStep]:
    """Run until nothing is left, a second a step."""
    steps: list[ScheduledStep] = []
    while one.has_work:
        steps.append(run_step(one, now + len(steps), kv))
        assert len(steps) < at_most, "the queue does not drain"
    assert one.pool.num_used == 0
    return steps


def prefilled(step: ScheduledStep) -> list[int]:
    return [work.sequence.sequence_id for work in step.prefills]


def decoded(step: ScheduledStep) -> list[int]:
    return [work.sequence.sequence_id for work in step.decodes]
