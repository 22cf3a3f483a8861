"""The message of a chat: thoughts, text and calls of tools, whole and as clients stream them."""

import json
from collections.abc import AsyncIterator

import openai
import pytest
import pytest_asyncio

from firsttoken_api.errors import BadRequestError
from firsttoken_runtime.server.chat_template import ChatTemplate
from firsttoken_runtime.server.message import shaper, tool_format
from firsttoken_runtime.server.openai_models import ChatRequest, UnknownNames, parse
from firsttoken_runtime.server.replies import message
from runtime import byte_text, fake_engine
from runtime.serving import Served, serving

CHAT = "/v1/chat/completions"
HERMES = byte_text.TEMPLATE + "{% if tools %}{# <tool_call> #}{% endif %}"
THINKING = HERMES + "{# <think> #}"
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}} for name in ("f", "g")
]
CALLS = (
    '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'
    '<tool_call>\n{"name": "g", "arguments": {}}\n</tool_call>'
)

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served() -> AsyncIterator[Served]:
    script = fake_engine.Script(max_model_len=1000, kv_blocks=100)
    async with serving(script, text_model=byte_text.text_model(THINKING)) as running:
        yield running


def _body(text: str, **parameters: object) -> dict:
    """The fake engine answers with what it is asked."""
    return {"messages": [{"role": "user", "content": text}], **parameters}


async def _both(served: Served, body: dict) -> tuple[dict, dict]:
    """The choice of a whole answer, which a stream adds up to."""
    status, answer = await served.post(CHAT, body)
    assert status == 200, answer
    (choice,) = answer["choices"]
    events = await served.events(CHAT, body)
    chunks = [json.loads(event)["choices"][0] for event in events[:-1]]
    added = message([chunk["delta"] for chunk in chunks[1:]])
    for one in (added, choice["message"]):
        for call in one.get("tool_calls", ()):
            assert call.pop("id")
    assert added == choice["message"]
    assert chunks[-1]["finish_reason"] == choice["finish_reason"]
    return choice, answer


async def test_calls_of_tools(served: Served):
    choice, _ = await _both(served, _body(CALLS, tools=TOOLS))
    assert choice["finish_reason"] == "tool_calls"
    calls = choice["message"]["tool_calls"]
    assert [(call["function"]["name"], json.loads(call["function"]["arguments"])) for call in calls] == [
        ("f", {"a": 1}),
        ("g", {}),
    ]
    choice, _ = await _both(served, _body(CALLS, tools=TOOLS, parallel_tool_calls=False))
    assert [call["function"]["name"] for call in choice["message"]["tool_calls"]] == ["f"]


@pytest.mark.parametrize("parameters", [{}, {"tools": TOOLS, "tool_choice": "none"}])
async def test_without_tools_a_call_is_text(served: Served, parameters):
    choice, _ = await _both(served, _body(CALLS, **parameters))
    assert choice["message"] == {"role": "assistant", "content": CALLS}
    assert choice["finish_reason"] == "stop"


async def test_a_call_that_is_cut_has_not_ended_by_itself(served: Served):
    choice, _ = await _both(served, _body(CALLS, tools=TOOLS, max_tokens=50))
    assert choice["finish_reason"] == "length"
    assert choice["message"]["tool_calls"][0]["function"]["name"] == "f"


async def test_thoughts_come_before_content_and_calls(served: Served):
    choice, answer = await _both(served, _body(f"<think>hm</think>so {CALLS}", tools=TOOLS, logprobs=True))
    assert choice["message"]["reasoning_content"] == "hm"
    assert choice["message"]["content"] == "so "
    assert len(choice["message"]["tool_calls"]) == 2
    assert len(choice["logprobs"]["content"]) == answer["usage"]["completion_tokens"]


async def test_the_clients_own_accumulator_understands_the_stream(served: Served):
    async with (
        openai.AsyncOpenAI(base_url=f"{served.url}/v1", api_key="none", max_retries=0) as client,
        client.chat.completions.stream(model="fake", **_body(CALLS, tools=TOOLS)) as stream,
    ):
        final = await stream.get_final_completion()
    calls = final.choices[0].message.tool_calls
    assert [(call.function.name, call.function.arguments) for call in calls] == [
        ("f", '{"a": 1}'),
        ("g", "{}"),
    ]
    assert len({call.id for call in calls}) == 2
    assert final.choices[0].finish_reason == "tool_calls"


