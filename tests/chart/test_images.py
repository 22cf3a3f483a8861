"""Image references: registry, repository, then digest before tag."""

import pytest

from chart import helm

DIGEST = "sha256:" + "a" * 64
OTHER = "sha256:" + "b" * 64


def _images(*settings: str, registry: str = helm.REGISTRY) -> dict[str, str]:
    """Image references by name, as the operator pod gets them."""
    (container,) = helm.one(helm.render(*settings, registry=registry), "Deployment")["spec"]["template"][
        "spec"
    ]["containers"]
    variables = {entry["name"]: entry.get("value", "") for entry in container["env"]}
    return {
        "operator": container["image"],
        "sidecar": variables["FIRSTTOKEN_SIDECAR_IMAGE"],
        "runtime": variables["FIRSTTOKEN_RUNTIME_IMAGE"],
    }


def test_missing_registry_says_what_to_add() -> None:
    with pytest.raises(helm.RenderError, match=r"Add --set image\.registry="):
        helm.render(registry="")


def test_app_version_is_the_default_tag() -> None:
    assert _images(registry="localhost") == {
        name: f"localhost/firsttoken/{name}:0.1.0" for name in ("operator", "sidecar", "runtime")
    }


def test_tag_of_all_and_of_one() -> None:
    images = _images('image.tag="v7"', 'images.runtime.tag="v7-cuda"')
    assert images["operator"] == f"{helm.REGISTRY}/firsttoken/operator:v7"
    assert images["runtime"] == f"{helm.REGISTRY}/firsttoken/runtime:v7-cuda"


def test_digest_wins_over_tag() -> None:
    images = _images('image.tag="v7"', 'images.runtime.tag="v8"', f'images.runtime.digest="{DIGEST}"')
    assert images["runtime"] == f"{helm.REGISTRY}/firsttoken/runtime@{DIGEST}"
    assert images["sidecar"] == f"{helm.REGISTRY}/firsttoken/sidecar:v7"


def test_image_digest_is_the_operators() -> None:
    images = _images(f'image.digest="{DIGEST}"')
    assert images["operator"] == f"{helm.REGISTRY}/firsttoken/operator@{DIGEST}"
    assert images["sidecar"].endswith(":0.1.0")
    images = _images(f'image.digest="{DIGEST}"', f'images.operator.digest="{OTHER}"')
    assert images["operator"].endswith(OTHER)
