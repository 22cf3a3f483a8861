"""Request classes and routes reach a running engine through the sidecar, and change without a restart."""

import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import openai
import pytest

from e2e.support import clients, services
from e2e.support.kube import Kubectl, Object, wait_for
from firsttoken_api import metrics, names

NAME = "shared"
CLASSES: list[Object] = [
    {"name": "interactive", "ttftP99": "10m", "priority": 10},
    {"name": "batch", "ttftP99": "10m", "maxTokens": 12},
]
ROUTES: list[Object] = [{"name": "intent", "class": "interactive", "maxTokens": 5}]
BURST = 10
"""Requests at once: many more than run at once, so that some must wait."""


@pytest.fixture(scope="module")
def shared(sandbox: Kubectl) -> Iterator[Object]:
    """A service with two classes, a route, and length-control."""
    manifest = services.service(
        NAME,
        runtime={"device": "cpu", "maxNumSeqs": 2},
        slo={"ttftP95": "5s", "tpotP95": "1s", "defaultClass": "batch", "classes": CLASSES},
        routes=ROUTES,
        optimizations=[{"name": "length-control", "mode": "Forced"}],
    )
    sandbox.apply(manifest)
    yield services.wait_ready(sandbox, NAME)
    sandbox.run("delete", "infsvc", NAME, "--wait=true", timeout_s=180)


def _pod(sandbox: Kubectl) -> Object:
    (pod,) = services.serving_pods(sandbox, NAME)
    return pod


def _client(pod: Object) -> openai.OpenAI:
    """To the pod's sidecar, the only way in."""
    return clients.client(f"http://{pod['status']['podIP']}:{names.HTTP_PORT}/v1", timeout_s=120)


def _ask(
    llm: openai.OpenAI, headers: dict[str, str], max_tokens: int | None = None, model: str = NAME
) -> int:
    """Tokens of the answer to a prompt that goes on for ever."""
    answer = llm.completions.create(
        model=model,
        prompt="One, two, three,",
        max_tokens=max_tokens if max_tokens is not None else openai.omit,
        temperature=0,
        extra_headers=headers,
        extra_body={"ignore_eos": True},
    )
    assert answer.usage is not None
    return answer.usage.completion_tokens


def _waiting(pod: Object) -> dict[str, float]:
    """Waiting sequences by class, from the metrics that the sidecar exports for its engine."""
    return services.pod_metric(pod, metrics.ENGINE_WAITING, "class")


@contextmanager
def _burst(llm: openai.OpenAI, headers: dict[str, str], max_tokens: int) -> Iterator[list[Future[int]]]:
    """More requests at once than run at once; all must be answered."""
    with ThreadPoolExecutor(BURST) as threads:
        asked = [threads.submit(_ask, llm, headers, max_tokens) for _ in range(BURST)]
        yield asked
        assert [each.result() for each in asked] == [max_tokens] * BURST


def test_a_request_names_its_class_and_is_told_which_there_are(sandbox: Kubectl, shared: Object) -> None:
    llm = _client(_pod(sandbox))
    assert _ask(llm, {names.HEADER_CLASS: "interactive"}, max_tokens=2) == 2
    with pytest.raises(openai.BadRequestError) as refused:
        _ask(llm, {names.HEADER_CLASS: "urgent"}, max_tokens=2)
    assert all(each["name"] in str(refused.value) for each in CLASSES)
    with pytest.raises(openai.BadRequestError, match="intent"):
        _ask(llm, {names.HEADER_ROUTE: "summary"}, max_tokens=2)


def test_length_control_gives_requests_the_limit_of_their_route_or_class(
    sandbox: Kubectl, shared: Object
) -> None:
    pod = _pod(sandbox)
    assert "length-control" in services.pod_state(pod)["engine"]["flags"]["enabled"]
    llm = _client(pod)
    assert _ask(llm, {names.HEADER_ROUTE: "intent"}) == 5
    assert _ask(llm, {}, model=f"{NAME}:intent") == 5
    assert _ask(llm, {}) == 12, "the default class's"
    assert _ask(llm, {names.HEADER_ROUTE: "intent"}, max_tokens=7) == 7, "what the client asks for wins"


def test_waiting_requests_are_counted_by_class_and_the_urgent_go_first(
    sandbox: Kubectl, shared: Object
) -> None:
    pod = _pod(sandbox)
    llm = _client(pod)
    with _burst(llm, {}, max_tokens=48) as batch:
        wait_for("batch requests that wait", lambda: _waiting(pod).get("batch"), 20, every_s=0.05)
        assert _ask(llm, {names.HEADER_CLASS: "interactive"}, max_tokens=2) == 2
        assert not all(each.done() for each in batch), "it would have waited for all of them"
    wait_for("nothing that waits", lambda: not any(_waiting(pod).values()), 10, every_s=0.1)


def test_the_default_class_changes_without_a_restart(sandbox: Kubectl, shared: Object) -> None:
    pod = _pod(sandbox)
    before = sandbox.get("infsvc", NAME)
    begin = time.monotonic()
    sandbox.patch("infsvc", NAME, {"spec": {"slo": {"defaultClass": "interactive"}}})
    after = services.wait_applied(sandbox, NAME, newer_than=before)
    print(f"patch -> reported as applied: {time.monotonic() - begin:.2f} s")
    with _burst(_client(pod), {}, max_tokens=16):
        wait_for("interactive requests that wait", lambda: _waiting(pod).get("interactive"), 20, every_s=0.05)
    services.assert_same_pod(pod, _pod(sandbox))
    assert after["status"]["revisions"]["stable"] == before["status"]["revisions"]["stable"]


def test_a_default_class_that_is_none_is_refused_with_those_there_are(
    sandbox: Kubectl, shared: Object
) -> None:
    manifest = services.service(NAME, slo={"ttftP95": "5s", "defaultClass": "urgent", "classes": CLASSES})
    said = sandbox.refused(manifest)
    assert "spec.slo.defaultClass must be the name of one of spec.slo.classes: interactive, batch" in said
