import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firsttoken_runtime.bench import lengths, sharing, workload


def test_questions_begin_alike_and_go_on_differently():
    prefix = tuple(range(1000, 1033))
    made = sharing.questions(random.Random(1), prefix, 5, lengths.Uniform(3, 9), 7)
    assert {one.prompt_token_ids[:33] for one in made} == {prefix}
    assert len({one.prompt_token_ids for one in made}) == 5
    assert [one.group for one in made] == ["first", "later", "later", "later", "later"]
    assert {one.shared_prefix_tokens for one in made} == {33}
    plain = sharing.questions(
        random.Random(1), prefix, 2, lengths.Uniform(3, 9), 7, is_declared=False, group="g"
    )
    assert [(one.shared_prefix_tokens, one.group) for one in plain] == [(0, "g"), (0, "g")]


@given(turns=st.integers(1, 6), first=st.integers(1, 40), added=st.integers(1, 20), output=st.integers(1, 9))
def test_each_turn_repeats_all_before_it(turns, first, added, output):
    shape = sharing.Conversations(turns, first, added, output)
    made = sharing.conversation(random.Random(3), shape)
    assert len(made) == turns
    for before, after in itertools.pairwise(made):
        assert after.prompt_token_ids[: len(before.prompt_token_ids)] == before.prompt_token_ids
        assert len(after.prompt_token_ids) == len(before.prompt_token_ids) + output + added
    last = made[-1]
    assert len(last.prompt_token_ids) + output == shape.longest_tokens
    assert [one.group for one in made] == ["first", *["later"] * (turns - 1)]


def test_families_alternate_until_each_is_through():
    families = [
        [workload.Request((name, number), 1) for number in range(count)] for name, count in ((1, 3), (2, 1))
    ]
    assert [one.prompt_token_ids for one in sharing.alternating(families)] == [(1, 0), (2, 0), (1, 1), (1, 2)]


def test_a_person_pauses_between_turns_and_people_start_spread():
    shape = sharing.Conversations(4, 8, 3, 2)
    generator = random.Random(5)
    talks = [sharing.conversation(generator, shape) for _ in range(3)]
    lane = sharing.open_conversations(generator, talks, pause_s=10.0)
    arrivals = [one.arrival_s for one in lane.requests]
    assert arrivals == sorted(arrivals)
    assert len(lane.requests) == lane.concurrency == 12
    for number, talk in enumerate(talks):
        prompts = {one.prompt_token_ids for one in talk}
        own = [one.arrival_s or 0.0 for one in lane.requests if one.prompt_token_ids in prompts]
        assert own[0] == pytest.approx(number * 10 / 3)
        assert all(7.5 <= later - sooner <= 12.5 for sooner, later in itertools.pairwise(own))
