"""Waiting for the model's answer."""

import json

import pytest

from local import answer, steps


def test_refusals_are_waited_out() -> None:
    refusals: list[OSError] = [OSError("503 loading"), ConnectionResetError("gone")]

    def ask() -> str:
        if refusals:
            raise refusals.pop(0)
        return "The capital of France is Paris.\n"

    assert answer.wait(5, ask, every_s=0) == "The capital of France is Paris."


def test_no_answer_in_time_says_what_came_last() -> None:
    def ask() -> str:
        raise OSError("503 the model is loading")

    with pytest.raises(steps.StepError, match="503 the model is loading"):
        answer.wait(0, ask, every_s=0)


def test_a_wrong_answer_is_a_failure() -> None:
    with pytest.raises(steps.StepError, match="London"):
        answer.wait(5, lambda: "London", every_s=0)


def test_the_question_is_put_without_chance() -> None:
    assert json.loads(answer.body())["temperature"] == 0
