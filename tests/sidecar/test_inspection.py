import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict

from firsttoken_api import hot_settings, names
from firsttoken_sidecar import inspection

SETTINGS = hot_settings.HotSettings(
    generation=1,
    flags=(),
    objective=hot_settings.Objective(ttft_p95_s=0.5),
    classes=(
        hot_settings.ClassSettings(name="live", priority=10, ttft_p99_s=0.5),
        hot_settings.ClassSettings(name="batch", priority=0, ttft_p99_s=30.0),
    ),
    default_class="live",
    routes=(hot_settings.RouteSettings(name="night", request_class="batch"),),
)


def inspect(asked: object, tenant: str = "", headers: dict[str, str] | None = None) -> inspection.Inspected:
    body = asked if isinstance(asked, bytes) else json.dumps(asked).encode()
    return inspection.inspect(CIMultiDict(headers or {}), body, tenant=tenant, settings=SETTINGS)


def chat(*texts: str, **fields: object) -> dict[str, object]:
    return {"messages": [{"role": "user", "content": text} for text in texts], **fields}


def test_what_a_chat_says() -> None:
    found = inspect(
        chat("x" * 1000, model="chat:night", stream=True, temperature=0, max_tokens=7),
        headers={"idempotency-key": "k1"},
    )
    assert found.model == "chat:night"
    assert (found.route, found.request_class) == ("night", "batch")
    assert found.is_streamed
    assert found.is_repeatable
    assert found.max_tokens == 7
    assert found.idempotency_key == "k1"
    assert found.prompt_bytes == 1000 + len("user\n\n")
    assert found.estimated_prompt_tokens == 252, "rounded up"
    assert len(found.prefix_keys) == 1


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe",
        b'{"messages":' + b"[" * 5000,
        b'{"messages": 3, "prompt": {"a": 1}, "tools": 1}',
        b'{"messages": [1, null, [], {"content": {"text": 3}}, {"role": 4}], "max_tokens": "7"}',
        b'{"messages": [{"content": "\\ud800"}]}',
        b'{"temperature": "0", "seed": true, "stream": "yes", "max_tokens": -1, "model": []}',
    ],
)
def test_what_is_wrong_is_left_to_the_engine(body: bytes) -> None:
    found = inspect(body)
    assert found.body == body
    assert found.request_class == "live"
    assert not found.is_repeatable
    assert not found.is_streamed
    assert found.max_tokens is None


@given(st.binary(max_size=200))
def test_no_bytes_break_it(body: bytes) -> None:
    assert inspect(body).body == body


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
        max_leaves=20,
    ),
    st.sampled_from(["messages", "prompt", "tools", "max_tokens", "temperature", "seed", "stream", "model"]),
)
def test_no_value_breaks_it(value: object, name: str) -> None:
    assert inspect({name: value}).estimated_prompt_tokens >= 0


def test_prompts_of_completions_are_texts_or_tokens() -> None:
    assert inspect({"prompt": "x" * 400}).estimated_prompt_tokens == 100
    assert inspect({"prompt": ["x" * 400, "y" * 400]}).estimated_prompt_tokens == 200
    assert inspect({"prompt": [1, 2, 3]}).estimated_prompt_tokens == 3
    assert inspect({"prompt": [[1, 2, 3], [4]]}).estimated_prompt_tokens == 4
    assert inspect({"prompt": []}).estimated_prompt_tokens == 0


def test_text_in_parts_is_the_same_text() -> None:
    whole = inspect(chat("a" * 3000))
    parts = [{"type": "text", "text": "a" * 1000}, {"type": "text", "text": "a" * 2000}]
    in_parts = inspect({"messages": [{"role": "user", "content": parts}]})
    assert whole.prefix_keys == in_parts.prefix_keys
    assert whole.body_hash != in_parts.body_hash


