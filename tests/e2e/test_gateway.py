"""Two replicas behind API keys: who may ask, which replica answers, and that no change of them is noticed."""

import asyncio
import json
import secrets
import time
from collections.abc import Iterator

import openai
import pytest

from e2e.support import clients, disturbance, services
from e2e.support.kube import Kubectl, Object, condition, wait_for
from firsttoken_api import metrics, names

NAME = "gateway"
SECRET = "gateway-keys"
NODE_PORT = 8090
KEYS = {
    name: f"e2e-{name}-{secrets.token_urlsafe(24)}" for name in ("phone", "tablet", "report", "slow", "going")
}
ENTRIES: dict[str, Object] = {
    "phone": {"tenant": "mobile"},
    "tablet": {"tenant": "mobile"},
    "report": {"tenant": "office", "maxClass": "batch"},
    "slow": {"requestsPerMinute": 2, "tokensPerMinute": 100_000},
    "going": {},
}
CLASSES: list[Object] = [
    {"name": "interactive", "ttftP99": "10m", "priority": 10},
    {"name": "batch", "ttftP99": "10m"},
]
PROMPT = "The secret ingredient of the e2e soup is marjoram. "
"""Told apart from everything else in a log."""
UNKNOWN = "e2e-nobody-" + "0" * 24
KUBELET_S = 150
"""A mounted Secret is refreshed at the kubelet's next look at the pod, and its cache may be a minute old."""
IDLE_LOOK_S = 6
"""Replicas look at each other every 4 s at least."""
TARGET = clients.Target(NAME, f"http://127.0.0.1:{NODE_PORT}/v1", KEYS["phone"])


def _secret(*without: str) -> Object:
    entries = [
        {"name": name, "key": KEYS[name], **more} for name, more in ENTRIES.items() if name not in without
    ]
    return _secret_of(json.dumps(entries))


def _secret_of(content: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": SECRET},
        "stringData": {names.KEYS_FILE: content},
    }


@pytest.fixture(scope="module")
def gateway(sandbox: Kubectl) -> Iterator[Object]:
    """Two replicas that ask for keys. Objectives are so wide that a busy machine has nothing refused."""
    sandbox.apply(
        _secret(),
        services.service(
            NAME,
            service={"type": "NodePort", "nodePort": NODE_PORT},
            slo={"ttftP95": "10m", "defaultClass": "interactive", "classes": CLASSES},
            routing={"auth": {"secretRef": {"name": SECRET}}},
            scaling={"mode": "Fixed", "replicas": 2},
            drain={"timeout": "180s", "deregisterDelay": "10s"},
            # The node has no room for a third one beside all others.
            rollout={"maxSurge": 0, "maxUnavailable": 1},
        ),
    )
    yield services.wait_ready(sandbox, NAME, replicas=2, timeout_s=300)
    sandbox.run("delete", "infsvc", NAME, "--wait=true", timeout_s=300)
    sandbox.run("delete", "secret", SECRET)


def _pods(sandbox: Kubectl) -> list[Object]:
    return services.serving_pods(sandbox, NAME)


def _ask(
    key: str,
    prompt: str = PROMPT,
    base_url: str = TARGET.base_url,
    headers: dict[str, str] | None = None,
) -> openai.types.CompletionUsage:
    """One request on a connection of its own, so that the Service chooses anew."""
    with clients.client(base_url, timeout_s=120, key=key) as llm:
        answer = llm.chat.completions.create(
            model=NAME,
            messages=[{"role": "user", "content": prompt}],
            max_tokens=2,
            extra_headers=headers or {},
        )
    assert answer.usage is not None
    return answer.usage


def _is_cached(usage: openai.types.CompletionUsage) -> bool:
    """Most of the prompt was; the head of every chat is after the first."""
    details = usage.prompt_tokens_details
    return ((details.cached_tokens if details else None) or 0) > usage.prompt_tokens / 2


def _opens(key: str, base_url: str) -> bool:
    try:
        _ask(key, base_url=base_url)
    except openai.AuthenticationError:
        return False
    return True


def _base_urls(sandbox: Kubectl) -> list[str]:
    return [f"http://{pod['status']['podIP']}:{names.HTTP_PORT}/v1" for pod in _pods(sandbox)]


def _make_kubelet_look(sandbox: Kubectl) -> None:
    """What the documentation tells to do for a change of the Secret to arrive at once."""
    selector = f"{names.LABEL_SERVICE}={NAME},{names.LABEL_ROLE}={names.ROLE_SERVING}"
    sandbox.run("annotate", "pod", "-l", selector, f"example.com/keys={time.time_ns()}", "--overwrite")


