"""CRDs: the chart carries the generated files, installs them by value, and keeps them on uninstall."""

import copy

import yaml

from chart import helm

GENERATED = sorted((helm.ROOT / "crds").glob("*.yaml"))
CARRIED = sorted((helm.CHART / "files" / "crds").glob("*.yaml"))


def test_same_bytes() -> None:
    assert GENERATED
    assert [path.name for path in CARRIED] == [path.name for path in GENERATED]
    for carried, generated in zip(CARRIED, GENERATED, strict=True):
        assert carried.read_bytes() == generated.read_bytes()


def test_rendered_as_they_are_and_kept() -> None:
    rendered = {
        crd["metadata"]["name"]: crd
        for crd in helm.of_kind(helm.render(crds=True), "CustomResourceDefinition")
    }
    assert set(rendered) == {"inferenceservices.firsttoken.dev", "regressionevals.firsttoken.dev"}
    for path in GENERATED:
        expected = yaml.safe_load(path.read_text())
        crd = copy.deepcopy(rendered[expected["metadata"]["name"]])
        assert crd["metadata"]["annotations"].pop("helm.sh/resource-policy") == "keep"
        expected["metadata"].setdefault("annotations", {})
        assert crd == expected


def test_can_be_left_out() -> None:
    assert helm.of_kind(helm.render("crds.install=false", crds=True), "CustomResourceDefinition") == []
