"""What buildah pushed, read back."""

import json
from pathlib import Path

import pytest

from images import layout


def pushed(folder: Path, name: str) -> layout.Layout:
    store = layout.Layout(folder)
    config = store.write({"config": {"User": "1"}, "rootfs": {"type": "layers", "diff_ids": ["sha256:un"]}})
    manifest = store.write(
        {
            "config": {"digest": config.digest, "size": config.size},
            "layers": [{"digest": "sha256:aa", "size": 5, "mediaType": f"{layout.LAYER_TYPE}+gzip"}],
        }
    )
    entry = {"digest": manifest.digest, "annotations": {"org.opencontainers.image.ref.name": name}}
    (folder / "index.json").write_text(json.dumps({"manifests": [{"digest": "sha256:other"}, entry]}))
    return store


def test_an_image_is_found_by_its_name(tmp_path: Path) -> None:
    image = pushed(tmp_path, "operator-1").image("operator-1")
    assert image.layers == (
        layout.Layer(layout.Blob("sha256:aa", 5), f"{layout.LAYER_TYPE}+gzip", "sha256:un"),
    )
    assert image.config["config"] == {"User": "1"}


def test_an_unknown_name_is_our_mistake(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="operator-2 is 0 times"):
        pushed(tmp_path, "operator-1").image("operator-2")


def test_documents_are_stored_under_what_they_contain(tmp_path: Path) -> None:
    store = layout.Layout(tmp_path)
    first, second = store.write({"a": 1, "b": 2}), store.write({"b": 2, "a": 1})
    assert first == second
    assert layout.digest_of(store.blob(first.digest).read_bytes()) == first.digest
