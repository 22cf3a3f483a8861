"""The chart and the example service on the local cluster, brought to the images of the current code."""

import time
from pathlib import Path

from local import steps, tools
from local.paths import Paths

RELEASE = "firsttoken"
NAMESPACE = "firsttoken-system"
EXAMPLE = "examples/smollm2-cpu.yaml"
SERVICE = "chat"
WAIT_S = 180.0


def install(where: Paths, registry: str, tag: str) -> None:
    """Installs the chart, or upgrades it when it is there, and waits for the operator."""
    values = {
        "image.registry": registry,
        "image.tag": tag,
        "image.pullPolicy": "IfNotPresent",
        "watch.scope": "cluster",
    }
    settings = [word for name, value in values.items() for word in ("--set", f"{name}={value}")]
    chart = str(where.checkout / "charts" / "firsttoken")
    command = ["upgrade", "--install", RELEASE, chart, "--namespace", NAMESPACE, "--create-namespace"]
    wait = ["--wait", "--timeout", f"{WAIT_S:.0f}s"]
    try:
        tools.run(where, "helm", *command, *wait, *settings, timeout_s=WAIT_S + 30)
    except steps.StepError as error:
        raise steps.StepError(f"{error}\n{_pods(where, NAMESPACE)}") from error


def apply_example(where: Paths, tag: str) -> None:
    """Applies the example. Pods of earlier images are replaced, by the annotation that people use."""
    existed = SERVICE in _names(where)
    tools.run(where, "kubectl", "apply", "-f", str(where.checkout / EXAMPLE))
    if existed and any(tag_of != tag for tag_of in _image_tags(where)):
        refresh = f"firsttoken.dev/refresh={tag}"
        tools.run(where, "kubectl", "annotate", "--overwrite", "infsvc", SERVICE, refresh)
        _wait_for_tag(where, tag)


def explain(where: Paths) -> str:
    """What the cluster says about the example, for the message of a failure."""
    lines = []
    for service in tools.items(where, "infsvc"):
        for condition in service.get("status", {}).get("conditions", []):
            facts = [condition.get(key, "") for key in ("type", "status", "reason", "message")]
            lines.append(" ".join(facts))
    return "\n".join([*lines, _pods(where, "default")])


def record_state(where: Paths, file: Path) -> None:
    """Writes what a person would look at after a failure: objects, events, and the ends of the logs."""
    questions = [
        ["get", "infsvc,pods,deployments", "--all-namespaces", "-o", "wide"],
        ["describe", "infsvc", "--all-namespaces"],
        ["get", "events", "--all-namespaces", "--sort-by=.lastTimestamp"],
        [
            "logs",
            "--namespace",
            NAMESPACE,
            "--selector",
            "app.kubernetes.io/instance=firsttoken",
            "--tail=200",
            "--prefix",
        ],
    ]
    for pod in _serving_pods(where):
        questions.append(["logs", pod["metadata"]["name"], "--all-containers", "--prefix", "--tail=100"])
    with file.open("w") as out:
        for question in questions:
            out.write(f"$ kubectl {' '.join(question)}\n")
            try:
                out.write(tools.run(where, "kubectl", *question))
            except steps.StepError as error:
                out.write(f"{error}\n")


def _names(where: Paths) -> set[str]:
    return {service["metadata"]["name"] for service in tools.items(where, "infsvc")}


def _serving_pods(where: Paths) -> list[tools.Document]:
    selector = f"firsttoken.dev/service={SERVICE},firsttoken.dev/role=serving"
    return [
        pod
        for pod in tools.items(where, "pods", "-l", selector)
        if "deletionTimestamp" not in pod["metadata"]
    ]


def _image_tags(where: Paths) -> set[str]:
    tags = set()
    for pod in _serving_pods(where):
        for container in [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]:
            tags.add(container["image"].rpartition(":")[2])
    return tags


def _wait_for_tag(where: Paths, tag: str) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while _image_tags(where) != {tag}:
        if time.monotonic() > deadline_s:
            raise steps.StepError(f"pods of older code after {WAIT_S:.0f} s\n{explain(where)}")
        time.sleep(0.5)


def _pods(where: Paths, namespace: str) -> str:
    return tools.run(where, "kubectl", "--namespace", namespace, "get", "pods", "-o", "wide")
