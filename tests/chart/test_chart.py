"""Chart.yaml follows pyproject.toml, every object carries the chart's labels, and the notes are right."""

import subprocess
import tomllib

import yaml

from chart import helm


def test_versions_follow_the_distribution() -> None:
    project = tomllib.loads((helm.ROOT / "pyproject.toml").read_text())["project"]
    chart = yaml.safe_load((helm.CHART / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == project["version"]


def test_lint() -> None:
    command = [helm.binary(), "lint", "--strict", str(helm.CHART), "--set", f"image.registry={helm.REGISTRY}"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


def test_every_object_is_labelled() -> None:
    for candidate in helm.render("metrics.podMonitor.enabled=true"):
        if candidate["kind"] != "CustomResourceDefinition":
            labels = candidate["metadata"]["labels"]
            assert labels["app.kubernetes.io/name"] == "firsttoken-operator"
            assert labels["app.kubernetes.io/managed-by"] == "Helm"


def test_names_do_not_follow_the_release() -> None:
    """A second operator for the same namespaces is refused by Helm instead of fighting with the first."""
    for candidate in helm.render():
        assert "release-name" not in candidate["metadata"]["name"]


def test_notes_give_two_commands_and_two_warnings() -> None:
    text = helm.notes('watch.namespaces=["chat"]', 'forceFlagsOff=["paged-kv"]')
    assert "kubectl apply -n chat -f examples/smollm2-cpu.yaml" in text
    assert "kubectl get infsvc -n chat --watch" in text
    assert "without spec.routing.auth has no authentication" in text
    assert "examples/api-keys.yaml" in text
    assert "can mount any Secret" in text
    assert "paged-kv" in text
    assert "-n default" in helm.notes('watch.scope="cluster"')
