"""Proves on a running cluster what the project's tests rely on, with pods of our own small probe program.

Every proof is a function that raises with what it saw. Nothing of the probe remains afterwards.
"""

import json
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from cluster import addresses, archive, daemons, execute, gobinaries, images, layout, leftovers, lifecycle
from cluster.errors import ClusterError
from cluster.progress import Progress

NAMESPACE = "cluster-selftest"
AUDITED_NAMESPACE = "firsttoken-system"
NAME = "probe"
IMAGE = "localhost/firsttoken/cluster-probe:1"
PORT = 8000
WAIT_S = 60
RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
    "runAsNonRoot": True,
    "runAsUser": 65535,
    "seccompProfile": {"type": "RuntimeDefault"},
}

T = TypeVar("T")


@dataclass(frozen=True)
class Kubectl:
    """kubectl of this cluster; every call is bounded."""

    where: layout.Layout

    def run(
        self, *words: str, document: object = None, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        argv = [str(self.where.bin / "kubectl"), "--kubeconfig", str(self.where.kubeconfig)]
        text = None if document is None else json.dumps(document)
        try:
            done = subprocess.run(
                [*argv, "--request-timeout=30s", *words],
                input=text,
                capture_output=True,
                text=True,
                timeout=WAIT_S,
            )
        except subprocess.TimeoutExpired as error:
            raise ClusterError("selftest", f"kubectl {' '.join(words)} took more than {WAIT_S} s") from error
        if check and done.returncode != 0:
            raise ClusterError("selftest", f"kubectl {' '.join(words)}: {done.stderr.strip()}")
        return done

    def here(self, *words: str, document: object = None) -> str:
        return self.run("--namespace", NAMESPACE, *words, document=document).stdout


def run(where: layout.Layout, progress: Progress) -> None:
    """All proofs, then removes the namespace; raises on the first that fails."""
    found = lifecycle.problems(where)
    if found:
        raise ClusterError("selftest", "; ".join(found))
    kubectl = Kubectl(where)
    _load_probe(where, progress)
    _remove(kubectl)
    try:
        _create(kubectl)
        for what, proof in PROOFS.items():
            progress.say("selftest", f"{what}: {proof(kubectl)}")
    finally:
        _remove(kubectl)


def run_crash(where: layout.Layout, progress: Progress) -> None:
    """Kills every daemon while pods run, starts again, ends the cluster, and checks that nothing is left."""
    lifecycle.up(where, progress)
    kubectl = Kubectl(where)
    _load_probe(where, progress)
    _create(kubectl)
    _is_rolled_out(kubectl)
    for running in daemons.recorded(where):
        daemons.kill(running)
    progress.say("selftest", f"killed all daemons, left are {len(leftovers.find(where))} things")
    lifecycle.up(where, progress)
    if kubectl.run("get", "namespace", NAMESPACE, check=False).returncode == 0:
        raise ClusterError("selftest", "the next start kept the killed cluster's objects")
    run(where, progress)
    lifecycle.down(where, progress)


def _load_probe(where: layout.Layout, progress: Progress) -> None:
    binary = gobinaries.ensure(gobinaries.PROBE, where, progress)
    with tempfile.TemporaryDirectory() as folder:
        packed = Path(folder) / "probe.tar"
        archive.write(packed, IMAGE, binary)
        loaded = images.load(where, packed)
    if loaded != [IMAGE] or not images.is_loaded(where, IMAGE):
        raise ClusterError("selftest", f"importing {IMAGE} reported {loaded}")


def _create(kubectl: Kubectl) -> None:
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": labels}}
    kubectl.run("create", "-f", "-", document=namespace)
    kubectl.here("create", "-f", "-", document={"apiVersion": "v1", "kind": "List", "items": _objects()})


def _objects() -> list[dict[str, Any]]:
    container = {
        "name": NAME,
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "args": ["serve", f":{PORT}"],
        "ports": [{"name": "http", "containerPort": PORT}],
        "readinessProbe": {"httpGet": {"path": "/", "port": "http"}, "periodSeconds": 1},
        "securityContext": RESTRICTED,
        "resources": {"limits": {"memory": "64Mi"}},
        "volumeMounts": [{"name": "words", "mountPath": "/words"}],
    }
    pod = {"containers": [container], "volumes": [{"name": "words", "configMap": {"name": NAME}}]}
    labels = {"app": NAME}
    ports = [{"port": 80, "targetPort": "http"}]
    return [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": NAME}, "data": {"word": "before"}},
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": NAME},
            "spec": {
                "replicas": 2,
                "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {**pod, "terminationGracePeriodSeconds": 1},
                },
            },
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": NAME},
            "spec": {"type": "NodePort", "selector": labels, "ports": ports},
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": f"{NAME}-peers"},
            "spec": {"clusterIP": "None", "selector": labels, "ports": ports},
        },
    ]


