"""What a look at a replica means for one request, in seconds."""

import math

import pytest

from firsttoken_api.state import LoadState
from firsttoken_api.step_time import StepTime
from firsttoken_sidecar import facing, inspection


def asked(tokens: int = 1_000) -> inspection.Inspected:
    return inspection.Inspected(prompt_bytes=tokens * 4, estimated_prompt_tokens=tokens)


def look(load: LoadState | None, unseen_tokens: int = 0) -> facing.Look:
    return facing.Look("10.0.0.2", "z1", load, unseen_tokens)


RATED = LoadState(ahead_tokens_by_priority={"0": 500}, prefill_tokens_per_s=1_000.0, limit_s={"0": 9.0})


def test_what_waits_and_what_is_to_be_computed() -> None:
    found = facing.replica(look(RATED), asked(), 0)
    assert (found.name, found.zone, found.hit_tokens, found.limit_s) == ("10.0.0.2", "z1", 0, 9.0)
    assert found.wait_s == pytest.approx(0.5, abs=0.01)
    assert found.first_token_s == pytest.approx(1.5, abs=0.01)


def test_what_was_sent_since_waits_too() -> None:
    found = facing.replica(look(RATED, unseen_tokens=2_000), asked(), 0)
    assert found.wait_s == pytest.approx(2.5, abs=0.01)
    assert found.first_token_s == pytest.approx(3.5, abs=0.01)


def test_what_waited_is_worked_off_while_a_look_ages() -> None:
    aged = facing.Look("a", "", RATED, unseen_tokens=2_000, age_s=0.3)
    assert facing.replica(aged, asked(), 0).wait_s == pytest.approx(2.2, abs=0.01)
    # What was sent since is not older than the look, and still waits.
    long_aged = facing.Look("a", "", RATED, unseen_tokens=2_000, age_s=3.0)
    assert facing.replica(long_aged, asked(), 0).wait_s == pytest.approx(2.0, abs=0.01)
    unknown = facing.Look("a", "", LoadState(waiting=1), age_s=3.0)
    assert facing.replica(unknown, asked(), 0).wait_s == 0.0


def test_what_is_cached_is_not_computed_known_or_expected() -> None:
    # Four pieces of 512 bytes are half of it.
    known = facing.replica(look(RATED), asked(1_024), 0, known_pieces=4, expected_pieces=2)
    assert known.hit_tokens == 512
    assert known.first_token_s == pytest.approx(0.5 + 0.512, abs=0.01)
    expected = facing.replica(look(RATED), asked(1_024), 0, expected_pieces=4)
    assert expected.hit_tokens == 0
    assert expected.first_token_s == known.first_token_s
    everything = facing.replica(look(RATED), asked(1_024), 0, known_pieces=99)
    assert everything.hit_tokens == 1_024
    assert everything.first_token_s == pytest.approx(everything.wait_s, abs=0.001)


def test_work_of_a_less_urgent_class_is_not_ahead() -> None:
    assert facing.replica(look(RATED), asked(), 5).wait_s == pytest.approx(0.0, abs=0.01)
    assert facing.replica(look(RATED), asked(), 5).limit_s == math.inf


def test_steps_are_counted_where_their_cost_is_known() -> None:
    step_time = StepTime(fixed_s=0.1, per_prefill_token_s=0.001, per_decode_s=0.0, per_context_token_s=0.0)
    stepped = LoadState(step_time=step_time, chunk_tokens=100, max_prefill_batch=8, max_num_seqs=64)
    found = facing.replica(look(stepped), asked(1_000), 0)
    # Ten steps of a tenth, and a second of tokens.
    assert found.first_token_s == pytest.approx(2.0, abs=0.11)


@pytest.mark.parametrize("load", [None, LoadState(), LoadState(waiting=0)])
def test_without_a_known_speed_what_is_known_is_compared(load: LoadState | None) -> None:
    found = facing.replica(look(load, unseen_tokens=300), asked(), 0)
    assert 0 < found.wait_s < found.first_token_s < math.inf
    waiting = facing.replica(look(LoadState(waiting=9), unseen_tokens=300), asked(), 0)
    assert waiting.wait_s > found.wait_s


def test_a_prompt_without_text_has_nothing_cached() -> None:
    found = facing.replica(look(RATED), inspection.Inspected(), 0, known_pieces=3)
    assert found.hit_tokens == 0
