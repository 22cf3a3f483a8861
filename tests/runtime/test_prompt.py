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


def _completion(value: object) -> list[int]:
    body = json.dumps({"prompt": value}).encode()
    return prompt.completion(parse(CompletionRequest, body, UnknownNames()), TEXT, CAPACITY)


def test_completions():
    ids = TEXT.encode("ab", add_special_tokens=False)
    assert _completion("ab") == _completion(["ab"]) == _completion(ids) == ids
    assert _completion([]) == []
    with pytest.raises(BadRequestError) as caught:
        _completion(["a", "b"])
    assert caught.value.param == "prompt"


def test_chats_go_through_the_template_once():
    body = json.dumps({"messages": [{"role": "user", "content": "ab"}]}).encode()
    request = parse(ChatRequest, body, UnknownNames())
    ids = prompt.chat(request, TEXT, ChatTemplate(TEMPLATE, TEXT.special_tokens), CAPACITY)
    assert ids == [*TEXT.encode("ab", add_special_tokens=False), END]
    with pytest.raises(BadRequestError, match="no chat template"):
        prompt.chat(request, TEXT, None, CAPACITY)


def test_a_text_that_cannot_fit_is_not_even_tokenized():
    assert TEXT.longest_token_chars == len("<|wait|>")
    most = CAPACITY * TEXT.longest_token_chars * prompt.NORMALIZATION_FACTOR
    assert len(_completion("x" * most)) == most
    with pytest.raises(BadRequestError) as caught:
        _completion("x" * (most + 1))
    assert (caught.value.param, caught.value.detail_code) == ("prompt", "context_length_exceeded")