def _remove(kubectl: Kubectl) -> None:
    kubectl.run("delete", "namespace", NAMESPACE, "--ignore-not-found", "--timeout=50s")


def _is_rolled_out(kubectl: Kubectl) -> str:
    started_s = time.monotonic()
    kubectl.here("rollout", "status", f"deployment/{NAME}", "--timeout=45s")
    return f"2 restricted pods ready after {time.monotonic() - started_s:.1f} s"


def _logs_and_exec(kubectl: Kubectl) -> str:
    pods = _pods(kubectl)
    name = pods[0]["metadata"]["name"]
    logs = kubectl.here("logs", name)
    if f"serving as {name}" not in logs:
        raise ClusterError("selftest", f"the log of {name} is {logs!r}")
    word = _exec(kubectl, "read", "/words/word")
    if word != "before":
        raise ClusterError("selftest", f"exec read {word!r}")
    return "log and file read"


def _names(kubectl: Kubectl) -> str:
    wanted = sorted(pod["status"]["podIP"] for pod in _pods(kubectl))
    headless = f"{NAME}-peers.{NAMESPACE}.svc.{addresses.DNS_DOMAIN}"
    seen = _until(lambda: _exec(kubectl, "resolve", headless).split(), lambda found: found == wanted)
    if seen != wanted:
        raise ClusterError("selftest", f"{headless} resolves to {seen}, pods are {wanted}")
    names = {pod["metadata"]["name"] for pod in _pods(kubectl)}
    answer = _exec(kubectl, "get", f"http://{NAME}").strip()
    if answer not in names:
        raise ClusterError("selftest", f"the Service answered {answer!r} inside the cluster")
    started_s = time.monotonic()
    outside = kubectl.run(*_exec_words("resolve", "name.example.org"), check=False)
    if "no such host" not in outside.stderr:
        raise ClusterError("selftest", f"a name outside the cluster gave {outside.stderr!r}")
    return f"headless, Service; an outside name is refused after {time.monotonic() - started_s:.1f} s"


def _node_port(kubectl: Kubectl) -> str:
    service = json.loads(kubectl.here("get", "service", NAME, "-o", "json"))
    url = f"http://127.0.0.1:{service['spec']['ports'][0]['nodePort']}"
    names = {pod["metadata"]["name"] for pod in _pods(kubectl)}
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def answering() -> set[str]:
        """Pods that 40 connections reach. The rules of a pod that is just ready may be seconds away."""
        seen = set()
        for _ in range(40):
            with opener.open(url, timeout=5) as response:
                seen.add(response.read().decode().strip())
        return seen

    seen = _until(answering, lambda found: found == names)
    if seen != names:
        raise ClusterError("selftest", f"{url} answered {seen}, pods are {names}")
    return f"{url} reaches both pods"


def _api_from_pod(kubectl: Kubectl) -> str:
    version = json.loads(_exec(kubectl, "get", "https://kubernetes.default.svc/version"))
    return f"https://kubernetes.default.svc is {version['gitVersion']}"


def _pod_security(kubectl: Kubectl) -> str:
    bad = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "bad"},
        "spec": {"containers": [{"name": "bad", "image": IMAGE, "securityContext": {"privileged": True}}]},
    }
    done = kubectl.run("--namespace", NAMESPACE, "create", "-f", "-", document=bad, check=False)
    if done.returncode == 0 or 'violates PodSecurity "restricted' not in done.stderr:
        raise ClusterError(
            "selftest", f"a privileged pod in a restricted namespace: {done.stderr or done.stdout}"
        )
    return "a privileged pod is refused"


def _config_map(kubectl: Kubectl) -> str:
    """A changed annotation makes the kubelet look at a pod's volumes at once instead of at its next round."""
    name = _pods(kubectl)[0]["metadata"]["name"]
    started_s = time.monotonic()
    kubectl.here("patch", "configmap", NAME, "--type=merge", "-p", '{"data":{"word":"after"}}')
    kubectl.here("annotate", "pod", name, "selftest/bump=1")
    command = ("--namespace", NAMESPACE, "exec", name, "--", f"/{NAME}", "read", "/words/word")
    seen = _until(lambda: kubectl.run(*command).stdout, lambda word: word == "after")
    if seen != "after":
        raise ClusterError("selftest", f"the mounted ConfigMap still reads {seen!r}")
    return f"seen in the pod after {time.monotonic() - started_s:.1f} s"


