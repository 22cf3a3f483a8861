"""`make images` as command lines."""

from pathlib import Path

import pytest

from images import publish

ROOT = Path("/checkout")


def order(**changes: object) -> publish.Order:
    facts: dict[str, object] = {"tool": "docker", "registry": "registry.example.com/team/", "tag": "0.1.0"}
    return publish.Order(**{**facts, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"tool": "kaniko"}, "TOOL"),
        ({"device": "tpu"}, "DEVICE"),
        ({"registry": ""}, "REGISTRY"),
        ({"tag": ""}, "TAG"),
        ({"device": "cuda", "torch_index_url": "https://mirror.example.com"}, "TORCH_INDEX_URL"),
    ],
)
def test_what_is_wrong_is_named(changes: dict[str, object], named: str) -> None:
    assert order(**changes).problem().startswith(named)


def test_a_complete_order_has_no_problem() -> None:
    assert order().problem() == ""


def test_the_build_names_target_file_and_image() -> None:
    assert order().build("sidecar", ROOT) == [
        "docker",
        "build",
        "--file",
        "/checkout/operator/Dockerfile",
        "--target",
        "sidecar",
        "--tag",
        "registry.example.com/team/firsttoken/sidecar:0.1.0",
        "/checkout",
    ]


def test_only_the_runtime_has_a_device() -> None:
    cuda = order(device="cuda", base="mirror.example.com/python:3.12-slim")
    assert "DEVICE=cuda" in cuda.build("runtime", ROOT)
    assert "DEVICE=cuda" not in cuda.build("operator", ROOT)
    assert "BASE=mirror.example.com/python:3.12-slim" in cuda.build("operator", ROOT)


def test_torch_from_another_index() -> None:
    command = order(torch_index_url="https://mirror.example.com/cpu").build("runtime", ROOT)
    assert "TORCH_INDEX_URL=https://mirror.example.com/cpu" in command


def test_images_are_pushed_only_when_asked_and_after_all_were_built() -> None:
    assert [name for name, _, _ in order().commands(ROOT)] == [
        "operator image",
        "sidecar image",
        "runtime image",
    ]
    names = [name for name, _, _ in order(push=True).commands(ROOT)]
    assert names[3:] == ["push operator", "push sidecar", "push runtime"]


def test_the_next_step_uses_the_same_names() -> None:
    assert "--set image.registry=registry.example.com/team --set image.tag=0.1.0" in order().next_step()
