import inspect
from typing import Any

from firsttoken_api import errors
from firsttoken_api.errors import ApiError


def _tree(root: type[ApiError]) -> list[type[ApiError]]:
    """Of this module: others may have errors of their own, which are made in another way."""
    children = [each for each in root.__subclasses__() if each.__module__ == errors.__name__]
    return [root, *(each for child in children for each in _tree(child))]


def test_every_answer_has_openais_form() -> None:
    for kind in _tree(ApiError):
        body = kind("because", param="max_tokens").body()
        assert errors.is_error_body(body)
        assert body["error"]["message"] == "because"
        assert body["error"]["param"] == "max_tokens"
        assert 400 <= kind.status <= 599


def test_a_client_is_told_when_to_come_back() -> None:
    for kind in _tree(errors.UnavailableError):
        assert kind("later").headers() == {"Retry-After": "1"}
    assert errors.DrainingError("later", retry_after_s=7).headers() == {"Retry-After": "7"}
    assert errors.BadRequestError("wrong").headers() == {}


def test_admission_by_time_is_a_429_of_its_own_that_says_when_to_come_back() -> None:
    refusal = errors.ObjectiveUnreachableError("not within 1 s", retry_after_s=3)
    assert (refusal.status, refusal.headers()) == (429, {"Retry-After": "3"})
    assert refusal.body()["error"]["code"] == "objective_unreachable"
    assert errors.ObjectiveUnreachableError("later").headers() == {"Retry-After": "1"}


def test_a_code_can_be_more_special() -> None:
    assert errors.BadRequestError("wrong").body()["error"]["code"] is None
    assert errors.BadRequestError("wrong", code="context_length_exceeded").body()["error"]["code"] == (
        "context_length_exceeded"
    )


def test_the_docstring_draws_the_whole_tree() -> None:
    for name, value in vars(errors).items():
        if inspect.isclass(value) and issubclass(value, errors.FirsttokenError):
            assert name in (errors.__doc__ or ""), name


def test_other_json_is_no_error_body() -> None:
    bodies: tuple[Any, ...] = (None, [], {}, {"error": "text"}, {"error": {"message": "x"}})
    for body in bodies:
        assert not errors.is_error_body(body)
