"""From a checked request to sampling parameters: what depends on the model and on the prompt."""

import json

import pytest

from firsttoken_api.errors import BadRequestError
from firsttoken_runtime.server import sampling
from firsttoken_runtime.server.openai_models import CompletionRequest, UnknownNames, parse
from firsttoken_runtime.server.prompt import Prompt
from firsttoken_runtime.server.tokenizer import SamplingDefaults

DEFAULTS = SamplingDefaults(temperature=0.6, top_p=0.95, top_k=20, repetition_penalty=1.1)


def _parameters(prompt_tokens: int = 10, default_max_tokens: int | None = None, **body: object):
    request = parse(CompletionRequest, json.dumps({"prompt": "x", **body}).encode(), UnknownNames())
    return sampling.parameters(
        request,
        DEFAULTS,
        prompt_tokens=prompt_tokens,
        vocabulary_size=1000,
        capacity=100,
        default_max_tokens=default_max_tokens,
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
        ({"logit_bias": {"3": 1, "1000": 1}}, "logit_bias", None),
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
        sampling.check_prompt(Prompt(ids, "prompt"), 1000, 100)
    assert (caught.value.param, caught.value.detail_code) == ("prompt", code)
    sampling.check_prompt(Prompt([999] * 99, "prompt"), 1000, 100)


def test_a_prompt_that_is_only_scored_may_fill_the_context():
    sampling.check_prompt(Prompt([1] * 100, "prompt"), 1000, 100, least_answer=0)
    with pytest.raises(BadRequestError):
        sampling.check_prompt(Prompt([1] * 101, "prompt"), 1000, 100, least_answer=0)


def test_penalties_biases_and_logprobs_are_passed_on():
    params = _parameters(
        presence_penalty=-2,
        frequency_penalty=0.5,
        logit_bias={"999": -100, "0": 7.5},
        logprobs=3,
        echo=True,
    )
    assert (params.presence_penalty, params.frequency_penalty) == (-2.0, 0.5)
    assert params.logit_bias == {999: -100.0, 0: 7.5}
    assert (params.logprobs, params.prompt_logprobs) == (3, 3)
    assert params.repetition_penalty == 1.1
    assert _parameters(repetition_penalty=1).repetition_penalty == 1.0
    assert _parameters(prompt_logprobs=2).prompt_logprobs == 2
    assert _parameters().prompt_logprobs is None
    scored = _parameters(echo=True, max_tokens=0)
    assert (scored.max_tokens, scored.logprobs, scored.prompt_logprobs) == (0, None, 0)


def test_a_class_has_a_default_length_that_a_request_may_overrule():
    assert _parameters(default_max_tokens=7).max_tokens == 7
    assert _parameters(default_max_tokens=700).max_tokens == 90
    assert _parameters(default_max_tokens=7, max_tokens=9).max_tokens == 9
