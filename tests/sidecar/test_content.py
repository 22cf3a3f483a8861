import itertools
import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from firsttoken_sidecar import content
from firsttoken_sidecar.content import Verdict

ROLE = b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}\n\n'
TEXT = 'data: {"choices":[{"index":0,"delta":{"content":"Grüße 🚀"},"finish_reason":null}]}\n\n'.encode()
FINISH = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":3}}\n\n'
DONE = b"data: [DONE]\n\n"
PING = b": keep-alive\n\n"
ERROR = b'data: {"error":{"message":"it broke"}}\n\n'


def decide(detector: content.Detector, chunks: list[bytes]) -> tuple[Verdict, int | None]:
    """The verdict and the index of the byte after the deciding one (None: at the end)."""
    sent = 0
    for chunk in chunks:
        verdict = detector.feed(chunk)
        if verdict is not None:
            assert detector.decided_at is not None
            assert sent < detector.decided_at <= sent + len(chunk), "decided in the chunk that holds the byte"
            return verdict, detector.decided_at
        sent += len(chunk)
    return detector.finish(), None


def decide_sse(*events: bytes) -> tuple[Verdict, int | None]:
    return decide(content.ServerSentEvents(), [b"".join(events)])


def cut(data: bytes, cuts: list[int]) -> list[bytes]:
    places = [0, *sorted({place % (len(data) + 1) for place in cuts}), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(places)]


def test_the_role_chunk_and_comments_do_not_count() -> None:
    verdict, decided_at = decide_sse(PING, ROLE, PING, TEXT, FINISH, DONE)
    assert verdict is Verdict.CONTENT
    assert decided_at == len(PING + ROLE + PING + TEXT)


@pytest.mark.parametrize(
    "delta",
    [
        {"content": " "},
        {"reasoning_content": "hm"},
        {"reasoning": "hm"},
        {"refusal": "no"},
        {"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": ""}}]},
    ],
)
def test_content_reasoning_refusal_and_tool_calls_count(delta: dict[str, object]) -> None:
    event = b"data: " + json.dumps({"choices": [{"delta": delta}]}).encode() + b"\n\n"
    assert decide_sse(ROLE, event) == (Verdict.CONTENT, len(ROLE + event))


def test_text_of_completions_counts() -> None:
    empty = b'data: {"choices":[{"text":"","finish_reason":null}]}\n\n'
    text = b'data: {"choices":[{"text":"a"}]}\n\n'
    assert decide_sse(empty, text) == (Verdict.CONTENT, len(empty + text))


def test_any_choice_counts() -> None:
    event = b'data: {"choices":[{"index":0,"delta":{}},{"index":1,"delta":{"content":"b"}}]}\n\n'
    assert decide_sse(event)[0] is Verdict.CONTENT


def test_without_content_the_finish_chunk_counts() -> None:
    assert decide_sse(ROLE, FINISH, USAGE, DONE) == (Verdict.FINAL, len(ROLE + FINISH))


def test_without_a_finish_chunk_the_end_marker_counts() -> None:
    assert decide_sse(ROLE, USAGE, DONE) == (Verdict.FINAL, len(ROLE + USAGE + DONE))


def test_without_anything_the_end_counts() -> None:
    assert decide_sse(ROLE) == (Verdict.FINAL, None)
    assert decide_sse() == (Verdict.FINAL, None)


def test_an_error_before_content_is_no_first_token() -> None:
    assert decide_sse(ROLE, ERROR) == (Verdict.ERROR, len(ROLE + ERROR))


def test_an_event_counts_when_it_is_complete() -> None:
    assert decide_sse(TEXT[:-1]) == (Verdict.FINAL, None)


def test_other_line_ends_and_fields() -> None:
    crlf = b"event: message\r\nid: 7\r\n" + TEXT.replace(b"\n", b"\r\n")
    assert decide_sse(crlf) == (Verdict.CONTENT, len(crlf) - 1)
    cr = TEXT.replace(b"\n", b"\r")
    assert decide_sse(cr) == (Verdict.CONTENT, len(cr))
    marked = b"\xef\xbb\xbf" + TEXT
    assert decide_sse(marked) == (Verdict.CONTENT, len(marked))
    folded = b'data: {"choices":[{"delta":\ndata:{"content":"x"}}]}\n\n'
    assert decide_sse(folded) == (Verdict.CONTENT, len(folded))


