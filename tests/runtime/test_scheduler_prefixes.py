"""Prefixes that are found again: how long, by whom, and when not."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firsttoken_runtime import core
from firsttoken_runtime.cache import blocks
from firsttoken_runtime.scheduler import scheduler as scheduling
from firsttoken_runtime.scheduler.sequence import Sequence
from runtime import kv_model
from runtime.scheduling import caching_pool, caching_scheduler, drain, run_step, sampled, scheduler, sequence

B = 16


def served(one: scheduling.Scheduler, number: int, prompt: range | list[int], **given: object) -> Sequence:
    """It is asked and answered with one token."""
    each = sequence(number, prompt, 1, **given)  # type: ignore[arg-type]
    one.submit(each)
    drain(one)
    return each


@pytest.mark.parametrize("length", [1, B - 1, B, B + 1, 2 * B - 1, 2 * B, 2 * B + 1, 64, 127, 128, 129, 255])
def test_the_second_time_all_whole_blocks_are_found_but_one_token_is_computed(length: int) -> None:
    one = caching_scheduler()
    assert served(one, 1, range(length)).cached_tokens == 0
    again = sequence(2, range(length), 1)
    one.submit(again)
    step = one.schedule(0.0)
    (work,) = step.prefills
    assert again.cached_tokens == work.first_token == (length - 1) // B * B
    assert work.num_tokens == length - again.cached_tokens >= 1
    (token,) = one.commit(step, sampled(step), 0.0).tokens
    assert token.cached_tokens == again.cached_tokens
    one.check_integrity()
    assert one.pool.num_used == 0
    stats = one.stats()
    assert stats.prefix_query_tokens_total == 2 * length
    assert stats.prefix_hit_tokens_total == {"device": again.cached_tokens, "host": 0}


def test_the_longest_common_prefix_is_found() -> None:
    one = caching_scheduler()
    served(one, 1, range(100))
    assert served(one, 2, [*range(50), *range(500, 600)]).cached_tokens == 48
    assert served(one, 3, [*range(50), *range(500, 600)]).cached_tokens == 144
    assert served(one, 4, [1, *range(1, 100)]).cached_tokens == 0, "another first token"


def test_the_answer_is_part_of_the_next_turn() -> None:
    one = caching_scheduler()
    first = sequence(1, range(40), 60)
    one.submit(first)
    drain(one)
    turn = [*first.token_ids, *range(900, 910)]
    assert served(one, 2, turn).cached_tokens == 96, "all whole blocks but the newest token's"


def test_nothing_is_found_across_salts_or_lineages() -> None:
    one = caching_scheduler()
    served(one, 1, range(100), salt="one")
    assert served(one, 2, range(100)).cached_tokens == 0
    assert served(one, 3, range(100), salt="two").cached_tokens == 0
    assert served(one, 4, range(100), salt="one").cached_tokens == 96
    one.switch(one.limits, lineage=b"other")
    assert served(one, 5, range(100), salt="one").cached_tokens == 0
    one.switch(one.limits, lineage=b"one")
    assert served(one, 6, range(100), salt="one").cached_tokens == 96, "it is still there"


def test_a_block_is_findable_only_after_the_step_that_filled_it() -> None:
    one = caching_scheduler()
    one.submit(sequence(1, range(100), 1))
    step = one.schedule(0.0)
    assert one.pool.num_findable == 0
    one.commit(step, sampled(step), 0.0)
    assert one.pool.num_findable == 4, "64 tokens"


def test_a_step_that_failed_publishes_nothing() -> None:
    one = caching_scheduler()
    one.submit(sequence(1, range(100), 1))
    one.schedule(0.0)
    one.abort(1)
    one.check_integrity()
    assert one.pool.num_findable == one.pool.num_used == 0


def test_prompt_logprobs_read_nothing_but_publish() -> None:
    one = caching_scheduler()
    for number in (1, 2):
        scored = sequence(number, range(100), 1, prompt_logprobs=0)
        one.submit(scored)
        assert sum(step.num_prefill_tokens for step in drain(one)) == 100
        assert scored.cached_tokens == 0
    assert one.stats().prefix_query_tokens_total == 0
    assert served(one, 3, range(100)).cached_tokens == 96


def test_without_a_cache_nothing_is_found_and_every_block_is_free_again() -> None:
    one = scheduler()
    for number in (1, 2):
        assert served(one, number, range(100)).cached_tokens == 0
    assert one.pool.num_free == one.pool.num_blocks


def test_a_cache_that_is_turned_off_forgets_and_one_that_is_turned_on_takes_what_runs() -> None:
    one = caching_scheduler()
    served(one, 1, range(100))
    long = sequence(2, range(200), 30)
    one.submit(long)
    run_step(one)
    one.pool.set_caching(None)
    one.switch(one.limits)
    assert one.pool.num_cached == 0
    run_step(one)
    assert long.num_computed_tokens > 0, "what runs goes on"
    one.pool.set_caching(blocks.Caching(max_fraction=1.0))
    one.switch(one.limits)
    drain(one)
    assert served(one, 3, range(200)).cached_tokens == 192


def test_shared_blocks_count_once_in_what_is_live() -> None:
    one = caching_scheduler()
    served(one, 1, range(64))
    for number in (2, 3, 4):
        one.submit(sequence(number, range(65), 40))
    for _ in range(3):
        run_step(one)
    stats = one.stats()
    assert stats.running == 3
    assert stats.live_slots == 64 + 3 * 3
    assert stats.allocated_slots == (4 + 3) * B
    assert stats.live_slots <= stats.needed_slots <= stats.allocated_slots


def test_the_backlog_leaves_out_what_will_be_found() -> None:
    one = caching_scheduler(max_num_seqs=1)
    served(one, 1, range(100))
    one.submit(sequence(2, range(100, 140), 5))
    run_step(one)
    one.submit(sequence(3, [*range(96), *range(700, 750)], 1))
    assert one.stats().backlog_tokens == 50


def test_what_is_found_is_not_expected_work() -> None:
    one = caching_scheduler(max_num_seqs=1)
    served(one, 1, range(200))
    one.submit(sequence(2, range(500, 600), 20))
    one.submit(sequence(3, range(201), 20))
    assert [work.sequence.sequence_id for work in run_step(one).prefills] == [3]


def test_a_tiny_pool_and_many_equal_prompts() -> None:
    """Preempted ones find their own blocks; what they found first is counted once and does not change."""
    one = caching_scheduler(num_blocks=9, max_model_len=100, max_num_seqs=8)
    kv = kv_model.KvModel()
    everyone = [sequence(number, range(32), 60, arrival_s=number) for number in range(12)]
    for each in everyone:
        one.submit(each)
    first_tokens: dict[int, core.Token] = {}
    now = 0.0
    while one.has_work:
        step = one.schedule(now)
        kv.execute(one, step)
        for token in one.commit(step, sampled(step), now).tokens:
            if token.times is not None:
                assert token.sequence_id not in first_tokens
                first_tokens[token.sequence_id] = token
        one.check_integrity()
        now += 1
    assert one.stats().preemptions_total > 0
    assert [each.num_output_tokens for each in everyone] == [60] * 12
    assert all(token.cached_tokens in (0, 16) for token in first_tokens.values()), "of 32 tokens"
    found = sum(token.cached_tokens for token in first_tokens.values())
    assert one.stats().prefix_hit_tokens_total["device"] == found
    assert one.stats().prefix_query_tokens_total == 12 * 32
    assert one.pool.num_used == 0


@pytest.mark.parametrize("in_flight_sharing", [False, True])
def test_equal_prompts_in_one_step_leave_the_pool_free(in_flight_sharing: bool) -> None:
    one = caching_scheduler(max_prefill_batch=8, chunk_tokens=128, in_flight_sharing=in_flight_sharing)
    for number in range(6):
        one.submit(sequence(number, range(20), 3))
    drain(one)
    assert one.pool.num_used == 0
    one.pool.set_caching(None)
    assert one.pool.num_free == one.pool.num_blocks


def test_what_is_cached_makes_way_for_what_runs() -> None:
    one = caching_scheduler(num_blocks=10, max_model_len=160)
    served(one, 1, range(100))
    assert one.pool.num_cached == 6
    served(one, 2, range(500, 650))
    assert one.stats().evictions_total >= 5
    assert one.stats().preemptions_total == 0


def test_pinned_blocks_are_found_under_every_salt_and_what_follows_them_is_not() -> None:
    one = caching_scheduler(num_blocks=40)
    one.pin([list(range(40))])
    served(one, 1, range(40))
    turn = [*range(40), *range(500, 560)]
    assert served(one, 2, turn, salt="a").cached_tokens == 32
    assert served(one, 3, turn, salt="b").cached_tokens == 32
    assert served(one, 4, turn).cached_tokens == 32
    assert served(one, 5, turn, salt="a").cached_tokens == 96
    one.pin([])
    assert served(one, 6, turn, salt="b").cached_tokens == 0, "no pin any more"
    assert served(one, 7, turn).cached_tokens == 96


def test_what_a_salted_request_computes_of_a_pinned_prompt_is_its_own() -> None:
    one = caching_scheduler(num_blocks=40)
    one.pin([list(range(64))])
    assert served(one, 1, range(64), salt="a").cached_tokens == 0
    assert served(one, 2, range(64), salt="b").cached_tokens == 0
    assert served(one, 3, range(64), salt="a").cached_tokens == 48
    assert served(one, 4, range(64)).cached_tokens == 0


def test_a_pinned_block_that_goes_while_a_salted_request_waits_is_not_published_for_all() -> None:
    one = caching_scheduler(num_blocks=40)
    one.pin([list(range(40))])
    served(one, 1, range(40))
    waiting = sequence(2, range(100), 1, salt="a")
    one.submit(waiting)
    assert waiting.num_public_blocks == 2
    one.pool.forget_all()
    one.submit(sequence(3, range(100), 1))
    steps = drain(one)
    assert waiting.cached_tokens == 0
    assert one.stats().rule_decisions.get("sharing_waits", 0) == 0, "nobody waits across salts"
    assert len(steps) >= 1
    assert served(one, 4, range(100), salt="b").cached_tokens == 32, "of the request without a salt"


def test_pinned_prompts_stay_also_after_a_switch() -> None:
    one = caching_scheduler(num_blocks=20, max_model_len=160)
    assert one.pin([list(range(64))]) == 0
    one.switch(one.limits, caching_pool(20), lineage=b"two")
    served(one, 1, range(70))
    for number in range(2, 6):
        served(one, number, range(number * 1000, number * 1000 + 150))
    assert served(one, 9, range(70)).cached_tokens == 64
    assert one.pin([list(range(5000, 5500))]) == 21, "half of the largest share can be pinned"
    assert one.pin([]) == 0
    assert one.pool.num_pinned == 0


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(1, 120), st.booleans()), max_size=12), st.data())
def test_hits_are_the_longest_known_prefix(
    requests: list[tuple[int, int, bool]], data: st.DataObject
) -> None:
    """One after the other in a pool that is large enough, against a plain look at all that was asked."""
    one = caching_scheduler(num_blocks=200, block_size=8)
    known: set[tuple[str, tuple[int, ...]]] = set()
    for number, (text, length, is_salted) in enumerate(requests):
        prompt = [position // 30 * text for position in range(length)]
        salt = "salt" if is_salted else ""
        each = sequence(number, prompt, data.draw(st.integers(1, 20)), salt=salt)
        one.submit(each)
        drain(one)
        expected = 0
        for end in range(8, length, 8):
            if (salt, tuple(prompt[:end])) not in known:
                break
            expected = end
        assert each.cached_tokens == expected
        computed = each.num_tokens - 1
        known.update((salt, tuple(each.token_ids[:end])) for end in range(8, computed + 1, 8))