async def test_an_answer_that_is_sent_back_goes_through_the_template(served: Served):
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    messages = [
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": None, "tool_calls": [call], "reasoning_content": "hm"},
        {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "5"}]},
    ]
    status, body = await served.post(CHAT, {"messages": messages, "tools": TOOLS})
    assert (status, body["choices"][0]["message"]["content"]) == (200, "x5")
    request = parse(ChatRequest, json.dumps({"messages": messages}).encode(), UnknownNames())
    assert [one.for_template() for one in request.messages][1:] == [
        {
            "role": "assistant",
            "content": "",
            "reasoning_content": "hm",
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "f", "arguments": {"a": 1}}}
            ],
        },
        {"role": "tool", "content": "5", "tool_call_id": "c1"},
    ]


async def test_a_plain_model_costs_no_parser():
    request = parse(ChatRequest, json.dumps(_body("x")).encode(), UnknownNames())
    plain = shaper(request, byte_text.text_model(), None, starts_inside_reasoning=False)
    assert plain.feed("<think>") == [{"content": "<think>"}]
    assert plain.flush() == []
    assert not plain.has_called_tools


async def test_how_a_model_calls_tools():
    request = parse(ChatRequest, json.dumps(_body("x", tools=TOOLS)).encode(), UnknownNames())

    def found(template: str, asked: ChatRequest = request):
        return tool_format(asked, byte_text.text_model(template), ChatTemplate(template, {}))

    assert found(HERMES).special_ids == {}
    with pytest.raises(BadRequestError, match="does not mention tools") as caught:
        found(byte_text.TEMPLATE + "{# <tool_call> of earlier turns #}")
    assert caught.value.param == "tools"
    without = parse(ChatRequest, json.dumps(_body("x")).encode(), UnknownNames())
    assert found(byte_text.TEMPLATE, without) is None


async def test_what_a_grammar_makes_is_no_reasoning_even_where_the_template_opens_it():
    request = parse(ChatRequest, json.dumps(_body("x")).encode(), UnknownNames())
    model = byte_text.text_model(THINKING)
    bound = shaper(request, model, None, starts_inside_reasoning=True, is_whole_grammar=True)
    assert bound.feed('{"a": 1}') + bound.flush() == [{"content": '{"a": 1}'}]
    free = shaper(request, model, None, starts_inside_reasoning=True)
    assert free.feed("hm") == [{"reasoning_content": "hm"}]


async def test_formats_and_forced_tools_become_grammars(served: Served):
    """The fake engine follows no grammar, it shows what was asked of it by failing."""
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    for parameters in (
        {"response_format": {"type": "json_object"}},
        {"response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": schema}}},
        {"tools": TOOLS, "tool_choice": "required"},
        {"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "g"}}},
    ):
        status, body = await served.post(CHAT, _body("<|constrained|>", **parameters))
        assert (status, body["error"]["code"]) == (500, "sequence_failed"), parameters
        assert body["error"]["message"].startswith("a grammar: %llguidance")
    assert (await served.post(CHAT, _body("<|constrained|>", tools=TOOLS)))[0] == 200


@pytest.mark.parametrize(
    ("parameters", "param"),
    [
        (
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "s", "schema": {"type": "nonsense"}},
                }
            },
            "response_format.json_schema.schema",
        ),
        (
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "s", "schema": {"type": "string", "pattern": "(("}},
                }
            },
            "response_format.json_schema.schema",
        ),
        ({"response_format": {"type": "json_object"}, "ignore_eos": True}, "ignore_eos"),
    ],
)
async def test_a_grammar_that_cannot_be_is_refused_and_the_engine_lives(served: Served, parameters, param):
    status, body = await served.post(CHAT, _body("x", **parameters))
    assert (status, body["error"]["param"]) == (400, param)
    assert (await served.post(CHAT, _body("x")))[0] == 200