def _audit(kubectl: Kubectl) -> str:
    """A refused write of a service account in the operator's namespace is recorded, one elsewhere is not."""
    made_namespace = kubectl.run("create", "namespace", AUDITED_NAMESPACE, check=False).returncode == 0
    before = _audit_users(kubectl.where)
    try:
        kubectl.run("--namespace", AUDITED_NAMESPACE, "create", "serviceaccount", NAMESPACE)
        for namespace, account in ((AUDITED_NAMESPACE, NAMESPACE), (NAMESPACE, "default")):
            token = kubectl.run("--namespace", namespace, "create", "token", account).stdout.strip()
            _write_as(kubectl.where, token)
    finally:
        kubectl.run(
            "--namespace", AUDITED_NAMESPACE, "delete", "serviceaccount", NAMESPACE, "--ignore-not-found"
        )
        if made_namespace:
            kubectl.run("delete", "namespace", AUDITED_NAMESPACE, "--wait=false")
    added = [
        user for user in _audit_users(kubectl.where)[len(before) :] if user.endswith((NAMESPACE, ":default"))
    ]
    wanted = f"system:serviceaccount:{AUDITED_NAMESPACE}:{NAMESPACE}"
    if added != [wanted]:
        raise ClusterError("selftest", f"audited users are {added}", kubectl.where.audit_log)
    return "the operator's writes are recorded, others not"


def _write_as(where: layout.Layout, token: str) -> None:
    """Tries to create a ConfigMap with a token only: no client certificate may come before it."""
    server = f"https://127.0.0.1:{addresses.API_PORT}"
    words = ["--server", server, "--certificate-authority", str(where.pki / "ca.crt"), "--token", token]
    target = ["--namespace", NAMESPACE, "create", "configmap", "written"]
    environment = {"KUBECONFIG": "/dev/null", "PATH": "/usr/bin:/bin", "HOME": "/nonexistent"}
    execute.run([str(where.bin / "kubectl"), *words, *target], timeout_s=WAIT_S, env=environment, check=False)


def _audit_users(where: layout.Layout) -> list[str]:
    return [json.loads(row)["user"]["username"] for row in where.audit_log.read_text().splitlines()]


def _extended_resource(kubectl: Kubectl) -> str:
    resource = "selftest.firsttoken.dev/gpu"
    path = f"/status/capacity/{resource.replace('/', '~1')}"
    started_s = time.monotonic()
    patch = ("patch", "node", addresses.NODE_NAME, "--subresource=status", "--type=json", "-p")
    kubectl.run(*patch, json.dumps([{"op": "add", "path": path, "value": "2"}]))
    read = ("get", "node", addresses.NODE_NAME, "-o", "json")
    seen = _until(
        lambda: json.loads(kubectl.run(*read).stdout)["status"]["allocatable"].get(resource),
        lambda count: count == "2",
    )
    took_s = time.monotonic() - started_s
    kubectl.run(*patch, json.dumps([{"op": "remove", "path": path}]))
    if seen != "2":
        raise ClusterError("selftest", f"{resource} is allocatable: {seen}")
    return f"allocatable after {took_s:.1f} s"


PROOFS: dict[str, Callable[[Kubectl], str]] = {
    "pods": _is_rolled_out,
    "logs and exec": _logs_and_exec,
    "names": _names,
    "node port": _node_port,
    "API from a pod": _api_from_pod,
    "pod security": _pod_security,
    "ConfigMap update": _config_map,
    "audit log": _audit,
    "extended resource": _extended_resource,
}


def _pods(kubectl: Kubectl) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = json.loads(kubectl.here("get", "pods", "-l", f"app={NAME}", "-o", "json"))[
        "items"
    ]
    return [pod for pod in items if "deletionTimestamp" not in pod["metadata"]]


def _exec(kubectl: Kubectl, *words: str) -> str:
    return kubectl.run(*_exec_words(*words)).stdout


def _exec_words(*words: str) -> tuple[str, ...]:
    return ("--namespace", NAMESPACE, "exec", f"deployment/{NAME}", "--", f"/{NAME}", *words)


def _until(look: Callable[[], T], is_wanted: Callable[[T], bool], timeout_s: float = 20) -> T:
    """What `look` last saw: as wanted, or at the end of the time."""
    deadline_s = time.monotonic() + timeout_s
    while not is_wanted(seen := look()) and time.monotonic() < deadline_s:
        time.sleep(0.2)
    return seen
