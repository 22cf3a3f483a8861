"""Evicted blocks in the host tier: saved before they are written over, loaded before they are read."""

from firsttoken_runtime.cache import blocks, host
from firsttoken_runtime.scheduler import rules
from firsttoken_runtime.scheduler import scheduler as scheduling
from firsttoken_runtime.scheduler.sequence import Sequence
from firsttoken_runtime.scheduler.step import Load
from runtime import kv_model
from runtime.scheduling import URGENT, caching_pool, caching_scheduler, drain, run_step, sampled, sequence


class Tiered:
    """A pool of ten blocks, a host tier, and what is in both."""

    def __init__(self, host_blocks: int = 40, **changes: object) -> None:
        self.host: host.HostIndex = kv_model.host_index(host_blocks)
        self.kv = kv_model.KvModel(self.host)
        given = {"num_blocks": 10, "max_model_len": 160} | changes
        self.one: scheduling.Scheduler = caching_scheduler(host=self.host, **given)  # type: ignore[arg-type]
        self.number = 0

    def serve(self, prompt: range, max_tokens: int = 1) -> Sequence:
        self.number += 1
        each = sequence(self.number, prompt, max_tokens)
        self.one.submit(each)
        drain(self.one, kv=self.kv)
        return each

    def warm(self) -> None:
        """The tokens 0..95 were hit once, and have gone to the host tier."""
        self.serve(range(100))
        self.serve(range(100))
        self.serve(range(500, 655))


def test_what_was_hit_is_saved_at_eviction_and_found_again() -> None:
    tiered = Tiered()
    tiered.warm()
    assert tiered.host.num_blocks >= 5
    again = tiered.serve(range(100))
    assert again.cached_tokens == 96
    assert again.cached_tokens_by_tier["host"] >= 80
    stats = tiered.one.stats()
    assert stats.prefix_hit_tokens_total["host"] == again.cached_tokens_by_tier["host"]
    assert stats.host_blocks == tiered.host.num_blocks
    assert tiered.serve(range(100)).cached_tokens_by_tier == {"device": 96, "host": 0}, "it is back"


def test_where_copies_cost_much_what_nobody_ever_found_is_not_saved() -> None:
    tiered = Tiered()
    tiered.host.takes_unasked = False
    tiered.serve(range(100))
    tiered.serve(range(500, 655))
    assert tiered.host.num_blocks == 0


def test_loads_are_in_the_step_that_computes_the_rest_and_published_after_it() -> None:
    tiered = Tiered()
    tiered.warm()
    one = tiered.one
    again = sequence(9, range(100), 1)
    one.submit(again)
    step = one.schedule(0.0)
    (work,) = step.prefills
    slots = [load.host_slot for load in step.loads]
    first = 6 - len(slots)
    assert step.loads == tuple(map(Load, slots, again.block_table[first:6]))
    assert (work.first_token, work.num_tokens) == (96, 4)
    assert not any(one.pool.is_findable(block_id) for block_id in again.block_table[first:6])
    tiered.kv.execute(one, step)
    one.commit(step, sampled(step), 0.0)
    assert one.pool.num_findable >= 6


def test_a_copy_that_does_not_pay_is_not_made() -> None:
    rates = []

    class Never:
        def worth_it(self, num_tokens: int, prefill_tokens_per_s: float) -> bool:
            rates.append(prefill_tokens_per_s)
            return False

        worth_swapping = worth_it

    tiered = Tiered(break_even=Never())
    tiered.warm()
    again = sequence(99, range(100), 1)
    tiered.one.submit(again)
    found_on_device = again.expected_cached_tokens
    assert tiered.one.stats().backlog_tokens == 100 - found_on_device, "what is not loaded is computed"
    drain(tiered.one, kv=tiered.kv)
    assert again.cached_tokens_by_tier == {"device": found_on_device, "host": 0}
    assert tiered.one.stats().rule_decisions[rules.Reason.REUSE_HOST_TOO_SHORT] == 1
    assert set(rates) == {0.0}, "not known here, and not assumed: that of the start is better"


