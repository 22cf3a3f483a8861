"""Every parameter of every endpoint with every kind of wrong value: a 400 that names it.

The table is made from the models themselves, so that a parameter that is added is tested.
"""

import io
import json
import time
import types
import typing
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import pytest_asyncio
from pydantic import BaseModel

from firsttoken_api.errors import BadRequestError
from firsttoken_runtime.server.openai_models import (
    ChatRequest,
    CompletionRequest,
    DetokenizeRequest,
    ScoreRequest,
    TokenizeChatRequest,
    TokenizePromptRequest,
    UnknownNames,
    parse,
)
from runtime import fake_engine
from runtime.serving import Served, serving

MESSAGES = [{"role": "user", "content": "x"}]
VALID: dict[type[BaseModel], dict[str, Any]] = {
    ChatRequest: {"messages": MESSAGES, "stream": True, "stream_options": {}, "logprobs": True},
    CompletionRequest: {"prompt": "x", "stream": True, "stream_options": {}},
    ScoreRequest: {"prompt": "x"},
    TokenizePromptRequest: {"prompt": "x"},
    TokenizeChatRequest: {"messages": MESSAGES},
    DetokenizeRequest: {"tokens": [1]},
}
NAN, INFINITY = float("nan"), float("inf")
HUGE = 10**400

# What is wrong for a type, whatever its range. `{"?": 1}` is an object that is no message, tool or format.
WRONG: dict[type, list[Any]] = {
    bool: [0, 1, "true", "", [], {}, 1.0, NAN],
    int: [True, "1", 1.5, 1.0, NAN, INFINITY, [], {}, HUGE, -HUGE],
    float: [True, "1", NAN, INFINITY, -INFINITY, [], {}, HUGE],
    str: [1, True, 1.5, NAN],
    list: [1, True, {}, NAN, [True], [NAN]],
    dict: [1, True, "x", [], NAN],
}

# Type -> values out of the range of each number.
OUT_OF_RANGE: dict[str, list[Any]] = {
    "n": [0, -1, 17],
    "best_of": [0, -1],
    "max_tokens": [-1, 2**31],
    "max_completion_tokens": [-1, 2**31],
    "min_tokens": [-1, 2**31],
    "temperature": [-0.01, 2.01, -1],
    "top_p": [0, -0.1, 1.01],
    "top_k": [-2, 2**31],
    "min_p": [-0.01, 1.01],
    "presence_penalty": [-2.01, 2.01],
    "frequency_penalty": [-2.01, 2.01],
    "repetition_penalty": [0, 0.0, -1, 2.01],
    "logit_bias": [
        *({key: 1} for key in ("x", "-1", "1.5", "", " 1", str(2**31), str(HUGE))),
        *({"1": bias} for bias in (101, -101, NAN, "1", True, None)),
        {str(one): 1 for one in range(301)},
    ],
    "seed": [2**63, -(2**63) - 1],
    "stop": ["", [""], ["a"] * 17, "x" * 1025, [None]],
    "stop_token_ids": [[-1], [2**31], [1.5], [1] * 65, ["1"]],
    "logprobs": [-1, 21, "yes"],
    "top_logprobs": [-1, 21],
    "prompt_logprobs": [-1, 21],
    "priority": [2**31, -(2**31)],
    "cache_salt": ["", "x" * 1025],
    "user": ["x" * 1025],
    "metadata": [{"a": 1}, {str(one): "x" for one in range(65)}],
    "response_format": [
        {},
        {"type": "xml"},
        {"type": "json_schema"},
        {"type": "json_schema", "json_schema": {}},
    ],
    "tools": [[1], [{}], [{"type": "function"}], [{"type": "function", "function": {"name": "a b"}}]],
    "tool_choice": [
        "all",
        {},
        {"type": "function"},
        "required",
        {"type": "function", "function": {"name": "f"}},
    ],
    "top": [-1, 21],
    "messages": [[], [{}], ["x"], [{"role": "user", "content": 1}], [{"role": "tool"}]],
    "prompt": [[1.5], [-1], ["a", 1], [[1], [-1]], [[[1]]], [2**31]],
    "prompts": [[], [1], [[-1]], ["a"] * 257],
    "tokens": [[-1], ["1"]],
    "stream_options": [{"include_usage": 1}, {"continuous_usage_stats": "x"}],
}


