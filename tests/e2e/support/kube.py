"""A thin, typed wrapper of kubectl and helm: what a person would type, with a bound on time.

Scenarios use the same command-line tools as users do, so that columns, messages and refusals are
seen as users see them.
"""

import json
import os
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

Object = dict[str, Any]
T = TypeVar("T")

ROOT = Path(__file__).resolve().parents[3]
STATE_FOLDER = Path(os.environ.get("FIRSTTOKEN_STATE", ROOT / ".cluster"))
OPERATOR_NAMESPACE = "firsttoken-system"
OPERATOR_DEPLOYMENT = "firsttoken-operator"


class CommandError(AssertionError):
    """A command ended with a status that the scenario did not ask for; carries what it printed."""


@dataclass(frozen=True)
class Kubectl:
    """kubectl against the local cluster, in one namespace."""

    namespace: str = "default"

    def run(self, *args: str, stdin: str | None = None, check: bool = True, timeout_s: float = 60) -> str:
        """Standard output of `kubectl ARGS`; standard error too when the command fails unchecked."""
        command = [str(STATE_FOLDER / "bin" / "kubectl"), "--namespace", self.namespace, *args]
        done = subprocess.run(
            command,
            input=stdin,
            env={**os.environ, "KUBECONFIG": str(STATE_FOLDER / "kubeconfig")},
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        if check and done.returncode != 0:
            raise CommandError(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
        return done.stdout if done.returncode == 0 else done.stdout + done.stderr

    def get(self, kind: str, name: str) -> Object:
        result: Object = json.loads(self.run("get", kind, name, "-o", "json"))
        return result

    def list(self, kind: str, selector: str = "") -> list[Object]:
        args = ["get", kind, "-o", "json"] + (["-l", selector] if selector else [])
        items: list[Object] = json.loads(self.run(*args))["items"]
        return items

    def exists(self, kind: str, name: str) -> bool:
        return bool(self.run("get", kind, name, "--ignore-not-found", "-o", "name").strip())

    def apply(self, *objects: Object) -> None:
        document = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
        self.run("apply", "-f", "-", stdin=document)

    def refused(self, manifest: Object) -> str:
        """What the API server says when it refuses `manifest`. Fails if it accepts it."""
        text = self.run("apply", "--dry-run=server", "-f", "-", stdin=json.dumps(manifest), check=False)
        if " created " in text or "configured" in text:
            raise AssertionError(f"accepted: {text}")
        return text

    def patch(self, kind: str, name: str, patch: Object, subresource: str = "") -> None:
        extra = [f"--subresource={subresource}"] if subresource else []
        self.run("patch", kind, name, "--type=merge", "-p", json.dumps(patch), *extra)


def helm(*args: str, timeout_s: float = 120) -> str:
    done = subprocess.run(
        [str(STATE_FOLDER / "bin" / "helm"), *args],
        env={**os.environ, "KUBECONFIG": str(STATE_FOLDER / "kubeconfig")},
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    if done.returncode != 0:
        raise CommandError(f"helm {' '.join(args)}\n{done.stdout}{done.stderr}")
    return done.stdout


def wait_for(what: str, probe: Callable[[], T | None], timeout_s: float, every_s: float = 0.5) -> T:
    """The first truthy answer of `probe`; fails naming `what` after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while True:
        answer = probe()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout_s:g} s: {what} (last: {answer!r})")
        time.sleep(every_s)


def condition(service: Object, kind: str) -> Object:
    """The condition of that type, or an empty dict."""
    conditions = service.get("status", {}).get("conditions", [])
    return next((each for each in conditions if each["type"] == kind), {})