@pytest.mark.parametrize(
    "data",
    [
        b"data: nonsense\n\n",
        b"data: 3\n\n",
        b'data: {"choices":3}\n\n',
        b'data: {"choices":[3]}\n\n',
        b"\xff\xfe\n\n",
    ],
)
def test_what_is_not_ours_does_not_count(data: bytes) -> None:
    assert decide_sse(data, TEXT) == (Verdict.CONTENT, len(data + TEXT))


def test_deep_nesting_does_not_break_it() -> None:
    deep = b"data: " + b"[" * 50_000 + b"\n\n"
    assert decide_sse(deep, TEXT)[0] is Verdict.CONTENT


def test_an_event_past_the_limit_counts_and_is_not_kept() -> None:
    detector = content.ServerSentEvents()
    piece = b"x" * 1000
    fed = 0
    verdict = detector.feed(b"data: ")
    while verdict is None:
        verdict = detector.feed(piece)
        fed += len(piece)
    assert verdict is Verdict.CONTENT
    assert content.MAX_EVENT_BYTES < fed + 6 <= content.MAX_EVENT_BYTES + 1000


def body(**message: object) -> bytes:
    choice = {"index": 0, "logprobs": {"content": [{"token": "x"}]}, "message": message}
    document = {"id": "content", "error_text": "{[", "usage": {"text": "no"}, "choices": [choice]}
    return json.dumps(document, ensure_ascii=False).encode()


def decide_json(data: bytes) -> tuple[Verdict, int | None]:
    return decide(content.JsonDocument(), [data])


def test_json_counts_at_the_first_byte_of_content() -> None:
    data = body(role="assistant", content='Größe "1"')
    assert decide_json(data) == (Verdict.CONTENT, data.index("Größe".encode()) + 1)


@pytest.mark.parametrize(
    "message",
    [
        {"content": "", "reasoning_content": "Hm"},
        {"content": None, "tool_calls": [{"type": "", "id": "Hm"}]},
        {"content": [{"type": "", "text": "Hm"}]},
        {"refusal": "Hm"},
    ],
)
def test_json_knows_reasoning_tool_calls_and_parts(message: dict[str, object]) -> None:
    data = body(role="assistant", **message)
    assert decide_json(data) == (Verdict.CONTENT, data.index(b"Hm") + 1)


def test_json_text_of_completions_counts() -> None:
    data = b'{"choices": [ {"text" : "\\u00e4", "index": 0} ]}'
    assert decide_json(data) == (Verdict.CONTENT, data.index(b"\\") + 1)


@pytest.mark.parametrize(
    "data",
    [
        body(role="assistant", content=""),
        b'{"content": "x", "message": {"content": "x"}, "choices": [{"finish_reason": "stop"}]}',
        b'{"choices": {"message": {"content": "x"}}}',
        b'"choices"',
        b"}}]]",
        b"",
    ],
)
def test_json_without_content_counts_at_the_end(data: bytes) -> None:
    assert decide_json(data) == (Verdict.FINAL, None)


def test_the_detector_follows_the_headers() -> None:
    assert isinstance(content.detector_for("text/event-stream; charset=utf-8", ""), content.ServerSentEvents)
    assert isinstance(content.detector_for("Application/JSON", "identity"), content.JsonDocument)
    assert isinstance(content.detector_for("application/json", "gzip"), content.AtTheEnd)
    assert isinstance(content.detector_for("", ""), content.AtTheEnd)
    assert decide(content.AtTheEnd(), [TEXT, DONE]) == (Verdict.FINAL, None)


