"""The KV cache of a running pod: prefixes are found again, its format switches under running streams, and the
host tier's claim brings prefixes over to the next pod."""

import shutil
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import openai
import pytest

from e2e.support import clients, services
from e2e.support.kube import STATE_FOLDER, Kubectl, Object, wait_for
from firsttoken_api import metrics, names

NAME = "cached"
CLAIM = "warm"
PINS = "pins"
BLOCK_TOKENS = 16
TIERING: Object = {
    "name": "kv-tiering",
    "mode": "Forced",
    "params": {"hostMemory": "256Mi", "claimName": CLAIM},
}
INT8: Object = {"name": "kv-int8", "mode": "Forced"}
SYSTEM = " ".join(f"Rule {n}: answer in plain words, and say so if you do not know." for n in range(20))
PINNED = " ".join(f"Clause {n}: the house is open from nine to five." for n in range(12))
NUM_STREAMS = 2
STREAM_TOKENS = 400
"""Long enough that the switch falls into the middle of the streams."""


@pytest.fixture(scope="module")
def warm_folder() -> Iterator[Path]:
    """Behind the claim. A volume on a folder of the node gets no group of the pod: anyone may write."""
    folder = STATE_FOLDER / "warm-e2e"
    shutil.rmtree(folder, ignore_errors=True)  # of a run that was killed
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def cached(sandbox: Kubectl, warm_folder: Path) -> Iterator[Object]:
    """A service with a host tier on a claim and one pinned prompt."""
    pins = f'[{{"messages": [{{"role": "system", "content": "{PINNED}"}}]}}]'
    sandbox.apply(
        *services.claim(CLAIM, sandbox.namespace, str(warm_folder), "ReadWriteOnce"),
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": PINS},
            "data": {names.CACHE_PINS_KEY: pins},
        },
        services.service(
            NAME,
            runtime={"device": "cpu", "maxNumSeqs": 4, "maxModelLen": 2048},
            drain={"timeout": "30s", "deregisterDelay": "2s"},
            optimizations=[TIERING],
            cachePins={"configMapRef": {"name": PINS}},
        ),
    )
    service = services.wait_ready(sandbox, NAME)
    wait_for("the pinned prompt to be computed", lambda: _is_pinned(_pod(sandbox)), 30, every_s=0.2)
    yield service
    sandbox.run("delete", "infsvc", NAME, "--wait=true", timeout_s=180)
    sandbox.run("delete", "configmap", PINS)
    sandbox.run("delete", "pvc", CLAIM, "--wait=true", timeout_s=180)
    sandbox.run("delete", "pv", f"{CLAIM}-{sandbox.namespace}")


def _pod(sandbox: Kubectl) -> Object:
    (pod,) = services.serving_pods(sandbox, NAME)
    return pod


def _client(pod: Object) -> openai.OpenAI:
    """To the pod's sidecar, the only way in."""
    return clients.client(f"http://{pod['status']['podIP']}:{names.HTTP_PORT}/v1", timeout_s=120)


def _cache(pod: Object) -> Object:
    """What the engine says of its cache."""
    cache: Object = services.pod_state(pod)["engine"]["cache"]
    return cache


def _is_pinned(pod: Object) -> bool:
    """While nobody has asked anything: the server computes pins by itself once the engine is ready."""
    engine = services.pod_state(pod)["engine"]
    return bool(engine["cache"]["query_tokens_total"]) and engine["running"] == engine["waiting"] == 0


def _ask(llm: openai.OpenAI, question: str, system: str = SYSTEM, salt: str = "") -> tuple[int, int]:
    """(prompt tokens, those of them that came from the cache)."""
    answer = llm.chat.completions.create(
        model=NAME,
        messages=[{"role": "system", "content": system}, {"role": "user", "content": question}],
        max_tokens=2,
        temperature=0,
        extra_body={"cache_salt": salt} if salt else {},
    )
    assert answer.usage is not None
    details = answer.usage.prompt_tokens_details
    return answer.usage.prompt_tokens, (details.cached_tokens if details else None) or 0


def _hit_tokens(pod: Object) -> float:
    return sum(services.pod_metric(pod, metrics.VLLM_PREFIX_HITS).values())


def _host_hits(pod: Object) -> float:
    return services.pod_metric(pod, metrics.ENGINE_PREFIX_HITS, "tier").get("host", 0)


def test_a_shared_system_prompt_is_computed_once(sandbox: Kubectl, cached: Object) -> None:
    pod = _pod(sandbox)
    llm = _client(pod)
    _ask(llm, "Who are you?")
    before = _hit_tokens(pod)
    num_tokens, num_cached = _ask(llm, "What is the capital of France?")
    assert num_cached % BLOCK_TOKENS == 0
    assert num_tokens - num_cached < 3 * BLOCK_TOKENS, "all but the question and the block it begins in"
    wait_for("the hit in the metrics", lambda: _hit_tokens(pod) == before + num_cached, 10, every_s=0.1)
    salt = f"somebody else {time.time_ns()}"
    assert _ask(llm, "Who are you?", salt=salt)[1] == 0, "another salt finds nothing"
    assert _ask(llm, "Who am I?", salt=salt)[1] > 0, "and shares with itself"


