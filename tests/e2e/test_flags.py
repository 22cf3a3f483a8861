"""A flag patched in the spec reaches the engine of a running pod, hot."""

import time

from e2e.support import clients, services
from e2e.support.kube import Kubectl, Object, condition, wait_for

FLAG = "chunked-prefill"


def _enabled(pod: Object) -> list[str]:
    enabled: list[str] = services.pod_state(pod)["engine"]["flags"]["enabled"]
    return enabled


def _switch(kubectl: Kubectl, pod: Object, mode: str, is_on: bool) -> float:
    """Seconds from the patch until the engine reports the flag as asked."""
    begin = time.monotonic()
    kubectl.patch("infsvc", "chat", {"spec": {"optimizations": [{"name": FLAG, "mode": mode}]}})
    wait_for(f"{FLAG} {mode}", lambda: (FLAG in _enabled(pod)) == is_on, timeout_s=30, every_s=0.02)
    return time.monotonic() - begin


def test_a_patched_flag_is_in_force_within_two_seconds(chat: Object, kubectl: Kubectl) -> None:
    (pod,) = services.serving_pods(kubectl, "chat")
    assert FLAG in _enabled(pod)
    took_s = [
        _switch(kubectl, pod, mode, is_on)
        for mode, is_on in [("Disabled", False), ("Forced", True), ("Disabled", False), ("Forced", True)]
    ]
    print(f"patch -> in force: {', '.join(f'{s:.2f} s' for s in took_s)}")
    assert max(took_s) < 2.0

    def applied() -> Object | None:
        found = kubectl.get("infsvc", "chat")
        generation = found["status"]["flagGeneration"]
        is_true = condition(found, "FlagsApplied").get("status") == "True"
        return found if is_true and generation["applied"] == generation["desired"] else None

    status = wait_for("FlagsApplied", applied, timeout_s=20)["status"]
    row = next(each for each in status["optimizations"] if each["name"] == FLAG)
    assert row["effective"] is True
    (same,) = services.serving_pods(kubectl, "chat")
    assert same["metadata"]["uid"] == pod["metadata"]["uid"]
    assert all(c["restartCount"] == 0 for c in same["status"]["containerStatuses"])
    kubectl.patch("infsvc", "chat", {"spec": {"optimizations": None}})


def test_a_gated_flag_is_off_until_judged_and_the_service_serves(chat: Object, kubectl: Kubectl) -> None:
    kubectl.patch("infsvc", "chat", {"spec": {"optimizations": [{"name": FLAG, "mode": "Gated"}]}})

    def off() -> Object | None:
        rows = kubectl.get("infsvc", "chat")["status"].get("optimizations", [])
        row: Object = next((each for each in rows if each["name"] == FLAG), {})
        return row if row.get("effective") is False else None

    assert wait_for("the flag to be off", off, timeout_s=10)["reason"] == "NotJudged"
    answer = clients.client().completions.create(model=clients.MODEL, prompt="One, two,", max_tokens=2)
    assert answer.choices[0].text
    kubectl.patch("infsvc", "chat", {"spec": {"optimizations": None}})


def test_layout_switch_keeps_a_running_stream(chat: Object, kubectl: Kubectl) -> None:
    """paged-kv re-partitions the pool: the running stream is recomputed and goes on to the same text."""
    llm = clients.client()

    def chunks() -> list[str]:
        stream = llm.completions.create(
            model=clients.MODEL, prompt="Once upon a time", max_tokens=160, temperature=0, stream=True,
            extra_body={"ignore_eos": True},
        )  # fmt: skip
        seen: list[str] = []
        for number, chunk in enumerate(stream):
            if number == 10:
                kubectl.patch(
                    "infsvc", "chat", {"spec": {"optimizations": [{"name": "paged-kv", "mode": "Disabled"}]}}
                )
            if chunk.choices:
                seen.append(chunk.choices[0].finish_reason or "")
        return seen

    reasons = chunks()
    (pod,) = services.serving_pods(kubectl, "chat")
    wait_for("paged-kv off", lambda: "paged-kv" not in _enabled(pod), timeout_s=10)
    assert [each for each in reasons if each] == ["length"]
    kubectl.patch("infsvc", "chat", {"spec": {"optimizations": None}})
    wait_for("paged-kv on again", lambda: "paged-kv" in _enabled(pod), timeout_s=10)
