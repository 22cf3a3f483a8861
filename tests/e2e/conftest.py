"""Scenarios on the real cluster. They start it themselves when it is not there."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.support import services
from e2e.support.kube import Kubectl, Object


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.e2e)


@pytest.fixture(scope="session")
def kubectl() -> Kubectl:
    return Kubectl()


@pytest.fixture(scope="session")
def chat(kubectl: Kubectl) -> Object:
    """The example service of `make up`, ready with one replica."""
    return services.wait_ready(kubectl, "chat")


@pytest.fixture(scope="session")
def sandbox() -> Iterator[Kubectl]:
    """A namespace of its own, with a models claim, Pod Security `restricted` enforced."""
    name = "e2e"
    kubectl = Kubectl(namespace=name)
    kubectl.apply(services.namespace(name), *services.models_volume(name))
    yield kubectl
    kubectl.run("delete", "namespace", name, "--wait=true", timeout_s=180)
    kubectl.run("delete", "pv", f"models-{name}", "--ignore-not-found")
