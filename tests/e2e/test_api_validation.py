"""A real API server judges the table of manifests: what is wrong is refused with field and values named.

Server-side dry runs in a namespace of their own: nothing is stored, no operator is involved.
"""

import json
from collections.abc import Iterator

import pytest

from api import manifests, words
from api.manifests import Case
from e2e.support import services
from e2e.support.kube import ROOT, Kubectl, Object

NAMESPACE = "api-validation"


@pytest.fixture(scope="module")
def empty() -> Iterator[Kubectl]:
    """A namespace without services."""
    kubectl = Kubectl(namespace=NAMESPACE)
    kubectl.apply(services.namespace(NAMESPACE))
    yield kubectl
    kubectl.run("delete", "namespace", NAMESPACE, "--wait=true", timeout_s=120)


def _create(kubectl: Kubectl, manifest: Object, *options: str) -> str:
    """What the API server says to a dry run."""
    return kubectl.run(
        "create", "--dry-run=server", *options, "-f", "-", stdin=json.dumps(manifest), check=False
    )


def _assert_refused(said: str, case: Case) -> None:
    assert "(server dry run)" not in said
    for phrase in case.says:
        assert phrase in said


@pytest.mark.parametrize("case", manifests.VALID, ids=lambda case: case.title)
def test_accepts(empty: Kubectl, case: Case) -> None:
    assert "created (server dry run)" in _create(empty, case.manifest(), "--validate=strict")


@pytest.mark.parametrize("case", manifests.INVALID, ids=lambda case: case.title)
def test_refuses(empty: Kubectl, case: Case) -> None:
    _assert_refused(_create(empty, case.manifest()), case)


@pytest.mark.parametrize("case", manifests.UNKNOWN_FIELDS, ids=lambda case: case.title)
def test_strict_validation_refuses_unknown_fields(empty: Kubectl, case: Case) -> None:
    _assert_refused(_create(empty, case.manifest(), "--validate=strict"), case)


def test_regression_evals_cannot_be_created(empty: Kubectl) -> None:
    said = _create(empty, manifests.EVALUATION)
    assert "(server dry run)" not in said
    assert "the regression gate is not part of this version" in said


@pytest.mark.parametrize("name", manifests.EXAMPLES)
def test_examples_are_accepted_as_they_are(empty: Kubectl, name: str) -> None:
    path = str(ROOT / "examples" / name)
    said = empty.run("create", "--dry-run=server", "--validate=strict", "-f", path)
    assert "inferenceservice.firsttoken.dev/" in said


def test_an_absent_scaling_block_still_gives_scale_a_number(empty: Kubectl) -> None:
    manifest = json.dumps(manifests.service())
    said = empty.run("create", "--dry-run=server", "-o", "json", "-f", "-", stdin=manifest)
    assert json.loads(said)["spec"]["scaling"]["replicas"] == 1


def test_kubectl_reads_every_word_as_text(empty: Kubectl) -> None:
    """Unquoted, as people write them; a word that YAML takes for a boolean would be refused as data."""
    known = sorted(words.all_words())
    data = "".join(f"  word-{number}: {word}\n" for number, word in enumerate(known))
    manifest = f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: words}}\ndata:\n{data}"
    said = empty.run("create", "--dry-run=server", "-o", "json", "-f", "-", stdin=manifest)
    assert sorted(json.loads(said)["data"].values()) == known
