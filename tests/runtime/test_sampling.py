"""From a checked request to sampling parameters: what depends on the model and on the prompt."""

import json

import pytest

from firsttoken_api.errors import BadRequestError
from firsttoken_runtime.server import sampling
from firsttoken_runtime.server.openai_models import CompletionRequest, UnknownNames, parse
from firsttoken_runtime.server.tokenizer import SamplingDefaults

DEFAULTS = SamplingDefaults(temperature=0.6, top_p=0.95, top_k=20)


def _parameters(prompt_tokens: int = 10, **body: object):
    request = parse(CompletionRequest, json.dumps({"prompt": "x", **body}).encode(), UnknownNames())
    return sampling.parameters(
        request, DEFAULTS, prompt_tokens=prompt_tokens, vocabulary_size=1000, capacity=100
    )


def test_the_models_own_defaults_and_the_requests_values():
    params = _parameters()
    assert (params.temperature, params.top_p, params.top_k, params.max_tokens) == (0.6, 0.95, 20, 16)
    params = _parameters(temperature=0, top_p=1, top_k=-1, seed=-1, max_tokens=None)
    assert (params.temperature, params.top_p, params.top_k, params.max_tokens) == (0.0, 1.0, 0, 90)
    assert params.seed == 2**63 - 1


def test_tiny_temperatures():
    assert _parameters(temperature=1e-6).temperature == 0.0
    assert _parameters(temperature=1e-3).temperature == 0.01


def test_without_a_seed_each_request_has_its_own():
    assert _parameters().seed != _parameters().seed


@pytest.mark.parametrize(
    ("body", "param", "code"),
    [
        ({"max_tokens": 91}, "max_tokens", "context_length_exceeded"),
        ({"max_tokens": None, "min_tokens": 91}, "min_tokens", None),
        ({"top_k": 1001}, "top_k", None),
        ({"stop_token_ids": [3, 1000]}, "stop_token_ids", None),
    ],
)
def test_what_does_not_fit_is_named(body, param, code):
    with pytest.raises(BadRequestError) as caught:
        _parameters(**body)
    assert (caught.value.param, caught.value.detail_code) == (param, code)
    _parameters(**{name: 90 if name in ("max_tokens", "min_tokens") else None for name in body})


@pytest.mark.parametrize(
    ("ids", "code"),
    [
        ([], None),
        ([1000], None),
        ([1] * 100, "context_length_exceeded"),
        ([1] * 5000, "context_length_exceeded"),
    ],
)
def test_prompts_that_cannot_be_served(ids, code):
    with pytest.raises(BadRequestError) as caught:
        sampling.check_prompt(ids, 1000, 100, "prompt")
    assert (caught.value.param, caught.value.detail_code) == ("prompt", code)
    sampling.check_prompt([999] * 99, 1000, 100, "prompt")
