"""The shapes of OpenAI's answers, checked by the client library's own types."""

import json

from openai.types import Completion
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from firsttoken_runtime import core
from firsttoken_runtime.server.answer import Answer
from firsttoken_runtime.server.choice import Choice, Delta, TextShaper
from firsttoken_runtime.server.detokenizer import Detokenizer
from firsttoken_runtime.server.prompt import Prompt
from firsttoken_runtime.server.replies import ChatReply, CompletionReply, joined, message, usage
from firsttoken_runtime.server.stream import event
from runtime.byte_text import text_model

PROMPT = Prompt([1, 2, 3], "prompt")


def _choice(index: int = 0, prompt: Prompt = PROMPT) -> Choice:
    answer = Answer(Detokenizer(text_model().tokenizer))
    answer.take([core.Token(sequence_id=1, token_id=64, finish_reason="length", cached_tokens=2)])
    return Choice(index, prompt, answer, TextShaper("content"))


def test_whole_answers_are_valid():
    body = ChatReply("m").whole([_choice()], [[Delta({"content": "te"}), Delta({"content": "xt"})]])
    chat = ChatCompletion.model_validate(body, strict=True)
    assert (chat.choices[0].message.content, chat.choices[0].finish_reason) == ("text", "length")
    assert (chat.usage.total_tokens, chat.usage.prompt_tokens_details.cached_tokens) == (4, 2)
    body = CompletionReply("m").whole([_choice(), _choice(1)], [[Delta({"text": "text"})], []])
    completion = Completion.model_validate(body, strict=True)
    assert [(choice.index, choice.text) for choice in completion.choices] == [(0, "text"), (1, "")]


def test_chunks_are_valid_and_share_their_head():
    reply = ChatReply("m")
    bodies = [
        *reply.opening(0),
        reply.delta(0, Delta({"content": "x"})),
        reply.finish(_choice()),
        reply.usage([_choice()]),
    ]
    chunks = [ChatCompletionChunk.model_validate(body, strict=True) for body in bodies]
    assert len({(chunk.id, chunk.created) for chunk in chunks}) == 1
    assert [len(chunk.choices) for chunk in chunks] == [1, 1, 1, 0]
    assert bodies[1]["choices"][0]["finish_reason"] is None
    assert "content" not in bodies[2]["choices"][0]["delta"]
    assert all("usage" not in body for body in bodies[:-1])
    completion = CompletionReply("m")
    assert completion.opening(0) == []
    assert completion.delta(3, Delta({"text": "x"}))["choices"][0]["finish_reason"] is None
    assert completion.delta(3, Delta({"text": "x"}))["choices"][0]["index"] == 3
    assert ChatReply("m").opening(0)[0]["id"] != bodies[0]["id"]


def test_with_usage_every_chunk_says_so():
    reply = ChatReply("m", has_usage=True)
    assert reply.opening(0)[0]["usage"] is None
    assert reply.usage([_choice()])["usage"]["completion_tokens"] == 1


def test_a_prompt_counts_once_and_all_its_answers_do():
    other = Prompt([7], "prompt")
    choices = [_choice(0), _choice(1), _choice(2, other), _choice(3, other)]
    counted = usage(choices)
    assert (counted["prompt_tokens"], counted["completion_tokens"], counted["total_tokens"]) == (4, 4, 8)
    assert counted["prompt_tokens_details"]["cached_tokens"] == 4


def _answered(prompt: Prompt, cached_tokens: int) -> Choice:
    answer = Answer(Detokenizer(text_model().tokenizer))
    answer.take([core.Token(sequence_id=1, token_id=64, cached_tokens=cached_tokens)])
    return Choice(0, prompt, answer, TextShaper("content"))


def test_cached_tokens_are_those_that_no_answer_computed():
    silent = Choice(0, PROMPT, Answer(Detokenizer(text_model().tokenizer)), TextShaper("content"))
    other = Prompt([7, 8], "prompt")
    for choices, cached in (
        ([_answered(PROMPT, 2), _answered(PROMPT, 0)], 0),
        ([_answered(PROMPT, 2), _answered(PROMPT, 2)], 2),
        ([silent, _answered(PROMPT, 2)], 2),
        ([silent], 0),
        ([_answered(PROMPT, 2), _answered(other, 1)], 3),
    ):
        assert usage(choices)["prompt_tokens_details"]["cached_tokens"] == cached


def test_deltas_add_up_to_a_message():
    call = {"index": 0, "id": "c1", "type": "function", "function": {"name": "f", "arguments": ""}}
    pieces = [
        {"reasoning_content": "hm"},
        {"reasoning_content": "m"},
        {"tool_calls": [call]},
        {"tool_calls": [{"index": 0, "function": {"arguments": '{"a":'}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": " 1}"}}]},
    ]
    assert message(pieces) == {
        "role": "assistant",
        "content": None,
        "reasoning_content": "hmm",
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}],
    }
    assert message([]) == {"role": "assistant", "content": ""}


def test_logprobs_of_deltas_join():
    assert joined([]) is None
    assert joined([{"content": [1], "refusal": None}, {"content": [2], "refusal": None}]) == {
        "content": [1, 2],
        "refusal": None,
    }


def test_what_is_sent_for_every_token_is_the_chunk():
    for reply, delta in (
        (ChatReply("m", has_usage=True), Delta({"content": 'a"é'}, {"content": [], "refusal": None})),
        (CompletionReply('m"x'), Delta({"text": "b\n"})),
    ):
        assert json.loads(reply.delta_event(2, delta).removeprefix(b"data: ")) == reply.delta(2, delta)
        assert reply.delta_event(2, delta) == event(reply.delta(2, delta))
