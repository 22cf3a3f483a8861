"""Two minutes of a small machine under too much load, in simulated time: what clients see of the policy.

Capacity is the highest rate at which 95 % hold the limit with everybody let in, searched once. Numbers are
for the pure policy with an engine that keeps its pace but for 5 % of noise; the seeds are fixed.
"""

import random

import pytest

from firsttoken_api.step_time import StepTime
from firsttoken_sidecar.desk import Desk
from sidecar import engine_simulation as simulated

MINUTES_S = 120.0
LIMIT_S = 1.0
SEED = 2
OVERLOAD = 4.0


def short(numbers: random.Random) -> tuple[int, int]:
    """Prompts of 20 to 200 tokens, answers of 8 to 32: slots become scarce first."""
    return numbers.randint(20, 200), numbers.choice([8, 16, 32])


def long_tailed(numbers: random.Random) -> tuple[int, int]:
    """Most prompts near 150 tokens, some of 2,000; answers near 27 tokens, some of 200."""
    prompt = min(2000, max(8, int(numbers.lognormvariate(5, 1))))
    return prompt, min(200, max(1, int(numbers.lognormvariate(3.3, 0.7))))


@pytest.fixture(scope="module")
def capacity() -> float:
    """Of `short`, requests a second."""
    found = simulated.capacity(short, limit_s=LIMIT_S, engine=simulated.Engine(), seed=1)
    assert 6 < found < 12
    return found


def run(
    calls: list[simulated.Call],
    engine: simulated.Engine | None = None,
    *,
    until_s: float = MINUTES_S,
    is_admitting: bool = True,
) -> simulated.Result:
    return simulated.Simulation(
        calls, Desk() if is_admitting else None, engine or simulated.Engine(), SEED
    ).run(until_s)


def load(rate: float, **kwargs: object) -> list[simulated.Call]:
    until_s = float(kwargs.pop("until_s", MINUTES_S))  # type: ignore[arg-type]
    seed = int(kwargs.pop("seed", SEED))  # type: ignore[call-overload]
    draw = kwargs.pop("draw", short)
    return simulated.poisson(rate, until_s, draw, seed=seed, **kwargs)  # type: ignore[arg-type]


def test_overload_costs_those_that_are_refused_and_nobody_else(capacity: float) -> None:
    at_capacity = run(load(capacity), is_admitting=False)
    without = run(load(OVERLOAD * capacity), is_admitting=False)
    assert without.breaches() > 0.9, "everybody is let in, and nearly all are late"
    result = run(load(OVERLOAD * capacity))
    assert result.breaches() <= 0.05
    assert result.goodput >= 0.9 * at_capacity.goodput
    near = result.near_limit()
    assert len(near) > 100
    assert 0.02 <= result.breaches(near) <= 0.2, "calibrated, not timid"
    assert all(1 <= (one.retry_after_s or 0) <= 600 for one in result.refused)


@pytest.mark.parametrize("returning", [0.03, 0.3, 1.0])
def test_a_time_to_come_again_is_kept(capacity: float, returning: float) -> None:
    result = run(load(OVERLOAD * capacity, retry_share=returning))
    let_in, came_back = result.returned()
    assert came_back >= 30
    assert let_in >= 0.8 * came_back
    assert result.breaches() <= 0.05


def test_below_capacity_hardly_anybody_is_refused(capacity: float) -> None:
    results = [run(load(0.8 * capacity, seed=seed)) for seed in (2, 3, 4)]
    refused = sum(len(one.refused) for one in results)
    asked = refused + sum(len(one.accepted) for one in results)
    assert refused <= 0.005 * asked
    assert all(one.breaches() <= 0.05 for one in results)


@pytest.mark.parametrize("factor", [0.7, 1.4])
def test_an_engine_that_is_wrong_about_its_steps(capacity: float, factor: float) -> None:
    true = simulated.TRUE_STEP
    reported = StepTime(true.fixed_s * factor, true.per_prefill_token_s * factor, true.per_decode_s * factor)
    result = run(load(OVERLOAD * capacity), simulated.Engine(reported=reported))
    assert result.breaches() <= 0.05
    assert 0.02 <= result.breaches(result.near_limit()) <= 0.2


def test_prompts_that_are_counted_wrong_and_answers_that_end_early(capacity: float) -> None:
    at_capacity = run(load(capacity), is_admitting=False)
    result = run(load(OVERLOAD * capacity, prompt_error=0.3, cut_share=0.5))
    assert result.breaches() <= 0.05
    assert result.goodput >= 0.9 * at_capacity.goodput


def test_prompts_and_answers_with_a_long_tail() -> None:
    result = run(load(14.0, draw=long_tailed, limit_s=1.5, retry_share=0.3))
    assert result.breaches() <= 0.05
    let_in, came_back = result.returned()
    assert let_in >= 0.8 * came_back
    assert max(one.prompt for one in result.accepted) > 800, "long prompts are not locked out"


def test_who_never_returns_costs_nobody_a_slot(capacity: float) -> None:
    alone = run(load(OVERLOAD * capacity))
    returning = run(load(OVERLOAD * capacity, retry_share=1.0))
    at_capacity = run(load(capacity), is_admitting=False)
    assert alone.goodput >= 0.9 * at_capacity.goodput
    waits = [[one.retry_after_s or 0 for one in each.refused if one.at_s > 60] for each in (alone, returning)]
    shorter, longer = (sum(each) / len(each) for each in waits)
    assert shorter < longer / 2, "places that nobody takes up keep nobody waiting"


def test_a_tenant_that_floods_holds_up_nobody_else(capacity: float) -> None:
    calls = load(OVERLOAD * capacity, tenant="flood") + load(0.25 * capacity, tenant="calm", seed=3)
    result = run(calls)
    for tenant, most_refused in (("calm", 0.1), ("flood", 0.95)):
        accepted = [one for one in result.accepted if one.tenant == tenant]
        refused = [one for one in result.refused if one.tenant == tenant]
        assert len(refused) <= most_refused * (len(refused) + len(accepted)), tenant
        assert result.breaches(accepted) <= 0.06, tenant
    alone = run(load(OVERLOAD * capacity, tenant="flood"))
    assert result.goodput >= 0.9 * alone.goodput, "what the calm one leaves is used"


def test_urgent_requests_are_let_in_beside_a_flood_of_others(capacity: float) -> None:
    calls = load(0.5 * capacity, request_class="chat", priority=10)
    calls += load(3 * capacity, request_class="batch", seed=3, limit_s=8.0)
    result = run(calls)
    chats = [one for one in result.accepted if one.request_class == "chat"]
    batch = [one for one in result.accepted if one.request_class == "batch"]
    refused = sum(one.request_class == "chat" for one in result.refused)
    assert refused <= 0.05 * (refused + len(chats))
    assert result.breaches(chats) <= 0.05
    assert len(batch) > 200
    assert result.breaches(batch) <= 0.05


def test_nothing_is_promised_to_others_while_the_urgent_take_all(capacity: float) -> None:
    calls = load(2 * capacity, request_class="chat", priority=10)
    calls += load(2 * capacity, request_class="batch", seed=3, limit_s=8.0)
    result = run(calls)
    later = [one for one in result.accepted if one.at_s > 10]
    assert result.breaches([one for one in later if one.request_class == "chat"]) <= 0.05
    batch = [one for one in later if one.request_class == "batch"]
    assert sum((one.ttft_s or 1e9) > one.limit_s for one in batch) <= 1