LINES = st.sampled_from(
    [PING, ROLE, USAGE, b"data: [1", b"data:\n", b"\r\n", b"\r", b"\n", b"data: nonsense\n\n", "é🚀".encode()]
)
ENDS = st.sampled_from(
    [TEXT, TEXT.replace(b"\n", b"\r\n"), TEXT.replace(b"\n", b"\r"), FINISH, DONE, ERROR, b""]
)
CUTS = st.lists(st.integers(0, 2000), max_size=30)


@given(st.lists(LINES, max_size=6), ENDS, CUTS)
@example([b"\r", b"\n", PING], TEXT.replace(b"\n", b"\r\n"), list(range(300)))
def test_no_split_of_a_stream_changes_the_decision(lines: list[bytes], end: bytes, cuts: list[int]) -> None:
    data = b"".join([*lines, end])
    assert decide(content.ServerSentEvents(), cut(data, cuts)) == decide_sse(data)


@given(st.integers(-3, 3), st.integers(0, 3), CUTS)
def test_no_split_changes_the_decision_at_the_limit(over: int, lines: int, cuts: list[int]) -> None:
    spread = [place * 97 for place in cuts]
    data = b"data: 1\n" * lines + b"data: " + b"y" * (content.MAX_EVENT_BYTES + over) + b"\n\n" + TEXT
    assert decide(content.ServerSentEvents(), cut(data, spread)) == decide_sse(data)


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["choices", "message", "delta", "content", "text", "tool_calls", 'a"\\b']),
            inner,
            max_size=3,
        )
    ),
    max_leaves=12,
)


@given(JSON_VALUES, st.booleans(), CUTS)
def test_no_split_of_a_document_changes_the_decision(value: object, is_ascii: bool, cuts: list[int]) -> None:
    data = json.dumps({"choices": [{"message": value}, value]}, ensure_ascii=is_ascii).encode()
    assert decide(content.JsonDocument(), cut(data, cuts)) == decide_json(data)


@given(st.binary(max_size=200), CUTS)
def test_arbitrary_bytes_break_nothing(data: bytes, cuts: list[int]) -> None:
    for kind in (content.ServerSentEvents, content.JsonDocument):
        assert decide(kind(), cut(data, cuts)) == decide(kind(), [data])


@given(st.text(min_size=1, max_size=20), st.integers(0, 400))
def test_a_split_inside_a_character_changes_nothing(text: str, place: int) -> None:
    event = {"choices": [{"delta": {"content": text}}]}
    data = ROLE + b"data: " + json.dumps(event, ensure_ascii=False).encode() + b"\n\n"
    assert decide(content.ServerSentEvents(), cut(data, [place])) == (Verdict.CONTENT, len(data))


def reference(value: object) -> bool:
    """Whether a parsed document holds content, decided the slow way."""
    if not isinstance(value, dict) or not isinstance(value.get("choices"), list):
        return False

    def has_text(part: object) -> bool:
        if isinstance(part, dict):
            return any(map(has_text, part.values()))
        if isinstance(part, list):
            return any(map(has_text, part))
        return isinstance(part, str) and part != ""

    for choice in value["choices"]:
        if not isinstance(choice, dict):
            continue
        messages = [choice[key] for key in ("message", "delta") if isinstance(choice.get(key), dict)]
        parts = [m[key.decode()] for m in messages for key in content.CONTENT_KEYS if key.decode() in m]
        if any(map(has_text, [*parts, choice.get("text")])):
            return True
    return False


@given(JSON_VALUES)
def test_the_scanner_agrees_with_a_parser(value: object) -> None:
    document = {"id": "x", "choices": [{"message": value}, value]}
    verdict, _ = decide_json(json.dumps(document).encode())
    assert (verdict is Verdict.CONTENT) == reference(document)


def test_event_end_is_seen_over_chunks() -> None:
    end = content.EventEnd()
    assert end.is_reached
    for chunk, expected in [
        (b"data: 1", False),
        (b"\n", False),
        (b"\n", True),
        (b"x\r\n", False),
        (b"\r\n", True),
    ]:
        end.watch(chunk)
        assert end.is_reached is expected
