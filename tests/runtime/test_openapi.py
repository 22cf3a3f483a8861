"""The OpenAPI document against a running server: what it allows and forbids, and what comes back."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import hypothesis
import pytest
import requests
import schemathesis
from schemathesis.checks import not_a_server_error
from schemathesis.pytest import lazy
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from firsttoken_runtime.server import api, openapi
from runtime.fake_engine import Script
from runtime.serving import serving

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]


@contextmanager
def _server() -> Iterator[str]:
    """A server with an event loop in a thread of its own: schemathesis calls and waits."""
    url = ""
    is_up, loop = threading.Event(), asyncio.new_event_loop()
    over = asyncio.Event()

    async def serve() -> None:
        nonlocal url
        async with serving(Script(max_model_len=64)) as served:
            url = served.url
            is_up.set()
            await over.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    try:
        assert is_up.wait(20), "the server has not started"
        yield url
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join()
        loop.close()


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with _server() as where:
        yield where


@pytest.fixture(scope="module")
def session() -> Iterator[requests.Session]:
    """Its connections are kept: opening one for each of the thousands of requests is most of the time."""
    with requests.Session() as kept:
        kept.trust_env = False
        yield kept


def test_the_document_has_every_endpoint():
    assert api.POSTS.keys() == openapi.POSTS.keys()
    document = openapi.document()
    for path in (*openapi.POSTS, *openapi.GETS):
        assert path in document["paths"]
    prompt = document["components"]["schemas"]["CompletionRequest"]["properties"]["prompt"]
    assert len(prompt["anyOf"]) == 4


SETTINGS = hypothesis.settings(
    max_examples=3,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(hypothesis.HealthCheck),
    phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate],
)


@pytest.mark.parametrize("path", [*openapi.POSTS, *openapi.GETS])
def test_no_request_is_a_server_error_and_answers_are_as_documented(path, url, session):
    """The cases are made here: `parametrize` of the schema makes all of them whenever tests are collected,
    which takes each worker some seconds."""

    def check(case):
        case.call_and_validate(base_url=url, session=session, checks=CHECKS)

    schema = schemathesis.openapi.from_dict(openapi.document()).include(path=path)
    made = list(lazy.get_all_tests(schema=schema, test_func=check, settings=SETTINGS, given_kwargs=None))
    assert made
    for one in made:
        _, test = one.ok()
        test()
