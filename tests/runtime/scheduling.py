"""Builders and checks for the tests of the scheduler."""

from dataclasses import replace
from typing import Any

from firsttoken_runtime import core
from firsttoken_runtime.cache import blocks
from firsttoken_runtime.scheduler import classes
from firsttoken_runtime.scheduler import limits as scheduler_limits
from firsttoken_runtime.scheduler import scheduler as scheduling
from firsttoken_runtime.scheduler.sequence import Sequence
from firsttoken_runtime.scheduler.step import ScheduledStep

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


def sequence(
    sequence_id: int,
    prompt: int = 10,
    max_tokens: int = 4,
    *,
    arrival_s: float = 0.0,
    request_class: str = "",
    priority: int = 0,
    expected: int | None = None,
) -> Sequence:
    return Sequence(
        sequence_id,
        [7] * prompt,
        core.SamplingParams(max_tokens=max_tokens),
        arrival_s,
        request_class=request_class,
        priority=priority,
        expected_output_tokens=expected,
    )


def sampled(step: ScheduledStep, token_id: int = 1) -> dict[int, int]:
    return {work.sequence.sequence_id: token_id for work in step.work if work.samples}


def run_step(one: scheduling.Scheduler, now: float = 0.0) -> ScheduledStep:
    """Schedule, check what must hold of every step, commit."""
    running = set(one.running_ids())
    step = one.schedule(now)
    one.check_integrity()
    check_step(one, step, running)
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


def prefilled(step: ScheduledStep) -> list[int]:
    return [work.sequence.sequence_id for work in step.prefills]


def decoded(step: ScheduledStep) -> list[int]:
    return [work.sequence.sequence_id for work in step.decodes]
