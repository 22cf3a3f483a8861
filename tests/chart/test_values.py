"""Values: each is documented, each is in the schema, and what is not a value is refused."""

import json
import re
from collections.abc import Iterator

import pytest
import yaml

from chart import helm
from firsttoken_api import flags

VALUES = (helm.CHART / "values.yaml").read_text()
SCHEMA = json.loads((helm.CHART / "values.schema.json").read_text())


def _paths(node: yaml.Node, prefix: str = "") -> Iterator[tuple[str, int]]:
    """Each value's dotted path and the line (from 0) its key is on."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            path = f"{prefix}{key.value}"
            yield path, key.start_mark.line
            yield from _paths(value, f"{path}.")


def test_every_value_has_a_comment_above() -> None:
    lines = VALUES.splitlines()
    root = yaml.compose(VALUES)
    assert root is not None
    undocumented = [path for path, line in _paths(root) if not lines[line - 1].strip().startswith("# ")]
    assert undocumented == []


def _schema_paths(schema: dict[str, object], prefix: str = "") -> Iterator[str]:
    reference = schema.get("$ref")
    if isinstance(reference, str):
        schema = SCHEMA["definitions"][reference.removeprefix("#/definitions/")]
    properties = schema.get("properties")
    if schema.get("type") == "object" and isinstance(properties, dict):
        assert schema["additionalProperties"] is False, f"{prefix} accepts unknown names"
        for name, inner in properties.items():
            yield f"{prefix}{name}"
            yield from _schema_paths(inner, f"{prefix}{name}.")


# Maps of Kubernetes' own, whose inner names are not values of this chart.
_FREE = re.compile(r"^(global|operator\.(resources|affinity)\..+)$")


def test_schema_and_values_name_the_same() -> None:
    root = yaml.compose(VALUES)
    assert root is not None
    named = {path for path, _ in _paths(root) if not _FREE.match(path)}
    assert {path for path in _schema_paths(SCHEMA) if not _FREE.match(path)} == named


def test_force_flags_off_knows_the_built_flags() -> None:
    assert SCHEMA["properties"]["forceFlagsOff"]["items"]["enum"] == list(flags.BUILT)


@pytest.mark.parametrize(
    ("setting", "named"),
    [
        ('watch.scpoe="cluster"', "scpoe"),
        ('image.registery="x"', "registery"),
        ("replicas=3", "replicas"),
        ('watch.scope="everything"', "/watch/scope"),
        ('watch.namespaces=["Not_A_Label"]', "/watch/namespaces/0"),
        ('image.pullPolicy="Sometimes"', "/image/pullPolicy"),
        ('image.digest="sha256:abc"', "/image/digest"),
        ('images.runtime.tag="no tag"', "/images/runtime/tag"),
        ('images.runtime.repository="UPPER"', "/images/runtime/repository"),
        ("operator.replicas=-1", "/operator/replicas"),
        ('operator.replicas="two"', "/operator/replicas"),
        ('operator.logLevel="verbose"', "/operator/logLevel"),
        ('operator.logFormat="xml"', "/operator/logFormat"),
        ('operator.resources.limits.memory="lots"', "/operator/resources/limits/memory"),
        ('operator.extraEnv=[{"name":"A"}]', "/operator/extraEnv/0"),
        ('forceFlagsOff=["paged_kv"]', "/forceFlagsOff/0"),
        ('forceFlagsOff=["fp8-linear"]', "/forceFlagsOff/0"),
        ('rbac.create="true"', "/rbac/create"),
        ("metrics.port=8082", "/metrics/port"),
        ('metrics.podMonitor.interval="soon"', "/metrics/podMonitor/interval"),
        ('serviceAccount.name="Not Valid"', "/serviceAccount/name"),
    ],
)
def test_wrong_values_are_refused_by_name(setting: str, named: str) -> None:
    with pytest.raises(helm.RenderError, match=re.escape(named)):
        helm.render(setting)


def test_part_of_another_chart() -> None:
    """Helm gives a subchart a value `global` that it does not know."""
    assert helm.render('global={"imageRegistry":"x"}')


def test_namespaces_with_cluster_scope_are_refused() -> None:
    with pytest.raises(helm.RenderError, match=r"Add --set-json watch\.namespaces=\[\]"):
        helm.render('watch.scope="cluster"', 'watch.namespaces=["a"]')


def test_a_missing_service_account_is_refused() -> None:
    with pytest.raises(helm.RenderError, match=r"--set serviceAccount\.name=NAME"):
        helm.render("serviceAccount.create=false")


def test_a_variable_of_the_charts_own_is_refused() -> None:
    with pytest.raises(helm.RenderError, match=r"operator\.extraEnv sets FIRSTTOKEN_LOG_LEVEL"):
        helm.render('operator.extraEnv=[{"name":"FIRSTTOKEN_LOG_LEVEL","value":"debug"}]')
