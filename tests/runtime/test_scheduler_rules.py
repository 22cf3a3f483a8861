"""The rule table: one answer and one reason for each request and flag set."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firsttoken_runtime.cache.formats import Format
from firsttoken_runtime.scheduler import rules
from firsttoken_runtime.scheduler.rules import Reason
from runtime.scheduling import caching_scheduler, drain, run_step, sequence


@pytest.mark.parametrize(
    ("declared", "is_quantizing", "num_full_blocks", "reason"),
    [
        (0, False, rules.ALL_BLOCKS, Reason.PRECISION_ONE_FORMAT),
        (500, False, rules.ALL_BLOCKS, Reason.PRECISION_ONE_FORMAT),
        (0, True, 0, Reason.PRECISION_UNDECLARED),
        (15, True, 0, Reason.PRECISION_DECLARED_SHORT),
        (16, True, 1, Reason.PRECISION_DECLARED),
        (47, True, 2, Reason.PRECISION_DECLARED),
        (100, True, 6, Reason.PRECISION_DECLARED),
        (101, True, 6, Reason.PRECISION_DECLARED_CUT),
        (5000, True, 6, Reason.PRECISION_DECLARED_CUT),
    ],
)
def test_precision_follows_what_is_declared(
    declared: int, is_quantizing: bool, num_full_blocks: int, reason: Reason
) -> None:
    decided = rules.precision(
        declared, is_quantizing=is_quantizing, block_size_tokens=16, most_full_tokens=100
    )
    assert decided == (num_full_blocks, reason)


@given(
    declared=st.integers(-5, 5000),
    block_size=st.sampled_from([1, 8, 16, 100]),
    most=st.integers(0, 4096),
)
def test_the_full_part_is_whole_blocks_and_within_both_bounds(
    declared: int, block_size: int, most: int
) -> None:
    decided = rules.precision(
        declared, is_quantizing=True, block_size_tokens=block_size, most_full_tokens=most
    )
    full_tokens = decided.num_full_blocks * block_size
    bound = max(min(declared, most), 0)
    assert bound - block_size < full_tokens <= bound


def test_who_does_not_read_the_cache() -> None:
    assert rules.refuses_reuse(is_caching=False, has_prompt_logprobs=True) is Reason.REUSE_OFF
    assert rules.refuses_reuse(is_caching=True, has_prompt_logprobs=True) is Reason.REUSE_PROMPT_LOGPROBS
    assert rules.refuses_reuse(is_caching=True, has_prompt_logprobs=False) is None


@pytest.mark.parametrize(
    ("device", "host", "is_worth_it", "reason"),
    [
        (0, 0, False, Reason.REUSE_MISS),
        (3, 0, False, Reason.REUSE_DEVICE),
        (3, 2, True, Reason.REUSE_HOST),
        (0, 2, True, Reason.REUSE_HOST),
        (3, 2, False, Reason.REUSE_HOST_TOO_SHORT),
    ],
)
def test_where_a_prefix_was_found(device: int, host: int, is_worth_it: bool, reason: Reason) -> None:
    assert rules.reuse(device_blocks=device, host_blocks=host, is_host_worth_it=is_worth_it) is reason


class From100Tokens:
    def worth_it(self, num_tokens: int, prefill_tokens_per_s: float) -> bool:
        return num_tokens >= 100

    def worth_swapping(self, num_tokens: int, prefill_tokens_per_s: float) -> bool:
        return num_tokens >= 200


def test_copies_pay_from_the_measured_length_on() -> None:
    assert not rules.is_load_worth_it(0, None, 1000.0)
    assert rules.is_load_worth_it(1, None, 1000.0), "nothing was measured"
    assert not rules.is_load_worth_it(99, From100Tokens(), 1000.0)
    assert rules.is_load_worth_it(100, From100Tokens(), 1000.0)
    assert rules.is_swap_worth_it(1, None, 1000.0)
    assert not rules.is_swap_worth_it(199, From100Tokens(), 1000.0), "out and in again"
    assert rules.is_swap_worth_it(200, From100Tokens(), 1000.0)
    assert rules.victim(has_host_tier=True, is_swap_worth_it=True) is Reason.VICTIM_SWAPPED
    assert rules.victim(has_host_tier=True, is_swap_worth_it=False) is Reason.VICTIM_RECOMPUTED
    assert rules.victim(has_host_tier=False, is_swap_worth_it=True) is Reason.VICTIM_RECOMPUTED


def test_a_hit_changes_no_precision() -> None:
    """Neither its own nor that of what it computes behind: miss and hit have the same layout."""
    one = caching_scheduler(num_blocks=20, num_quantized=40)
    layouts = []
    for number in range(3):
        each = sequence(number, range(100), 20, shared=40)
        one.submit(each)
        run_step(one)
        run_step(one)
        layouts.append([one.pool.format_of(block_id) for block_id in each.block_table])
        drain(one)
    assert layouts[0] == [Format.FULL] * 2 + [Format.QUANTIZED] * 5
    assert layouts[0] == layouts[1] == layouts[2]
    assert one.stats().rule_decisions == {
        Reason.PRECISION_DECLARED: 3,
        Reason.REUSE_MISS: 1,
        Reason.REUSE_DEVICE: 2,
    }


def test_another_declaration_finds_only_what_is_stored_alike() -> None:
    one = caching_scheduler(num_blocks=20, num_quantized=40)
    for number, (declared, cached) in enumerate([(32, 0), (32, 96), (64, 32), (0, 0), (0, 96)]):
        each = sequence(number, range(100), 1, shared=declared)
        one.submit(each)
        drain(one)
        assert each.cached_tokens == cached, declared
