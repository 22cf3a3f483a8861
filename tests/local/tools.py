"""kubectl and helm of the local cluster, as a person would call them, with a bound on time."""

import json
import os
import subprocess
from typing import Any

from local import steps
from local.paths import Paths

Document = dict[str, Any]


def run(where: Paths, tool: str, *arguments: str, stdin: str | None = None, timeout_s: float = 60) -> str:
    """Standard output of `tool ARGUMENTS`. Raises StepError with what the tool said when it fails."""
    try:
        done = subprocess.run(
            [str(where.tool(tool)), *arguments],
            input=stdin,
            env={**os.environ, "KUBECONFIG": str(where.kubeconfig)},
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise steps.StepError(f"{tool} {' '.join(arguments)}: no end after {timeout_s:.0f} s") from error
    except OSError as error:
        raise steps.StepError(f"cannot run {where.tool(tool)}: {error.strerror}; run `make up`") from error
    if done.returncode != 0:
        raise steps.StepError(f"{tool} {' '.join(arguments)}\n{done.stdout}{done.stderr}".rstrip())
    return done.stdout


def apply(where: Paths, *objects: Document) -> None:
    document = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
    run(where, "kubectl", "apply", "-f", "-", stdin=document)


def items(where: Paths, kind: str, *arguments: str) -> list[Document]:
    found: list[Document] = json.loads(run(where, "kubectl", "get", kind, *arguments, "-o", "json"))["items"]
    return found