def _total(sandbox: Kubectl, metric: metrics.Metric, label: str, value: str) -> float:
    """Of all replicas."""
    return sum(services.pod_metric(pod, metric, label).get(value, 0.0) for pod in _pods(sandbox))


def _wait_auth_condition(sandbox: Kubectl, status: str) -> Object:
    def told() -> Object | None:
        found = condition(sandbox.get("infsvc", NAME), "AuthConfigInvalid")
        return found if found.get("status") == status else None

    return wait_for(f"AuthConfigInvalid={status}", told, timeout_s=KUBELET_S + 15)


def test_a_key_opens_and_anything_else_is_401(sandbox: Kubectl, gateway: Object) -> None:
    assert _ask(KEYS["phone"]).completion_tokens > 0
    for wrong in (UNKNOWN, KEYS["phone"][:-1], KEYS["phone"].upper()):
        with pytest.raises(openai.AuthenticationError) as refused:
            _ask(wrong)
        assert refused.value.code == "invalid_api_key"
    with clients.client(TARGET.base_url, key=UNKNOWN) as llm, pytest.raises(openai.AuthenticationError):
        llm.models.list()
    _wait_auth_condition(sandbox, "False")


def test_tenants_do_not_find_each_other_s_prompts_whatever_they_send(gateway: Object) -> None:
    first, second = (f"{secrets.token_hex(8)} " + "a prompt that a tenant has asked; " * 40 for _ in range(2))
    for prompt in (first, second):
        assert not _is_cached(_ask(KEYS["phone"], prompt))
        # The first may go to the other replica: they see each other some seconds after they are ready, and
        # a home that is busy sends on. Then the second finds the prompt wherever it goes.
        again = [_ask(KEYS["tablet"], prompt) for _ in range(2)]
        assert any(_is_cached(usage) for usage in again), "the same tenant"
    assert not _is_cached(_ask(KEYS["report"], first))
    forged = {names.HEADER_TENANT: "mobile", names.HEADER_HOP: "1;age_ms=0"}
    assert not _is_cached(_ask(KEYS["report"], second, headers=forged))


def test_a_key_is_no_more_urgent_than_it_may_be(sandbox: Kubectl, gateway: Object) -> None:
    before = _total(sandbox, metrics.SIDECAR_ARRIVALS, "class", "batch")
    _ask(KEYS["report"], headers={names.HEADER_CLASS: "interactive"})
    assert _total(sandbox, metrics.SIDECAR_ARRIVALS, "class", "batch") == before + 1


def test_a_key_has_one_limit_at_both_replicas(sandbox: Kubectl, gateway: Object) -> None:
    first, second = _base_urls(sandbox)
    time.sleep(IDLE_LOOK_S)  # so that both have seen each other
    for _ in range(2):
        _ask(KEYS["slow"], base_url=first)
    time.sleep(IDLE_LOOK_S)
    for base_url in (first, second):
        with pytest.raises(openai.RateLimitError) as refused:
            _ask(KEYS["slow"], base_url=base_url)
        assert refused.value.code == "rate_limit_exceeded"
        assert 1 <= int(refused.value.response.headers["Retry-After"]) <= 60


def test_a_revoked_key_ends_without_a_restart(sandbox: Kubectl, gateway: Object) -> None:
    pods = _pods(sandbox)
    base_urls = _base_urls(sandbox)
    assert all(_opens(KEYS["going"], base_url) for base_url in base_urls)

    begin = time.monotonic()
    sandbox.apply(_secret("going"))
    wait_for(
        "the key to be refused by every replica",
        lambda: not any(_opens(KEYS["going"], base_url) for base_url in base_urls),
        timeout_s=KUBELET_S,
    )
    print(f"revoked -> refused: {time.monotonic() - begin:.1f} s, the kubelet's own time")

    sandbox.apply(_secret())
    begin = time.monotonic()
    _make_kubelet_look(sandbox)
    wait_for(
        "the key to be accepted by every replica",
        lambda: all(_opens(KEYS["going"], base_url) for base_url in base_urls),
        timeout_s=KUBELET_S,
    )
    print(f"granted, pods annotated -> accepted: {time.monotonic() - begin:.1f} s")
    assert all(_opens(KEYS["phone"], base_url) for base_url in base_urls)
    later = {pod["metadata"]["name"]: pod for pod in _pods(sandbox)}
    for pod in pods:
        services.assert_same_pod(pod, later[pod["metadata"]["name"]])


