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


def test_images_are_pushed_only_when_asked_and_after_all_were_built(tmp_path: Path) -> None:
    builds = [name for name, _, _ in order().commands(ROOT, tmp_path)]
    assert builds == ["operator image", "sidecar image", "runtime image"]
    names = [name for name, _, _ in order(push=True).commands(ROOT, tmp_path)]
    assert names[3:] == ["push operator", "push sidecar", "push runtime"]


@pytest.mark.parametrize("tool", ["podman", "buildah"])
def test_the_digest_is_asked_for(tool: str, tmp_path: Path) -> None:
    command = order(tool=tool).push_command("runtime", tmp_path)
    assert command[:4] == [tool, "push", "--digestfile", str(tmp_path / "runtime")]


def test_the_next_step_uses_the_same_names_and_the_digests() -> None:
    line = order().next_step({"runtime": "sha256:ab"})
    assert "--set image.registry=registry.example.com/team" in line
    assert "--set image.tag=0.1.0" in line
    assert "--set images.runtime.digest=sha256:ab" in line
