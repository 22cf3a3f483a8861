"""What the policies are for, in simulated time: the figures they must reach on a simple machine."""

import random
import statistics

from bench import scheduler_step
from firsttoken_runtime.cache import blocks
from firsttoken_runtime.scheduler import limits, scheduler
from runtime import simulation
from runtime.scheduling import BATCH, TABLE, URGENT


def mixed(random_numbers: random.Random, client: int) -> simulation.Request:
    """Long-tail lengths; one client in ten is urgent."""
    is_long = random_numbers.random() < 0.1
    prompt = random_numbers.randint(512, 768) if is_long else random_numbers.randint(32, 128)
    output = random_numbers.randint(8, 64)
    return simulation.Request(prompt, output, URGENT if client % 10 == 0 else BATCH, expected=output)


def load(*, priority: bool) -> tuple[simulation.Result, scheduler.Scheduler]:
    one = scheduler.Scheduler(limits.Limits(1024, 64, 512, 8, priority=priority), blocks.Pool(640, 16), TABLE)
    return simulation.closed_loop(one, mixed, clients=256, requests=1000), one


def test_urgent_requests_are_answered_4_times_sooner_for_12_percent_of_throughput() -> None:
    (plain, _), (by_class, one) = load(priority=False), load(priority=True)
    assert by_class.p(0.99, URGENT) * 4 <= plain.p(0.99, URGENT)
    assert by_class.tokens_per_s >= 0.88 * plain.tokens_per_s
    assert one.stats().preemptions_total > 0
    stats = one.stats()
    assert stats.kv_live_slot_seconds_total >= 0.88 * stats.kv_allocated_slot_seconds_total
    assert stats.kv_needed_slot_seconds_total >= 0.95 * stats.kv_allocated_slot_seconds_total


def test_a_step_of_256_sequences_is_cheap() -> None:
    """The bench measures; here a bound that only a change of complexity can break."""
    costs_s = scheduler_step.step_costs_s(scheduler_step.busy_scheduler(), 60)
    assert statistics.median(costs_s) < 0.02
