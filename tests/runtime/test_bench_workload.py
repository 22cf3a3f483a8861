import random

import pytest

from firsttoken_runtime.bench import workload


def made(count: int, seed: int = 1) -> list[workload.Request]:
    return workload.requests(random.Random(seed), [(17, 5)] * count, group="g", request_class="c")


def test_prompts_are_distinct_and_of_their_length():
    requests = made(50)
    assert {len(one.prompt_token_ids) for one in requests} == {17}
    assert len({one.prompt_token_ids for one in requests}) == 50
    assert all(token in workload.SAFE_TOKEN_IDS for one in requests for token in one.prompt_token_ids)
    assert {(one.output_tokens, one.group, one.request_class) for one in requests} == {(5, "g", "c")}


def test_a_seed_is_the_same_requests():
    assert made(3) == made(3)
    assert made(3) != made(3, seed=2)


def test_a_lane_of_arrivals_is_in_order_of_time():
    lane = workload.opened(made(3), [2.0, 0.5, 1.0])
    assert [one.arrival_s for one in lane.requests] == [0.5, 1.0, 2.0]
    assert [one.prompt_token_ids for one in lane.requests] == [one.prompt_token_ids for one in made(3)]
    with pytest.raises(AssertionError):
        workload.opened(made(3), [1.0])


def test_totals_count_every_lane():
    lanes = [workload.closed(made(2), 1), workload.closed([workload.Request((1, 2, 3), None)], 1)]
    assert workload.totals(lanes) == (37, 10)
