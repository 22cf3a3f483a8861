"""The official client streams from outside and from inside the cluster without a special case."""

import json
import urllib.error
import urllib.request

import openai
import pytest

from e2e.support import clients
from e2e.support.kube import Kubectl, Object, wait_for

QUESTION = "What is the capital of France?"

SCRIPT = f"""
import openai
llm = openai.OpenAI(base_url="http://chat.default.svc.cluster.local/v1", api_key="unused", max_retries=0)
chunks = list(llm.chat.completions.create(
    model="chat", messages=[{{"role": "user", "content": "{QUESTION}"}}],
    max_tokens=48, temperature=0, stream=True))
print("".join(chunk.choices[0].delta.content or "" for chunk in chunks))
print(len(chunks), chunks[-1].choices[0].finish_reason)
"""


def test_streams_from_outside(chat: Object) -> None:
    stream = clients.client().chat.completions.create(
        model=clients.MODEL,
        messages=[{"role": "user", "content": QUESTION}],
        max_tokens=48,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert "Paris" in text
    assert chunks[-1].choices == []
    usage = chunks[-1].usage
    assert usage is not None
    assert usage.completion_tokens <= 48
    assert [c.choices[0].finish_reason for c in chunks if c.choices and c.choices[0].finish_reason] == [
        "stop"
    ]


def test_streams_from_inside(chat: Object, kubectl: Kubectl) -> None:
    """A pod of the operator's image, with this environment's client package mounted from the node."""
    pod = "openai-client"
    operator = kubectl.run(
        "get", "deploy", "firsttoken-operator", "-n", "firsttoken-system",
        "-o", "jsonpath={.spec.template.spec.containers[0].image}",
    )  # fmt: skip
    kubectl.run("delete", "pod", pod, "--ignore-not-found")
    kubectl.apply(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": pod},
            "spec": {
                "restartPolicy": "Never",
                "automountServiceAccountToken": False,
                "containers": [
                    {
                        "name": "client",
                        "image": operator,
                        "imagePullPolicy": "Never",
                        "command": ["python3", "-c", SCRIPT],
                        "env": [{"name": "PYTHONPATH", "value": "/client"}],
                        "volumeMounts": [{"name": "client", "mountPath": "/client", "readOnly": True}],
                    }
                ],
                "volumes": [{"name": "client", "hostPath": {"path": _client_packages()}}],
            },
        }
    )

    def finished() -> str | None:
        phase = kubectl.get("pod", pod)["status"]["phase"]
        return phase if phase in {"Succeeded", "Failed"} else None

    phase = wait_for("the client pod to end", finished, timeout_s=90)
    log = kubectl.run("logs", pod)
    kubectl.run("delete", "pod", pod, "--wait=false")
    assert phase == "Succeeded", log
    text, ending = log.rstrip().rsplit("\n", 1)
    assert "Paris" in text
    assert int(ending.split()[0]) > 3, "one chunk is not a stream"


def _client_packages() -> str:
    # The folder that holds the package, wherever the environment keeps it.
    assert openai.__file__ is not None
    return openai.__file__.removesuffix("/openai/__init__.py")


def test_bad_requests_are_400_and_the_engine_lives(chat: Object) -> None:
    """Each case is refused in OpenAI's error form with its parameter named; then a good request answers."""
    good = {"model": "chat", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2}
    cases: list[tuple[bytes, str | None]] = [
        (b"{", None),
        (b"[]", None),
        (json.dumps({**good, "messages": []}).encode(), "messages"),
        (json.dumps({**good, "max_tokens": -1}).encode(), "max_tokens"),
        (json.dumps({**good, "temperature": 99}).encode(), "temperature"),
        (json.dumps({**good, "top_p": 0}).encode(), "top_p"),
        (json.dumps({**good, "messages": [{"role": "user", "content": "x " * 20_000}]}).encode(), "messages"),
        (json.dumps(good).replace("2}", "NaN}").encode(), None),
    ]
    for body, parameter in cases:
        request = urllib.request.Request(
            f"{clients.BASE_URL}/chat/completions", body, {"Content-Type": "application/json"}
        )
        with pytest.raises(urllib.error.HTTPError) as refusal:
            urllib.request.urlopen(request, timeout=30)
        assert refusal.value.code == 400, body[:80]
        error = json.load(refusal.value)["error"]
        assert error["message"]
        assert error["type"] == "invalid_request_error"
        if parameter:
            assert error["param"] == parameter, error
    answer = clients.client().completions.create(model=clients.MODEL, prompt="One, two,", max_tokens=2)
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 2
