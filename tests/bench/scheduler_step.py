"""What a step of the scheduler costs in pure Python: `python tests/bench/scheduler_step.py`.

256 sequences decode; every so often one ends and a waiting one is admitted and prefilled, so that all
paths of a busy engine are in it. A step is schedule, commit and stats; its bar is 1 ms in the median.
"""

import random
import statistics
import time

from firsttoken_runtime import core
from firsttoken_runtime.cache import blocks
from firsttoken_runtime.scheduler import classes, limits, scheduler
from firsttoken_runtime.scheduler.sequence import Sequence

RUNNING = 256
WAITING = 256
TABLE = classes.ClassTable(
    (classes.RequestClass("interactive", 10), classes.RequestClass("batch", 0)), "interactive"
)


def busy_scheduler(running: int = RUNNING, waiting: int = WAITING) -> scheduler.Scheduler:
    """`running` sequences fit at once; so many more wait, of two classes and any length."""
    draw = random.Random(5)
    one = scheduler.Scheduler(
        limits.Limits(
            max_model_len=1024,
            max_num_seqs=running,
            max_num_batched_tokens=2048,
            max_prefill_batch=8,
            priority=True,
            tpot_p95_s=0.05,
        ),
        blocks.Pool(running * 40, 16),
        TABLE,
    )
    for number in range(running + waiting):
        submit(one, number, draw)
    return one


def submit(one: scheduler.Scheduler, number: int, draw: random.Random) -> None:
    sampling = core.SamplingParams(max_tokens=draw.randint(100, 400))
    name = draw.choice(("interactive", "batch", "batch", "batch"))
    prompt = [1] * draw.randint(20, 200)
    one.submit(Sequence(number, prompt, sampling, number / 1000, request_class=name))


def step_costs_s(one: scheduler.Scheduler, steps: int, running: int = RUNNING) -> list[float]:
    """Seconds of each of so many steps with at least 90 % of `running` running."""
    draw = random.Random(6)
    number = 1_000_000
    costs: list[float] = []
    now = 1.0
    while len(costs) < steps:
        begin = time.perf_counter()
        step = one.schedule(now)
        middle = time.perf_counter()
        sampled = {work.sequence.sequence_id: 7 for work in step.work if work.samples}
        now += 0.03
        resume = time.perf_counter()
        committed = one.commit(step, sampled, now)
        one.stats()
        end = time.perf_counter()
        if one.stats().running >= 0.9 * running:
            costs.append(middle - begin + end - resume)
        for token in committed.tokens:
            if token.finish_reason:
                number += 1
                submit(one, number, draw)
    return costs


if __name__ == "__main__":
    costs = sorted(step_costs_s(busy_scheduler(), 2000))
    median_us, p99_us = statistics.median(costs) * 1e6, costs[int(len(costs) * 0.99)] * 1e6
    print(f"{RUNNING} running, {WAITING} waiting: median {median_us:.0f} us, P99 {p99_us:.0f} us")