def test_equal_keys_mean_equal_text_from_the_start() -> None:
    system = "s" * 2048
    one = inspect(chat(system, "q" * 2000)).prefix_keys
    other = inspect(chat(system, "r" * 2000)).prefix_keys
    assert len(one) == len(other) == (2048 + 2000 + 12) // inspection.PREFIX_PIECE_BYTES
    common = sum(a == b for a, b in zip(one, other, strict=True))
    assert common == 4
    assert one[:common] == other[:common], "chained: what differs once differs for ever"


def test_tools_come_first_and_what_was_called_counts() -> None:
    tools = [{"type": "function", "function": {"name": "f", "description": "d" * 600}}]
    keys = inspect(chat("x" * 2000, tools=tools)).prefix_keys
    assert keys[0] == inspect(chat("y" * 2000, tools=tools)).prefix_keys[0]
    assert keys[0] != inspect(chat("x" * 2000)).prefix_keys[0]
    calls = {"messages": [{"role": "assistant", "content": None, "tool_calls": [{"id": "c" * 600}]}]}
    assert inspect(calls).prompt_bytes > 600


def test_tenants_share_no_keys() -> None:
    asked = chat("x" * 5000)
    assert not set(inspect(asked, "a").prefix_keys) & set(inspect(asked, "b").prefix_keys)
    assert inspect(asked, "a").body_hash == inspect(asked, "b").body_hash


@given(st.binary(max_size=3000), st.binary(max_size=1200), st.binary(max_size=1200))
def test_keys_are_as_many_as_common_pieces(start: bytes, one: bytes, other: bytes) -> None:
    a, b = inspection.prefix_keys("t", start + one), inspection.prefix_keys("t", start + other)
    assert len(a) == len(start + one) // inspection.PREFIX_PIECE_BYTES
    certain = len(start) // inspection.PREFIX_PIECE_BYTES
    assert a[:certain] == b[:certain]
    for index, (left, right) in enumerate(zip(a, b, strict=False)):
        end = (index + 1) * inspection.PREFIX_PIECE_BYTES
        assert (left == right) == ((start + one)[:end] == (start + other)[:end])


def test_a_long_prompt_has_a_bounded_number_of_keys() -> None:
    found = inspect(chat("x" * 500_000))
    assert len(found.prefix_keys) == inspection.MOST_PREFIX_KEYS


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"temperature": 0}, True),
        ({"temperature": 0.0}, True),
        ({"temperature": 0.1}, False),
        ({"temperature": False}, False),
        ({"seed": 0}, True),
        ({"seed": 4, "temperature": 1}, True),
        ({"seed": None}, False),
        ({}, False),
    ],
)
def test_what_can_be_repeated(fields: dict[str, object], expected: bool) -> None:
    assert inspect(chat("x", **fields)).is_repeatable is expected


def test_a_ceiling_lowers_the_class() -> None:
    headers = CIMultiDict({names.HEADER_CLASS: "live"})
    found = inspection.inspect(headers, b"{}", tenant="", settings=SETTINGS, max_class="batch")
    assert found.request_class == "batch"
    assert inspection.unseen(headers, 9, settings=SETTINGS, max_class="batch").request_class == "batch"


def test_without_a_document_the_class_is_what_is_asked_for() -> None:
    headers = CIMultiDict({names.HEADER_CLASS: "live"})
    assert inspection.inspect(headers, b"{}", tenant="", settings=None).request_class == "live"


def test_of_an_unread_body_headers_tell_what_they_can() -> None:
    headers = CIMultiDict({names.HEADER_ROUTE: "night", "Idempotency-Key": "k"})
    found = inspection.unseen(headers, 4_000_001, settings=SETTINGS, bytes_per_token=4.0)
    assert found.body is None
    assert (found.route, found.request_class, found.idempotency_key) == ("night", "batch", "k")
    assert found.estimated_prompt_tokens == 1_000_001


def test_nothing_of_a_prompt_is_shown() -> None:
    assert "s3cret" not in repr(inspect(chat("s3cret")))
