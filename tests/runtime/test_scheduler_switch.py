"""Hot switches: what runs keeps its tokens and is computed again, the shortest first."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firsttoken_runtime.cache import blocks
from firsttoken_runtime.cache.formats import Format
from firsttoken_runtime.cache.host import HostIndex
from firsttoken_runtime.scheduler import scheduler as scheduling
from firsttoken_runtime.scheduler.sequence import Sequence
from runtime import kv_model
from runtime.scheduling import (
    BATCH,
    URGENT,
    caching_pool,
    caching_scheduler,
    drain,
    prefilled,
    run_step,
    scheduler,
    sequence,
)


def with_running(*lengths: int, **changes: object) -> tuple[scheduling.Scheduler, list[Sequence]]:
    """Prompts of these lengths, all decoding."""
    one = caching_scheduler(num_blocks=200, max_num_seqs=16, **changes)  # type: ignore[arg-type]
    everyone = [
        sequence(number, range(number * 1000, number * 1000 + length), 60, arrival_s=number)
        for number, length in enumerate(lengths)
    ]
    for each in everyone:
        one.submit(each)
    while one.stats().backlog_tokens:
        run_step(one)
    return one, everyone


def test_another_pool_keeps_every_output() -> None:
    one = scheduler(priority=False)
    running = [sequence(i, prompt=40, max_tokens=20, arrival_s=i) for i in range(3)]
    for each in running:
        one.submit(each)
    for _ in range(5):
        run_step(one)
    before = [each.num_output_tokens for each in running]
    assert min(before) > 0
    assert one.switch(one.limits, blocks.Pool(4, 256)) == sum(each.num_tokens - 1 for each in running)
    one.check_integrity()
    assert [each.num_output_tokens for each in running] == before
    assert one.stats().running == 0
    drain(one)
    assert [each.num_output_tokens for each in running] == [20, 20, 20]
    assert one.stats().preemptions_total == 0, "a switch is not a preemption"


def test_the_shortest_recompute_is_first() -> None:
    for priority in (True, False):
        one, _ = with_running(120, 30, 200, 60, priority=priority)
        one.submit(sequence(9, range(9000, 9010), 1, arrival_s=-1.0))
        one.switch(one.limits, lineage=b"two")
        order: list[int] = []
        for _ in range(12):
            order += [each for each in prefilled(run_step(one)) if each not in order]
        assert order == [1, 3, 0, 2, 9], "and then who did not run"


def test_classes_come_before_the_length_of_a_recompute() -> None:
    one = caching_scheduler(max_prefill_batch=1)
    one.submit(sequence(1, range(200), 30, request_class=URGENT))
    one.submit(sequence(2, range(500, 520), 30, request_class=BATCH))
    while one.stats().backlog_tokens:
        run_step(one)
    one.switch(one.limits, caching_pool(64))
    assert prefilled(run_step(one)) == [1]


def test_recompute_debt_is_what_was_lost_and_is_paid_off() -> None:
    one, everyone = with_running(100, 40)
    lost = sum(each.num_tokens - 1 for each in everyone)
    assert one.switch(one.limits, lineage=b"two") == lost == one.recompute_debt_tokens
    debts = [one.stats().recompute_debt_tokens]
    while debts[-1]:
        run_step(one)
        debts.append(one.stats().recompute_debt_tokens)
    assert debts == sorted(debts, reverse=True)
    assert len(debts) > 2
    one.switch(one.limits, lineage=b"three")
    one.abort(0)
    one.abort(1)
    assert one.recompute_debt_tokens == 0


def test_what_is_found_again_pays_debt_too() -> None:
    one, (each, _) = with_running(100, 20)
    one._roster.preempt(each, 0.0)
    assert one.recompute_debt_tokens == each.num_tokens - 1
    run_step(one)
    assert one.recompute_debt_tokens == 0
    assert each.num_computed_tokens == each.num_tokens - 1


def test_what_the_old_pool_evicts_on_its_way_out_is_not_saved() -> None:
    """kv-int8 goes and kv-tiering comes in one switch: the tier is cut for full blocks only."""
    one, _ = with_running(40, 40, 40)
    one.switch(one.limits, caching_pool(100, 200))
    while one.stats().backlog_tokens:
        run_step(one)
    one.pool.set_caching(blocks.Caching(max_fraction=0.01))
    evictions_before = one.stats().evictions_total
    host = HostIndex(10_000, {Format.FULL: 10})
    one.switch(one.limits, caching_pool(200), host=host)
    assert one.stats().evictions_total > evictions_before
    assert host.num_blocks == 0
    step = run_step(one)
    assert not step.saves
    assert one._roster.reuse.transfers.host is host
    drain(one)


def test_the_same_lineage_and_no_pool_disturbs_nobody() -> None:
    one, everyone = with_running(100, 20)
    assert one.switch(replace(one.limits, chunk_tokens=32), lineage=b"one") == 0
    assert one.running_ids() == {0, 1}
    assert all(each.num_uncomputed_tokens == 1 for each in everyone)


def test_who_waits_expects_no_more_than_can_still_be_found() -> None:
    one = caching_scheduler(max_num_seqs=1)
    one.submit(sequence(1, range(64), 1))
    drain(one)
    one.submit(sequence(2, range(5000, 5064), 60))
    run_step(one)
    one.submit(sequence(3, range(64), 4, arrival_s=1.0))
    assert one.stats().backlog_tokens == 16
    one.pool.set_caching(None)
    one.switch(one.limits)
    assert one.stats().backlog_tokens == 64, "nothing is cached any more"
    drain(one)


def test_a_switch_does_not_change_what_was_found_first() -> None:
    one = caching_scheduler()
    one.submit(sequence(1, range(100), 1))
    drain(one)
    again = sequence(2, range(100), 20)
    one.submit(again)
    run_step(one)
    one.switch(one.limits, lineage=b"two")
    drain(one)
    assert again.cached_tokens == 96
    assert one.stats().prefix_query_tokens_total == 200


def test_the_format_follows_the_pool() -> None:
    one, everyone = with_running(100, 40)
    one.switch(one.limits, caching_pool(20, 60), lineage=b"two")
    assert all(each.num_full_blocks == 0 for each in everyone)
    kv = kv_model.KvModel()
    run_step(one, kv=kv)
    one.switch(one.limits, caching_pool(200), lineage=b"one")
    kv.forget()
    drain(one, kv=kv)


def test_evictions_are_counted_over_pools() -> None:
    one = caching_scheduler(num_blocks=10, max_model_len=160)
    for number in range(3):
        one.submit(sequence(number, range(number * 1000, number * 1000 + 150), 1))
        drain(one)
    before = one.stats().evictions_total
    assert before > 0
    one.switch(one.limits, caching_pool(10))
    assert one.stats().evictions_total == before


def test_with_prefixes_cached_the_share_of_full_precision_is_what_was_declared_and_not_found() -> None:
    one = caching_scheduler()
    assert one.full_share(is_caching=True) == 0.0
    one.submit(sequence(1, range(63), 1, shared=32))
    drain(one)
    assert one.full_share(is_caching=True) == 0.5, "two of four blocks"
    for number in range(2, 300):
        one.submit(sequence(number, [*range(32), *range(number * 100, number * 100 + 31)], 1, shared=32))
        drain(one)
    assert one.full_share(is_caching=True) < 0.1, "stored once"
    assert one.full_share(is_caching=False) == pytest.approx(0.5), "everybody would have its own"


def test_what_is_found_is_learned_only_while_prefixes_are_cached() -> None:
    one = caching_scheduler()
    one.pool.set_caching(None)
    for number in range(3):
        one.submit(sequence(number, range(63), 1, shared=32))
        drain(one)
    assert one.full_share(is_caching=False) == pytest.approx(0.5)
    assert one.full_share(is_caching=True) == 0.0, "unknown"


@settings(max_examples=60, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 150), min_size=1, max_size=8),
    switches=st.lists(
        st.tuples(st.integers(0, 4), st.sampled_from([b"one", b"two"]), st.booleans()), max_size=4
    ),
)
def test_any_switches_lose_no_token(lengths: list[int], switches: list[tuple[int, bytes, bool]]) -> None:
    one, everyone = with_running(*lengths)
    kv = kv_model.KvModel()
    one.switch(one.limits, caching_pool(200))
    for steps, lineage, has_pool in switches:
        for _ in range(steps):
            run_step(one, kv=kv)
        before = {each.sequence_id: list(each.token_ids) for each in everyone}
        one.switch(one.limits, caching_pool(100, 200) if has_pool else None, lineage=lineage)
        if has_pool:
            kv.forget()
        one.check_integrity()
        assert {each.sequence_id: each.token_ids for each in everyone} == before
    drain(one, kv=kv)
    assert all(each.num_output_tokens == 60 for each in everyone)
