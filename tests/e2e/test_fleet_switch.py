"""The chart's `forceFlagsOff` takes a flag away from running pods of every service, and gives it back."""

from e2e.support import services
from e2e.support.kube import OPERATOR_NAMESPACE, Kubectl, Object, helm, wait_for

FLAG = "chunked-prefill"


def _upgrade(forced_off: str) -> None:
    release = ["firsttoken", "charts/firsttoken", "-n", OPERATOR_NAMESPACE]
    helm("upgrade", *release, "--reuse-values", "--wait", "--set-json", f"forceFlagsOff={forced_off}")


def _row(kubectl: Kubectl) -> Object:
    rows: list[Object] = kubectl.get("infsvc", "chat")["status"].get("optimizations", [])
    return next((row for row in rows if row["name"] == FLAG), {})


def _is_enabled(pod: Object) -> bool:
    return FLAG in services.pod_state(pod)["engine"]["flags"]["enabled"]


def test_a_flag_is_off_everywhere_and_back_without_a_restart(chat: Object, kubectl: Kubectl) -> None:
    (pod,) = services.serving_pods(kubectl, "chat")
    assert _is_enabled(pod)
    try:
        _upgrade(f'["{FLAG}"]')
        wait_for("the engine without the flag", lambda: not _is_enabled(pod), timeout_s=60)
        row = wait_for("its reason", lambda: _row(kubectl) if not _row(kubectl)["effective"] else None, 20)
        assert row["reason"] == "ForcedOffByFleet"
    finally:
        _upgrade("[]")
    wait_for("the engine with the flag", lambda: _is_enabled(pod), timeout_s=60)
    (same,) = services.serving_pods(kubectl, "chat")
    assert same["metadata"]["uid"] == pod["metadata"]["uid"]
    assert all(each["restartCount"] == 0 for each in same["status"]["containerStatuses"])
