"""What `make up` leaves behind: an answering model, through the chart and the example manifest."""

import json

from e2e.support import clients
from e2e.support.kube import OPERATOR_NAMESPACE, Kubectl, Object, helm, wait_for


def test_the_chart_is_what_runs() -> None:
    releases = json.loads(helm("list", "-n", OPERATOR_NAMESPACE, "-o", "json"))
    assert [(each["name"], each["status"]) for each in releases] == [("firsttoken", "deployed")]


def test_the_model_answers_through_the_service(chat: Object) -> None:
    answer = clients.client().chat.completions.create(
        model=clients.MODEL,
        messages=[{"role": "user", "content": "What is the capital of France?"}],
        max_tokens=48,
        temperature=0,
    )
    text = answer.choices[0].message.content
    assert text is not None
    assert "Paris" in text


def test_get_shows_the_columns(chat: Object, kubectl: Kubectl) -> None:
    # The operator reads the replicas every 5 s, so the last answers show a little later.
    wait_for(
        "a measured P95",
        lambda: kubectl.get("infsvc", "chat")["status"].get("slo", {}).get("ttftP95"),
        timeout_s=20,
    )
    header, row = kubectl.run("get", "infsvc", "chat").splitlines()
    assert header.split() == ["NAME", "READY", "REPLICAS", "TTFT-P95", "SLO", "FLAGS", "AGE"]
    cells = row.split()
    assert cells[:2] == ["chat", "True"]
    assert cells[2] == "1"
    assert cells[4] == chat["spec"]["slo"]["ttftP95"]
    assert cells[3].endswith("ms"), "requests of the last minutes must show as a P95"