def _types(annotation: Any) -> Iterator[type]:
    """The JSON types that a parameter takes."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield dict
    elif typing.get_origin(annotation) is typing.Literal:
        yield str
    elif typing.get_origin(annotation) is typing.Annotated:
        yield from _types(typing.get_args(annotation)[0])
    elif typing.get_origin(annotation) in (typing.Union, types.UnionType):
        for member in typing.get_args(annotation):
            yield from _types(member)
    elif (origin := typing.get_origin(annotation) or annotation) in WRONG:
        yield origin


def _wrong_values(name: str, annotation: Any) -> list[Any]:
    kinds = set(_types(annotation))
    if not kinds:
        return []
    common = [value for value in WRONG[min(kinds, key=str)] if _is_wrong_for(value, kinds)]
    return common + OUT_OF_RANGE.get(name, [])


def _is_wrong_for(value: Any, kinds: set[type]) -> bool:
    """A value that is wrong for one type may be right for another of the same parameter."""
    if type(value) in (list, dict, str):
        return type(value) not in kinds or value in ([True], [NAN])
    return type(value) not in kinds or value != value or abs(value) >= HUGE or value == INFINITY


CASES = [
    (kind, name, value)
    for kind in VALID
    for name, field in kind.model_fields.items()
    for value in _wrong_values(name, field.annotation)
]


def test_the_table_has_every_parameter():
    covered = {(kind, name) for kind, name, _ in CASES}
    assert {(kind, name) for kind in VALID for name in kind.model_fields} == covered
    assert len(CASES) > 700


def _named(kind: type[BaseModel], name: str, value: Any) -> str | None:
    """The parameter that the refusal names; None if the value is taken."""
    try:
        parse(kind, json.dumps(VALID[kind] | {name: value}).encode(), UnknownNames())
    except BadRequestError as error:
        return error.param
    return None


@pytest.mark.parametrize("kind", VALID, ids=lambda kind: kind.__name__)
def test_every_wrong_value_is_named(kind):
    parse(kind, json.dumps(VALID[kind]).encode(), UnknownNames())
    for of, name, value in CASES:
        if of is not kind:
            continue
        assert (_named(kind, name, value) or "").startswith(name), (name, str(value)[:80])


@pytest.mark.parametrize("kind", VALID, ids=lambda kind: kind.__name__)
def test_null_is_the_default_of_every_parameter(kind):
    plain = parse(kind, json.dumps(VALID[kind]).encode(), UnknownNames())
    for name in kind.model_fields.keys() - VALID[kind].keys() - kind.nullable():
        body = json.dumps(VALID[kind] | {name: None}).encode()
        assert parse(kind, body, UnknownNames()) == plain


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served() -> AsyncIterator[Served]:
    async with serving(fake_engine.Script()) as running:
        yield running


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"prompt": "", "max_tokens": 1}, "prompt"),
        ({"prompt": [], "max_tokens": 1}, "prompt"),
        ({"prompt": "x", "max_tokens": 10**30}, "max_tokens"),
        ({"prompt": "x", "logit_bias": {"262": 1}}, "logit_bias"),
        ({"prompt": "x", "top_k": 263}, "top_k"),
        ({"prompt": "x", "repetition_penalty": NAN}, "repetition_penalty"),
        ({"prompt": "x" * 201}, "prompt"),
        ({"prompt": "x", "n": 17}, "n"),
        ({"prompt": ["x"] * 200, "n": 2}, "prompt"),
    ],
)
async def test_what_stopped_other_engines_does_not_stop_this_one(served: Served, body, param):
    status, answer = await served.post("/v1/completions", data=json.dumps(body))
    assert (status, answer["error"]["param"]) == (400, param)
    assert (await served.post("/v1/completions", {"prompt": "abc", "max_tokens": None}))[0] == 200


@pytest.mark.asyncio(loop_scope="module")
async def test_large_wrong_bodies_are_refused_quickly(served: Served):
    """One finding a list member would take seconds, in which nobody else is answered."""
    for body in (
        {"prompt": [1.5] * 500_000},
        {"prompt": [[1.5]] * 300_000},
        {"prompt": "x", "logit_bias": {f"x{one}": 1 for one in range(150_000)}},
    ):
        raw = json.dumps(body).encode()
        started_s = time.process_time()
        json.loads(raw)
        read_s = time.process_time()
        status, _ = await served.post("/v1/completions", data=io.BytesIO(raw))
        assert status == 400
        # Against reading it, so that the machine's speed is not what is tested: with all findings it was 200.
        assert time.process_time() - read_s < 60 * (read_s - started_s)
