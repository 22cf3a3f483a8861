"""Runs the real `helm` on the chart and gives the objects it renders.

Helm is required, never skipped: a chart that was not rendered was not tested. It is the one that
`python3 tests/cluster clients` fetches, else one on the PATH.
"""

import functools
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts" / "firsttoken"
REGISTRY = "registry.example.com/team"

Object = dict[str, Any]


class RenderError(Exception):
    """Helm refused the values; the message is what it printed."""


@functools.cache
def binary() -> str:
    """Path of the helm to use. Raises FileNotFoundError with what to do."""
    cache = Path(os.environ.get("FIRSTTOKEN_CACHE") or Path.home() / ".cache" / "firsttoken")
    candidates = [ROOT / ".cluster" / "bin" / "helm", *sorted(cache.glob("clients-*/helm"))]
    for candidate in candidates:
        if candidate.is_file() and os.access(candidate, os.X_OK):
            return str(candidate)
    found = shutil.which("helm")
    if found is None:
        raise FileNotFoundError(
            "no helm in .cluster/bin, in the cache or on the PATH: python3 tests/cluster clients"
        )
    return found


@functools.cache
def _template(namespace: str, registry: str, settings: tuple[str, ...], notes: bool) -> str:
    sets = [argument for setting in settings for argument in ("--set-json", setting)]
    if registry:
        sets += ["--set", f"image.registry={registry}"]
    command = [binary(), "template", "release-name", str(CHART), "--namespace", namespace, *sets]
    if notes:
        command = [
            binary(), "install", "release-name", str(CHART), "--namespace", namespace,
            "--dry-run=client", *sets,
        ]  # fmt: skip
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if result.returncode != 0:
        raise RenderError(result.stderr)
    return result.stdout


def render(
    *settings: str, namespace: str = "firsttoken-system", registry: str = REGISTRY, crds: bool = False
) -> list[Object]:
    """All objects of the chart, the large CRDs only when asked for.

    A setting is `path=JSON`, as for `--set-json`. Raises RenderError.
    """
    if not crds:
        settings = ("crds.install=false", *settings)
    documents = yaml.safe_load_all(_template(namespace, registry, settings, notes=False))
    return [document for document in documents if document]


def notes(*settings: str, namespace: str = "firsttoken-system") -> str:
    """What a user reads after `helm install`."""
    return _template(namespace, REGISTRY, settings, notes=True).partition("NOTES:\n")[2]


def of_kind(objects: list[Object], kind: str) -> list[Object]:
    return [candidate for candidate in objects if candidate["kind"] == kind]


def one(objects: list[Object], kind: str) -> Object:
    """The only object of a kind."""
    (found,) = of_kind(objects, kind)
    return found
