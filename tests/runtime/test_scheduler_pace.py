"""The prefill budget follows the time per token."""

import random

import pytest

from firsttoken_runtime.cache import blocks
from firsttoken_runtime.scheduler import limits, pace, scheduler, speed
from runtime import scheduling, simulation


def budget_after(gaps_s: list[float], objective_s: float | None) -> int:
    """One second after the other with 100 tokens each, all so far apart."""
    measured, one, budget = speed.Speed(), pace.PrefillPace(), 0
    for second, gap_s in enumerate(gaps_s):
        for tenth in range(10):
            now = second + tenth / 10
            measured.note_gaps(now, gap_s, 10)
            budget = one.budget_tokens(512, objective_s, measured, now)
    return budget


def test_it_shrinks_to_one_small_chunk_and_grows_back() -> None:
    slow, fast = [0.3], [0.05]
    assert budget_after(slow * 20, None) == 512
    assert budget_after(fast * 20, 0.1) == 512
    assert budget_after(slow, 0.1) < 512
    assert budget_after(slow * 20, 0.1) == limits.MIN_CHUNK_TOKENS
    assert budget_after(slow * 20 + fast * 20, 0.1) == limits.MIN_CHUNK_TOKENS, "still in the last 30 s"
    assert budget_after(slow * 20 + fast * 120, 0.1) == 512


def test_a_slow_second_that_is_over_shrinks_it_no_further() -> None:
    """Though the percentile of 30 s stays too high for long."""
    assert 512 * pace.SHRINK**3 <= budget_after([0.3] + [0.05] * 20, 0.1) < 512


@pytest.mark.parametrize("objective_s", [0.3, 0.15])
def test_the_objective_holds_while_prompts_pour_in(objective_s: float) -> None:
    def draw(random_numbers: random.Random, client: int) -> simulation.Request:
        is_long = random_numbers.random() < 0.2
        prompt = random_numbers.randint(512, 768) if is_long else random_numbers.randint(32, 128)
        return simulation.Request(prompt, random_numbers.randint(8, 64))

    results = []
    for objective in (None, objective_s):
        one = scheduler.Scheduler(
            limits.Limits(1024, 32, 512, 8, priority=True, tpot_p95_s=objective), blocks.Pool(640, 16)
        )
        results.append(simulation.closed_loop(one, draw, clients=100, requests=600))
    without, held = (simulation.percentile(result.gaps_s, 0.95) for result in results)
    assert without > 0.5
    assert held <= objective_s * 1.05
    assert results[1].tokens_per_s > 0.85 * results[0].tokens_per_s, "shrunk no further than needed"


def test_hot_settings_that_are_switched_do_not_forget_the_pace() -> None:
    """Each document of a controller would give one burst of prompts at full speed."""
    one = scheduler.Scheduler(limits.Limits(256, 8, 512, 8, tpot_p95_s=0.01), blocks.Pool(200, 16))
    now, number, shares = 0.0, 0, []
    for steps in range(400):
        while one.stats().waiting < 3:
            number += 1
            one.submit(scheduling.sequence(number, 200, 40, arrival_s=now))
        step = one.schedule(now)
        now += simulation.step_s(step)
        one.commit(step, scheduling.sampled(step), now)
        if step.decodes:
            shares.append(step.num_prefill_tokens)
        if steps == 300:
            shares.clear()
            one.switch(one.limits)
    assert max(shares) == limits.MIN_CHUNK_TOKENS
