"""Scaling in Fixed mode, and the promise that a scale-down costs no client anything."""

import asyncio
import json

from e2e.support import clients, services
from e2e.support.kube import Kubectl, Object, wait_for

STREAM_S = 60
REQUESTS_PER_SECOND = 5.0


async def test_scale_down_with_streams_and_load_has_no_error(chat: Object, kubectl: Kubectl) -> None:
    """Two replicas, a stream of at least 60 s on each, 5 short requests a second where the machine carries
    them; then 2 -> 1."""
    kubectl.run("scale", "infsvc", "chat", "--replicas=2")
    await asyncio.to_thread(services.wait_ready, kubectl, "chat", 2)
    pods = services.serving_pods(kubectl, "chat")

    # As much as this machine carries beside the streams: a load that it does not carry only makes a queue.
    per_second = min(REQUESTS_PER_SECOND, 0.6 / await clients.short_request_s())
    tried = asyncio.Event()
    load = asyncio.create_task(clients.short_requests(per_second, tried))
    token_s = (await clients.long_stream(max_tokens=30)).seconds / 30
    tried.set()
    assert (await load).errors == []
    max_tokens = int(STREAM_S / token_s * 1.2)
    streams: list[asyncio.Task[clients.Stream]] = []
    for _ in range(8):
        streams.append(asyncio.create_task(clients.long_stream(max_tokens)))
        await asyncio.sleep(1)
        states = [await asyncio.to_thread(services.pod_state, pod) for pod in pods]
        if all(state["in_flight"] for state in states):
            break
    else:
        raise AssertionError("no stream reached one of the replicas")

    finished = asyncio.Event()
    load = asyncio.create_task(clients.short_requests(per_second, finished))
    await asyncio.sleep(3)
    kubectl.run("scale", "infsvc", "chat", "--replicas=1")
    seen = await asyncio.gather(*streams)
    finished.set()
    outcome = await load
    await asyncio.to_thread(services.wait_ready, kubectl, "chat", 1)

    print(
        f"{len(seen)} streams of {', '.join(f'{each.seconds:.0f} s' for each in seen)}; "
        f"{outcome.finished} short requests at {per_second:.1f} a second, longest {outcome.longest_s:.2f} s, "
        f"{len(outcome.errors)} errors"
    )
    assert outcome.errors == []
    assert [each.error for each in seen] == [""] * len(seen)
    assert {each.finish_reason for each in seen} == {"length"}
    assert all(each.tokens == max_tokens for each in seen)
    assert max(each.seconds for each in seen) >= STREAM_S
    assert outcome.finished >= per_second * STREAM_S * 0.8


def test_kubectl_scale_is_what_the_status_reports(chat: Object, kubectl: Kubectl) -> None:
    scale = kubectl.get("infsvc", "chat")
    assert scale["spec"]["scaling"]["mode"] == "Fixed"
    # The scale subresource an HPA reads: an integer and a selector that finds exactly the replicas.
    raw = kubectl.run(
        "get", "--raw", "/apis/firsttoken.dev/v1alpha1/namespaces/default/inferenceservices/chat/scale"
    )

    status = json.loads(raw)["status"]
    assert status["replicas"] == 1
    pods = kubectl.list("pods", status["selector"])
    assert len([pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]) == 1


def test_slo_mode_keeps_min_and_says_that_nothing_scales_yet(sandbox: Kubectl) -> None:
    scaling = {"mode": "SLO", "min": 1, "max": 3}
    sandbox.apply(services.service("slo-mode", scaling=scaling))

    def limited() -> Object | None:
        conditions = sandbox.get("infsvc", "slo-mode").get("status", {}).get("conditions", [])
        return next((c for c in conditions if c["type"] == "ScalingLimited" and c["status"] == "True"), None)

    assert wait_for("ScalingLimited", limited, timeout_s=20)["reason"] == "ScalerNotBuilt"
    sandbox.run("delete", "infsvc", "slo-mode")
