"""From requests to prompt tokens."""

import json

import pytest

from firsttoken_api.errors import BadRequestError
from firsttoken_runtime.server import prompt
from firsttoken_runtime.server.chat_template import ChatTemplate
from firsttoken_runtime.server.openai_models import ChatRequest, CompletionRequest, UnknownNames, parse
from runtime.byte_text import TEMPLATE, text_model
from runtime.fake_engine import END

TEXT = text_model()
CAPACITY = 100


def _prompts(value: object, **parameters: object) -> list[prompt.Prompt]:
    body = json.dumps({"prompt": value, **parameters}).encode()
    return prompt.completion(parse(CompletionRequest, body, UnknownNames()), TEXT, CAPACITY)


def _completion(value: object) -> list[int]:
    (only,) = _prompts(value)
    return only.ids


def _chat(*messages: dict, template: str = TEMPLATE, **parameters: object) -> list[int]:
    body = json.dumps({"messages": messages, **parameters}).encode()
    request = parse(ChatRequest, body, UnknownNames())
    return prompt.chat(request, TEXT, ChatTemplate(template, TEXT.special_tokens), CAPACITY).ids


def _ids(text: str) -> list[int]:
    return TEXT.encode(text, add_special_tokens=False)


def test_completions():
    ids = _ids("ab")
    assert _completion("ab") == _completion(["ab"]) == _completion(ids) == _completion([ids]) == ids
    assert _completion([]) == []
    assert [(one.ids, one.param) for one in _prompts(["ab", "c"])] == [
        (ids, "prompt[0]"),
        (_ids("c"), "prompt[1]"),
    ]
    assert [one.ids for one in _prompts([[1, 2], [3]])] == [[1, 2], [3]]


@pytest.mark.parametrize("value", ["hé€!", _ids("hé€!")])
def test_an_echo_knows_where_its_tokens_start(value):
    (only,) = _prompts(value, echo=True)
    assert only.text == "hé€!"
    starts = [0, 1, 1, 2, 2, 2, 3]
    if isinstance(value, str):
        assert only.offsets == starts
    else:  # a character is where its last token completes it
        assert only.offsets == [0, 1, 1, 2, 2, 2, 3]
    (end,) = _prompts([END, 300], echo=True)
    assert (end.text, end.offsets) == ("", [0, 0])


def test_chats_go_through_the_template_once():
    assert _chat({"role": "user", "content": "ab"}) == [*_ids("ab"), END]
    body = json.dumps({"messages": [{"role": "user", "content": "ab"}]}).encode()
    with pytest.raises(BadRequestError, match="no chat template"):
        prompt.chat(parse(ChatRequest, body, UnknownNames()), TEXT, None, CAPACITY)


def test_a_final_message_is_left_open():
    template = "{% for m in messages %}[{{ m.role }}]{{ m.content | trim }}.{% endfor %}"
    messages = [{"role": "user", "content": "Hi."}, {"role": "assistant", "content": "Hi "}]
    given = {"template": template, "continue_final_message": True}
    assert _chat(*messages, **given) == _ids("[user]Hi..[assistant]Hi")
    spaced = template.replace(" | trim", "")
    assert _chat(*messages, **given | {"template": spaced}) == _ids("[user]Hi..[assistant]Hi ")
    assert _chat(*messages, template=template) == _ids("[user]Hi..[assistant]Hi.")
    for last, source in (("  ", template), ("gone", "{{ messages[0].content }}")):
        with pytest.raises(BadRequestError) as caught:
            _chat(
                {"role": "user", "content": "x"},
                {"role": "assistant", "content": last},
                template=source,
                continue_final_message=True,
            )
        assert caught.value.param == "continue_final_message"


def test_a_text_that_cannot_fit_is_not_even_tokenized():
    assert TEXT.longest_token_chars == len("<|constrained|>")
    most = CAPACITY * TEXT.longest_token_chars * prompt.NORMALIZATION_FACTOR
    assert len(_completion("x" * most)) == most
    with pytest.raises(BadRequestError) as caught:
        _completion("x" * (most + 1))
    assert (caught.value.param, caught.value.detail_code) == ("prompt", "context_length_exceeded")