def test_a_pinned_prompt_is_cached_before_anybody_asks(sandbox: Kubectl, cached: Object) -> None:
    num_tokens, num_cached = _ask(_client(_pod(sandbox)), "Is it open on Sunday?", system=PINNED)
    assert num_tokens - num_cached < 3 * BLOCK_TOKENS


def _stream(llm: openai.OpenAI, started: threading.Event) -> tuple[str, int]:
    """(finish reason, tokens) of a long answer."""
    reason, num_tokens = "", 0
    chunks = llm.completions.create(
        model=NAME,
        prompt="Once upon a time",
        max_tokens=STREAM_TOKENS,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
        extra_body={"ignore_eos": True},
    )
    for number, chunk in enumerate(chunks):
        if number == 10:
            started.set()
        if chunk.choices:
            reason = chunk.choices[0].finish_reason or reason
        if chunk.usage:
            num_tokens = chunk.usage.completion_tokens
    return reason, num_tokens


def test_int8_is_switched_on_while_streams_run(sandbox: Kubectl, cached: Object) -> None:
    pod = _pod(sandbox)
    before = sandbox.get("infsvc", NAME)
    lineage = _cache(pod)["lineage"]
    started = [threading.Event() for _ in range(NUM_STREAMS)]
    with ThreadPoolExecutor(NUM_STREAMS) as threads:
        streams = [threads.submit(_stream, _client(pod), each) for each in started]
        assert all(each.wait(60) for each in started)
        sandbox.patch("infsvc", NAME, {"spec": {"optimizations": [TIERING, INT8]}})
        wait_for("int8", lambda: _cache(pod)["kv_type"] == "int8", timeout_s=20, every_s=0.05)
        assert not any(each.done() for each in streams), "the switch came after the streams"
        assert [each.result() for each in streams] == [("length", STREAM_TOKENS)] * NUM_STREAMS
    after = services.wait_applied(sandbox, NAME, newer_than=before)
    row = next(each for each in after["status"]["optimizations"] if each["name"] == "kv-int8")
    assert (row["effective"], row["reason"]) == (True, "Forced")
    assert after["status"]["revisions"]["stable"] == before["status"]["revisions"]["stable"]
    services.assert_same_pod(pod, _pod(sandbox))
    cache = _cache(pod)
    print(f"switch: pause {cache['switch_pause_s']:.2f} s, largest gap {cache['switch_gap_s']:.2f} s")
    assert cache["lineage"] != lineage

    sandbox.patch("infsvc", NAME, {"spec": {"optimizations": [TIERING]}})
    services.wait_applied(sandbox, NAME, newer_than=after)
    wait_for("16 bit again", lambda: _cache(pod)["kv_type"] == "full", timeout_s=10, every_s=0.1)
    assert _cache(pod)["lineage"] == lineage, "it is a function of the settings in force"


def test_flags_that_exclude_each_other_are_refused_with_the_rule(sandbox: Kubectl, cached: Object) -> None:
    fp8 = {"name": "kv-fp8", "mode": "Gated"}
    said = sandbox.refused(services.service(NAME, optimizations=[INT8, fp8]))
    assert "spec.optimizations" in said
    assert "breaks the rule 'kv-int8 excludes kv-fp8'" in said


def test_prefixes_on_the_claim_outlive_the_pod(sandbox: Kubectl, cached: Object, warm_folder: Path) -> None:
    pod = _pod(sandbox)
    llm = _client(pod)
    assert _ask(llm, "Who are you?")[0] > 0
    assert _ask(llm, "What can you do?")[1] > 0, "asked for twice, so worth keeping"
    sandbox.run("delete", "pod", pod["metadata"]["name"], "--wait=true", timeout_s=120)
    assert any(warm_folder.iterdir())
    services.wait_ready(sandbox, NAME)
    fresh = _pod(sandbox)
    assert fresh["metadata"]["uid"] != pod["metadata"]["uid"]
    wait_for("what the claim holds, read back", lambda: _cache(fresh)["host_blocks"] > 0, 30)
    # It hits the host tier too.
    wait_for("the pinned prompt to be computed", lambda: _is_pinned(fresh), 30, every_s=0.2)
    before = _host_hits(fresh)
    num_tokens, num_cached = _ask(_client(fresh), "Where are you?")
    assert num_tokens - num_cached < 3 * BLOCK_TOKENS
    wait_for("the hit in the host tier", lambda: _host_hits(fresh) == before + num_cached, 10, every_s=0.1)