def test_a_malformed_file_keeps_the_keys_and_the_condition_names_the_entry(
    sandbox: Kubectl, gateway: Object
) -> None:
    entries = [{"name": "phone", "key": KEYS["phone"]}, {"name": "typo", "sha256": KEYS["going"]}]
    sandbox.apply(_secret_of(json.dumps(entries)))
    _make_kubelet_look(sandbox)
    found = _wait_auth_condition(sandbox, "True")
    assert found["reason"] == "KeysMalformed"
    assert found["message"].startswith("entry 2 (typo): sha256 must be 64 hex digits")
    service = sandbox.get("infsvc", NAME)
    assert KEYS["going"] not in json.dumps(service)
    assert condition(service, "Ready")["status"] == "True"
    assert all(_opens(KEYS["going"], base_url) for base_url in _base_urls(sandbox)), "the last good keys"
    sandbox.apply(_secret())
    _make_kubelet_look(sandbox)
    _wait_auth_condition(sandbox, "False")


def test_equal_prefixes_are_computed_once_by_both_replicas_together(
    sandbox: Kubectl, gateway: Object
) -> None:
    """The Service deals connections out by chance, so without homes about every prefix is cold at both."""
    rounds, prefixes = 6, 4
    texts = [
        f"{secrets.token_hex(16)} " + f"Fact {number} of soup, told once more. " * 45
        for number in range(prefixes)
    ]

    def routed(reason: str) -> float:
        return _total(sandbox, metrics.SIDECAR_ROUTED, "reason", reason)

    before = {reason: routed(reason) for reason in ("home", "forwarded")}
    answers = [_ask(KEYS["phone"], f"{text}Question {number}?") for number in range(rounds) for text in texts]
    cold = sum(not _is_cached(usage) for usage in answers)
    home, forwarded = (routed(reason) - count for reason, count in before.items())
    print(
        f"{len(answers)} requests: {cold} of {prefixes} prefixes cold, {home:g} home, {forwarded:g} sent on"
    )
    assert cold <= prefixes * 1.5, "without homes it is twice as many"
    assert home >= len(answers) / 2
    assert forwarded >= 1


async def test_nobody_notices_a_scale_down(sandbox: Kubectl, gateway: Object) -> None:
    await disturbance.unnoticed(
        _pods(sandbox),
        disturb=lambda: sandbox.run("scale", "infsvc", NAME, "--replicas=1"),
        settled=lambda: services.wait_ready(sandbox, NAME, 1),
        target=TARGET,
    )
    await asyncio.to_thread(sandbox.run, "scale", "infsvc", NAME, "--replicas=2")
    await asyncio.to_thread(services.wait_ready, sandbox, NAME, 2)


async def test_nobody_notices_a_drain(sandbox: Kubectl, gateway: Object) -> None:
    """One pod is evicted, as `kubectl drain` does."""
    pods = _pods(sandbox)
    victim = pods[0]["metadata"]["name"]

    def evict() -> None:
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": victim, "namespace": sandbox.namespace},
        }
        path = f"/api/v1/namespaces/{sandbox.namespace}/pods/{victim}/eviction"
        sandbox.run("create", "--raw", path, "-f", "-", stdin=json.dumps(body))

    def replaced() -> None:
        wait_for("the pod to be gone", lambda: not sandbox.exists("pod", victim), timeout_s=240)
        services.wait_ready(sandbox, NAME, 2)

    await disturbance.unnoticed(pods, disturb=evict, settled=replaced, target=TARGET)


async def test_nobody_notices_a_rollout(sandbox: Kubectl, gateway: Object) -> None:
    before = sandbox.get("infsvc", NAME)["status"]["revisions"]["stable"]

    def rolled_out() -> None:
        wait_for(
            "the new revision to be the stable one",
            lambda: sandbox.get("infsvc", NAME)["status"]["revisions"]["stable"] != before,
            timeout_s=600,
        )
        services.wait_ready(sandbox, NAME, 2)

    await disturbance.unnoticed(
        _pods(sandbox),
        disturb=lambda: sandbox.patch(
            "infsvc", NAME, {"spec": {"runtime": {"device": "cpu", "maxNumSeqs": 15}}}
        ),
        settled=rolled_out,
        target=TARGET,
    )


def test_neither_keys_nor_prompts_are_in_the_logs(sandbox: Kubectl, gateway: Object) -> None:
    """After a good and a refused request at every replica of those that are there now."""
    for base_url in _base_urls(sandbox):
        assert _opens(KEYS["phone"], base_url)
        assert not _opens(UNKNOWN, base_url)
    for pod in _pods(sandbox):
        log = sandbox.run("logs", pod["metadata"]["name"], "--all-containers")
        assert "wrong API key" in log
        for secret in (*KEYS.values(), UNKNOWN, PROMPT.strip(), "marjoram"):
            assert secret not in log
