"""Request bodies: every wrong value is a 400 that names its parameter; null is the default."""

import json
import logging

import pytest

from firsttoken_api.errors import BadRequestError
from firsttoken_runtime.server.openai_models import (
    REFUSED,
    ChatRequest,
    CompletionRequest,
    UnknownNames,
    parse,
)

MESSAGES = [{"role": "user", "content": "x"}]


def _chat(**parameters: object) -> ChatRequest:
    body = json.dumps({"messages": MESSAGES, **parameters}).encode()
    return parse(ChatRequest, body, UnknownNames())


def _refused(kind: type, body: object) -> BadRequestError:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    with pytest.raises(BadRequestError) as caught:
        parse(kind, raw, UnknownNames())
    assert caught.value.status == 400
    return caught.value


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", -0.1),
        ("temperature", 2.1),
        ("temperature", float("nan")),
        ("temperature", float("inf")),
        ("temperature", "1"),
        ("temperature", True),
        ("top_p", 0),
        ("top_p", 1.01),
        ("top_p", float("nan")),
        ("top_k", -2),
        ("top_k", 1.5),
        ("min_p", float("nan")),
        ("min_p", -1),
        ("max_tokens", 0),
        ("max_tokens", -1),
        ("max_tokens", 2**40),
        ("max_tokens", 1.5),
        ("max_completion_tokens", 0),
        ("min_tokens", -1),
        ("seed", 2**63),
        ("seed", 1.5),
        ("stop", ""),
        ("stop", 5),
        ("stop", ["a"] * 17),
        ("stop_token_ids", [-1]),
        ("stop_token_ids", "x"),
        ("stream", 1),
        ("stream", "true"),
        ("messages", []),
        ("messages", "hello"),
        ("model", 5),
        ("ignore_eos", "no"),
        ("stream_options", {"include_usage": True}),
    ],
)
def test_wrong_values_are_named(name, value):
    assert _refused(ChatRequest, {"messages": MESSAGES, name: value}).param.startswith(name)


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_is_not_supported_is_refused_unless_it_is_the_default(name):
    kind, body = (CompletionRequest, {"prompt": "x"})
    if name in CompletionRequest.model_fields:
        kind, body = (ChatRequest, {"messages": MESSAGES})
    for value in (*REFUSED[name].defaults, None):
        parse(kind, json.dumps(body | {name: value}).encode(), UnknownNames())
    error = _refused(kind, body | {name: "surely not a default"})
    assert error.param == name
    assert f"not supported: {REFUSED[name].reason}" in error.message


def test_true_is_not_one():
    assert _refused(ChatRequest, {"messages": MESSAGES, "n": True}).param == "n"
    assert _refused(ChatRequest, {"messages": MESSAGES, "best_of": True}).param == "best_of"


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        ([{"role": "user"}], "messages[0].content"),
        ([{"role": "robot", "content": "x"}], "messages[0].role"),
        ([*MESSAGES, {"role": "user", "content": 7}], "messages[1].content"),
        ([{"role": "user", "content": [{"type": "image_url"}]}], "messages[0].content[0].type"),
        ([{"role": "assistant", "content": "x", "tool_calls": [{}]}], "messages[0].tool_calls[0].id"),
        ([{"role": "user", "content": "x", "tool_calls": [{}]}], "messages[0].tool_calls"),
        (["x"], "messages[0]"),
    ],
)
def test_wrong_messages_are_named(messages, param):
    assert _refused(ChatRequest, {"messages": messages}).param == param


@pytest.mark.parametrize("body", [b"", b"[]", b"null", b"{", b"\xff", b"[" * 100_000, b'"x"'])
def test_what_is_not_an_object_is_refused(body):
    assert _refused(ChatRequest, body).param is None


def test_null_is_the_default():
    names = ("temperature", "top_p", "stop", "seed", "stream", "min_p", "stop_token_ids", "stream_options")
    assert _chat(**dict.fromkeys(names)) == _chat()


def test_token_limits():
    assert _chat().token_limit is None
    assert _chat(max_tokens=3).token_limit == 3
    assert _chat(max_tokens=3, max_completion_tokens=7).token_limit == 7
    assert parse(CompletionRequest, b'{"prompt": "x"}', UnknownNames()).token_limit == 16
    assert (
        parse(CompletionRequest, b'{"prompt": "x", "max_tokens": null}', UnknownNames()).token_limit is None
    )
    assert (
        _refused(ChatRequest, {"messages": MESSAGES, "min_tokens": 4, "max_tokens": 3}).param == "min_tokens"
    )


def test_stops_and_content_parts():
    assert _chat(stop="a").stops == ("a",)
    assert _chat(stop=["a", "b"]).stops == ("a", "b")
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    message = _chat(messages=[{"role": "developer", "content": parts}]).messages[0]
    assert message.for_template() == {"role": "system", "content": "one\ntwo"}


@pytest.mark.parametrize(
    "prompt", [5, {}, [1.5], [-1], [[1], [-1]], [[[1]]], [True], ["a", 1], [1, "a"], ["a"] * 257]
)
def test_wrong_prompts_are_named(prompt):
    assert _refused(CompletionRequest, {"prompt": prompt}).param.startswith("prompt")


def test_unknown_names_are_warned_about_once_and_not_without_end(caplog):
    unknown = UnknownNames()
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            parse(CompletionRequest, b'{"prompt": "x", "frobnicate": 1}', unknown)
    assert [record.getMessage() for record in caplog.records] == [
        "a request has the unknown parameter 'frobnicate'; it is ignored"
    ]
    with caplog.at_level(logging.CRITICAL):
        for index in range(1000):
            unknown.warn(f"name{index}")
    assert len(unknown._seen) == 256
