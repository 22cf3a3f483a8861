"""How much of a prompt is declared to be that of others too."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firsttoken_api.errors import BadRequestError
from firsttoken_runtime.server import prompt, shared_prefix
from firsttoken_runtime.server.chat_template import ChatTemplate
from firsttoken_runtime.server.openai_models import ChatRequest, UnknownNames, parse
from runtime.byte_text import text_model

TEXT = text_model()
CHATML = (
    "{% if tools %}<tools>{{ tools | tojson }}</tools>{% endif %}"
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)
WANTS_USER = "{% if not messages or messages[-1].role == 'system' %}{{ raise_exception('no') }}{% endif %}"
TOOLS = [{"type": "function", "function": {"name": "f"}}]
SYSTEM = {"role": "system", "content": "Be brief. é"}
USER = {"role": "user", "content": "Hi"}


def _chat(*messages: dict, template: str = CHATML, **parameters: object) -> prompt.Prompt:
    body = json.dumps({"messages": messages, **parameters}).encode()
    request = parse(ChatRequest, body, UnknownNames())
    return prompt.chat(request, TEXT, ChatTemplate(template, TEXT.special_tokens), 1000)


def _shared(*messages: dict, **parameters: object) -> str:
    one = _chat(*messages, **parameters)
    return TEXT.decode(one.ids[: one.system_tokens])


def test_it_is_the_system_messages_and_the_tools():
    head = "[system]Be brief. é\n"
    tools = f"<tools>{json.dumps(TOOLS)}</tools>"
    assert _shared(USER) == ""
    assert _shared(SYSTEM, USER) == head
    assert _shared({**SYSTEM, "role": "developer"}, USER) == head
    assert _shared(SYSTEM, SYSTEM, USER) == head + head
    assert _shared(SYSTEM, USER, tools=TOOLS) == tools + head
    assert _shared(USER, tools=TOOLS) == tools
    assert _shared(USER, SYSTEM) == ""
    assert _shared(SYSTEM) == head


def test_tools_that_may_not_be_called_are_not_there():
    assert _shared(USER, tools=TOOLS, tool_choice="none") == ""


@pytest.mark.parametrize("text", ["Hi", "a", "ab", "b", "A"])
def test_a_template_that_wants_a_user_gets_one(text):
    user = {"role": "user", "content": text}
    assert _shared(SYSTEM, user, template=WANTS_USER + CHATML) == "[system]Be brief. é\n[user]"


def test_a_template_that_wants_still_more_declares_nothing():
    at_least_three = "{% if messages | length < 3 %}{{ raise_exception('no') }}{% endif %}"
    assert _shared(SYSTEM, USER, USER, template=at_least_three + CHATML) == ""


def test_all_chats_with_the_same_system_part_share_it():
    lengths = {
        _chat(SYSTEM, {"role": "user", "content": text}).system_tokens
        for text in ("", "x", "[", "é", "long " * 9)
    }
    assert len(lengths) == 1


def test_characters_of_many_tokens_count_whole():
    encoding = TEXT.encoding("a日b", add_special_tokens=False)
    assert [shared_prefix.tokens_of(encoding, chars) for chars in range(4)] == [0, 1, 4, 5]
    assert shared_prefix.tokens_of(TEXT.encoding("", add_special_tokens=False), 0) == 0


@pytest.mark.parametrize(
    ("asked", "system", "pins", "found"),
    [
        (None, 0, [], 0),
        (None, 2, [], 2),
        (0, 2, [[5, 6, 7]], 0),
        (3, 2, [], 3),
        (4, 0, [], 4),
        (None, 1, [[5, 6, 9], [1]], 2),
        (None, 3, [[5, 6, 9]], 3),
        (None, 0, [[5, 6, 7, 8, 9]], 4),
    ],
)
def test_what_the_client_says_wins_else_the_longest(asked, system, pins, found):
    assert shared_prefix.of_request(asked, [5, 6, 7, 8], system, pins) == found


def test_more_than_the_prompt_is_refused_by_name():
    with pytest.raises(BadRequestError, match="the prompt has 4 tokens") as caught:
        shared_prefix.of_request(5, [5, 6, 7, 8], 0, [])
    assert caught.value.param == "shared_prefix_tokens"


lists = st.lists(st.integers(0, 1), max_size=12)


@given(lists, lists)
def test_the_common_length_is_the_longest(one, other):
    length = shared_prefix.common_length(one, other)
    assert one[:length] == other[:length]
    assert length == min(len(one), len(other)) or one[length] != other[length]
