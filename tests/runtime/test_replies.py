"""The shapes of OpenAI's answers, checked by the client library's own types."""

from openai.types import Completion
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from firsttoken_runtime import core
from firsttoken_runtime.server.answer import Answer
from firsttoken_runtime.server.detokenizer import Detokenizer
from firsttoken_runtime.server.replies import ChatReply, CompletionReply
from runtime.byte_text import text_model


def _answer() -> Answer:
    answer = Answer(Detokenizer(text_model().tokenizer))
    answer.take([core.Token(sequence_id=1, token_id=64, finish_reason="length", cached_tokens=2)])
    return answer


def test_whole_answers_are_valid():
    chat = ChatCompletion.model_validate(ChatReply("m").whole("text", 3, _answer()), strict=True)
    assert (chat.choices[0].message.content, chat.choices[0].finish_reason) == ("text", "length")
    assert (chat.usage.total_tokens, chat.usage.prompt_tokens_details.cached_tokens) == (4, 2)
    completion = Completion.model_validate(CompletionReply("m").whole("text", 3, _answer()), strict=True)
    assert completion.choices[0].text == "text"


def test_chunks_are_valid_and_share_their_head():
    reply = ChatReply("m")
    bodies = [*reply.opening(), reply.text("x"), reply.finish(_answer()), reply.usage(3, _answer())]
    chunks = [ChatCompletionChunk.model_validate(body, strict=True) for body in bodies]
    assert len({(chunk.id, chunk.created) for chunk in chunks}) == 1
    assert [len(chunk.choices) for chunk in chunks] == [1, 1, 1, 0]
    assert bodies[1]["choices"][0]["finish_reason"] is None
    assert "content" not in bodies[2]["choices"][0]["delta"]
    completion = CompletionReply("m")
    assert completion.opening() == []
    assert completion.text("x")["choices"][0]["finish_reason"] is None
    assert ChatReply("m").text("x")["id"] != reply.text("x")["id"]
