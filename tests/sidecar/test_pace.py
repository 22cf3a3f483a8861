"""What an engine's report says of its speed, and what a request costs by it."""

import pytest

from firsttoken_api.state import KvState
from firsttoken_sidecar.pace import Pace
from sidecar.admission_builders import engine


def test_nothing_is_known_before_a_report_and_of_an_engine_that_says_nothing() -> None:
    one = Pace()
    assert not one.is_known
    one.hear(engine(step_time=None, prefill_tokens_per_s=0.0))
    assert not one.is_known
    one.hear(engine())
    assert one.is_known


def test_a_report_is_taken_whole() -> None:
    one = Pace()
    one.hear(
        engine(
            context_tokens=70,
            tpot_mean_s=0.2,
            kv=KvState(block_size_tokens=16, blocks_total=10, blocks_used=4),
        )
    )
    assert (one.chunk_tokens, one.max_prefill_batch, one.max_num_seqs, one.context_tokens) == (100, 4, 4, 70)
    assert (one.kv_tokens_total, one.kv_tokens_used) == (160, 64)


def test_a_token_takes_a_step_and_longer_while_prompts_are_computed_in_between() -> None:
    one = Pace()
    one.hear(engine(tpot_mean_s=0.5))
    one.decoding = 3
    assert one.token_s == pytest.approx(0.13)
    one.waiting = 1
    assert one.token_s == 0.5
    one.hear(engine(step_time=None, tpot_mean_s=0.2))
    assert one.token_s == 0.2


def test_a_request_costs_its_tokens_both_ways() -> None:
    one = Pace()
    assert one.cost_s(100, 10) == 1.0, "nothing is known: all are alike"
    one.hear(engine())
    assert one.cost_s(100, 10) == pytest.approx(0.1 + 0.1)
    one.hear(engine(step_time=None))
    assert one.cost_s(100, 10) == pytest.approx(0.2)