def test_victims_are_swapped_and_come_back_without_being_computed() -> None:
    """Nobody found their blocks before; they are saved because they will be asked for."""
    tiered = Tiered(num_blocks=11, max_num_seqs=4, max_num_batched_tokens=512, chunk_tokens=512)
    one = tiered.one
    victim = sequence(1, range(100), 30)
    one.submit(victim)
    for _ in range(3):
        run_step(one, kv=tiered.kv)
    one.submit(sequence(2, range(500, 650), 1, request_class=URGENT, arrival_s=1.0))
    step = run_step(one, kv=tiered.kv)
    assert [each.sequence_id for each in step.preempted] == [1]
    assert len(step.saves) >= 5
    assert one._roster.reuse.transfers.num_wanting == 1
    assert one.recompute_debt_tokens == 102
    computed = sum(step.num_tokens for step in drain(one, kv=tiered.kv))
    assert computed <= 1 + (102 - 96) + 30, "its six blocks were not computed again"
    assert one.stats().rule_decisions[rules.Reason.VICTIM_SWAPPED] == 1
    assert one._roster.reuse.transfers.num_wanting == one.recompute_debt_tokens == 0
    assert victim.cached_tokens == 0, "counted at the first admission only"


def test_without_a_host_tier_or_its_worth_victims_are_recomputed() -> None:
    one = caching_scheduler(num_blocks=11, max_model_len=160, max_num_seqs=4)
    one.submit(sequence(1, range(100), 30))
    run_step(one)
    run_step(one)
    one.submit(sequence(2, range(500, 650), 1, request_class=URGENT, arrival_s=1.0))
    run_step(one)
    assert one.stats().rule_decisions[rules.Reason.VICTIM_RECOMPUTED] == 1
    drain(one)


def test_loads_of_a_step_that_failed_are_not_taken_for_made() -> None:
    """In static batches a sequence is admitted before it is given tokens."""
    tiered = Tiered(continuous_batching=False, chunk_tokens=None, max_prefill_batch=1, num_blocks=30)
    one = tiered.one
    for text in (0, 1000):
        tiered.serve(range(text, text + 100))
        tiered.serve(range(text, text + 100))
    for text in (2000, 3000, 4000):
        tiered.serve(range(text, text + 155))
    for number, text in ((51, 0), (52, 1000)):
        one.submit(sequence(number, range(text, text + 100), 1, arrival_s=number))
    step = one.schedule(0.0)
    assert one.running_ids() == {51, 52}
    assert len(step.prefills) == 1
    assert len(step.loads) > 6, "of both"
    tiered.kv.fail(one, step)
    drain(one, kv=tiered.kv)


def test_another_lineage_finds_nothing_in_the_host_tier() -> None:
    tiered = Tiered()
    tiered.warm()
    tiered.one.switch(tiered.one.limits, lineage=b"two")
    assert tiered.serve(range(100)).cached_tokens == 0


def test_saves_that_were_not_made_are_dropped_with_the_memory() -> None:
    tiered = Tiered()
    one = tiered.one
    tiered.serve(range(100))
    tiered.serve(range(100))
    one.pool.set_caching(blocks.Caching(max_fraction=0.2))
    assert one._roster.reuse.transfers.num_saves > 0, "evicted between two steps"
    one.switch(one.limits, caching_pool(10))
    tiered.kv.forget()
    assert tiered.host.num_locked == 0
    tiered.host.check_integrity()
    tiered.serve(range(100))


def test_turned_off_it_is_neither_asked_nor_filled() -> None:
    tiered = Tiered()
    tiered.warm()
    tiered.one.switch(tiered.one.limits, host=None)
    assert tiered.serve(range(100)).cached_tokens_by_tier["host"] == 0
    assert tiered.one.stats().host_blocks == 0
    tiered.serve(range(600, 755))
    tiered.one.switch(tiered.one.limits, host=tiered.host)
    assert tiered.serve(range(100)).cached_tokens_by_tier["host"] > 0


def test_a_tiny_host_tier_under_stress() -> None:
    """Every slot is written over again and again; what is read is checked in each step."""
    tiered = Tiered(host_blocks=3)
    for round_ in range(30):
        tiered.serve(range(round_ % 3 * 1000, round_ % 3 * 1000 + 60 + round_), 1 + round_ % 20)
        assert tiered.host.num_locked == tiered.one._roster.reuse.transfers.num_saves
    assert tiered.one.stats().prefix_hit_tokens_total["host"] > 0
